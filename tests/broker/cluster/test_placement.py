"""Placement: rendezvous over ranks, the client's zone first."""

from hypothesis import given
from hypothesis import strategies as st

from broker.cluster.placement import Agent, Placement, Placements, best_rank, zone_of_client
from coordinator.commands.entries import Listener
from coordinator.tables.incarnations import IncarnationRow
from protocol.types import Incarnation, TopicId

TOPIC = TopicId(bytes(range(16)))
PARTITIONS = range(300)


def agent(node_id: int, zone: str, rank: int) -> Agent:
    return Agent(node_id, zone, rank, f"host{node_id}", 9092)


def grid(zones: str, ranks: int) -> list[Agent]:
    return [
        agent(10 * index + rank, zone, rank)
        for index, zone in enumerate(zones)
        for rank in range(ranks)
    ]


def leaders(placement: Placement, zone: str) -> list[int]:
    return [nodes[0] for nodes in placement.replicas(TOPIC, PARTITIONS, zone=zone)]


def test_the_leader_is_in_the_clients_zone_and_each_zone_has_a_replica():
    placement = Placement(grid("abc", 4))
    for index, zone in enumerate("abc"):
        for nodes in placement.replicas(TOPIC, PARTITIONS, zone=zone):
            assert nodes[0] // 10 == index
            assert sorted(node // 10 for node in nodes) == [0, 1, 2]
    assert placement.replica_count == 3


def test_agents_of_equal_rank_serve_the_same_partitions_in_every_zone():
    placement = Placement(grid("ab", 5))
    in_a = [node % 10 for node in leaders(placement, "a")]
    in_b = [node % 10 for node in leaders(placement, "b")]
    assert in_a == in_b
    assert len(set(in_a)) == 5


def test_all_clients_see_the_same_replicas_whatever_their_zone():
    placement = Placement(grid("abc", 3))
    seen = [
        [sorted(nodes) for nodes in placement.replicas(TOPIC, PARTITIONS, zone=zone)]
        for zone in ("a", "b", "c", "elsewhere", "")
    ]
    assert all(each == seen[0] for each in seen)


def test_partitions_spread_over_ranks_and_for_an_unknown_zone_over_zones():
    placement = Placement(grid("abc", 4))
    chosen = leaders(placement, "")
    for node in range(12):
        assert 8 <= chosen.count(10 * (node // 4) + node % 4) <= 50


def test_a_client_without_a_zone_is_not_led_to_the_agents_without_one():
    placement = Placement([*grid("ab", 2), agent(90, "", 0)])
    assert len(set(leaders(placement, ""))) == 5
    assert leaders(placement, "") == leaders(placement, "elsewhere")


def test_when_an_agent_goes_only_its_partitions_move():
    before = leaders(Placement(grid("a", 5)), "a")
    after = leaders(Placement([each for each in grid("a", 5) if each.rank != 2]), "a")
    assert 2 in before
    for old, new in zip(before, after, strict=True):
        assert new == old if old != 2 else new != 2


def test_the_choice_does_not_depend_on_the_order_of_the_agents():
    agents = grid("abc", 4)
    one = Placement(agents).replicas(TOPIC, PARTITIONS, zone="b")
    other = Placement(agents[::-1]).replicas(TOPIC, PARTITIONS, zone="b")
    assert one == other


def test_without_agents_there_are_no_replicas():
    placement = Placement([])
    assert placement.replicas(TOPIC, range(2), zone="a") == [(), ()]
    assert placement.replica_count == 0


def test_a_page_of_partitions_is_placed_as_the_whole_topic_is():
    placement = Placement(grid("abc", 4))
    whole = placement.replicas(TOPIC, PARTITIONS, zone="")
    assert placement.replicas(TOPIC, range(100, 120), zone="") == whole[100:120]


@given(seed=st.integers(0, (1 << 64) - 1), ranks=st.sets(st.integers(0, 1000), min_size=1))
def test_the_winning_rank_wins_among_any_of_its_rivals(seed, ranks):
    winner = best_rank(seed, sorted(ranks))
    assert winner in ranks
    rivals = [rank for rank in sorted(ranks, reverse=True) if rank % 2 or rank == winner]
    assert best_rank(seed, rivals) == winner


def test_the_zone_is_read_from_the_spellings_of_other_systems():
    for text in (
        "app,ws_az=eu-1a",
        "warpstream_az=eu-1a",
        "my-app-001,zone=eu-1a",
        "a=b;zone=eu-1a;c=d",
        "automq_type=x&automq_az=eu-1a",
        "omb-client_az=eu-1a,client_az=eu-1a",
    ):
        assert zone_of_client(text) == "eu-1a"
    for text in (None, "", "app", "timezone=x", "zone", "rdkafka"):
        assert zone_of_client(text) == ""


@given(zone_count=st.integers(1, 9), zone=st.sampled_from(["", "a", "c", "elsewhere"]))
def test_the_nearest_agent_is_the_shown_replica_of_the_rack(zone_count, zone):
    zones = "abcdefghi"[:zone_count]
    placement = Placement(grid(zones, 2))
    shown = placement.replicas(TOPIC, PARTITIONS, zone=zone)
    for partition, replicas in zip(PARTITIONS[:20], shown, strict=False):
        by_zone = {zones[node // 10]: node for node in replicas}
        for rack in zones:
            found = placement.nearest(TOPIC, partition, rack=rack, zone=zone)
            assert found == by_zone.get(rack)


def test_the_nearest_agent_is_the_same_for_all_clients_and_their_leader_by_client_id():
    placement = Placement(grid("abc", 4))
    in_b = [placement.nearest(TOPIC, index, rack="b", zone="") for index in PARTITIONS]
    assert in_b == leaders(placement, "b")


def test_no_agent_is_nearest_to_a_rack_without_agents_or_to_none():
    placement = Placement([*grid("ab", 2), agent(90, "", 0)])
    for rack in ("", "elsewhere", "A"):
        assert placement.nearest(TOPIC, 0, rack=rack, zone="") is None


def row(number: int, *, zone: str = "", listener: str = "PLAINTEXT") -> IncarnationRow:
    return IncarnationRow(
        incarnation=Incarnation(number),
        session=number,
        node_id=number,
        node_name=f"n{number}",
        zone=zone,
        listeners=(Listener(listener, f"host{number}", 9092),),
        rank=number,
        software_version="0",
        feature_level_max=0,
        clock_ms=0,
    )


def test_the_placement_is_kept_until_the_agents_change():
    placements = Placements()
    rows = [row(1), row(2)]
    first = placements.current(rows, listener="PLAINTEXT")
    assert placements.current(list(rows), listener="PLAINTEXT") is first
    rows.append(row(3))
    assert len(placements.current(rows, listener="PLAINTEXT").agents) == 3


def test_agents_without_the_listener_are_not_named():
    placement = Placements().current([row(1), row(2, listener="OTHER")], listener="PLAINTEXT")
    assert [each.node_id for each in placement.agents] == [1]


def test_the_agent_that_is_going_down_is_named_only_when_it_is_alone():
    placements = Placements()
    both = placements.current([row(1), row(2)], listener="PLAINTEXT", without=1)
    assert [each.node_id for each in both.agents] == [2]
    alone = placements.current([row(1)], listener="PLAINTEXT", without=1)
    assert [each.node_id for each in alone.agents] == [1]
