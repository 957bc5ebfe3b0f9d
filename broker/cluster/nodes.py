"""An agent as several brokers: which nodes stand for it, and who is shown them. Pure.

librdkafka puts one partition into a Produce request and, when it is idempotent, has five requests
open per *node id*, not per address. Over P partitions of one node each record waits for P / 5 round
trips. An agent keeps nothing for a connection that it does not keep for all, so it may as well be
several nodes: same host, port and rack, ids of their own, and a connection to each
(docs/design/chunks-and-segments.md §6).

Who gains by that is led to nodes, and nobody else: *producers* of librdkafka. Other clients put all
partitions of a node into one request, so more nodes mean smaller requests; consumers would fetch
once per node; and what tools ask of every broker (groups, transactions, log dirs) they add up,
while an agent cannot tell by which of its nodes it is asked. So other clients are shown agents.
librdkafka's consumers and admin clients are shown the nodes, and led to agents.

Invariants: the first node has the agent's id, so that whoever knows the agent alone knows one of
its nodes; ids follow from the agent's id, so they are as stable; no two live nodes have the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from broker.calls.software import Software
from coordinator.commands.entries import LISTENERS_MAX, Listener
from coordinator.tables.incarnations import IncarnationRow, Incarnations
from protocol.types import TopicId

STRIDE: Final = 1_000_000
"""Between the ids of an agent's nodes: node 2 of agent 7 is 2000007."""
_SEPARATOR: Final = "/"
"""Between a listener and the count that is told of it; not in any name."""

_LIBRDKAFKA: Final = ("rdkafka", "confluent-kafka")
"""In the names by which librdkafka and what is built on it go (KIP-511): librdkafka, node-rdkafka,
rdkafka-ruby, confluent-kafka-python, …"""


def is_shown_nodes(software: Software) -> bool:
    """Whether a client is told of the nodes of agents: all that is built on librdkafka.

    Whatever it asks: it gives up connections to brokers that a later answer does not name, and then
    knows leaders that it cannot find.
    """
    return any(each in software.name.lower() for each in _LIBRDKAFKA)


def is_led_to_nodes(software: Software, *, may_create: bool) -> bool:
    """Whether the partitions that a client asks for are spread over nodes: a producer of librdkafka.

    `may_create`: the request may create topics. For topics that they write to, its producers ask so,
    and by default its consumers do not. For all topics neither does: then the connection tells.
    """
    return (may_create or software.produces) and is_shown_nodes(software)


# In the log. The addresses of an agent are rows with a name, and names that no client comes in by are
# passed over. So a count is told by one more of them, "PLAINTEXT/8": every agent knows it from the
# Open, releases that know nothing of nodes read it as before, and it needs no feature level.


def with_node_counts(
    listeners: Sequence[Listener], everywhere: int, single: Mapping[str, int]
) -> tuple[Listener, ...]:
    """The addresses of an agent, and after them how many nodes are shown at each: "PLAINTEXT/8".

    `everywhere`: how many, but for those that are named in `single`.
    An agent of very many listeners tells none: an Open has no room for more than LISTENERS_MAX rows.
    """
    told = [
        Listener(f"{name}{_SEPARATOR}{single.get(name, everywhere)}", host, port)
        for name, host, port in listeners
    ]
    if len(listeners) + len(told) > LISTENERS_MAX:
        return tuple(listeners)
    return (*listeners, *told)


def node_counts(rows: Iterable[IncarnationRow], listener: str) -> dict[int, int]:
    """How many nodes each agent is to clients of a listener, by the agent's id.

    `rows`: all live agents. While one that has the listener tells no count, all are one node: it is
    of a release that would show other clients that, and they had to change with whom they ask.
    """
    told = {row.node_id: _told(row, listener) for row in rows}
    if 0 in told.values():
        return dict.fromkeys(told, 1)
    return {agent_id: _fitting(agent_id, count, told) for agent_id, count in told.items()}


def _told(row: IncarnationRow, listener: str) -> int:
    """The count that an agent tells of a listener; 0 when it has the listener and tells none, and 1
    when it has none."""
    names = [address.name for address in row.listeners]
    prefix = listener + _SEPARATOR
    counts = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
    return int(counts[0]) if counts else int(listener not in names)


def _fitting(agent_id: int, count: int, agent_ids: Iterable[int]) -> int:
    """So many nodes that no agent has the id of one. An agent that was given an id as great as those
    of nodes keeps it, and is one node; a node that would have the same is not there."""
    if agent_id >= STRIDE:
        return 1
    taken = {each // STRIDE for each in agent_ids if each % STRIDE == agent_id}
    return next((number for number in range(1, count) if number in taken), count)


def node_ids(agent_id: int, count: int) -> range:
    """The ids of an agent's nodes, its own first."""
    return range(agent_id, agent_id + count * STRIDE, STRIDE)


def node_of(agent_id: int, count: int, topic_id: TopicId, partition: int) -> int:
    """Which node of its agent a partition has.

    Neighbours have different ones, so that the partitions of one topic spread evenly.
    """
    return agent_id + (topic_id[-1] + partition) % count * STRIDE


def agent_id_of(node_id: int, incarnations: Incarnations) -> int:
    """The id of the live agent that is shown as this node; `node_id` itself when there is none."""
    row = incarnations.by_node_id(node_id % STRIDE)
    if node_id < STRIDE or row is None:
        return node_id
    names = [address.name for address in row.listeners]
    count = max([node_counts(incarnations, name)[row.node_id] for name in names], default=1)
    return row.node_id if node_id in node_ids(row.node_id, count) else node_id


def is_live(node_id: int, incarnations: Incarnations) -> bool:
    """Whether a live agent has the id, or is shown as a node that has."""
    return incarnations.by_node_id(agent_id_of(node_id, incarnations)) is not None
