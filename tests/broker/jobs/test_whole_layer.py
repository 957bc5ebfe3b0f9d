"""Whatever jobs do, and wherever they are stopped: what can be read is what a model of ten lines says.

Real planners, builders, apply and snapshots over a store in memory. Jobs are stopped, overtaken
and interrupted at any of their awaits; an old holder may go on without knowing that it is one.
In the end everything runs until nothing changes, and the bucket holds what is needed and no more.
"""

import random
from unittest import mock

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.jobs.kinds import collection_plan, compaction_plan, spill_plan
from coordinator.commands.entries import DeleteTopic, Pin, Unpin
from coordinator.commands.job_commands import DoomObjects, ForgetObjects, JobKind, ObjectsDoomed
from protocol.types import TopicId
from storage.formats.segment import parse_segment
from storage.formats.spans import ObjectId, ObjectKind, Span
from tests.broker.jobs.world import Event, Producer, Steps, World, Written

RETENTION_MS = 30_000
DELETE_RETENTION_MS = 5_000
TOPICS = {
    "events": {"retention.ms": str(RETENTION_MS)},
    "kept": {"retention.ms": "-1"},
    "table": {
        "cleanup.policy": "compact",
        "delete.retention.ms": str(DELETE_RETENTION_MS),
        "min.cleanable.dirty.ratio": "0",
    },
    "both": {
        "cleanup.policy": "compact,delete",
        "retention.ms": str(RETENTION_MS),
        "delete.retention.ms": str(DELETE_RETENTION_MS),
        "min.cleanable.dirty.ratio": "0.3",
    },
}
_KEYS = (b"k1", b"k2", b"k3", b"a key of more than sixteen bytes")
KEYS = st.sampled_from(_KEYS)
PAIRS = st.lists(
    st.tuples(KEYS, st.none() | st.binary(min_size=1, max_size=40)), min_size=1, max_size=4
)
NAMES = st.sampled_from(sorted(TOPICS))
KINDS = st.sampled_from(sorted(JobKind))
EVENTS = st.sampled_from(["produce", "trim", "take over", "end", "merge", "compact", "time"])


class WholeLayer(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patches = [
            mock.patch.multiple(spill_plan, ROWS_LEFT=2, PAGE_ROWS_MIN=3),
            mock.patch.multiple(compaction_plan, LITTLE_BYTES=0),
        ]
        for patch in self.patches:
            patch.start()
        self.world = World()
        self.places: dict[str, tuple[TopicId, int]] = {}
        self.starts: dict[tuple[TopicId, int], int] = {}
        self.producers: list[Producer] = []
        self.pinned: dict[str, frozenset[str]] = {}
        self.begun: dict[int, frozenset[str]] = {}

    @initialize(seed=st.integers(0, 1 << 32))
    def begin(self, seed: int) -> None:
        for name in TOPICS:
            self._create(name)
        self.producers = [self.world.producer(each) for each in ("p0", "p1")]
        self.burst(seed, 40)

    def _create(self, name: str) -> None:
        configs = {key.replace(".", "_"): text for key, text in TOPICS[name].items()}
        place = (self.world.topic(name, **configs), 0)
        self.places[name] = place
        self.starts[place] = 0

    # What clients do.

    @rule(names=st.sets(NAMES, min_size=1), pairs=PAIRS, codec=st.sampled_from([0, 0, 1]))
    def produce(self, names: set[str], pairs: list[tuple[bytes, bytes | None]], codec: int) -> None:
        places = sorted(self.places[name] for name in names)
        self.world.produce(*[(place, pairs) for place in places], codec=codec)

    @rule(seed=st.integers(0, 1 << 32), count=st.integers(5, 30))
    def burst(self, seed: int, count: int) -> None:
        """Much at once, so that jobs have something to do."""
        rng = random.Random(seed)
        for _ in range(count):
            pairs = [
                (rng.choice(_KEYS), rng.choice([None, rng.randbytes(rng.randrange(1, 200))]))
                for _ in range(rng.randrange(1, 5))
            ]
            names = rng.sample(sorted(TOPICS), rng.randrange(1, 4))
            match rng.randrange(8):
                case 0 | 1:
                    self.produce_in_transaction(rng.randrange(2), names[0], pairs)
                case 2:
                    self.end(rng.randrange(2), rng.random() < 0.5)
                case 3:
                    self.pass_time(rng.choice([300, 2_000]))
                case _:
                    self.produce(set(names), pairs, rng.choice([0, 1]))

    @rule(number=st.integers(0, 1), name=NAMES, pairs=PAIRS)
    def produce_in_transaction(
        self, number: int, name: str, pairs: list[tuple[bytes, bytes | None]]
    ) -> None:
        self.world.produce((self.places[name], pairs), producer=self.producers[number])

    @rule(number=st.integers(0, 1), commit=st.booleans())
    def end(self, number: int, commit: bool) -> None:
        self.world.end(self.producers[number], commit=commit)

    @rule(name=NAMES, share=st.integers(0, 10))
    def trim(self, name: str, share: int) -> None:
        place = self.places[name]
        partition = self.world.partition(place)
        assert partition is not None
        offset = partition.log_start + (partition.end_offset - partition.log_start) * share // 10
        self.world.trim(place, offset)
        self.starts[place] = max(self.starts[place], offset)

    @rule(ms=st.sampled_from([100, 1_500, 6_000, 20_000]))
    def pass_time(self, ms: int) -> None:
        self.world.pass_time(ms)

    @rule(name=NAMES)
    def delete_and_create(self, name: str) -> None:
        place = self.places[name]
        if len(self.world.written[place]) > 10:
            self.world.do(DeleteTopic(place[0]))
            self._create(name)

    @rule(name=st.sampled_from(["x", "y"]), lifetime_ms=st.sampled_from([3_000, 60_000]))
    def pin(self, name: str, lifetime_ms: int) -> None:
        if name not in self._alive():
            self.pinned[name] = self.world.referenced()
        self.world.do(Pin(name, lifetime_ms))

    @precondition(lambda self: self.pinned)
    @rule()
    def unpin(self) -> None:
        name, _ = self.pinned.popitem()
        self.world.do(Unpin(name))

    # What jobs do, and what is done to them.

    @rule(kind=KINDS)
    def job(self, kind: JobKind) -> None:
        assert self._run(kind, Steps())

    @rule(kind=KINDS, stop_at=st.integers(1, 60))
    def job_that_is_stopped(self, kind: JobKind, stop_at: int) -> None:
        self._run(kind, Steps(stop_at=stop_at))

    @rule(
        kind=KINDS,
        events=st.dictionaries(st.integers(1, 40), EVENTS, min_size=1, max_size=3),
        stays=st.booleans(),
    )
    def job_that_is_interrupted(self, kind: JobKind, events: dict[int, str], stays: bool) -> None:
        self._run(kind, Steps(events={at: self._event(e) for at, e in events.items()}), stays)

    @rule()
    def collection_that_wants_everything(self) -> None:
        """The log gives only what nobody needs."""
        world = self.world
        objects = tuple(world.objects()[:1000])
        (outcome,) = world.append(world.holder, DoomObjects(0, objects))
        assert isinstance(outcome, ObjectsDoomed)
        for object_id in outcome.objects:
            del world.store._objects[object_id.key]
        world.append(world.holder, ForgetObjects(outcome.objects))

    @rule()
    def take_over(self) -> None:
        self.world.take_over()

    @rule()
    def restart(self) -> None:
        self.world.restart()

    @rule()
    def purge(self) -> None:
        for _ in range(3):
            if (command := self.world.machine.next_purge()) is not None:
                self.world.do(command)

    def _event(self, name: str) -> Event:
        async def event() -> None:
            match name:
                case "produce":
                    self.produce(set(TOPICS), [(b"k1", b"meanwhile"), (b"k2", None)], 0)
                case "trim":
                    self.trim("kept", 5)
                    self.trim("table", 3)
                case "take over":
                    self.world.take_over()
                case "end":
                    self.end(0, commit=True)
                    self.end(1, commit=False)
                case "merge":
                    await self.world.job(JobKind.MERGE)
                case "compact":
                    await self.world.job(JobKind.COMPACT)
                case "time":
                    self.world.pass_time(3_000)

        return event

    def _run(self, kind: JobKind, steps: Steps, stays: bool = False) -> bool:
        machine = self.world.machine

        def note(_: object) -> None:
            begun = machine.snapshots.begun
            if begun is not None:
                self.begun.setdefault(begun.position, self.world.referenced())

        done = True

        async def job() -> None:
            nonlocal done
            done = await self.world.job(kind, steps=steps, stays=stays)

        self.world.on_applied.append(note)
        self.world.run(job())
        self.world.on_applied.remove(note)
        return done

    # What holds.

    @invariant()
    def what_can_be_read_is_what_was_written(self) -> None:
        self.world.run(self._check())

    async def _check(self) -> None:
        used: dict[ObjectId, int] = {}
        for place in self.world.written:
            partition = self.world.machine.partitions.find(*place)
            if partition is not None:
                for object_id, count in self.world.references(
                    await self.world.rows(partition)
                ).items():
                    used[object_id] = used.get(object_id, 0) + count
        for name, place in self.places.items():
            await self._check_place(name, place)
        self._check_objects(used)

    async def _check_place(self, name: str, place: tuple[TopicId, int]) -> None:
        world = self.world
        partition = world.partition(place)
        assert partition is not None
        self._check_start(name, place)
        stays = [each for each in world.written[place] if each.offset >= partition.log_start]
        ends = {each.offset: _state(each) for each in stays}
        read = await world.read(partition, committed=False)
        assert all(
            (record.key, record.value, record.timestamp) == ends[record.offset][:3]
            for record in read
        )
        visible = [each for each in stays if ends[each.offset][3] is not False]
        stable = [
            each for each in visible if each.offset < partition.last_stable and ends[each.offset][3]
        ]
        read_committed = [record.offset for record in await world.read(partition, committed=True)]
        offsets = [record.offset for record in read]
        assert offsets == sorted(set(offsets))
        if "compact" not in TOPICS[name].get("cleanup.policy", ""):
            assert read_committed == [each.offset for each in stable]
            assert {each.offset for each in visible} <= set(offsets)
            return
        self._check_compacted(stable, read_committed, clean_to=partition.clean_to)
        dirty = [each.offset for each in visible if each.offset >= partition.clean_to]
        assert set(dirty) <= set(offsets)

    def _check_compacted(self, stable: list[Written], read: list[int], *, clean_to: int) -> None:
        assert set(read) <= {each.offset for each in stable}
        newest = {each.key: each for each in stable}
        for each in newest.values():
            gone_ms = each.timestamp + DELETE_RETENTION_MS
            assert each.offset in read or (
                each.value is None and gone_ms <= self.world.machine.time_ms
            )
        keys = [each.key for each in stable if each.offset in read and each.offset < clean_to]
        assert len(set(keys)) == len(keys)

    def _check_start(self, name: str, place: tuple[TopicId, int]) -> None:
        """A log starts where clients or retention said."""
        partition = self.world.partition(place)
        assert partition is not None
        before, now = self.starts[place], partition.log_start
        assert before <= now
        if before < now:
            assert TOPICS[name].get("retention.ms") == str(RETENTION_MS)
            old_ms = self.world.machine.time_ms - RETENTION_MS
            gone = [each for each in self.world.written[place] if before <= each.offset < now]
            assert all(each.timestamp < old_ms for each in gone)
            self.starts[place] = now

    def _check_objects(self, used: dict[ObjectId, int]) -> None:
        """What somebody may need is there, and counted."""
        machine = self.world.machine
        there = self.world.store._objects
        for object_id in used:
            assert machine.object_length(object_id) == len(there[object_id.key])
        kinds = (ObjectKind.CHUNK, ObjectKind.SEGMENT)
        pointed_at = {
            object_id
            for object_id in self.world.objects()
            if object_id.kind in kinds and machine.objects.is_referenced(object_id)
        }
        assert pointed_at == set(used)
        for each in machine.objects.unreferenced():
            assert each.object_id.key in there
        for name in self._alive():
            assert self.pinned[name] <= there.keys()
        for published in machine.snapshots.published:
            assert published.key in there
            assert self.begun[published.position] <= there.keys()

    def _alive(self) -> list[str]:
        machine = self.world.machine
        alive = [row.name for row in machine.pins.alive(machine.time_ms)]
        return [name for name in alive if name in self.pinned]

    # When everything has run until nothing changes.

    def teardown(self) -> None:
        try:
            if self.places:
                self._run_until_quiet()
                self.what_can_be_read_is_what_was_written()
                self._check_quiet()
        finally:
            self.world.close()
            for patch in self.patches:
                patch.stop()

    def _run_until_quiet(self) -> None:
        for producer in self.producers:
            self.world.end(producer, commit=True)
        for name in ("x", "y"):
            self.world.do(Unpin(name))
        self.pinned.clear()
        before: object = None
        for _ in range(20):
            self.world.pass_time(10_000)
            for kind in (JobKind.RETENTION, JobKind.COMPACT, JobKind.MERGE, JobKind.SPILL):
                assert self._run(kind, Steps())
            self.purge()
            now = [self._shown(place) for place in self.world.written]
            if now == before and self.world.machine.next_purge() is None:
                break
            before = now
        else:
            raise AssertionError("there is no end of it")
        self.world.pass_time(1_000)
        for _ in range(2):
            # What a live writer has written and not committed, it may still commit, and only what
            # is older than all who live is nobody's.
            self.world.take_over()
            assert self._run(JobKind.SNAPSHOT, Steps())
        self.world.pass_time(collection_plan.SNAPSHOT_GRACE_MS)
        assert self._run(JobKind.COLLECT, Steps())

    def _shown(self, place: tuple[TopicId, int]) -> object:
        partition = self.world.machine.partitions.find(*place)
        return partition and partition.rows_from(0, 1000)

    def _check_quiet(self) -> None:
        world = self.world
        assert next(iter(world.machine.objects.unreferenced()), None) is None
        assert next(iter(world.machine.objects.doomed()), None) is None
        keys = {object_id.key for object_id in world.objects()}
        assert keys == world.referenced()
        assert not [key for key in keys if key.startswith("chunks/")]
        folders = {
            key.split("/")[1] for key in world.store._objects if key.startswith("snapshots/")
        }
        published = world.machine.snapshots.published
        assert folders == {f"{each.position:016x}" for each in published}
        stored = sum(
            span.length
            for key in keys
            if key.startswith("segments/")
            for span in parse_segment(world.store._objects[key]).spans
        )
        assert stored <= 1.1 * world.machine.partitions.data_bytes
        for place in self.places.values():
            partition = world.partition(place)
            assert partition is not None
            assert partition.row_count <= 20
            for index in range(partition.row_count):
                row = partition.row(index)
                assert not isinstance(row, Span) or row.object_id.kind is ObjectKind.SEGMENT


def _state(each: Written) -> tuple[bytes | None, bytes | None, int, bool | None]:
    committed = True if each.transaction is None else each.transaction.committed
    return each.key, each.value, each.timestamp, committed


TestWholeLayer = WholeLayer.TestCase
TestWholeLayer.settings = settings(
    max_examples=20,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
