"""What an agent says the time is: one wild clock moves no time and so deletes nothing (P6)."""

import asyncio
import random
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.agent import Agent
from broker.cluster.agreed_clock import BELIEVED_AFTER_MS, TOLERANCE_MS, AgreedClock
from broker.composition import Parts
from broker.store.clock import EVERY_S, LEFT_BEHIND_MS, PREFIX, StoreTime
from coordinator.commands.entries import Pin, Pinned, Tick
from storage.stores.memory import MemoryStore
from storage.stores.object_store import StoreUnavailableError
from tests.kit.faults import FaultyStore, refused
from tests.kit.sockets import Place, Running, agent_of, settings_of

YEAR_MS = 365 * 86_400_000
NOON_MS = 1_700_000_000_000
wild_ms = st.integers(-2 * YEAR_MS, 2 * YEAR_MS)


def test_clocks_that_agree_are_taken_as_they_are() -> None:
    clock = AgreedClock(wall_ms=NOON_MS, boot_ms=500)
    clock.measured(store_ms=NOON_MS - 59_000, wall_ms=NOON_MS, boot_ms=500)
    assert clock.now_ms(wall_ms=NOON_MS, boot_ms=500) == NOON_MS
    assert clock.now_ms(wall_ms=NOON_MS + YEAR_MS, boot_ms=500 + YEAR_MS) == NOON_MS + YEAR_MS


def test_the_stores_clock_goes_on_by_boot_time_whatever_the_wall_clock_does() -> None:
    clock = AgreedClock(wall_ms=NOON_MS, boot_ms=500)
    assert clock.store_ms(wall_ms=NOON_MS + 3, boot_ms=503) == NOON_MS + 3
    clock.measured(store_ms=NOON_MS - 59_000, wall_ms=NOON_MS, boot_ms=500)
    assert clock.store_ms(wall_ms=NOON_MS - YEAR_MS, boot_ms=507) == NOON_MS - 59_000 + 7


def test_clock_that_is_behind_is_taken_as_it_is() -> None:
    clock = AgreedClock(wall_ms=NOON_MS, boot_ms=0)
    clock.measured(store_ms=NOON_MS + YEAR_MS, wall_ms=NOON_MS, boot_ms=0)
    assert clock.now_ms(wall_ms=NOON_MS + 7, boot_ms=7) == NOON_MS + 7
    assert clock.now_ms(wall_ms=NOON_MS - YEAR_MS, boot_ms=7) == NOON_MS - YEAR_MS
    assert clock.skew_ms(wall_ms=NOON_MS, boot_ms=0) == -YEAR_MS


@given(st.lists(st.tuples(st.integers(0, YEAR_MS), wild_ms, st.booleans()), min_size=1), wild_ms)
def test_wild_wall_clock_never_says_what_is_not_yet(
    steps: list[tuple[int, int, bool]], skew_at_start_ms: int
) -> None:
    clock = AgreedClock(wall_ms=NOON_MS + skew_at_start_ms, boot_ms=0)
    clock.measured(store_ms=NOON_MS, wall_ms=NOON_MS + skew_at_start_ms, boot_ms=0)
    passed_ms = 0
    for step_ms, skew_ms, measured in steps:
        passed_ms += step_ms
        wall_ms = NOON_MS + passed_ms + skew_ms
        if measured:
            clock.measured(store_ms=NOON_MS + passed_ms, wall_ms=wall_ms, boot_ms=passed_ms)
        now_ms = clock.now_ms(wall_ms=wall_ms, boot_ms=passed_ms)
        assert now_ms <= NOON_MS + passed_ms + TOLERANCE_MS


@given(st.lists(st.tuples(st.integers(0, YEAR_MS), wild_ms), min_size=1))
def test_wild_clock_of_the_store_never_says_what_is_not_yet(steps: list[tuple[int, int]]) -> None:
    clock = AgreedClock(wall_ms=NOON_MS, boot_ms=0)
    passed_ms = 0
    for step_ms, skew_ms in steps:
        passed_ms += step_ms
        wall_ms = NOON_MS + passed_ms
        clock.measured(store_ms=wall_ms + skew_ms, wall_ms=wall_ms, boot_ms=passed_ms)
        assert clock.now_ms(wall_ms=wall_ms, boot_ms=passed_ms) <= wall_ms


@given(st.integers(0, YEAR_MS), st.integers(TOLERANCE_MS, 2 * YEAR_MS))
def test_one_clock_of_store_and_agent_that_jumps_moves_no_time(
    passed_ms: int, skew_ms: int
) -> None:
    clock = AgreedClock(wall_ms=NOON_MS, boot_ms=0)
    jumped_ms = NOON_MS + passed_ms + skew_ms
    clock.measured(store_ms=jumped_ms, wall_ms=jumped_ms, boot_ms=passed_ms)
    now_ms = clock.now_ms(wall_ms=jumped_ms, boot_ms=passed_ms)
    assert now_ms == NOON_MS + passed_ms + TOLERANCE_MS


def measured_hourly(clock: AgreedClock, *, skew_ms: int, boot_ms: int, hours: int) -> int:
    """For so many hours wall and store say the same, `skew_ms` beside what is true; the boot-time clock then."""
    for _ in range(hours):
        boot_ms += 3_600_000
        now_ms = NOON_MS + boot_ms + skew_ms
        clock.measured(store_ms=now_ms, wall_ms=now_ms, boot_ms=boot_ms)
    return boot_ms


def test_a_clock_that_was_behind_at_the_start_catches_up_a_day_after_it_was_set_right() -> None:
    clock = AgreedClock(wall_ms=NOON_MS - YEAR_MS, boot_ms=0)
    clock.measured(store_ms=NOON_MS, wall_ms=NOON_MS - YEAR_MS, boot_ms=0)
    boot_ms = measured_hourly(clock, skew_ms=0, boot_ms=0, hours=24)
    assert clock.other_ms == YEAR_MS
    assert clock.now_ms(wall_ms=NOON_MS + boot_ms, boot_ms=boot_ms) < NOON_MS
    boot_ms = measured_hourly(clock, skew_ms=0, boot_ms=boot_ms, hours=1)
    assert clock.now_ms(wall_ms=NOON_MS + boot_ms, boot_ms=boot_ms) == NOON_MS + boot_ms
    assert clock.other_ms == 0


@given(st.lists(st.tuples(st.integers(0, YEAR_MS), wild_ms, wild_ms)), wild_ms)
def test_whatever_the_clocks_said_they_are_believed_a_day_after_they_are_right(
    steps: list[tuple[int, int, int]], skew_at_start_ms: int
) -> None:
    clock = AgreedClock(wall_ms=NOON_MS + skew_at_start_ms, boot_ms=0)
    boot_ms = 0
    for step_ms, wall_skew_ms, store_skew_ms in steps:
        boot_ms += step_ms
        true_ms = NOON_MS + boot_ms
        clock.measured(
            store_ms=true_ms + store_skew_ms, wall_ms=true_ms + wall_skew_ms, boot_ms=boot_ms
        )
    boot_ms = measured_hourly(clock, skew_ms=0, boot_ms=boot_ms, hours=26)
    assert clock.now_ms(wall_ms=NOON_MS + boot_ms, boot_ms=boot_ms) == NOON_MS + boot_ms


def test_a_time_that_wall_and_store_do_not_agree_on_for_a_day_is_never_believed() -> None:
    clock = AgreedClock(wall_ms=NOON_MS, boot_ms=0)
    boot_ms = 0
    for _ in range(10):
        boot_ms = measured_hourly(clock, skew_ms=YEAR_MS, boot_ms=boot_ms, hours=23)
        boot_ms = measured_hourly(clock, skew_ms=0, boot_ms=boot_ms, hours=1)
    boot_ms = measured_hourly(clock, skew_ms=YEAR_MS, boot_ms=boot_ms, hours=1)
    now_ms = clock.now_ms(wall_ms=NOON_MS + boot_ms + YEAR_MS, boot_ms=boot_ms)
    assert now_ms == NOON_MS + boot_ms + TOLERANCE_MS


class Clocks:
    """Wall, boot and store time in virtual time."""

    def __init__(self) -> None:
        self.wall_skew_ms = 0
        self.store_skew_ms = 0

    def true_ms(self) -> int:
        return NOON_MS + int(asyncio.get_running_loop().time() * 1000)

    def wall_ms(self) -> int:
        return self.true_ms() + self.wall_skew_ms

    def store_ms(self) -> int:
        return self.true_ms() + self.store_skew_ms


def measuring(clocks: Clocks, store: object) -> StoreTime:
    return StoreTime(
        store, now_ms=clocks.wall_ms, boot_ms=lambda: clocks.true_ms() - 5, rng=random.Random(7)
    )


async def test_store_is_measured_hourly_and_nothing_stays_there() -> None:
    clocks = Clocks()
    store = MemoryStore(clocks.store_ms)
    store_time = measuring(clocks, store)
    await store_time.measure()
    running = asyncio.ensure_future(store_time.run())
    clocks.store_skew_ms = -YEAR_MS
    await asyncio.sleep(EVERY_S - 1)
    assert store_time.now_ms() == clocks.true_ms()
    await asyncio.sleep(2)
    assert store_time.now_ms() == clocks.true_ms() - YEAR_MS + TOLERANCE_MS
    assert store_time.skew_ms() == YEAR_MS
    assert not await store.list_after(PREFIX, "")
    running.cancel()


async def test_measurement_that_fails_is_made_again_and_the_clocks_before_it_hold() -> None:
    clocks = Clocks()
    store = FaultyStore(MemoryStore(clocks.store_ms))
    store_time = measuring(clocks, store)
    await store_time.measure()
    running = asyncio.ensure_future(store_time.run())
    store.before["list_after"] = refused(StoreUnavailableError("it is away"))
    clocks.wall_skew_ms = YEAR_MS
    await asyncio.sleep(EVERY_S * 5)
    assert store_time.now_ms() == clocks.true_ms() + TOLERANCE_MS
    store.before.clear()
    clocks.store_skew_ms = -2000
    await asyncio.sleep(70)
    assert store_time.skew_ms() == YEAR_MS + 2000
    running.cancel()


async def test_an_agent_whose_clock_was_set_right_says_so_and_follows_after_a_day(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clocks = Clocks()
    clocks.wall_skew_ms = -YEAR_MS
    store_time = measuring(clocks, MemoryStore(clocks.store_ms))
    await store_time.measure()
    running = asyncio.ensure_future(store_time.run())
    clocks.wall_skew_ms = 0
    await asyncio.sleep(EVERY_S + 1)
    assert "was set forward by 31536000 s" in caplog.text
    assert store_time.now_ms() == clocks.true_ms() - YEAR_MS + TOLERANCE_MS
    await asyncio.sleep(BELIEVED_AFTER_MS / 1000)
    assert store_time.now_ms() == clocks.true_ms()
    running.cancel()


async def test_what_others_left_behind_is_deleted_and_what_they_are_about_to_read_is_not() -> None:
    clocks = Clocks()
    store = MemoryStore(clocks.store_ms)
    await store.put_new(PREFIX + "old", [b"\n"])
    await asyncio.sleep(LEFT_BEHIND_MS / 1000 + 1)
    await store.put_new(PREFIX + "new", [b"\n"])
    store_time = measuring(clocks, store)
    await store_time.measure()
    running = asyncio.ensure_future(store_time.run())
    await asyncio.sleep(1)
    running.cancel()
    assert [info.key for info in await store.list_after("", "")] == [PREFIX + "new"]


async def test_a_start_waits_for_no_deletion() -> None:
    clocks = Clocks()
    store = FaultyStore(MemoryStore(clocks.store_ms))
    store.before["delete"] = refused(AssertionError("somebody deletes"))
    await measuring(clocks, store).measure()
    assert len(await store.list_after(PREFIX, "")) == 1


class Wild:
    """A real agent with a wall clock that a test may turn."""

    def __init__(self, skew_ms: int = 0) -> None:
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.skew_ms

    @asynccontextmanager
    async def running(self, place: Place, name: str):
        store, log = place.store(), place.log()
        parts = Parts(
            store=store,
            log=log,
            now_ms=self.now_ms,
            boot_ms=lambda: time.monotonic_ns() // 1_000_000,
            rng=random.Random(name),
        )
        # No session lapses because the machine that runs this is busy.
        settings = settings_of("lease.ttl.ms=60000", "session.deadline.ms=40000")
        agent = Agent(replace(settings, node_name=name), parts)
        task = asyncio.get_running_loop().create_task(agent.run())
        await agent.opened()
        running = Running(agent, store, log, task)
        try:
            await running.until(ready=True, seconds=60)
            yield running
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task


async def assert_deletes_nothing(running: Running, *, wild: Wild, turn_ms: int) -> None:
    """A pin outlives whatever the agent with the wild clock writes."""
    log_client = running.agent.node.log_client
    assert isinstance(await log_client.propose(Pin("export", 10 * TOLERANCE_MS)), Pinned)
    wild.skew_ms += turn_ms
    for _ in range(3):
        await log_client.propose(Tick())
    # The clocks are read one after the other.
    assert log_client.machine.time_ms <= time.time_ns() // 1_000_000 + TOLERANCE_MS + 1000
    machine = log_client.machine
    assert [pin.name for pin in machine.pins.alive(machine.time_ms)] == ["export"]


@pytest.mark.promise("P6")
@pytest.mark.parametrize("turn_ms", [0, YEAR_MS], ids=["wild at start", "wild later"])
@pytest.mark.real_loop
async def test_one_wild_clock_alone_deletes_nothing(turn_ms: int) -> None:
    wild = Wild(YEAR_MS - turn_ms)
    async with wild.running(Place(), "wild") as running:
        await assert_deletes_nothing(running, wild=wild, turn_ms=turn_ms)


@pytest.mark.promise("P6")
@pytest.mark.parametrize("turn_ms", [0, YEAR_MS], ids=["wild at start", "wild later"])
@pytest.mark.real_loop
async def test_one_wild_clock_among_others_deletes_nothing(turn_ms: int) -> None:
    wild, place = Wild(YEAR_MS - turn_ms), Place()
    async with Wild().running(place, "tame"), wild.running(place, "wild") as running:
        await assert_deletes_nothing(running, wild=wild, turn_ms=turn_ms)


@pytest.mark.real_loop
async def test_an_agent_that_cannot_read_the_stores_clock_at_start_waits_for_it() -> None:
    place = Place()
    store = place.store()
    store.before["list_after"] = refused(StoreUnavailableError("it is away"))
    async with agent_of(place, store=store) as running:
        await asyncio.sleep(0.3)
        status, answer = await running.http("GET", "/health/ready")
        assert status == 503
        assert "away" in answer["reasons"][0]
        assert not place.cluster.entries
        store.before.clear()
        await running.until(ready=True, seconds=60)
