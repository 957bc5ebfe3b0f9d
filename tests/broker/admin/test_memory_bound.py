"""The sum of what an agent may take of memory."""

from broker.admin.memory_bound import (
    PARTITION_BYTES,
    ROW_BYTES,
    machine_bytes,
    memory_bound,
    parts_of,
)
from broker.config.settings import load
from broker.telemetry.forwarding import QUEUE_BYTES_MAX
from protocol.records import Record, build_batch
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
