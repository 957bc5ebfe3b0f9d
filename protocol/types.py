"""The nouns that every package shares.

A topic is named by its id in everything that is stored; its name appears only on the wire and
in the machine's table of topics. Offsets, timestamps (ms since the epoch) and sizes are plain
`int`: a NewType there would cost a call per record batch.
"""

from typing import NamedTuple, NewType

TopicId = NewType("TopicId", bytes)
"""16 bytes, Kafka's topic id (KIP-516); never reused, also not for a topic of the same name."""

TOPIC_ID_ZERO = TopicId(bytes(16))
"""What the protocol sends for "no topic id"."""

Position = NewType("Position", int)
"""Place of an entry in the metadata log: the era in the bits from 48 up, the revision below."""

Incarnation = NewType("Incarnation", int)
"""One life of an agent between getting and losing its session: the position of its Open."""

POSITION_ZERO = Position(0)
INCARNATION_NONE = Incarnation(0)
"""What the entry that opens an incarnation carries, as its own position is not known yet."""

ERA = 1
"""The first; a cluster whose log was lost goes on in the next one (docs/design/log-and-sessions.md §3)."""

PRODUCER_ID_BITS = 40
"""Of a producer id, below the number of eras before the one that gave it."""

REVISION_BITS = 48
REVISION_MASK = (1 << REVISION_BITS) - 1
ERA_MAX = (1 << 15) - 1

Buffer = bytes | bytearray | memoryview


class TopicPartition(NamedTuple):
    topic_id: TopicId
    partition: int


def position(era: int, revision: int) -> Position:
    """The position of `revision` (etcd's mod revision, SQLite's row) in `era`."""
    assert 0 < era <= ERA_MAX
    assert 0 <= revision <= REVISION_MASK
    return Position(era << REVISION_BITS | revision)


def era_of(place: Position) -> int:
    return place >> REVISION_BITS


def revision_of(place: Position) -> int:
    return place & REVISION_MASK


def first_position(era: int) -> Position:
    """Of an era after the first: that of the snapshot with which it begins. Its entries come behind."""
    return position(era, 1)


def leader_epoch(place: Position) -> int:
    """Kafka's leader epoch of what was written in the place's era (KIP-101): it grows when the log
    has lost something, and clients then look where theirs diverges (KIP-320)."""
    return era_of(place) - 1


def leader_epoch_of_producer(producer_id: int) -> int:
    """The leader epoch of the era that gave the producer id: an era gives none that one before it could
    have given and forgotten."""
    return producer_id >> PRODUCER_ID_BITS


def first_producer_id(era: int) -> int:
    """The least that an era gives."""
    return era - 1 << PRODUCER_ID_BITS
