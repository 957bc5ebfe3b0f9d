"""A cluster without agents: a machine, a store in memory, records, readers, and real jobs.

Commands go through the codec into one machine; jobs run over it as a worker would run them, and
may be stopped, overtaken or interrupted at each of their awaits (`Steps`). Readers read as
clients do: batches from the store, aborted transactions left out by what they are told.
"""

import asyncio
import contextlib
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Sequence,
)
from dataclasses import dataclass, field, replace
from typing import Any

from broker.config.kafka_settings import KafkaSettings
from broker.config.settings import Settings, load
from broker.config.topic_rules import TopicRules
from broker.jobs.kinds.collection_plan import PREFIXES
from broker.jobs.kinds.job_table import JOBS
from broker.jobs.worker.context import (
    JobContext,
    JobStats,
    JobStoppedError,
    ObjectNumbers,
    UndeletedObjects,
)
from coordinator.commands.codec import decode_entry, encode_entry
from coordinator.commands.entries import (
    ChunkCommitted,
    ChunkSpan,
    Close,
    Command,
    CommitChunk,
    CreateTopic,
    Entry,
    Opened,
    Outcome,
    Tick,
    TopicCreated,
)
from coordinator.commands.job_commands import ClaimJobs, JobKind, Trim, TrimLogs
from coordinator.commands.transaction_commands import (
    EndTransaction,
    InitProducer,
    ProducerInitialized,
)
from coordinator.log.metadata_log import LogEntry, VoidedEntry
from coordinator.machine.machine import Machine
from coordinator.replica import Applied
from coordinator.settings import FEATURE_LEVEL_MAX
from coordinator.snapshot.manifest import encode_published
from coordinator.snapshot.snapshot import dump, restore
from coordinator.tables.partition import Partition
from protocol import records
from protocol.errors import ErrorCode
from protocol.records import Record, build_batch
from protocol.types import ERA, INCARNATION_NONE, Incarnation, Position, TopicId, position
from storage.formats.batches import Batches
from storage.formats.cluster_identity import ClusterIdentity, claim_store
from storage.formats.log_checkpoint import LogCheckpoint
from storage.formats.page import decode_rows
from storage.formats.spans import Item, Marker, ObjectId, Page, Span
from storage.stores.memory import MemoryStore
from tests.coordinator.machine.story import opening
from tests.kit.faults import FaultyStore
from txn.transactions import OF_EPOCH

Event = Callable[[], Awaitable[None]]
Place = tuple[TopicId, int]

SETTINGS = replace(
    load(
        defaults={"cluster.id": "jobs", "store": "memory://", "log": "memory://"},
        toml=None,
        environ={},
        flags=(),
    ).settings,
    merge_age_ms=1_000,
    segment_bytes_max=4_000,
    spill_age_ms=1_000,
    spill_rows=0,
)


@dataclass(eq=False)
class Transaction:
    """Of one producer; its end is known when it has one."""

    committed: bool | None = None


@dataclass
class Written:
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    transaction: Transaction | None = None


@dataclass
class Producer:
    transactional_id: str
    producer_id: int
    epoch: int
    sequences: dict[Place, int] = field(default_factory=dict)
    transaction: Transaction | None = None

    def next(self, place: Place, count: int) -> tuple[int, int, int]:
        """Id, epoch and first sequence of its next records there."""
        sequence = self.sequences.get(place, 0)
        self.sequences[place] = sequence + count
        return self.producer_id, self.epoch, sequence


class Steps:
    """Where a job may be stopped, and what happens meanwhile: by number of its await."""

    def __init__(self, *, stop_at: int = -1, events: dict[int, Event] | None = None) -> None:
        self.count = 0
        self.stop_at = stop_at
        self.events = events or {}

    async def step(self, *_arguments: object) -> None:
        await asyncio.sleep(0)
        self.count += 1
        if (event := self.events.pop(self.count, None)) is not None:
            await event()
        if self.count == self.stop_at:
            raise JobStoppedError("the worker was killed")


def stepped(store: MemoryStore, steps: Steps) -> FaultyStore:
    """The store as a job sees it: a step before each call, and another when it changed something."""
    seen = FaultyStore(store)
    seen.before["*"] = seen.after["put_new"] = seen.after["delete"] = steps.step
    return seen


class WorldLog:
    """What was appended, as the log has it."""

    def __init__(self, world: "World") -> None:
        self._world = world

    async def snapshots(self) -> bytes:
        return encode_published(self._world.machine.snapshots.published)

    async def voids(self) -> list[VoidedEntry]:
        return []

    async def tail(self, after: Position) -> AsyncGenerator[list[LogEntry], None]:
        yield [logged for logged in self._world.logged if logged.position > after]


class World:
    """Two agents, of which one holds the jobs; both write and keep the time."""

    def __init__(self, settings: Settings = SETTINGS, *, level: int = FEATURE_LEVEL_MAX) -> None:
        self.level = level
        self.settings = settings
        self.runner = asyncio.Runner()
        self.clock_ms = 1_000_000
        self.store = MemoryStore(lambda: self.clock_ms)
        self.runner.run(claim_store(self.store, ClusterIdentity(settings.cluster_id, ERA)))
        self.machine = Machine()
        self.kept = UndeletedObjects()
        self.stats = {kind: JobStats() for kind in JobKind}
        self.revision = 0
        self.logged: list[LogEntry] = []
        self.chunks: dict[Incarnation, int] = {}
        self.written: dict[Place, list[Written]] = {}
        self.on_applied: list[Callable[[Applied], None]] = []
        self.agents = [self._open("a"), self._open("b")]
        self.claim(self.agents[0])

    def close(self) -> None:
        self.runner.close()

    def run(self, job: Coroutine[Any, Any, None]) -> None:
        self.runner.run(job)

    # The log.

    def append(self, incarnation: Incarnation, *commands: Command) -> tuple[Outcome, ...]:
        row = self.machine.incarnations.get(incarnation)
        n = 0 if incarnation == INCARNATION_NONE else row.last_n + 1 if row is not None else 99
        payload = encode_entry(Entry(incarnation, n, self.clock_ms, commands))
        entry = decode_entry(payload)
        self.revision += 2
        place = position(1, self.revision)
        self.logged.append(LogEntry(place, 0, n, payload))
        outcomes = self.machine.apply(place, entry)
        for callback in tuple(self.on_applied):
            callback(Applied(place, incarnation, entry, outcomes))
        return outcomes

    def do(self, command: Command, agent: int = 0) -> Outcome:
        (outcome,) = self.append(self.agents[agent], command)
        return outcome

    def _open(self, name: str) -> Incarnation:
        (outcome,) = self.append(INCARNATION_NONE, opening(name, level=self.level))
        assert isinstance(outcome, Opened)
        incarnation = outcome.incarnation
        self.chunks[incarnation] = 0
        checkpoint = LogCheckpoint(incarnation, Position(incarnation))
        self._there(checkpoint.key, checkpoint.encode(cluster_id="jobs"))
        return incarnation

    def pass_time(self, ms: int) -> None:
        self.clock_ms += ms
        for agent in range(len(self.agents)):
            self.do(Tick(), agent)

    def claim(self, incarnation: Incarnation) -> None:
        self.append(incarnation, ClaimJobs(tuple(JobKind)))

    def set_kafka(self, **changes: object) -> None:
        """Other settings of Kafka from now on."""
        self.settings = replace(self.settings, kafka=replace(self.settings.kafka, **changes))

    @property
    def kafka(self) -> KafkaSettings:
        """For the rules of topics: those that hold now."""
        return self.settings.kafka

    @property
    def holder(self) -> Incarnation:
        return self.machine.jobs.get(JobKind.MERGE).holder

    def take_over(self) -> None:
        """The agent with the jobs dies; the other one gets them, and it comes back."""
        dead = self.agents.index(self.holder)
        row = self.machine.incarnations.get(self.agents[dead])
        assert row is not None
        other = self.agents[1 - dead]
        self.append(other, Close(self.agents[dead], row.last_n))
        self.claim(other)
        self.agents[dead] = self._open("ab"[dead])

    def restart(self) -> None:
        """Everybody begins with a snapshot of this very position."""
        machine = Machine()
        restore(machine, dump(self.machine))
        assert machine.digest() == self.machine.digest()
        assert dump(machine) == dump(self.machine)
        self.machine = machine

    # Records.

    def topic(self, name: str, partitions: int = 1, **configs: str) -> TopicId:
        pairs = tuple(sorted((key.replace("_", "."), text) for key, text in configs.items()))
        outcome = self.do(CreateTopic(name, partitions, pairs))
        assert isinstance(outcome, TopicCreated)
        for index in range(partitions):
            self.written[outcome.topic_id, index] = []
        return outcome.topic_id

    def place(self, name: str, **configs: str) -> Place:
        """The only partition of a new topic."""
        return self.topic(name, **configs), 0

    def producer(self, transactional_id: str) -> Producer:
        outcome = self.do(InitProducer(transactional_id, 1000, -1, -1))
        assert isinstance(outcome, ProducerInitialized)
        return Producer(transactional_id, outcome.producer_id, outcome.producer_epoch)

    def produce(
        self,
        *batches: tuple[Place, Sequence[tuple[bytes | None, bytes | None]]],
        producer: Producer | None = None,
        agent: int = 0,
        timestamp: int | None = None,
        codec: int = 0,
    ) -> None:
        """One chunk with a batch for each place; the places ascend."""
        stamp = self.clock_ms if timestamp is None else timestamp
        spans: list[ChunkSpan] = []
        parts: list[bytes] = []
        start = 0
        for place, pairs in batches:
            of = () if producer is None else producer.next(place, len(pairs))
            data = build_batch(
                [Record(-1, stamp, key, value) for key, value in pairs],
                codec=codec,
                attributes=records.TRANSACTIONAL if of else 0,
                **dict(zip(("producer_id", "producer_epoch", "base_sequence"), of, strict=False)),
            )
            item = Item(0, len(data), len(pairs), stamp, *of, *([OF_EPOCH] if of else []))
            spans.append(ChunkSpan(*place, start, (item,)))
            parts.append(data)
            start += len(data)
        outcome = self._commit(agent, b"".join(parts), tuple(spans))
        if producer is not None and producer.transaction is None:
            producer.transaction = Transaction()
        transaction = None if producer is None else producer.transaction
        for (place, pairs), result in zip(batches, outcome.results, strict=True):
            if place in self.written and self.partition(place) is not None:
                assert result.error is ErrorCode.NONE
                self.written[place] += [
                    Written(result.base_offset + index, key, value, stamp, transaction)
                    for index, (key, value) in enumerate(pairs)
                ]

    def fill(self, place: Place, count: int, *, size: int = 20) -> list[bytes]:
        """So many chunks with a record of the same key; their values."""
        written = [b"%04d" % number + bytes(size) for number in range(count)]
        for value in written:
            self.produce((place, [(b"key", value)]))
        return written

    def cycle(self, place: Place, count: int, *, keys: int) -> None:
        """So many chunks with a record each: the numbers, of so many keys in turn."""
        for number in range(count):
            self.produce((place, [(b"k%d" % (number % keys), b"%d" % number)]))

    def produce_batch(self, place: Place, data: bytes, *, newest: int) -> None:
        """A chunk with this very batch, of no producer; its row says so of the newest record."""
        count = records.read_header(data).last_offset_delta + 1
        self._commit(0, data, (ChunkSpan(*place, 0, (Item(0, len(data), count, newest),)),))

    def _commit(self, agent: int, data: bytes, spans: tuple[ChunkSpan, ...]) -> ChunkCommitted:
        """The agent's next chunk, as if it had been put: its writing is not what is tested here."""
        incarnation = self.agents[agent]
        number = self.chunks[incarnation]
        self.chunks[incarnation] += 1
        self._there(ObjectId(incarnation, number).key, data)
        outcome = self.do(CommitChunk(number, len(data), spans), agent)
        assert isinstance(outcome, ChunkCommitted)
        return outcome

    def _there(self, key: str, data: bytes) -> None:
        """An object. Not by a call: agents begin in the middle of jobs, too, while the loop runs."""
        self.store._objects[key] = data
        self.store._modified_ms[key] = self.clock_ms

    def end(self, producer: Producer, *, commit: bool) -> None:
        if producer.transaction is None:
            return
        command = EndTransaction(
            producer.transactional_id, producer.producer_id, producer.epoch, commit, None
        )
        self.do(command)
        producer.transaction.committed = commit
        producer.transaction = None
        producer.epoch += 1
        producer.sequences.clear()

    def trim(self, place: Place, offset: int) -> None:
        self.do(TrimLogs((Trim(*place, offset),)))

    def partition(self, place: Place) -> Partition | None:
        return self.machine.partitions.get(*place)

    def row(self, place: Place) -> Partition:
        partition = self.partition(place)
        assert partition is not None
        return partition

    def keys(self, prefix: str) -> list[str]:
        """Of all objects that begin so."""
        return sorted(key for key in self.store._objects if key.startswith(prefix))

    # Jobs.

    def round(
        self, kind: JobKind, steps: Steps | None = None, *, after_ms: int = 0, **more: bool
    ) -> bool:
        """As `job`, to its end, when this time has passed."""
        if after_ms:
            self.pass_time(after_ms)
        return self.runner.run(self.job(kind, steps=steps, **more))

    def snapshots(self, count: int) -> None:
        for _ in range(count):
            assert self.round(JobKind.SNAPSHOT)

    def purge(self) -> None:
        """What deleted topics had is let go, as far as that goes without jobs."""
        while (command := self.machine.next_purge()) is not None:
            self.do(command)

    async def job(
        self,
        kind: JobKind,
        *,
        steps: Steps | None = None,
        stays: bool = False,
        requested: bool = True,
    ) -> bool:
        """One round by whoever holds the job; False when it was stopped. `stays`: it goes on
        after it has lost the claim, as one that does not know."""
        steps = Steps() if steps is None else steps
        incarnation = self.holder

        async def propose(command: Command) -> Outcome:
            await steps.step()
            if self.machine.incarnations.get(incarnation) is None and not stays:
                raise JobStoppedError("the incarnation is over")
            (outcome,) = self.append(incarnation, command)
            await steps.step()
            if self.holder != incarnation and not stays:
                raise JobStoppedError("the claim is gone")
            return outcome

        def register(callback: Callable[[Applied], None]) -> Callable[[], None]:
            self.on_applied.append(callback)
            return lambda: self.on_applied.remove(callback)

        async def pace(_length: int) -> None:
            await steps.step()

        context = JobContext(
            kind,
            machine=self.machine,
            log=WorldLog(self),
            store=stepped(self.store, steps),
            settings=self.settings,
            rules=TopicRules(self),
            incarnation=incarnation,
            propose=propose,
            on_applied=register,
            numbers=ObjectNumbers(self.machine, incarnation),
            kept=self.kept,
            stats=self.stats[kind],
            pace=pace,
            requested=requested,
            now_ms=lambda: self.clock_ms,
        )
        stopped = False
        try:
            await JOBS[kind](context)
        except* JobStoppedError:
            stopped = True
        return not stopped

    # Readers.

    async def rows(self, partition: Partition) -> list[Span | Marker]:
        """All of them, in memory and in pages."""
        found: list[Span | Marker] = []
        for index in range(partition.row_count):
            row = partition.row(index)
            if not isinstance(row, Page):
                found.append(row)
                continue
            body = await self.store.get_range(row.object_id.key, row.start, row.length)
            inside = decode_rows(body, base_offset=row.base_offset, next_offset=row.next_offset)
            assert len(inside) == row.rows
            found.extend(inside)
        return found

    async def batches(self, partition: Partition) -> list[memoryview]:
        """What a client is sent from the log start on."""
        found: list[memoryview] = []
        for row in await self.rows(partition):
            if row.next_offset <= partition.log_start:
                continue
            if isinstance(row, Marker):
                found.append(Batches.of_marker(row).view())
                continue
            data = await self.store.get_range(row.object_id.key, row.start, row.length)
            view = Batches.checked(row, memoryview(bytes(data))).view()
            at = 0
            while at < len(view):
                end = at + records.read_header(view, at).size
                found.append(view[at:end])
                at = end
        return found

    async def read(self, partition: Partition, *, committed: bool) -> list[Record]:
        """The records that a consumer hands to its user, in order."""
        aborted = partition.aborted(partition.log_start, partition.last_stable)
        active: set[int] = set()
        found: list[Record] = []
        last = -1
        for batch in await self.batches(partition):
            header = records.read_header(batch)
            assert header.base_offset > last, "batches that do not ascend"
            last = header.last_offset
            if committed and header.last_offset >= partition.last_stable:
                break
            while committed and aborted and aborted[0].first_offset <= header.last_offset:
                active.add(aborted.pop(0).producer_id)
            if header.is_control:
                (control,) = records.iterate(batch)
                assert control.key is not None
                if control.key[3] == records.CONTROL_ABORT:
                    active.discard(header.producer_id)
                continue
            if header.is_transactional and header.producer_id in active:
                continue
            found += [
                record for record in records.iterate(batch) if record.offset >= partition.log_start
            ]
        return found

    def records(self, place: Place, *, committed: bool = True) -> list[Record]:
        return self.runner.run(self.read(self.row(place), committed=committed))

    def values(self, place: Place, *, committed: bool = True) -> list[bytes | None]:
        return [record.value for record in self.records(place, committed=committed)]

    # What there must be.

    def references(self, rows: Iterable[Span | Marker]) -> dict[ObjectId, int]:
        found: dict[ObjectId, int] = {}
        for row in rows:
            if isinstance(row, Span):
                found[row.object_id] = found.get(row.object_id, 0) + 1
        return found

    def referenced(self) -> frozenset[str]:
        """Keys of all objects that something points at."""
        return frozenset(
            object_id.key
            for object_id in self.objects()
            if self.machine.objects.is_referenced(object_id)
        )

    def objects(self) -> list[ObjectId]:
        """Chunks, segments and index objects in the store."""
        return [ObjectId.of_key(key) for key in self.store._objects if key.startswith(PREFIXES)]


@contextlib.contextmanager
def opened(*, level: int = FEATURE_LEVEL_MAX, **changed: int) -> Iterator[World]:
    """One with other settings."""
    world = World(replace(SETTINGS, **changed), level=level)
    try:
        yield world
    finally:
        world.close()
