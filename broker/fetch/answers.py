"""Answers of a fetch, partition by partition: bounds, errors, and whole batches. Pure.

`collect` takes batches from what is in memory, of partitions that were judged before
(`broker.fetch.statuses`), and says which spans are missing for more.

What holds (P7): records of a partition come in order from the one asked for, without a gap; limits
stop before a batch, and the first batch of a fetch is given whole whatever its size. What cannot
be read is an error of its partition. Who reads committed records only is given nothing
at or beyond the last stable offset, and is told of every aborted transaction that has a record in
what is given (KIP-98); of the machine as it is when the answer is made, so both are exact. Markers
are given to everybody: they are made when asked for, and need no store. Who is sent on to an agent
of its zone is given bounds and no records (KIP-392); errors come first.

Left out: waiting, sessions, the log and the store.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Final, NamedTuple, TypeGuard

from broker.fetch.loaded import LoadedData
from broker.fetch.sessions import CachedPartition
from broker.fetch.statuses import FetchPartitionStatus, fetchable_end
from coordinator.machine.machine import Machine
from coordinator.tables.partitions import Partition
from protocol.errors import ErrorCode
from protocol.fetch import PartitionAnswer
from storage.fetch_plan import SpanPart, SpanRead
from storage.formats.batches import Batches
from storage.formats.spans import MARKER_BYTES, Marker, ObjectId, Page, Row, Span
from storage.stores.object_store import ObjectNotFoundError, StoreError

MiB: Final = 1 << 20
LOAD_BYTES_MAX: Final = 8 * MiB
"""Bytes that one fetch has read from the store at a time, its first span comes on top (P15)."""
ROWS_MAX: Final = 4_000
"""Rows that one fetch looks at: each takes microseconds, however few bytes it has. Whoever has more
to read asks again."""
PORTION_BYTES_MIN: Final = 64 * 1024
"""Of one partition, as long as there is room: what is given less costs more to look up than to send."""
LONG_BYTES: Final = MiB // 2
"""Spans of so many bytes are read for themselves: of them as much as the client wants."""
ROW_BYTES_MIN: Final = 128
"""Of a span, about."""
PAGE_ROW_BYTES: Final = 350
"""About what a row of a page takes in memory."""
ROUNDS_MAX: Final = 6
"""How often one fetch has something read: a page says where the spans are, and both may be
somewhere else by then. What has nothing after that is given nothing, and asked for again."""


_NOTHING: Final = LoadedData()
"""Of fetches for which nothing was read."""


class Collected(NamedTuple):
    answers: list[PartitionAnswer]
    """One for each place."""
    missing: list[SpanRead]
    """Spans that must be read for more; then `answers` is only provisional."""
    parts: list[SpanPart]
    """Likewise, of long spans."""
    pages: list[Page]
    """Likewise."""
    failures: list[StoreError]
    idle: set[int]
    """Of partitions that have nothing to give and are not waited for: the `id` of each place."""

    @property
    def is_whole(self) -> bool:
        return not (self.missing or self.parts or self.pages)

    @property
    def missing_bytes(self) -> int:
        parts = sum([part.length for part in self.parts])
        return sum([wanted.span.length for wanted in self.missing]) + parts


class ObjectFacts(NamedTuple):
    """What is known of an object that is to be read."""

    order: int
    """Older ones have smaller numbers."""
    length: int
    is_recent: bool


class _Budget:
    """The bytes that are left of the fetch's limits."""

    __slots__ = (
        "again",
        "committed",
        "first",
        "left",
        "object_ids",
        "objects",
        "rows",
        "to_load",
        "total",
    )

    def __init__(self, bytes_max: int, *, committed: bool, found: LoadedData | None) -> None:
        self.committed = committed
        self.total = self.left = bytes_max
        self.rows = ROWS_MAX
        """What may be looked at. Without one nothing is left."""
        self.first = True
        """Nothing has been given yet: the next batch comes whatever its size."""
        self.again = found is not None
        """Something was read already: only what has nothing yet is worth another read."""
        self.objects: dict[ObjectId, ObjectFacts] = {}
        """Those of which something is to be read."""
        self.object_ids: dict[int, ObjectId] = {}
        """By number and slot: partitions share objects."""
        self.to_load = LOAD_BYTES_MAX if found is None or found.rounds < ROUNDS_MAX else 0

    def portion(self, count: int) -> int:
        """Bytes for each of so many partitions. Chunks hold batches of many partitions: who takes a
        little of each reads a chunk once, and those that come last are given something, too."""
        return max(self.left // count, PORTION_BYTES_MIN)


class _Filling:
    """The answer of a partition that has records for it."""

    __slots__ = ("answer", "bound", "given", "missing", "offset", "place", "records", "row")

    def __init__(
        self, answer: PartitionAnswer, place: CachedPartition, row: Partition, bound: int
    ) -> None:
        self.answer = answer
        self.place = place
        self.row = row
        self.bound = bound
        """Nothing at or beyond it is given."""
        self.offset = place.wanted.fetch_offset
        """The next one."""
        self.given = 0
        """Bytes, of what is missing about."""
        self.missing = False
        """Something must be read before there is an answer."""
        self.records: list[memoryview] = []

    def finish(self, *, committed: bool) -> None:
        """Put the records into the answer."""
        if self.missing or not self.given:
            return
        answer = self.answer
        answer.records = self.records
        answer.records_bytes = self.given
        if committed:
            first = self.place.wanted.fetch_offset
            answer.aborted = [aborted[:2] for aborted in self.row.aborted(first, self.offset)]


class Collecting(NamedTuple):
    """Answers under way."""

    collected: Collected
    budget: _Budget
    found: LoadedData
    waiting: list[tuple[_Filling, Row | SpanPart, Iterator[Row | SpanPart]]]
    """Partitions that come to a row that must be read: the row, and those behind it."""


class Collector:
    """Takes batches for fetches from memory."""

    def __init__(
        self,
        machine: Machine,
        *,
        cached: Callable[[Span], Batches | None],
        cached_at: Callable[[ObjectId, int], Batches | None],
        cached_page: Callable[[Page], Sequence[Span | Marker] | None],
        is_recent: Callable[[ObjectId], bool],
        parts_of: Callable[[Span, int], Iterable[Span | SpanPart]],
    ) -> None:
        self._machine = machine
        self._cached = cached
        """May raise StoreError (damaged bytes)."""
        self._cached_at = cached_at
        self._cached_page = cached_page
        self._is_recent = is_recent
        self._parts_of = parts_of

    def collect(
        self,
        places: Sequence[CachedPartition],
        statuses: Sequence[FetchPartitionStatus],
        *,
        bytes_max: int,
        committed: bool,
        found: LoadedData | None = None,
    ) -> Collected:
        """Answers for all places, in their order, within `bytes_max`.

        `found`: what was read since the first time; then more is asked for only where there is
        nothing to give yet, as when a page was read that says where the records are.
        """
        known = _NOTHING if found is None else found
        known.used.clear()
        budget = _Budget(bytes_max, committed=committed, found=found)
        collecting = Collecting(Collected([], [], [], [], [], set()), budget, known, [])
        self.take(places, statuses, collecting)
        return collecting.collected

    def begin(self, bytes_max: int, *, committed: bool, found: LoadedData | None) -> Collecting:
        """As `collect`, of places that come one part after the other (`take`)."""
        known = _NOTHING if found is None else found
        known.used.clear()
        budget = _Budget(bytes_max, committed=committed, found=found)
        return Collecting(Collected([], [], [], [], [], set()), budget, known, [])

    def take(
        self,
        places: Sequence[CachedPartition],
        statuses: Sequence[FetchPartitionStatus],
        collecting: Collecting,
    ) -> None:
        """Add the answers for the next places, which were judged just now."""
        collected, budget = collecting.collected, collecting.budget
        committed = budget.committed
        fillings: list[_Filling] = []
        for place, seen in zip(places, statuses, strict=True):
            answer = _bounds(place, seen, committed=committed)
            collected.answers.append(answer)
            row = seen.row
            if row is not None and not seen.at_once and id(place) not in collecting.found.idle:
                bound = fetchable_end(row, committed=committed)
                if place.wanted.fetch_offset < bound:
                    fillings.append(_Filling(answer, place, row, bound))
        hungry = fillings
        while hungry:
            # Once each its portion, then what others left, if that is much.
            portion = budget.portion(len(hungry))
            left = budget.left
            hungry = [one for one in hungry if self._fill(one, portion, collecting)]
            if budget.left == left or budget.left < budget.total // 8:
                break
        if collecting.waiting:
            self._ask(collecting)
        for one in fillings:
            one.finish(committed=committed)

    def _fill(self, one: _Filling, portion: int, collecting: Collecting) -> bool:
        """Add whole batches to the answer of one partition, or what is missing to the list.

        Whether it may be given more than the portion.
        """
        budget, found = collecting.budget, collecting.found
        most = min(one.place.wanted.partition_max_bytes - one.given, budget.left)
        if (most <= 0 or budget.rows <= 0) and not budget.first:
            return False
        before = one.given
        limit = min(most, portion)
        row = one.row
        index, is_full = row.find(one.offset), False
        if not found.failed:
            index, is_full = self._add_whole(one, index, limit, collecting)
            taken = one.given - before
            budget.left -= taken
            most -= taken
            limit -= taken
            before = one.given
        if is_full or one.offset >= one.bound or budget.rows <= 0:
            return is_full
        rows = row.rows_after(index, budget.object_ids)
        if row.page_count:
            rows = self._opened(rows, one.offset, found)
        parts = self._split(rows, one, found) if row.segment_bytes else rows
        try:
            goes_on = self._add_rows(one, parts, collecting, limit=limit, most=most)
        except StoreError as error:
            goes_on = False
            _fail(one.answer, error, one.given, found, collecting.collected)
        budget.left -= one.given - before
        return goes_on

    def _add_whole(
        self, one: _Filling, index: int, limit: int, collecting: Collecting
    ) -> tuple[int, bool]:
        """Add whole spans that are in memory, of `limit` bytes at most: nearly all that is ever given.

        The index of the row behind them, and whether that is in memory, too, and too large.
        """
        budget, found = collecting.budget, collecting.found
        row, offset, taken, first = one.row, one.offset, 0, index
        most = min(budget.rows, limit // ROW_BYTES_MIN + 1)
        is_full = False
        for slot, number, start, length, base_offset, _ in row.packed_rows(index, most):
            if base_offset != offset or length == 0:
                break
            name = number << 32 | slot
            object_id = budget.object_ids.get(name)
            if object_id is None:
                object_id = budget.object_ids[name] = row.object_id(slot, number)
            batches = found.batches.get((object_id, start))
            if batches is None:
                batches = self._cached_at(object_id, start)
            else:
                found.used.add((object_id, start))
            if batches is None or len(batches) != length or batches.span.base_offset != offset:
                break
            next_offset = batches.span.next_offset
            if taken + length > limit or next_offset > one.bound:
                # A span is not cut for what is left when much was given.
                is_full = 0 < limit // 2 <= taken and next_offset <= one.bound
                break
            one.records.append(batches.view())
            taken += length
            offset = next_offset
            index += 1
        if taken:
            one.offset = offset
            one.given += taken
            budget.first = False
            budget.rows -= index - first
        return index, is_full

    def _add_rows(
        self,
        one: _Filling,
        rows: Iterator[Row | SpanPart],
        collecting: Collecting,
        *,
        limit: int,
        most: int,
    ) -> bool:
        """As `_fill`; about `limit` bytes, `most` at most. Raises StoreError."""
        budget = collecting.budget
        taken = 0
        for each in rows:
            if isinstance(each, SpanPart) or _is_long(each):
                limit = most
            batches = self._look_up(each, collecting.found)
            if batches is None:
                if not _exceeds(each, limit - taken) or not one.given:
                    collecting.waiting.append((one, each, rows))
                return False
            size = _add(one, batches, budget, bytes_max=limit - taken, most=most - taken)
            if not size:
                return limit < most
            taken += size
            if one.offset >= one.bound or taken >= most or budget.rows <= 0:
                return False
            if one.offset < each.next_offset or taken >= limit:
                return True
        return False

    def _ask(self, collecting: Collecting) -> None:
        """Note what must be read, as much as is worth it: the first row of the first partition, then
        the oldest objects first.

        So partitions stay in step, and a chunk is read once for all of them.
        """
        budget = collecting.budget
        queue = [
            (self._facts(row.object_id, budget).order, number, one, row, rows)
            for number, (one, row, rows) in enumerate(collecting.waiting)
            if not isinstance(row, Marker)
        ]
        collecting.waiting.clear()
        # Whoever comes first, as all do in turn, is given something whatever the others lack.
        _, number, one, row, rows = queue[0]
        following = self._ask_for(one, row, rows, collecting) if budget.to_load > 0 else None
        if following is None:
            queue.pop(0)
        else:
            order = self._facts(following.object_id, budget).order
            queue[0] = (order, number, one, following, rows)
        heapify(queue)
        while queue and budget.to_load > 0 and budget.left > 0:
            _, number, one, row, rows = queue[0]
            following = self._ask_for(one, row, rows, collecting)
            if following is None:
                heappop(queue)
            else:
                order = self._facts(following.object_id, budget).order
                heapreplace(queue, (order, number, one, following, rows))
        idle = [id(one.place) for _, _, one, _, _ in queue if not one.given]
        collecting.collected.idle.update(idle)

    def _ask_for(
        self,
        one: _Filling,
        row: Span | SpanPart | Page,
        rows: Iterator[Row | SpanPart],
        collecting: Collecting,
    ) -> Span | SpanPart | Page | None:
        """Ask for a row; the next one of the partition that must be read, if there is any."""
        budget = collecting.budget
        if budget.again and one.given > 0 and not one.missing:
            return None
        self._note(row, collecting)
        one.missing = True
        each: Row | SpanPart | None = row
        try:
            while each is not None:
                size = _part_from(each, one.offset)
                one.offset = each.next_offset
                one.given += size
                budget.left -= size
                budget.rows -= 1
                if (
                    one.offset >= one.bound
                    or one.given >= one.place.wanted.partition_max_bytes
                    or budget.rows <= 0
                    or isinstance(each, SpanPart)  # Where it ends is known when it was read.
                ):
                    return None
                each = next(rows, None)
                if isinstance(each, Span | SpanPart | Page) and not self._is_there(
                    each, collecting
                ):
                    return each
        except StoreError as error:
            _fail(one.answer, error, one.given, collecting.found, collecting.collected)
        return None

    def _facts(self, object_id: ObjectId, budget: _Budget) -> ObjectFacts:
        known = budget.objects.get(object_id)
        if known is None:
            incarnation, number, _ = object_id
            length = self._machine.object_length(object_id)
            recent = self._is_recent(object_id)
            known = ObjectFacts(incarnation << 64 | number, length, recent)
            budget.objects[object_id] = known
        return known

    def _is_there(self, row: Row | SpanPart, collecting: Collecting) -> bool:
        """Whether it need not be read. Raises StoreError when it was read in vain."""
        if isinstance(row, Span) and collecting.found is _NOTHING:
            # The reader itself looks for the whole object.
            return self._cached_at(row.object_id, row.start) is not None
        return self._look_up(row, collecting.found) is not None

    def _note(self, one: Span | SpanPart | Page, collecting: Collecting) -> None:
        """A row is to be read."""
        collected, budget = collecting.collected, collecting.budget
        if isinstance(one, Page):
            budget.to_load -= PAGE_ROW_BYTES * one.rows
            collected.pages.append(one)
        elif isinstance(one, SpanPart):
            budget.to_load -= one.length
            collected.parts.append(one)
        else:
            budget.to_load -= one.length
            _, length, is_recent = self._facts(one.object_id, budget)
            collected.missing.append(SpanRead(one, length, is_recent))

    def _opened(self, rows: Iterator[Row], offset: int, found: LoadedData) -> Iterator[Row]:
        """The same rows, those of pages in their place where they are in memory.

        Raises StoreError when a page cannot be read.
        """
        for one in rows:
            inside = self._look_up_page(one, found) if isinstance(one, Page) else None
            if inside is None:
                yield one
            else:
                yield from inside[_find(inside, offset) :]

    def _split(
        self, rows: Iterator[Row], filling: _Filling, found: LoadedData
    ) -> Iterator[Row | SpanPart]:
        """The same rows, of long spans that are not in memory their parts."""
        for one in rows:
            if _is_long(one) and not found.holds(one):
                yield from self._parts_of(one, max(filling.offset, one.base_offset))
            else:
                yield one

    def _look_up(self, one: Row | SpanPart, found: LoadedData) -> Batches | None:
        if isinstance(one, Span):
            if found is _NOTHING:
                return self._cached(one)
            return self._look_up_span(one, found)
        if isinstance(one, SpanPart) and one.object_id in found.failed:
            raise found.failed[one.object_id]
        return Batches.of_marker(one) if isinstance(one, Marker) else None

    def _look_up_span(self, span: Span, found: LoadedData) -> Batches | None:
        error = found.failed.get(span.object_id)
        if error is not None:
            raise error
        key = (span.object_id, span.start)
        batches = found.batches.get(key)
        if batches is None or batches.span != span:
            return self._cached(span)
        found.used.add(key)
        return batches

    def _look_up_page(self, page: Page, found: LoadedData) -> Sequence[Span | Marker] | None:
        error = found.failed.get(page.object_id)
        if error is not None:
            raise error
        return found.pages.get((page.object_id, page.start)) or self._cached_page(page)


def _find(rows: Sequence[Span | Marker], offset: int) -> int:
    """Index of the row of a page that contains `offset`; the first, if that is before them."""
    return max(bisect_right(rows, offset, key=_base_offset) - 1, 0)


def _base_offset(row: Span | Marker) -> int:
    return row.base_offset


def _add(one: _Filling, batches: Batches, budget: _Budget, *, bytes_max: int, most: int) -> int:
    """Add whole batches of `bytes_max` to an answer; how many bytes. If it has none yet the first one
    may have `most`."""
    bound = one.bound
    before = bound if bound < batches.span.next_offset else None
    piece = batches.slice(one.offset, bytes_max=bytes_max, at_least_one=budget.first, before=before)
    if not piece.byte_count and not one.given:
        piece = batches.slice(one.offset, bytes_max=0, at_least_one=True, before=before)
        if piece.byte_count > most:
            return 0
    one.records += piece.views
    one.offset = piece.next_offset
    one.given += piece.byte_count
    budget.first = False
    budget.rows -= 1
    return piece.byte_count


def _exceeds(row: Row | SpanPart, room: int) -> bool:
    """Whether there is room for a small part of a long span only: it is not read for that."""
    return isinstance(row, Span | SpanPart) and row.length >= LONG_BYTES and room < row.length // 2


def _is_long(row: Row) -> TypeGuard[Span]:
    return isinstance(row, Span) and row.length >= LONG_BYTES


def _part_from(row: Row | SpanPart, offset: int) -> int:
    """About how many bytes of the row are from `offset` on; at least one."""
    if isinstance(row, Span) and offset <= row.base_offset:
        return row.length
    if isinstance(row, SpanPart):
        return row.length
    if isinstance(row, Marker):
        return MARKER_BYTES
    byte_count = row.length if isinstance(row, Span) else max(row.data_bytes, 1)
    first = max(offset, row.base_offset)
    return -(-byte_count * (row.next_offset - first) // (row.next_offset - row.base_offset))


def _bounds(
    place: CachedPartition, seen: FetchPartitionStatus, *, committed: bool
) -> PartitionAnswer:
    """The answer about a partition without records."""
    row = seen.row
    answer = PartitionAnswer(place.wanted.partition, seen.error)
    if seen.sent_on is not None:
        answer.preferred_read_replica = seen.sent_on
    elif committed:
        answer.aborted = ()
    if row is not None:
        answer.high_watermark = row.end_offset
        answer.last_stable_offset = row.last_stable
        answer.log_start_offset = row.log_start
        answer.diverging_epoch = seen.diverging
    return answer


def _fail(
    answer: PartitionAnswer, error: StoreError, given: int, found: LoadedData, collected: Collected
) -> None:
    """What cannot be read is an error, but for what comes before it. Who does not know whether it
    is somewhere else by now, others may."""
    if given:
        return
    collected.failures.append(error)
    answer.error = ErrorCode.KAFKA_STORAGE_ERROR
    if found.is_behind and isinstance(error, ObjectNotFoundError):
        answer.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    answer.high_watermark = answer.last_stable_offset = answer.log_start_offset = -1
