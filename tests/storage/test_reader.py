"""Reading spans back: from memory without waiting, from the store by few requests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from protocol.records import Record, build_batch
from protocol.types import Buffer
from storage.fetch_plan import SpanRead
from storage.formats.batches import DamagedSpanError
from storage.formats.page import digest, encode_rows
from storage.formats.spans import Marker, ObjectId, ObjectKind, Page, Span
from storage.reader import Reader
from storage.stores.memory import MemoryStore
from storage.stores.object_store import (
    ObjectNotFoundError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
)
from tests.storage.build import CHUNK, batch, closed, object_of, spans_of

pytestmark = pytest.mark.schedules(3)

PARTS = [batch(number + 1, value=bytes(1000)) for number in range(5)]
MADE = closed([(number, number + 1, part) for number, part in enumerate(PARTS)])
SPANS = spans_of(MADE, base_offset=70)
OBJECT = object_of(MADE)
AMPLE = 100 * len(OBJECT)


class Counting(MemoryStore):
    """Counts the requests that bring data, and fails them when told to, or lets ranges wait."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[int, int]] = []
        self.error: StoreError | None = None
        self.damaged_at: int | None = None
        """A byte that goes wrong on the way."""
        self.gate = asyncio.Event()
        self.gate.set()

    async def get(self, key: str) -> Buffer:
        self.requests.append((0, -1))
        if self.error is not None:
            raise self.error
        return await self._on_the_way(key)

    async def get_range(self, key: str, start: int, length: int) -> Buffer:
        self.requests.append((start, length))
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return memoryview(await self._on_the_way(key))[start : start + length]

    async def _on_the_way(self, key: str) -> Buffer:
        data = bytearray(await super().get(key))
        if self.damaged_at is not None:
            data[self.damaged_at] ^= 1
        return data


Reading = tuple[Reader, Counting]


@asynccontextmanager
async def reading(
    cache_bytes_max: int = AMPLE, *, key: str = CHUNK.key, data: Buffer = OBJECT
) -> AsyncIterator[Reading]:
    """A reader of a store with one object."""
    store = Counting()
    await store.put_new(key, [data])
    async with asyncio.TaskGroup() as tasks:
        yield Reader(store, cache_bytes_max, tasks), store


def want(number: int, *, recent: bool) -> SpanRead:
    return SpanRead(SPANS[number], len(OBJECT), recent)


async def test_nothing_is_in_memory_at_first() -> None:
    async with reading() as (reader, _):
        assert reader.cached(SPANS[0]) is None


async def test_old_span_is_read_by_its_range_and_kept() -> None:
    async with reading() as (reader, _):
        loaded = await reader.load(SPANS[2], object_length=len(OBJECT), recent=False)
        assert loaded.span == SPANS[2]
        assert reader.cached(SPANS[2]) is loaded
        assert reader.cached(SPANS[1]) is None
        assert await reader.load(SPANS[2], object_length=len(OBJECT), recent=False) is loaded
        assert reader.stats.reads_range == 1
        assert reader.stats.read_bytes == SPANS[2].length


async def test_recent_chunk_is_read_once_and_serves_all_its_spans_without_waiting() -> None:
    async with reading() as (reader, _):
        await reader.load(SPANS[2], object_length=len(OBJECT), recent=True)
        for span, part in zip(SPANS, PARTS, strict=True):
            batches = reader.cached(span)
            assert batches is not None
            # Behind offset and epoch the bytes are as they were written.
            assert batches.view()[16:] == part[16:]
        assert reader.stats.reads_whole == 1
        assert reader.stats.hits == 5
        assert reader.stats.misses == 1


async def test_recent_chunk_too_large_for_the_cache_is_read_by_range() -> None:
    async with reading(cache_bytes_max=len(OBJECT) * 2) as (reader, _):
        await reader.load(SPANS[2], object_length=len(OBJECT), recent=True)
        assert (reader.stats.reads_whole, reader.stats.reads_range) == (0, 1)


async def test_without_any_cache_everything_still_reads() -> None:
    async with reading(cache_bytes_max=0) as (reader, _):
        rows = [want(number, recent=True) for number in (4, 0, 4)]
        loaded = await reader.load_all(rows)
        assert [batches.span for batches in loaded] == [SPANS[4], SPANS[0], SPANS[4]]
        assert reader.cached(SPANS[4]) is None
        assert reader.cache.bytes_used == 0


async def test_spans_wanted_together_come_in_their_order_by_one_request() -> None:
    async with reading() as (reader, _):
        rows = [want(number, recent=False) for number in (3, 1, 2)]
        loaded = await reader.load_all(rows)
        assert [batches.span for batches in loaded] == [SPANS[3], SPANS[1], SPANS[2]]
        assert reader.stats.reads_range == 1


async def test_all_who_want_a_chunk_at_once_share_one_request() -> None:
    async with reading() as (reader, _):
        loaded = await asyncio.gather(
            *(reader.load_all([want(number % 5, recent=True)]) for number in range(20))
        )
        assert [batches.span for (batches,) in loaded] == [SPANS[n % 5] for n in range(20)]
        assert reader.stats.reads_whole == 1


async def test_published_batches_are_in_memory_before_anybody_asks() -> None:
    async with reading() as (reader, store):
        part = bytearray(PARTS[1])
        reader.publish(SPANS[1], [memoryview(part)[:100], memoryview(part)[100:]])
        batches = reader.cached(SPANS[1])
        assert batches is not None
        assert batches.slice(70, bytes_max=0, at_least_one=True).next_offset == 72
        assert part == PARTS[1]
        assert store.requests == []


@pytest.mark.parametrize(
    "error",
    [ObjectNotFoundError("gone"), StoreUnavailableError("away"), StoreRefusedError("no")],
)
@pytest.mark.parametrize("recent", [True, False])
async def test_errors_of_the_store_pass_through_and_are_not_kept(
    error: StoreError, recent: bool
) -> None:
    async with reading() as (reader, store):
        store.error = error
        with pytest.raises(type(error)):
            await reader.load(SPANS[0], object_length=len(OBJECT), recent=recent)
        store.error = None
        loaded = await reader.load(SPANS[0], object_length=len(OBJECT), recent=recent)
        assert loaded.span == SPANS[0]


@pytest.mark.promise("P7")
@pytest.mark.parametrize("recent", [True, False])
async def test_damaged_bytes_are_an_error_and_never_served(recent: bool) -> None:
    damaged = bytearray(OBJECT)
    damaged[SPANS[1].start + 80] ^= 1

    async with reading(data=bytes(damaged)) as (reader, _):
        with pytest.raises(DamagedSpanError):
            await reader.load(SPANS[1], object_length=len(OBJECT), recent=recent)
        loaded = await reader.load(SPANS[0], object_length=len(OBJECT), recent=recent)
        assert loaded.span == SPANS[0]


@pytest.mark.parametrize("recent", [True, False])
async def test_bytes_that_were_damaged_on_the_way_are_read_again(recent: bool) -> None:
    async with reading() as (reader, store):
        store.damaged_at = SPANS[1].start + 80
        with pytest.raises(DamagedSpanError):
            await reader.load(SPANS[1], object_length=len(OBJECT), recent=recent)
        store.damaged_at = None
        assert reader.cached(SPANS[1]) is None
        loaded = await reader.load(SPANS[1], object_length=len(OBJECT), recent=recent)
        assert loaded.span == SPANS[1]


async def test_damage_that_is_found_in_the_cache_is_read_again() -> None:
    async with reading() as (reader, store):
        store.damaged_at = SPANS[1].start + 80
        await reader.load(SPANS[0], object_length=len(OBJECT), recent=True)
        store.damaged_at = None
        with pytest.raises(DamagedSpanError):
            reader.cached(SPANS[1])
        assert reader.cached(SPANS[1]) is None
        loaded = await reader.load(SPANS[1], object_length=len(OBJECT), recent=True)
        assert loaded.span == SPANS[1]


async def test_object_of_another_length_than_the_log_says_is_refused() -> None:
    async with reading() as (reader, _):
        with pytest.raises(StoreRefusedError, match="bytes, not"):
            await reader.load(SPANS[1], object_length=len(OBJECT) + 1, recent=True)


async def test_cancelled_load_leaves_the_request_to_the_others() -> None:
    async with reading() as (reader, _):
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(reader.load_all([want(0, recent=True)]))
            second = tasks.create_task(reader.load_all([want(1, recent=True)]))
            await asyncio.sleep(0)
            first.cancel()
        assert [batches.span for batches in second.result()] == [SPANS[1]]
        assert reader.stats.reads_whole <= 1


INDEX = CHUNK._replace(kind=ObjectKind.INDEX)
ROWS = [(span, Marker(span.next_offset, 7, 0, True, 1000)) for span in SPANS]
BODIES = [encode_rows(rows) for rows in ROWS]


def page_of(number: int, *, gap: int = 0) -> Page:
    """Page `number` of an index object with a head of 16 bytes and `gap` bytes between pages."""
    rows = ROWS[number]
    body = BODIES[number]
    return Page(
        INDEX,
        16 + sum(len(one) + gap for one in BODIES[:number]),
        len(body),
        rows[0].base_offset,
        rows[-1].next_offset,
        len(rows),
        rows[0].length,
        rows[0].timestamp_max,
        digest(body),
    )


def reading_pages(
    *, gap: int = 0, damaged_at: int | None = None
) -> AbstractAsyncContextManager[Reading]:
    data = bytearray(bytes(16) + b"".join(body + bytes(gap) for body in BODIES))
    if damaged_at is not None:
        data[damaged_at] ^= 1
    return reading(key=INDEX.key, data=data)


async def test_page_is_read_once_and_then_in_memory() -> None:
    async with reading_pages() as (reader, store):
        page = page_of(2)
        assert reader.cached_page(page) is None
        assert await reader.load_pages([page]) == [ROWS[2]]
        assert reader.cached_page(page) == ROWS[2]
        assert await reader.load_pages([page]) == [ROWS[2]]
        assert store.requests == [(page.start, page.length)]
        assert (reader.stats.page_hits, reader.stats.page_misses) == (1, 1)


async def test_pages_that_lie_close_together_are_read_at_once_and_given_in_the_order_asked_for() -> (
    None
):
    async with reading_pages() as (reader, store):
        pages = [page_of(number) for number in (3, 1, 3)]
        assert await reader.load_pages(pages) == [ROWS[3], ROWS[1], ROWS[3]]
        start = pages[1].start
        assert store.requests == [(start, pages[0].start + pages[0].length - start)]


async def test_pages_far_from_each_other_are_read_each_alone() -> None:
    async with reading_pages(gap=200_000) as (reader, store):
        pages = [page_of(number, gap=200_000) for number in (0, 1)]
        assert await reader.load_pages(pages) == [ROWS[0], ROWS[1]]
        assert sorted(store.requests) == [(page.start, page.length) for page in pages]


async def test_two_who_want_the_same_page_share_one_request() -> None:
    async with reading_pages() as (reader, store):
        store.gate.clear()
        both = [asyncio.ensure_future(reader.load_pages([page_of(1)])) for _ in range(2)]
        while reader.stats.page_misses < 2:
            await asyncio.sleep(0)
        store.gate.set()
        assert await asyncio.gather(*both) == [[ROWS[1]], [ROWS[1]]]
        assert len(store.requests) == 1


async def test_damaged_page_is_an_error_and_not_kept() -> None:
    async with reading_pages(damaged_at=page_of(1).start + 20) as (reader, _):
        with pytest.raises(DamagedSpanError, match="not the page that the log says"):
            await reader.load_pages([page_of(1)])
        assert reader.cached_page(page_of(1)) is None
        assert await reader.load_pages([page_of(0)]) == [ROWS[0]]


async def test_page_whose_rows_lie_elsewhere_than_the_log_says_is_an_error() -> None:
    async with reading_pages() as (reader, _):
        with pytest.raises(DamagedSpanError, match="is no page"):
            await reader.load_pages([page_of(1)._replace(next_offset=10**6)])


async def test_pages_and_spans_share_the_budget() -> None:
    async with reading_pages() as (reader, _):
        await reader.load_pages([page_of(1)])
        used = reader.cache.bytes_used
        assert used >= 100 * len(ROWS[1])
        await reader.load_pages([page_of(2)])
        assert reader.cache.bytes_used == 2 * used


async def test_missing_index_object_is_not_found() -> None:
    async with reading_pages() as (reader, _):
        gone = page_of(0)._replace(object_id=ObjectId(INDEX.incarnation, 99, ObjectKind.INDEX))
        with pytest.raises(ObjectNotFoundError):
            await reader.load_pages([gone])


async def test_span_of_a_segment_is_read_back_with_its_holes() -> None:
    segment = CHUNK._replace(kind=ObjectKind.SEGMENT)
    data = build_batch([Record(-1, 5, b"k", b"v")] * 2, base_offset=75)
    span = Span(segment, 16, len(data), 70, 7, 5)

    async with reading(key=segment.key, data=bytes(16) + data + b"tail") as (reader, _):
        batches = await reader.load(span, object_length=20 + len(data), recent=False)
        assert batches.view() == data
        assert reader.cached(span) is batches


async def test_span_of_a_segment_does_not_keep_what_was_read_with_it() -> None:
    segment = CHUNK._replace(kind=ObjectKind.SEGMENT)
    one = build_batch([Record(-1, 5, b"k", bytes(500))], base_offset=70)
    two = build_batch([Record(-1, 5, b"k", bytes(600))], base_offset=71)
    spans = [
        Span(segment, 16, len(one), 70, 1, 5),
        Span(segment, 16 + len(one), len(two), 71, 1, 5),
    ]

    async with reading(key=segment.key, data=bytes(16) + one + two) as (reader, store):
        length = 16 + len(one) + len(two)
        loaded = await reader.load_all([SpanRead(span, length, recent=False) for span in spans])
        assert len(store.requests) == 1
        held = [batches.view().obj for batches in loaded]
        assert held == [one, two]
