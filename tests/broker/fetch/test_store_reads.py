"""Room for what fetches read from the store: bounded, in order, and never lost."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.calls.shares import Owner
from broker.fetch.answers import LOAD_BYTES_MAX
from broker.fetch.store_reads import LOADS_MAX, ReadBudget

MAX = 4 * LOAD_BYTES_MAX


class Load:
    """One who reads for a while."""

    def __init__(self, room: ReadBudget, byte_count: int, owner: str = "one") -> None:
        self.byte_count = byte_count
        self.owner = Owner(owner)
        self.inside = False
        self.leave = asyncio.Event()
        self.task = asyncio.create_task(self._run(room))

    async def _run(self, room: ReadBudget) -> None:
        async with room.of(self.byte_count, self.owner):
            self.inside = True
            try:
                await self.leave.wait()
            finally:
                self.inside = False


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_who_needs_more_than_there_is_has_the_room_to_himself_and_is_not_overtaken() -> None:
    room = ReadBudget(MAX)
    first, huge, small = (Load(room, size) for size in (1, 10 * MAX, 1))
    await _settle()
    assert [one.inside for one in (first, huge, small)] == [True, False, False]
    first.leave.set()
    await _settle()
    assert [one.inside for one in (huge, small)] == [True, False]
    huge.leave.set()
    await _settle()
    assert small.inside
    small.leave.set()


async def test_a_small_room_holds_two_fetches() -> None:
    loads = [Load(room, LOAD_BYTES_MAX) for room in [ReadBudget(0)] for _ in range(3)]
    await _settle()
    assert [one.inside for one in loads] == [True, True, False]
    for one in loads:
        one.leave.set()


@pytest.mark.promise("P15")
async def test_who_reads_much_is_waited_for_once_by_who_comes_later() -> None:
    room = ReadBudget(MAX)
    many = [Load(room, LOAD_BYTES_MAX) for _ in range(50)]
    await _settle()
    late = Load(room, LOAD_BYTES_MAX, owner="two")
    await _settle()
    assert not late.inside
    for one in [one for one in many if one.inside][:2]:
        one.leave.set()
    await _settle()
    assert late.inside
    late.leave.set()
    for one in many:
        one.leave.set()
    await asyncio.gather(*(one.task for one in many))


async def test_a_turn_that_came_to_who_was_cancelled_is_the_next_ones() -> None:
    room = ReadBudget(MAX)
    async with room.of(MAX, Owner("zero")):
        cancelled, after = Load(room, MAX), Load(room, MAX)
        await _settle()
    cancelled.task.cancel()  # It has its turn, and was not running since.
    await _settle()
    assert cancelled.task.cancelled()
    assert after.inside
    after.leave.set()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("enter"), st.sampled_from([1, LOAD_BYTES_MAX, 3 * LOAD_BYTES_MAX])),
            st.tuples(st.just("leave"), st.integers(0, 50)),
            st.tuples(st.just("cancel"), st.integers(0, 50)),
            st.tuples(st.just("cancel at its turn"), st.integers(0, 50)),
        ),
        max_size=60,
    )
)
async def test_room_is_bounded_and_everybody_gets_in(steps) -> None:
    room = ReadBudget(MAX)
    loads: list[Load] = []
    for what, number in steps:
        if what == "enter":
            loads.append(Load(room, number, "one" if len(loads) % 3 else "two"))
        elif loads:
            one = loads[number % len(loads)]
            if what == "leave":
                one.leave.set()
            elif what == "cancel":
                one.task.cancel()
                # The others go in the same turn of the loop, and before the next.
                loads[0].task.cancel()
            else:
                for other in loads:
                    other.leave.set()
                await asyncio.sleep(0)
                one.task.cancel()
        await _settle()
        inside = [one.byte_count for one in loads if one.inside]
        assert sum(inside) <= MAX or len(inside) == 1
        assert len(inside) <= LOADS_MAX
    for one in loads:
        one.leave.set()
    await asyncio.gather(*(one.task for one in loads), return_exceptions=True)
    async with room.of(MAX, Owner("one")), asyncio.timeout(1):
        pass
