"""Random life of a topic with dead letters, its two tables, and all who meddle with either.

Records come that cannot be decoded, or only when the registry learns their schema (and may forget
it again); the topic's policy changes; exports and replays run, die and meet others at every step of
both commits; people delete rows, set either table's head to any snapshot that is left, and let history
expire; operators reset and maintain. After each export that went well no record below its offsets
may be in both tables, or twice in one, and each must be in one, unless people took it out, or the
topic dropped it.
"""

from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from iceberg_export.errors import FencedError, OvertakenError, StateError
from iceberg_export.steps import Step
from iceberg_export.tasks.export_split import BadRecordError
from iceberg_export.upkeep.compact import CLOSED_MS, compact
from iceberg_export.upkeep.maintain import delete_orphans
from tests.iceberg_export.dead_letters.story import GOOD, LATE, NEVER, letters
from tests.iceberg_export.kit.hooks import Killed, Once
from tests.iceberg_export.kit.life import CHOICES, ERRORS, bounded
from tests.iceberg_export.kit.place import DEAD_TABLE, FAR, TABLE
from tests.iceberg_export.kit.strangers import delete_row

OTHERS = [
    "export", "replay", "delete", "head", "expire", "schema", "policy", "orphans", "reset",
]  # fmt: skip
TABLES = st.sampled_from([TABLE, DEAD_TABLE])


class TwoTables(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.context = letters(2)
        self.here = self.context.__enter__()
        self.gone = set()
        """(partition, offset) of records that people have taken out of either table, once."""
        self.may_drop = False

    def teardown(self):
        try:
            self.settled_export()
            ends = {p: log.stable for p, log in enumerate(self.logs())}
            assert {**dict.fromkeys(ends, 0), **self.here.place.state().offsets} == ends
        finally:
            self.context.__exit__(None, None, None)

    def logs(self):
        return self.here.place.world.topics["orders"][1]

    def has(self, name):
        return self.here.place.has_head(name)

    def rows(self, name):
        return self.here.offsets(name) if self.has(name) else []

    def check(self):
        """Each record is in one of both."""
        main, dead = Counter(self.rows(TABLE)), Counter(self.rows(DEAD_TABLE))
        doubled = {one for one, count in (main + dead).items() if count > 1}
        assert not doubled, (main, dead)
        offsets = self.here.place.state().offsets
        below = {
            (p, one.offset): one.value
            for p, log in enumerate(self.logs())
            for one in log.wanted
            if one.offset < offsets.get(p, 0)
        }
        assert main.keys() <= below.keys()
        missing = below.keys() - main.keys() - dead.keys() - self.gone
        if self.may_drop:
            missing = {one for one in missing if below[one] == GOOD}
        assert not missing, (main, dead)

    def settled_export(self):
        """An export that goes through, whatever was before it."""
        self.here.policy("dlq")
        try:
            self.here.export()
        except StateError:
            self.here.reset(None)
            self.here.export()
        self.check()

    # Producers, the registry, the topic.

    @initialize(may_drop=st.booleans())
    def begin(self, may_drop):
        self.may_drop = may_drop

    @rule(
        partition=st.integers(0, 1),
        values=st.lists(st.sampled_from([GOOD, LATE, NEVER]), min_size=1, max_size=3),
    )
    def produce(self, partition, values):
        self.here.send(*values, partition=partition)

    @rule(known=st.booleans())
    def schema(self, known):
        self.here.late_schema(known=known)

    @rule(name=st.sampled_from(["dlq", "dlq", "fail", "drop"]))
    def policy(self, name):
        self.here.policy("dlq" if name == "drop" and not self.may_drop else name)

    # Exports.

    @rule()
    def export(self):
        self.settled_export()

    @rule(small=st.booleans())
    def export_as_the_topic_says(self, small):
        with suppress(BadRecordError, StateError):
            self.here.export(*(("commit.bytes.max=1",) if small else ()))
            self.check()

    @rule()
    def replay(self):
        with suppress(StateError):
            self.here.replay()
            self.check()

    def other_export(self):
        with suppress(BadRecordError):
            self.here.export()

    @rule(
        step=st.sampled_from(Step),
        nth=st.integers(1, 2),
        what=st.lists(st.sampled_from(OTHERS), max_size=3),
        end=st.sampled_from([None, *ERRORS]),
        table=TABLES,
        choice=CHOICES,
        replays=st.booleans(),
    )
    def troubled_run(self, step, nth, what, end, table, choice, replays=False):
        others = {
            "export": self.other_export,
            "replay": self.here.replay,
            "reset": lambda: self.here.reset(None),
            "delete": lambda: self.delete(table, choice),
            "head": lambda: self.set_head(table, choice),
            "expire": lambda: self.expire(table),
            "schema": lambda: self.here.late_schema(known=choice % 2 == 0),
            "policy": lambda: self.here.policy("fail" if choice % 2 else "dlq"),
            "orphans": lambda: self.orphans_go(table),
        }
        if end in {"refused", "no answer"} and not step.startswith(("commit-", "dead-letters-")):
            step = Step.COMMIT_WRITTEN  # Elsewhere no catalog is asked.
        if end == "refused" and step.endswith("-answered"):
            end = "no answer"

        def meddle():
            for one in what:
                with suppress(StateError, FencedError, OvertakenError):
                    others[one]()
            if end is not None:
                error = ERRORS[end]()
                raise error

        hook = Once(step, meddle, nth)
        sets = ("commit.bytes.max=1",) if nth == 2 else ()
        with suppress(Killed, FencedError, OvertakenError, StateError, BadRecordError):
            if replays:
                self.here.replay(hook=hook)
            else:
                self.here.export(*sets, hook=hook)

    # People.

    @rule(table=TABLES, choice=CHOICES)
    def delete(self, table, choice):
        if rows := self.rows(table):
            partition, offset = rows[choice % len(rows)]
            self.gone.add((partition, offset))
            delete_row(self.here.table(table), partition, offset)

    @rule(table=TABLES, choice=CHOICES)
    def set_head(self, table, choice):
        """Of the newest snapshots, any: back, forth, or to another branch of history."""
        if not self.has(table):
            return
        before = set(self.rows(table))
        snapshots = self.here.table(table).metadata.snapshots
        self.here.set_head(snapshots[-1 - choice % len(snapshots)].snapshot_id, table)
        if table == DEAD_TABLE:
            self.gone |= before - set(self.rows(table))

    @rule(table=TABLES)
    def expire(self, table):
        if self.has(table):
            self.here.expire(table)

    # Operators.

    @rule(table=TABLES)
    def orphans_go(self, table):
        if self.has(table):
            with suppress(StateError):
                delete_orphans(self.here.job(), table, -1)

    @rule(table=TABLES)
    def join(self, table):
        if self.has(table):
            with suppress(StateError):
                compact(self.here.job(), table, FAR + CLOSED_MS)

    @rule(choice=st.none() | CHOICES)
    def reset(self, choice):
        if not self.has(TABLE):
            return
        with suppress(StateError, OvertakenError):
            to = None
            if choice is not None:
                # Back only: what is skipped by going ahead is no business of this model.
                to = {0: min(choice, self.here.place.state().offsets.get(0, 0))}
            self.here.reset(to)


TwoTables.TestCase.settings = bounded(8, 12)
TestTwoTables = TwoTables.TestCase


@pytest.mark.parametrize("end", ["refused", "no answer"])
def test_a_catalog_answers_before_a_commit_is_over(end):
    life = TwoTables()
    try:
        life.begin(may_drop=False)
        life.troubled_run(step=Step.COMMITTED, nth=1, what=[], end=end, table=TABLE, choice=0)
    finally:
        life.teardown()
