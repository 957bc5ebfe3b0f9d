"""Everything that a job may use: the machine, the store, and a way to propose.

A job is a module with `async def run(context: JobContext) -> None`: one round, which ends when
there is nothing to do now. It may be stopped at any await, by JobStoppedError or by cancellation,
and then nothing is lost but work: what it proposed is checked again by apply, and objects that no
command has named are collected. Rounds of different kinds run beside each other over the same
machine; of one kind there is one at a time.

Time is `machine.time_ms`; what goes by the time that people write into records also waits for the wall
clock (`time_ms`). Errors of the store: what may succeed later is
repeated in here, for ever; ObjectNotFoundError (plan again), ObjectExistsError (take the next
number) and StoreRefusedError are the job's.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from broker.cluster.refusals import Refusals
from broker.config.settings import Settings
from broker.config.topic_rules import TopicRules
from broker.jobs.worker.memory import WorkerMemory
from broker.jobs.worker.pipe_frames import WORKER_COMMANDS
from coordinator.commands.entries import Command, Outcome
from coordinator.commands.job_commands import JobKind, ReportJob
from coordinator.machine.machine import Machine
from coordinator.replay import LogReader
from coordinator.replica import Applied
from protocol.types import ERA, Buffer, Incarnation
from storage.formats.cluster_identity import ClusterIdentity
from storage.formats.spans import ObjectId, ObjectKind
from storage.stores.counted import CountedStore, StoreCalls
from storage.stores.object_store import ObjectStore
from storage.stores.retry import until_done
from storage.stores.retry_policy import RetryPolicy

T = TypeVar("T")

logger = logging.getLogger(__name__)

REPORT_SECONDS: Final = 5.0
NOTE_MAX: Final = 240
"""Characters; apply takes a few more."""
RETRY: Final = RetryPolicy(longest_s=10.0)
"""Nobody waits for a job, and a store in trouble need not hear of it."""
REFUSED_MAX: Final = 10_000
KEYS_PER_CALL: Final = 1000


class JobStoppedError(Exception):
    """The claim or the session is gone, or the agent is leaving. What was proposed last may or
    may not have happened; whoever holds the job next finds out by looking at the machine."""


@dataclass(slots=True)
class JobStats(StoreCalls):
    """Of one kind of job, since the worker started; with what it asked of the store."""

    runs: int = 0
    failures: int = 0
    """Rounds that ended by an error of the store, or one that nobody foresaw."""
    seconds: float = 0.0
    commands: int = 0
    refused: int = 0
    """Objects that the store refused to delete when they were last tried."""


class ObjectNumbers:
    """Draws the numbers of new objects: upwards, for each kind, from behind what is committed.

    Numbers that an earlier worker of the incarnation used for objects that were never committed
    are met again; putting other bytes there raises ObjectExistsError, and the next one is taken.
    """

    def __init__(self, machine: Machine, incarnation: Incarnation) -> None:
        self._machine = machine
        self._incarnation = incarnation
        self._drawn: dict[ObjectKind, int] = {}
        self.committing = {kind: asyncio.Lock() for kind in ObjectKind}

    def next(self, kind: ObjectKind) -> ObjectId:
        row = self._machine.incarnations.get(self._incarnation)
        if row is None:
            raise JobStoppedError("the incarnation is over")
        assert kind is not ObjectKind.CHUNK, "jobs write no chunks"
        number = max(row.newest(kind), self._drawn.get(kind, -1)) + 1
        self._drawn[kind] = number
        return ObjectId(self._incarnation, number, kind)


class UndeletedObjects:
    """The objects that the store refused to delete, as one worker knows them."""

    def __init__(self) -> None:
        self.refusals = Refusals()
        self.left_alone: set[str] = set()
        """Keys that come up in every round: at most REFUSED_MAX of them wait."""
        self.objects: set[str] = set()
        """Keys of objects that the log has forgotten, so nothing else brings them up: as many."""


class Proposing(Protocol):
    async def __call__(self, command: Command) -> Outcome:
        """See `JobContext.propose`."""
        ...


class JobContext:
    """One kind of job's view of the worker."""

    def __init__(
        self,
        kind: JobKind,
        *,
        machine: Machine,
        log: LogReader,
        store: ObjectStore,
        settings: Settings,
        rules: TopicRules,
        incarnation: Incarnation,
        propose: Proposing,
        on_applied: Callable[[Callable[[Applied], None]], Callable[[], None]],
        numbers: ObjectNumbers | None = None,
        kept: UndeletedObjects | None = None,
        pace: Callable[[int], Awaitable[None]] | None = None,
        send_report: Callable[[ReportJob], None] | None = None,
        stats: JobStats | None = None,
        memory: WorkerMemory | None = None,
        requested: bool = False,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        """`now_ms`: the wall clock. `on_applied` registers a callback and returns what takes it off again; `pace` is
        awaited with the bytes of every read and put, `send_report` proposes without waiting."""
        self.kind = kind
        self.cluster = ClusterIdentity(settings.cluster_id, ERA)
        self.machine = machine
        """The worker's own replica. It may be behind what other agents have seen."""
        self.log = log
        """To be read once more."""
        self.stats = JobStats() if stats is None else stats
        self.store: ObjectStore = CountedStore(store, self.stats)
        """For listing; bytes go by `put` and `read`, which are paced."""
        self.settings = settings
        self.rules = rules
        self.incarnation = incarnation
        self.memory = WorkerMemory() if memory is None else memory
        """To be asked before much of it is taken."""
        self.requested = requested
        """Somebody asked for this round: look at everything."""
        self._now_ms = now_ms
        self._propose = propose
        self._on_applied = on_applied
        self._numbers = ObjectNumbers(machine, incarnation) if numbers is None else numbers
        self._kept = UndeletedObjects() if kept is None else kept
        self._pace = pace
        self._send_report = send_report
        self._reported_s = float("-inf")
        self._progress: tuple[int, int, str] | None = None
        self._said = False
        """Something of this round is in the log."""

    def time_ms(self) -> int:
        """The machine's time, but not later than the wall clock's.

        The machine's never goes back: where the only clock was ahead for a moment (an embedded agent's, whose store
        has the same one), records that are written afterwards would be too old as soon as they come.
        """
        time_ms = self.machine.time_ms
        return time_ms if self._now_ms is None else min(time_ms, self._now_ms())

    async def propose(self, command: Command) -> Outcome:
        """Put `command` into the log; what apply said, once this machine has applied it.

        Raises JobStoppedError when that will not be known here: the job ends.
        """
        assert isinstance(command, WORKER_COMMANDS), "its agent would not take it"
        self.stats.commands += 1
        self._said = True
        return await self._propose(command)

    def on_applied(self, callback: Callable[[Applied], None]) -> Callable[[], None]:
        """Call `callback` synchronously after every entry, the machine being at its position.
        Call what is returned to have no more of it."""
        return self._on_applied(callback)

    def committing(self, kind: ObjectKind) -> asyncio.Lock:
        """To be held from the drawing of a number until its object is committed: apply refuses
        numbers below the newest, and several jobs write segments."""
        return self._numbers.committing[kind]

    def next_object_id(self, kind: ObjectKind) -> ObjectId:
        """The name of a new segment or index object, never given out before by this worker."""
        return self._numbers.next(kind)

    async def put(self, place: ObjectId | str, parts: Sequence[Buffer]) -> None:
        """Return when the object is durable. Raises ObjectExistsError, StoreRefusedError."""
        key = _key(place)
        length = sum([memoryview(part).nbytes for part in parts])
        await self.pace(length)
        await _until_answered(lambda: self.store.put_new(key, parts), length)

    async def read(
        self, place: ObjectId | str, start: int = 0, length: int | None = None
    ) -> Buffer:
        """Bytes [start, start + length) of an object, or all of it without a length.

        Raises ObjectNotFoundError, StoreRefusedError (it is shorter than that).
        """
        key = _key(place)
        if length is None:
            assert start == 0
            data = await _until_answered(lambda: self.store.get(key))
            # Nobody knew how long it is; whoever reads next waits for that.
            await self.pace(len(data))
        else:
            await self.pace(length)
            data = await _until_answered(lambda: self.store.get_range(key, start, length), length)
        return data

    async def delete(self, keys: Sequence[str]) -> list[str]:
        """Delete objects; what the store refuses is told, counted, and answered."""
        refused = await self.store.delete(keys)
        self.stats.refused += len(refused)
        for sentence in self._kept.refusals.news(refused):
            logger.warning("%s (tried again hourly, and by frazil job run collect)", sentence)
        # Who looks at the job is to see it.
        self._said |= bool(refused)
        return [each.key for each in refused]

    async def delete_leftovers(self, keys: Iterable[str]) -> None:
        """Delete what comes up in every round, but leave alone what was refused before."""
        left_alone = self._kept.left_alone
        if wanted := [key for key in keys if key not in left_alone]:
            refused = await self.delete(wanted)
            left_alone.update(refused[: REFUSED_MAX - len(left_alone)])

    async def delete_objects(self, keys: Sequence[str]) -> None:
        """Delete objects that the log forgets next, or has forgotten."""
        refused = await self.delete(keys)
        self._kept.objects.update(refused[: REFUSED_MAX - len(self._kept.objects)])

    async def try_refused_again(self) -> None:
        """This round meets everything that was refused, and counts it anew."""
        self.stats.refused = 0
        self._kept.left_alone.clear()
        again, self._kept.objects = sorted(self._kept.objects), set()
        for first in range(0, len(again), KEYS_PER_CALL):
            await self.delete_objects(again[first : first + KEYS_PER_CALL])

    async def pace(self, length: int) -> None:
        """Wait until so many bytes may be moved."""
        if self._pace is not None:
            await self._pace(length)

    def report(self, done: int, total: int, note: str) -> None:
        """Say how far the round is; call it as often as you like. `total` 0: not known."""
        note = note[:NOTE_MAX]
        self._progress = (done, total, note)
        now_s = asyncio.get_running_loop().time()
        if self._send_report is not None and now_s - self._reported_s >= REPORT_SECONDS:
            # A round that is over at once need not be told of.
            if self._reported_s > float("-inf"):
                self._said = True
                self._send_report(ReportJob(self.kind, done, total, running=True, note=note))
            self._reported_s = now_s

    def last_report(self, *, failure: str | None) -> ReportJob | None:
        """What to say when the round is over; nothing when nobody asked, nothing was done and
        nothing failed."""
        if not self._said and not self.requested and failure is None:
            return None
        done, total, note = self._progress or (0, 0, "")
        if failure is not None:
            note = f"failed: {failure}"[:NOTE_MAX]
        return ReportJob(self.kind, done, total, running=False, note=note)


async def _until_answered(call: Callable[[], Awaitable[T]], byte_count: int = 0) -> T:
    """Make a call on the store, which may move so many bytes, until it is answered."""
    return await until_done(call, RETRY, byte_count=byte_count, tell=_tell)


def _tell(error: Exception, _failures: int) -> None:
    logger.info("a call on the object store is made again: %s", error)


def _key(place: ObjectId | str) -> str:
    return place if isinstance(place, str) else place.key
