"""A digest that rolls over outcomes: replicas at the same position have the same (P13).

Messages for people are left out, so that wording may change from one version to the next.
"""

from hashlib import blake2b
from itertools import chain
from struct import Struct, pack
from typing import Final, assert_never

from coordinator.commands.entries import (
    ChunkCommitted,
    Done,
    Opened,
    Outcome,
    Pinned,
    ProducerIdsAllocated,
    Rejected,
    TopicCreated,
)
from coordinator.commands.group_commands import OffsetsCommitted, ShardsClaimed
from coordinator.commands.job_commands import (
    JobOutcome,
    JobsClaimed,
    LogsTrimmed,
    ObjectsDoomed,
    RowsMoved,
)
from coordinator.commands.table_commands import SchemaRegistered, SubjectDeleted, TableOutcome
from coordinator.commands.transaction_commands import Marked, ProducerInitialized, TransactionEnded
from protocol.types import Position

DIGEST_BYTES = 16
DIGEST_ZERO: Final = bytes(DIGEST_BYTES)

_HEAD = Struct("<QI")
_RESULT_FIELDS = 5
_MARKED = Struct("<16sIq")


def roll(digest: bytes, position: Position, outcomes: tuple[Outcome, ...]) -> bytes:
    """The digest after an entry: of the one before, the position and the outcomes."""
    rolling = blake2b(digest, digest_size=DIGEST_BYTES)
    rolling.update(_HEAD.pack(position, len(outcomes)))
    for outcome in outcomes:
        rolling.update(_outcome_bytes(outcome))
    return rolling.digest()


def _outcome_bytes(outcome: Outcome) -> bytes:
    """Injective for each kind, and a tag for the kind."""
    match outcome:
        case ChunkCommitted():
            count = len(outcome.results)
            fields = chain.from_iterable(outcome.results)
            return pack(f"<BI{_RESULT_FIELDS * count}q", 1, count, *fields)
        case Done():
            return b"\x02"
        case Rejected():
            return pack("<Bh", 3, outcome.error)
        case Opened():
            return pack("<BQII", 4, outcome.incarnation, outcome.node_id, outcome.rank)
        case TopicCreated():
            return b"\x05" + outcome.topic_id
        case ProducerIdsAllocated():
            return pack("<Bqq", 6, outcome.first, outcome.count)
        case Pinned():
            return pack("<BQq", 7, outcome.position, outcome.expires_ms)
        case ShardsClaimed() | OffsetsCommitted():
            return _group_bytes(outcome)
        case ProducerInitialized() | TransactionEnded():
            return _transaction_bytes(outcome)
        case JobsClaimed() | LogsTrimmed() | RowsMoved() | ObjectsDoomed():
            return _job_bytes(outcome)
        case SchemaRegistered() | SubjectDeleted():
            return _table_bytes(outcome)
        case _:
            assert_never(outcome)


def _group_bytes(outcome: ShardsClaimed | OffsetsCommitted) -> bytes:
    match outcome:
        case ShardsClaimed():
            return pack(f"<BI{len(outcome.shards)}B", 8, len(outcome.shards), *outcome.shards)
        case OffsetsCommitted():
            return pack(f"<BI{len(outcome.errors)}h", 9, len(outcome.errors), *outcome.errors)
        case _:
            assert_never(outcome)


def _transaction_bytes(outcome: ProducerInitialized | TransactionEnded) -> bytes:
    match outcome:
        case ProducerInitialized(producer_id, epoch, marked):
            return pack("<Bqh", 10, producer_id, epoch) + _marked_bytes(marked)
        case TransactionEnded(producer_id, epoch, state, marked):
            return pack("<BqhB", 11, producer_id, epoch, state) + _marked_bytes(marked)
        case _:
            assert_never(outcome)


def _job_bytes(outcome: JobOutcome) -> bytes:
    match outcome:
        case JobsClaimed(jobs):
            return pack(f"<BI{len(jobs)}B", 12, len(jobs), *jobs)
        case LogsTrimmed(results):
            fields = chain.from_iterable(results)
            return pack(f"<BI{2 * len(results)}q", 13, len(results), *fields)
        case RowsMoved(errors):
            return pack(f"<BI{len(errors)}h", 14, len(errors), *errors)
        case ObjectsDoomed(objects):
            fields = chain.from_iterable(objects)
            return pack(f"<BI{3 * len(objects)}Q", 15, len(objects), *fields)
        case _:
            assert_never(outcome)


def _table_bytes(outcome: TableOutcome) -> bytes:
    match outcome:
        case SchemaRegistered(schema_id, version):
            return pack("<Bqq", 16, schema_id, version)
        case SubjectDeleted(versions):
            return pack(f"<BI{len(versions)}q", 17, len(versions), *versions)
        case _:
            assert_never(outcome)


def _marked_bytes(marked: tuple[Marked, ...]) -> bytes:
    return pack("<I", len(marked)) + b"".join([_MARKED.pack(*each) for each in marked])
