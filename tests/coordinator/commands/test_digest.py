"""The digest tells replicas apart that decided differently, and only those."""

from typing import get_args

import pytest

from coordinator.commands.digest import DIGEST_BYTES, DIGEST_ZERO, roll
from coordinator.commands.entries import (
    ChunkCommitted,
    Done,
    ItemResult,
    Opened,
    Outcome,
    Pinned,
    ProducerIdsAllocated,
    Rejected,
    Tick,
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
from tests.coordinator.machine.story import Story, plain, span
from txn.transactions import State

NONE = ErrorCode.NONE
OTHER_ID = TopicId(bytes(15) + b"\1")
MARKED = Marked(TopicId(bytes(16)), 0, 5)

DIFFERENT: list[tuple[Outcome, ...]] = [
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


def test_there_is_an_outcome_of_every_kind_here():
    kinds = {type(outcome) for outcomes in DIFFERENT for outcome in outcomes}
    assert kinds == {*get_args(Outcome)}


@pytest.mark.promise("P13")
def test_every_outcome_makes_its_own_digest():
    digests = [roll(DIGEST_ZERO, Position(1), outcomes) for outcomes in DIFFERENT]
    assert len({*digests, DIGEST_ZERO}) == len(DIFFERENT) + 1
    assert {len(digest) for digest in digests} == {DIGEST_BYTES}


def test_the_position_counts():
    assert roll(DIGEST_ZERO, Position(1), ()) != roll(DIGEST_ZERO, Position(2), ())


def test_the_digest_rolls():
    once = roll(DIGEST_ZERO, Position(1), (Done(),))
    assert roll(once, Position(2), (Done(),)) != roll(DIGEST_ZERO, Position(2), (Done(),))


def test_the_wording_of_a_refusal_does_not_count():
    wordings = [Rejected(ErrorCode.INVALID_REQUEST, text) for text in ("", "no", "not so")]
    digests = [roll(DIGEST_ZERO, Position(1), (wording,)) for wording in wordings]
    assert digests.count(digests[0]) == 3


@pytest.mark.parametrize(
    ("count", "pinned"),
    [
        (21, "967a85a4fadc01b7605ee76443970d1d"),
        (29, "ac56fb24e5219fdbb524c28dbe7642bc"),
        (41, "44d19c98a9bfa1f99fa95449165a4b03"),
        (59, "89662902f4643b3fd217a9505736cb0d"),
    ],
)
def test_the_digest_is_pinned(count: int, pinned: str):
    digest = DIGEST_ZERO
    for index, outcomes in enumerate(DIFFERENT[:count]):
        digest = roll(digest, Position(1 + index), outcomes)
    assert digest.hex() == pinned


def test_a_replica_that_reads_the_same_log_has_the_same_digest():
    story = Story()
    agent = story.open()
    topic_id = story.topic(agent)
    story.commit(agent, span(topic_id, plain()))
    assert story.replayed().digest() == story.machine.digest()


def test_queries_change_no_digest_and_no_outcome():
    story, other = Story(), Story()
    for each in (story, other):
        agent = each.open()
        topic_id = each.topic(agent, partitions=3)
        if each is other:
            each.partition(topic_id, 1)
            each.partition(topic_id, 2)
        each.commit(agent, span(topic_id, plain(), partition=1))
        each.do(agent, Tick())
    assert story.machine.digest() == other.machine.digest()
