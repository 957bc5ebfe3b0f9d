"""A partition whose rows jobs rearrange: merged, thinned out, spilled, recalled, cut in front.

`LayeredLog` carries the jobs out with the machine's own commands over the bytes of the objects, and
deletes what nothing points at any more, at once and without any grace: who reads must find out.
"""

from dataclasses import replace
from itertools import count

from hypothesis import strategies as st

from coordinator.commands.job_commands import (
    ClaimJobs,
    JobKind,
    JobsClaimed,
    LogsTrimmed,
    RecallPage,
    RowsMoved,
    Trim,
    TrimLogs,
)
from protocol.errors import ErrorCode
from storage.fetch_plan import SpanPart
from storage.formats.batches import Batches
from storage.formats.page import decode_rows, digest, encode_rows
from storage.formats.segment import merge_rows
from storage.formats.spans import Marker, ObjectId, ObjectKind, Page, Span
from storage.stores.object_store import ObjectNotFoundError
from tests.broker.fetch.jobs_by_hand import PADDING, replacing, spilling, thinned
from tests.broker.fetch.transaction_log import Log, do, ends, parts


class LayeredLog(Log):
    """One partition in all layers. `everything` and `committed` are what may still be read."""

    def __init__(self) -> None:
        super().__init__()
        claimed = self.story.do(self.agent, ClaimJobs(tuple(JobKind)))
        assert claimed == JobsClaimed(tuple(JobKind))
        self.segments = 0
        self.pages = 0
        self.removed: list[tuple[int, bytes]] = []
        """Committed records that were left out of segments."""

    # Reading.

    def bytes_of(self, row: Span | SpanPart | Page) -> bytes:
        data = self.objects.get(row.object_id)
        if data is None:
            raise ObjectNotFoundError(row.object_id.key)
        return data[row.start : row.start + row.length]

    def batches_of(self, span: Span) -> Batches:
        return Batches.checked(span, memoryview(bytearray(self.bytes_of(span))))

    def rows_of(self, page: Page) -> tuple[Span | Marker, ...]:
        body = self.bytes_of(page)
        assert digest(body) == page.digest
        return decode_rows(body, base_offset=page.base_offset, next_offset=page.next_offset)

    # Jobs.

    def run_of(self, first: int, count: int) -> list[Span | Marker]:
        """Adjacent rows in memory, below the last stable offset; perhaps none."""
        rows = self.row.rows_from(0, self.row.row_count)
        run: list[Span | Marker] = []
        for row in rows[first % len(rows) :][:count] if rows else []:
            if isinstance(row, Page) or row.next_offset > self.row.last_stable:
                break
            run.append(row)
        return run

    def merge(self, first: int, rows: int, removed: int = 0) -> None:
        """Move rows into a segment; every batch with records whose number modulo 3 is below
        `removed` is left out, as if newer records had its keys."""
        run = self.run_of(first, rows)
        if not run:
            return
        base, end = run[0].base_offset, run[-1].next_offset
        aborted = [tuple(one) for one in self.row.aborted(base, end)]
        merged = merge_rows(
            run, [self.bytes_of(row) for row in run if isinstance(row, Span)], aborted
        )
        for producer_id, first_offset, marker in aborted:
            self.forget_aborted(producer_id, max(first_offset, base), min(marker, end))
        numbers = count()

        def keep(header) -> bool:
            if next(numbers) % 3 >= removed or header.is_control:
                return True
            self.forget(set(range(header.base_offset, header.last_offset + 1)))
            return False

        data = thinned(b"".join(merged.parts), end, keep)
        whole = PADDING + data + PADDING
        command = replacing(self.row, run, self.segments, data, merged.timestamp_max)
        command = replace(command, length=len(whole))
        self.objects[ObjectId(self.agent, self.segments, ObjectKind.SEGMENT)] = whole
        self.segments += 1
        assert self.story.do(self.agent, command) == RowsMoved((ErrorCode.NONE,))
        self.collect()

    def forget(self, offsets: set[int]) -> None:
        self.removed += [row for row in self.committed if row[0] in offsets]
        self.everything = [row for row in self.everything if row[0] not in offsets]
        self.committed = [row for row in self.committed if row[0] not in offsets]

    def forget_aborted(self, producer_id: int, first: int, end: int) -> None:
        """Records of aborted transactions that lie in what was merged are nobody's any more."""
        offsets = {offset for offset, _ in self.everything if first <= offset < end}
        self.forget({one for one in offsets if self.writers.get(one) == producer_id})

    def spill(self, first: int, count: int) -> None:
        run = self.run_of(first, count)
        if not run:
            return
        body = encode_rows(run)
        self.objects[ObjectId(self.agent, self.pages, ObjectKind.INDEX)] = PADDING + body
        command = spilling(self.row, run, self.pages, body)
        self.pages += 1
        assert self.story.do(self.agent, command) == RowsMoved((ErrorCode.NONE,))

    def recall(self, first: int) -> None:
        pages = [row for row in self.row.rows_from(0, self.row.row_count) if isinstance(row, Page)]
        if pages:
            page = pages[first % len(pages)]
            body = self.bytes_of(page)
            self.story.do(self.agent, RecallPage(self.topic_id, 0, page.base_offset, body))
            self.collect()

    def trim(self, share: int) -> None:
        """Delete that many hundredths of what is there."""
        row = self.row
        offset = row.log_start + (row.end_offset - row.log_start) * share // 100
        outcome = self.story.do(self.agent, TrimLogs((Trim(self.topic_id, 0, offset),)))
        assert isinstance(outcome, LogsTrimmed)
        assert row.log_start == offset
        self.collect()

    def collect(self) -> None:
        for object_id, *_ in self.story.machine.objects.unreferenced():
            self.objects.pop(object_id, None)


firsts = st.integers(0, 30)
counts = st.integers(1, 12)
jobs = st.one_of(
    st.tuples(st.just("merge"), firsts, counts),
    st.tuples(st.just("thin"), firsts, counts, st.integers(1, 3)),
    st.tuples(st.just("spill"), firsts, counts),
    st.tuples(st.just("spill"), firsts, counts),
    st.tuples(st.just("recall"), st.integers(0, 5)),
    st.tuples(st.just("trim"), st.sampled_from([0, 10, 20, 50, 100])),
)
steps = st.lists(st.one_of(parts, ends, jobs, jobs, st.just("fetch")), min_size=10, max_size=40)


def play(log: LayeredLog, step) -> None:
    match step:
        case ("merge", first, count):
            log.merge(first, count)
        case ("thin", first, count, removed):
            log.merge(first, count, removed)
        case ("spill", first, count):
            log.spill(first, count)
        case ("recall", first):
            log.recall(first)
        case ("trim", share):
            log.trim(share)
        case _:
            do(log, step)
