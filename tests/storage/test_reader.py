"""Reading spans back: from memory without waiting, from the store by few requests."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from protocol.types import Buffer
from storage.batches import DamagedSpanError
from storage.fetch_plan import Wanted
from storage.memory import MemoryStore
from storage.object_store import (
    ObjectNotFoundError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
)
from storage.reader import Reader
from tests.storage.build import CHUNK, batch, closed, object_of, run_virtual, spans_of

PARTS = [batch(number + 1, value=bytes(1000)) for number in range(5)]
MADE = closed([(number, number + 1, part) for number, part in enumerate(PARTS)])
SPANS = spans_of(MADE, base_offset=70)
OBJECT = object_of(MADE)
AMPLE = 100 * len(OBJECT)


class Counting(MemoryStore):
    """Counts the requests that bring data, and fails them when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[int, int]] = []
        self.error: StoreError | None = None

    async def get(self, key: str) -> Buffer:
        self.requests.append((0, -1))
        if self.error is not None:
            raise self.error
        return await super().get(key)

    async def get_range(self, key: str, start: int, length: int) -> Buffer:
        self.requests.append((start, length))
        if self.error is not None:
            raise self.error
        data = await super().get(key)
        return memoryview(data)[start : start + length]


Test = Callable[[Reader, Counting], Awaitable[None]]


def read(test: Test, *, cache_bytes_max: int = AMPLE, data: bytes = OBJECT) -> None:
    async def whole() -> None:
        store = Counting()
        await store.put_new(CHUNK.key, [data])
        async with asyncio.TaskGroup() as tasks:
            await test(Reader(store, cache_bytes_max, tasks), store)

    for seed in (1, 2, 3):
        run_virtual(whole, seed=seed)


def want(number: int, *, recent: bool) -> Wanted:
    return Wanted(SPANS[number], len(OBJECT), recent)


def test_nothing_is_in_memory_at_first() -> None:
    async def test(reader: Reader, _: Counting) -> None:
        assert reader.cached(SPANS[0]) is None

    read(test)


def test_old_span_is_read_by_its_range_and_kept() -> None:
    async def test(reader: Reader, store: Counting) -> None:
        loaded = await reader.load(SPANS[2], object_length=len(OBJECT), recent=False)
        assert loaded.span == SPANS[2]
        assert reader.cached(SPANS[2]) is loaded
        assert reader.cached(SPANS[1]) is None
        assert await reader.load(SPANS[2], object_length=len(OBJECT), recent=False) is loaded
        assert reader.stats.reads_range == 1
        assert reader.stats.read_bytes == SPANS[2].length

    read(test)


def test_recent_chunk_is_read_once_and_serves_all_its_spans_without_waiting() -> None:
    async def test(reader: Reader, store: Counting) -> None:
        await reader.load(SPANS[2], object_length=len(OBJECT), recent=True)
        for span, part in zip(SPANS, PARTS, strict=True):
            batches = reader.cached(span)
            assert batches is not None
            # Behind offset and epoch the bytes are as they were written.
            assert batches.view()[16:] == part[16:]
        assert reader.stats.reads_whole == 1
        assert reader.stats.hits == 5
        assert reader.stats.misses == 1

    read(test)


def test_recent_chunk_too_large_for_the_cache_is_read_by_range() -> None:
    async def test(reader: Reader, store: Counting) -> None:
        await reader.load(SPANS[2], object_length=len(OBJECT), recent=True)
        assert (reader.stats.reads_whole, reader.stats.reads_range) == (0, 1)

    read(test, cache_bytes_max=len(OBJECT) * 2)


def test_without_any_cache_everything_still_reads() -> None:
    async def test(reader: Reader, store: Counting) -> None:
        rows = [want(number, recent=True) for number in (4, 0, 4)]
        loaded = await reader.load_all(rows)
        assert [batches.span for batches in loaded] == [SPANS[4], SPANS[0], SPANS[4]]
        assert reader.cached(SPANS[4]) is None
        assert reader.cache.bytes_used == 0

    read(test, cache_bytes_max=0)


def test_spans_wanted_together_come_in_their_order_by_one_request() -> None:
    async def test(reader: Reader, store: Counting) -> None:
        rows = [want(number, recent=False) for number in (3, 1, 2)]
        loaded = await reader.load_all(rows)
        assert [batches.span for batches in loaded] == [SPANS[3], SPANS[1], SPANS[2]]
        assert reader.stats.reads_range == 1

    read(test)


def test_all_who_want_a_chunk_at_once_share_one_request() -> None:
    async def test(reader: Reader, store: Counting) -> None:
        loaded = await asyncio.gather(
            *(reader.load_all([want(number % 5, recent=True)]) for number in range(20))
        )
        assert [batches.span for (batches,) in loaded] == [SPANS[n % 5] for n in range(20)]
        assert reader.stats.reads_whole == 1

    read(test)


def test_published_batches_are_in_memory_before_anybody_asks() -> None:
    async def test(reader: Reader, store: Counting) -> None:
        part = bytearray(PARTS[1])
        reader.publish(SPANS[1], [memoryview(part)[:100], memoryview(part)[100:]])
        batches = reader.cached(SPANS[1])
        assert batches is not None
        assert batches.slice(70, bytes_max=0, at_least_one=True).next_offset == 72
        assert part == PARTS[1]
        assert store.requests == []

    read(test)


@pytest.mark.parametrize(
    "error",
    [ObjectNotFoundError("gone"), StoreUnavailableError("away"), StoreRefusedError("no")],
)
@pytest.mark.parametrize("recent", [True, False])
def test_errors_of_the_store_pass_through_and_are_not_kept(error: StoreError, recent: bool) -> None:
    async def test(reader: Reader, store: Counting) -> None:
        store.error = error
        with pytest.raises(type(error)):
            await reader.load(SPANS[0], object_length=len(OBJECT), recent=recent)
        store.error = None
        loaded = await reader.load(SPANS[0], object_length=len(OBJECT), recent=recent)
        assert loaded.span == SPANS[0]

    read(test)


@pytest.mark.parametrize("recent", [True, False])
def test_damaged_bytes_are_an_error_and_never_served(recent: bool) -> None:
    damaged = bytearray(OBJECT)
    damaged[SPANS[1].start + 80] ^= 1

    async def test(reader: Reader, store: Counting) -> None:
        with pytest.raises(DamagedSpanError):
            await reader.load(SPANS[1], object_length=len(OBJECT), recent=recent)
        loaded = await reader.load(SPANS[0], object_length=len(OBJECT), recent=recent)
        assert loaded.span == SPANS[0]

    read(test, data=bytes(damaged))


def test_object_of_another_length_than_the_log_says_is_refused() -> None:
    async def test(reader: Reader, store: Counting) -> None:
        with pytest.raises(StoreRefusedError, match="bytes, not"):
            await reader.load(SPANS[1], object_length=len(OBJECT) + 1, recent=True)

    read(test)


def test_cancelled_load_leaves_the_request_to_the_others() -> None:
    async def test(reader: Reader, store: Counting) -> None:
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(reader.load_all([want(0, recent=True)]))
            second = tasks.create_task(reader.load_all([want(1, recent=True)]))
            await asyncio.sleep(0)
            first.cancel()
        assert [batches.span for batches in second.result()] == [SPANS[1]]
        assert reader.stats.reads_whole <= 1

    read(test)
