"""The coordinator of the groups whose shards this agent holds, as handlers and jobs see it.

    claims               which shards are this agent's, and since when it may act for them
    coordinator_runtime  the live groups: requests, queues, writes, deadlines
    shards               who should hold what (pure)

Requests of the protocols belong to no task: a group answers them by callback, in the call or much
later, and a connection that closes leaves its join where it is, as in Kafka.

Left out: offsets, descriptions and configs of groups, whose handlers ask here for the live group,
the right to answer for it, and a way into the log.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from broker.calls.call import Call
from broker.calls.clock import GroupClock
from broker.calls.outcomes import outcome_of
from broker.calls.shares import Owner, owner_of
from broker.calls.slices import AbandonedError, Slices
from broker.calls.stalls import TICK_MS
from broker.config.group_configs import group_settings
from broker.config.group_settings import GroupSettings
from broker.config.settings import Settings
from broker.groups.claims import ShardClaims
from broker.groups.coordinator_runtime import NOT_OURS, SOFT_GROUPS_MAX, CoordinatorRuntime
from broker.groups.group.effects import Caller, Effects, TopicsSeen
from broker.groups.group.live import GroupFactory, LiveGroup
from broker.groups.group_context import GroupRequest
from broker.groups.group_shares import GroupShares
from broker.groups.stats import GroupStats
from broker.patterns import MATCHES
from broker.rights.rights import Rights
from coordinator.commands.entries import Outcome
from coordinator.commands.group_commands import (
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    ExpireOffsets,
    GroupCommand,
    GroupKind,
)
from coordinator.commands.transaction_commands import CommitTransactionOffsets
from coordinator.log_client import LogClient
from coordinator.tables.groups import shard_of
from protocol.acls import Operation, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from protocol.types import Incarnation

SMALL_REQUEST_BYTES: Final = 4096
"""Requests that wait for a group are counted, if larger, or if a member may come of them."""
MATCHED_AT_ONCE: Final = 100
"""Names of topics that are matched with an expression in the call."""
PROTOCOL_NAMED_FROM: Final = 5
"""Version of SyncGroup (KIP-559)."""
CONSUMER_PROTOCOL: Final = "consumer"
"""In `group.coordinator.rebalance.protocols`: KIP-848 is served."""


_ResponseT_contra = TypeVar("_ResponseT_contra", contravariant=True)


class Responder(Protocol[_ResponseT_contra]):
    """Where the answer to a request goes; one of the two is called, once."""

    def respond(self, response: _ResponseT_contra) -> None: ...

    def refuse(self, error: KafkaError) -> None: ...


class GroupCoordinator:
    """`run` must be going for anything to happen. All methods belong to its loop."""

    def __init__(
        self,
        log_client: LogClient,
        *,
        settings: Settings,
        factory: GroupFactory,
        boot_ms: Callable[[], int],
        rng: random.Random,
        slices: Slices,
        rights: Rights | None = None,
    ) -> None:
        self.stats = GroupStats()
        self._rights = rights
        self._log_client = log_client
        self._settings = settings
        self._rng = rng
        self._slices = slices
        self._tasks: asyncio.TaskGroup | None = None
        self._clock = GroupClock(boot_ms, stall_ms_max=settings.stall_ms)
        self.runtime = CoordinatorRuntime(
            log_client,
            factory=factory,
            clock=self._clock,
            settings_for=self.settings_for,
            stats=self.stats,
        )
        self.claims = ShardClaims(log_client, self.runtime, self._clock)
        self.shares = GroupShares(
            log_client.machine.groups,
            self.runtime.in_memory,
            soft_groups_max=SOFT_GROUPS_MAX,
            soft_groups=self.runtime.soft_groups,
        )

    async def run(self) -> None:
        """Coordinate for ever."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            tasks.create_task(self._look_at_clock(), name="group clock")
            tasks.create_task(self.claims.run(), name="group shards")
            tasks.create_task(self.runtime.loading.run(), name="group loading")

    async def depart(self, timeout_s: float) -> None:
        """Give the shards to others (docs/design/running.md §6) and coordinate nothing any more.

        Ends within `timeout_s`, whatever the log does.
        """
        await self.claims.leave(timeout_s)

    async def _look_at_clock(self) -> None:
        """Often enough that no stall passes for time."""
        while True:
            await asyncio.sleep(TICK_MS / 1000)
            self._clock.now_ms()

    # For handlers and jobs.

    def now_ms(self) -> int:
        """The group clock: boot time without the stalls of this agent."""
        return self._clock.now_ms()

    def settings_for(self, group_id: str) -> GroupSettings:
        """The agent's settings and the group's own configs, in one."""
        configs = self._log_client.machine.groups.configs(group_id)
        return group_settings(self._settings.kafka, configs)

    def coordinates(self, group_id: str) -> None:
        """Return if this agent may answer for the group at this instant (P5).

        Raises KafkaError: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE (leaving), INVALID_GROUP_ID.
        """
        if group_id == "":
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "The group id is empty.")
        if self.claims.leaving:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "This agent is leaving.")
        if not self.runtime.serves(group_id):
            reason = "This agent does not coordinate the group."
            raise KafkaError(ErrorCode.NOT_COORDINATOR, reason)

    def coordinator_of(self, group_id: str) -> Incarnation | None:
        """The live incarnation that holds the group's shard, as far as this agent knows."""
        return self._log_client.machine.groups.holder(shard_of(group_id))

    def coordinated(self) -> list[str]:
        """Ids of all groups that this agent coordinates, of soft state only too.

        Raises KafkaError(COORDINATOR_NOT_AVAILABLE) when it may not act, or is leaving.
        """
        if self.claims.leaving or not self.runtime.proven:
            reason = "This agent coordinates no groups at the moment."
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)
        groups = self._log_client.machine.groups
        rows = [row.group_id for shard in self.claims.served for row in groups.of_shard(shard)]
        soft = [
            context.group_id for context in self.runtime if groups.get(context.group_id) is None
        ]
        return sorted(rows + soft)

    def states(self) -> dict[tuple[str, str], int]:
        """How many live groups there are, by protocol and state."""
        counts: dict[tuple[str, str], int] = {}
        for context in self.runtime:
            if (group := context.group) is not None:
                key = (group.kind.name.lower(), group.state())
                counts[key] = counts.get(key, 0) + 1
        return counts

    def member_count(self) -> int:
        """Members of live groups, as the log has them."""
        groups = self._log_client.machine.groups
        rows = (groups.get(context.group_id) for context in self.runtime)
        return sum(len(row.members) for row in rows if row is not None)

    def live(self, group_id: str) -> LiveGroup | None:
        """The group; None when there is neither a row nor soft state of it.

        To be asked and dropped before the next await. Raises KafkaError as `coordinates` does,
        and UNKNOWN_SERVER_ERROR for a row that this version cannot read.
        """
        self.coordinates(group_id)
        return self.runtime.live(group_id)

    async def settled(self, group_id: str) -> None:
        """Wait until no write of the group is under way. Raises KafkaError as `coordinates`."""
        self.coordinates(group_id)
        await self.runtime.settled(group_id)
        self.coordinates(group_id)

    async def propose(self, command: GroupCommand | CommitTransactionOffsets) -> Outcome:
        """Put a command about a group into the log, under the incarnation that coordinates now.

        What creates or deletes the group's row is carried out between the group's own writes, so
        the group never finds another row than it knew.

        Raises KafkaError: NOT_COORDINATOR when it did not happen and will not, REQUEST_TIMED_OUT
        when it still may (P4), UNKNOWN_SERVER_ERROR when it cannot be written. What apply refuses
        for other reasons is an outcome.
        """
        if isinstance(
            command,
            CommitOffsets | CommitTransactionOffsets | DeleteOffsets | ExpireOffsets | DeleteGroup,
        ):
            self.coordinates(command.group_id)
        try:
            async with asyncio.timeout(self._settings.kafka.offsets_commit_timeout_ms / 1000):
                proposal = await self._proposed(command)
                await asyncio.wait([proposal])
        except TimeoutError as error:
            reason = "not yet in the metadata log; it may still be"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, reason) from error
        return outcome_of(
            proposal,
            ErrorCode.NOT_COORDINATOR,
            lost=NOT_OURS,
            misfit=ErrorCode.UNKNOWN_SERVER_ERROR,
        )

    async def _proposed(
        self, command: GroupCommand | CommitTransactionOffsets
    ) -> asyncio.Future[Outcome]:
        runtime = self.runtime
        match command:
            case DeleteGroup(group_id):
                return await runtime.change(group_id, command)
            case CommitOffsets(group_id) | CommitTransactionOffsets(group_id) if (
                self._row_is_missing(group_id)
            ):
                return await runtime.change(group_id, command)
            case CommitOffsets() | CommitTransactionOffsets() | DeleteOffsets() | ExpireOffsets():
                return runtime.propose(command)
            case _:
                return self._log_client.propose(command, self._log_client.incarnation())

    def _row_is_missing(self, group_id: str) -> bool:
        return self._log_client.machine.groups.get(group_id) is None

    # The protocols. `respond` or `refuse` is called once, now or later.

    def join(self, call: Call, request: JoinGroupRequest, to: Responder[JoinGroupResponse]) -> None:
        self._ask(
            call,
            request.group_id,
            lambda group, by: group.join(by, request),
            to,
            joins=True,
            fresh_id=self._fresh_id(),
        )

    def sync(self, call: Call, request: SyncGroupRequest, to: Responder[SyncGroupResponse]) -> None:
        if call.version >= PROTOCOL_NAMED_FROM and (
            request.protocol_type is None or request.protocol_name is None
        ):
            reason = "SyncGroup names the protocol and its type from this version on."
            to.refuse(KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, reason))
            return
        self._ask_member(call, request.group_id, lambda group, by: group.sync(by, request), to)

    def leave(
        self, call: Call, request: LeaveGroupRequest, to: Responder[LeaveGroupResponse]
    ) -> None:
        self._ask_member(call, request.group_id, lambda group, by: group.leave(by, request), to)

    def consumer_heartbeat(
        self,
        call: Call,
        request: ConsumerGroupHeartbeatRequest,
        to: Responder[ConsumerGroupHeartbeatResponse],
    ) -> None:
        """Where nothing must be written the answer comes in this call."""
        self.stats.heartbeats += 1
        if CONSUMER_PROTOCOL not in self._settings.kafka.group_coordinator_rebalance_protocols:
            reason = "The consumer protocol is switched off by this agent's settings."
            to.refuse(KafkaError(ErrorCode.UNSUPPORTED_VERSION, reason))
            return
        if request.group_id == "":
            # Where the other APIs say INVALID_GROUP_ID.
            to.refuse(KafkaError(ErrorCode.INVALID_REQUEST, "GroupId can't be empty."))
            return
        topics = self._log_client.machine.topics
        seen = self._topics_seen(call)
        ask = partial(
            self._ask,
            call,
            request.group_id,
            lambda group, by: group.consumer_heartbeat(
                by._replace(topics_seen=seen), request, topics
            ),
            to,
            kind=GroupKind.CONSUMER,
            joins=request.member_epoch == 0,
            fresh_id="" if request.member_id else self._fresh_id(),
        )
        regex = request.subscribed_topic_regex
        is_behind = seen is not None and self._is_behind(request, seen)
        if len(topics) > MATCHED_AT_ONCE and (regex or is_behind):
            assert self._tasks is not None
            self._tasks.create_task(self._match(call, regex, seen if is_behind else None, ask))
        else:
            ask()

    def _is_behind(self, request: ConsumerGroupHeartbeatRequest, seen: TopicsSeen) -> bool:
        """Whether the group will look at rights that have changed; it does at the first expression."""
        if request.subscribed_topic_regex:
            return True
        group = self.runtime.in_memory(request.group_id)
        return group is not None and group.is_behind(request.member_id, seen)

    def _topics_seen(self, call: Call) -> TopicsSeen | None:
        rights = self._rights
        if rights is None:
            return None
        requester = call.connection.requester
        return TopicsSeen(
            self._log_client.machine.acls.version,
            lambda name: rights.allows(requester, Operation.DESCRIBE, ResourceType.TOPIC, name),
        )

    async def _match(
        self, call: Call, regex: str | None, seen: TopicsSeen | None, ask: Callable[[], None]
    ) -> None:
        """Have all names of topics matched, and rights to them decided, a slice of the loop at a time,
        before the group asks what the expression means: both are remembered. What is wrong with it
        the group says."""
        names = frozenset([topic.name for topic in self._log_client.machine.topics])
        turns = self._slices.of(call)
        with contextlib.suppress(KafkaError, AbandonedError):
            if regex:
                names = await turns.run(MATCHES.resolve(regex, names, field=""))
            if seen is not None:
                async for name in turns.over(names):
                    seen.sees(name)
        # Not in this task: a bug in the group ends the group.
        asyncio.get_running_loop().call_soon(ask)

    def heartbeat(
        self,
        group_id: str,
        member_id: str,
        generation: int,
        instance_id: str | None,
        respond: Callable[[ErrorCode], None],
    ) -> ErrorCode | None:
        """The answer; None: `respond` is called with it, once a write of the group is settled."""
        self.stats.heartbeats += 1
        try:
            self.coordinates(group_id)
            return self.runtime.heartbeat(group_id, member_id, generation, instance_id, respond)
        except KafkaError as error:
            return error.code

    def _ask_member(
        self,
        call: Call,
        group_id: str,
        ask: Callable[[LiveGroup, Caller], Effects],
        to: Responder[Any],
    ) -> None:
        """A group that is not there has no member that could ask."""
        if self.runtime.serves(group_id) and group_id and not self.runtime.knows(group_id):
            to.refuse(KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "There is no group of this id."))
        else:
            self._ask(call, group_id, ask, to)

    def _ask(
        self,
        call: Call,
        group_id: str,
        ask: Callable[[LiveGroup, Caller], Effects],
        to: Responder[Any],
        *,
        kind: GroupKind = GroupKind.CLASSIC,
        joins: bool = False,
        fresh_id: str = "",
    ) -> None:
        counted: _Counted | None = None
        try:
            self.coordinates(group_id)
            if joins or call.frame_bytes > SMALL_REQUEST_BYTES:
                counted = _Counted(self.shares, call, group_id, to)
                self.shares.begin(counted.owner, group_id, call.frame_bytes, joins=joins)
        except KafkaError as error:
            to.refuse(error)
            return
        to = counted or to
        asked = GroupRequest(
            kind,
            ask,
            call.version,
            call.client_id or "",
            _host_of(call),
            fresh_id,
            to.respond,
            to.refuse,
        )
        self.runtime.submit(group_id, asked)
        if counted is not None and joins:
            self.shares.asked(counted.owner, group_id)

    def _fresh_id(self) -> str:
        """A random UUID (version 4) from this agent's chance."""
        bits = self._rng.getrandbits(128) & ~(0xF << 76 | 0x3 << 62) | 4 << 76 | 2 << 62
        text = f"{bits:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class _Counted:
    """A responder that ends what its client has of memory for the request."""

    def __init__(self, shares: GroupShares, call: Call, group_id: str, to: Responder[Any]) -> None:
        self.owner: Owner = owner_of(call.connection.peer)
        self._shares = shares
        self._group_id = group_id
        self._byte_count = call.frame_bytes
        self._to = to

    def respond(self, response: Any) -> None:
        member_id = ""
        if isinstance(response, JoinGroupResponse | ConsumerGroupHeartbeatResponse):
            member_id = response.member_id or ""
        self._end(member_id)
        self._to.respond(response)

    def refuse(self, error: KafkaError) -> None:
        self._end("")
        self._to.refuse(error)

    def _end(self, member_id: str) -> None:
        self._shares.end(self.owner, self._group_id, self._byte_count, member_id)


def _host_of(call: Call) -> str:
    """The client's address, as Kafka tells it in descriptions."""
    return "/" + call.connection.peer.rpartition(":")[0]
