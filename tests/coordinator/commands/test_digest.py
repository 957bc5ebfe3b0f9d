"""The digest tells replicas apart that decided differently, and only those."""

from coordinator.commands.digest import DIGEST_BYTES, DIGEST_ZERO, roll
from coordinator.commands.entries import Done, Rejected, Tick
from protocol.errors import ErrorCode
from protocol.types import Position
from tests.coordinator.golden.samples import OUTCOMES
from tests.coordinator.machine.story import Story, begun, plain, span


def test_every_outcome_makes_its_own_digest():
    digests = [roll(DIGEST_ZERO, Position(1), outcomes) for outcomes in OUTCOMES]
    assert len({*digests, DIGEST_ZERO}) == len(OUTCOMES) + 1
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


def test_a_replica_that_reads_the_same_log_has_the_same_digest():
    story, agent, topic_id = begun()
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
