"""The agent's end of a worker, which is a process of its own or runs inside the agent's loop.

A worker process is this Python with another module, connected by a socket pair: it gets its
settings through it (no secret is on a command line), the log's entries, and answers. Nothing of
it is kept here: the tail is read from the log no faster than the worker takes it, and what it may
have under way is bounded. Its log lines go to the agent's standard error.

A worker that does not answer for long is killed; so is one that is to end and does not. When the
agent dies, the socket closes, and the worker ends by itself.
"""

import asyncio
import logging
import signal
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Any, Final, Protocol

from broker.config.settings import Settings
from broker.environment import software_version, spawn_module
from broker.jobs.memory_budget import AgentMemory, budget_of
from broker.jobs.worker.archiving import ArchiveStats
from broker.jobs.worker.budget import Budget
from broker.jobs.worker.context import JobStats, JobStoppedError
from broker.jobs.worker.memory import EXIT_CODE, WorkerMemoryError, resident_bytes
from broker.jobs.worker.memory_limits import memory_limits
from broker.jobs.worker.orders import Orders
from broker.jobs.worker.pipe_frames import (
    Frame,
    FrameError,
    FrameReader,
    FrameType,
    entries_frames,
    error_fields,
    frame,
    json_frame,
    json_of,
    outcome_frame,
    proposal_of,
    settings_to_json,
    ticket_of,
)
from broker.jobs.worker.worker import Worker, WorkerStats
from coordinator.commands.entries import Command, Outcome
from coordinator.commands.job_commands import JobKind
from coordinator.log.metadata_log import LogEntry, LogError, MetadataLog, VoidedEntry
from coordinator.log.voided import encode_void
from coordinator.replica import first_error
from protocol.types import Incarnation, Position
from storage.stores.object_store import ObjectStore

logger = logging.getLogger(__name__)

READ_BYTES: Final = 64 << 10
PROPOSALS_MAX: Final = 64
"""That a worker may have under way."""
TAILS_MAX: Final = 4
"""That a worker may follow at a time."""
PING_S: Final = 10.0
UNANSWERED_MAX: Final = 30
"""Pings: a worker may be busy with one thing for five minutes. Counted in pings, not in time, so
that an agent that was suspended does not blame its worker."""
END_S: Final = 2.0
"""For a worker to end by itself before it is killed."""

Propose = Callable[[Command], Awaitable[tuple[Position, Outcome]]]
RunWorker = Callable[[Incarnation, Propose, WorkerStats, Orders], Awaitable[None]]
"""Be a worker of this incarnation until cancelled; raises what ended it."""


class WorkerEndedError(Exception):
    """The worker is gone, or had to be ended; the sentence says why."""


class InLoop:
    """A worker's link to an agent in the same loop."""

    def __init__(self, log: MetadataLog, propose: Propose) -> None:
        self._log = log
        self._propose = propose

    async def propose(self, command: Command) -> tuple[Position, Outcome]:
        return await self._propose(command)

    async def snapshots(self) -> bytes:
        return await self._log.snapshots()

    async def voids(self) -> Sequence[VoidedEntry]:
        return await self._log.voids()

    async def head(self) -> Position:
        return await self._log.head()

    def tail(self, after: Position) -> AsyncGenerator[Sequence[LogEntry], None]:
        return self._log.tail(after)


def runner(
    *,
    settings: Settings,
    store: ObjectStore,
    log: MetadataLog,
    in_loop: bool,
    agent_bytes: Callable[[], int],
) -> RunWorker:
    """How an agent of these parts has its jobs run; it takes at most `agent_bytes` of memory itself.

    A worker in the agent's loop has no budget: it is for stores that are in memory themselves.
    """
    version = software_version()

    async def inside(
        incarnation: Incarnation, propose: Propose, stats: WorkerStats, orders: Orders
    ) -> None:
        # What jobs are made of is not needed in an agent's process otherwise.
        from broker.jobs.kinds.job_table import JOBS

        await Worker(
            InLoop(log, propose),
            store=store,
            settings=settings,
            incarnation=incarnation,
            jobs=JOBS,
            stats=stats,
            orders=orders,
        ).run()

    async def outside(
        incarnation: Incarnation, propose: Propose, stats: WorkerStats, orders: Orders
    ) -> None:
        agent = AgentMemory(resident_bytes(), agent_bytes())
        await WorkerProcess(
            log=log,
            settings=settings,
            incarnation=incarnation,
            software_version=version,
            propose=propose,
            stats=stats,
            budget=budget_of(settings.jobs_memory_bytes, memory_limits(), agent),
            orders=orders,
        ).run()

    return inside if in_loop else outside


class Spawn(Protocol):
    """How a worker process is started, with one end of the socket as its standard input."""

    async def __call__(self, stdin: int) -> asyncio.subprocess.Process: ...


async def spawn(stdin: int) -> asyncio.subprocess.Process:
    return await spawn_module("broker.jobs", stdin=stdin)


class WorkerProcess:
    """`run` is called once."""

    def __init__(
        self,
        *,
        log: MetadataLog,
        settings: Settings,
        incarnation: Incarnation,
        software_version: str,
        propose: Propose,
        stats: WorkerStats,
        budget: Budget | None = None,
        orders: Orders | None = None,
        spawn: Spawn = spawn,
    ) -> None:
        self._log = log
        self._settings = settings
        self._incarnation = incarnation
        self._software_version = software_version
        self._propose = propose
        self._stats = stats
        self._budget = budget
        self._orders = Orders() if orders is None else orders
        self._spawn = spawn
        self._frames = FrameReader()
        self._unanswered = 0
        self._proposals = 0
        self._gave_up = "the worker gave up for want of memory; its log lines say more"
        self._tails: dict[int, asyncio.Task[None]] = {}
        self._writer: asyncio.StreamWriter

    async def run(self) -> None:
        """Start the process and serve it until cancelled. Raises WorkerEndedError,
        WorkerMemoryError, and what `propose` raises for a worker that must not go on."""
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise _not_started(error) from error
        try:
            process = await self._spawn(theirs.fileno())
        except OSError as error:
            ours.close()
            raise _not_started(error) from error
        finally:
            theirs.close()
        self._tell_start(process.pid)
        reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        try:
            await self._serve(reader, process)
        finally:
            await self._end(process)

    def _tell_start(self, pid: int) -> None:
        told: dict[str, Any] = {"worker": pid}
        if self._budget is not None:
            self._stats.memory_bytes_max = self._budget.bytes
            told |= {"memory_bytes_max": self._budget.bytes, "memory": self._budget.origin}
        logger.info("the worker of the jobs was started", extra=told)

    async def _serve(
        self, reader: asyncio.StreamReader, process: asyncio.subprocess.Process
    ) -> None:
        hello = {
            "version": self._software_version,
            "incarnation": self._incarnation,
            "settings": settings_to_json(self._settings),
            "memory": self._budget,
            "rounds_in_ms": self._orders.rounds_in_ms,
        }
        self._send(json_frame(FrameType.HELLO, hello))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._ping())
                tasks.create_task(self._ask_for_last_archive())
                await self._receive(reader, tasks)
                was_killed = await self._end(process)
                assert process.returncode is not None
                if process.returncode == EXIT_CODE:
                    raise WorkerMemoryError(self._gave_up)
                raise WorkerEndedError(_how_it_ended(process.returncode, was_killed=was_killed))
        except BaseExceptionGroup as group:
            error = first_error(group)
        # Out here it does not become the context of the group that holds it.
        if isinstance(error, FrameError):
            raise WorkerEndedError(f"the worker sent something wrong: {error}")
        raise error

    async def _end(self, process: asyncio.subprocess.Process) -> bool:
        """It ends by itself when its socket does; what does not is killed. Was it?"""
        self._writer.transport.abort()
        try:
            async with asyncio.timeout(END_S):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            return True
        return False

    async def _receive(self, reader: asyncio.StreamReader, tasks: asyncio.TaskGroup) -> None:
        """Until the worker's end is closed."""
        while True:
            try:
                data = await reader.read(READ_BYTES)
            except ConnectionError:
                return
            if not data:
                return
            for received in self._frames.feed(data):
                self._take(received, tasks)

    def _take(self, received: Frame, tasks: asyncio.TaskGroup) -> None:
        match received.type:
            case FrameType.ASK:
                tasks.create_task(self._answer(json_of(received.body)))
            case FrameType.TAIL:
                self._begin_tail(json_of(received.body), tasks)
            case FrameType.TAIL_END:
                if (ended := self._tails.pop(ticket_of(json_of(received.body)), None)) is not None:
                    ended.cancel()
            case FrameType.PROPOSE:
                if self._proposals >= PROPOSALS_MAX:
                    raise FrameError(f"more than {PROPOSALS_MAX} proposals at a time")
                self._proposals += 1
                tasks.create_task(self._settle(*proposal_of(received.body)))
            case FrameType.PONG:
                self._unanswered = 0
            case FrameType.GAVE_UP:
                self._gave_up = str(json_of(received.body).get("reason"))
            case FrameType.STATUS:
                self._take_status(json_of(received.body))
            case FrameType.LAST_ARCHIVE_MADE:
                self._orders.last_archive.made()
            case _:
                raise FrameError(f"a worker does not send {received.type.name}")

    def _begin_tail(self, fields: dict[str, Any], tasks: asyncio.TaskGroup) -> None:
        after = fields.get("after")
        if not isinstance(after, int):
            raise FrameError("a tail from nowhere")
        if len(self._tails) >= TAILS_MAX:
            raise FrameError(f"more than {TAILS_MAX} tails at a time")
        relayed = tasks.create_task(self._relay(ticket_of(fields), Position(after)))
        self._tails[ticket_of(fields)] = relayed

    async def _answer(self, fields: dict[str, Any]) -> None:
        answer: dict[str, Any] = {"ticket": ticket_of(fields)}
        try:
            match fields.get("what"):
                case "snapshots":
                    answer["snapshots"] = (await self._log.snapshots()).decode()
                case "voids":
                    # Why, nobody there asks; and so there is room for all.
                    voids = [each._replace(reason="") for each in await self._log.voids()]
                    answer["voids"] = [encode_void(each).decode() for each in voids]
                case "head":
                    answer["head"] = await self._log.head()
                case what:
                    raise FrameError(f"a question about {what}")
        except LogError as error:
            answer |= error_fields(error)
        self._send(json_frame(FrameType.ANSWER, answer))

    async def _relay(self, ticket: int, after: Position) -> None:
        """The log's tail, as it lies there, no faster than the worker takes it."""
        try:
            async with aclosing(self._log.tail(after)) as batches:
                async for batch in batches:
                    for data in entries_frames(ticket, batch):
                        self._send(data)
                        with suppress(ConnectionError):  # `_receive` notices.
                            await self._writer.drain()
        except LogError as error:
            self._send(json_frame(FrameType.TAIL_BROKEN, {"ticket": ticket, **error_fields(error)}))

    async def _settle(self, ticket: int, command: Command) -> None:
        try:
            position, outcome = await self._propose(command)
        except JobStoppedError as stopped:
            not_done = {"ticket": ticket, "reason": str(stopped)}
            self._send(json_frame(FrameType.NOT_DONE, not_done))
        else:
            self._send(outcome_frame(ticket, position, outcome))
        finally:
            self._proposals -= 1

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(PING_S)
            if self._unanswered >= UNANSWERED_MAX:
                raise WorkerEndedError(
                    f"the worker has not answered for {self._unanswered * PING_S:.0f} s"
                )
            self._unanswered += 1
            self._send(frame(FrameType.PING))

    async def _ask_for_last_archive(self) -> None:
        through = await self._orders.last_archive.asked()
        self._send(json_frame(FrameType.LAST_ARCHIVE, {"through": through}))

    def _take_status(self, fields: dict[str, Any]) -> None:
        try:
            for name, numbers in fields["jobs"].items():
                self._stats.jobs[JobKind[name]] = JobStats(**numbers)
            self._stats.archive = ArchiveStats(**fields["archive"])
            self._stats.memory_bytes = int(fields["memory_bytes"])
            self._stats.replica.applied_position = Position(fields["position"])
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise FrameError(f"a status that cannot be read: {error}") from error

    def _send(self, data: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(data)


def _not_started(error: OSError) -> WorkerEndedError:
    return WorkerEndedError(f"the worker cannot be started: {error}")


def _how_it_ended(code: int, *, was_killed: bool) -> str:
    if was_killed:
        return "the worker broke off its connection, did not end, and was killed"
    if code == -signal.SIGKILL:
        return "the worker was killed (SIGKILL; by the kernel, perhaps, which was out of memory)"
    if code < 0:
        with suppress(ValueError):
            return f"the worker was ended by {signal.Signals(-code).name}"
    return f"the worker ended with exit code {code}; its log lines say why"
