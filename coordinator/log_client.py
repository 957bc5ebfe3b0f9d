"""An agent's client of the metadata log: it keeps the machine, proposes commands, waits at barriers.

Puts replica, barrier, proposer and lifecycle manager together and owns their tasks; they decide.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from coordinator.barrier import Barrier
from coordinator.commands.entries import Command, Outcome
from coordinator.log.metadata_log import LogError, LogUnavailableError, MetadataLog
from coordinator.machine.machine import Machine
from coordinator.own_entries import OwnEntries
from coordinator.proposer import FirstNotDoneError, NotDoneError, Proposer
from coordinator.replica import Applied, Replica, ReplicaStoppedError, first_error
from coordinator.session import LifecycleManager, ReplacedError
from coordinator.settings import AgentIdentity, LogClientSettings
from coordinator.snapshot.loading import SnapshotSource
from coordinator.stats import LogClientStats
from protocol.types import Incarnation

__all__ = [
    "AgentIdentity",
    "Applied",
    "FirstNotDoneError",
    "LogClient",
    "LogClientSettings",
    "LogClientStats",
    "LogUnavailableError",
    "NotDoneError",
    "ReplacedError",
    "ReplicaStoppedError",
]

logger = logging.getLogger(__name__)


class _LeftError(Exception):
    """`leave` is done; ends `run`."""


class LogClient:
    """`run` must be going for anything to happen. All methods belong to its loop."""

    def __init__(
        self,
        log: MetadataLog,
        *,
        identity: AgentIdentity,
        settings: LogClientSettings,
        now_ms: Callable[[], int],
        boot_ms: Callable[[], int],
        snapshots: SnapshotSource | None = None,
        before_joining: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`now_ms`: wall clock, written into entries; `boot_ms`: never set, counts suspension.

        Without `snapshots` it replays the log from the beginning. `before_joining` is awaited when
        the machine is that of the log's end and nothing was appended yet; its errors end `run`.
        """
        self.machine = Machine()
        self.stats = LogClientStats()
        self._log = log
        self._settings = settings
        self._left = asyncio.Event()
        self._before_joining = before_joining
        own = OwnEntries()
        self._replica = Replica(log, self.machine, self.stats, snapshots, own=own)
        self._barrier = Barrier(
            log,
            wait_for=self._replica.wait_for,
            deadline_ms=settings.barrier_deadline_ms,
            boot_ms=boot_ms,
            stats=self.stats,
        )
        self._proposer = Proposer(
            log,
            now_ms=now_ms,
            live_agents=lambda: len(self.machine.incarnations),
            over_budget=lambda: self.over_budget,
            tick_ms=settings.tick_ms,
            stats=self.stats,
            own=own,
        )
        self._lifecycle = LifecycleManager(
            log,
            machine=self.machine,
            barrier=self._barrier,
            proposer=self._proposer,
            identity=identity,
            settings=settings,
            now_ms=now_ms,
            boot_ms=boot_ms,
            stats=self.stats,
        )
        self._replica.on_applied(self._lifecycle.applied)
        self._replica.on_applied(self._proposer.applied)

    async def run(self) -> None:
        """Be one of the cluster's agents until cancelled or `leave` is done.

        Raises ReplicaStoppedError when the log cannot be followed (P13), LogReplacedError when it
        is not the one that it was, ReplacedError when another process has taken the node name. An
        unavailable log is waited for (P16).
        """
        ended_by: BaseException | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_uncancelled(self._replica.run()))
                tasks.create_task(_uncancelled(self._barrier.run()))
                tasks.create_task(_uncancelled(self._proposer.run()))
                tasks.create_task(_uncancelled(self._be_member()))
                tasks.create_task(self._until_left())
        except BaseExceptionGroup as group:
            ended_by = first_error(group)
        finally:
            self._lifecycle.stop()
            self._proposer.shut()
        # Out here it does not become the context of the group that holds it.
        if ended_by is not None and not isinstance(ended_by, _LeftError):
            raise ended_by

    def incarnation(self) -> Incarnation | None:
        """The incarnation under which this agent may act at this instant (P5, P12), if any."""
        return self._lifecycle.incarnation()

    def node_id(self) -> int | None:
        """This node's number; None before the first Open was applied."""
        return self._lifecycle.node_id()

    @property
    def takes_first(self) -> bool:
        """The log is on this machine: `propose` takes something to do before."""
        return self._proposer.takes_first

    def propose(
        self,
        command: Command,
        incarnation: Incarnation | None = None,
        *,
        first: Callable[[], None] | None = None,
    ) -> asyncio.Future[Outcome]:
        """Put `command` into the log; the future has the outcome that apply gave it.

        The order of calls is the order in the log. Given an incarnation, it is appended only
        under that one. The future raises NotDoneError when the command did not happen and never
        will, LogUnavailableError when the agent ended before it knew; it stays open while the
        outcome is unknown. Cancelling it does not withdraw the command.

        `first` runs in the log's thread before, and again until it has returned once; when it raises,
        the command did not happen, FirstNotDoneError.
        """
        return self._proposer.propose(command, incarnation, first=first)

    async def barrier(self, since_ms: int | None = None) -> None:
        """Wait until what the log held at some time after this call is applied (P8, P9).

        `since_ms`: after this time of the boot clock, when a request was read that waited for its
        turn. Raises LogUnavailableError after the deadline of the settings.
        """
        await self._barrier.wait(since_ms)

    def on_applied(self, callback: Callable[[Applied], None]) -> None:
        """Call synchronously after each entry, before the futures of its commands wake anyone."""
        self._replica.on_applied(callback)

    def on_incarnation(self, callback: Callable[[Incarnation | None], None]) -> None:
        """Call whenever `incarnation()` has changed, at the deadline at the latest."""
        self._lifecycle.on_incarnation(callback)

    def session_lost_ms(self) -> int:
        """For how long (boot-time ms) no session has been proven; 0 while one is."""
        return self._lifecycle.session_lost_ms()

    async def leave(self) -> None:
        """Close the incarnation, end the session, end `run`. What is proposed after is refused.

        Ends within the deadline of the settings, whatever the log does: then the lease runs out
        by itself.
        """
        try:
            async with asyncio.timeout(self._settings.leave_deadline_ms / 1000):
                await self._lifecycle.leave()
        except (LogError, TimeoutError) as error:
            logger.warning("left without closing the session, it will run out: %r", error)
        finally:
            self._left.set()

    @property
    def log_bytes(self) -> int:
        """What the log has grown by since the older published snapshot; see `Replica`."""
        return self._replica.log_bytes

    @property
    def over_budget(self) -> bool:
        """The log takes only what jobs need until it is cut (P14); see `proposer`."""
        return self._replica.log_bytes > self._settings.log_bytes_max

    async def _be_member(self) -> None:
        """An agent that still loads would be named to clients, and hold a lease it cannot renew
        in time; so it joins when it has caught up with what there was."""
        await self._replica.started()
        if self._before_joining is not None:
            await self._before_joining()
        await self._lifecycle.run()

    async def _until_left(self) -> None:
        await self._left.wait()
        raise _LeftError


async def _uncancelled(run: Awaitable[None]) -> None:
    """Fail when `run` ends as cancelled though nobody cancelled its task.

    A library that raises CancelledError would end the task, and a task group says nothing then:
    the agent would live on without this part, never ready again, and nobody would restart it.
    """
    try:
        await run
    except asyncio.CancelledError as stray:
        task = asyncio.current_task()
        assert task is not None
        if task.cancelling() == 0:
            raise AssertionError("a part of the coordinator was ended by nobody") from stray
        raise
