"""The coordinator of a transactional id: rendezvous over the live agents."""

from hypothesis import given
from hypothesis import strategies as st

from broker.transactions.placement import coordinator, turn

NODES = st.sets(st.integers(0, 1_000), min_size=1, max_size=8)


def test_without_agents_there_is_no_coordinator():
    assert coordinator("id", []) is None


@given(st.text(max_size=20), NODES)
def test_the_order_in_which_agents_are_known_does_not_matter(transactional_id, nodes):
    ascending = sorted(nodes)
    assert coordinator(transactional_id, ascending) == coordinator(
        transactional_id, reversed(ascending)
    )


@given(st.text(max_size=20), NODES, st.integers(0, 1_000))
def test_only_the_ids_of_an_agent_that_goes_move(transactional_id, nodes, gone):
    before = coordinator(transactional_id, nodes)
    after = coordinator(transactional_id, nodes - {gone})
    assert after == before or before == gone


@given(st.text(max_size=20), NODES)
def test_each_agent_has_a_turn_of_its_own_and_the_coordinator_the_first(transactional_id, nodes):
    turns = {turn(transactional_id, nodes, node): node for node in nodes}
    assert sorted(turns) == list(range(len(nodes)))
    assert turns[0] == coordinator(transactional_id, nodes)


def test_who_is_not_among_the_agents_comes_last():
    assert turn("id", [1, 2, 3], -1) == 3


def test_ids_spread_over_the_agents():
    counts = dict.fromkeys((1, 2, 3), 0)
    for number in range(600):
        counts[coordinator(f"transactional-{number}", counts)] += 1
    assert min(counts.values()) > 120
