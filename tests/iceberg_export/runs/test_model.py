"""Random life of a topic and its table, against the plain list of committed records.

Producers write, transactions end this way or that, exports run, die, lose answers and meet others
at any step; others delete, compact, expire, roll back; operators reset and maintain. After every
step the table must hold exactly what its own state claims: each committed record below the
state's offsets once, but for those that a delete took out. At the end one clean export must bring
the state to the log's end.
"""

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.expressions import And, EqualTo

from iceberg_export.errors import FencedError, OvertakenError, StateError
from iceberg_export.runs.job import export_topic
from iceberg_export.steps import Step
from iceberg_export.table.catalog import view_of
from iceberg_export.table.state import read_state
from iceberg_export.upkeep.compact import CLOSED_MS, compact
from iceberg_export.upkeep.maintain import delete_orphans
from iceberg_export.upkeep.reset import reset_offsets
from tests.iceberg_export.direct import TABLE, Place
from tests.iceberg_export.hooks import Killed, Once
from tests.iceberg_export.world import InTransaction, some_records

PARTITIONS = st.integers(0, 1)
FAR = 1 << 50
"""A time at which every file is old."""


class Life(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        shared = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else None))
        self.place = Place(self.folder)
        self.deleted = {}
        """By snapshot: (partition, offset) of records that deletes took out of its history."""
        self.made = 0

    def teardown(self):
        try:
            self.export()
            self.check()
            assert self.place.rows() == self.expected()
            logs = self.place.world.topics["orders"][1]
            ends = {p: log.stable for p, log in enumerate(logs)}
            assert {**dict.fromkeys(ends, 0), **self.place.state().offsets} == ends
        finally:
            self.place.close()
            shutil.rmtree(self.folder)

    # What others know of the table.

    def exists(self):
        return self.place.catalog.table_exists(TABLE)

    def observe(self):
        """Snapshots that are new inherit what was deleted before them."""
        for one in self.place.table().metadata.snapshots:
            if one.snapshot_id not in self.deleted:
                self.deleted[one.snapshot_id] = self.deleted.get(
                    one.parent_snapshot_id, frozenset()
                )

    def expected(self):
        offsets = self.place.state().offsets
        gone = self.deleted[self.place.table().metadata.current_snapshot_id]
        return [
            row
            for row in self.place.wanted()
            if row[1] < offsets.get(row[0], 0) and row[:2] not in gone
        ]

    def check(self):
        if not self.exists() or self.place.table().current_snapshot() is None:
            return
        self.observe()
        try:
            read_state(view_of(self.place.table()))
        except StateError:
            self.reset(None)  # The operator's cure for a rollback behind all that is known.
        assert self.place.rows() == self.expected()

    # Producers.

    @rule(partition=PARTITIONS, count=st.integers(1, 4))
    def produce(self, partition, count):
        self.place.world.commit("orders", {partition: [self.records(count)]})

    @rule(partition=PARTITIONS, count=st.integers(1, 3), producer=st.integers(1, 2))
    def begin(self, partition, count, producer):
        part = InTransaction(producer, self.records(count))
        self.place.world.commit("orders", {partition: [part]})

    @rule(partition=PARTITIONS, producer=st.integers(1, 2), committed=st.booleans())
    def end(self, partition, producer, committed):
        if producer in self.place.world.topics["orders"][1][partition].open:
            self.place.world.end("orders", partition, producer, commit=committed)

    def records(self, count):
        self.made += count
        return some_records(count, self.made)

    # Exports.

    def export(self, *sets, **how):
        job = self.place.job(*sets, **how)
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
                "compact",
                "expire",
                "roll back",
                "orphans",
            ]
        ),
        choice=st.integers(0, 7),
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

    @rule(choice=st.integers(0, 7))
    def delete(self, choice):
        if not self.has_head():
            return
        self.observe()
        rows = self.place.rows()
        if not rows:
            return
        partition, offset, _ = rows[choice % len(rows)]
        before = self.place.table().metadata.current_snapshot_id
        self.place.table().delete(
            And(EqualTo("kafka_partition", partition), EqualTo("kafka_offset", offset))
        )
        after = self.place.table().metadata.current_snapshot_id
        self.deleted[after] = self.deleted[before] | {(partition, offset)}

    def has_head(self):
        return self.exists() and self.place.table().current_snapshot() is not None

    @rule(choice=st.integers(0, 7))
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

    @rule(keep=st.integers(0, 7))
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
            job = self.place.job()
            compact(job, TABLE, FAR + CLOSED_MS)

    @rule(step=st.sampled_from([Step.COMMIT_LOADED, Step.COMMIT_WRITTEN]), choice=st.integers(0, 7))
    def overtaken_compaction(self, step, choice):
        if not self.has_head():
            return
        other = [self.export, lambda: self.delete(choice), lambda: self.roll_back(choice)]
        job = self.place.job(hook=Once(step, other[choice % 3]))
        with suppress(OvertakenError):
            compact(job, TABLE, FAR + CLOSED_MS)
        self.check()

    @rule(choice=st.none() | st.integers(0, 7))
    def reset(self, choice):
        if not self.has_head():
            return
        self.observe()
        job = self.place.job()
        topic = self.place.topic(job)
        before = self.deleted[self.place.table().metadata.current_snapshot_id]
        to = None
        if choice is not None:
            log = self.place.world.topics["orders"][1][0]
            # Back only: what is skipped by going ahead is no business of this model.
            to = {0: min(choice, self.place.state().offsets.get(0, 0), log.stable)}
        report = reset_offsets(job, topic, to)
        after = self.place.table().metadata.current_snapshot_id
        self.deleted[after] = frozenset(
            one for one in before if one[1] < report.offsets.get(one[0], FAR)
        )
        self.check()

    @rule()
    def orphans_go(self):
        """Of any age: a live run's files must stay for its mark alone."""
        if self.has_head():
            with suppress(StateError):
                delete_orphans(self.place.job(), TABLE, -1)


Life.TestCase.settings = settings(
    max_examples=12,
    stateful_step_count=14,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestLife = Life.TestCase
