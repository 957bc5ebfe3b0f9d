"""Which offsets lie in objects that are lost or damaged. Pure.

A range is of adjacent rows of one partition that lie together: all in memory, or all in one page, or a page that is
lost itself. It names its rows by a digest, as jobs do, so that nothing else is declared lost in their place.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from coordinator.commands.job_commands import JOB_ROWS_MAX
from coordinator.machine.machine import Machine
from coordinator.tables.partition import Partition
from protocol.types import TopicId
from storage.formats.page import digest_of_rows
from storage.formats.spans import Marker, ObjectId, Page, Row, Span

RANGE_ROWS_MAX: Final = JOB_ROWS_MAX
ROWS_PER_TURN: Final = 1000

PageRows = Callable[[Page], Sequence[Span | Marker] | None]


class LostRange(NamedTuple):
    """Offsets of a partition that cannot be read."""

    topic_id: TopicId
    topic: str
    partition: int
    base_offset: int
    next_offset: int
    rows: int
    digest: bytes
    """`storage.formats.page.digest_of_rows` of the rows."""
    keys: tuple[str, ...]
    """Of the objects, each once."""
    is_page: bool
    """An index object is lost: the records may be there, and nothing says where."""
    page_body: bytes = b""
    """Of such a page, where it could be made anew: with it nothing is lost."""


class Lost(NamedTuple):
    """What cannot be read."""

    objects: Collection[ObjectId]
    """Of these nothing."""
    rows: Collection[Row]
    """Of other objects these spans or pages."""

    def holds(self, row: Row) -> bool:
        return not isinstance(row, Marker) and (row.object_id in self.objects or row in self.rows)


class Losses:
    """Gathers ranges of one partition, from rows in order."""

    def __init__(self, machine: Machine, partition: Partition, lost: Lost) -> None:
        topic = machine.topics.by_id(partition.topic_id)
        self._name = "" if topic is None else topic.name
        self._partition = partition
        self._lost = lost
        self._rows: list[Row] = []
        self.ranges: list[LostRange] = []

    def see(self, rows: Iterable[Row]) -> None:
        """Rows that lie together; `end` is between those that do not."""
        for row in rows:
            if not self._lost.holds(row):
                self.end()
                continue
            if isinstance(row, Page) or len(self._rows) == RANGE_ROWS_MAX:
                self.end()
            self._rows.append(row)
            if isinstance(row, Page):
                self.end()

    def end(self) -> None:
        if not self._rows:
            return
        rows, self._rows = self._rows, []
        keys = dict.fromkeys(row.object_id.key for row in rows if not isinstance(row, Marker))
        self.ranges.append(
            LostRange(
                topic_id=self._partition.topic_id,
                topic=self._name,
                partition=self._partition.partition,
                base_offset=rows[0].base_offset,
                next_offset=rows[-1].next_offset,
                rows=len(rows),
                digest=digest_of_rows(rows),
                keys=tuple(keys),
                is_page=isinstance(rows[0], Page),
            )
        )


def slices(partition: Partition) -> Iterator[list[Row]]:
    """All rows of a partition that can be read, some at a time; they may change in between."""
    offset = partition.log_start
    while offset < partition.end_offset:
        rows = partition.rows_from(offset, ROWS_PER_TURN)
        if not rows:
            return
        yield rows
        offset = rows[-1].next_offset
