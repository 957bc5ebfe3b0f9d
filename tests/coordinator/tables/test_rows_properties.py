"""Rows of partitions while jobs rearrange them, against a model: a list of what each offset is.

Whatever is produced, trimmed, replaced by segments, spilled into pages, recalled and declared lost,
in whatever order: rows are dense, every offset that may be read lies where it was written, counts of objects
and bytes equal a recount, and the aborted ranges are those that a reader needs.
"""

import dataclasses
from collections import Counter
from typing import Any, NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from coordinator.commands.entries import DONE, ChunkCommitted, Rejected
from coordinator.commands.job_commands import (
    ClaimJobs,
    DoomObjects,
    DropRows,
    ExpireRecords,
    Expiry,
    ForgetObjects,
    JobKind,
    JobsClaimed,
    LogsTrimmed,
    NewPage,
    NewSpan,
    ObjectsDoomed,
    RecallPage,
    Replacement,
    ReplaceRows,
    RowsMoved,
    SpillRows,
    Trim,
    TrimLogs,
    Trimmed,
)
from coordinator.commands.loss_commands import DeclareLost
from coordinator.commands.transaction_commands import EndTransaction
from coordinator.tables.partition import Partition
from protocol.errors import ErrorCode
from storage.formats.page import decode_rows, digest, digest_of_rows, encode_rows
from storage.formats.spans import Item, Marker, ObjectId, ObjectKind, Page, Row, Span
from tests.coordinator.machine.story import Story, span
from txn.producers import describe
from txn.transactions import OF_EPOCH

PARTITIONS = 2
NAMES = ("pay", "ship")
partitions = st.integers(0, PARTITIONS - 1)
places = st.integers(0, 30)


class Aborted(NamedTuple):
    producer_id: int
    first: int
    last: int


class Model:
    """One partition: for every offset the object that it was written into, None for a marker."""

    def __init__(self) -> None:
        self.offsets: list[ObjectId | None] = []
        self.log_start = 0
        self.open: dict[int, int] = {}
        self.aborted: list[Aborted] = []

    @property
    def last_stable(self) -> int:
        first = min(self.open.values(), default=len(self.offsets))
        return max(first, self.log_start)

    def start_at(self, offset: int) -> None:
        self.log_start = max(self.log_start, offset)
        self.aborted = [each for each in self.aborted if each.last >= self.log_start]


class Rows(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.story = Story()
        self.agent = self.story.open()
        self.topic_id = self.story.topic(self.agent, partitions=PARTITIONS)
        assert isinstance(self.story.do(self.agent, ClaimJobs((*JobKind,))), JobsClaimed)
        self.models = [Model() for _ in range(PARTITIONS)]
        self.committed: dict[ObjectId, int] = {}
        """Lengths of all objects."""
        self.bodies: dict[tuple[ObjectId, int], bytes] = {}
        """Of pages, by where they are."""
        self.left: Counter[ObjectId] = Counter()
        """References of rows that were in pages that are lost."""
        self.numbers = dict.fromkeys(ObjectKind, 0)
        self.producers = {name: self.story.producer(self.agent, name)[0] for name in NAMES}

    # What clients do.

    @rule(
        parts=st.lists(
            st.tuples(partitions, st.sampled_from([None, *NAMES]), st.integers(1, 3)),
            min_size=1,
            max_size=4,
        ),
        timestamp=st.sampled_from([-1, 0, 50, 100]),
    )
    def produce(self, parts, timestamp: int) -> None:
        """A chunk with a batch for each part."""
        stamp = timestamp if timestamp < 0 else self.story.clock_ms - timestamp
        sent: Counter[tuple[int, str | None]] = Counter()
        spans = []
        for at, (number, name, records) in enumerate(parts):
            item = self._item(number, name, records, stamp, sent[number, name])
            sent[number, name] += records
            spans.append(span(self.topic_id, item, partition=number, start=10 * at))
        command = self.story.chunk(*spans)
        object_id = ObjectId(self.agent, command.number)
        outcome = self.story.do(self.agent, command)
        assert isinstance(outcome, ChunkCommitted)
        assert {each.error for each in outcome.results} == {ErrorCode.NONE}
        self.committed[object_id] = command.length
        for number, name, records in parts:
            model = self.models[number]
            if name is not None:
                model.open.setdefault(self.producers[name], len(model.offsets))
            model.offsets += [object_id] * records

    @rule(commit=st.tuples(st.booleans(), st.booleans()))
    def end_both(self, commit: tuple[bool, bool]) -> None:
        """All is stable then, and may be replaced."""
        for name, each in zip(NAMES, commit, strict=True):
            self.end(name, each)

    @rule(name=st.sampled_from(NAMES), commit=st.booleans())
    def end(self, name: str, commit: bool) -> None:
        row = self.story.machine.transactions.get(name)
        assert row is not None
        producer_id = row.txn_metadata.producer_id
        self.story.do(
            self.agent,
            EndTransaction(name, producer_id, row.txn_metadata.epoch, commit=commit, proof=None),
        )
        self.producers[name] = row.txn_metadata.producer_id
        for model in self.models:
            if (first := model.open.pop(producer_id, None)) is not None:
                if not commit:
                    model.aborted.append(Aborted(producer_id, first, len(model.offsets)))
                model.offsets.append(None)

    @rule(number=partitions, place=places, rest=st.booleans())
    def trim(self, number: int, place: int, rest: bool) -> None:
        model = self.models[number]
        offset = (
            -1
            if place == 30
            else place
            if rest and place > 25
            else place % (len(model.offsets) + 1)
        )
        outcome = self.story.do(self.agent, TrimLogs((Trim(self.topic_id, number, offset),)))
        if offset == -1:
            offset = len(model.offsets)
        error = ErrorCode.NONE
        if offset > len(model.offsets):
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            model.start_at(offset)
        assert outcome == LogsTrimmed((Trimmed(error, model.log_start),))

    # What jobs do.

    @rule(
        number=partitions,
        place=places,
        age=st.sampled_from([-1, 0, 60, 200]),
        keep=st.integers(-1, 60),
    )
    def expire(self, number: int, place: int, age: int, keep: int) -> None:
        machine, model = self.story.machine, self.models[number]
        rows = self._rows(number)
        offset = place % (len(model.offsets) + 1)
        going = [row for row in rows if row.next_offset <= offset]
        command = ExpireRecords(
            machine.position, (Expiry(self.topic_id, number, offset, age, keep),)
        )
        outcome = self.story.do(self.agent, command)
        error = ErrorCode.NONE
        ends = {row.next_offset for row in rows}
        if model.log_start < offset and (offset > model.last_stable or offset not in ends):
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        elif model.log_start < offset:
            stamps = [_timestamp(row) for row in going]
            old = age >= 0 and stamps[-1] >= 0 and max(stamps) < machine.time_ms - age
            left = sum(_bytes(row) for row in rows) - sum(_bytes(row) for row in going)
            if old or 0 <= keep <= left:
                model.start_at(offset)
            else:
                error = ErrorCode.POLICY_VIOLATION
        assert outcome == LogsTrimmed((Trimmed(error, model.log_start),))

    @rule(number=partitions)
    def drop(self, number: int) -> None:
        self.story.do(self.agent, DropRows(((self.topic_id, number),)))
        partition = self._partition(number)
        if partition.droppable:
            assert isinstance(partition.row(0), Page)

    @rule(
        number=partitions,
        first=places,
        count=st.integers(1, 12),
        pieces=st.integers(1, 3),
        job=st.sampled_from([JobKind.MERGE, JobKind.COMPACT]),
        harm=st.sampled_from([None] * 8 + ["digest", "rows", "cover", "base"]),
    )
    def replace(self, number, first, count, pieces, job, harm) -> None:
        """A run of rows into one to three spans of a segment; or something that must not be."""
        model, rows = self.models[number], self._rows(number)
        run = rows[first % (len(rows) or 1) :][:count]
        if not run:
            return
        base, following = run[0].base_offset, run[-1].next_offset
        bounds = sorted({base + (following - base) * part // pieces for part in range(pieces)})
        spans = [NewSpan(8 + 7 * at, 7, offset, 5) for at, offset in enumerate(bounds)]
        plain_rows = [row for row in run if not isinstance(row, Page)]
        named = Replacement(
            self.topic_id,
            number,
            base,
            following,
            len(run),
            digest(encode_rows(plain_rows)),
            tuple(spans),
        )
        object_id = self._next(ObjectKind.SEGMENT)
        command = ReplaceRows(job, object_id.number, 100, (_harmed(named, harm),))
        outcome = self.story.do(self.agent, command)
        assert isinstance(outcome, RowsMoved)
        may = following <= model.last_stable and len(plain_rows) == len(run) and harm is None
        assert (outcome.errors[0] is ErrorCode.NONE) == may
        self.committed[object_id] = 100
        if not may:
            return
        model.offsets[base:following] = [object_id] * (following - base)
        self._forget_aborted(number, base, following)

    def _forget_aborted(self, number: int, base: int, following: int) -> None:
        """Rows in these offsets were replaced."""
        model = self.models[number]
        raw = [row for row in self._rows(number) if self._is_raw(row)]
        model.aborted = [
            each
            for each in model.aborted
            if each.first >= following
            or each.last < base
            or any(row.base_offset <= each.last and each.first < row.next_offset for row in raw)
        ]

    @rule(
        number=partitions,
        first=places,
        count=st.integers(1, 8),
        harm=st.sampled_from([None] * 8 + ["digest", "rows", "base"]),
    )
    def spill(self, number, first, count, harm) -> None:
        rows = self._rows(number)
        run = rows[first % (len(rows) or 1) :][:count]
        if not run:
            return
        plain_rows = [row for row in run if not isinstance(row, Page)]
        body = encode_rows(plain_rows)
        named = NewPage(
            self.topic_id,
            number,
            run[0].base_offset,
            run[-1].next_offset,
            len(run),
            16,
            len(body),
            digest(body),
        )
        object_id = self._next(ObjectKind.INDEX)
        command = SpillRows(object_id.number, 16 + len(body), (_harmed(named, harm),))
        outcome = self.story.do(self.agent, command)
        assert isinstance(outcome, RowsMoved)
        may = len(plain_rows) == len(run) and harm is None
        assert (outcome.errors[0] is ErrorCode.NONE) == may
        self.committed[object_id] = 16 + len(body)
        if may:
            self.bodies[object_id, 16] = body

    @rule(number=partitions, which=places, harm=st.sampled_from([False, False, False, True]))
    def recall(self, number: int, which: int, harm: bool) -> None:
        pages = [row for row in self._rows(number) if isinstance(row, Page)]
        if not pages:
            return
        page = pages[which % len(pages)]
        body = self.bodies[page.object_id, page.start]
        command = RecallPage(
            self.topic_id, number, page.base_offset, body[:-1] + b"?" if harm else body
        )
        outcome = self.story.do(self.agent, command)
        pages_now = [row for row in self._rows(number) if isinstance(row, Page)]
        assert (page in pages_now) == harm
        assert len(pages_now) == len(pages) - (not harm)
        assert (outcome == DONE) == (not harm)

    # What an operator does.

    @rule(
        number=partitions,
        first=places,
        count=st.integers(1, 4),
        inside=st.booleans(),
        harm=st.sampled_from([None] * 6 + ["digest", "rows", "base_offset", "page"]),
    )
    def lose(self, number: int, first: int, count: int, inside: bool, harm: str | None) -> None:
        """Some rows, whatever they are; or some of those in a page."""
        model, found = self.models[number], self._rows(number)
        pages = [row for row in found if isinstance(row, Page)]
        body = b""
        if inside and pages:
            page = pages[first % len(pages)]
            found, body = [*self._inside(page)], self.bodies[page.object_id, page.start]
        run = found[first % (len(found) or 1) :][:count]
        if not run:
            return
        base, following = run[0].base_offset, run[-1].next_offset
        named = (self.topic_id, number, base, following, len(run), digest_of_rows(run))
        object_id = self._next(ObjectKind.SEGMENT)
        command = DeclareLost(*named, body, object_id.number, 100, 8, 7)
        if harm is not None:
            wrong = {
                "digest": bytes(16),
                "rows": len(run) + 1,
                "base_offset": base + 1,
                "page": b"?",
            }
            command = dataclasses.replace(command, **{harm: wrong[harm]})
        outcome = self.story.do(self.agent, command)
        self.committed[object_id] = 100
        assert isinstance(outcome, Rejected) == (harm is not None)
        if harm is not None:
            return
        for row in run:
            for each in self._inside(row) if isinstance(row, Page) else ():
                if isinstance(each, Span):
                    self.left[each.object_id] += 1
        model.offsets[base:following] = [object_id] * (following - base)
        self._forget_aborted(number, base, following)

    @precondition(lambda self: self.committed)
    @rule(which=st.lists(places, max_size=5))
    def doom(self, which: list[int]) -> None:
        """Without two snapshots nothing that was ever pointed at may go."""
        known = [*self.committed]
        objects = tuple([known[place % len(known)] for place in which])
        outcome = self.story.do(self.agent, DoomObjects(0, objects))
        assert outcome == ObjectsDoomed(())
        self.story.do(self.agent, ForgetObjects(objects))

    # What holds.

    @invariant()
    def rows_are_dense(self) -> None:
        for number, model in enumerate(self.models):
            rows = self._rows(number)
            ends = [row.next_offset for row in rows]
            first = rows[0].base_offset if rows else model.log_start
            assert [*[row.base_offset for row in rows], len(model.offsets)] == [first, *ends]
            assert first <= model.log_start
            partition = self._partition(number)
            assert partition.log_start == model.log_start
            assert partition.end_offset == len(model.offsets)
            assert partition.last_stable == model.last_stable
            assert partition.row_count == len(rows)

    @invariant()
    def every_offset_lies_where_it_was_written(self) -> None:
        for number, model in enumerate(self.models):
            for row in self._resolved(number):
                for offset in range(row.base_offset, row.next_offset):
                    wanted = model.offsets[offset]
                    assert (row.object_id if isinstance(row, Span) else None) == wanted

    @invariant()
    def counts_equal_a_recount(self) -> None:
        machine = self.story.machine
        table = machine.partitions
        resolved = [row for number in range(PARTITIONS) for row in self._resolved(number)]
        rows = [row for number in range(PARTITIONS) for row in self._rows(number)]
        pages = [row for row in rows if isinstance(row, Page)]
        spans = [row for row in resolved if isinstance(row, Span)]
        in_segments = [row for row in spans if row.object_id.kind is ObjectKind.SEGMENT]
        assert table.row_count == len(rows)
        assert table.page_count == len(pages)
        assert table.paged_row_count == sum(page.rows for page in pages)
        assert table.paged_row_count == len(resolved) - len(rows) + len(pages)
        assert table.data_bytes == sum(row.length for row in spans)
        assert table.segment_bytes == sum(row.length for row in in_segments)
        references = Counter(row.object_id for row in [*spans, *pages]) + self.left
        assert len(machine.objects) == len(references)
        for kind in ObjectKind:
            of_kind = sorted(object_id for object_id in references if object_id.kind is kind)
            wanted = [(object_id, self.committed[object_id]) for object_id in of_kind]
            assert [*machine.objects.referenced(kind)] == wanted
        unreferenced = {each.object_id for each in machine.objects.unreferenced()}
        for object_id, length in self.committed.items():
            assert machine.objects.is_referenced(object_id) == (object_id in references)
            assert (object_id in unreferenced) == (object_id not in references)
            if object_id in references:
                assert machine.objects.length(object_id) == length
        assert machine.objects.unreferenced_count == len(unreferenced)

    @invariant()
    def aborted_ranges_are_exact(self) -> None:
        count = 0
        for number, model in enumerate(self.models):
            partition = self._partition(number)
            end = len(model.offsets)
            found = partition.aborted(model.log_start, end)
            assert found == sorted(model.aborted, key=lambda each: each.first)
            count += partition.aborted_count
            for middle in (model.log_start + 1, (model.log_start + end) // 2):
                if model.log_start < middle <= end:
                    part = partition.aborted(model.log_start, middle)
                    assert part == [each for each in found if each.first_offset < middle]
        assert self.story.machine.partitions.aborted_count == count

    def _partition(self, number: int) -> Partition:
        return self.story.partition(self.topic_id, number)

    def _rows(self, number: int) -> list[Row]:
        partition = self._partition(number)
        return partition.rows_from(0, partition.row_count)

    def _inside(self, page: Page) -> tuple[Span | Marker, ...]:
        body = self.bodies[page.object_id, page.start]
        assert (len(body), digest(body)) == (page.length, page.digest)
        rows = decode_rows(body, base_offset=page.base_offset, next_offset=page.next_offset)
        assert page.rows == len(rows)
        assert page.data_bytes == sum(row.length for row in rows if isinstance(row, Span))
        assert page.timestamp_max == max(map(_timestamp, rows))
        return rows

    def _resolved(self, number: int) -> list[Span | Marker]:
        """The rows, with those in pages in the place of the pages."""
        found: list[Span | Marker] = []
        for row in self._rows(number):
            found += self._inside(row) if isinstance(row, Page) else [row]
        return found

    def _is_raw(self, row: Row) -> bool:
        if isinstance(row, Page):
            return any(map(self._is_raw, self._inside(row)))
        return isinstance(row, Span) and row.object_id.kind is ObjectKind.CHUNK

    def _next(self, kind: ObjectKind) -> ObjectId:
        number = self.numbers[kind]
        self.numbers[kind] += 1
        return ObjectId(self.agent, number, kind)

    def _item(self, number: int, name: str | None, records: int, stamp: int, sent: int) -> Item:
        """What the producer sends next, after `sent` records of the same chunk."""
        if name is None:
            return Item(0, 10, records, stamp)
        row = self.story.machine.transactions.get(name)
        assert row is not None
        txn_metadata = row.txn_metadata
        windows = self._partition(number).windows or {}
        window = windows.get(txn_metadata.producer_id)
        sequence = 0
        if window is not None and describe(window).epoch == txn_metadata.epoch:
            sequence = describe(window).last_sequence + 1
        producer = (txn_metadata.producer_id, txn_metadata.epoch, sequence + sent)
        return Item(0, 10, records, stamp, *producer, OF_EPOCH)


def _harmed(named: Any, harm: str | None) -> Any:
    """A replacement or page, or one that must be refused."""
    match harm:
        case "cover":
            (first, *rest) = named.spans
            return named._replace(spans=(first._replace(base_offset=first.base_offset + 1), *rest))
        case "digest":
            return named._replace(digest=bytes(16))
        case "rows":
            return named._replace(rows=named.rows + 1)
        case "base":
            return named._replace(base_offset=named.base_offset + 1)
    return named


def _timestamp(row: Row) -> int:
    return row.timestamp if isinstance(row, Marker) else row.timestamp_max


def _bytes(row: Row) -> int:
    match row:
        case Span():
            return row.length
        case Page():
            return row.data_bytes
    return 0


TestRows = Rows.TestCase
TestRows.settings = settings(
    max_examples=100,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
