"""Reading spans and pages back: what the agent has in memory, and what it must fetch.

The cache holds three kinds of things under one budget: whole chunks as they lie in the store,
read once when they are recent; spans, patched for clients; and pages, decoded. `cached` never waits, so a fetch that
finds everything there needs no task; `publish` puts an agent's own batches there before anybody
asks. The same request is under way only once; errors are those of the object store (P7: what
cannot be read is an error, never a gap). Nothing is retried here.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from protocol.types import Buffer
from storage.cache import Cache, SingleFlight
from storage.fetch_plan import Piece, Read, SpanPart, SpanRead, plan_ranges, plan_reads
from storage.formats.batches import Batches, DamagedSpanError
from storage.formats.page import PageFormatError, decode_rows, digest
from storage.formats.spans import Marker, ObjectId, ObjectKind, Page, Span
from storage.span_parts import SpanParts, is_long
from storage.stores.object_store import ObjectStore, StoreRefusedError

LOADS_MAX: Final = 16
"""Requests to the store at a time; what they bring is not in the cache's budget yet."""

_WHOLE: Final = -1
"""The start under which a whole chunk is cached: no span begins there."""


_ROW_BYTES: Final = 352
"""Of a decoded row: the tuples and the numbers in it, as measured."""


@dataclass(frozen=True, slots=True)
class PageRows:
    """A page, decoded."""

    digest: bytes
    """Of the body that they were decoded from."""
    rows: tuple[Span | Marker, ...]

    def __len__(self) -> int:
        """Bytes of memory."""
        return len(self.rows) * _ROW_BYTES


class Loading(NamedTuple):
    """Spans that are being read."""

    found: list[Batches]
    """Those that were in memory."""
    reads: list[Read[Span]]
    ranges: list[Read[SpanPart]]
    flights: list[asyncio.Future[memoryview]]
    """Of all reads, in their order. They are others', too: nobody cancels them."""


@dataclass(slots=True)
class ReaderStats:
    """What was found in memory, and what the rest cost."""

    hits: int = 0
    """Spans that were in memory."""
    misses: int = 0
    """Spans that had to be read."""
    page_hits: int = 0
    page_misses: int = 0
    reads_whole: int = 0
    reads_range: int = 0
    read_bytes: int = 0
    read_seconds: float = 0.0
    published_bytes: int = 0


class Reader:
    """The spans and pages of all objects, from memory or from the object store."""

    def __init__(self, store: ObjectStore, cache_bytes_max: int, tasks: asyncio.TaskGroup) -> None:
        self._store = store
        self.cache: Cache[tuple[ObjectId, int], Batches | memoryview | PageRows] = Cache(
            cache_bytes_max, size_of=len
        )
        # A chunk that took more than a quarter of the cache would displace what is used with it.
        self._whole_bytes_max = cache_bytes_max // 4
        self._flights: SingleFlight[tuple[ObjectId, int, int], memoryview] = SingleFlight(
            tasks, loads_max=LOADS_MAX
        )
        self._parts = SpanParts()
        self.stats = ReaderStats()

    def cached(self, span: Span) -> Batches | None:
        """The span's batches if they are in memory. Raises DamagedSpanError."""
        batches = self._find(span)
        if batches is not None:
            self.stats.hits += 1
        return batches

    def cached_at(self, object_id: ObjectId, start: int) -> Batches | None:
        """Batches in memory that begin there, of whatever span; most often the one that is wanted."""
        batches = self.cache.get((object_id, start))
        if type(batches) is Batches:
            self.stats.hits += 1
            return batches
        return None

    def _find(self, span: Span) -> Batches | None:
        batches = self.cache.get((span.object_id, span.start))
        if batches is not None:
            assert isinstance(batches, Batches)
            # The first part of a long span begins where the span does.
            return batches if len(batches) == span.length else None
        whole = self.cache.get((span.object_id, _WHOLE))
        if whole is None:
            return None
        assert isinstance(whole, memoryview)
        return self._cut(whole, span, data_start=0, passing=False)

    def _cut(self, data: memoryview, span: Span, *, data_start: int, passing: bool) -> Batches:
        """The span out of bytes of its object that begin at `data_start`; kept, among those that
        pass if it is old."""
        start = span.start - data_start
        piece = data[start : start + span.length]
        if span.object_id.kind == ObjectKind.SEGMENT and len(piece) < len(data):
            # They are not copied to be patched; a view would keep all that was read with it.
            piece = memoryview(bytes(piece))
        try:
            batches = Batches.checked(span, piece)
        except DamagedSpanError:
            # On the way, perhaps: whoever asks again reads again.
            self.cache.drop((span.object_id, _WHOLE))
            raise
        self.cache.put((span.object_id, span.start), batches, passing=passing)
        if is_long(span):
            self._parts.note(span, batches)
        return batches

    def parts_of(self, span: Span, offset: int) -> Iterable[Span | SpanPart]:
        """What is to be read of a span from `offset` on: of a long one in a segment, parts."""
        if not is_long(span) or self._find(span) is not None:
            return (span,)
        return self._parts.from_offset(span, offset)

    def publish(self, span: Span, data_parts: Sequence[Buffer]) -> None:
        """Keep batches that this agent wrote itself, after apply. The parts are only read."""
        batches = Batches.of(span, data_parts)
        self.cache.put((span.object_id, span.start), batches)
        self.stats.published_bytes += len(batches)

    async def load(self, span: Span, *, object_length: int, recent: bool) -> Batches:
        """The span's batches; see `load_all`."""
        return (await self.load_all([SpanRead(span, object_length, recent)]))[0]

    async def load_all(self, wanted: Sequence[SpanRead]) -> list[Batches]:
        """The batches of every span, in the order of `wanted`, by as few requests as planned.

        Raises StoreError: ObjectNotFoundError when an object is gone (plan again),
        DamagedSpanError, StoreUnavailableError, StoreRefusedError.
        """
        loading = self.begin(wanted)
        for flight in loading.flights:
            await asyncio.shield(flight)
        found = {batches.span: batches for batches in self.finish(loading)}
        return [found[one.span] for one in wanted]

    def begin(self, wanted: Sequence[SpanRead], parts: Sequence[SpanPart] = ()) -> Loading:
        """As `load_all`, for those who wait for several at once: all requests are started, and
        `finish` is called when they have ended."""
        found: list[Batches] = []
        missing: list[SpanRead] = []
        for one in wanted:
            batches = self._find(one.span)
            if batches is None:
                missing.append(one)
            else:
                found.append(batches)
        self.stats.misses += len(missing) + len(parts)
        reads = plan_reads(missing, whole_bytes_max=self._whole_bytes_max)
        ranges = plan_ranges(parts)
        flights = [self._start(read) for read in reads] + [self._start(read) for read in ranges]
        return Loading(found, reads, ranges, flights)

    def finish(self, loading: Loading) -> list[Batches]:
        """The batches of every span, and of parts, in any order, of a load all of whose flights have
        ended. Raises StoreError as `load_all`."""
        batches = loading.found
        flights = iter(loading.flights)
        for read in loading.reads:
            data = next(flights).result()
            # Another who waited for the same bytes may have cut these spans already; that is rare, and
            # looking for them costs as much as a third of cutting them.
            batches += [
                self._cut(data, span, data_start=read.start, passing=not read.whole)
                for span in read.pieces
            ]
        for part_read in loading.ranges:
            data = next(flights).result()
            for part in part_read.pieces:
                batches += self._cut_part(data, part, data_start=part_read.start)
        return batches

    def _cut_part(self, data: memoryview, part: SpanPart, *, data_start: int) -> list[Batches]:
        """One or none; kept."""
        start = part.start - data_start
        batches = self._parts.read(part, data[start : start + part.length])
        if batches is None:
            return []
        self.cache.put((part.object_id, part.start), batches, passing=True)
        return [batches]

    def cached_page(self, page: Page) -> tuple[Span | Marker, ...] | None:
        """The page's rows if they are in memory."""
        rows = self._find_page(page)
        if rows is not None:
            self.stats.page_hits += 1
        return rows

    def _find_page(self, page: Page) -> tuple[Span | Marker, ...] | None:
        found = self.cache.get((page.object_id, page.start))
        if found is None:
            return None
        assert isinstance(found, PageRows)
        assert found.digest == page.digest
        return found.rows

    async def load_pages(self, pages: Sequence[Page]) -> list[tuple[Span | Marker, ...]]:
        """The rows of every page, in the order of `pages`. Raises StoreError as `load_all`."""
        found: dict[Page, tuple[Span | Marker, ...]] = {}
        missing: list[Page] = []
        for page in pages:
            rows = self._find_page(page)
            if rows is None:
                missing.append(page)
            else:
                found[page] = rows
        self.stats.page_misses += len(missing)
        reads = plan_ranges(missing)
        flights = [self._start(read) for read in reads]
        for read, flight in zip(reads, flights, strict=True):
            data = await asyncio.shield(flight)
            for page in read.pieces:
                # Decoding one takes milliseconds; others are waiting, too.
                await asyncio.sleep(0)
                start = page.start - read.start
                body = data[start : start + page.length]
                found[page] = self._find_page(page) or self._decode(page, body)
        return [found[page] for page in pages]

    def _decode(self, page: Page, body: memoryview) -> tuple[Span | Marker, ...]:
        """The rows of a page out of its body; kept."""
        place = f"{page.object_id.key} bytes {page.start} to {page.start + page.length}"
        if digest(body) != page.digest:
            raise DamagedSpanError(f"{place} is not the page that the log says is there")
        try:
            rows = decode_rows(body, base_offset=page.base_offset, next_offset=page.next_offset)
        except PageFormatError as error:
            raise DamagedSpanError(f"{place} is no page: {error}") from error
        self.cache.put((page.object_id, page.start), PageRows(page.digest, rows))
        return rows

    def _start(self, read: Read[Piece]) -> asyncio.Future[memoryview]:
        return self._flights.start(
            (read.object_id, read.start, read.length), lambda: self._fetch(read)
        )

    async def _fetch(self, read: Read[Piece]) -> memoryview:
        """One request to the store."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        key = read.object_id.key
        if read.whole:
            data = memoryview(await self._store.get(key))
            if len(data) != read.length:
                raise StoreRefusedError(f"{key} has {len(data)} bytes, not {read.length}")
            self.cache.put((read.object_id, _WHOLE), data)
            self.stats.reads_whole += 1
        else:
            data = memoryview(await self._store.get_range(key, read.start, read.length))
            self.stats.reads_range += 1
        self.stats.read_bytes += len(data)
        self.stats.read_seconds += loop.time() - begun
        return data
