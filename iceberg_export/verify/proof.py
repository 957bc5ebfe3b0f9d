"""The proof: every committed record of the exported range is exactly once in the table.

Objects and table are read in two ways that share nothing but the checksum: spans through a decoder,
the table through PyIceberg's reader (deletes by others included). Both sides add up
`checksum.Sums`; equal sums in every block of offsets are the proof. With
`verify.decoder=reference` chunks are decoded by the plain decoder that the agents use, ten times
slower and written apart from the exporter's.

A batch that cannot be read has one row, among the dead letters, that names its offsets
(`records.rows`); the batch in the log must be that row, byte by byte.

Of typed tables both sides are compared as columns: chunks are decoded (with `reference` also keys
and values, record by record) and hashed as the table's columns are. What lies among the dead
letters must be there as it is in the log; so the two tables together have every record once. A
record that is in neither, since it cannot be decoded, is a difference, unless the topic drops
such records. Fields of values (keys) are not compared where `value.schema=latest` and the subject
has more than one version.

Of a topic with several tables the records of this one count: its route (`routes`) says which, for both sides alike.

Records that were redacted (`table.redactions`) are left out on both sides: the table may not have them, and what
is compared is the rest.

What retention has removed from the log cannot be compared; it is counted and shown. Likewise what
log compaction has removed: of a compacted topic, the table must have what the log still has, and
rows at offsets that segments have no record of are counted.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import FileScanTask, Table

from iceberg_export import names
from iceberg_export.dead_letters import dead_letter_table
from iceberg_export.files.partition_values import decimal_truncations
from iceberg_export.files.read import group_files, read_rows, scan_files
from iceberg_export.files.target import Target, target_of
from iceberg_export.names import KEY, VALUE
from iceberg_export.plan.agent_client import Topic
from iceberg_export.plan.splits import (
    PlannedSpan,
    Split,
    StoreAddress,
)
from iceberg_export.records.checksum import BLOCK_BITS, Block, Sums, add_sums, sum_rows
from iceberg_export.records.decode import Ints
from iceberg_export.records.read_chunks import open_reader, span_bytes
from iceberg_export.records.routed_rows import piece_of_route
from iceberg_export.records.rows import (
    ROW_SCHEMA,
    SpanRows,
    is_among,
    span_rows,
    without_content,
)
from iceberg_export.routes import Route, read_route
from iceberg_export.runs.job import Job, load_topic_types
from iceberg_export.table import schema, topic_settings
from iceberg_export.table.catalog import find_table
from iceberg_export.table.evolve import canonical_type
from iceberg_export.table.redactions import (
    Redaction,
    find_redactions,
    redacted_places,
    redactions_in,
)
from iceberg_export.table.state import Gap, LostOffsets
from iceberg_export.typed.decode_values import Message
from iceberg_export.typed.typed_rows import (
    RowDecoder,
    RowTyping,
    add_unknown,
    first_reason,
    typed_columns,
    unreadable_batches,
    without_typing,
)
from iceberg_export.verify.exported import Exported, check_columns, find_exported
from iceberg_export.verify.reference_rows import reference_rows

Ranges = dict[int, tuple[int, int]]
"""Offsets [from, to) by partition."""
BLOCKS_SHOWN_MAX = 10


Holes = dict[int, Ints]
"""By partition: first offsets and those after the last, two rows, of what compaction removed."""


class ChunkTask(NamedTuple):
    store: StoreAddress
    store_options: dict[str, str]
    split: Split
    reference: bool
    compacted: frozenset[int]
    """Partitions."""
    typing: RowTyping
    columns: pa.Schema
    """Those that are compared, with the table's types."""
    dead: Mapping[int, Ints]
    """Offsets by partition that are dead letters."""
    withheld: Mapping[int, Ints] = {}
    """Those of the dead letters that have no content."""
    redacted: Mapping[int, Ints] = {}
    """Records that are to be in no table."""
    route: Route | None = None
    """Which records are to be in this one; None: all."""


class TableTask(NamedTuple):
    target: Target
    files: list[FileScanTask]
    ranges: Ranges
    holes: Holes
    columns: pa.Schema
    redacted: Mapping[int, Ints] = {}


class PartialSums(NamedTuple):
    """The sums of one task."""

    sums: dict[Block, Sums]
    older: int
    """Rows of offsets before the range, or in holes: the log no longer has them."""
    beyond: int
    """Rows of offsets that no commit has claimed: always wrong."""
    holes: Holes
    dead: dict[Block, Sums]
    """Of records that are dead letters."""
    bad: int = 0
    """Records that cannot be decoded and are no dead letters."""
    first_reason: str = ""
    """Why the first of them cannot."""
    unknown: Mapping[str, set[Message]] = {}
    """Messages whose schemas the task did not know; when there are any, the rest is void."""
    redacted: int = 0
    """Records, or rows, that were redacted."""


class Verdict(NamedTuple):
    topic: str
    table: str
    records: int
    """Records compared."""
    checksum: str
    older: int
    problems: tuple[str, ...]
    """Empty: every record is in the table, or a dead letter, exactly once."""
    dead: int = 0
    """Dead letters compared."""
    skipped: int = 0
    """Of mode upsert: keys in several partitions, which are not compared."""
    redacted: int = 0
    """Records of the log that were redacted, and are not compared."""
    redactions: tuple[Redaction, ...] = ()
    """Who redacted, of all that the table ever had."""
    gone: int = 0
    """Offsets that were gone from the log before they were exported."""
    passed_over: int = 0
    """Offsets that a reset skipped."""
    lost: tuple[LostOffsets, ...] = ()
    """That were declared lost before they were exported: neither side has records there."""
    not_compared: tuple[str, ...] = ()
    """Columns that somebody dropped and added again: older rows have nothing there."""
    behind: int = 0
    """Offsets up to the log's stable end that no export has come to yet."""


def sum_chunks(task: ChunkTask, _attempt: int) -> PartialSums:
    """Adds up the records of a split, from its chunks. Raises ExportError."""
    holes: dict[int, list[Ints]] = {}
    log = _Log(task)
    reader = open_reader(task.store, task.store_options)
    for span, data in span_bytes(reader, task.split.spans):
        pieces = reference_rows(span, data) if task.reference else span_rows(span, data)
        offsets = []
        for piece in pieces:
            log.add(piece)
            offsets.append(piece.rows.column(names.OFFSET).to_numpy())
        # Only segments have holes; what aborted transactions leave elsewhere must not be exported.
        if span.is_absolute and span.partition in task.compacted:
            holes.setdefault(span.partition, []).append(_holes(span, offsets))
    return log.found(_sorted(holes))


class _Log:
    """Adds up the records of a split: those for the table, and dead letters."""

    def __init__(self, task: ChunkTask) -> None:
        self._task = task
        self._decoder = RowDecoder(task.typing, reference=task.reference)
        self._sums: dict[Block, Sums] = {}
        self._dead: dict[Block, Sums] = {}
        self._bad = 0
        self._said = ""
        self._unknown: dict[str, set[Message]] = {}
        self._redacted = 0

    def add(self, piece: SpanRows) -> None:
        task = self._task
        rows = piece_of_route(task.route, piece)
        if rows.num_rows == 0:
            return
        if piece.reasons:
            rows = unreadable_batches(rows, piece.reasons)
        if task.redacted and rows.num_rows:
            kept = rows.filter(pc.invert(is_among(rows, task.redacted)))
            self._redacted += rows.num_rows - kept.num_rows
            rows = kept
        if task.dead and rows.num_rows:
            among = is_among(rows, task.dead)
            letters = rows.select(ROW_SCHEMA.names).filter(among)
            for some in self._as_letters(letters):
                add_sums(self._dead, sum_rows(some))
            rows = rows.filter(pc.invert(among))
        if rows.num_rows == 0:
            return
        if piece.reasons:
            self._add_bad(rows)
            return
        if task.typing.is_raw:
            add_sums(self._sums, sum_rows(_compared_columns(rows, task.columns)))
            return
        for _, decoded in self._decoder.parts(rows):
            add_unknown(self._unknown, decoded.unknown)
            if self._unknown:
                continue
            if decoded.bad.num_rows:
                self._add_bad(decoded.bad)
            add_sums(self._sums, sum_rows(_compared_columns(decoded.rows, task.columns)))

    def _as_letters(self, rows: pa.Table) -> list[pa.Table]:
        """Returns the rows as their dead-letter table is to have them."""
        if not self._task.withheld:
            return [rows]
        empty = is_among(rows, self._task.withheld)
        return [rows.filter(pc.invert(empty)), without_content(rows.filter(empty))]

    def _add_bad(self, bad: pa.Table) -> None:
        self._bad += bad.num_rows
        self._said = self._said or first_reason(bad)

    def found(self, holes: Holes) -> PartialSums:
        return PartialSums(
            self._sums,
            older=0,
            beyond=0,
            holes=holes,
            dead=self._dead,
            bad=self._bad,
            first_reason=self._said,
            unknown=self._unknown,
            redacted=self._redacted,
        )


def _compared_columns(rows: pa.Table, columns: pa.Schema) -> pa.Table:
    """Returns the columns to be compared, with the same types on both sides."""
    arrays = [rows.column(field.name).cast(field.type) for field in columns]
    return pa.Table.from_arrays(arrays, schema=columns)


def _holes(span: PlannedSpan, offsets: list[Ints]) -> Ints:
    """Returns the offsets wanted from a span that no record has."""
    there = np.concatenate([[span.offset_from - 1], *offsets, [span.offset_to]])
    gaps = np.diff(there) > 1
    return np.vstack([there[:-1][gaps] + 1, there[1:][gaps]])


def _with_gaps(holes: Holes, gaps: Iterable[Gap]) -> Holes:
    """Returns the holes, and the gaps as more of them; none overlaps another."""
    found = {partition: [both] for partition, both in holes.items()}
    for gap in gaps:
        found.setdefault(gap.partition, []).append(np.array([[gap.start], [gap.end]]))
    return _sorted(found)


def _sorted(holes: Mapping[int, Sequence[Ints]]) -> Holes:
    joined = {partition: np.hstack(parts) for partition, parts in holes.items()}
    return {partition: both[:, np.argsort(both[0])] for partition, both in joined.items()}


def sum_table(task: TableTask, _attempt: int) -> PartialSums:
    """Adds up the rows of some data files, deletes applied, within the ranges."""
    metadata, io = task.target.open()
    projected = metadata.schema().select(*task.columns.names)
    sums: dict[Block, Sums] = {}
    older = beyond = redacted = 0
    for all_rows in read_rows(task.files, metadata, io, projected):
        rows = _compared_columns(all_rows, task.columns)
        if task.redacted:
            kept = rows.filter(pc.invert(is_among(rows, task.redacted)))
            redacted += rows.num_rows - kept.num_rows
            rows = kept
        for partition in pc.unique(rows.column(names.PARTITION)).to_pylist():
            first, end = task.ranges.get(partition, (0, 0))
            part = rows.filter(pc.equal(rows.column(names.PARTITION), partition))
            before = pc.less(part.column(names.OFFSET), first)
            after = pc.greater_equal(part.column(names.OFFSET), end)
            older += pc.sum(before).as_py() or 0
            beyond += pc.sum(after).as_py() or 0
            part = part.filter(pc.invert(pc.or_(before, after)))
            removed = _in_holes(part, task.holes.get(partition))
            older += int(removed.sum())
            add_sums(sums, sum_rows(part.filter(pa.array(~removed))))
    return PartialSums(sums, older, beyond, holes={}, dead={}, redacted=redacted)


def _in_holes(rows: pa.Table, holes: Ints | None) -> npt.NDArray[np.bool_]:
    """Returns which rows have offsets that the log has no record of any more."""
    offsets = rows.column(names.OFFSET).to_numpy()
    if holes is None or not holes.size:
        return np.zeros(len(offsets), np.bool_)
    firsts, nexts = holes
    place = np.searchsorted(firsts, offsets, side="right") - 1
    inside: npt.NDArray[np.bool_] = (place >= 0) & (offsets < nexts[place])
    return inside


def compare(
    chunks: Mapping[Block, Sums], table: Mapping[Block, Sums], place_said: str = "in the table"
) -> list[str]:
    """Returns what differs, one sentence per block of offsets, the first few."""
    problems = []
    for block in sorted(chunks.keys() | table.keys()):
        log, rows = chunks.get(block), table.get(block)
        if log == rows:
            continue
        first = block.number << BLOCK_BITS
        place = f"partition {block.partition}, offsets {first} to {first + (1 << BLOCK_BITS) - 1}"
        in_log, in_table = log.records if log else 0, rows.records if rows else 0
        if in_log == in_table:
            problems.append(f"{place}: {in_log} records on both sides, but not the same ones")
        else:
            problems.append(f"{place}: {in_log} records in the log, {in_table} {place_said}")
    if len(problems) > BLOCKS_SHOWN_MAX:
        more = len(problems) - BLOCKS_SHOWN_MAX
        problems[BLOCKS_SHOWN_MAX:] = [f"and {more} more blocks of offsets"]
    return problems


def verify_topic(job: Job, topic: Topic) -> Verdict:
    """Compares log and table over all that was exported. Raises ExportError."""
    exported = find_exported(job, topic)
    ranges = {number: (one.start, one.end) for number, one in exported.ranges.items()}
    comparison = _Comparison(job, topic, exported)
    chunks = comparison.chunks(exported.spans)
    rows = comparison.rows(exported.table, comparison.columns, ranges, chunks.holes)
    problems = compare(chunks.sums, rows.sums)
    if rows.redacted:
        problems.append(
            f"{rows.redacted} rows of the table were redacted and are there; `frazil export redact --topic "
            f"{topic.name}` takes them out"
        )
    if rows.beyond:
        problems.append(f"{rows.beyond} rows of offsets that no export has committed")
    if chunks.bad and comparison.topic_table.bad_records != "drop":
        problems.append(
            f"{chunks.bad} records cannot be decoded and are no dead letters: {chunks.first_reason}"
        )
    if comparison.dead_table is not None:
        # A rollback may have brought back a gap: the dead letters that filled it stay.
        passed = _with_gaps(chunks.holes, exported.state.gaps)
        dead_rows = comparison.rows(comparison.dead_table, ROW_SCHEMA, ranges, passed)
        problems += compare(chunks.dead, dead_rows.sums, "among the dead letters")
    total = sum_of(chunks.sums)
    return Verdict(
        topic.name,
        exported.name,
        total.records,
        f"{total.hashes:016x}{total.mixed:016x}",
        rows.older,
        tuple(problems),
        sum_of(chunks.dead).records,
        redacted=chunks.redacted,
        redactions=tuple(comparison.redactions),
        gone=exported.gone,
        passed_over=exported.passed_over,
        lost=exported.state.lost,
        not_compared=tuple(sorted(comparison.not_compared)),
        behind=sum(
            max(0, part.stable - max(part.log_start, exported.state.offsets.get(number, 0)))
            for number, part in exported.plan.partitions.items()
        ),
    )


class _Comparison:
    """Adds up log and tables in the same columns."""

    def __init__(self, job: Job, topic: Topic, exported: Exported) -> None:
        self._job = job
        self._plan = exported.plan
        self._table = table = exported.table
        self.topic_table = topic_settings.parse(topic.configs, topic.name)
        self._types = load_topic_types(job, topic)
        # Which schema was the newest when a record was exported, nobody knows any more.
        self._left_out = (
            self._types.repinned(table.metadata.properties)
            if self._types is not None
            else frozenset[str]()
        )
        noted = find_redactions(table, topic.topic_id)
        self._redacted = redacted_places(noted)
        self.redactions = redactions_in(noted) if noted is not None else []
        self._route = read_route(".".join(table.name()), table.metadata.properties)
        # Nor before which record a column was added that somebody had dropped.
        self.not_compared = added_again(table)
        self._fit()
        check_columns(table, self.columns.names)
        name, namespace = table.name()[-1], table.name()[:-1]
        dead_name = dead_letter_table.dead_letter_identifier((".".join(namespace), name))
        self.dead_table = find_table(job.catalog, dead_name)
        if self.dead_table is not None:
            check_columns(self.dead_table, ROW_SCHEMA.names)
        self._dead = (
            dead_letter_table.dead_offsets(self.dead_table, 0)
            if self.dead_table is not None
            else {}
        )
        self._withheld = (
            dead_letter_table.withheld_places(self.dead_table)
            if self.dead_table is not None
            else {}
        )

    def _fit(self) -> None:
        """Sets the columns to compare, by the schemas that are known now."""
        if self._types is None:
            self._typing, self.columns = RowTyping(), ROW_SCHEMA
            return
        typing = self._types.typing(self._table)._replace(
            truncations=decimal_truncations(self._table.metadata)
        )
        self._typing = without_typing(typing, self._left_out)
        there = schema.columns_of(self._table)
        found = typed_columns(typing, self._left_out)
        wanted = [
            name
            for name in (typing.edits.renamed.get(one, one) for one in found)
            if name not in self.not_compared
        ]
        self.columns = pa.schema(
            [ROW_SCHEMA.field(name) for name in ROW_SCHEMA.names if name not in {KEY, VALUE}]
            + [pa.field(name, canonical_type(there.field(name).type)) for name in wanted]
        )

    def chunks(self, spans: list[PlannedSpan]) -> PartialSums:
        """Adds up the log. Fetches schemas that only records name."""
        while True:
            found = self._run_chunks(spans)
            if not found.unknown:
                return found
            assert self._types is not None
            self._types.fetch_schemas(found.unknown)
            self._fit()

    def _run_chunks(self, spans: list[PlannedSpan]) -> PartialSums:
        if not spans:
            return _added_up([])
        job, plan = self._job, self._plan
        runner = job.runner()
        splits = job.splits(spans)
        options = job.settings.store_options
        reference = job.settings["verify.decoder"] == "reference"
        compacted = frozenset(part.partition for part in plan.partitions.values() if part.compacted)

        def task(split: Split) -> ChunkTask:
            return ChunkTask(
                plan.store, options, split, reference, compacted,
                self._typing, self.columns, self._dead, self._withheld, self._redacted, self._route,
            )  # fmt: skip

        return _added_up(
            runner.run(
                sum_chunks,
                [task(split) for split in splits],
                sizes=[split.byte_count for split in splits],
                title=f"{plan.topic}: reading chunks",
            )
        )

    def rows(self, table: Table, columns: pa.Schema, ranges: Ranges, holes: Holes) -> PartialSums:
        """Adds up a table."""
        name = ".".join(table.name())
        bytes_max = self._job.settings.number("split.bytes.max")
        groups = group_files(scan_files(table), bytes_max)
        if not groups:
            return _added_up([])
        target = target_of(table)
        return _added_up(
            self._job.runner().run(
                sum_table,
                [
                    TableTask(target, group, ranges, holes, columns, self._redacted)
                    for group in groups
                ],
                sizes=[sum(one.file.file_size_in_bytes for one in group) for group in groups],
                title=f"{self._plan.topic}: reading table {name}",
            )
        )


def added_again(table: Table) -> frozenset[str]:
    """Returns columns, by their names of today, of which older rows have nothing though the log does."""
    seen = schema.columns_view(table)
    return frozenset(seen.edits.renamed.get(name, name) for name in seen.added_again)


def sum_of(sums: Mapping[Block, Sums]) -> Sums:
    """Returns the sum of all blocks."""
    total = Sums(0, 0, 0)
    for one in sums.values():
        total = total.plus(one)
    return total


def _added_up(found: list[PartialSums]) -> PartialSums:
    sums: dict[Block, Sums] = {}
    dead: dict[Block, Sums] = {}
    holes: dict[int, list[Ints]] = {}
    unknown: dict[str, set[Message]] = {}
    for one in found:
        add_sums(sums, one.sums)
        add_sums(dead, one.dead)
        for partition, both in one.holes.items():
            holes.setdefault(partition, []).append(both)
        for source, ids in one.unknown.items():
            unknown.setdefault(source, set()).update(ids)
    return PartialSums(
        sums,
        older=sum(one.older for one in found),
        beyond=sum(one.beyond for one in found),
        holes=_sorted(holes),
        dead=dead,
        bad=sum(one.bad for one in found),
        first_reason=next((one.first_reason for one in found if one.first_reason), ""),
        unknown=unknown,
        redacted=sum(one.redacted for one in found),
    )
