"""Who holds which shard: preferences, claims, and what is given to whom."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.groups.shards import (
    BUSY_MS_MAX,
    FREE_MS_MAX,
    MISPLACED_MS_MIN,
    LiveAgent,
    ShardBalance,
    preferred,
)
from coordinator.commands.group_commands import GROUP_SHARDS
from protocol.types import INCARNATION_NONE, Incarnation

ALL = tuple(range(GROUP_SHARDS))
A, B, C = (LiveAgent(Incarnation(number), number % 100) for number in (101, 202, 303))
NOBODY = (None,) * GROUP_SHARDS


def shares(*agents: LiveAgent) -> dict[int, tuple[int, ...]]:
    """Each agent's shards, as all of them prefer."""
    return {
        agent.incarnation: tuple(
            shard for shard in ALL if preferred(shard, agents) == agent.incarnation
        )
        for agent in agents
    }


def held(*agents: LiveAgent) -> tuple[Incarnation, ...]:
    """Every shard at its preferred agent."""
    return tuple(preferred(shard, agents) for shard in ALL)


def seen_by(me: LiveAgent, *agents: LiveAgent, holders=NOBODY, now_ms: int = 0) -> ShardBalance:
    balance = ShardBalance()
    balance.observe(me=me.incarnation, agents=agents, holders=holders, now_ms=now_ms)
    return balance


agent_sets = st.lists(st.integers(0, 1000), min_size=1, max_size=8, unique=True).map(
    lambda node_ids: tuple(LiveAgent(Incarnation(10_000 - i), i) for i in sorted(node_ids))
)


@given(agent_sets)
def test_every_shard_has_one_preferred_agent_whoever_looks_in_whatever_order(agents) -> None:
    for shard in ALL:
        assert preferred(shard, agents) == preferred(shard, agents[::-1])
        assert preferred(shard, agents) in {agent.incarnation for agent in agents}


@given(agent_sets, st.integers(1001, 2000))
def test_a_newcomer_takes_shards_and_moves_none_between_the_others(agents, node_id) -> None:
    newcomer = LiveAgent(Incarnation(20_000), node_id)
    for shard in ALL:
        after = preferred(shard, (*agents, newcomer))
        assert after in (preferred(shard, agents), newcomer.incarnation)


def test_three_agents_have_about_a_third_each() -> None:
    counts = Counter(held(A, B, C))
    assert set(counts) == {A.incarnation, B.incarnation, C.incarnation}
    assert min(counts.values()) >= GROUP_SHARDS // 6


def test_a_restarted_node_is_preferred_for_what_it_was() -> None:
    again = LiveAgent(Incarnation(999), B.node_id)
    assert shares(A, B, C)[B.incarnation] == shares(A, again, C)[again.incarnation]


def test_an_agent_alone_claims_everything_at_once() -> None:
    assert seen_by(A, A).to_claim() == ALL


def test_an_agent_claims_the_free_shards_that_prefer_it_and_no_others() -> None:
    assert seen_by(A, A, B, C).to_claim() == shares(A, B, C)[A.incarnation]
    assert seen_by(A, A, B, C, holders=held(A, B, C)).to_claim() == ()


def test_without_a_session_nothing_is_claimed_or_released() -> None:
    balance = ShardBalance()
    for now_ms in (0, 60_000):
        balance.observe(me=None, agents=(A, B), holders=NOBODY, now_ms=now_ms)
        assert balance.to_claim() == ()
        assert balance.to_release(now_ms, lambda _: False) == []


def test_a_dead_agents_shards_are_claimed_by_those_who_are_next() -> None:
    before = held(A, B, C)
    free = tuple(None if holder == C.incarnation else holder for holder in before)
    claims = seen_by(A, A, B, holders=free).to_claim() + seen_by(B, A, B, holders=free).to_claim()
    assert sorted(claims) == list(shares(A, B, C)[C.incarnation])


def test_a_newcomer_is_given_its_share_after_a_while_and_nobody_else_anything() -> None:
    holders = held(A, B)
    balance = seen_by(A, A, B, C, holders=holders)
    assert balance.to_release(MISPLACED_MS_MIN - 1, lambda _: False) == []
    (release,) = balance.to_release(MISPLACED_MS_MIN, lambda _: False)
    assert release.successor == C.incarnation
    mine = {shard for shard in ALL if holders[shard] == A.incarnation}
    assert set(release.shards) == mine & set(shares(A, B, C)[C.incarnation])
    assert release.shards


def test_a_newcomer_that_does_not_stay_is_given_nothing() -> None:
    balance = seen_by(A, A, C, holders=held(A))
    balance.observe(me=A.incarnation, agents=(A,), holders=held(A), now_ms=4_000)
    balance.observe(me=A.incarnation, agents=(A, C), holders=held(A), now_ms=5_000)
    assert balance.to_release(9_000, lambda _: False) == []
    assert balance.to_release(10_000, lambda _: False)


def test_a_shard_in_a_rebalance_is_kept_for_longer_but_not_for_ever() -> None:
    balance = seen_by(A, A, C, holders=held(A))
    busy = shares(A, C)[C.incarnation][0]
    (release,) = balance.to_release(MISPLACED_MS_MIN, lambda shard: shard == busy)
    assert busy not in release.shards
    assert balance.to_release(BUSY_MS_MAX - 1, lambda shard: True) == []
    (release,) = balance.to_release(BUSY_MS_MAX, lambda shard: True)
    assert busy in release.shards


def test_who_leaves_gives_each_shard_to_the_one_who_is_next_for_it() -> None:
    releases = seen_by(C, A, B, C, holders=held(A, B, C)).to_leave(shares(A, B, C)[C.incarnation])
    given_to = {shard: release.successor for release in releases for shard in release.shards}
    assert given_to == {shard: preferred(shard, (A, B)) for shard in shares(A, B, C)[C.incarnation]}


def test_the_last_agent_leaves_its_shards_free() -> None:
    (release,) = seen_by(A, A, holders=held(A)).to_leave(ALL)
    assert release == (INCARNATION_NONE, ALL)


def test_who_gave_up_shards_that_prefer_it_is_given_none_back_while_it_lives_on() -> None:
    """It is leaving, and still live: there may be requests that it has to answer."""
    balance = seen_by(A, A, C, holders=held(A, C))
    balance.released(C.incarnation, shares(A, C)[C.incarnation])
    for now_ms in (1_000, 60_000):
        balance.observe(me=A.incarnation, agents=(A, C), holders=held(A), now_ms=now_ms)
        assert balance.to_release(now_ms, lambda _: False) == []
    balance.observe(me=A.incarnation, agents=(A, C), holders=NOBODY, now_ms=61_000)
    assert balance.to_claim() == ALL


def test_who_gave_a_shard_to_its_preferred_agent_is_not_thought_to_leave() -> None:
    balance = seen_by(A, A, C, holders=held(C))
    balance.released(C.incarnation, shares(A, C)[A.incarnation])
    balance.observe(me=A.incarnation, agents=(A, C), holders=NOBODY, now_ms=1_000)
    assert balance.to_claim() == shares(A, C)[A.incarnation]


def test_who_claims_again_counts_again() -> None:
    balance = seen_by(A, A, C, holders=held(A, C))
    balance.released(C.incarnation, shares(A, C)[C.incarnation])
    balance.claimed(C.incarnation)
    balance.observe(me=A.incarnation, agents=(A, C), holders=held(A), now_ms=0)
    (release,) = balance.to_release(MISPLACED_MS_MIN, lambda _: False)
    assert release == (C.incarnation, shares(A, C)[C.incarnation])


def test_a_shard_that_its_preferred_agent_leaves_free_goes_to_the_next() -> None:
    balance = seen_by(A, A, C)
    balance.observe(me=A.incarnation, agents=(A, C), holders=NOBODY, now_ms=FREE_MS_MAX - 1)
    assert balance.to_claim() == shares(A, C)[A.incarnation]
    balance.observe(me=A.incarnation, agents=(A, C), holders=NOBODY, now_ms=FREE_MS_MAX)
    assert balance.to_claim() == ALL
    # And is not given to the one that did not want it.
    balance.observe(me=A.incarnation, agents=(A, C), holders=held(A), now_ms=20_000)
    assert balance.to_release(80_000, lambda _: False) == []


def test_time_without_a_session_does_not_count_as_time_that_others_left_a_shard_free() -> None:
    balance = seen_by(A, A, C)
    balance.observe(me=None, agents=(A, C), holders=NOBODY, now_ms=1_000)
    balance.observe(me=A.incarnation, agents=(A, C), holders=NOBODY, now_ms=FREE_MS_MAX)
    assert balance.to_claim() == shares(A, C)[A.incarnation]


@pytest.mark.parametrize("gone", [A, B, C])
@given(data=st.data())
def test_agents_that_see_the_same_never_claim_the_same_shard(gone, data) -> None:
    live = tuple(agent for agent in (A, B, C) if agent != gone)
    holders = tuple(
        data.draw(st.sampled_from([None, *(agent.incarnation for agent in live)])) for _ in ALL
    )
    claims = [
        shard for agent in live for shard in seen_by(agent, *live, holders=holders).to_claim()
    ]
    assert sorted(claims) == [shard for shard in ALL if holders[shard] is None]
