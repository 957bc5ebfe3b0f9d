"""What a fetch finds of each of its partitions, by the machine alone, before anything is read. Pure.

"Unsure" marks a refusal that a newer entry of the log might undo: it may be told only after a barrier
(P8). The leader epoch is that of the era (`coordinator.tables.eras`). Left out: the records (`broker.fetch.answers`).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.cluster.placement import Placement
from broker.fetch.sessions import CachedPartition
from coordinator.machine.machine import Machine
from coordinator.tables.eras import EpochEnd
from coordinator.tables.partitions import Partition
from protocol.errors import ErrorCode
from protocol.fetch import TOPIC_IDS_FROM, FetchPartition
from protocol.types import TopicId


class FetchPartitionStatus(NamedTuple):
    """A partition of a fetch, before anything is read."""

    row: Partition | None
    """None when there is none to be read from."""
    error: ErrorCode = ErrorCode.NONE
    unsure: bool = False
    """A newer entry of the log might undo the error."""
    diverging: EpochEnd | None = None
    """The client has fetched beyond the end of its epoch, which is this (KIP-595)."""
    sent_on: int | None = None
    """Node id of an agent in the client's zone, which serves it instead of this one."""

    @property
    def at_once(self) -> bool:
        """There is something to tell, whatever the bytes."""
        return bool(self.error) or self.diverging is not None or self.sent_on is not None


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
    leader_epoch = machine.eras.leader_epoch
    if wanted.current_leader_epoch != leader_epoch and wanted.current_leader_epoch >= 0:
        is_older = wanted.current_leader_epoch < leader_epoch
        return _FENCED_EPOCH if is_older else _UNKNOWN_EPOCH
    offset = wanted.fetch_offset
    if offset < row.log_start:
        return _OUT_OF_RANGE  # The log's start only ever grows, so this is sure.
    if offset > row.end_offset or 0 <= wanted.last_fetched_epoch < leader_epoch:
        end = _diverging(machine, row, wanted)
        if end is not None:
            return FetchPartitionStatus(row, unsure=True, diverging=end)
        if offset > row.end_offset:
            return _BEYOND_END
    if cut_off and offset >= fetchable_end(row, committed=committed):
        return _CUT_OFF
    return FetchPartitionStatus(row)


def _diverging(machine: Machine, row: Partition, wanted: FetchPartition) -> EpochEnd | None:
    """Where the epoch ended that the client has fetched last, if it has fetched more than that."""
    place = (row.topic_id, row.partition)
    end = machine.eras.end_of(machine.topics, place, wanted.last_fetched_epoch, row.end_offset)
    return end if 0 <= end.end_offset < wanted.fetch_offset else None


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
_FENCED_EPOCH: Final = FetchPartitionStatus(None, ErrorCode.FENCED_LEADER_EPOCH)
_OUT_OF_RANGE: Final = FetchPartitionStatus(None, ErrorCode.OFFSET_OUT_OF_RANGE)
_BEYOND_END: Final = FetchPartitionStatus(None, ErrorCode.OFFSET_OUT_OF_RANGE, unsure=True)
_CUT_OFF: Final = FetchPartitionStatus(None, ErrorCode.NOT_LEADER_OR_FOLLOWER)
NOT_SERVING: Final = FetchPartitionStatus(None, ErrorCode.NOT_LEADER_OR_FOLLOWER)
"""The agent cannot tell, and others may."""


def bytes_there(
    found: FetchPartitionStatus, place: CachedPartition, *, committed: bool, enough: int
) -> int:
    """How much the partition counts for min_bytes: at most what a fetch returns of it. No more rows
    are looked at than have `enough` bytes."""
    row = found.row
    if row is None:
        return 0
    offset = place.wanted.fetch_offset
    end = fetchable_end(row, committed=committed)
    if offset >= end:
        return 0
    limit = max(0, place.wanted.partition_max_bytes)
    return min(limit, row.bytes_between(offset, end, min(limit, enough)))


def watches_of(
    places: Sequence[CachedPartition],
    statuses: Sequence[FetchPartitionStatus],
    *,
    committed: bool,
    enough: int,
) -> tuple[list[tuple[TopicId, int, int, int]], int] | None:
    """What a delayed fetch is to watch, and the bytes that are there; None: something is to be told
    at once, or `enough` bytes are there."""
    watches = []
    bytes_found = 0
    for place, seen in zip(places, statuses, strict=True):
        row = seen.row
        if row is None or seen.at_once:
            return None
        there = bytes_there(seen, place, committed=committed, enough=enough - bytes_found)
        bytes_found += there
        if bytes_found >= enough:
            return None
        left = max(0, place.wanted.partition_max_bytes - there)
        watches.append((row.topic_id, row.partition, left, row.last_stable))
    return watches, bytes_found
