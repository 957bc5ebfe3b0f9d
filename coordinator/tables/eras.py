"""The table of eras: where each one after the first began, and where every partition ended then (KIP-101).

An era is one life of the log's order. It ends when the log is lost, and what was archived of it begins the
next one (docs/design/log-and-sessions.md §3). Kafka's leader epoch is the era less one: records keep the epoch
of the era that wrote them, and a client that has read more than is left learns by this table where its
epoch ended (KIP-320).

Invariants: eras grow; a partition ends in an era where it had ended before, or later.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from coordinator.commands.layout import UInt63
from coordinator.tables.topics import Topics
from protocol.types import Position, TopicId, leader_epoch

UNKNOWN_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class EraRow:
    """An era that began behind another one."""

    begun: Position
    ends: Mapping[tuple[TopicId, UInt63], UInt63]
    """End offsets there; of partitions that had got records."""
    stable_ends: Mapping[tuple[TopicId, UInt63], UInt63]
    """Last stable offsets there, of partitions in which transactions were open: those were aborted."""

    def stable_end_of(self, place: tuple[TopicId, int]) -> int:
        """Where what was stable of the partition ended; 0 when it had no records."""
        return self.stable_ends.get(place, self.ends.get(place, 0))


class EpochEnd(NamedTuple):
    """Where an epoch of a partition ended."""

    leader_epoch: int
    """The one asked for, or the newest before it; UNKNOWN_EPOCH: there was none."""
    end_offset: int
    """-1 with UNKNOWN_EPOCH."""


_NO_END: Final = EpochEnd(UNKNOWN_EPOCH, -1)


class Eras:
    """Eras after the first. `begin` is for a recovery alone."""

    def __init__(self) -> None:
        self.rows: tuple[EraRow, ...] = ()
        """Oldest first."""
        self.leader_epoch = 0
        """Of every partition, now: clients take a leader whose epoch is not below the one that they know."""

    def end_of(self, topics: Topics, place: tuple[TopicId, int], epoch: int, end: int) -> EpochEnd:
        """Where `epoch` of a partition that exists ended, which ends at `end` now.

        Of an epoch that nobody has begun, or in which the partition was not there yet, nothing is known.
        """
        if not 0 <= epoch <= self.leader_epoch:
            return _NO_END
        topic = topics.by_id(place[0])
        following = next((row for row in self.rows if leader_epoch(row.begun) > epoch), None)
        if following is None:
            return EpochEnd(epoch, end)
        if topic is None or topic.created > following.begun:
            return _NO_END
        return EpochEnd(epoch, following.ends.get(place, 0))

    def begin(self, row: EraRow) -> None:
        """That one begins."""
        assert leader_epoch(row.begun) > self.leader_epoch
        self.set((*self.rows, row))

    def set(self, rows: tuple[EraRow, ...]) -> None:
        """Have these, out of a snapshot."""
        self.rows = rows
        self.leader_epoch = leader_epoch(rows[-1].begun) if rows else 0
