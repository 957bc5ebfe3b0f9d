"""What a world complains of: clocks that are ahead, and agents that end, whatever comes after them."""

import random
from typing import Any

import pytest

from coordinator.commands.entries import Entry, Open
from coordinator.log_client import Applied
from coordinator.machine.machine import Machine
from protocol.types import INCARNATION_NONE, Position
from tests.kit.loop import current
from tests.sim.records_world import RecordsWorld


class Watched:
    """A machine that a world looks at."""

    def __init__(self) -> None:
        self.world = RecordsWorld(current(), random.Random(1))
        self.machine = Machine()

    def open(self, number: int, *, ahead_ms: int) -> None:
        """An agent with such a clock joins."""
        command = Open(number, f"agent{number}", -1, "", (), "0", 1)
        entry = Entry(INCARNATION_NONE, 0, self.world.now_ms() + ahead_ms, (command,))
        outcomes = self.machine.apply(Position(number), entry)
        applied = Applied(Position(number), INCARNATION_NONE, entry, outcomes)
        self.world._look_at_time("agent0.1", self.machine, applied)


async def test_time_that_stays_with_the_slowest_clock_is_right() -> None:
    watched = Watched()
    for number, ahead_ms in enumerate((0, -500, 60_000, -86_400_000), start=1):
        watched.open(number, ahead_ms=ahead_ms)
    assert watched.world.violations == []


async def test_time_that_goes_with_another_than_the_slowest_clock_is_seen() -> None:
    watched = Watched()
    watched.open(1, ahead_ms=-500)
    watched.machine.time_ms += 1
    watched.open(2, ahead_ms=0)
    assert watched.world.violations == [
        "the time of agent0.1 is ahead of the slowest clock at 0x2 (P6)"
    ]


async def test_a_clock_that_is_ahead_of_the_stores_is_seen() -> None:
    watched = Watched()
    watched.open(1, ahead_ms=60_001)
    assert watched.world.violations == [
        "an agent's time is 60001 ms ahead of the store's at 0x1 (P6)"
    ]


async def test_an_agent_that_ended_is_remembered_when_another_life_is_in_its_place() -> None:
    class Ending:
        """An agent."""

        def on_node(self, _callback: object) -> None:
            """Never put together."""

        async def run(self) -> None:
            raise RuntimeError("it is over")

    world = RecordsWorld(current(), random.Random(1))
    agent: Any = Ending()
    with pytest.raises(RuntimeError):
        await world._live(world.lives[0], agent, "agent0.1")
    assert world.failures() == []
    assert world.violations == ["agent0.1 ended: RuntimeError('it is over')"]
