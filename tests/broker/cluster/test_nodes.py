"""An agent as several nodes: ids, who is shown them, and how the count gets round by the log."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.calls.software import UNKNOWN, Software
from broker.cluster.nodes import (
    STRIDE,
    agent_id_of,
    is_led_to_nodes,
    is_live,
    is_shown_nodes,
    node_counts,
    node_ids,
    node_of,
    with_node_counts,
)
from broker.cluster.placement import Placement, agents_of
from coordinator.commands.entries import LISTENERS_MAX, Listener, Open
from coordinator.tables.incarnations import Incarnations
from protocol.types import Incarnation, TopicId

TOPIC = TopicId(bytes(range(16)))
PLAINTEXT = Listener("PLAINTEXT", "h", 9092)
SSL = Listener("SSL", "h", 9093)


def open_agents(*agents: tuple[int, tuple[Listener, ...]]) -> Incarnations:
    """Live agents of these ids and listeners."""
    incarnations = Incarnations()
    for number, (node_id, listeners) in enumerate(agents, start=1):
        command = Open(number, f"n{number}", node_id, "z", listeners, "0", 0)
        assert incarnations.validate(command) is None
        incarnations.open(Incarnation(number), command, 0)
    return incarnations


def counted(count: int) -> tuple[Listener, ...]:
    return with_node_counts([PLAINTEXT], count, {})


# Who is shown nodes.


@pytest.mark.parametrize(
    "name", ["librdkafka", "confluent-kafka-python", "rdkafka-ruby", "node-rdkafka", "rust-rdkafka"]
)
def test_clients_on_librdkafka_are_shown_nodes_and_its_producers_are_led_to_them(name):
    assert is_shown_nodes(Software(name, "2.16.0"))
    assert is_led_to_nodes(Software(name, "2.16.0"), may_create=True)
    assert not is_led_to_nodes(Software(name, "2.16.0"), may_create=False)


def test_a_producer_that_asks_for_all_topics_is_led_to_where_it_was_led_before():
    assert is_led_to_nodes(Software("librdkafka", "2.16.0", produces=True), may_create=False)
    assert not is_led_to_nodes(Software("kgo", "1", produces=True), may_create=False)


@pytest.mark.parametrize("name", ["apache-kafka-java", "kgo", "sarama", "kafka-python"])
def test_clients_that_put_many_partitions_into_a_request_are_shown_agents(name):
    assert not is_shown_nodes(Software(name, "1"))
    assert not is_led_to_nodes(Software(name, "1"), may_create=True)


def test_a_client_that_does_not_say_what_it_is_is_shown_agents():
    assert not is_shown_nodes(UNKNOWN)


# Counts in the log.


def test_each_listener_has_the_count_that_was_told_of_it():
    agents = open_agents((7, with_node_counts([PLAINTEXT, SSL], 4, {"SSL": 1})))
    assert node_counts(agents, "PLAINTEXT") == {7: 4}
    assert node_counts(agents, "SSL") == {7: 1}


def test_beside_an_agent_that_tells_no_count_all_are_one_node():
    """It is of a release that knows nothing of nodes, and shows every client agents alone."""
    agents = open_agents((7, counted(4)), (8, (PLAINTEXT,)))
    assert node_counts(agents, "PLAINTEXT") == {7: 1, 8: 1}
    assert not is_live(7 + STRIDE, agents)


def test_an_agent_without_the_listener_changes_nothing_for_its_clients():
    agents = open_agents((7, counted(4)), (8, (SSL,)))
    assert node_counts(agents, "PLAINTEXT") == {7: 4, 8: 1}
    assert [each.node_id for each in agents_of(agents, "PLAINTEXT")] == [7]


def test_what_tells_the_count_is_no_listener_of_a_client():
    """An older release looks for the names of its own listeners alone."""
    listeners = counted(4)
    assert listeners[0] == PLAINTEXT
    assert [each for each in listeners if each.name == "PLAINTEXT"] == [PLAINTEXT]
    assert len(agents_of(open_agents((7, listeners)), "PLAINTEXT")) == 1


def test_an_agent_with_so_many_listeners_that_an_open_has_no_room_tells_no_counts():
    listeners = [Listener(f"L{number}", "h", 1) for number in range(LISTENERS_MAX)]
    assert with_node_counts(listeners, 8, {}) == tuple(listeners)
    assert len(with_node_counts(listeners[:32], 8, {})) == LISTENERS_MAX


# Ids.


def test_the_first_node_of_an_agent_has_its_id():
    assert list(node_ids(7, 3)) == [7, 1_000_007, 2_000_007]


@given(
    agents=st.dictionaries(
        st.one_of(
            st.integers(0, 9),
            st.sampled_from([STRIDE, STRIDE + 3, 2 * STRIDE + 3, STRIDE + 4, (1 << 31) - 2]),
        ),
        st.integers(1, 64),
        min_size=1,
        max_size=12,
    )
)
def test_no_two_nodes_have_the_same_id_whatever_ids_agents_were_given(agents):
    incarnations = open_agents(*[(each, counted(count)) for each, count in agents.items()])
    placement = Placement(agents_of(incarnations, "PLAINTEXT"))
    shown = [each.node_id for each in placement.nodes(spread=True)]
    assert len(set(shown)) == len(shown)
    assert set(agents) <= set(shown)
    assert all(0 <= each < 1 << 31 for each in shown)
    for each in shown:
        assert agent_id_of(each, incarnations) == next(
            agent.node_id
            for agent in placement.agents
            if each in node_ids(agent.node_id, agent.node_count)
        )


def test_a_node_that_would_have_another_agents_id_is_not_there_nor_those_behind_it():
    incarnations = open_agents((3, counted(8)), (2 * STRIDE + 3, counted(8)))
    placement = Placement(agents_of(incarnations, "PLAINTEXT"))
    assert [(each.node_id, each.node_count) for each in placement.agents] == [
        (3, 2),
        (2 * STRIDE + 3, 1),
    ]


def test_a_node_that_is_not_shown_is_nobodys():
    incarnations = open_agents((3, counted(4)))
    assert [number for number in range(9) if is_live(3 + number * STRIDE, incarnations)] == [
        *range(4)
    ]
    assert not is_live(STRIDE + 4, incarnations)


# Which node a partition has.


def grid(*counts: int) -> Placement:
    agents = [(number, counted(count)) for number, count in enumerate(counts)]
    return Placement(agents_of(open_agents(*agents), "PLAINTEXT"))


@pytest.mark.parametrize("count", [1, 2, 4, 8, 16])
def test_the_partitions_of_a_topic_spread_evenly_over_the_nodes_of_a_lone_agent(count):
    shown = grid(count).replicas(TOPIC, range(64), zone="", spread=True)
    assert set(Counter(shown).values()) == {64 // count}


def test_single_partitions_of_many_topics_spread_over_nodes():
    placement = grid(4)
    shown = [
        placement.replicas(TopicId(bytes([*range(15), number])), [0], zone="", spread=True)[0]
        for number in range(256)
    ]
    assert set(Counter(shown).values()) == {64}


def test_a_partition_has_a_node_of_the_agent_that_is_shown_without_nodes():
    placement = grid(4, 1, 8)
    agents = placement.replicas(TOPIC, range(300), zone="")
    nodes = placement.replicas(TOPIC, range(300), zone="", spread=True)
    counts = {each.node_id: each.node_count for each in placement.agents}
    for (agent,), (node,) in zip(agents, nodes, strict=True):
        assert node in node_ids(agent, counts[agent])
    assert {node for (node,) in nodes} == {each.node_id for each in placement.nodes(spread=True)}


def test_half_of_the_partitions_stay_where_they_are_when_the_count_is_doubled():
    before = [node_of(7, 4, TOPIC, partition) for partition in range(64)]
    after = [node_of(7, 8, TOPIC, partition) for partition in range(64)]
    assert sum(old == new for old, new in zip(before, after, strict=True)) == 32


def test_every_node_is_at_the_address_of_its_agent_and_the_first_in_its_zone():
    """More racks are more than librdkafka 2.16 has memory for: it could read no metadata of three agents."""
    nodes = grid(3).nodes(spread=True)
    assert [each.node_id for each in nodes] == [0, STRIDE, 2 * STRIDE]
    assert {(each.host, each.port) for each in nodes} == {("h", 9092)}
    assert [each.zone for each in nodes] == ["z", "", ""]
