"""What runs the jobs: a replica of its own, and a round of each kind when its turn has come.

The worker holds nothing: it loads the newest snapshot, follows the log by its link to the agent,
runs the kinds that its incarnation holds by its own replica, and archives what that applies. It
ends by being cancelled, or by an error that says why it cannot go on; whoever runs it starts another
one. A round that fails harms no other kind; it is told, counted and repeated later.

Left out: how the worker came to be (`child`, `__main__`), claims, and the log itself.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Final, Protocol, cast

from broker.config.settings import Settings
from broker.config.topic_rules import TopicRules
from broker.dynamic.in_force import SettingsInForce
from broker.jobs.worker.archiving import Archiver, ArchiveStats
from broker.jobs.worker.context import (
    JobContext,
    JobStats,
    JobStoppedError,
    ObjectNumbers,
    UndeletedObjects,
)
from broker.jobs.worker.memory import WorkerMemory
from broker.jobs.worker.orders import Orders
from broker.jobs.worker.pace import Pace
from broker.jobs.worker.schedule import ENTRY_BYTES, Schedule, intervals_ms
from coordinator.commands.entries import Command, DeleteTopic, Outcome
from coordinator.commands.job_commands import BeginSnapshot, JobKind, ReportJob, RequestJob
from coordinator.log.metadata_log import LogEntry, MetadataLog, VoidedEntry
from coordinator.machine.machine import Machine
from coordinator.replica import BUGS, Applied, Replica
from coordinator.snapshot.store import SnapshotStore
from coordinator.snapshot.stream import SnapshotError
from coordinator.stats import LogClientStats
from protocol import fault_codes
from protocol.types import ERA, POSITION_ZERO, Incarnation, Position
from storage.formats.cluster_identity import ClusterIdentity
from storage.stores.object_store import ObjectStore, StoreError

logger = logging.getLogger(__name__)

LOOK_S: Final = 1.0

Job = Callable[[JobContext], Awaitable[None]]


class Link(Protocol):
    """The worker's way to its agent."""

    async def snapshots(self) -> bytes:
        """As `MetadataLog.snapshots`."""
        ...

    async def voids(self) -> Sequence[VoidedEntry]:
        """As `MetadataLog.voids`, without the reasons."""
        ...

    async def head(self) -> Position:
        """As `MetadataLog.head`."""
        ...

    def tail(self, after: Position) -> AsyncGenerator[Sequence[LogEntry], None]:
        """As `MetadataLog.tail`."""
        ...

    async def propose(self, command: Command) -> tuple[Position, Outcome]:
        """Have the agent put it into the log: what apply said, at that position or before.

        Raises JobStoppedError when it was not done, or nobody will know.
        """
        ...


class WorkerStats:
    """Numbers of one worker; read by whoever shows them."""

    def __init__(self) -> None:
        self.jobs: dict[JobKind, JobStats] = {kind: JobStats() for kind in JobKind}
        self.replica = LogClientStats()
        self.archive = ArchiveStats()
        self.memory_bytes = 0
        """Resident, of a worker that is a process; else 0."""
        self.memory_bytes_max = 0
        """What it may take; 0: no bound is known."""


class Worker:
    """`run` is called once."""

    def __init__(
        self,
        link: Link,
        *,
        store: ObjectStore,
        settings: Settings,
        incarnation: Incarnation,
        jobs: Mapping[JobKind, Job],
        stats: WorkerStats | None = None,
        memory: WorkerMemory | None = None,
        orders: Orders | None = None,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        """`now_ms`: the wall clock."""
        self.stats = WorkerStats() if stats is None else stats
        self.machine = Machine()
        self.started = False
        """The log's end was reached."""
        self._memory = WorkerMemory() if memory is None else memory
        self._orders = Orders() if orders is None else orders
        self._wall_ms = now_ms
        self._archiver = Archiver(
            link,
            machine=self.machine,
            store=store,
            cluster_id=settings.cluster_id,
            incarnation=incarnation,
            every_ms=settings.log_archive_ms,
            stats=self.stats.archive,
        )
        self._log = _ObservedLog(link, self._archiver)
        self._link = link
        self._replica = Replica(
            # It only reads.
            cast("MetadataLog", self._log),
            self.machine,
            self.stats.replica,
            SnapshotStore(
                store, ClusterIdentity(settings.cluster_id, ERA), admit=self._memory.load
            ),
        )
        self._store = store
        self._settings = settings
        self._incarnation = incarnation
        self._jobs = jobs
        self._in_force = SettingsInForce(settings.kafka, self.machine.dynamic_configs)
        """For the agent; a round has those of its beginning."""
        self._in_force.on_change(self._settings_changed)
        self._rules = TopicRules(self._in_force)
        self._numbers = ObjectNumbers(self.machine, incarnation)
        self._kept = UndeletedObjects()
        self._pace = Pace(settings.jobs_bytes_per_second)
        self._cleaner_pace = Pace(self._in_force.kafka.log_cleaner_io_max_bytes_per_second)
        self._callbacks: list[Callable[[Applied], None]] = []
        self._reporting: dict[JobKind, asyncio.Task[None]] = {}
        self._bytes_at_begin = 0
        """What of the log had been read when the newest snapshot was begun."""
        self._written_bytes = 0
        """Of the newest snapshot that was made here; 0: none was."""
        self._look_now = asyncio.Event()
        self._schedule: Schedule | None = None

    async def run(self) -> None:
        """Load, follow, work; for ever. Raises what ends the worker."""
        self._replica.on_applied(self._applied)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._memory.run(), name="memory of the jobs")
            tasks.create_task(self._replica.run(), name="replica of the jobs")
            await self._replica.started()
            where = {"incarnation": self._incarnation, "position": self.machine.position}
            logger.info("the jobs have a replica", extra=where)
            self.started = True
            schedule = Schedule(
                {
                    kind: interval_ms
                    for kind, interval_ms in intervals_ms(self._settings_now()).items()
                    if kind in self._jobs
                },
                snapshot_log_bytes=self._settings.snapshot_log_bytes,
                now_ms=_now_ms(),
                begin_ms=_now_ms() + self._orders.rounds_in_ms,
            )
            self._schedule = schedule
            tasks.create_task(self._archiver.run(), name="archive of the log")
            tasks.create_task(self._put_last_archive(), name="last archive of the log")
            await self._begin_rounds(schedule, tasks)

    async def _put_last_archive(self) -> None:
        """When the agent leaves."""
        through = await self._orders.last_archive.asked()
        await self._replica.wait_for(through)
        await self._archiver.archived_through(through)
        self._orders.last_archive.made()

    # What happens.

    def _settings_now(self) -> Settings:
        return replace(self._settings, kafka=self._in_force.kafka)

    def _refresh_settings(self) -> None:
        row = self.machine.incarnations.get(self._incarnation)
        # The agent has said what it ignores.
        self._in_force.refresh(None if row is None else row.node_id)

    def _settings_changed(self) -> None:
        self._cleaner_pace.rate = self._in_force.kafka.log_cleaner_io_max_bytes_per_second
        if self._schedule is not None:
            self._schedule.set_intervals(intervals_ms(self._settings_now()), now_ms=_now_ms())

    def _applied(self, applied: Applied) -> None:
        self._archiver.applied(applied)
        self._refresh_settings()
        if self._schedule is not None:
            self._schedule.applied(applied.entry.commands)
        for command in applied.entry.commands:
            if isinstance(command, BeginSnapshot):
                self._bytes_at_begin = self._log.bytes_read
            elif isinstance(command, RequestJob):
                self._look_now.set()
            elif isinstance(command, DeleteTopic):
                self._rules.forget(command.topic_id)
        for callback in tuple(self._callbacks):
            callback(applied)

    def _on_applied(self, callback: Callable[[Applied], None]) -> Callable[[], None]:
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    def _log_bytes(self) -> int:
        """Of the log since the newest snapshot was begun; enough for another one if half of the
        log's budget is used since the older: it is the second one that lets the log be cut."""
        since_newest = self._log.bytes_read - self._bytes_at_begin
        if 2 * self._replica.log_bytes <= self._settings.log_bytes_max:
            return since_newest
        return max(since_newest, self._settings.snapshot_log_bytes)

    # Rounds.

    async def _begin_rounds(self, schedule: Schedule, tasks: asyncio.TaskGroup) -> None:
        while True:
            self._look_now.clear()
            for kind in self._jobs:
                row = self.machine.jobs.get(kind)
                # What was asked of another holder is not for this one. (Both may be one entry.)
                requested = row.requested if row.requested >= row.claimed else POSITION_ZERO
                if row.holder == self._incarnation and schedule.due(
                    kind,
                    now_ms=_now_ms(),
                    requested=requested,
                    log_bytes=self._log_bytes(),
                    snapshot_bytes=self._written_bytes or self.stats.replica.snapshot_bytes,
                ):
                    asked = schedule.begun(kind, requested=requested)
                    tasks.create_task(
                        self._round(kind, schedule, asked=asked), name=f"job {kind.name}"
                    )
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._look_now.wait()
            except TimeoutError:
                continue

    async def _round(self, kind: JobKind, schedule: Schedule, *, asked: bool) -> None:
        """One round of a job, whatever becomes of it."""
        stats = self.stats.jobs[kind]
        context = self._context(kind, stats, asked=asked)
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        before = replace(stats)
        failure: str | None = None
        stats.runs += 1
        try:
            await self._jobs[kind](context)
        except* JobStoppedError as stopped:
            failure = str(stopped.exceptions[0])
            logger.info("job %s was stopped: %s", kind.name.lower(), failure)
        except* (StoreError, SnapshotError) as group:
            error = group.exceptions[0]
            failure, text = fault_codes.told(error), "job %s will be tried again: %s"
            logger.warning(text, kind.name.lower(), error, extra=fault_codes.coded(error))
        except* BUGS as bugs:
            failure = f"a bug ({type(bugs.exceptions[0]).__name__}), see the log of the agent"
            logger.exception("job %s failed by a bug", kind.name.lower())
        stats.seconds += loop.time() - begun_s
        stats.failures += failure is not None
        if kind is JobKind.SNAPSHOT and failure is None:
            self._written_bytes = stats.bytes_written - before.bytes_written
        schedule.ended(kind, now_ms=_now_ms(), failed=failure is not None)
        if (last := context.last_report(failure=failure)) is not None:
            self._send_report(last)
        if failure is None and (stats.commands > before.commands or asked):
            told = {
                "commands": stats.commands - before.commands,
                "bytes_read": stats.bytes_read - before.bytes_read,
                "bytes_written": stats.bytes_written - before.bytes_written,
                "seconds": round(loop.time() - begun_s, 1),
            }
            logger.info("a round of job %s has ended", kind.name.lower(), extra=told)

    def _context(self, kind: JobKind, stats: JobStats, *, asked: bool) -> JobContext:
        async def propose(command: Command) -> Outcome:
            return await self._propose(kind, command)

        return JobContext(
            kind,
            machine=self.machine,
            log=self._link,
            store=self._store,
            settings=self._settings_now(),
            rules=self._rules,
            incarnation=self._incarnation,
            propose=propose,
            on_applied=self._on_applied,
            numbers=self._numbers,
            kept=self._kept,
            pace=self._paced_cleaner if kind is JobKind.COMPACT else self._paced,
            send_report=self._send_report,
            stats=stats,
            memory=self._memory,
            requested=asked,
            now_ms=self._wall_ms,
        )

    async def _propose(self, kind: JobKind, command: Command) -> Outcome:
        position, outcome = await self._link.propose(command)
        await self._replica.wait_for(position)
        if self.machine.jobs.get(kind).holder != self._incarnation:
            raise JobStoppedError("the job is another agent's now")
        return outcome

    def _send_report(self, report: ReportJob) -> None:
        """Without waiting; one that is under way is enough, unless it is the round's last."""
        before = self._reporting.get(report.job)
        if before is not None and not before.done() and report.running:
            return
        task = asyncio.get_running_loop().create_task(self._report(report, before))
        self._reporting[report.job] = task

    async def _report(self, report: ReportJob, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        try:
            await self._link.propose(report)
        except JobStoppedError as stopped:
            logger.info("progress of a job was not reported: %s", stopped)

    async def _paced(self, length: int) -> None:
        await asyncio.sleep(self._pace.wait_s(length, _now_s()))

    async def _paced_cleaner(self, length: int) -> None:
        await asyncio.sleep(self._cleaner_pace.wait_s(length, _now_s()))
        await self._paced(length)


class _ObservedLog:
    """The log as the link has it; what the replica reads is archived, and counted as `Schedule.due` counts it."""

    def __init__(self, link: Link, archiver: Archiver) -> None:
        self.bytes_read = 0
        self.snapshots = link.snapshots
        self.head = link.head
        self._link = link
        self._archiver = archiver

    async def voids(self) -> Sequence[VoidedEntry]:
        found = await self._link.voids()
        self._archiver.voids_read(found)
        return found

    async def tail(self, after: Position) -> AsyncGenerator[Sequence[LogEntry], None]:
        self._archiver.tail_begun(after)
        async with aclosing(self._link.tail(after)) as batches:
            async for batch in batches:
                self.bytes_read += sum([ENTRY_BYTES + len(entry.payload) for entry in batch])
                self._archiver.read(batch)
                yield batch


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _now_ms() -> int:
    return int(_now_s() * 1000)
