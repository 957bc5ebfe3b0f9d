"""Random life of a topic and its table of mode append, against the plain list of committed records.

After every step each committed record below the state's offsets must be there once, but for those
that a delete took out.
"""

from tests.iceberg_export.kit.life import Life, bounded
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
        """Back only: what is skipped by going ahead is no business of this model."""
        to = None
        if choice is not None:
            to = {0: min(choice, self.place.state().offsets.get(0, 0), self.logs[0].stable)}
        before = self.gone[self.head()]
        offsets = self.place.reset(to).offsets
        self.gone[self.head()] = frozenset(
            one for one in before if one[1] < offsets.get(one[0], FAR)
        )

    def check_rows(self):
        offsets = self.place.state().offsets
        gone = self.gone[self.head()]
        below = [row for row in self.place.wanted() if row[1] < offsets.get(row[0], 0)]
        assert self.place.rows() == [row for row in below if row[:2] not in gone]


AppendLife.TestCase.settings = bounded(12, 14)
TestAppendLife = AppendLife.TestCase
