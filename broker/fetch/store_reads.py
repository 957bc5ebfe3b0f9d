"""Reads of the store for fetches, within a budget of memory.

A fetch that misses pages or spans has them read in rounds: a page says where spans lie, and while
it is read jobs may move them. What is under way is bounded by `ReadBudget`, in bytes (P15): a span
of a segment is larger than what most fetches ask for. Clients take turns, so that one who reads
much old data is waited for once. A failure is that of one object alone.

Left out: what is missing and what becomes of it (`broker.fetch.answers`), barriers
(`broker.fetch.fetch_path`), requests to the store (`storage.reader`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from typing import Final

from broker.calls.shares import Owner
from broker.fetch.answers import LOAD_BYTES_MAX, Collected
from broker.fetch.fetches import FetchStats
from broker.fetch.loaded import LoadedData
from protocol.fault_codes import FaultCode, coded
from storage.fetch_plan import SpanPart, SpanRead
from storage.formats.spans import ObjectId, Page
from storage.reader import Loading, Reader
from storage.stores.object_store import (
    ObjectNotFoundError,
    StoreError,
    StoreUnavailableError,
)

logger = logging.getLogger(__name__)

LOAD_SECONDS_MAX: Final = 15.0
"""Reads for one fetch that take longer are an error: clients wait for 30 s."""
LOADS_MAX: Final = 32
"""Fetches that read at a time."""
FAILURES_TOLD_MAX: Final = 10
"""Log lines of one fetch."""


class ReadBudget:
    """Bytes that fetches may have read at a time; their owners take turns, first come, first served.

    Who needs more than there is at all has the room to himself.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = max(bytes_max, 2 * LOAD_BYTES_MAX)
        self._used = 0
        self._entered = 0
        self._queues: dict[Owner, deque[tuple[int, asyncio.Future[None]]]] = {}
        """Of each owner that waits; the one whose turn is next comes first."""

    @asynccontextmanager
    async def of(self, byte_count: int, owner: Owner) -> AsyncIterator[None]:
        """Wait until there is room for so many bytes, and take it."""
        await self._enter(byte_count, owner)
        try:
            yield
        finally:
            self._leave(byte_count)

    async def _enter(self, byte_count: int, owner: Owner) -> None:
        if not self._queues and self._fits(byte_count):
            self._take(byte_count)
            return
        turn = asyncio.get_running_loop().create_future()
        self._queues.setdefault(owner, deque()).append((byte_count, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._leave(byte_count)  # The turn came, and nobody is left to use it.
            self._admit()
            raise

    def _fits(self, byte_count: int) -> bool:
        if self._entered == 0:
            return True
        return self._entered < LOADS_MAX and self._used + byte_count <= self._bytes_max

    def _take(self, byte_count: int) -> None:
        self._used += byte_count
        self._entered += 1

    def _leave(self, byte_count: int) -> None:
        self._used -= byte_count
        self._entered -= 1
        assert self._used >= 0
        self._admit()

    def _admit(self) -> None:
        while self._queues:
            owner, queue = next(iter(self._queues.items()))
            byte_count, turn = queue[0]
            if not turn.cancelled() and not self._fits(byte_count):
                return
            queue.popleft()
            del self._queues[owner]
            if queue:
                self._queues[owner] = queue  # Behind the others.
            if not turn.cancelled():
                self._take(byte_count)
                turn.set_result(None)


async def read_missing(
    reader: Reader, found: LoadedData, collected: Collected, *, until: float
) -> None:
    """Read what is missing into `found`, object by object at once, as long as the loop's time is
    before `until`."""
    found.rounds += 1
    objects = list(_by_object(collected))
    pages = [_fill_pages(reader, found, one, until=until) for one in objects if one.pages]
    if pages:
        await asyncio.gather(*pages)
    spans = [one for one in objects if one.spans or one.parts]
    if spans:
        await _fill_spans(reader, found, spans, until=until)


class _Pieces:
    """The spans, parts of spans and pages to be read of one object."""

    __slots__ = ("object_id", "pages", "parts", "spans")

    def __init__(self, object_id: ObjectId) -> None:
        self.object_id = object_id
        self.spans: list[SpanRead] = []
        self.parts: list[SpanPart] = []
        self.pages: list[Page] = []


def _by_object(collected: Collected) -> Iterable[_Pieces]:
    pieces: dict[ObjectId, _Pieces] = {}
    for one in collected.missing:
        object_id = one.span.object_id
        pieces.setdefault(object_id, _Pieces(object_id)).spans.append(one)
    for part in collected.parts:
        object_id = part.object_id
        pieces.setdefault(object_id, _Pieces(object_id)).parts.append(part)
    for page in collected.pages:
        object_id = page.object_id
        pieces.setdefault(object_id, _Pieces(object_id)).pages.append(page)
    return pieces.values()


async def _fill_spans(
    reader: Reader, found: LoadedData, objects: Sequence[_Pieces], *, until: float
) -> None:
    """One wait for all, since a task for each object costs as much as reading a small one."""
    loads = [(one, reader.begin(one.spans, one.parts)) for one in objects]
    flights = [flight for _, loading in loads for flight in loading.flights]
    if flights:
        # Nobody's flight is cancelled, whatever becomes of this task.
        await asyncio.wait(flights, timeout=until - asyncio.get_running_loop().time())
    for one, loading in loads:
        _take_spans(reader, found, one.object_id, loading)
        # What is read is looked through; others have their turn meanwhile.
        await asyncio.sleep(0)


def _take_spans(reader: Reader, found: LoadedData, object_id: ObjectId, loading: Loading) -> None:
    """What was read of one object, or why it was not."""
    if not all(flight.done() for flight in loading.flights):
        _note_timeout(found, object_id)
        return
    try:
        batches = reader.finish(loading)
    except StoreError as error:
        found.failed[object_id] = error
        return
    for read in batches:
        found.add(read)


async def _fill_pages(reader: Reader, found: LoadedData, pieces: _Pieces, *, until: float) -> None:
    pages = pieces.pages
    try:
        async with asyncio.timeout_at(until):
            rows = await reader.load_pages(pages)
    except StoreError as error:
        found.failed[pieces.object_id] = error
    except TimeoutError:
        _note_timeout(found, pieces.object_id)
    else:
        for page, inside in zip(pages, rows, strict=True):
            found.pages[page.object_id, page.start] = inside


def _note_timeout(found: LoadedData, object_id: ObjectId) -> None:
    found.failed[object_id] = StoreUnavailableError(f"{object_id.key} was not read in time")


def count_failures(stats: FetchStats, failures: Sequence[StoreError], *, is_known: bool) -> None:
    """Objects that could not be read. `is_known`: the plan was that of the log's end."""
    for error in failures:
        stats.storage_errors += 1
        stats.objects_gone += isinstance(error, ObjectNotFoundError) and is_known
    told = dict.fromkeys(failures)  # An object has records of many partitions.
    for error in islice(told, FAILURES_TOLD_MAX):
        is_lost = isinstance(error, ObjectNotFoundError) and is_known
        code = {"code": FaultCode.OBJECT_LOST.value} if is_lost else coded(error)
        logger.warning("records cannot be read: %s", error, extra=code)
    if len(told) > FAILURES_TOLD_MAX:
        logger.warning("nor can those of %d more objects", len(told) - FAILURES_TOLD_MAX)
