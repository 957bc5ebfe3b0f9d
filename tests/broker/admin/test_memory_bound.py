"""The sum of what an agent may take of memory."""

import tracemalloc
from collections.abc import Callable

import pytest

from broker.admin.memory_bound import (
    PARTITION_BYTES,
    PLACE_BYTES,
    ROW_BYTES,
    WATCH_BYTES,
    fetching_bytes,
    machine_bytes,
    memory_bound,
    parts_of,
)
from broker.config.settings import load
from broker.fetch.purgatory import FetchPurgatory
from broker.fetch.sessions import FetchContext, FetchSessions
from broker.telemetry.forwarding import QUEUE_BYTES_MAX
from protocol.fetch import FetchPartition, FetchRequest
from protocol.records import Record, build_batch
from protocol.types import TopicId
from tests.kit.sockets import settings_of

MiB = 1 << 20
REQUESTS = 256 * MiB


def test_the_bound_is_the_sum_of_its_parts() -> None:
    settings = settings_of()
    parts = parts_of(settings, request_bytes_max=REQUESTS)
    assert memory_bound(settings, request_bytes_max=REQUESTS) == sum(parts.values())


def test_what_settings_of_memory_say_is_in_the_bound() -> None:
    few = settings_of("cache.bytes=64MiB", "produce.buffer.bytes=64MiB")
    more = settings_of("cache.bytes=128MiB", "produce.buffer.bytes=96MiB")
    less, greater = (memory_bound(each, request_bytes_max=REQUESTS) for each in (few, more))
    reads = 128 * MiB // 4 - 64 * MiB // 4
    assert greater - less == 64 * MiB + 32 * MiB + reads


def test_metrics_of_clients_are_in_the_bound_and_so_is_what_waits_for_a_collector() -> None:
    few, more = settings_of(), settings_of("telemetry.metrics.bytes=6MiB")
    forwarding = settings_of("telemetry.otlp.endpoint=http://collector:4318")
    less, greater, forwarded = (
        parts_of(each, request_bytes_max=REQUESTS)["metrics of clients"]
        for each in (few, more, forwarding)
    )
    assert greater - less == 2 * 2 * MiB
    assert forwarded - less == QUEUE_BYTES_MAX


def test_larger_requests_make_the_bound_larger() -> None:
    few, more = settings_of(), settings_of("socket.request.max.bytes=209715200")
    less = parts_of(few, request_bytes_max=REQUESTS)["requests"]
    greater = parts_of(more, request_bytes_max=REQUESTS)["requests"]
    assert greater - less == 100 * MiB


def test_the_bound_of_an_agent_with_defaults_is_about_two_gib() -> None:
    defaults = {"store": "s3://bucket/prefix", "log": "etcd://etcd:2379/frazil"}
    settings = load(defaults=defaults, toml=None, environ={}, flags=()).settings
    bound = memory_bound(settings, request_bytes_max=REQUESTS)
    assert 1900 * MiB < bound <= 2100 * MiB


async def test_what_a_cluster_holds_counts_besides(world) -> None:
    async with world.with_topic(partitions=3) as (one,):
        machine = one.machine
        assert machine_bytes(machine) == 3 * PARTITION_BYTES + machine.groups.size
        await one.produce(world.topic, build_batch([Record(value=b"a", timestamp=1)]))
        assert machine_bytes(machine) == 3 * PARTITION_BYTES + ROW_BYTES + machine.groups.size


def grown(make: Callable[[], object]) -> int:
    """Bytes that are there afterwards and were not before."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        kept = make()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    del kept
    return after - before


def test_what_fetch_sessions_remember_takes_what_the_bound_says() -> None:
    def make() -> FetchSessions:
        sessions = FetchSessions(slots=10, draw_id=iter(range(1, 100)).__next__)
        for session in range(5):
            wanted = [
                FetchPartition(at, 10**9 + 1000 * at, 1 << 20, 5, 5, 10**6 + at)
                for at in range(2_000)
            ]
            topics = [(None, TopicId(bytes([session]) * 16), wanted)]
            request = FetchRequest(500, 1, 1 << 26, 0, topics, 0, 0)
            opened = sessions.open(13, request, 0)
            assert isinstance(opened, FetchContext)
            for place in opened.places:
                place.end_sent, place.log_start_sent = 10**9 + session, 10**6 + session
        assert sessions.places_count == 10_000
        return sessions

    said = fetching_bytes(places=10_000, watches=0)
    assert said == 10_000 * PLACE_BYTES
    assert 0.6 * said < grown(make) <= said


@pytest.mark.parametrize(("fetches", "at_most"), [(50, 1.0), (2, 2.5)])
def test_what_fetches_wait_for_takes_what_the_bound_says(fetches: int, at_most: float) -> None:
    """The first fetch of a partition costs more than those beside it."""

    def make() -> FetchPurgatory[int]:
        parked = FetchPurgatory[int]()
        topic_id = TopicId(bytes(16))
        for fetch in range(fetches):
            watches = [(topic_id, at, 1 << 20, 10**9 + at) for at in range(400)]
            parked.park(fetch, watches, committed=False, bytes_missing=1, deadline_ms=10**6)
        assert parked.watches_count == fetches * 400
        return parked

    said = fetching_bytes(places=0, watches=fetches * 400)
    assert said == fetches * 400 * WATCH_BYTES
    assert 0.4 * said < grown(make) <= at_most * said
