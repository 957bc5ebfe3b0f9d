"""Outcomes of one entry, no two alike: of every kind, and of each kind those that differ in one field."""

from coordinator.commands.entries import (
    ChunkCommitted,
    Done,
    ItemResult,
    Opened,
    Outcome,
    Pinned,
    ProducerIdsAllocated,
    Rejected,
    TopicCreated,
)
from coordinator.commands.group_commands import OffsetsCommitted, ShardsClaimed
from coordinator.commands.job_commands import (
    JobKind,
    JobsClaimed,
    LogsTrimmed,
    ObjectsDoomed,
    RowsMoved,
    Trimmed,
)
from coordinator.commands.table_commands import SchemaRegistered, SubjectDeleted
from coordinator.commands.transaction_commands import Marked, ProducerInitialized, TransactionEnded
from protocol.errors import ErrorCode
from protocol.types import Incarnation, Position, TopicId
from storage.formats.spans import ObjectId, ObjectKind
from txn.transactions import State

NONE = ErrorCode.NONE
OTHER_ID = TopicId(bytes(15) + b"\1")
MARKED = Marked(TopicId(bytes(16)), 0, 5)

OUTCOMES: list[tuple[Outcome, ...]] = [
    (),
    (Done(),),
    (Done(), Done()),
    (Rejected(ErrorCode.INVALID_REQUEST),),
    (Rejected(ErrorCode.UNKNOWN_SERVER_ERROR),),
    (Opened(Incarnation(1), 2, 3),),
    (Opened(Incarnation(1), 3, 2),),
    (TopicCreated(TopicId(bytes(16))),),
    (TopicCreated(OTHER_ID),),
    (ProducerIdsAllocated(0, 10),),
    (ProducerIdsAllocated(10, 0),),
    (ChunkCommitted(()),),
    (ChunkCommitted((ItemResult(NONE, 0, 0),)),),
    (ChunkCommitted((ItemResult(NONE, 1, 0),)),),
    (ChunkCommitted((ItemResult(NONE, 0, 1),)),),
    (ChunkCommitted((ItemResult(NONE, 0, 0, duplicate=True),)),),
    (ChunkCommitted((ItemResult(NONE, 0, 0, timestamp_max=5),)),),
    (ChunkCommitted((ItemResult(NONE, 0, 0), ItemResult(NONE, 0, 0))),),
    (ChunkCommitted((ItemResult(NONE, 0, 0),)), ChunkCommitted((ItemResult(NONE, 0, 0),))),
    (Pinned(Position(5), 6),),
    (Pinned(Position(6), 5),),
    (ShardsClaimed(()),),
    (ShardsClaimed((0,)),),
    (ShardsClaimed((1, 63)),),
    (OffsetsCommitted(()),),
    (OffsetsCommitted((NONE,)),),
    (OffsetsCommitted((NONE, ErrorCode.UNKNOWN_TOPIC_ID)),),
    (OffsetsCommitted((ErrorCode.UNKNOWN_TOPIC_ID, NONE)),),
    (OffsetsCommitted((NONE,)), OffsetsCommitted((NONE,))),
    (ProducerInitialized(5, 0),),
    (ProducerInitialized(0, 5),),
    (ProducerInitialized(5, 0, (MARKED,)),),
    (TransactionEnded(5, 0, State.COMPLETE_COMMIT),),
    (TransactionEnded(5, 0, State.COMPLETE_ABORT),),
    (TransactionEnded(5, 1, State.COMPLETE_COMMIT),),
    (TransactionEnded(6, 0, State.COMPLETE_COMMIT),),
    (TransactionEnded(5, 0, State.COMPLETE_COMMIT, (MARKED,)),),
    (TransactionEnded(5, 0, State.COMPLETE_COMMIT, (MARKED._replace(partition=1),)),),
    (TransactionEnded(5, 0, State.COMPLETE_COMMIT, (MARKED._replace(offset=6),)),),
    (TransactionEnded(5, 0, State.COMPLETE_COMMIT, (MARKED._replace(topic_id=OTHER_ID),)),),
    (TransactionEnded(5, 0, State.COMPLETE_COMMIT, (MARKED, MARKED)),),
    (JobsClaimed(()),),
    (JobsClaimed((JobKind.MERGE,)),),
    (JobsClaimed((JobKind.SPILL,)),),
    (LogsTrimmed(()),),
    (LogsTrimmed((Trimmed(NONE, 5),)),),
    (LogsTrimmed((Trimmed(NONE, 6),)),),
    (LogsTrimmed((Trimmed(ErrorCode.POLICY_VIOLATION, 5),)),),
    (LogsTrimmed((Trimmed(NONE, 5), Trimmed(NONE, 5))),),
    (RowsMoved(()),),
    (RowsMoved((NONE,)),),
    (RowsMoved((ErrorCode.INVALID_REQUEST,)),),
    (RowsMoved((NONE, NONE)),),
    (ObjectsDoomed(()),),
    (ObjectsDoomed((ObjectId(Incarnation(9), 5),)),),
    (ObjectsDoomed((ObjectId(Incarnation(9), 6),)),),
    (ObjectsDoomed((ObjectId(Incarnation(8), 5),)),),
    (ObjectsDoomed((ObjectId(Incarnation(9), 5, ObjectKind.SEGMENT),)),),
    (ObjectsDoomed((ObjectId(Incarnation(9), 5), ObjectId(Incarnation(9), 5))),),
    (SchemaRegistered(5, 1),),
    (SchemaRegistered(5, 2),),
    (SchemaRegistered(6, 1),),
    (SubjectDeleted(()),),
    (SubjectDeleted((1,)),),
    (SubjectDeleted((1, 2)),),
    (SubjectDeleted((1,)), SubjectDeleted((2,))),
]
