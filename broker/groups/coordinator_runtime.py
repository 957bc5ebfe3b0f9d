"""The runtime of live groups (Kafka's `CoordinatorRuntime`): requests in, answers out, writes to the log.

What holds:

* While a change of a group's row is under way nothing else happens to the group: what comes waits
  in its queue, which is bounded (P15). The commands of one `Write` are proposed one after the
  other, each when the one before is applied, under the incarnation that is served.
* A write that is not applied, for whatever reason, ends the live group; those who wait are
  refused, and the next one to ask finds it as its row has it. There is no undo.
* Every request is answered or refused once, also when its group has a bug: then the group ends.
* A group without members, parked requests or queue is not kept: its row says all about it.

Left out: which shards are served, and under which incarnation (`broker.groups.claims` says).
"""

import asyncio
import contextlib
import functools
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from broker.calls.clock import GroupClock
from broker.config.group_settings import GroupSettings
from broker.groups.group.effects import Answer, Caller, Effects, ReplaceGroup, Write
from broker.groups.group.live import GroupFactory, LiveGroup
from broker.groups.group_context import GroupContext, GroupRequest, PendingHeartbeat
from broker.groups.loading import Loading
from broker.groups.stats import GroupStats
from broker.groups.timers import Timers
from coordinator.commands.entries import Outcome, Rejected
from coordinator.commands.group_commands import ChangeGroup, DeleteGroup, GroupCommand, GroupKind
from coordinator.commands.transaction_commands import CommitTransactionOffsets
from coordinator.log.metadata_log import LogError
from coordinator.log_client import LogClient
from coordinator.proposer import InvalidCommandError, NotDoneError
from coordinator.tables.groups import shard_of
from protocol.errors import ErrorCode, KafkaError
from protocol.types import Incarnation

logger = logging.getLogger(__name__)

QUEUE_MAX: Final = 5_000
"""Requests that wait for one group's write."""
PARKED_MAX: Final = 100_000
"""Requests that wait for whatever, of all groups: connections may close and leave them here."""
SOFT_GROUPS_MAX: Final = 10_000
"""Groups that the log knows nothing of, about."""
EVENTS_PER_TURN_MAX: Final = 100

STABLE: Final = "Stable"
REBALANCING: Final = frozenset(
    {"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"}
)
NOT_OURS: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.STALE_BROKER_EPOCH})
"""What apply says to whoever does not hold the shard, or is dead."""
FENCED: Final = frozenset(
    {ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.INVALID_REQUEST}
)
"""What apply says to a coordinator that does not know its own group."""


class CoordinatorRuntime:
    """The live groups of one agent."""

    def __init__(
        self,
        log_client: LogClient,
        *,
        factory: GroupFactory,
        clock: GroupClock,
        settings_for: Callable[[str], GroupSettings],
        stats: GroupStats,
    ) -> None:
        self.incarnation: Incarnation | None = None
        """Served now; None: nothing is."""
        self.shards: frozenset[int] = frozenset()
        """Served now."""
        self.stats = stats
        self._log_client = log_client
        self._factory = factory
        self._clock = clock
        self._settings_for = settings_for
        self._groups: dict[str, GroupContext] = {}
        self._timers = Timers(clock, self._due)
        self._tokens = itertools.count(1)
        self._open: set[asyncio.Future[Outcome]] = set()
        """Proposals about groups whose fate is not known."""
        self._on_settled: Callable[[], None] = lambda: None
        self.loading = Loading(self._load)

    def __iter__(self) -> Iterator[GroupContext]:
        return iter(self._groups.values())

    @property
    def in_doubt(self) -> bool:
        """The fate of something that was proposed about groups is not known."""
        return bool(self._open)

    def on_settled(self, callback: Callable[[], None]) -> None:
        """Call whenever `in_doubt` has become false."""
        self._on_settled = callback

    @property
    def proven(self) -> bool:
        """May this agent act as the incarnation that it serves, at this instant (P5)?"""
        return self.incarnation is not None and self._log_client.incarnation() == self.incarnation

    def serves(self, group_id: str) -> bool:
        """May this agent answer for the group at this instant?"""
        return shard_of(group_id) in self.shards and self.proven

    # Requests.

    def submit(self, group_id: str, request: GroupRequest) -> None:
        """Have a group answer a request, now or when it can. Its shard is served."""
        context = self._groups.get(group_id)
        if self.stats.parked >= PARKED_MAX or (context is None and self._is_one_too_many(group_id)):
            self._overflow(request, "too many requests and groups wait here already")
            return
        if context is None:
            context = self._host(group_id)
        if context.writing or context.queue:
            self._enqueue(context, request)
            return
        self._perform(context, request)
        self._after(context)

    def heartbeat(
        self,
        group_id: str,
        member_id: str,
        generation: int,
        instance_id: str | None,
        respond: Callable[[ErrorCode], None],
    ) -> ErrorCode | None:
        """The answer to a heartbeat; None: `respond` is called with it when the group can tell."""
        context = self._groups.get(group_id)
        if context is None and (context := self._with_members(group_id)) is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if context.writing or context.queue or context.group is None:
            self._enqueue(context, PendingHeartbeat(member_id, generation, instance_id, respond))
            return None
        return self._heartbeat(context, context.group, member_id, generation, instance_id)

    def live(self, group_id: str) -> LiveGroup | None:
        """The group as it is; None when there is neither a row nor soft state of it."""
        context = self._groups.get(group_id) or self._with_members(group_id)
        if context is not None and context.group is not None:
            return context.group
        row = self._log_client.machine.groups.get(group_id)
        return None if row is None else self._make(group_id, row.kind)

    def in_memory(self, group_id: str) -> LiveGroup | None:
        """The group if it is here; nothing is loaded."""
        context = self._groups.get(group_id)
        return None if context is None else context.group

    def soft_groups(self) -> int:
        """About how many groups are here without a row."""
        return max(0, len(self._groups) - len(self._log_client.machine.groups))

    def knows(self, group_id: str) -> bool:
        """Is there a row, or soft state, of the group?"""
        return group_id in self._groups or self._log_client.machine.groups.get(group_id) is not None

    async def settled(self, group_id: str) -> None:
        """Wait until no change of the group's row is under way, or it is dropped."""
        while (context := self._groups.get(group_id)) is not None and context.writing:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            context.waiting.append(functools.partial(_set, future))
            await future

    def _enqueue(self, context: GroupContext, item: GroupRequest | PendingHeartbeat) -> None:
        if len(context.queue) >= QUEUE_MAX:
            self._overflow(item, f"{QUEUE_MAX} requests wait for this group already")
            return
        self.stats.parked += 1
        context.queue.append(item)

    def _overflow(self, item: GroupRequest | PendingHeartbeat, reason: str) -> None:
        self.stats.overflows += 1
        item.refuse(KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, reason))

    def _is_one_too_many(self, group_id: str) -> bool:
        """A group without a row, when there are many of them."""
        groups = self._log_client.machine.groups
        return len(self._groups) >= len(groups) + SOFT_GROUPS_MAX and groups.get(group_id) is None

    def _perform(self, context: GroupContext, request: GroupRequest) -> None:
        try:
            group = context.group or self._make(context.group_id, request.kind)
        except KafkaError as error:
            request.refuse(error)
            return
        context.group = group
        token = next(self._tokens)
        context.parked[token] = request
        self.stats.parked += 1
        caller = Caller(
            token,
            request.version,
            request.client_id,
            request.client_host,
            self._clock.now_ms(),
            request.fresh_id,
        )
        self._guarded(context, lambda: request.ask(group, caller))

    def _guarded(self, context: GroupContext, act: Callable[[], Effects]) -> None:
        """Carry out what the group says. A bug in it ends it, and is raised."""
        sound = False
        try:
            for effect in act():
                if isinstance(effect, Answer):
                    request = context.parked.pop(effect.token)
                    self.stats.parked -= 1
                    request.respond(effect.response)
                elif isinstance(effect, ReplaceGroup):
                    logger.info("group %r becomes %s", context.group_id, effect.group.kind.name)
                    context.group = effect.group
                else:
                    self._write(context, effect)
            sound = True
        finally:
            if not sound:
                self._fail_group(context)

    def _heartbeat(
        self,
        context: GroupContext,
        group: LiveGroup,
        member_id: str,
        generation: int,
        instance_id: str | None,
    ) -> ErrorCode:
        sound = False
        try:
            code = group.heartbeat(member_id, generation, instance_id, self._clock.now_ms())
            sound = True
        finally:
            if not sound:
                self._fail_group(context)
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            # It may be limited from now on how long the member takes to join again.
            self._timers.arm(context, group.deadline_ms())
        return code

    def _fail_group(self, context: GroupContext) -> None:
        """The group has a bug: nobody can tell what state it is in."""
        self._remove(context)
        reason = "the coordinator of the group failed"
        self._refuse_all(context, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, reason))

    def _after(self, context: GroupContext) -> None:
        """Something happened to the group: keep it or not, and see when it is due."""
        if not context.ready:
            return
        group = context.group
        if group is None or not (context.queue or context.parked or group.has_members()):
            if not context.queue:
                self._remove(context)
            return
        self._timers.arm(context, group.deadline_ms())

    # Time.

    def _due(self, context: GroupContext) -> None:
        if not context.ready or context.group is None or not self.proven:
            return  # It is armed again when it is written; without a session it is dropped.
        self._tick(context, context.group)
        self._after(context)

    def _tick(self, context: GroupContext, group: LiveGroup) -> None:
        def tick() -> Effects:
            effects = group.tick(self._clock.now_ms())
            for effect in effects:
                if isinstance(effect, Write):
                    self.stats.expired_members += _removed(effect.commands)
            return effects

        self._guarded(context, tick)

    # Writes.

    def _write(self, context: GroupContext, write: Write) -> None:
        assert not context.writing
        assert write.commands
        context.writing = True
        last = write.commands[-1]
        if isinstance(last, ChangeGroup) and last.epoch > last.epoch_before:
            context.stable = False
        self._append(context, write.commands, 0)

    def _append(
        self, context: GroupContext, commands: tuple[ChangeGroup | DeleteGroup, ...], index: int
    ) -> None:
        future = self.propose(commands[index])
        future.add_done_callback(functools.partial(self._appended, context, commands, index))

    def propose(self, command: GroupCommand | CommitTransactionOffsets) -> asyncio.Future[Outcome]:
        """Propose under the incarnation that is served, and know of it until it is settled."""
        assert self.incarnation is not None
        future = self._log_client.propose(command, self.incarnation)
        self._open.add(future)
        future.add_done_callback(self._closed)
        return future

    def _closed(self, future: asyncio.Future[Outcome]) -> None:
        self._open.discard(future)
        if not self._open:
            self._on_settled()

    def _appended(
        self,
        context: GroupContext,
        commands: tuple[ChangeGroup | DeleteGroup, ...],
        index: int,
        future: asyncio.Future[Outcome],
    ) -> None:
        """One command of a write has its outcome."""
        if context.dead:
            return
        code, reason = _verdict(future)
        if code is not ErrorCode.NONE:
            self._fail(context, code, reason)
        elif index + 1 < len(commands):
            self._append(context, commands, index + 1)
        elif self.proven:
            self._written(context)

    def _written(self, context: GroupContext) -> None:
        group = context.group
        assert group is not None
        self.stats.writes += 1
        context.writing = False
        self._guarded(context, lambda: group.written(self._clock.now_ms()))
        # Asked only here: it takes a look at every member.
        if not context.stable and context.group is not None and context.group.state() == STABLE:
            context.stable = True
            self.stats.rebalances += 1
        self._go_on(context)

    def _fail(self, context: GroupContext, code: ErrorCode, reason: str) -> None:
        """The write is not in: the live group is ahead of its row, so it ends."""
        self.stats.writes_failed += 1
        if code in FENCED:
            self.stats.writes_fenced += 1
            logger.error("the log fenced the coordinator of group %r: %s", context.group_id, reason)
            code = ErrorCode.NOT_COORDINATOR
        else:
            logger.warning("group %r was not changed: %s", context.group_id, reason)
        self._remove(context)
        self._refuse_waiting(context, KafkaError(code, reason))
        self.loading.add([context.group_id])

    # Changes of a row by others than the group.

    async def change(
        self, group_id: str, command: GroupCommand | CommitTransactionOffsets
    ) -> asyncio.Future[Outcome]:
        """Propose what creates or deletes a row, with nothing else happening to the group.

        If it is carried out the live group, if there is one, ends. Raises KafkaError.
        """
        await self.settled(group_id)
        if not self.serves(group_id):
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        context = self._groups.get(group_id) or self._with_members(group_id)
        if context is None:
            context = self._host(group_id)
        future = self.propose(command)
        context.writing = True
        future.add_done_callback(functools.partial(self._changed, context))
        return future

    def _changed(self, context: GroupContext, future: asyncio.Future[Outcome]) -> None:
        if context.dead:
            return
        context.writing = False
        code, _ = _verdict(future)
        # A group of nothing but soft state has no row to delete, and ends all the same.
        done = code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)
        if done and (group := context.group) is not None:
            context.group = None
            error = KafkaError(ErrorCode.NOT_COORDINATOR, "the group was created or deleted")
            self._abandon(context, group, error)
        self._go_on(context)

    # What waited.

    def _go_on(self, context: GroupContext) -> None:
        """Serve what waited for a write, unless there is another one already."""
        if context.ready:
            _wake(context)
        for _ in range(EVENTS_PER_TURN_MAX):
            if not context.ready or not context.queue:
                break
            item = context.queue.popleft()
            self.stats.parked -= 1
            if isinstance(item, GroupRequest):
                self._perform(context, item)
            else:
                self._heartbeat_late(context, item)
        if context.ready and context.queue:
            asyncio.get_running_loop().call_soon(self._go_on, context)
        self._after(context)

    def _heartbeat_late(self, context: GroupContext, heartbeat: PendingHeartbeat) -> None:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        try:
            if context.group is None:
                code = ErrorCode.UNKNOWN_MEMBER_ID
            else:
                code = self._heartbeat(
                    context,
                    context.group,
                    heartbeat.member_id,
                    heartbeat.generation,
                    heartbeat.instance_id,
                )
        finally:
            heartbeat.respond(code)

    # The table.

    def _host(self, group_id: str) -> GroupContext:
        context = GroupContext(group_id, shard_of(group_id))
        self._groups[group_id] = context
        return context

    def _make(self, group_id: str, kind: GroupKind) -> LiveGroup:
        """The group from its row, or a new one. Raises KafkaError for a row of another version."""
        settings = self._settings_for(group_id)
        machine = self._log_client.machine
        row = machine.groups.get(group_id)
        if row is None:
            return self._factory.new(kind, group_id, settings, machine.topics)
        try:
            return self._factory.loaded(row, settings, machine.topics, self._clock.now_ms())
        except ValueError as error:
            self.stats.unreadable += 1
            logger.exception("group %r cannot be read", group_id)
            reason = f"this agent cannot read the group: {error}"
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, reason) from error

    def _with_members(self, group_id: str) -> GroupContext | None:
        """The group from its row, kept; None when the row has no members."""
        row = self._log_client.machine.groups.get(group_id)
        if row is None or not row.members:
            return None
        group = self._make(group_id, row.kind)
        context = self._host(group_id)
        context.group = group
        context.stable = group.state() == STABLE
        self._timers.arm(context, group.deadline_ms())
        return context

    def _remove(self, context: GroupContext) -> None:
        """Forget the group; what waits for it is the caller's."""
        if not context.dead:
            context.dead = True
            self._timers.disarm(context)
            del self._groups[context.group_id]

    def serve(self, incarnation: Incarnation, shards: frozenset[int]) -> None:
        """Serve these shards from now on, and no others.

        Groups of new ones that have members are loaded, so that dead members expire. What is
        parked in others is refused in the next turn of the loop: the replica may be the caller.
        """
        assert self.incarnation in (None, incarnation)
        self.incarnation = incarnation
        lost, gained = self.shards - shards, shards - self.shards
        self.shards = shards
        if lost:
            self._drop(lost)
        if gained:
            logger.info("coordinating %d shards of groups, %d more", len(shards), len(gained))
            groups = self._log_client.machine.groups
            rows = [row for shard in sorted(gained) for row in groups.of_shard(shard)]
            taken = [row.group_id for row in rows if row.members]
            self.stats.takeovers += len(taken)
            self.loading.add(taken)

    def end(self) -> None:
        """Serve nothing any more."""
        self._drop(self.shards)
        self.shards = frozenset()
        self.incarnation = None

    def _drop(self, shards: frozenset[int]) -> None:
        """Their groups end here, to go on elsewhere or to be made anew."""
        dropped = [context for context in self._groups.values() if context.shard in shards]
        for context in dropped:
            self._remove(context)
        reason = "this agent does not coordinate the group any more"
        error = KafkaError(ErrorCode.NOT_COORDINATOR, reason)
        for context in dropped:
            asyncio.get_running_loop().call_soon(self._refuse_waiting, context, error)

    def _refuse_waiting(self, context: GroupContext, error: KafkaError) -> None:
        """Refuse whatever waits for a group that was removed."""
        if context.group is not None:
            self._abandon(context, context.group, error)
        # What waited in the queue is not to blame for what failed.
        self._refuse_all(context, KafkaError(ErrorCode.NOT_COORDINATOR, error.message))

    def _abandon(self, context: GroupContext, group: LiveGroup, error: KafkaError) -> None:
        self._guarded(context, lambda: [*group.abandon(error.code)])
        if context.parked:
            logger.error("group %r kept requests when it was abandoned", context.group_id)
            self._refuse([*context.parked.values()], error)
            context.parked.clear()

    def _refuse_all(self, context: GroupContext, error: KafkaError) -> None:
        """Nobody waits for a group that is no more."""
        waiting = [*context.parked.values(), *context.queue]
        context.parked.clear()
        context.queue.clear()
        self._refuse(waiting, error)
        _wake(context)

    def _refuse(
        self, waiting: Sequence[GroupRequest | PendingHeartbeat], error: KafkaError
    ) -> None:
        self.stats.parked -= len(waiting)
        for item in waiting:
            item.refuse(error)

    def _load(self, group_id: str) -> None:
        """Its turn has come, and its shard may be lost by now."""
        if group_id in self._groups or not self.serves(group_id):
            return
        # A row that cannot be read is logged and counted; whoever asks for the group is told.
        with contextlib.suppress(KafkaError):
            self._with_members(group_id)

    # Questions.

    def busy_shards(self) -> frozenset[int]:
        """Shards with a group in a rebalance, or being changed."""
        return frozenset(
            context.shard
            for context in self._groups.values()
            if context.writing or context.group is None or context.group.state() in REBALANCING
        )

    def reconfigure(self, group_id: str) -> None:
        """The configs of a group id have changed."""
        context = self._groups.get(group_id)
        if context is not None and context.group is not None:
            context.group.settings = self._settings_for(group_id)


def _verdict(future: asyncio.Future[Outcome]) -> tuple[ErrorCode, str]:
    """What became of a proposal about a group; NONE: it is carried out."""
    try:
        outcome = future.result()
    except InvalidCommandError as error:
        return ErrorCode.UNKNOWN_SERVER_ERROR, error.reason
    except NotDoneError as error:
        return ErrorCode.NOT_COORDINATOR, error.reason
    except LogError as error:
        return ErrorCode.NOT_COORDINATOR, str(error)
    if not isinstance(outcome, Rejected):
        return ErrorCode.NONE, ""
    if outcome.error in NOT_OURS:
        return ErrorCode.NOT_COORDINATOR, outcome.message
    return outcome.error, outcome.message


def _removed(commands: Sequence[ChangeGroup | DeleteGroup]) -> int:
    return sum([len(each.removed) for each in commands if isinstance(each, ChangeGroup)])


def _wake(context: GroupContext) -> None:
    waiting, context.waiting = context.waiting, []
    for callback in waiting:
        callback()


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
