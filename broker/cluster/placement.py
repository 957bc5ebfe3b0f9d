"""Which agents a client is told to use for a partition. Pure.

The rules are in docs/design/chunks-and-segments.md §6.
Any agent serves any partition, so placement is advice: it makes each zone fetch a chunk about
once. In every zone the agent of one *rank* is chosen by rendezvous hashing of the partition over
the ranks that are taken there, so agents of equal rank serve the same partitions in every zone.
The choices of all zones are shown as the partition's replicas, the client's own zone first: its
leader. One zone, one replica; nothing is ever copied.

A consumer tells its zone only when it fetches (`client.rack`, KIP-392): then `nearest` is where it
is sent on to. That is one of the replicas that Metadata shows to the same client, since clients
follow no other.

Rendezvous: when an agent comes or goes, only the partitions that it gets or had move.

Some clients are shown an agent as several nodes (`broker.cluster.nodes`); the choice among agents
is the same for them.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from broker.cluster.nodes import node_counts, node_ids, node_of
from coordinator.tables.incarnations import IncarnationRow
from protocol.types import Incarnation, Position, TopicId, leader_epoch

REPLICAS_MAX: Final = 5
"""More zones than this are not shown for one partition."""

_ZONE_KEYS: Final = ("zone", "az", "frazil_az", "ws_az", "warpstream_az", "automq_az", "client_az")
"""Spellings of the zone in `client.id` that are about, in pairs like `app,ws_az=eu-1a`."""

_MASK: Final = (1 << 64) - 1


def zone_of_client(client_id: str | None) -> str:
    """The zone that a client id names, "" when none: a Metadata request carries no client.rack."""
    if client_id is None or "=" not in client_id:
        return ""
    for pair in client_id.replace(";", ",").replace("&", ",").split(","):
        key, _, value = pair.partition("=")
        if key.strip().lower() in _ZONE_KEYS:
            return value.strip()
    return ""


class Agent(NamedTuple):
    """A live agent, as the clients of one listener reach it."""

    node_id: int
    zone: str
    rank: int
    host: str
    port: int
    node_count: int = 1
    """As how many nodes it is shown (`broker.cluster.nodes`)."""


def agents_of(rows: Iterable[IncarnationRow], listener: str) -> tuple[Agent, ...]:
    """The live agents that have the listener, sorted by node id."""
    rows = list(rows)
    counts = node_counts(rows, listener)
    return tuple(
        sorted(
            Agent(
                row.node_id,
                row.zone,
                row.rank,
                address.host,
                address.port,
                counts[row.node_id],
            )
            for row in rows
            for address in row.listeners
            if address.name == listener
        )
    )


class Placement:
    """The choice among a fixed set of agents; equal agents give equal answers."""

    def __init__(self, agents: Sequence[Agent], *, leader_epoch: int = 0) -> None:
        self.agents = tuple(agents)
        self.leader_epoch = leader_epoch
        """Of every partition."""
        by_zone: dict[str, dict[int, int]] = {}
        for agent in sorted(self.agents, key=lambda agent: (agent.zone, agent.rank)):
            by_zone.setdefault(agent.zone, {}).setdefault(agent.rank, agent.node_id)
        self._node_counts = {agent.node_id: agent.node_count for agent in self.agents}
        self._zones = by_zone
        """Zone to rank to node id, both in order."""
        self.kept: dict[tuple[object, ...], bytes] = {}
        """What was encoded from it (`broker.cluster.topic_bytes`); lives as long as it does."""
        self.kept_bytes = 0

    def nodes(self, *, spread: bool) -> list[Agent]:
        """What is shown as brokers: agents, or each node of them.

        Only the first node of an agent has its zone as rack: consumers are led to no other, and librdkafka
        (2.16) takes too little memory for the short racks of many brokers, and reads nothing at all then.
        """
        if not spread:
            return list(self.agents)
        return [
            agent._replace(node_id=node_id, zone=agent.zone if node_id == agent.node_id else "")
            for agent in self.agents
            for node_id in node_ids(agent.node_id, agent.node_count)
        ]

    @property
    def replica_count(self) -> int:
        """Length of every list of `replicas`; 0 when there is no agent."""
        return min(len(self._zones), REPLICAS_MAX)

    def has_zone(self, zone: str) -> bool:
        """Whether a client's zone has agents; "" is no zone of a client, though of agents."""
        return zone != "" and zone in self._zones

    def replicas(
        self, topic_id: TopicId, partitions: Sequence[int], *, zone: str, spread: bool = False
    ) -> list[tuple[int, ...]]:
        """Node ids for each partition, the leader first. Empty tuples when there is no agent.

        A zone without agents counts as unknown: then partitions spread over all zones. `spread`:
        over the nodes of their agents, too.
        """
        base = int.from_bytes(blake2b(topic_id, digest_size=8).digest())
        zones = list(self._zones)
        start = zones.index(zone) if self.has_zone(zone) else None
        chosen = []
        for partition in partitions:
            seed = _mixed(base + partition)
            first = start if start is not None or not zones else seed % len(zones)
            shown = self._of_partition(seed, zones, first or 0)
            if spread:
                shown = self._spread(shown, topic_id, partition)
            chosen.append(shown)
        return chosen

    def nearest(self, topic_id: TopicId, partition: int, *, rack: str, zone: str) -> int | None:
        """Node id of the replica in the zone `rack`; None when none is shown there.

        `zone`: what the client's id names, as for `replicas`.
        """
        if not self.has_zone(rack):
            return None
        there = self._zones[rack].values()
        (shown,) = self.replicas(topic_id, (partition,), zone=zone)
        return next((node_id for node_id in shown if node_id in there), None)

    def _spread(
        self, agent_ids: tuple[int, ...], topic_id: TopicId, partition: int
    ) -> tuple[int, ...]:
        counts = self._node_counts
        return tuple([node_of(each, counts[each], topic_id, partition) for each in agent_ids])

    def _of_partition(self, seed: int, zones: list[str], first: int) -> tuple[int, ...]:
        best: dict[tuple[int, ...], int] = {}
        node_ids = []
        for index in range(self.replica_count):
            ranks = self._zones[zones[(first + index) % len(zones)]]
            key = tuple(ranks)
            if key not in best:
                best[key] = best_rank(seed, key)
            node_ids.append(ranks[best[key]])
        return tuple(node_ids)


def best_rank(seed: int, ranks: Sequence[int]) -> int:
    """Rendezvous hashing: the rank that wins the partition of this seed."""
    assert ranks
    if len(ranks) == 1:
        return ranks[0]
    return max((_mixed(seed ^ (rank + 1) * 0x9E3779B97F4A7C15 & _MASK), rank) for rank in ranks)[1]


def _mixed(number: int) -> int:
    """Spread a number over 64 bits (the finalizer of splitmix64)."""
    number &= _MASK
    number = ((number ^ number >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ number >> 27) * 0x94D049BB133111EB) & _MASK
    return number ^ number >> 31


class Placements:
    """The placement of each listener, kept until the agents change."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int | None], tuple[tuple[Incarnation, ...], Placement]] = {}

    def current(
        self, rows: Iterable[IncarnationRow], *, listener: str, without: int | None = None
    ) -> Placement:
        """The placement over the live agents. `without`: a node id that is going down, which
        is not named while there are others."""
        rows = list(rows)
        members = tuple(row.incarnation for row in rows)
        key = (listener, without)
        known = self._known.get(key)
        if known is not None and known[0] == members:
            return known[1]
        agents = agents_of(rows, listener)
        others = [agent for agent in agents if agent.node_id != without]
        # Agents of an era before are closed, so any of those that live is of this one.
        epoch = max((leader_epoch(Position(each)) for each in members), default=0)
        placement = Placement(others or agents, leader_epoch=epoch)
        self._known[key] = (members, placement)
        return placement


class LiveAgent(NamedTuple):
    """An agent that may claim something."""

    incarnation: Incarnation
    node_id: int


def live_agents(rows: Iterable[IncarnationRow]) -> tuple[LiveAgent, ...]:
    return tuple(LiveAgent(row.incarnation, row.node_id) for row in rows)


def preferred_agent(seed: int, agents: Sequence[LiveAgent]) -> Incarnation | None:
    """The agent that wins the rendezvous over node ids; None when there are no agents."""
    if not agents:
        return None
    node_id = best_rank(seed, [agent.node_id for agent in agents])
    return next(agent.incarnation for agent in agents if agent.node_id == node_id)
