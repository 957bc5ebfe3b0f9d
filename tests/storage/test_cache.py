"""The cache keeps to its budget, and loads happen once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.cache import Cache, SingleFlight
from storage.stores.object_store import StoreUnavailableError

pytestmark = pytest.mark.real_loop


def test_value_is_found_again() -> None:
    cache: Cache[str, bytes] = Cache(10, size_of=len)
    cache.put("a", b"123")
    assert cache.get("a") == b"123"
    assert cache.get("b") is None
    assert cache.bytes_used == 3


def test_least_recently_used_goes_first() -> None:
    cache: Cache[str, bytes] = Cache(3, size_of=len)
    for key in "abc":
        cache.put(key, b"x")
    cache.get("a")
    cache.put("d", b"x")
    assert [key for key in "abcd" if cache.get(key)] == ["a", "c", "d"]
    assert cache.evictions == 1


def test_value_larger_than_the_budget_displaces_nothing() -> None:
    cache: Cache[str, bytes] = Cache(3, size_of=len)
    cache.put("a", b"xx")
    cache.put("b", b"xxxx")
    assert cache.get("a") == b"xx"
    assert cache.get("b") is None


def test_replaced_value_is_counted_once() -> None:
    cache: Cache[str, bytes] = Cache(10, size_of=len)
    cache.put("a", b"12345")
    cache.put("a", b"12")
    assert cache.bytes_used == 2
    cache.drop("a")
    cache.drop("a")
    assert cache.bytes_used == len(cache) == 0


@pytest.mark.promise("P15")
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12))))
def test_budget_is_never_exceeded(puts: list[tuple[int, int]]) -> None:
    cache: Cache[int, bytes] = Cache(10, size_of=len)
    for key, size in puts:
        cache.put(key, bytes(size))
        assert cache.bytes_used <= 10
        kept = [cache.get(other) for other in range(6)]
        assert sum(len(value) for value in kept if value is not None) == cache.bytes_used


def test_what_passes_displaces_little_of_what_is_new() -> None:
    cache: Cache[int, bytes] = Cache(100, size_of=len)
    for key in range(10):
        cache.put(key, bytes(10))
    for key in range(1000, 1100):
        cache.put(key, bytes(5), passing=True)
    assert [key for key in range(10) if cache.get(key)] == list(range(3, 10))
    assert [key for key in range(1000, 1100) if cache.get(key)] == list(range(1095, 1100))
    assert cache.bytes_used == 7 * 10 + 5 * 5


def test_of_what_passes_the_least_recently_used_goes_first() -> None:
    cache: Cache[str, bytes] = Cache(12, size_of=len)
    for key in "abc":
        cache.put(key, b"x", passing=True)
    cache.get("a")
    cache.put("d", b"x", passing=True)
    assert [key for key in "abcd" if cache.get(key)] == ["a", "c", "d"]


def test_what_is_asked_for_again_after_it_passed_stays_with_the_others() -> None:
    cache: Cache[int, bytes] = Cache(40, size_of=len)
    for key in range(20):
        cache.put(key, b"x", passing=True)
    assert cache.get(0) is None
    cache.put(0, b"y", passing=True)
    for key in range(100, 130):
        cache.put(key, b"x", passing=True)
    assert cache.get(0) == b"y"
    assert cache.get(19) is None


@pytest.mark.promise("P15")
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12), st.booleans())))
def test_budget_holds_for_what_passes_and_what_stays_together(
    puts: list[tuple[int, int, bool]],
) -> None:
    cache: Cache[int, bytes] = Cache(10, size_of=len)
    for key, size, passing in puts:
        cache.put(key, bytes(size), passing=passing)
        assert cache.bytes_used <= 10
        kept = [cache.get(other) for other in range(6)]
        assert sum(len(value) for value in kept if value is not None) == cache.bytes_used
        assert len(cache) == sum(value is not None for value in kept)


class Loads:
    """A load that counts its calls and ends when it is told to."""

    def __init__(self) -> None:
        self.calls = 0
        self.gate = asyncio.Event()
        self.error: Exception | None = None
        self.running = 0
        self.running_max = 0

    async def load(self) -> bytes:
        self.calls += 1
        self.running += 1
        self.running_max = max(self.running_max, self.running)
        await self.gate.wait()
        self.running -= 1
        if self.error is not None:
            raise self.error
        return b"loaded"


Flying = tuple[SingleFlight[str, bytes], Loads, asyncio.TaskGroup]


@asynccontextmanager
async def flying(loads_max: int = 4) -> AsyncIterator[Flying]:
    async with asyncio.TaskGroup() as tasks:
        yield SingleFlight(tasks, loads_max=loads_max), Loads(), tasks


async def test_all_who_ask_during_a_load_share_it() -> None:
    async with flying() as (flights, loads, _):
        futures = [flights.start("a", loads.load) for _ in range(5)]
        await asyncio.sleep(0)
        loads.gate.set()
        assert await asyncio.gather(*map(asyncio.shield, futures)) == [b"loaded"] * 5
        assert loads.calls == 1
        assert len(flights) == 0


async def test_load_after_the_end_of_another_begins_anew() -> None:
    async with flying() as (flights, loads, _):
        loads.gate.set()
        await flights.start("a", loads.load)
        await flights.start("a", loads.load)
        assert loads.calls == 2


async def test_error_of_a_load_reaches_all_who_wait_and_is_not_kept() -> None:
    async with flying() as (flights, loads, _):
        loads.error = StoreUnavailableError("away")
        loads.gate.set()
        futures = [flights.start("a", loads.load) for _ in range(2)]
        for future in futures:
            with pytest.raises(StoreUnavailableError, match="away"):
                await future
        loads.error = None
        assert await flights.start("a", loads.load) == b"loaded"


async def test_cancelling_one_who_waits_does_not_disturb_the_others() -> None:
    async with flying() as (flights, loads, tasks):

        async def wait() -> bytes:
            return await asyncio.shield(flights.start("a", loads.load))

        first, second = tasks.create_task(wait()), tasks.create_task(wait())
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        loads.gate.set()
        assert await second == b"loaded"
        assert first.cancelled()
        assert loads.calls == 1


async def test_loads_beyond_the_limit_wait_for_their_turn() -> None:
    async with flying(loads_max=3) as (flights, loads, _):
        futures = [flights.start(str(number), loads.load) for number in range(10)]
        for _ in range(5):
            await asyncio.sleep(0)
        assert loads.calls == 3
        loads.gate.set()
        await asyncio.gather(*futures)
        assert loads.calls == 10
        assert loads.running_max == 3


async def test_bug_in_a_load_ends_the_task_group_and_leaves_nobody_waiting() -> None:
    async def wait() -> None:
        async with flying(loads_max=1) as (flights, loads, _):
            loads.error = ZeroDivisionError()
            loads.gate.set()
            await asyncio.shield(flights.start("a", loads.load))

    with pytest.raises(ExceptionGroup) as caught:
        await wait()
    assert caught.group_contains(ZeroDivisionError)
