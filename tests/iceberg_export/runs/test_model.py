"""Random life of a topic and its table of mode append, against the plain list of committed records.

After every step each committed record below the state's offsets must be there once, but for those
that a delete took out, and what a reset skipped, until a backfill brings it.
"""

from contextlib import suppress

from hypothesis import strategies as st
from hypothesis.stateful import rule

from iceberg_export.errors import FencedError, OvertakenError, StateError
from iceberg_export.steps import Step
from tests.iceberg_export.kit.hooks import Killed, Once
from tests.iceberg_export.kit.life import CHOICES, ERRORS, Life, bounded
from tests.iceberg_export.kit.place import FAR
from tests.iceberg_export.kit.strangers import delete_row
from tests.iceberg_export.kit.world import some_records


class AppendLife(Life):
    def __init__(self):
        super().__init__()
        self.made = 0

    def records(self, _partition, some):
        self.made += len(some)
        return some_records(len(some), self.made)

    def take_out(self, choice):
        if rows := self.place.rows():
            partition, offset, _ = rows[choice % len(rows)]
            before = self.gone[self.head()]
            delete_row(self.place.table(), partition, offset)
            self.gone[self.head()] = before | {(partition, offset)}

    def go_to(self, choice, *, ahead):
        to = None
        if ahead and choice is not None:
            at = self.place.state().offsets.get(0, 0)
            to = {0: min(max(at, self.logs[0].log_start) + choice, self.logs[0].stable)}
            if to[0] < at:
                return
        elif choice is not None:
            to = {0: min(choice, self.place.state().offsets.get(0, 0), self.logs[0].stable)}
        before = self.gone[self.head()]
        offsets = self.place.reset(to).offsets
        self.gone[self.head()] = frozenset(
            one for one in before if one[1] < offsets.get(one[0], FAR)
        )

    def check_rows(self):
        offsets = self.place.state().offsets
        gone = self.gone[self.head()]
        skipped = {
            (gap.partition, offset)
            for gap in self.place.state().gaps
            if gap.skipped
            for offset in range(gap.start, gap.end)
        }
        below = [
            row
            for row in self.place.wanted()
            if row[1] < offsets.get(row[0], 0) and row[:2] not in skipped
        ]
        assert self.place.rows() == [row for row in below if row[:2] not in gone]

    @rule(first=CHOICES, count=CHOICES)
    def backfill(self, first, count):
        if self.place.has_head():
            self.place.backfill({0: (first, first + 2 * count)})
            self.check()

    @rule(
        step=st.sampled_from(Step),
        what=st.sampled_from(["die", "refused", "no answer", "export", "roll back", "reset"]),
        choice=CHOICES,
    )
    def troubled_backfill(self, step, what, choice):
        if not self.place.has_head():
            return
        if what in {"refused", "no answer"}:
            step = Step.COMMIT_ANSWERED if choice % 2 else Step.COMMIT_WRITTEN
        others = {**self.others(choice), "reset": lambda: self.reset(choice, ahead=True)}
        act = ERRORS[what]() if what in ERRORS else others[what]
        with suppress(Killed, FencedError, OvertakenError, StateError):
            self.place.backfill(None, "commit.bytes.max=1", hook=Once(step, act))
        self.check()

    def check_end(self):
        """What was skipped may be filled at any time, but for what the log has lost."""
        self.place.backfill()
        self.check()
        starts = {number: log.log_start for number, log in enumerate(self.logs)}
        left = [gap for gap in self.place.state().gaps if gap.end > starts[gap.partition]]
        assert not [gap for gap in left if gap.skipped]


AppendLife.TestCase.settings = bounded(12, 14)
TestAppendLife = AppendLife.TestCase
