"""Long requests in slices: whose is next, what they hold together, and how they end."""

import asyncio
import itertools
from types import SimpleNamespace

import pytest

from broker.calls.slices import SLICE_ELEMENTS, AbandonedError, Slices
from tests.kit.client import settle


class Caller:
    """As much of a call as slices look at."""

    def __init__(self, address: str, number: int) -> None:
        self.connection = SimpleNamespace(peer=f"{address}:{40_000 + number}", number=number)
        self.abandoned = False


async def work(slices, call, order, *, turns) -> None:
    """Needs so many slices, and notes whose each of them was."""
    for _ in range(turns):
        await slices.turn(call)
        order.append(call.connection.peer.partition(":")[0])


async def test_a_request_waits_until_its_slice_is_granted():
    slices = Slices()
    assert not slices.waiting
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(slices.turn(Caller("10.0.0.1", 1)))
        await settle()
        assert slices.waiting
    assert not slices.waiting


@pytest.mark.promise("P15")
async def test_an_address_with_many_connections_has_no_more_turns_than_one_with_one():
    slices, order = Slices(), []
    greedy = [Caller("10.0.0.1", number) for number in range(50)]
    honest = Caller("10.0.0.2", 99)
    async with asyncio.TaskGroup() as tasks:
        for call in greedy:
            tasks.create_task(work(slices, call, order, turns=4))
        await settle()
        tasks.create_task(work(slices, honest, order, turns=4))
    last = max(index for index, who in enumerate(order) if who == "10.0.0.2")
    first = order.index("10.0.0.2")
    assert order[first : last + 1].count("10.0.0.1") <= 4


async def test_all_addresses_of_one_ipv6_network_have_the_turns_of_one():
    slices, order = Slices(), []
    greedy = [Caller(f"2001:db8:0:1::{number:x}", number) for number in range(50)]
    honest = Caller("2001:db8:0:2::1", 99)

    async def noted(call) -> None:
        for _ in range(4):
            await slices.turn(call)
            order.append(call.connection.number)

    async with asyncio.TaskGroup() as tasks:
        for call in greedy:
            tasks.create_task(noted(call))
        await settle()
        tasks.create_task(noted(honest))
    mine = [index for index, number in enumerate(order) if number == 99]
    assert mine[-1] - mine[0] <= 7


async def test_connections_of_one_address_take_turns():
    slices, order = Slices(), []
    calls = [Caller("10.0.0.1", number) for number in range(3)]

    async def noted(call) -> None:
        for _ in range(5):
            await slices.turn(call)
            order.append(call.connection.number)

    async with asyncio.TaskGroup() as tasks:
        for call in calls:
            tasks.create_task(noted(call))
    rounds = [order[first : first + 3] for first in range(3, 12, 3)]
    assert all(sorted(each) == [0, 1, 2] for each in rounds), order


@pytest.mark.real_loop  # Whose order of callbacks is that of agents.
async def test_other_work_of_the_loop_runs_between_two_slices():
    slices, order = Slices(), []
    loop = asyncio.get_running_loop()
    running = True

    def tick() -> None:
        order.append("other")
        if running:
            loop.call_soon(tick)

    loop.call_soon(tick)
    call = Caller("10.0.0.1", 1)
    await asyncio.gather(*[work(slices, call, order, turns=10) for _ in range(3)])
    running = False
    for one, next_one in itertools.pairwise(order):
        assert not (one == next_one == "10.0.0.1"), order


async def test_a_short_list_is_walked_without_a_turn():
    slices = Slices()
    call = Caller("10.0.0.1", 1)
    call.abandoned = True  # A turn would end it.
    items = range(SLICE_ELEMENTS - 1)
    assert [item async for item in slices.of(call).over(items)] == list(items)


async def test_lists_of_one_request_count_together():
    slices = Slices()
    call = Caller("10.0.0.1", 1)
    call.abandoned = True
    turns = slices.of(call)

    async def walk() -> None:
        for _ in range(SLICE_ELEMENTS):
            async for _ in turns.over([1, 2]):
                pass

    with pytest.raises(AbandonedError):
        await walk()


async def test_a_request_whose_client_is_gone_ends_at_its_next_turn():
    slices = Slices()
    call = Caller("10.0.0.1", 1)
    waiting = asyncio.create_task(slices.turn(call))
    await asyncio.sleep(1)
    call.abandoned = True
    with pytest.raises(AbandonedError):
        await slices.turn(call)
    await waiting


async def test_a_turn_that_is_cancelled_is_the_next_ones():
    slices, order = Slices(), []
    waiting = [asyncio.create_task(slices.turn(Caller("10.0.0.1", n))) for n in range(5)]
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    await work(slices, Caller("10.0.0.2", 9), order, turns=2)
    assert len(order) == 2


@pytest.mark.promise("P15")
async def test_long_requests_wait_outside_until_others_have_left():
    slices = Slices(held_max=100)
    entered = []
    leave = asyncio.Event()

    async def request(number, elements) -> None:
        async with slices.enter(Caller("10.0.0.1", number), elements):
            entered.append(number)
            await leave.wait()

    async with asyncio.TaskGroup() as tasks:
        for number in range(5):
            tasks.create_task(request(number, 40))
        await asyncio.sleep(1)
        assert len(entered) == 2
        assert slices.held == 80
        leave.set()
    assert len(entered) == 5
    assert slices.held == 0


async def test_what_a_request_does_not_come_to_is_room_for_others():
    slices = Slices(held_max=100)
    async with slices.enter(Caller("10.0.0.1", 1), 100) as entered:
        entered.settle(10)
        assert slices.held == 10
        async with slices.enter(Caller("10.0.0.2", 2), 90):
            assert slices.held == 100
    assert slices.held == 0


async def test_one_request_larger_than_the_room_enters_alone():
    slices = Slices(held_max=100)
    async with slices.enter(Caller("10.0.0.1", 1), 1_000):
        assert slices.held == 1_000
    assert slices.held == 0


async def test_a_request_that_is_cancelled_outside_holds_nothing():
    slices = Slices(held_max=100)

    async def request() -> None:
        async with slices.enter(Caller("10.0.0.1", 2), 50):
            raise AssertionError("it cannot enter")

    async with slices.enter(Caller("10.0.0.1", 1), 100):
        task = asyncio.create_task(request())
        await settle()
        task.cancel()
        await asyncio.wait([task])
    assert slices.held == 0
    async with slices.enter(Caller("10.0.0.1", 3), 100):
        assert slices.held == 100
