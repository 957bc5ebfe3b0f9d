"""One heap and one timer for the deadlines of all groups, in virtual time."""

import asyncio
import random

import pytest

from broker.calls.clock import GroupClock
from broker.groups.group_context import GroupContext
from broker.groups.timers import DUE_PER_TURN_MAX, STALE_MIN, Timers
from tests.kit.loop import current, take_failures


class Stage:
    """Groups that are nothing but their deadlines."""

    def __init__(self, loop) -> None:
        self.loop = loop
        self.clock = GroupClock(lambda: int(loop.time() * 1000), stall_ms_max=60_000)
        self.timers = Timers(self.clock, self._due)
        self.fired: list[tuple[str, int]] = []
        self.bugs = 0

    def group(self, name: str) -> GroupContext:
        return GroupContext(name, 0)

    def _due(self, context: GroupContext) -> None:
        self.fired.append((context.group_id, self.clock.now_ms()))
        if context.group_id == "bug":
            raise RuntimeError("a bug")


async def test_a_group_is_called_once_at_its_deadline() -> None:
    stage = Stage(current())
    stage.timers.arm(stage.group("a"), 1_500)
    await asyncio.sleep(10)
    assert stage.fired == [("a", 1_500)]


@pytest.mark.parametrize("begin_s", [0.0, 0.3337, 1.0009])
async def test_a_timer_never_fires_before_its_ms_has_come(begin_s) -> None:
    """Clocks cut off fractions of a ms: fired too early, it would be armed and fire again."""
    stage = Stage(current())
    await asyncio.sleep(begin_s)
    for deadline_ms in range(2_000, 2_100):
        stage.timers.arm(stage.group(str(deadline_ms)), deadline_ms)
    before = stage.loop.steps
    await asyncio.sleep(3)
    assert [name for name, _ in stage.fired] == [str(ms) for ms in range(2_000, 2_100)]
    assert {at_ms - int(name) for name, at_ms in stage.fired} <= {0, 1, 2}
    assert stage.loop.steps - before <= 110


async def test_a_deadline_that_moves_away_costs_nothing_and_one_that_comes_nearer_is_kept() -> None:
    stage = Stage(current())
    away, near = stage.group("away"), stage.group("near")
    for deadline_ms in range(1_000, 2_000):
        stage.timers.arm(away, deadline_ms)
    assert len(stage.timers) == 1
    stage.timers.arm(near, 9_000)
    stage.timers.arm(near, 500)
    await asyncio.sleep(10)
    assert stage.fired == [("near", 500), ("away", 1_000)]


async def test_groups_without_a_deadline_or_a_future_are_left_alone() -> None:
    stage = Stage(current())
    stage.timers.arm(stage.group("none"), None)
    gone = stage.group("gone")
    stage.timers.arm(gone, 1_000)
    stage.timers.disarm(gone)
    await asyncio.sleep(10)
    assert stage.fired == []


async def test_when_many_are_due_at_once_others_have_their_turn_in_between() -> None:
    stage = Stage(current())
    for number in range(5 * DUE_PER_TURN_MAX):
        stage.timers.arm(stage.group(str(number)), 1_000)
    await asyncio.sleep(1)
    seen = set()
    while len(stage.fired) < 5 * DUE_PER_TURN_MAX:
        seen.add(len(stage.fired))
        await asyncio.sleep(0.0001)
    assert len(seen) >= 5
    assert {at_ms for _, at_ms in stage.fired} <= set(range(1_000, 1_010))


async def test_the_heap_is_bounded_by_the_groups() -> None:
    stage = Stage(current())
    rng = random.Random(1)
    groups = [stage.group(str(number)) for number in range(100)]
    for _ in range(50_000):
        context = rng.choice(groups)
        if rng.random() < 0.5:
            stage.timers.arm(context, 1_000_000 - len(stage.timers))
        else:
            stage.timers.disarm(context)
        assert len(stage.timers) <= STALE_MIN + 2 * len(groups) + 1
    for context in groups:
        stage.timers.disarm(context)
        stage.timers.arm(context, 5_000)
    await asyncio.sleep(2_000)
    assert sorted(stage.fired) == sorted((context.group_id, 5_000) for context in groups)


async def test_a_bug_in_one_group_keeps_no_other_from_its_deadline() -> None:
    stage = Stage(current())
    for name, deadline_ms in (("bug", 1_000), ("a", 1_000), ("b", 2_000)):
        stage.timers.arm(stage.group(name), deadline_ms)
    await asyncio.sleep(10)
    assert [name for name, _ in stage.fired] == ["bug", "a", "b"]
    assert len(take_failures()) == 1


async def test_a_stall_moves_every_deadline() -> None:
    stage = Stage(current())
    stage.clock = GroupClock(lambda: int(stage.loop.time() * 1000), stall_ms_max=500)
    stage.timers = Timers(stage.clock, stage._due)
    stage.timers.arm(stage.group("a"), 2_000)
    for _ in range(10):
        await asyncio.sleep(0.1)
        stage.clock.now_ms()
    stage.loop._now += 30
    assert 998 <= stage.clock.now_ms() <= 1_001
    for _ in range(9):
        await asyncio.sleep(0.1)
        stage.clock.now_ms()
    assert stage.fired == []
    await asyncio.sleep(0.2)
    assert [name for name, _ in stage.fired] == ["a"]
