"""Work in slices: whose turn it is, and when it stops."""

import asyncio
import itertools
import threading

import pytest

from broker.calls.off_loop import MANY_RECORDS, REST_S, OffLoop
from protocol.slices import Sliced, finish

WORDS = list[str]


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
    assert await OffLoop().run(steps("a", 2, done), records=1, gone=never) == "a"
    assert done == ["a0", "a1", "a ends"]


async def test_work_of_few_records_is_not_kept_waiting_by_work_of_many() -> None:
    off_loop = OffLoop()
    done: WORDS = []
    endless = asyncio.create_task(
        off_loop.run(steps("long", 10**9, done), records=MANY_RECORDS + 1, gone=never)
    )
    while not done:
        await asyncio.sleep(0)
    few = steps("short", 3, done)
    assert await off_loop.run(few, records=MANY_RECORDS, gone=never) == "short"
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
        run = off_loop.run(steps(name, 2, done), records=records, gone=never)
        works.append(asyncio.create_task(run))
        await asyncio.sleep(0.001)
    await asyncio.gather(*works)
    assert done == [f"{name}{what}" for name in "abc" for what in ("0", "1", " ends")]


@pytest.mark.promise("P15")
async def test_work_stops_at_the_next_slice_when_its_client_is_gone() -> None:
    done: WORDS = []
    work = steps("a", 10**9, done)
    assert await OffLoop().run(work, records=1, gone=lambda: len(done) == 3) is None
    assert done == ["a0", "a1", "a2", "a ends"]


async def test_work_whose_client_is_gone_before_its_turn_does_not_begin() -> None:
    done: WORDS = []
    assert await OffLoop().run(steps("a", 3, done), records=1, gone=lambda: True) is None
    assert done == []


async def test_the_thread_rests_behind_each_slice() -> None:
    """Or everything else would wait for the interpreter's lock at each of its steps."""
    began = asyncio.get_running_loop().time()
    await OffLoop().run(steps("a", 100, []), records=1, gone=never)
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
    await OffLoop().run(work(), records=1, gone=never)
    other.cancel()
    assert threading.get_ident() not in threads
    assert all("slice" not in (one, two) or one != two for one, two in itertools.pairwise(turns))


def test_work_can_be_done_at_once() -> None:
    assert finish(steps("a", 5, [])) == "a"
