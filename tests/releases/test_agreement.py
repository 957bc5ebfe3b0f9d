"""Agents of different releases choose alike, though nobody tells them: who should hold what.

If they differed, shards and jobs would go to and fro between them while a cluster is upgraded.
"""

from broker.cluster.placement import Agent, Placement
from broker.groups import shards
from broker.jobs import claims
from broker.transactions import placement
from broker.transactions.expiry import has_share
from coordinator.commands.group_commands import GROUP_SHARDS
from coordinator.commands.job_commands import JobKind
from protocol.types import INCARNATION_NONE, Incarnation, TopicId

NODE_IDS = (0, 1, 2, 7)
TOPIC = TopicId(bytes(range(16)))


def test_shards_of_groups_are_preferred_as_ever() -> None:
    agents = [shards.LiveAgent(Incarnation(100 + node_id), node_id) for node_id in NODE_IDS]
    holders = [shards.preferred(shard, agents) for shard in range(GROUP_SHARDS)]
    assert (
        "".join(str(holder - 100) for holder in holders if holder is not None)
        == "7272212077721121212277017207720710072210702222201210272701072207"
    )


def test_all_jobs_are_claimed_by_the_agent_that_ever_claimed_them() -> None:
    agents = [claims.LiveAgent(Incarnation(100 + node_id), node_id) for node_id in NODE_IDS]
    free = dict.fromkeys(JobKind, INCARNATION_NONE)
    claiming = []
    for agent in agents:
        seen = claims.JobClaims(free_ms_min=0)
        for now_ms in (0, 10):
            seen.observe(me=agent.incarnation, agents=agents, holders=free, now_ms=now_ms)
        if seen.to_claim(wanted_now=False):
            claiming.append(agent.node_id)
    assert claiming == [2]


def test_transactional_ids_are_coordinated_as_ever() -> None:
    found = [placement.coordinator(f"id-{number}", NODE_IDS) for number in range(32)]
    assert "".join(map(str, found)) == "21110070000272072012702121077717"
    turns = [placement.turn("id-0", NODE_IDS, node_id) for node_id in NODE_IDS]
    assert turns == [2, 3, 0, 1]


def test_producers_of_partitions_are_looked_after_as_ever() -> None:
    owners = [
        next(
            node_id
            for node_id in NODE_IDS
            if has_share(TOPIC, partition, node_id=node_id, node_ids=NODE_IDS)
        )
        for partition in range(32)
    ]
    assert "".join(map(str, owners)) == "27121207102002072722710011770701"


def test_partitions_are_placed_as_ever() -> None:
    agents = [
        Agent(node_id=10 * at + rank, zone=zone, rank=rank, host="h", port=1)
        for at, zone in enumerate(("", "a", "b"))
        for rank in range(3)
    ]
    replicas = Placement(agents).replicas(TOPIC, range(8), zone="b")
    assert replicas == [
        (20, 0, 10),
        (21, 1, 11),
        (21, 1, 11),
        (22, 2, 12),
        (22, 2, 12),
        (22, 2, 12),
        (21, 1, 11),
        (22, 2, 12),
    ]
    anywhere = Placement(agents).replicas(TOPIC, range(8), zone="")
    assert [nodes[0] for nodes in anywhere] == [20, 21, 11, 2, 2, 22, 11, 22]
