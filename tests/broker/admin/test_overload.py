"""When an agent is said to be overloaded, by what, and until when."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from broker.admin.load_watch import LAGS_KEPT, LoadWatch
from broker.admin.overload import (
    CLEAR_MS,
    LAG_MS_MAX,
    QUEUED_MS_MAX,
    Load,
    Reason,
    overloaded,
    sentence,
)
from broker.node import EdgeStats
from tests.broker.agents import serving
from tests.kit.faults import held
from tests.kit.sockets import Place, Running

MiB = 1 << 20
QUIET = Load(
    request_bytes=0,
    request_bytes_max=256 * MiB,
    produce_bytes=0,
    produce_bytes_max=64 * MiB,
    queued=0,
    queued_ms=0,
    lag_ms=0,
    connections=10,
    connections_max=768,
)
AT_BOUNDS = {
    Reason.REQUESTS: QUIET._replace(request_bytes=192 * MiB),
    Reason.PRODUCE: QUIET._replace(produce_bytes=58 * MiB),
    Reason.QUEUE: QUIET._replace(queued=4_000, queued_ms=QUEUED_MS_MAX),
    Reason.LOOP: QUIET._replace(lag_ms=LAG_MS_MAX),
    Reason.CONNECTIONS: QUIET._replace(connections=768),
}


def test_an_agent_below_its_bounds_is_not_overloaded() -> None:
    assert overloaded({}, QUIET, now_ms=5) == {}


def test_each_bound_that_is_reached_is_a_reason_of_its_own() -> None:
    assert AT_BOUNDS.keys() == set(Reason)
    for reason, load in AT_BOUNDS.items():
        assert overloaded({}, load, now_ms=5) == {reason: 5}


def test_just_below_a_bound_nothing_begins() -> None:
    below = Load(
        request_bytes=192 * MiB - 1,
        request_bytes_max=256 * MiB,
        produce_bytes=57 * MiB,
        produce_bytes_max=64 * MiB,
        queued=5_000,
        queued_ms=QUEUED_MS_MAX - 1,
        lag_ms=LAG_MS_MAX - 1,
        connections=767,
        connections_max=768,
    )
    assert overloaded({}, below, now_ms=5) == {}


def test_a_reason_goes_on_while_its_counter_is_above_three_quarters_of_the_bound() -> None:
    swinging = QUIET._replace(produce_bytes=48 * MiB)
    assert overloaded({Reason.PRODUCE: 0}, swinging, now_ms=60_000) == {Reason.PRODUCE: 60_000}
    assert overloaded({}, swinging, now_ms=60_000) == {}


def test_a_reason_ends_when_its_counter_was_low_for_two_seconds() -> None:
    before = {Reason.LOOP: 1_000}
    before = overloaded(before, QUIET, now_ms=1_000 + CLEAR_MS - 1)
    assert before == {Reason.LOOP: 1_000}
    assert overloaded(before, QUIET, now_ms=1_000 + CLEAR_MS) == {}


def test_each_reason_is_told_by_its_name_how_much_there_is_and_what_it_does() -> None:
    said = {reason: sentence(reason, load) for reason, load in AT_BOUNDS.items()}
    assert all(said[reason].startswith(f"{reason.value}: ") for reason in Reason)
    assert "192 of 256 MiB" in said[Reason.REQUESTS]
    assert "58 of 64 MiB" in said[Reason.PRODUCE]
    assert "4000 connections" in said[Reason.QUEUE]
    assert "250 ms late" in said[Reason.LOOP]
    assert "768 of 768" in said[Reason.CONNECTIONS]


class Agent:
    """What a watch looks at."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.stats = EdgeStats()
        self.producing = SimpleNamespace(stats=SimpleNamespace(waiting_bytes=0))
        self.settings = SimpleNamespace(produce_buffer_bytes=64 * MiB)

    def boot_ms(self) -> int:
        return self.now_ms


def watch_of(agent: Any) -> LoadWatch:
    return LoadWatch(agent, request_bytes_max=256 * MiB, connections_max=lambda: 100)


def test_one_stall_of_the_loop_is_no_overload_and_two_looks_in_a_row_are() -> None:
    watch = watch_of(Agent())
    for lag_ms in (0, 2_000, 0):
        watch.look(lag_ms=lag_ms)
        assert not watch.sentences()
    for lag_ms in (300, 400):
        watch.look(lag_ms=lag_ms)
    assert [each.partition(":")[0] for each in watch.sentences()] == ["loop_lag"]


def test_while_an_overload_ends_it_is_told_as_it_was() -> None:
    agent = Agent()
    agent.stats.connections_open = 100
    watch = watch_of(agent)
    watch.look(lag_ms=0)
    agent.stats.connections_open, agent.now_ms = 7, CLEAR_MS - 1
    watch.look(lag_ms=0)
    (said,) = watch.sentences()
    assert said.startswith("connections: 100 of 100 ")


def test_flags_have_every_reason_and_1_for_those_that_hold() -> None:
    agent = Agent()
    agent.stats.connections_open = 100
    watch = watch_of(agent)
    watch.look(lag_ms=0)
    assert watch.flags() == {
        "request_memory": 0.0,
        "produce_buffer": 0.0,
        "request_queue": 0.0,
        "loop_lag": 0.0,
        "connections": 1.0,
    }


def test_the_lag_that_is_told_is_the_longest_of_late() -> None:
    watch = watch_of(Agent())
    watch.look(lag_ms=700)
    for _ in range(LAGS_KEPT - 1):
        watch.look(lag_ms=3)
    assert watch.lag_ms() == 700
    watch.look(lag_ms=3)
    assert watch.lag_ms() == 3


def test_an_overload_is_logged_when_it_begins_and_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    agent = Agent()
    watch = watch_of(agent)
    with caplog.at_level(logging.INFO, "broker.admin.load_watch"):
        agent.stats.held_bytes = 200 * MiB
        for agent.now_ms in (0, 250, 500):
            watch.look(lag_ms=0)
        agent.stats.held_bytes = 0
        for agent.now_ms in (750, 500 + CLEAR_MS, 750 + CLEAR_MS):
            watch.look(lag_ms=0)
    assert [record.getMessage() for record in caplog.records] == [
        "overloaded by request_memory: requests hold 200 of 256 MiB, and big ones wait",
        "overloaded no more",
    ]


async def test_a_watch_sees_how_late_the_loop_is() -> None:
    watch = watch_of(Agent())
    watching = asyncio.create_task(watch.run())
    await asyncio.sleep(2)
    assert watch.lag_ms() == 0
    watching.cancel()


async def overload_of(running: Running) -> Any:
    """What the probes are told, once it is something."""
    while True:
        status, answer = await running.http("GET", "/health/ready")
        assert (status, answer["ready"], answer["reasons"]) == (200, True, [])
        assert (await running.http("GET", "/health/live"))[0] == 200
        if "overloaded" in answer:
            return answer["overloaded"]
        await asyncio.sleep(0.02)


@pytest.mark.real_loop
async def test_an_overloaded_agent_says_so_with_the_reason_and_stays_live_and_ready() -> None:
    place, written = Place(), asyncio.Event()
    async with serving(place, "chunk.bytes=256KiB", "produce.buffer.bytes=1MiB") as running:
        client = await running.connect()
        assert await client.create("t") == 0
        running.store.before["put_new"] = held(written)
        nearly_all = bytes(MiB - 1024)
        waiting = asyncio.create_task(client.produce("t", [nearly_all], timeout_ms=60_000))
        async with asyncio.timeout(10):
            (said,) = await overload_of(running)
        assert said.startswith("produce_buffer: 0 of 1 MiB")
        _, metrics = await running.http("GET", "/metrics")
        assert 'frazil_overloaded{reason="produce_buffer"} 1.0' in metrics
        assert 'frazil_overloaded{reason="loop_lag"} 0.0' in metrics
        assert "frazil_ready 1.0" in metrics
        written.set()
        assert await waiting == (0, 0)
        async with asyncio.timeout(10):
            while "overloaded" in (await running.http("GET", "/health/ready"))[1]:
                await asyncio.sleep(0.05)


@pytest.mark.real_loop
async def test_the_bounds_that_are_watched_are_those_that_are_kept() -> None:
    async with serving(None, "max.connections=1") as running:
        await running.connect()
        async with asyncio.timeout(10):
            (said,) = await overload_of(running)
        assert said.startswith("connections: 1 of 1 connections")
