"""What a fetch is told, partition by partition: bounds, errors, and which whole batches. Pure.

Two passes. `look` judges a partition by the machine alone (errors, bounds, bytes there are).
`collect` takes batches from what is in memory and says which spans are missing for more.

What holds (P7): records of a partition come in order from the one asked for, without a gap; limits
stop before a batch, and the first batch of a fetch is given whole whatever its size. What cannot
be read is an error of its partition. "Unsure" marks a refusal that a newer entry of the log might
undo: it may be told only after a barrier (P8). Who reads committed records only is given nothing
at or beyond the last stable offset, and is told of every aborted transaction that has a record in
what is given (KIP-98); of the machine as it is when the answer is made, so both are exact. Markers
are given to everybody: they are made when asked for, and need no store.

The leader epoch is 0, always. Left out: waiting, sessions, the log and the store.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from broker.fetch_sessions import Place
from coordinator.machine import Machine
from coordinator.partitions import Partition
from protocol.errors import ErrorCode
from protocol.fetch import TOPIC_IDS_FROM, PartitionAnswer
from storage.batches import Batches
from storage.fetch_plan import Wanted
from storage.object_store import StoreError
from storage.spans import MARKER_BYTES, Marker, ObjectId, Span

MiB: Final = 1 << 20
LEADER_EPOCH: Final = 0
LOAD_BYTES_MAX: Final = 8 * MiB
"""Bytes that one fetch has read from the store, its first span comes on top (P15)."""


class Look(NamedTuple):
    """A partition of a fetch, before anything is read."""

    row: Partition | None
    """None when there is none to be read from."""
    error: ErrorCode = ErrorCode.NONE
    unsure: bool = False
    """A newer entry of the log might undo the error."""
    diverging: bool = False
    """The client has fetched beyond the end of its epoch (KIP-595)."""

    @property
    def at_once(self) -> bool:
        """There is something to tell, whatever the bytes."""
        return bool(self.error) or self.diverging


def look(machine: Machine, place: Place, *, version: int, committed: bool, cut_off: bool) -> Look:
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
            return Look(row, unsure=True, diverging=True)
        return _BEYOND_END
    if cut_off and offset >= fetchable_end(row, committed=committed):
        return _CUT_OFF
    return Look(row)


def fetchable_end(row: Partition, *, committed: bool) -> int:
    """Where a fetch stops: nothing at or beyond it is given."""
    return row.last_stable if committed else row.end_offset


_UNKNOWN: Final = Look(None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, unsure=True)
_UNKNOWN_ID: Final = Look(None, ErrorCode.UNKNOWN_TOPIC_ID, unsure=True)
_UNKNOWN_EPOCH: Final = Look(None, ErrorCode.UNKNOWN_LEADER_EPOCH)
_OUT_OF_RANGE: Final = Look(None, ErrorCode.OFFSET_OUT_OF_RANGE)
_BEYOND_END: Final = Look(None, ErrorCode.OFFSET_OUT_OF_RANGE, unsure=True)
_CUT_OFF: Final = Look(None, ErrorCode.NOT_LEADER_OR_FOLLOWER)
NOT_SERVING: Final = Look(None, ErrorCode.NOT_LEADER_OR_FOLLOWER)
"""The agent cannot tell, and others may."""


def bytes_there(found: Look, place: Place, *, committed: bool) -> int:
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


class Found:
    """What is in memory for one fetch, on top of the cache: spans read for it, and failures."""

    __slots__ = ("batches", "failed")

    def __init__(self) -> None:
        self.batches: dict[tuple[ObjectId, int], Batches] = {}
        """By chunk and first byte."""
        self.failed: dict[ObjectId, StoreError] = {}


class Collected(NamedTuple):
    answers: list[PartitionAnswer]
    """One for each place."""
    missing: list[Wanted]
    """What must be read for more; then `answers` is only provisional."""
    failures: list[StoreError]


class _Budget:
    """What is left of the fetch's limits, and how far it may see."""

    __slots__ = ("committed", "first", "left", "to_load")

    def __init__(self, bytes_max: int, *, committed: bool, may_load: bool) -> None:
        self.committed = committed
        self.left = bytes_max
        self.first = True
        """Nothing has been given yet: the next batch comes whatever its size."""
        self.to_load = LOAD_BYTES_MAX if may_load else 0


class Collector:
    """Takes batches for fetches from memory."""

    def __init__(
        self,
        machine: Machine,
        *,
        cached: Callable[[Span], Batches | None],
        is_recent: Callable[[ObjectId], bool],
    ) -> None:
        self._machine = machine
        self._cached = cached
        """May raise StoreError (damaged bytes)."""
        self._is_recent = is_recent

    def collect(
        self,
        places: Sequence[Place],
        looks: Sequence[Look],
        *,
        bytes_max: int,
        committed: bool,
        found: Found | None,
    ) -> Collected:
        """Answers for all places, in their order, within `bytes_max`.

        `found`: what was read after the first time; then nothing more is asked for.
        """
        budget = _Budget(bytes_max, committed=committed, may_load=found is None)
        collected = Collected([], [], [])
        known = Found() if found is None else found
        for place, seen in zip(places, looks, strict=True):
            answer = _bounds(place, seen, committed=committed)
            if seen.row is not None and not seen.at_once:
                self._fill(answer, place, seen.row, budget=budget, found=known, collected=collected)
            collected.answers.append(answer)
        return collected

    def _fill(
        self,
        answer: PartitionAnswer,
        place: Place,
        row: Partition,
        *,
        budget: _Budget,
        found: Found,
        collected: Collected,
    ) -> None:
        """Add whole batches to the answer of one partition, or what is missing to the list."""
        limit = min(place.wanted.partition_max_bytes, budget.left)
        offset = place.wanted.fetch_offset
        bound = fetchable_end(row, committed=budget.committed)
        if offset >= bound or (limit <= 0 and not budget.first):
            return
        records: list[memoryview] = []
        given = 0
        missing = False
        index = row.find(offset)
        while offset < bound and (given < limit or budget.first):
            span = row.row(index)
            try:
                batches = self._look_up(span, found)
            except StoreError as error:
                if not given:
                    collected.failures.append(error)
                    _fail(answer, ErrorCode.KAFKA_STORAGE_ERROR)
                break
            if batches is None:
                assert isinstance(span, Span)
                if budget.to_load <= 0:
                    break
                missing = True
                budget.to_load -= span.length
                length = self._machine.object_length(span.object_id)
                collected.missing.append(Wanted(span, length, self._is_recent(span.object_id)))
                given += _part_from(span, offset)
            elif not missing:
                before = bound if bound < span.next_offset else None
                piece = batches.slice(
                    offset, bytes_max=limit - given, at_least_one=budget.first, before=before
                )
                if not piece.byte_count:
                    break
                records += piece.views
                given += piece.byte_count
                offset = piece.next_offset
                if offset < span.next_offset:
                    budget.first = False
                    break
            else:
                given += _part_from(span, offset)
            budget.first = False
            offset = span.next_offset
            index += 1
        budget.left -= given
        if not missing:
            answer.records = records
            answer.records_bytes = given
            if budget.committed and given:
                first = place.wanted.fetch_offset
                answer.aborted = [aborted[:2] for aborted in row.aborted(first, offset)]

    def _look_up(self, span: Span | Marker, found: Found) -> Batches | None:
        if isinstance(span, Marker):
            return Batches.of_marker(span)
        error = found.failed.get(span.object_id)
        if error is not None:
            raise error
        return found.batches.get((span.object_id, span.start)) or self._cached(span)


def _part_from(span: Span | Marker, offset: int) -> int:
    """About how many bytes of the span are from `offset` on."""
    if isinstance(span, Marker):
        return MARKER_BYTES
    return -(-span.length * (span.next_offset - max(offset, span.base_offset)) // span.records)


def _bounds(place: Place, seen: Look, *, committed: bool) -> PartitionAnswer:
    """The answer about a partition without records."""
    row = seen.row
    answer = PartitionAnswer(place.wanted.partition, seen.error)
    if committed:
        answer.aborted = ()
    if row is not None:
        answer.high_watermark = row.end_offset
        answer.last_stable_offset = row.last_stable
        answer.log_start_offset = row.log_start
        if seen.diverging:
            answer.diverging_epoch = (LEADER_EPOCH, row.end_offset)
    return answer


def _fail(answer: PartitionAnswer, error: ErrorCode) -> None:
    answer.error = error
    answer.high_watermark = answer.last_stable_offset = answer.log_start_offset = -1
