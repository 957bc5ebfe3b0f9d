"""Calls that block, in threads: what they return and raise comes back to the loop."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from storage.stores.threads import Threads

pytestmark = pytest.mark.real_loop


@pytest.fixture
def threads() -> Iterator[Threads]:
    made = Threads(2, name="test")
    yield made
    made.shut()


def failing() -> None:
    raise OSError("no")


async def test_call_comes_back_with_what_it_returned_or_raised(threads: Threads) -> None:
    assert await threads.run(threading.get_ident) != threading.get_ident()
    with pytest.raises(OSError, match="no"):
        await threads.run(failing)
    assert await threads.run(lambda: 7) == 7


async def test_calls_run_side_by_side_in_so_many_threads_and_no_more(threads: Threads) -> None:
    together = threading.Barrier(2, timeout=10)
    idents = await asyncio.gather(*[threads.run(threading.get_ident) for _ in range(20)])
    assert len(set(idents)) <= 2
    await asyncio.gather(threads.run(together.wait), threads.run(together.wait))


async def test_one_thread_is_enough_for_calls_one_after_the_other(threads: Threads) -> None:
    idents = {await threads.run(threading.get_ident) for _ in range(20)}
    assert len(idents) == 1


async def test_call_that_nobody_waits_for_any_more_does_not_begin(threads: Threads) -> None:
    gate = threading.Event()
    busy = [threads.run(gate.wait) for _ in range(2)]
    made: list[int] = []
    waiting = threads.run(lambda: made.append(1))
    waiting.cancel()
    gate.set()
    await asyncio.gather(*busy)
    await threads.run(lambda: None)
    await threads.run(lambda: None)
    assert made == []


async def test_threads_that_are_shut_take_no_more_and_end_what_is_under_way() -> None:
    threads = Threads(2, name="test")
    gate = threading.Event()
    under_way = threads.run(gate.wait)
    threads.shut()
    threads.shut()
    with pytest.raises(RuntimeError, match="shut"):
        threads.run(failing)
    gate.set()
    assert await under_way


def test_call_that_outlives_its_loop_is_nobodys() -> None:
    threads = Threads(1, name="test")
    gate = threading.Event()

    async def leave() -> None:
        threads.run(gate.wait)

    asyncio.run(leave())
    gate.set()

    async def go_on() -> int:
        return await threads.run(lambda: 7)

    assert asyncio.run(go_on()) == 7
    threads.shut()
