"""Decides which agent holds the jobs: what one agent claims, and to whom it releases. Pure.

All kinds belong to one agent, since one worker with one replica serves them all. Who holds some
of them is meant to hold the rest; when nobody does, the live agent that wins a rendezvous over
node ids. Nobody gives jobs away because another agent came: a worker takes long to load.

An agent that leaves jobs free for long will not take them (`jobs.enabled`, or its session is not
proven): it is *passive* and counts no more, until it claims. Agents may differ about that for a
while; apply decides who holds what.

One that has handed the jobs to another agent and lives on could not run them (no worker lives long there, or has
the memory that it needs). It has *given up*, and counts only where all have, or after an hour: so jobs do not come back to
where they just were.
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final

from broker.cluster.placement import LiveAgent, preferred_agent
from coordinator.commands.job_commands import JobKind
from protocol.types import INCARNATION_NONE, Incarnation

FREE_MS_MIN: Final = 5_000
"""An agent that is here only for a moment claims nothing."""
FREE_MS_MAX: Final = 20_000
"""Longer than a dead agent's session outlives it, and than FREE_MS_MIN: then the next one."""

GIVEN_UP_MS: Final = 3_600_000
"""Snapshots become smaller, and neighbours on a machine fewer."""

_SEED: Final = int.from_bytes(blake2b(b"jobs", digest_size=8).digest())


class JobClaims:
    """What one agent has seen of the jobs, and what follows. Node ids of live agents differ."""

    def __init__(self, free_ms_min: int = FREE_MS_MIN) -> None:
        self._free_ms_min = free_ms_min
        self._me: Incarnation | None = None
        self._agents: tuple[LiveAgent, ...] = ()
        self._holders: Mapping[JobKind, Incarnation] = {}
        self._passive: set[Incarnation] = set()
        self._given_up: dict[Incarnation, int] = {}
        """When."""
        self._free_since_ms: int | None = None
        self._now_ms = 0

    def claimed(self, writer: Incarnation) -> None:
        """`writer` proposed a claim, whatever came of it."""
        self._passive.discard(writer)

    def handed_over(self, writer: Incarnation) -> None:
        """`writer` gave its jobs to another agent."""
        self._given_up[writer] = self._now_ms

    def observe(
        self,
        *,
        me: Incarnation | None,
        agents: Iterable[LiveAgent],
        holders: Mapping[JobKind, Incarnation],
        now_ms: int,
    ) -> None:
        """See who is live and who holds what (INCARNATION_NONE: it is free).

        `me`: None while this agent may not act.
        """
        self._now_ms = now_ms
        self._agents = tuple(agents)
        live = {each.incarnation for each in self._agents}
        self._passive &= live - {me}
        self._given_up = {
            each: since_ms
            for each, since_ms in self._given_up.items()
            if each in live and now_ms - since_ms < GIVEN_UP_MS
        }
        self._holders = dict(holders)
        free = INCARNATION_NONE in self._holders.values()
        if me is None or me != self._me or not free:
            # Cut off, it knows nothing of what happens meanwhile.
            self._free_since_ms = None
        self._me = me
        if me is None or not free:
            return
        if self._free_since_ms is None:
            self._free_since_ms = now_ms
        elif now_ms - self._free_since_ms >= FREE_MS_MAX:
            self._free_since_ms = now_ms
            if (idle := self.preferred()) not in (None, me):
                assert idle is not None
                self._passive.add(idle)

    def preferred(self) -> Incarnation | None:
        """Who should hold the jobs that are free; None when there is nobody."""
        holding = set(self._holders.values())
        active = [agent for agent in self._agents if agent.incarnation not in self._passive]
        for agent in active:
            if agent.incarnation in holding:
                return agent.incarnation
        return preferred_agent(_SEED, self._able(active) or active)

    def to_claim(self, *, wanted_now: bool) -> tuple[JobKind, ...]:
        """What this agent should claim; `wanted_now`: somebody asked for a job."""
        free = tuple(kind for kind, holder in self._holders.items() if holder == INCARNATION_NONE)
        if self._me is None or not free or self._free_since_ms is None:
            return ()
        waited_ms = self._now_ms - self._free_since_ms
        if self.preferred() != self._me or (waited_ms < self._free_ms_min and not wanted_now):
            return ()
        return free

    def held_jobs(self) -> tuple[JobKind, ...]:
        """What this agent holds."""
        if self._me is None:
            return ()
        return tuple(kind for kind, holder in self._holders.items() if holder == self._me)

    def successor(self) -> Incarnation:
        """To whom everything goes when this agent leaves; INCARNATION_NONE: to nobody."""
        others = self._others()
        return preferred_agent(_SEED, self._able(others) or others) or INCARNATION_NONE

    def abler(self) -> Incarnation:
        """To whom everything goes when no worker lives here; INCARNATION_NONE: nobody is left who has not given up."""
        return preferred_agent(_SEED, self._able(self._others())) or INCARNATION_NONE

    def _able(self, agents: list[LiveAgent]) -> list[LiveAgent]:
        return [agent for agent in agents if agent.incarnation not in self._given_up]

    def _others(self) -> list[LiveAgent]:
        return [
            agent
            for agent in self._agents
            if agent.incarnation != self._me and agent.incarnation not in self._passive
        ]
