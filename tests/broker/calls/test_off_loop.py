"""Work in slices: whose turn it is, and when it stops."""

import asyncio
import contextlib
import itertools
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from broker.calls.off_loop import MANY_RECORDS, REST_S, OffLoop
from protocol.slices import Sliced, finish

WORDS = list[str]


def caller(address: str, number: int) -> Any:
    """As much of a call as is looked at."""
    peer = f"{address}:{40_000 + number}"
    return SimpleNamespace(connection=SimpleNamespace(peer=peer, number=number))


CALL = caller("10.0.0.1", 1)


def steps(name: str, count: int, done: WORDS) -> Sliced[str]:
    try:
        for number in range(count):
            done.append(f"{name}{number}")
            yield
    finally:
        done.append(f"{name} ends")
    return name


def never() -> bool:
    return False


async def test_work_is_done_slice_by_slice_and_gives_its_result() -> None:
    done: WORDS = []
    assert await OffLoop().run(steps("a", 2, done), records=1, call=CALL, gone=never) == "a"
    assert done == ["a0", "a1", "a ends"]


async def test_work_of_few_records_is_not_kept_waiting_by_work_of_many() -> None:
    off_loop = OffLoop()
    done: WORDS = []
    endless = asyncio.create_task(
        off_loop.run(steps("long", 10**9, done), records=MANY_RECORDS + 1, call=CALL, gone=never)
    )
    while not done:
        await asyncio.sleep(0)
    few = steps("short", 3, done)
    assert await off_loop.run(few, records=MANY_RECORDS, call=CALL, gone=never) == "short"
    assert not endless.done()
    endless.cancel()


@pytest.mark.promise("P15")
@pytest.mark.parametrize("records", [1, MANY_RECORDS + 1])
async def test_one_is_open_at_a_time_in_each_lane_and_the_first_to_come_goes_first(
    records: int,
) -> None:
    off_loop = OffLoop()
    done: WORDS = []
    works = []
    for name in "abc":
        run = off_loop.run(steps(name, 2, done), records=records, call=CALL, gone=never)
        works.append(asyncio.create_task(run))
        await asyncio.sleep(0.001)
    await asyncio.gather(*works)
    assert done == [f"{name}{what}" for name in "abc" for what in ("0", "1", " ends")]


@pytest.mark.promise("P15")
async def test_a_client_of_many_connections_keeps_another_waiting_for_one_of_its_batches() -> None:
    off_loop = OffLoop()
    done: WORDS = []

    async def run(name: str, call: Any) -> None:
        await off_loop.run(steps(name, 1, done), records=1, call=call, gone=never)

    async with asyncio.TaskGroup() as tasks:
        for number in range(20):
            tasks.create_task(run("many", caller("10.0.0.1", number)))
        await asyncio.sleep(0)
        tasks.create_task(run("one", caller("10.0.0.2", 99)))
    assert done.index("one0") <= 4


async def test_a_place_that_was_waited_for_in_vain_is_somebody_elses() -> None:
    off_loop = OffLoop()
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(16):
            await stack.enter_async_context(off_loop.places(1, CALL))
        waits = asyncio.create_task(stack.enter_async_context(off_loop.places(1, CALL)))
        await asyncio.sleep(0)
        waits.cancel()
        await asyncio.gather(waits, return_exceptions=True)
    for _ in range(2):
        async with asyncio.timeout(1), contextlib.AsyncExitStack() as stack:
            for _ in range(16):
                await stack.enter_async_context(off_loop.places(1, CALL))


@pytest.mark.promise("P15")
async def test_work_stops_at_the_next_slice_when_its_client_is_gone() -> None:
    done: WORDS = []
    work = steps("a", 10**9, done)
    assert await OffLoop().run(work, records=1, call=CALL, gone=lambda: len(done) == 3) is None
    assert done == ["a0", "a1", "a2", "a ends"]


async def test_work_whose_client_is_gone_before_its_turn_does_not_begin() -> None:
    done: WORDS = []
    assert await OffLoop().run(steps("a", 3, done), records=1, call=CALL, gone=lambda: True) is None
    assert done == []


async def test_the_thread_rests_behind_each_slice() -> None:
    """Or everything else would wait for the interpreter's lock at each of its steps."""
    began = asyncio.get_running_loop().time()
    await OffLoop().run(steps("a", 100, []), records=1, call=CALL, gone=never)
    assert asyncio.get_running_loop().time() - began >= 100 * REST_S


@pytest.mark.real_loop
async def test_slices_run_in_threads_and_the_loop_has_its_turn_between_them() -> None:
    threads = set()
    turns: WORDS = []

    def work() -> Sliced[None]:
        for _ in range(50):
            threads.add(threading.get_ident())
            turns.append("slice")
            yield

    async def others() -> None:
        while True:
            turns.append("loop")
            await asyncio.sleep(0)

    other = asyncio.create_task(others())
    await OffLoop().run(work(), records=1, call=CALL, gone=never)
    other.cancel()
    assert threading.get_ident() not in threads
    assert all("slice" not in (one, two) or one != two for one, two in itertools.pairwise(turns))


def test_work_can_be_done_at_once() -> None:
    assert finish(steps("a", 5, [])) == "a"
