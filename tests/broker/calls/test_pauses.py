"""A machine that was paused knows it by its wall clock (P5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.calls.pauses import PAUSE_MS_MIN, PauseClock
from broker.calls.stalls import StallWatch
from coordinator.log.memory import MemoryLogCluster
from tests.coordinator.support import Agent, running

YEAR_MS = 365 * 86_400_000


class Machine:
    """Its two clocks, and the one that is made of them."""

    def __init__(self) -> None:
        self.wall_ms = 1_700_000_000_000
        self.boot_ms = 5_000
        self.clock = PauseClock(wall_ms=lambda: self.wall_ms, boot_ms=lambda: self.boot_ms)

    def run(self, ms: int) -> int:
        self.wall_ms += ms
        self.boot_ms += ms
        return self.clock()


def test_a_pause_of_the_machine_is_time_that_has_passed() -> None:
    machine = Machine()
    assert machine.run(1_000) == 6_000
    machine.wall_ms += 30_000
    assert machine.run(1_000) == 37_000
    assert machine.run(1_000) == 38_000
    assert machine.clock.paused_ms == 30_000


def test_a_wall_clock_that_is_slewed_or_set_back_is_no_pause() -> None:
    machine = Machine()
    for _ in range(100):
        machine.wall_ms += PAUSE_MS_MIN - 1
        machine.run(1_000)
    machine.wall_ms -= YEAR_MS
    machine.run(1_000)
    assert machine.clock.paused_ms == 0


def test_a_process_that_waits_between_the_readings_of_its_clocks_was_not_paused() -> None:
    wall_ms, boot_ms = (
        iter([1_000_000, 1_001_000, 1_002_000, 1_003_000]),
        iter(
            # The second time it waits behind the wall clock's reading, the third time before it.
            [5_000, 6_000, 6_000 + 900, 7_000 - 900, 7_000, 8_000, 8_000]
        ),
    )
    clock = PauseClock(wall_ms=lambda: next(wall_ms), boot_ms=lambda: next(boot_ms))
    assert [clock(), clock(), clock()] == [6_900, 7_000, 8_000]
    assert clock.paused_ms == 0


@given(st.lists(st.tuples(st.integers(0, YEAR_MS), st.integers(-YEAR_MS, YEAR_MS))))
def test_it_never_goes_back_and_never_lags_behind_the_boot_time_clock(
    steps: list[tuple[int, int]],
) -> None:
    machine = Machine()
    before_ms = machine.clock()
    for passed_ms, jump_ms in steps:
        machine.wall_ms += jump_ms
        now_ms = machine.run(passed_ms)
        assert now_ms >= before_ms + passed_ms
        before_ms = now_ms


@pytest.mark.promise("P17")
def test_a_pause_is_a_stall() -> None:
    machine = Machine()
    watch = StallWatch(machine.clock(), stall_ms_max=1_000)
    machine.wall_ms += 30_000
    watch.observe(machine.run(250))
    assert (watch.stalls, watch.stalled_ms) == (1, 30_250)


@pytest.mark.promise("P5")
async def test_an_agent_on_a_machine_that_was_paused_acts_only_when_its_session_is_proven_again() -> (
    None
):
    agent = Agent(MemoryLogCluster())
    clocks = agent.clocks
    agent.log_client._lifecycle._boot_ms = PauseClock(wall_ms=clocks.now_ms, boot_ms=clocks.boot_ms)
    async with running(agent):
        first = await agent.ready()
        clocks.wall_skew_ms += 30_000
        assert agent.incarnation() is None
        heads = len(agent.log.called("head"))
        assert await agent.ready() == first, "the lease has survived it"
        assert len(agent.log.called("head")) > heads
