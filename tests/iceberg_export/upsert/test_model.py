"""Random life of a topic and its table of mode upsert, against the fold of the committed records.

As `test_model` for appends: producers write few keys again and again, tombstones and records
without keys between; transactions end this way or that; log compaction and retention shorten the
log; exports run, die, lose answers and meet others at any step; others delete, rewrite, expire and
roll back; operators reset and maintain. After every step the table must be what the committed
records before its state's offsets fold to, but for those that its history cannot know
(`unknown`): what deletes and resets took out, and what the log had lost before an export came by.
Keys that lie in both partitions go by timestamps; of them alone a deleted one may come back.
"""

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import BinaryType

from iceberg_export.dead_letters.dead_letter_table import dead_letter_identifier
from iceberg_export.errors import FencedError, OvertakenError, StateError
from iceberg_export.runs.job import export_topic
from iceberg_export.steps import Step
from iceberg_export.table.catalog import view_of
from iceberg_export.table.state import read_state
from iceberg_export.upkeep.compact import CLOSED_MS, compact
from iceberg_export.upkeep.maintain import delete_orphans
from iceberg_export.upkeep.reset import reset_offsets
from iceberg_export.verify.upsert import verify_upsert
from protocol.records import Record, build_batch, empty_batch
from protocol.types import Incarnation
from storage.formats.spans import ObjectId, ObjectKind
from tests.iceberg_export.direct import TABLE, Place
from tests.iceberg_export.hooks import Killed, Once
from tests.iceberg_export.strangers import delete_key, scan_of, scatter
from tests.iceberg_export.world import InTransaction

PARTITIONS = st.integers(0, 1)
CHOICES = st.integers(0, 7)
FAR = 1 << 50
"""A time at which every file is old."""
SINCE_MS = 1_700_000_000_000
BUCKETS = 2
SOME = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"c", b"both-0", b"both-1", None]), st.booleans()),
    min_size=1,
    max_size=4,
)
"""Records to produce: (key, whether it has a value)."""


class UpsertLife(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        shared = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else None))
        self.place = Place(self.folder)
        by = f"bucket({BUCKETS}, kafka_key)"
        self.place.world.configs["orders"] = {"mode": "upsert", "partition.by": by}
        self.logs = self.place.world.topics["orders"][1]
        self.written = {}
        """Every record that ever was in the log, by (partition, offset)."""
        self.dropped = set()
        """Those that log compaction and retention have taken."""
        self.unknown = {}
        """By snapshot: those that its table's history does not know."""
        self.touched = False
        """The table is not what the log alone makes of it."""

    def teardown(self):
        try:
            self.export()
            self.check()
            ends = {p: log.stable for p, log in enumerate(self.logs)}
            assert {**dict.fromkeys(ends, 0), **self.place.state().offsets} == ends
            self.check_letters()
            if not self.touched:
                job = self.place.job()
                assert verify_upsert(job, self.place.topic(job)).problems == ()
        finally:
            self.place.close()
            shutil.rmtree(self.folder)

    # What others know of the table.

    def has_head(self):
        exists = self.place.catalog.table_exists(TABLE)
        return exists and self.place.table().current_snapshot() is not None

    def head_id(self):
        return self.place.table().metadata.current_snapshot_id

    def observe(self):
        """Snapshots that are new know what those before them knew; the first, what the log has."""
        for one in self.place.table().metadata.snapshots:
            if one.snapshot_id not in self.unknown:
                before = self.unknown.get(one.parent_snapshot_id, frozenset(self.dropped))
                self.unknown[one.snapshot_id] = before

    def committed(self):
        """Places of all records that are committed, also those that the log has no more."""
        there = {(p, one.offset) for p, log in enumerate(self.logs) for one in log.records}
        return there | self.dropped

    def last(self):
        """By key and partition: the place of the last record that the head's table knows of."""
        offsets = self.place.state().offsets
        found = {}
        for partition, offset in sorted(self.committed() - self.unknown[self.head_id()]):
            key = self.written[partition, offset].key
            if offset < offsets.get(partition, 0) and key is not None:
                found.setdefault(key, {})[partition] = (partition, offset)
        return found

    def rows(self):
        """By key the place of its row, of which there must not be two, each in its bucket."""
        bucket = BucketTransform(BUCKETS).transform(BinaryType())
        table = self.place.table()
        found = {}
        for task in table.scan().plan_files():
            for row in scan_of(table).to_table([task]).to_pylist():
                key, place = row["kafka_key"], (row["kafka_partition"], row["kafka_offset"])
                assert (key, row["value"]) == self.written[place][2:4]
                assert task.file.partition[0] == bucket(key)
                assert key not in found
                found[key] = place
        return found

    def check(self):
        if not self.has_head():
            return
        self.observe()
        try:
            read_state(view_of(self.place.table()))
        except StateError:
            self.reset(None)  # The operator's cure for a rollback behind all that is known.
        last, rows = self.last(), self.rows()
        for key in last.keys() | rows.keys():
            assert rows.get(key) in self.allowed(list(last.get(key, {}).values()))

    def allowed(self, places):
        """What row a key may have, of its last records in each partition."""
        living = [place for place in places if self.written[place].value is not None]
        if len(places) > 1 and len(living) < len(places):
            return {None, *living}
        newest = max(living, key=lambda place: self.written[place].timestamp, default=None)
        return {newest}

    def check_letters(self):
        """Records without keys are there once; those that the log dropped may be missing."""
        table = self.place.catalog.load_table(dead_letter_identifier(TABLE)).scan().to_arrow()
        columns = ("kafka_partition", "kafka_offset")
        places = list(zip(*(table[one].to_pylist() for one in columns), strict=True))
        ends = self.place.state().offsets
        keyless = {
            place
            for place in self.committed()
            if self.written[place].key is None and place[1] < ends.get(place[0], 0)
        }
        assert len(places) == len(set(places))
        assert set(places) <= keyless
        assert keyless - set(places) <= self.unknown[self.head_id()] | self.dropped

    # Producers and what agents do to logs.

    def records(self, partition, some):
        log = self.logs[partition]
        made = []
        for key, has_value in some:
            offset, number = log.end + len(made), len(self.written)
            if key is not None and not key.startswith(b"both"):
                key += b"-%d" % partition  # noqa: PLW2901
            value = b"v%d" % number if has_value else None
            record = Record(timestamp=SINCE_MS + number, key=key, value=value)
            self.written[partition, offset] = record._replace(offset=offset)
            made.append(record)
        return made

    @rule(partition=PARTITIONS, some=SOME)
    def produce(self, partition, some):
        self.place.world.commit("orders", {partition: [self.records(partition, some)]})

    @rule(partition=PARTITIONS, some=SOME, producer=st.integers(1, 2))
    def begin(self, partition, some, producer):
        part = InTransaction(producer, self.records(partition, some))
        self.place.world.commit("orders", {partition: [part]})

    @rule(partition=PARTITIONS, producer=st.integers(1, 2), committed=st.booleans())
    def end(self, partition, producer, committed):
        if producer in self.logs[partition].open:
            self.place.world.end("orders", partition, producer, commit=committed)

    def drop(self, partition, offsets):
        """The log loses these: whoever has not exported them yet will never know them."""
        places = {(partition, offset) for offset in offsets}
        self.dropped |= places
        log = self.logs[partition]
        log.records = [one for one in log.records if one.offset not in offsets]
        if not self.has_head():
            return
        self.observe()
        view = view_of(self.place.table())
        for one in view.snapshots:
            with suppress(StateError):
                state = read_state(view._replace(head_id=one.snapshot_id))
                known = state.offsets.get(partition, 0)
                late = {place for place in places if place[1] >= known}
                self.unknown[one.snapshot_id] |= late

    @rule(partition=PARTITIONS, tombstones=st.booleans())
    def clean(self, partition, tombstones):
        """Log compaction of all before the first transaction, into one segment."""
        log = self.logs[partition]
        starts = [aborted[1] for aborted in log.aborted] + log.markers
        starts += [records[0].offset for records in log.open.values()]
        starts += [one.offset for one in log.records if one in self.transactional(log)]
        end = min(starts, default=log.end)
        spans = [span for span in log.spans if span[3] + span[4] <= end]
        if not spans or spans[0][3] < log.log_start:
            return
        end = spans[-1][3] + spans[-1][4]
        below = [one for one in log.records if log.log_start <= one.offset < end]
        newest = {one.key: one.offset for one in below}
        gone = {
            one.offset
            for one in below
            if one.key is not None
            and (one.offset != newest[one.key] or (tombstones and one.value is None))
        }
        self.drop(partition, gone)
        data = bytearray(b"FRZL-head")
        for one in below:
            if one.offset not in gone:
                data += build_batch([one], base_offset=one.offset)
        if end - 1 in gone:
            data += empty_batch(end - 1)
        world = self.place.world
        key = ObjectId(Incarnation((1 << 48) + 2), world.chunk_number, ObjectKind.SEGMENT).key
        world.chunk_number += 1
        path = world.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        first = spans[0][3]
        log.spans = [[key, 9, len(data) - 9, first, end - first, -1], *log.spans[len(spans) :]]
        log.compacted = True

    def transactional(self, log):
        """Records of transactions that were committed; segments here are of plain ones."""
        return [one for one in log.records if log.markers and one.offset < max(log.markers)]

    @rule(partition=PARTITIONS, choice=CHOICES)
    def retain(self, partition, choice):
        """Retention takes the oldest spans."""
        log = self.logs[partition]
        whole = [span for span in log.spans if span[3] + span[4] <= log.stable]
        if whole:
            last = whole[min(choice, len(whole) - 1)]
            start = last[3] + last[4]
            log.log_start = max(log.log_start, start)
            self.drop(partition, {one.offset for one in log.records if one.offset < log.log_start})

    # Exports.

    def export(self, *sets, **how):
        job = self.place.job("gap.policy=skip", *sets, **how)
        export_topic(job, self.place.topic(job))

    @rule(small=st.booleans())
    def plain_export(self, small):
        self.export("commit.bytes.max=1" if small else "commit.bytes.max=100000")
        self.check()

    @rule(
        step=st.sampled_from(Step),
        nth=st.integers(1, 2),
        what=st.sampled_from(
            [
                "die",
                "refused",
                "no answer",
                "export",
                "delete",
                "scatter",
                "compact",
                "expire",
                "roll back",
                "orphans",
            ]
        ),
        choice=CHOICES,
    )
    def troubled_export(self, step, nth, what, choice):
        errors = {
            "die": Killed(),
            "refused": CommitFailedException("409"),
            "no answer": CommitStateUnknownException("504"),
        }
        others = {
            "export": self.export,
            "delete": lambda: self.delete(choice),
            "scatter": self.scatter,
            "compact": self.compact,
            "expire": lambda: self.expire(choice),
            "roll back": lambda: self.roll_back(choice),
            "orphans": self.orphans_go,
        }
        if what in {"refused", "no answer"}:
            step = Step.COMMIT_ANSWERED if choice % 2 else Step.COMMIT_WRITTEN
        hook = Once(step, errors.get(what) or others[what], nth)
        sets = ("commit.bytes.max=1",) if nth == 2 else ()
        with suppress(Killed, FencedError, StateError):
            self.export(*sets, hook=hook)
        self.check()

    # Others.

    @rule(choice=CHOICES)
    def delete(self, choice):
        """A row goes, and with it all that the table knew of its key."""
        if not self.has_head():
            return
        self.observe()
        rows = self.rows()
        if not rows:
            return
        key = sorted(rows)[choice % len(rows)]
        before = self.unknown[self.head_id()]
        offsets = self.place.state().offsets
        delete_key(self.place.table(), key)
        its = {
            place
            for place, record in self.written.items()
            if record.key == key and place[1] < offsets.get(place[0], 0)
        }
        self.unknown[self.head_id()] = before | its
        self.touched = True

    @rule()
    def scatter(self):
        """Somebody writes the files anew, one for each row: no change of rows."""
        if not self.has_head():
            return
        scatter(self.place.table())

    @rule(choice=CHOICES)
    def roll_back(self, choice):
        if not self.has_head():
            return
        self.observe()
        table = self.place.table()
        at, ancestors = table.current_snapshot(), []
        while at is not None:
            ancestors.append(at.snapshot_id)
            at = table.snapshot_by_id(at.parent_snapshot_id) if at.parent_snapshot_id else None
        to = ancestors[min(choice, len(ancestors) - 1)]
        table.manage_snapshots().rollback_to_snapshot(to).commit()

    @rule(keep=CHOICES)
    def expire(self, keep):
        """As strangers do it, without any care."""
        if not self.has_head():
            return
        self.observe()
        table = self.place.table()
        head = table.metadata.current_snapshot_id
        old = [one.snapshot_id for one in table.metadata.snapshots if one.snapshot_id != head]
        old = old[: max(0, len(old) - keep)]
        if old:
            table.maintenance.expire_snapshots().by_ids(old).commit()

    # Operators.

    @rule()
    def compact(self):
        if self.has_head():
            compact(self.place.job(), TABLE, FAR + CLOSED_MS)

    @rule(step=st.sampled_from([Step.COMMIT_LOADED, Step.COMMIT_WRITTEN]), choice=CHOICES)
    def overtaken_compaction(self, step, choice):
        if not self.has_head():
            return
        other = [self.export, lambda: self.delete(choice), lambda: self.roll_back(choice)]
        job = self.place.job(hook=Once(step, other[choice % 3]))
        with suppress(OvertakenError):
            compact(job, TABLE, FAR + CLOSED_MS)
        self.check()

    @rule(choice=st.none() | CHOICES, ahead=st.booleans())
    def reset(self, choice, ahead=False):
        """Back, or ahead: what is taken out and what is skipped the table does not know."""
        if not self.has_head():
            return
        self.observe()
        job = self.place.job()
        to, log = None, self.logs[0]
        if choice is not None:
            to = {0: min(log.log_start + choice, log.stable)}
            if not ahead:
                to = {0: max(log.log_start, min(choice, self.place.state().offsets.get(0, 0)))}
        kept = set(self.rows().values())
        offsets = reset_offsets(job, self.place.topic(job), to).offsets
        moved = offsets if to is None else to
        kept = {place for place in kept if place[1] < moved.get(place[0], FAR)}
        assert set(self.rows().values()) == kept
        behind = {place for place in self.written if place[1] < offsets.get(place[0], 0)}
        self.unknown[self.head_id()] = frozenset((behind - kept) | (self.dropped - behind))
        self.touched = True
        self.check()

    @rule()
    def orphans_go(self):
        """Of any age: a live run's files must stay for its mark alone."""
        if self.has_head():
            with suppress(StateError):
                delete_orphans(self.place.job(), TABLE, -1)


UpsertLife.TestCase.settings = settings(
    max_examples=8,
    stateful_step_count=14,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestUpsertLife = UpsertLife.TestCase
