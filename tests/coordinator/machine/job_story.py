"""A story with one topic whose agent holds all jobs: rows are produced, merged, spilled, recalled."""

from typing import Any

from coordinator.commands.entries import Outcome
from coordinator.commands.job_commands import (
    BeginSnapshot,
    ClaimJobs,
    JobKind,
    JobsClaimed,
    NewPage,
    NewSpan,
    PublishSnapshot,
    RecallPage,
    Replacement,
    ReplaceRows,
    SpillRows,
)
from coordinator.tables.partition import Partition
from storage.formats.page import digest, encode_rows
from storage.formats.spans import Item, Marker, ObjectKind, Page, Row, Span
from tests.coordinator.machine.story import Story, plain, span

SPAN_BYTES = 10


class JobStory(Story):
    def __init__(self, *records: int, partitions: int = 1) -> None:
        """`records`: what is produced."""
        super().__init__()
        self.agent = self.open()
        self.topic_id = self.topic(self.agent, partitions=partitions)
        assert isinstance(self.do(self.agent, ClaimJobs((*JobKind,))), JobsClaimed)
        self.bodies: dict[int, bytes] = {}
        """Of pages, by base offset."""
        self.produce(*records)

    @property
    def row(self) -> Partition:
        return self.partition(self.topic_id)

    def produce(self, *records: int, timestamp: int = 500, partition: int = 0) -> None:
        """A span of each number of records, each in its own chunk, of SPAN_BYTES bytes."""
        for count in records:
            item = plain(SPAN_BYTES, count, timestamp)
            self.commit(self.agent, span(self.topic_id, item, partition=partition))

    def send(self, item: Item, *, partition: int = 0) -> None:
        self.commit(self.agent, span(self.topic_id, item, partition=partition))

    def rows(self, first: int = 0, count: int = 10_000, *, partition: int = 0) -> list[Row]:
        found = self.partition(self.topic_id, partition)
        return found.rows_from(0, found.row_count)[first : first + count]

    def next(self, kind: ObjectKind) -> int:
        row = self.machine.incarnations.get(self.agent)
        assert row is not None
        return row.newest(kind) + 1

    def replacement(
        self, first: int, count: int, *, partition: int = 0, **changes: Any
    ) -> Replacement:
        """Rows into one span of 7 bytes at 8, newest timestamp 5."""
        run = self.rows(first, count, partition=partition)
        base, following = run[0].base_offset, run[-1].next_offset
        named = Replacement(
            self.topic_id,
            partition,
            base,
            following,
            len(run),
            digest(encode_rows(_loose(run))),
            (NewSpan(8, 7, base, 5),),
        )
        return named._replace(**changes)

    def replacing(self, *replacements: Replacement, job: JobKind = JobKind.MERGE) -> ReplaceRows:
        return ReplaceRows(job, self.next(ObjectKind.SEGMENT), 100, replacements)

    def merge(self, first: int, count: int, **changes: Any) -> Outcome:
        return self.do(self.agent, self.replacing(self.replacement(first, count, **changes)))

    def page(self, first: int, count: int, *, partition: int = 0, **changes: Any) -> NewPage:
        """Rows into a page at 16."""
        run = self.rows(first, count, partition=partition)
        body = encode_rows(_loose(run))
        base, following = run[0].base_offset, run[-1].next_offset
        self.bodies[base] = body
        named = NewPage(
            self.topic_id, partition, base, following, len(run), 16, len(body), digest(body)
        )
        return named._replace(**changes)

    def spill(self, first: int, count: int, **changes: Any) -> Outcome:
        page = self.page(first, count, **changes)
        number = self.next(ObjectKind.INDEX)
        return self.do(self.agent, SpillRows(number, 16 + page.length, (page,)))

    def recall(self, base_offset: int, *, partition: int = 0) -> Outcome:
        body = self.bodies[base_offset]
        return self.do(self.agent, RecallPage(self.topic_id, partition, base_offset, body))

    def snapshot(self) -> None:
        """One more that is begun and published."""
        self.do(self.agent, BeginSnapshot())
        begun = self.machine.snapshots.begun
        assert begun is not None
        self.do(self.agent, PublishSnapshot(begun.position, begun.digest, "key"))


def _loose(rows: list[Row]) -> list[Span | Marker]:
    return [row for row in rows if not isinstance(row, Page)]
