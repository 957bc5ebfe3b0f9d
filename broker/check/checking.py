"""Reads the store and compares it with the log; writes nothing.

One listing of the store says what is there and how long it is. With `deep` every page and every span is read as well,
in the order of objects as far as may be, and compared: digests, CRCs, offsets, counts of records. The log goes on
meanwhile, and jobs delete what it does not point at any more, so what is wrong is looked at again by a machine that
has come further: what that one does not point at was no loss.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from crc32c import crc32c

from broker.check import rebuilding
from broker.check.check_report import Checked
from broker.check.comparison import (
    DAMAGED,
    LENGTH,
    MISSING,
    MOVED,
    Comparison,
    Wrong,
    kind_name,
    missing,
)
from broker.check.lost_ranges import Losses, Lost, LostRange, slices
from broker.check.past_pages import PastPages
from broker.jobs.kinds import collection_plan, unnamed_objects
from broker.jobs.kinds.unnamed_objects import UnnamedObjects
from broker.jobs.worker.pace import Pace
from coordinator.machine.machine import Machine
from coordinator.snapshot.listing import pages
from coordinator.snapshot.manifest import decode_manifest, manifest_key, part_key
from coordinator.snapshot.store import SnapshotStore
from coordinator.snapshot.stream import SnapshotError
from coordinator.tables.partition import Partition
from coordinator.tables.snapshots import Published
from protocol.types import Buffer
from storage.fetch_plan import Read, SpanRead, plan_reads
from storage.formats.batches import Batches, DamagedSpanError, place_of
from storage.formats.cluster_identity import ClusterIdentity
from storage.formats.job_objects import JobObjectFormatError
from storage.formats.page import PageFormatError, decode_rows, digest
from storage.formats.segment import Segment, parse_segment_end
from storage.formats.spans import Marker, ObjectId, ObjectKind, Page, Row, Span
from storage.stores.object_store import ObjectNotFoundError, ObjectStore, StoreRefusedError
from storage.stores.retry import until_done
from storage.stores.retry_policy import RetryPolicy

T = TypeVar("T")

RETRY: Final = RetryPolicy(first_s=0.5, attempts_max=5)
READS_AT_ONCE: Final = 4
PAGES_AT_ONCE: Final = 16
"""They are small, and each waits for the store once."""
SPANS_AT_ONCE: Final = 20_000
"""Of all partitions: chunks have spans of many, and are read once for as many as are known."""
TABLE_BYTES: Final = 64 * 1024
"""Of a segment's end, read first: its table, unless that has more than a thousand spans."""
TOLD_SEGMENTS: Final = 1_000
TOLD_MISSING: Final = 4_000
TOLD_PAGES: Final = 2_000
TOLD_OBJECTS: Final = 50_000
"""Between two lines about the listing."""

Tell = Callable[[str], Awaitable[None]]


class _ShortError(Exception):
    """The object ends before the bytes that are asked for."""


class Check:
    """One check of a cluster; `run` is called once."""

    def __init__(
        self,
        store: ObjectStore,
        identity: ClusterIdentity,
        current: Callable[[], Awaitable[Machine]],
        *,
        deep: bool,
        bytes_per_second: float,
        tell: Tell,
    ) -> None:
        """`current`: a machine at the log's end of when it is called. `tell` gets lines about how far the
        check is."""
        self._store = store
        self._identity = identity
        self._current = current
        self._deep = deep
        self._pace_of_reads = Pace(bytes_per_second)
        self._tell = tell
        self._objects: dict[ObjectId, Wrong] = {}
        """That are wrong as a whole."""
        self._suspects: dict[ObjectId, Wrong] = {}
        """Of another length: what lies in them is read."""
        self._rows: dict[Row, Wrong] = {}
        """Spans and pages that were read and are not what the log says."""
        self._moved: dict[ObjectId, Wrong] = {}
        """Segments with batches that can be read, and are not at the offsets, or of the era, that they were written with."""
        self._checksums: dict[ObjectId, Mapping[int, int]] = {}
        """Of segments that are being read: what they say of their spans, by first byte."""
        self._spans = 0
        self._pages = 0

    async def run(self) -> Checked:
        """Raises StoreError, and what `current` raises."""
        machine = await self._current()
        comparison, unnamed = await self._list(machine)
        for object_id, what in comparison.wrong:
            (self._objects if what.trouble == MISSING else self._suspects)[object_id] = what
        if comparison.wrong:
            machine = await self._current()
            await self._confirm(machine)
        if self._deep or self._suspects:
            await self._read_everything(machine)
        ranges: list[LostRange] = []
        if self._objects or self._rows:
            machine = await self._current()
            ranges = await self._ranges(machine)
            if any(each.is_page for each in ranges):
                ranges = await self._rebuild(machine, ranges)
        named = {key for each in ranges for key in each.keys}
        wrong = [each for at, each in self._objects.items() if machine.objects.is_referenced(at)]
        wrong += self._suspects.values()
        by_key = {each.key: each for each in self._rows.values() if each.key in named}
        wrong += [by_key[key] for key in by_key.keys() - {each.key for each in wrong}]
        known = {each.key for each in wrong}
        wrong += [
            each
            for at, each in self._moved.items()
            if each.key not in known and machine.objects.is_referenced(at)
        ]
        snapshots = await self._snapshots(machine)
        if snapshots:  # They are deleted when there are two newer ones.
            snapshots = await self._snapshots(await self._current())
        wrong += snapshots
        return Checked(
            position=machine.position,
            deep=self._deep,
            counted=comparison.counted,
            wrong=sorted(wrong),
            ranges=ranges,
            unnamed=unnamed.view(),
            foreign=comparison.foreign,
            spans=self._spans,
        )

    # What is there.

    async def _list(self, machine: Machine) -> tuple[Comparison, UnnamedObjects]:
        checkpoints = await _answered(lambda: unnamed_objects.checkpoints(self._store))
        begun_ms = collection_plan.begun_ms(machine, checkpoints)
        comparison = Comparison({kind: machine.objects.referenced(kind) for kind in ObjectKind})
        unnamed = unnamed_objects.NOTHING
        listed = told = 0
        async for page in pages(self._store, ""):
            comparison.see(page)
            unnamed = unnamed_objects.found_in(unnamed, machine, page, begun_ms=begun_ms)
            listed += len(page)
            if listed - told >= TOLD_OBJECTS:
                told = listed
                await self._tell(f"listed {listed} objects")
        comparison.end()
        return comparison, unnamed

    async def _confirm(self, machine: Machine) -> None:
        """Leave out what nothing points at any more, and what is there after all."""
        for found in (self._objects, self._suspects):
            for object_id in list(found):
                if not machine.objects.is_referenced(object_id):
                    del found[object_id]
        again = list(self._objects.items())
        for first in range(0, len(again), READS_AT_ONCE):
            some = again[first : first + READS_AT_ONCE]
            await asyncio.gather(*[self._look_again(machine, *each) for each in some])
            if first and first % TOLD_MISSING == 0:
                await self._tell(f"looked again for {first} of {len(again)} missing objects")

    async def _look_again(self, machine: Machine, object_id: ObjectId, wrong: Wrong) -> None:
        """For one that was missing. An agent's machine goes on meanwhile."""
        try:
            if machine.objects.is_referenced(object_id):
                await self._get(object_id, machine.object_length(object_id) - 1, 1)
        except ObjectNotFoundError:
            return
        except _ShortError as error:
            self._suspects[object_id] = wrong._replace(trouble=LENGTH, text=str(error))
        del self._objects[object_id]

    async def _snapshots(self, machine: Machine) -> list[Wrong]:
        """Of the published ones, those that could not be loaded."""
        wrong = []
        for published in machine.snapshots.published:
            text = await self._snapshot(published)
            if text is not None:
                wrong.append(Wrong(published.key, "snapshot", DAMAGED, text))
        return wrong

    async def _snapshot(self, published: Published) -> str | None:
        """What is wrong with it."""
        try:
            if self._deep:
                await SnapshotStore(self._store, self._identity, pace=self._pace).read(
                    published.key
                )
                return None
            manifest = decode_manifest(await self._whole(manifest_key(published.position)))
        except (SnapshotError, ObjectNotFoundError) as error:
            return str(error)
        folder = f"{collection_plan.SNAPSHOTS}{published.position:016x}/"
        lengths: dict[str, int] = {}
        async for page in pages(self._store, folder):
            lengths |= {info.key: info.length for info in page}
        for number, part in enumerate(manifest.parts):
            key = part_key(published.position, number)
            if lengths.get(key) != part.length:
                return f"{key} is missing or not {part.length} bytes long"
        return None

    # What is in it.

    async def _read_everything(self, machine: Machine) -> None:
        """Without `deep` what lies in suspects alone."""
        some: list[Span] = []
        partitions = list(machine.partitions.written())
        for count, partition in enumerate(partitions, 1):
            async for _, rows in self._together(partition):
                some += [row for row in rows if isinstance(row, Span) and self._is_due(row)]
                if len(some) >= SPANS_AT_ONCE:
                    await self._read_spans(machine, some)
                    some = []
                    await self._tell(
                        f"read {self._spans} spans, {count} of {len(partitions)} partitions"
                    )
        await self._read_spans(machine, some)

    def _is_due(self, span: Span) -> bool:
        return self._deep or span.object_id in self._suspects

    async def _together(
        self, partition: Partition
    ) -> AsyncIterator[tuple[int | None, Sequence[Row]]]:
        """All rows in order, those that lie together at a time: in the page of that offset, or in memory
        (None), as does a page that is not to be had."""
        for rows in slices(partition):
            kept: list[Row] = []
            ahead = [row for row in rows if isinstance(row, Page)]
            read: dict[Row, Sequence[Span | Marker] | None] = {}
            for row in rows:
                if isinstance(row, Page) and row not in read:
                    some, ahead = ahead[:PAGES_AT_ONCE], ahead[PAGES_AT_ONCE:]
                    found = await _at_once([partial(self._page, page) for page in some])
                    read = dict(zip(some, found, strict=True))
                inside = read.get(row)
                if inside is None:
                    kept.append(row)
                    continue
                yield None, kept
                kept = []
                yield row.base_offset, inside
            yield None, kept
            await asyncio.sleep(0)

    async def _page(self, page: Page) -> Sequence[Span | Marker] | None:
        if page.object_id in self._objects or page in self._rows:
            return None
        self._pages += 1
        if self._pages % TOLD_PAGES == 0:
            await self._tell(f"read {self._pages} pages, for what lies in them")
        try:
            body = await self._get(page.object_id, page.start, page.length)
            if digest(body) != page.digest:
                raise PageFormatError("it is another page than the log says")
            return decode_rows(body, base_offset=page.base_offset, next_offset=page.next_offset)
        except ObjectNotFoundError:
            self._objects[page.object_id] = missing(page.object_id)
        except (_ShortError, PageFormatError) as error:
            self._damaged(page, str(error))
        return None

    async def _read_spans(self, machine: Machine, spans: Sequence[Span]) -> None:
        self._checksums = {}
        wanted = [
            SpanRead(span, span.start + span.length, recent=False)
            for span in spans
            if span.object_id not in self._objects
        ]
        reads = plan_reads(wanted, whole_bytes_max=0)
        for first in range(0, len(reads), READS_AT_ONCE):
            some = reads[first : first + READS_AT_ONCE]
            await _at_once([partial(self._read, machine, one) for one in some])

    async def _read(self, machine: Machine, one: Read[Span]) -> None:
        try:
            data = memoryview(await self._get(one.object_id, one.start, one.length))
        except ObjectNotFoundError:
            self._objects[one.object_id] = missing(one.object_id)
            return
        except _ShortError as error:
            if len(one.pieces) > 1:  # The first ones may be there.
                for span in one.pieces:
                    alone = Read(span.object_id, span.start, span.length, (span,), whole=False)
                    await self._read(machine, alone)
            else:
                self._damaged(one.pieces[0], str(error))
            return
        checksums = await self._checksums_of(machine, one.object_id)
        for span in one.pieces:
            piece = data[span.start - one.start :][: span.length]
            # (Batches of chunks are patched where they are.)
            is_moved = checksums.get(span.start, checksum := crc32c(piece)) != checksum
            try:
                Batches.checked(span, piece)
            except DamagedSpanError as error:
                self._damaged(span, str(error))
            else:
                if is_moved:
                    key, kind = span.object_id.key, kind_name(span.object_id.kind)
                    self._moved[span.object_id] = Wrong(key, kind, MOVED, _moved(span))
            self._spans += 1
            await asyncio.sleep(0)

    async def _checksums_of(self, machine: Machine, object_id: ObjectId) -> Mapping[int, int]:
        """Of the spans of a segment, by first byte; of other objects nothing."""
        if object_id.kind != ObjectKind.SEGMENT or not machine.objects.is_referenced(object_id):
            return {}
        if object_id not in self._checksums:
            segment = await self._table(object_id, machine.object_length(object_id))
            spans = () if segment is None else segment.spans
            self._checksums[object_id] = {each.start: each.checksum for each in spans}
        return self._checksums[object_id]

    def _damaged(self, row: Span | Page, text: str) -> None:
        object_id = row.object_id
        self._rows[row] = Wrong(object_id.key, kind_name(object_id.kind), DAMAGED, text)

    # Whose it is.

    async def _ranges(self, machine: Machine) -> list[LostRange]:
        found: list[LostRange] = []
        lost = Lost(self._objects, self._rows)
        for partition in list(machine.partitions.written()):
            losses = Losses(machine, partition, lost)
            before: int | None = None
            async for where, rows in self._together(partition):
                if where != before:
                    losses.end()
                losses.see(rows)
                before = where
            losses.end()
            found += losses.ranges
        return found

    async def _rebuild(self, machine: Machine, ranges: Sequence[LostRange]) -> list[LostRange]:
        """Pages that can be made anew get their bodies."""
        places = {(each.topic_id, each.partition) for each in ranges if each.is_page}
        known: dict[tuple[bytes, int], list[Span]] = {place: [] for place in places}
        for count, (object_id, length) in enumerate(
            machine.objects.referenced(ObjectKind.SEGMENT), 1
        ):
            for topic_id, number, span in await self._spans_of(object_id, length):
                if (place := (topic_id, number)) in known:
                    known[place].append(span)
            if count % TOLD_SEGMENTS == 0:
                await self._tell(f"read the tables of {count} segments, to find lost pages again")
        bodies: dict[bytes, bytes] = {}
        lost_pages = [_page_of(machine, each) for each in ranges]
        for each, page in zip(ranges, lost_pages, strict=True):
            if page is not None:
                body = rebuilding.body_of(page, known[each.topic_id, each.partition])
                if body is not None:
                    bodies[page.digest] = body
                await asyncio.sleep(0)
        wanted = {page.digest for page in lost_pages if page is not None} - bodies.keys()
        if wanted:
            past = PastPages(self._store, self._identity, digests=wanted, tell=self._tell)
            bodies |= await past.find()
        return [
            each if page is None else each._replace(page_body=bodies.get(page.digest, b""))
            for each, page in zip(ranges, lost_pages, strict=True)
        ]

    async def _spans_of(
        self, object_id: ObjectId, length: int
    ) -> Sequence[tuple[bytes, int, Span]]:
        """By the table of the segment; nothing when that is not to be had."""
        segment = await self._table(object_id, length)
        return () if segment is None else [*rebuilding.spans_of(segment)]

    async def _table(self, object_id: ObjectId, length: int) -> Segment | None:
        """Of the segment; None: it is not to be had."""
        take = min(length, TABLE_BYTES)
        try:
            while True:
                end = await self._get(object_id, length - take, take)
                found = parse_segment_end(end, object_length=length)
                if not isinstance(found, int):
                    return found
                take = found
        except (ObjectNotFoundError, _ShortError, JobObjectFormatError):
            return None

    # The store.

    async def _get(self, object_id: ObjectId, start: int, length: int) -> Buffer:
        """Raises ObjectNotFoundError, _ShortError, and other errors of the store: one that refuses to be
        read has lost nothing by that."""
        await self._pace(length)
        try:
            return await _answered(lambda: self._store.get_range(object_id.key, start, length))
        except StoreRefusedError as error:
            whole = len(await self._whole(object_id.key))
            if whole < start + length:
                raise _ShortError(f"it has {whole} bytes") from error
            raise

    async def _pace(self, length: int) -> None:
        now_s = asyncio.get_running_loop().time()
        await asyncio.sleep(self._pace_of_reads.wait_s(length, now_s))

    async def _whole(self, key: str) -> Buffer:
        return await _answered(lambda: self._store.get(key))


def _moved(span: Span) -> str:
    return (
        f"{place_of(span)} can be read, but are not what was written (the segment's checksum): a batch is at another"
        " offset, or of another era"
    )


def _page_of(machine: Machine, found: LostRange) -> Page | None:
    """The page that is lost; None: rows are, or it is there no more."""
    partition = machine.partitions.get(found.topic_id, found.partition)
    index = -1 if partition is None else partition.find(found.base_offset)
    if not found.is_page or partition is None or not 0 <= index < partition.row_count:
        return None
    page = partition.row(index)
    return page if isinstance(page, Page) else None


async def _at_once(calls: Sequence[Callable[[], Coroutine[Any, Any, T]]]) -> list[T]:
    """What they return. Raises what the first raised that failed; the others are ended."""
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(call()) for call in calls]
    except ExceptionGroup as group:
        raise group.exceptions[0] from group
    return [task.result() for task in running]


async def _answered(call: Callable[[], Awaitable[T]]) -> T:
    return await until_done(call, RETRY, tell=lambda _error, _failures: None)
