"""Balances shards of groups over the agents, and decides what one agent claims and releases now. Pure.

The agent that is *preferred* for a shard wins it by rendezvous hashing over the node ids of the
live agents. It claims the shard when that is free. Who holds a shard that another agent is
preferred for gives it to that one after a while: so whoever comes gets a share, and after a
rolling restart everything is where it was.

Nobody says in the log that it is leaving, but it shows: who gives up a shard that it is preferred
for is leaving, and who leaves one free for long cannot coordinate. Such an agent is *passive*: it
counts no more until it claims something. Agents may differ about that for a while; it only
matters for where a shard lies, since apply decides who holds it.
"""

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from broker.cluster.placement import LiveAgent, preferred_agent
from coordinator.commands.group_commands import GROUP_SHARDS
from protocol.types import INCARNATION_NONE, Incarnation

MISPLACED_MS_MIN: Final = 5_000
"""An agent that comes back at once, or comes only for a moment, moves nothing."""
BUSY_MS_MAX: Final = 30_000
"""A shard with a rebalance under way is given up later, but not later than this."""
FREE_MS_MAX: Final = 10_000
"""Longer than a dead agent's session outlives it: then somebody else takes a free shard."""

_SEEDS: Final = tuple(
    int.from_bytes(blake2b(b"group shard %d" % shard, digest_size=8).digest())
    for shard in range(GROUP_SHARDS)
)


class Release(NamedTuple):
    successor: Incarnation
    shards: tuple[int, ...]


def preferred(shard: int, agents: Sequence[LiveAgent]) -> Incarnation | None:
    """The agent that should hold the shard; None when there are no agents."""
    return preferred_agent(_SEEDS[shard], agents)


class ShardBalance:
    """What one agent has seen of the shards, and what follows. Node ids of live agents differ."""

    def __init__(self) -> None:
        self._me: Incarnation | None = None
        self._agents: tuple[LiveAgent, ...] = ()
        self._preferred: tuple[Incarnation | None, ...] = (None,) * GROUP_SHARDS
        self._passive: set[Incarnation] = set()
        self._free_since: dict[int, int] = {}
        self._misplaced_since: dict[int, tuple[Incarnation, int]] = {}
        """Shards of this agent that another one is preferred for, and since when."""

    # What happens.

    def released(self, writer: Incarnation, shards: Iterable[int]) -> None:
        """`writer` gave up shards; called after `observe`, with what was live at that time."""
        if writer != self._me and any(self._preferred[shard] == writer for shard in shards):
            self._passive.add(writer)
            self._prefer()

    def claimed(self, writer: Incarnation) -> None:
        """`writer` proposed a claim, whatever came of it."""
        if writer in self._passive:
            self._passive.discard(writer)
            self._prefer()

    def observe(
        self,
        *,
        me: Incarnation | None,
        agents: Iterable[LiveAgent],
        holders: Sequence[Incarnation | None],
        now_ms: int,
    ) -> None:
        """See who is live and who holds what. `me`: None while this agent may not act."""
        agents = tuple(agents)
        if agents != self._agents or me != self._me:
            self._agents = agents
            self._me = me
            self._passive &= {agent.incarnation for agent in agents} - {me}
            self._prefer()
        if me is None:
            # Cut off, it knows of nothing that happens meanwhile.
            self._free_since.clear()
            self._misplaced_since.clear()
            return
        self._see_free(holders, now_ms)
        self._see_misplaced(holders, now_ms)

    def _prefer(self) -> None:
        active = [agent for agent in self._agents if agent.incarnation not in self._passive]
        self._preferred = tuple(preferred(shard, active) for shard in range(GROUP_SHARDS))

    def _see_free(self, holders: Sequence[Incarnation | None], now_ms: int) -> None:
        for shard, holder in enumerate(holders):
            if holder is not None:
                self._free_since.pop(shard, None)
            elif now_ms - self._free_since.setdefault(shard, now_ms) >= FREE_MS_MAX:
                self._free_since[shard] = now_ms
                idle = self._preferred[shard]
                if idle is not None and idle != self._me:
                    self._passive.add(idle)
                    self._prefer()

    def _see_misplaced(self, holders: Sequence[Incarnation | None], now_ms: int) -> None:
        for shard, holder in enumerate(holders):
            wanted = self._preferred[shard]
            if holder != self._me or wanted is None or wanted == self._me:
                self._misplaced_since.pop(shard, None)
            elif self._misplaced_since.get(shard, (None, 0))[0] != wanted:
                self._misplaced_since[shard] = (wanted, now_ms)

    # What to do.

    def to_claim(self) -> tuple[int, ...]:
        """Free shards that this agent is preferred for, ascending."""
        if self._me is None:
            return ()
        return tuple(
            shard for shard in sorted(self._free_since) if self._preferred[shard] == self._me
        )

    def to_release(self, now_ms: int, busy: Callable[[int], bool]) -> list[Release]:
        """What to give to whom now. `busy`: whether a group of the shard is in a rebalance."""
        moves: dict[Incarnation, list[int]] = {}
        for shard, (successor, since_ms) in sorted(self._misplaced_since.items()):
            waited_ms = now_ms - since_ms
            if waited_ms >= BUSY_MS_MAX or (waited_ms >= MISPLACED_MS_MIN and not busy(shard)):
                moves.setdefault(successor, []).append(shard)
        return [Release(successor, tuple(shards)) for successor, shards in moves.items()]

    def to_leave(self, held: Iterable[int]) -> list[Release]:
        """To whom all shards go when this agent ends: free, if there is nobody else."""
        others = [
            agent
            for agent in self._agents
            if agent.incarnation not in self._passive and agent.incarnation != self._me
        ]
        moves: dict[Incarnation, list[int]] = {}
        for shard in sorted(held):
            moves.setdefault(preferred(shard, others) or INCARNATION_NONE, []).append(shard)
        return [Release(successor, tuple(shards)) for successor, shards in moves.items()]
