"""No late EndTxn ends another transaction, in any order of things (KAFKA-17754).

The rule is in docs/design/transactions.md §7, why it holds in docs/design/transactions.md §8.
`frames` goes through all the worlds; here are the plans, and the errors that would be found: each
line of the rule is left out once, and one of the plans must notice.
"""

from dataclasses import replace

import pytest

from protocol.errors import ErrorCode
from tests.txn.frames import EPOCH, PRODUCER, Planned, Rules, explore, steps
from txn import transactions
from txn.transactions import Adds, State

COMMIT = Planned(adds=1, commit=True)
COMMIT_TWO = Planned(adds=2, commit=True)
ABORT = Planned(adds=1, commit=False)
PIPELINED = Planned(adds=1, commit=False, pipelined=True)
PIPELINED_TWO = Planned(adds=2, commit=False, pipelined=True)
TV2_COMMIT = Planned(adds=1, commit=True, tv2=True)
TV2_ABORT = Planned(adds=1, commit=False, tv2=True)

PLANS = {
    "two commits over three connections": Rules((COMMIT, COMMIT), left_behind=0),
    "two commits, an append left behind": Rules((COMMIT, COMMIT), connections=2),
    "three commits": Rules((COMMIT, COMMIT, COMMIT), connections=2),
    "commits of two adds": Rules((COMMIT_TWO, COMMIT_TWO), connections=2),
    "an abort, then a commit": Rules((ABORT, COMMIT), connections=2),
    "an abort, then a commit, over three connections": Rules((ABORT, COMMIT), left_behind=0),
    "a commit, an abort, a commit": Rules((COMMIT, ABORT, COMMIT), connections=2),
    "a pipelined abort, then a commit": Rules((PIPELINED, COMMIT), connections=2),
    "a pipelined abort of two adds": Rules((PIPELINED_TWO, COMMIT), connections=2),
    "a commit, a pipelined abort, a commit": Rules((COMMIT, PIPELINED, COMMIT), connections=2),
    "a pipelined abort, then a commit of two adds": Rules((PIPELINED, COMMIT_TWO), connections=2),
    "a client that is updated": Rules((COMMIT, TV2_COMMIT, TV2_ABORT), connections=2),
    "a client that is updated in an abort": Rules((ABORT, TV2_COMMIT), connections=2),
    "a client that is updated after a pipelined abort": Rules(
        (PIPELINED, TV2_ABORT), connections=2
    ),
    "a client that goes back": Rules((TV2_COMMIT, COMMIT), connections=2),
    "a client that goes back and forth": Rules((COMMIT, TV2_ABORT, COMMIT), connections=2),
}
RESENT = Rules((COMMIT, COMMIT), connections=2, resends=1, left_behind=0)
RESENT_TWO_ADDS = Rules((COMMIT, COMMIT_TWO), connections=2, resends=1, left_behind=0)


@pytest.mark.parametrize("rules", PLANS.values(), ids=PLANS)
def test_no_frame_ends_a_transaction_that_it_did_not_mean(rules):
    explored = explore(rules)
    assert not explored.wrong
    finished = [world for world in explored.worlds if world.client.transaction == len(rules.plan)]
    assert finished
    if not any(planned.pipelined for planned in rules.plan):
        assert not any(world.client.stopped for world in explored.worlds)


def test_a_late_pair_may_make_a_commit_look_refused_whose_answer_was_lost():
    """What is left: 48 to a repetition, after a late pair began and aborted an empty transaction.

    Nothing is torn: the commit was carried out. Kafka tells the same.
    """
    explored = explore(PLANS["a pipelined abort, then a commit"])
    stopped = [world for world in explored.worlds if world.client.stopped]
    assert stopped
    for world in stopped:
        path = explored.path(world)
        assert path.index("append of end 1 of connection 1 applied late") < path.index(
            "end 0 of connection 0 applied: NONE"
        )
        assert world.txn_metadata.state is State.COMPLETE_ABORT
        assert world.newest == 0


def test_the_situation_of_kafka_17754_is_among_the_worlds():
    """EndTxn of the first transaction is held on the first connection, the second is open."""
    explored = explore(Rules((COMMIT, COMMIT), connections=2, left_behind=0))
    held = [
        world
        for world in explored.worlds
        if world.txn_metadata.state is State.ONGOING
        and world.txn_metadata.instance == 2
        and world.newest == world.client.transaction == 1
        and any(frame.transaction == 0 and frame.end for frame in world.links[0].frames)
    ]
    doing = {world.links[0].doing and world.links[0].doing.proposal for world in held}
    assert None in doing, "held before it was judged"
    assert any(isinstance(proof, transactions.Proof) for proof in doing), "held as an append"


def test_librdkafkas_late_pair_of_add_and_abort_is_among_the_worlds():
    """It starts a transaction of its own, and it joins a live one (hole 1)."""
    explored = explore(Rules((PIPELINED, COMMIT), connections=2, left_behind=0))
    pair = {
        (world.txn_metadata.state, world.newest)
        for world in explored.worlds
        if world.client.transaction == 1
        and len(world.links) == 2
        and [frame.end for frame in world.links[0].frames] == [False, True]
    }
    assert (State.ONGOING, 1) in pair
    assert any(state is not State.ONGOING for state, _ in pair)


def test_the_second_of_two_late_frames_that_comes_after_the_challenge_is_the_rest_of_hole_2():
    """Only with socket.max.fails != 1 (librdkafka, not the default): documented, not prevented."""
    for rules in (RESENT, RESENT_TWO_ADDS):
        wrong = explore(rules).wrong
        assert wrong
        assert all(ended.documented for ended in wrong)


def test_on_one_connection_nobody_is_ever_challenged():
    for plan in ((COMMIT, COMMIT), (PIPELINED, COMMIT), (COMMIT_TWO, ABORT, COMMIT)):
        explored = explore(Rules(plan, connections=1, left_behind=0))
        assert not any(link.challenges for world in explored.worlds for link in world.links)


@pytest.mark.parametrize("plan", [(COMMIT, COMMIT), (ABORT, COMMIT), (PIPELINED, COMMIT)])
def test_from_everywhere_the_client_can_still_come_to_an_end(plan):
    rules = Rules(plan, connections=2)
    explored = explore(rules)
    before = {world: [] for world in explored.worlds}
    for world in explored.worlds:
        for _, after in steps(world, rules):
            before[after].append(world)
    stack = [
        world
        for world in explored.worlds
        if world.client.transaction == len(plan) or world.client.stopped
    ]
    reached = set(stack)
    while stack:
        for world in before[stack.pop()]:
            if world not in reached:
                reached.add(world)
                stack.append(world)
    assert reached == explored.worlds.keys()


def _holds_without(*parts):
    """The rule without some of its lines."""

    def holds(proof, txn_metadata):
        adds = txn_metadata.adds
        return (
            ("instance" in parts or proof.instance == txn_metadata.instance)
            and ("clock" in parts or adds.newest_but_by(proof.connection) <= proof.clock)
            and ("owner" in parts or proof.challenged or proof.connection == adds.owner)
        )

    return holds


def _caught(rules):
    return [ended for ended in explore(rules, enough=200).wrong if not ended.documented]


def test_without_the_owner_the_held_frame_ends_the_next_transaction(monkeypatch):
    monkeypatch.setattr(transactions, "proof_holds", _holds_without("owner"))
    caught = _caught(PLANS["two commits over three connections"])
    assert any(ended.frame.transaction == 0 and not ended.proof.challenged for ended in caught)


def test_without_the_clock_an_add_after_the_frame_was_read_is_overlooked(monkeypatch):
    monkeypatch.setattr(transactions, "proof_holds", _holds_without("clock"))
    explored = explore(RESENT_TWO_ADDS)
    assert any(not ended.documented and ended.proof.challenged for ended in explored.wrong)


def test_without_the_instance_an_append_left_behind_ends_the_next_transaction(monkeypatch):
    monkeypatch.setattr(transactions, "proof_holds", _holds_without("instance"))
    caught = _caught(Rules((COMMIT, COMMIT), connections=1))
    assert any("applied late" in ended.path[-1] for ended in caught)


def test_if_a_newcomer_became_the_owner_a_late_pair_would_abort_the_live_transaction(monkeypatch):
    def joined(self, by, at):
        others_at = self.others_at if by == self.newest_by else self.newest_at
        return Adds(by, by, at, others_at)

    monkeypatch.setattr(Adds, "joined", joined)
    caught = _caught(Rules((PIPELINED, COMMIT), connections=2, left_behind=0))
    assert any(ended.frame.transaction == 0 for ended in caught)


def test_if_the_first_owner_stayed_the_owner_a_late_pair_would_abort_the_live_transaction(
    monkeypatch,
):
    def joined(self, by, at):
        return Adds(self.owner, self.newest_by, self.newest_at, self.others_at)

    monkeypatch.setattr(Adds, "joined", joined)
    assert _caught(Rules((PIPELINED, COMMIT), connections=2, left_behind=0))


def test_a_token_for_another_transaction_must_not_count():
    def counts(instance, written):
        return bool(written)

    rules = Rules((COMMIT, COMMIT), connections=3, resends=0, left_behind=0, counts=counts)
    assert _caught(rules)


def test_frames_that_had_arrived_when_the_challenge_was_written_must_not_count():
    rules = replace(RESENT, in_buffer_counts=True)
    assert _caught(rules)


ON_TLS = {
    "two commits over three connections": Rules((COMMIT, COMMIT), left_behind=0, records=True),
    "two commits, an append left behind": Rules((COMMIT, COMMIT), connections=2, records=True),
    "a pipelined abort, then a commit": Rules((PIPELINED, COMMIT), connections=2, records=True),
}


@pytest.mark.parametrize("rules", ON_TLS.values(), ids=ON_TLS)
def test_on_tls_no_frame_ends_a_transaction_that_it_did_not_mean(rules):
    """Records are cut anywhere: a frame may have begun to arrive long before it can be read."""
    explored = explore(rules)
    assert not explored.wrong
    assert any(world.client.transaction == len(rules.plan) for world in explored.worlds)
    partial = [
        frame
        for world in explored.worlds
        for link in world.links
        for frame in link.frames
        if frame.challenges is not None and frame.whole is None
    ]
    assert partial


def test_on_tls_only_what_is_documented_remains():
    wrong = explore(replace(RESENT, records=True)).wrong
    assert wrong
    assert all(ended.documented for ended in wrong)


def test_a_record_that_began_to_arrive_before_the_challenge_was_written_must_not_count():
    assert _caught(replace(RESENT, records=True, whole_counts=True))


def test_an_add_left_behind_does_not_open_a_transaction_after_its_own_was_ended():
    late = [
        (world, doing)
        for world in explore(Rules((COMMIT, COMMIT), connections=1)).worlds
        for doing in world.behind
        if isinstance(doing.proposal, int) and doing.proposal <= world.txn_metadata.instance
        if world.txn_metadata.state is not State.ONGOING
    ]
    assert late
    for world, doing in late:
        outcome = transactions.add(
            world.txn_metadata,
            producer_id=PRODUCER,
            epoch=EPOCH,
            instance=doing.proposal,
            by=transactions.Connection(1, doing.connection),
            at=world.position + 1,
        )
        assert outcome is ErrorCode.CONCURRENT_TRANSACTIONS
