"""Which shards this agent coordinates: claims and releases in the log, and what follows here.

What holds (P5): an incarnation is served only while its session is proven, and begins to be
served, also again after a lapse, only when the fate of everything that was proposed about groups
before is known. A shard is served while the replica shows that incarnation as its holder, but no
longer than until its release is proposed, since others may read that in the log before this agent
does. Its groups are dropped in the call in which it ceases to be served.

Left out: which shards should be whose (`broker.groups.shards`).
"""

import asyncio
import functools
import logging
from typing import Final

from broker.calls.clock import GroupClock
from broker.cluster.placement import live_agents
from broker.groups.coordinator_runtime import CoordinatorRuntime
from broker.groups.shards import Release, ShardBalance
from coordinator.commands.entries import Close, Open, Outcome
from coordinator.commands.group_commands import (
    GROUP_SHARDS,
    ClaimShards,
    ReleaseShards,
    SetGroupConfigs,
)
from coordinator.log_client import Applied, LogClient
from protocol.types import Incarnation

logger = logging.getLogger(__name__)

LOOK_S: Final = 1.0
KEPT_MS_MIN: Final = 5_000
"""A shard that could not be given away is served for a while before the next attempt."""

_WATCHED: Final = frozenset({Open, Close, ClaimShards, ReleaseShards, SetGroupConfigs})


class ShardClaims:
    """`run` must be going; it hears of the log and of the session by callbacks."""

    def __init__(
        self, log_client: LogClient, runtime: CoordinatorRuntime, clock: GroupClock
    ) -> None:
        self.leaving = False
        self._log_client = log_client
        self._runtime = runtime
        self._clock = clock
        self._balance = ShardBalance()
        self._under_way: dict[asyncio.Future[Outcome], frozenset[int]] = {}
        """Claims and releases whose fate is not known, with the shards that they give away."""
        self._keep_until_ms = 0
        """After a release that was not done."""
        log_client.on_applied(self._applied)
        log_client.on_incarnation(self._session_changed)
        runtime.on_settled(self._all_settled)

    @property
    def served(self) -> frozenset[int]:
        """Shards coordinated here now."""
        return self._runtime.shards

    async def run(self) -> None:
        """Look again now and then, for ever: some things follow from the time alone."""
        while True:
            await asyncio.sleep(LOOK_S)
            self._update()

    async def leave(self, timeout_s: float) -> None:
        """Give every shard to the one who is next for it; coordinate nothing from now on.

        Ends in time, whatever the log does.
        """
        self.leaving = True
        me = self._log_client.incarnation()
        self._serve(None)
        if me is None:
            return
        self._release(me, self._balance.to_leave(self._held_by(me)))
        if self._under_way:
            await asyncio.wait([*self._under_way], timeout=timeout_s)

    # What happens.

    def _applied(self, applied: Applied) -> None:
        relevant = False
        for command in applied.entry.commands:
            if type(command) not in _WATCHED:
                continue
            if isinstance(command, SetGroupConfigs):
                self._runtime.reconfigure(command.group_id)
                continue
            relevant = True
            if isinstance(command, ClaimShards):
                self._balance.claimed(applied.incarnation)
            elif isinstance(command, ReleaseShards):
                self._balance.released(applied.incarnation, command.shards)
        if relevant:
            self._update()

    def _session_changed(self, _incarnation: Incarnation | None) -> None:
        self._update()

    def _all_settled(self) -> None:
        if self._runtime.incarnation is None:
            self._update()

    def _update(self) -> None:
        """Serve what is ours, claim what should be, give up what should not."""
        me = self._log_client.incarnation()
        machine = self._log_client.machine
        now_ms = self._clock.now_ms()
        self._balance.observe(
            me=me,
            agents=live_agents(machine.incarnations),
            holders=[machine.groups.holder(shard) for shard in range(GROUP_SHARDS)],
            now_ms=now_ms,
        )
        self._serve(None if self.leaving else me)
        if me is None or self._under_way:
            return
        if self.leaving:
            # Somebody meant well before it was seen that this agent leaves.
            self._release(me, self._balance.to_leave(self._held_by(me)))
        else:
            self._claim(me, self._balance.to_claim())
            if not self._under_way and now_ms >= self._keep_until_ms:
                busy = functools.cache(self._runtime.busy_shards)
                self._release(me, self._balance.to_release(now_ms, lambda shard: shard in busy()))

    def _serve(self, me: Incarnation | None) -> None:
        """Bring the live groups in line with the session and the table of shards."""
        runtime = self._runtime
        if runtime.incarnation is not None and runtime.incarnation != me:
            runtime.end()
        if me is None or (runtime.incarnation is None and runtime.in_doubt):
            return
        given_away = frozenset().union(*self._under_way.values())
        runtime.serve(me, frozenset(self._held_by(me)) - given_away)

    def _held_by(self, me: Incarnation) -> tuple[int, ...]:
        return self._log_client.machine.groups.held_by(me)

    # What is proposed.

    def _claim(self, me: Incarnation, shards: tuple[int, ...]) -> None:
        if shards:
            self._runtime.stats.shards_claimed += len(shards)
            self._propose(ClaimShards(shards), me, frozenset())

    def _release(self, me: Incarnation, releases: list[Release]) -> None:
        for release in releases:
            self._runtime.stats.shards_released += len(release.shards)
            logger.info(
                "giving %d shards of groups to incarnation %d",
                len(release.shards),
                release.successor,
            )
            command = ReleaseShards(release.shards, release.successor)
            self._propose(command, me, frozenset(release.shards))
        if releases and not self.leaving:
            self._serve(me)

    def _propose(
        self, command: ClaimShards | ReleaseShards, me: Incarnation, given_away: frozenset[int]
    ) -> None:
        future = self._log_client.propose(command, me)
        self._under_way[future] = given_away
        future.add_done_callback(self._settled)

    def _settled(self, future: asyncio.Future[Outcome]) -> None:
        given_away = self._under_way.pop(future)
        if (error := future.exception()) is not None:
            logger.info("a claim or release of shards was not done: %s", error)
            if given_away:
                self._keep_until_ms = self._clock.now_ms() + KEPT_MS_MIN
            self._serve(None if self.leaving else self._log_client.incarnation())
        elif not self._under_way:
            self._update()
