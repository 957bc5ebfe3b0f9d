"""The agent's side of the jobs: which it holds, the worker that runs them, and the cut of the log.

What holds: an agent has at most one worker, and only for an incarnation of its own that holds
jobs by the log; it ends when that is over, and a new one begins anew. What a worker proposes is
appended under that incarnation or not at all (P3). A worker whose machine is not the agent's
publishes nothing: it is ended, and nobody else is harmed; should the next one say the same, the agent ends. The log is told of a snapshot, and cut
behind the older one, only after its PublishSnapshot was applied here (P14); both are repeated
until they are done, by whoever holds the job.

Left out: who should hold the jobs (`claims`), and what a worker is (`worker_process`, `worker`).
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, replace
from typing import Final, TypeVar

from broker.cluster.placement import live_agents
from broker.jobs.claims import FREE_MS_MIN, JobClaims
from broker.jobs.restarts import Restarts
from broker.jobs.worker.archiving import ArchiveStats
from broker.jobs.worker.context import NOTE_MAX, JobStats, JobStoppedError
from broker.jobs.worker.memory import WorkerMemoryError
from broker.jobs.worker.orders import Orders
from broker.jobs.worker.worker import WorkerStats
from broker.jobs.worker_process import RunWorker, WorkerEndedError
from coordinator.commands.entries import Close, Command, Open, Outcome
from coordinator.commands.job_commands import (
    JOBS_LEVEL,
    ClaimJobs,
    JobKind,
    PublishSnapshot,
    ReleaseJobs,
    ReportJob,
    RequestJob,
)
from coordinator.log.metadata_log import LogError, MetadataLog, Session, SessionLostError
from coordinator.log_client import Applied, LogClient
from coordinator.proposer import NotDoneError
from coordinator.replica import BUGS, ReplicaStoppedError, first_error
from coordinator.snapshot.manifest import encode_published
from protocol.fault_codes import Sentence, coded, fault_of
from protocol.types import INCARNATION_NONE, POSITION_ZERO, Incarnation, Position
from storage.stores.counted import StoreCalls
from storage.stores.object_store import StoreError

CountsT = TypeVar("CountsT", bound=StoreCalls)

logger = logging.getLogger(__name__)

DIFFERING_MAX: Final = 2
"""Workers, each loaded anew, that differ from their agent: then it is wrong, and ends."""
LOOK_S: Final = 1.0
CUT_RETRY_S: Final = 5.0
OVER_BUDGET: Final = (
    "the metadata log is over its budget (log.bytes.max), and writes are refused until it"
    " is cut: are snapshots being made (job snapshot)?"
)

_WATCHED: Final = (Open, Close, ClaimJobs, ReleaseJobs, RequestJob, PublishSnapshot)


class HostStats:
    """Counters of the jobs at this agent."""

    def __init__(self) -> None:
        self.workers_started = 0
        self.workers_failed = 0
        """That ended though they should not."""
        self.workers_short_of_memory = 0
        """Of these: since they neared their memory budget."""
        self.entries_cut = 0
        self.worker = WorkerStats()
        """Of the present worker, or the one before."""
        self._before = {kind: JobStats() for kind in JobKind}
        """Of all workers before that."""
        self._archive_before = ArchiveStats()

    def begin_worker(self) -> None:
        """Another worker counts from nothing."""
        self._before = {kind: self.job(kind) for kind in JobKind}
        self._archive_before = self.archive()
        self.worker = WorkerStats()
        self.workers_started += 1

    def job(self, kind: JobKind) -> JobStats:
        """Of all workers of this agent; what is refused, by the present one."""
        now = self.worker.jobs[kind]
        return replace(_sum(self._before[kind], now), refused=now.refused)

    def archive(self) -> ArchiveStats:
        """Of all workers of this agent; how far it is, of the present one."""
        now = self.worker.archive
        summed = _sum(self._archive_before, now)
        return replace(summed, position=now.position, behind_s=now.behind_s)


def _sum(before: CountsT, now: CountsT) -> CountsT:
    """Of each count."""
    return type(now)(
        **{each.name: getattr(before, each.name) + getattr(now, each.name) for each in fields(now)}
    )


class JobHost:
    """`run` must be going; it hears of the log and of the session by callbacks."""

    def __init__(
        self,
        log_client: LogClient,
        *,
        log: MetadataLog,
        run_worker: RunWorker,
        boot_ms: Callable[[], int],
        enabled: bool,
        start_delay_ms: int,
        archives: bool,
    ) -> None:
        """`start_delay_ms`: how long jobs that are held wait, unless they are asked for. `archives`: a worker
        archives the log, which does not wait."""
        self.stats = HostStats()
        self._log_client = log_client
        self._log = log
        self._run_worker = run_worker
        self._boot_ms = boot_ms
        self._enabled = enabled
        self._start_delay_ms = start_delay_ms
        self._archives = archives
        self._claims = JobClaims(min(FREE_MS_MIN, start_delay_ms))
        self._leaving = False
        self._look_now = asyncio.Event()
        self._under_way: asyncio.Future[Outcome] | None = None
        """A claim or release whose fate is not known."""
        self._wanted: set[JobKind] = set()
        """Asked for while nobody held them."""
        self._held_for: Incarnation | None = None
        self._held_since_ms = 0
        self._worker: asyncio.Task[None] | None = None
        self._worker_of: Incarnation = INCARNATION_NONE
        self._orders = Orders()
        """Of the newest worker."""
        self._restarts = Restarts()
        self._told: tuple[Incarnation, Position] | None = None
        """The newest snapshot that the log was told of, and cut behind, under which session."""
        self._named = POSITION_ZERO
        """The newest snapshot that the log was told of."""
        self._snapshot_ms = boot_ms()
        self._differing = 0
        """Workers, one after the other, that had another machine than this agent."""
        self._astray: ReplicaStoppedError | None = None
        log_client.on_applied(self._applied)
        log_client.on_incarnation(lambda _incarnation: self._look_now.set())

    @property
    def worker_running(self) -> bool:
        return self._worker is not None and not self._worker.done()

    @property
    def held_jobs(self) -> tuple[JobKind, ...]:
        """The jobs that this agent holds now."""
        me = self._log_client.incarnation()
        return () if me is None else self._log_client.machine.jobs.held_by(me)

    def notes(self) -> list[str]:
        """What is wrong with the jobs everywhere, so that no other agent would be better."""
        notes: list[str] = []
        if self._log_client.over_budget:
            notes.append(OVER_BUDGET)
        short = self._restarts.short_of_memory
        if short is not None and self.held_jobs:
            notes.append(Sentence(f"the jobs do not run: {short}", fault_of(short)))
        return notes

    def snapshot_age_ms(self) -> int:
        """Since this agent saw a snapshot published, or since its start."""
        return self._boot_ms() - self._snapshot_ms

    async def run(self) -> None:
        """Hold jobs and have them run, for ever. Raises ReplicaStoppedError: the agent's machine is wrong."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._tell_log(), name="cut of the log")
            while True:
                self._look_now.clear()
                if self._astray is not None:
                    raise self._astray
                await self._update(tasks)
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._look_now.wait()

    async def leave(self, timeout_s: float) -> None:
        """Have archived what was applied, end the worker, then give the jobs to whoever is next. Ends in time, but
        for the end of a worker that must be killed; half of the time is the archive's."""
        self._leaving = True
        until_s = asyncio.get_running_loop().time() + timeout_s
        await self._put_last_archive(timeout_s / 2)
        await self._end_worker()
        me = self._log_client.incarnation()
        if me is None:
            return
        self._see(me)
        if (held_jobs := self._claims.held_jobs()) and self._under_way is None:
            self._propose(ReleaseJobs(held_jobs, self._claims.successor()), me)
        if self._under_way is not None:
            left_s = until_s - asyncio.get_running_loop().time()
            await asyncio.wait([self._under_way], timeout=max(0.0, left_s))

    async def _put_last_archive(self, timeout_s: float) -> None:
        """After this agent there may be none for long, and nobody knows what becomes of the log meanwhile."""
        if not self._archives or not self.worker_running:
            return
        through = self._log_client.machine.position
        self._orders.last_archive.ask(through)
        try:
            async with asyncio.timeout(timeout_s):
                await self._orders.last_archive.until_made()
        except TimeoutError:
            logger.warning("left before the log was archived to its end")
        else:
            logger.info("the log is archived to its end", extra={"position": through})

    # What happens.

    def _applied(self, applied: Applied) -> None:
        for command in applied.entry.commands:
            if not isinstance(command, _WATCHED):
                continue
            self._look_now.set()
            if isinstance(command, PublishSnapshot):
                self._snapshot_ms = self._boot_ms()
                if applied.incarnation == self._worker_of:
                    self._restarts.enough()
                    self._differing = 0
            elif isinstance(command, ReleaseJobs):
                if command.successor != INCARNATION_NONE:
                    self._claims.handed_over(applied.incarnation)
            elif isinstance(command, ClaimJobs):
                self._claims.claimed(applied.incarnation)
            elif isinstance(command, RequestJob) and self._is_nobodys(command.job):
                self._wanted.add(command.job)

    def _is_nobodys(self, kind: JobKind) -> bool:
        """Only now: what was asked for in the log's past is not to be done at once."""
        holder = self._log_client.machine.jobs.get(kind).holder
        return holder == INCARNATION_NONE and self._log_client.incarnation() is not None

    def _see(self, me: Incarnation | None) -> None:
        machine = self._log_client.machine
        self._claims.observe(
            me=me,
            agents=live_agents(machine.incarnations),
            holders={kind: machine.jobs.get(kind).holder for kind in JobKind},
            now_ms=self._boot_ms(),
        )

    async def _update(self, tasks: asyncio.TaskGroup) -> None:
        """Claim what should be ours, start a worker that is missing, end one that is not ours."""
        me = self._log_client.incarnation()
        self._see(me)
        if self._worker is not None and not self._may_work(me):
            await self._end_worker()
        if me is None or self._leaving:
            return
        held_jobs = self._claims.held_jobs()
        if self._under_way is None:
            self._claim_or_release(me, held_jobs)
        self._ask_again(me, held_jobs)
        if not held_jobs:
            return
        if self._held_for != me:
            self._held_for = me
            self._held_since_ms = self._boot_ms()
        if (
            not self._enabled
            or self.worker_running
            or not self._restarts.may_start(self._boot_ms())
        ):
            return
        rounds_in_ms = self._rounds_in_ms(held_jobs)
        if rounds_in_ms == 0 or self._archives:
            self.stats.begin_worker()
            self._worker_of = me
            self._orders = Orders(rounds_in_ms)
            self._worker = tasks.create_task(self._live(me), name="worker of the jobs")

    def _may_work(self, me: Incarnation | None) -> bool:
        """May the worker go on? A lapse of the session is no reason to load everything anew."""
        of = self._worker_of
        return me in (None, of) and bool(self._log_client.machine.jobs.held_by(of))

    def _claim_or_release(self, me: Incarnation, held_jobs: tuple[JobKind, ...]) -> None:
        if not self._enabled:
            if held_jobs:
                self._propose(ReleaseJobs(held_jobs, INCARNATION_NONE), me)
        elif not self._log_client.machine.incarnations.all_support(JOBS_LEVEL):
            return  # In the middle of an upgrade; one that has claimed before goes on.
        elif free := self._claims.to_claim(wanted_now=bool(self._wanted)):
            self._propose(ClaimJobs(free), me)
        elif held_jobs and self._restarts.passes_on and not self.worker_running:
            self._pass_on(me, held_jobs)

    def _pass_on(self, me: Incarnation, held_jobs: tuple[JobKind, ...]) -> None:
        """No worker lives long here; another agent may have more memory."""
        successor = self._claims.abler()
        if successor != INCARNATION_NONE:
            logger.warning("the jobs go to another agent, since no worker lives long here")
            self._restarts.passed_on()
            self._propose(ReleaseJobs(held_jobs, successor), me)

    def _ask_again(self, me: Incarnation, held_jobs: tuple[JobKind, ...]) -> None:
        """What was asked of nobody is asked of this agent when it has the job."""
        for kind in sorted(self._wanted.intersection(held_jobs)):
            abandoned = self._log_client.propose(RequestJob(kind), me)
            logger.debug("job %s was asked for before: %s", kind.name, abandoned)
        self._wanted = {kind for kind in self._wanted if self._is_nobodys(kind)}

    def _propose(self, command: ClaimJobs | ReleaseJobs, me: Incarnation) -> None:
        self._under_way = self._log_client.propose(command, me)
        self._under_way.add_done_callback(self._settled)

    def _settled(self, future: asyncio.Future[Outcome]) -> None:
        self._under_way = None
        if not future.cancelled() and (error := future.exception()) is not None:
            logger.info("a claim or release of jobs was not done: %s", error)

    def _rounds_in_ms(self, held_jobs: tuple[JobKind, ...]) -> int:
        jobs = self._log_client.machine.jobs
        if any(jobs.get(kind).requested >= jobs.get(kind).claimed for kind in held_jobs):
            return 0
        return max(0, self._held_since_ms + self._start_delay_ms - self._boot_ms())

    # The worker.

    async def _live(self, incarnation: Incarnation) -> None:
        """One worker, until it is ended; one that ends by itself is followed by another."""

        async def propose(command: Command) -> tuple[Position, Outcome]:
            return await self._proposed(command, incarnation)

        begun_ms = self._boot_ms()
        short: str | None = None
        try:
            await self._run_worker(incarnation, propose, self.stats.worker, self._orders)
            reason = "the worker ended"
        except* WorkerMemoryError as group:
            error = first_error(group)
            reason = short = Sentence(str(error), fault_of(error))
        except* (WorkerEndedError, ReplicaStoppedError, StoreError, *BUGS) as group:
            reason = str(first_error(group))
        now_ms = self._boot_ms()
        self.stats.workers_failed += 1
        if short is None:
            pause_s = self._restarts.ended(lived_s=(now_ms - begun_ms) / 1000, now_ms=now_ms)
        else:
            self.stats.workers_short_of_memory += 1
            pause_s = self._restarts.gave_up(short, now_ms=now_ms)
            self._report(short, incarnation)
        text = "%s; another one is started in %.0f s, if the jobs are here then"
        logger.error(text, reason, pause_s, extra=coded(reason))
        self._look_now.set()

    def _report(self, reason: str, incarnation: Incarnation) -> None:
        """Whoever looks at the jobs (`frazil job list`) is to see it."""
        note = f"failed: {reason}"[:NOTE_MAX]
        report = ReportJob(JobKind.SNAPSHOT, 0, 0, running=False, note=note)
        told = self._log_client.propose(report, incarnation)
        told.add_done_callback(lambda future: future.cancelled() or future.exception())

    async def _end_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None and not worker.done():
            logger.info("ending the worker of the jobs")
            worker.cancel()
            await asyncio.wait([worker])

    async def _proposed(
        self, command: Command, incarnation: Incarnation
    ) -> tuple[Position, Outcome]:
        """Put a worker's command into the log, under its incarnation; see `worker.Link`."""
        machine = self._log_client.machine
        begun = machine.snapshots.begun
        if (
            isinstance(command, PublishSnapshot)
            and begun is not None
            and begun.position == command.position
            and begun.digest != command.digest
        ):
            raise self._differs(command, begun.digest)
        if isinstance(command, PublishSnapshot):
            await self._until_named()
        try:
            future = self._log_client.propose(command, incarnation)
            outcome = await asyncio.shield(future)
        except (NotDoneError, LogError) as error:
            raise JobStoppedError(str(error)) from error
        # The command's own position, or a later one.
        return machine.position, outcome

    def _differs(self, command: PublishSnapshot, digest: bytes) -> WorkerEndedError:
        """Somebody is wrong. A worker loads anew, and proves from bytes that it reads once more what it has (P13). So
        when the next one says so, too, it is the agent, which no snapshot would ever tell otherwise."""
        found = (
            f"at position {command.position} it has the digest {command.digest.hex()}, and not"
            f" {digest.hex()}"
        )
        self._differing += 1
        if self._differing >= DIFFERING_MAX:
            self._astray = ReplicaStoppedError(
                f"this agent's machine is not what log and snapshot say, as {self._differing} workers found that"
                f" had loaded them anew ({found}): start it again, it begins from the snapshot"
            )
        # The next one need not wait until a snapshot is due.
        self._wanted.add(JobKind.SNAPSHOT)
        self._look_now.set()
        return WorkerEndedError(f"the worker's machine is not the agent's: {found} (a bug)")

    async def _until_named(self) -> None:
        """Wait until the log names the newest snapshot that the machine does.

        So the machine is never ahead of the log by two, and the collection, which keeps what the
        machine names, keeps one of those that an agent may start from.
        """
        machine = self._log_client.machine
        while True:
            published = machine.snapshots.published
            if not published or published[0].position <= self._named:
                return
            if machine.jobs.get(JobKind.SNAPSHOT).holder != self._worker_of:
                return  # Apply refuses it.
            await asyncio.sleep(LOOK_S)

    # The log.

    async def _tell_log(self) -> None:
        """Tell the log of new snapshots and cut it behind the older one, for ever."""
        while True:
            await asyncio.sleep(LOOK_S)
            machine = self._log_client.machine
            me = self._log_client.incarnation()
            published = machine.snapshots.published
            if me is None or not published or machine.jobs.get(JobKind.SNAPSHOT).holder != me:
                continue
            newest = (me, published[0].position)
            if newest == self._told:
                continue
            older = machine.snapshots.older
            cut_to = POSITION_ZERO if older is None else older.position
            row = machine.incarnations.get(me)
            assert row is not None
            session = Session(row.session, me)
            try:
                await self._log.publish(session, encode_published(published), older=cut_to)
                self._named = newest[1]
                if older is not None:
                    self.stats.entries_cut += await self._log.cut(session, cut_to)
            except SessionLostError as error:
                logger.info("the log was not cut: %s", error)
            except LogError as error:
                text = "the log could not be cut, trying again: %s"
                logger.warning(text, error, extra=coded(error))
                await asyncio.sleep(CUT_RETRY_S)
            else:
                self._told = newest
                where = {"snapshot": newest[1], "cut_through": cut_to}
                logger.info("the log knows of a new snapshot", extra=where)
