"""Answers of a fetch, partition by partition: bounds, errors, and whole batches. Pure.

Two passes. `check_partition` judges a partition by the machine alone (errors, bounds, bytes there are).
`collect` takes batches from what is in memory and says which spans are missing for more.

What holds (P7): records of a partition come in order from the one asked for, without a gap; limits
stop before a batch, and the first batch of a fetch is given whole whatever its size. What cannot
be read is an error of its partition. "Unsure" marks a refusal that a newer entry of the log might
undo: it may be told only after a barrier (P8). Who reads committed records only is given nothing
at or beyond the last stable offset, and is told of every aborted transaction that has a record in
what is given (KIP-98); of the machine as it is when the answer is made, so both are exact. Markers
are given to everybody: they are made when asked for, and need no store. Who is sent on to an agent
of its zone is given bounds and no records (KIP-392); errors come first.

The leader epoch is that of the era. Left out: waiting, sessions, the log and the store.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from broker.cluster.placement import Placement
from broker.fetch.sessions import CachedPartition
from coordinator.machine.machine import Machine
from coordinator.tables.partitions import Partition
from protocol.errors import ErrorCode
from protocol.fetch import TOPIC_IDS_FROM, PartitionAnswer
from protocol.types import LEADER_EPOCH, TopicId
from storage.fetch_plan import SpanRead
from storage.formats.batches import Batches
from storage.formats.spans import MARKER_BYTES, Marker, ObjectId, Page, Row, Span
from storage.stores.object_store import ObjectNotFoundError, StoreError

MiB: Final = 1 << 20
LOAD_BYTES_MAX: Final = 8 * MiB
"""Bytes that one fetch has read from the store at a time, its first span comes on top (P15)."""
ROWS_MAX: Final = 4_000
"""Rows that one fetch looks at: each takes microseconds, however few bytes it has. Whoever has more
to read asks again."""
PAGE_ROW_BYTES: Final = 350
"""About what a row of a page takes in memory."""
ROUNDS_MAX: Final = 6
"""How often one fetch has something read: a page says where the spans are, and both may be
somewhere else by then. What has nothing after that is given nothing, and asked for again."""


class FetchPartitionStatus(NamedTuple):
    """A partition of a fetch, before anything is read."""

    row: Partition | None
    """None when there is none to be read from."""
    error: ErrorCode = ErrorCode.NONE
    unsure: bool = False
    """A newer entry of the log might undo the error."""
    diverging: bool = False
    """The client has fetched beyond the end of its epoch (KIP-595)."""
    sent_on: int | None = None
    """Node id of an agent in the client's zone, which serves it instead of this one."""

    @property
    def at_once(self) -> bool:
        """There is something to tell, whatever the bytes."""
        return bool(self.error) or self.diverging or self.sent_on is not None


def check_partition(
    machine: Machine, place: CachedPartition, *, version: int, committed: bool, cut_off: bool
) -> FetchPartitionStatus:
    """Judge one partition. `cut_off`: too long without a session to say that there is no more."""
    topic_id = place.topic_id
    if topic_id is None:
        assert place.name is not None
        topic = machine.topics.by_name(place.name)
        if topic is None:
            return _UNKNOWN
        topic_id = topic.topic_id
    wanted = place.wanted
    row = machine.partitions.get(topic_id, wanted.partition)
    if row is None:
        by_id = version >= TOPIC_IDS_FROM
        return _UNKNOWN_ID if by_id and machine.topics.by_id(topic_id) is None else _UNKNOWN
    if wanted.current_leader_epoch > LEADER_EPOCH:
        return _UNKNOWN_EPOCH
    offset = wanted.fetch_offset
    if offset < row.log_start:
        return _OUT_OF_RANGE  # The log's start only ever grows, so this is sure.
    if offset > row.end_offset:
        if wanted.last_fetched_epoch == LEADER_EPOCH:
            return FetchPartitionStatus(row, unsure=True, diverging=True)
        return _BEYOND_END
    if cut_off and offset >= fetchable_end(row, committed=committed):
        return _CUT_OFF
    return FetchPartitionStatus(row)


def sent_on(
    seen: FetchPartitionStatus, placement: Placement, *, rack: str, zone: str
) -> FetchPartitionStatus:
    """The same for a client whose `rack` is not this agent's zone; `zone`: of its client id."""
    if seen.row is None or seen.at_once:
        return seen
    row = seen.row
    return seen._replace(
        sent_on=placement.nearest(row.topic_id, row.partition, rack=rack, zone=zone)
    )


def fetchable_end(row: Partition, *, committed: bool) -> int:
    """Where a fetch stops: nothing at or beyond it is given."""
    return row.last_stable if committed else row.end_offset


_UNKNOWN: Final = FetchPartitionStatus(None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, unsure=True)
_UNKNOWN_ID: Final = FetchPartitionStatus(None, ErrorCode.UNKNOWN_TOPIC_ID, unsure=True)
_UNKNOWN_EPOCH: Final = FetchPartitionStatus(None, ErrorCode.UNKNOWN_LEADER_EPOCH)
_OUT_OF_RANGE: Final = FetchPartitionStatus(None, ErrorCode.OFFSET_OUT_OF_RANGE)
_BEYOND_END: Final = FetchPartitionStatus(None, ErrorCode.OFFSET_OUT_OF_RANGE, unsure=True)
_CUT_OFF: Final = FetchPartitionStatus(None, ErrorCode.NOT_LEADER_OR_FOLLOWER)
NOT_SERVING: Final = FetchPartitionStatus(None, ErrorCode.NOT_LEADER_OR_FOLLOWER)
"""The agent cannot tell, and others may."""


def bytes_there(found: FetchPartitionStatus, place: CachedPartition, *, committed: bool) -> int:
    """How much the partition counts for min_bytes: at most what a fetch returns of it."""
    row = found.row
    if row is None:
        return 0
    offset = place.wanted.fetch_offset
    end = fetchable_end(row, committed=committed)
    if offset >= end:
        return 0
    limit = max(0, place.wanted.partition_max_bytes)
    return min(limit, row.bytes_between(offset, end, limit))


def watches_of(
    places: Sequence[CachedPartition], statuses: Sequence[FetchPartitionStatus], *, committed: bool
) -> tuple[list[tuple[TopicId, int, int, int]], int] | None:
    """What a delayed fetch is to watch, and the bytes that are there; None: something is to be told
    at once."""
    watches = []
    bytes_found = 0
    for place, seen in zip(places, statuses, strict=True):
        row = seen.row
        if row is None or seen.at_once:
            return None
        there = bytes_there(seen, place, committed=committed)
        bytes_found += there
        left = max(0, place.wanted.partition_max_bytes - there)
        watches.append((row.topic_id, row.partition, left, row.last_stable))
    return watches, bytes_found


class LoadedData:
    """Spans and pages that were read for one fetch, on top of the cache, and the reads that failed."""

    __slots__ = ("batches", "byte_count", "failed", "is_behind", "pages", "rounds", "used")

    def __init__(self) -> None:
        self.batches: dict[tuple[ObjectId, int], Batches] = {}
        """By object and first byte."""
        self.pages: dict[tuple[ObjectId, int], Sequence[Span | Marker]] = {}
        """Likewise."""
        self.failed: dict[ObjectId, StoreError] = {}
        self.is_behind = False
        """The log is not reached: an object that is gone may have been replaced."""
        self.rounds = 0
        """How often was read."""
        self.used: set[tuple[ObjectId, int]] = set()
        """Of `batches`, those that the newest answers are made of."""
        self.byte_count = 0
        """Of `batches`."""

    def add(self, span: Span, batches: Batches) -> None:
        self.batches[span.object_id, span.start] = batches
        self.byte_count += len(batches)

    def forget_unused(self) -> None:
        """Let go of spans that are of no use any more: their rows were rearranged meanwhile."""
        if len(self.used) < len(self.batches):
            self.batches = {key: self.batches[key] for key in self.used}
            self.byte_count = sum(map(len, self.batches.values()))

    def forget_all(self) -> None:
        """Let go of all spans."""
        self.batches.clear()
        self.used.clear()
        self.byte_count = 0

    @property
    def gone(self) -> set[ObjectId]:
        return {key for key, e in self.failed.items() if isinstance(e, ObjectNotFoundError)}


_NOTHING: Final = LoadedData()
"""Of fetches for which nothing was read."""


class Collected(NamedTuple):
    answers: list[PartitionAnswer]
    """One for each place."""
    missing: list[SpanRead]
    """Spans that must be read for more; then `answers` is only provisional."""
    pages: list[Page]
    """Likewise."""
    failures: list[StoreError]

    @property
    def is_whole(self) -> bool:
        return not self.missing and not self.pages

    @property
    def missing_bytes(self) -> int:
        return sum(wanted.span.length for wanted in self.missing)


class _Budget:
    """The bytes that are left of the fetch's limits."""

    __slots__ = ("again", "committed", "first", "left", "rows", "to_load")

    def __init__(self, bytes_max: int, *, committed: bool, found: LoadedData | None) -> None:
        self.committed = committed
        self.left = bytes_max
        self.rows = ROWS_MAX
        """What may be looked at. Without one nothing is left."""
        self.first = True
        """Nothing has been given yet: the next batch comes whatever its size."""
        self.again = found is not None
        """Something was read already: only what has nothing yet is worth another read."""
        self.to_load = LOAD_BYTES_MAX if found is None or found.rounds < ROUNDS_MAX else 0


class Collecting(NamedTuple):
    """Answers under way."""

    collected: Collected
    budget: _Budget
    found: LoadedData


class Collector:
    """Takes batches for fetches from memory."""

    def __init__(
        self,
        machine: Machine,
        *,
        cached: Callable[[Span], Batches | None],
        cached_page: Callable[[Page], Sequence[Span | Marker] | None],
        is_recent: Callable[[ObjectId], bool],
    ) -> None:
        self._machine = machine
        self._cached = cached
        """May raise StoreError (damaged bytes)."""
        self._cached_page = cached_page
        self._is_recent = is_recent

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
        collected = Collected([], [], [], [])
        self._take(places, statuses, collected, budget, known)
        return collected

    def begin(self, bytes_max: int, *, committed: bool, found: LoadedData | None) -> "Collecting":
        """As `collect`, of places that come one part after the other (`take`)."""
        known = _NOTHING if found is None else found
        known.used.clear()
        budget = _Budget(bytes_max, committed=committed, found=found)
        return Collecting(Collected([], [], [], []), budget, known)

    def take(
        self,
        places: Sequence[CachedPartition],
        statuses: Sequence[FetchPartitionStatus],
        collecting: "Collecting",
    ) -> None:
        """Add the answers for the next places, which were judged just now."""
        self._take(places, statuses, *collecting)

    def _take(
        self,
        places: Sequence[CachedPartition],
        statuses: Sequence[FetchPartitionStatus],
        collected: Collected,
        budget: _Budget,
        found: LoadedData,
    ) -> None:
        committed = budget.committed
        for place, seen in zip(places, statuses, strict=True):
            answer = _bounds(place, seen, committed=committed)
            if seen.row is not None and not seen.at_once:
                self._fill(answer, place, seen.row, budget=budget, found=found, collected=collected)
            collected.answers.append(answer)

    def _fill(
        self,
        answer: PartitionAnswer,
        place: CachedPartition,
        row: Partition,
        *,
        budget: _Budget,
        found: LoadedData,
        collected: Collected,
    ) -> None:
        """Add whole batches to the answer of one partition, or what is missing to the list."""
        limit = min(place.wanted.partition_max_bytes, budget.left)
        offset = place.wanted.fetch_offset
        bound = fetchable_end(row, committed=budget.committed)
        if offset >= bound or ((limit <= 0 or budget.rows <= 0) and not budget.first):
            return
        records: list[memoryview] = []
        given = 0
        missing = False
        rows: Iterator[Row] = map(row.row, range(row.find(offset), row.row_count))
        if row.page_count:
            rows = self._opened(rows, offset, found)
        try:
            for one in rows:
                batches = self._look_up(one, found)
                if batches is None:
                    has_some = given > 0 and not missing
                    if not self._ask_for(one, budget, collected, has_some=has_some):
                        break
                    missing = True
                if missing or batches is None:
                    given += _part_from(one, offset)
                    offset = one.next_offset
                else:
                    before = bound if bound < one.next_offset else None
                    piece = batches.slice(
                        offset, bytes_max=limit - given, at_least_one=budget.first, before=before
                    )
                    if not piece.byte_count:
                        break
                    records += piece.views
                    given += piece.byte_count
                    offset = piece.next_offset
                budget.first = False
                budget.rows -= 1
                if (
                    offset < one.next_offset
                    or offset >= bound
                    or given >= limit
                    or budget.rows <= 0
                ):
                    break
        except StoreError as error:
            _fail(answer, error, given, found, collected)
        budget.left -= given
        if not missing:
            answer.records = records
            answer.records_bytes = given
            if budget.committed and given:
                first = place.wanted.fetch_offset
                answer.aborted = [aborted[:2] for aborted in row.aborted(first, offset)]

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

    def _look_up(self, one: Row, found: LoadedData) -> Batches | None:
        if isinstance(one, Span):
            if found is _NOTHING:
                return self._cached(one)
            return self._look_up_span(one, found)
        return Batches.of_marker(one) if isinstance(one, Marker) else None

    def _look_up_span(self, span: Span, found: LoadedData) -> Batches | None:
        error = found.failed.get(span.object_id)
        if error is not None:
            raise error
        key = (span.object_id, span.start)
        batches = found.batches.get(key)
        if batches is None:
            return self._cached(span)
        found.used.add(key)
        return batches

    def _look_up_page(self, page: Page, found: LoadedData) -> Sequence[Span | Marker] | None:
        error = found.failed.get(page.object_id)
        if error is not None:
            raise error
        return found.pages.get((page.object_id, page.start)) or self._cached_page(page)

    def _ask_for(self, one: Row, budget: _Budget, collected: Collected, *, has_some: bool) -> bool:
        """Note that a row must be read, if that is worth it."""
        if budget.to_load <= 0 or (budget.again and has_some):
            return False
        if isinstance(one, Page):
            budget.to_load -= PAGE_ROW_BYTES * one.rows
            collected.pages.append(one)
        else:
            assert isinstance(one, Span)
            budget.to_load -= one.length
            length = self._machine.object_length(one.object_id)
            collected.missing.append(SpanRead(one, length, self._is_recent(one.object_id)))
        return True


def _find(rows: Sequence[Span | Marker], offset: int) -> int:
    """Index of the row of a page that contains `offset`; the first, if that is before them."""
    return max(bisect_right(rows, offset, key=_base_offset) - 1, 0)


def _base_offset(row: Span | Marker) -> int:
    return row.base_offset


def _part_from(row: Row, offset: int) -> int:
    """About how many bytes of the row are from `offset` on; at least one."""
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
        if seen.diverging:
            answer.diverging_epoch = (LEADER_EPOCH, row.end_offset)
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
