"""One task of an export: it reads the spans of a split, decodes them, and writes data files.

Runs in a Spark executor, or in-process in tests. The result names the files and has a tally of
every partition's offsets, so that the driver can prove before the commit that none is missing or
double. A record that cannot be decoded goes to a file of dead letters, is dropped and counted, or
ends the run, by the topic's settings; a batch that cannot be read likewise, as one row. A schema
that the task does not know makes the whole split void, and the driver runs it again.

Memory of a task, whatever producers sent: the bytes that it reads; a unit of batches and the columns
of a piece of its records (`records.decode`), decoded; and what writers gather before they write
(`files.write`, `upsert.buckets`). docs/design/tables.md §3 adds it up.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile

from iceberg_export import names
from iceberg_export.errors import ExportError, PlanError
from iceberg_export.files.target import Target
from iceberg_export.files.write import FileWriter, discarded_on_error
from iceberg_export.plan.splits import CommitRange, Split, StoreAddress
from iceberg_export.records.decode import Ints, Tally
from iceberg_export.records.last_records import LastRowOfEach
from iceberg_export.records.read_chunks import open_reader, span_bytes
from iceberg_export.records.routed_rows import piece_of_route
from iceberg_export.records.rows import (
    SpanRows,
    TimestampLimits,
    is_among,
    limit_timestamps,
    span_rows,
)
from iceberg_export.routes import Route
from iceberg_export.table.state import LastRecord
from iceberg_export.typed.decode_values import Message
from iceberg_export.typed.typed_rows import (
    RUN_ID,
    DecodedRows,
    RowDecoder,
    RowTyping,
    add_seen,
    add_unknown,
    first_reason,
    split_keyless,
    unreadable_batches,
    withhold,
)
from iceberg_export.upsert.buckets import ShuffleFile, ShuffleWriter, with_key_and_tombstone


class BadRecordError(ExportError):
    """A record cannot be decoded, and the topic wants to know before anything is exported."""


class NoDeadLettersError(ExportError):
    """There is a dead letter, and no table for it yet."""


class BadRecords(NamedTuple):
    """What becomes of records that cannot be decoded."""

    topic: str
    policy: str
    """dlq, drop or fail."""
    target: Target | None = None
    """The dead letters' table, with dlq."""
    already: Mapping[int, Ints] = {}
    """Offsets by partition that are dead letters for good, or redacted."""
    withholds: bool = False
    """Columns are masked, so nothing of what a dead letter holds is told or written either."""


class TaskSetup(NamedTuple):
    """What all tasks of a run share."""

    run_id: str
    store: StoreAddress
    store_options: dict[str, str]
    target: Target
    typing: RowTyping = RowTyping()
    bad: BadRecords = BadRecords("", "fail")
    timestamps: TimestampLimits | None = None
    upsert: bool = False
    """Rows are left for the tasks of their buckets."""
    route: Route | None = None
    """Which records are the table's; None: all."""


class SplitResult(NamedTuple):
    number: int
    files: list[DataFile]
    tallies: dict[int, Tally]
    """By partition."""
    dead_files: Sequence[DataFile] = ()
    left_out: int = 0
    """Rows in no file: dropped, redacted, or dead letters since an earlier run."""
    first_reason: str = ""
    """Why the first bad record is one."""
    unknown: Mapping[str, set[Message]] = {}
    """Messages whose schemas the task did not know; when there are any, nothing was written."""
    seen: Mapping[str, str] = {}
    """What inferred types have no place for, by `Side.source` (`inferred.write_seen`)."""
    shuffled: Sequence[ShuffleFile] = ()
    """In mode upsert: what there is instead of `files`."""
    last_records: Mapping[int, LastRecord] = {}
    """The last record of each partition."""
    elsewhere: int = 0
    """Rows of the topic's other tables."""


class _Rows:
    """Writes the rows of a split to data files, dead letters or the shuffle file."""

    def __init__(self, setup: TaskSetup, name: str) -> None:
        self._setup = setup
        self._decoder = RowDecoder(setup.typing)
        self._files = FileWriter(setup.target, name)
        self._shuffle = ShuffleWriter(setup.target, name) if setup.upsert else None
        bad = setup.bad
        self._dead_files = FileWriter(bad.target, name) if bad.target is not None else None
        self.left_out = 0
        self.elsewhere = 0
        self.first_reason = ""
        self.unknown: dict[str, set[Message]] = {}
        self.seen: dict[str, str] = {}

    def take(self, piece: SpanRows) -> None:
        rows = piece_of_route(self._setup.route, piece)
        self.elsewhere += piece.rows.num_rows - rows.num_rows
        if piece.reasons and rows.num_rows:
            bad = self._kept(unreadable_batches(rows, piece.reasons))
            if bad.num_rows:
                self._put_aside(bad)
        elif rows.num_rows:
            self._take_records(self._kept(rows))

    def _kept(self, rows: pa.Table) -> pa.Table:
        """Leaves out what is a dead letter already, or was redacted."""
        if self._setup.timestamps is not None:
            rows = limit_timestamps(rows, self._setup.timestamps)
        if self._setup.bad.already:
            count = rows.num_rows
            rows = rows.filter(pc.invert(is_among(rows, self._setup.bad.already)))
            self.left_out += count - rows.num_rows
        return rows

    def _take_records(self, rows: pa.Table) -> None:
        if self._setup.typing.is_raw and self._shuffle is None:
            self._files.write(rows)
            return
        if self._shuffle is not None:
            rows, keyless = split_keyless(rows)
            if keyless.num_rows:
                self._put_aside(keyless)
        if rows.num_rows == 0:
            return
        for some, decoded in self._decoder.parts(rows):
            add_unknown(self.unknown, decoded.unknown)
            add_seen(self.seen, decoded.seen)
            if self.unknown:
                continue
            self._put(decoded, some)
            if decoded.bad.num_rows:
                self._put_aside(decoded.bad)

    def _put(self, decoded: DecodedRows, rows: pa.Table) -> None:
        """Writes the good ones of `rows`."""
        if self._shuffle is None:
            self._files.write(decoded.rows)
            return
        if decoded.bad.num_rows:
            # A piece is of one partition.
            dead = decoded.bad.column(names.OFFSET)
            rows = rows.filter(pc.invert(pc.is_in(rows.column(names.OFFSET), dead)))
        self._shuffle.write(with_key_and_tombstone(decoded.rows, rows, decoded.deleted))

    def _put_aside(self, bad: pa.Table) -> None:
        policy = self._setup.bad.policy
        if self._setup.bad.withholds:
            bad = withhold(bad)
        self.first_reason = self.first_reason or first_reason(bad)
        if policy == "fail":
            raise BadRecordError(
                f"topic {self._setup.bad.topic} {first_reason(bad)}; nothing was exported"
            )
        if policy == "drop":
            self.left_out += bad.num_rows
            return
        if self._dead_files is None:
            raise NoDeadLettersError(
                f"topic {self._setup.bad.topic} {first_reason(bad)}; it has no table of dead letters"
            )
        run_ids = pa.array([self._setup.run_id] * bad.num_rows, pa.large_string())
        at = bad.schema.get_field_index(RUN_ID)
        self._dead_files.write(bad.set_column(at, RUN_ID, run_ids))

    def close(self) -> tuple[list[DataFile], list[DataFile], list[ShuffleFile]]:
        """Returns files of the table, of dead letters, and for the tasks of buckets."""
        dead = self._dead_files.close() if self._dead_files is not None else []
        return self._files.close(), dead, self._shuffle.close() if self._shuffle else []

    def discard(self) -> None:
        self._files.discard()
        if self._shuffle is not None:
            self._shuffle.discard()
        if self._dead_files is not None:
            self._dead_files.discard()


def export_split(setup: TaskSetup, split: Split, attempt: int) -> SplitResult:
    """Writes the rows of a split. Raises ExportError; then none of its files are left."""
    reader = open_reader(setup.store, setup.store_options)
    out = _Rows(setup, f"{setup.run_id}-{split.number:05d}-{attempt}")
    tallies: dict[int, Tally] = {}
    last = LastRowOfEach()
    with discarded_on_error(out):
        for span, data in span_bytes(reader, split.spans):
            for piece in span_rows(span, data):
                last.take(span, piece.rows)
                out.take(piece)
                tallies[span.partition] = tallies.get(span.partition, Tally()).plus(piece.tally)
        if out.unknown:
            out.discard()
            return SplitResult(split.number, [], {}, unknown=out.unknown, seen=out.seen)
        files, dead_files, shuffled = out.close()
    return SplitResult(
        split.number, files, tallies, dead_files, out.left_out, out.first_reason, shuffled=shuffled,
        last_records=last.last_records(), elsewhere=out.elsewhere,
    )  # fmt: skip


def export_task(payload: Any, attempt: int) -> SplitResult:
    """As `export_split`, for `(setup, split)`."""
    setup, split = payload
    return export_split(setup, split, attempt)


def check_complete(
    commit_range: CommitRange, results: Mapping[int, SplitResult], split_count: int
) -> int:
    """Proves that the results cover `commit_range` exactly; returns the rows written for the table.

    Raises PlanError when an offset is unaccounted for or double: then nothing may be committed.
    """
    if sorted(results) != list(range(split_count)):
        raise PlanError(f"{split_count - len(results)} tasks gave no result; nothing was exported")
    covered: dict[int, Tally] = {}
    rows = 0
    for result in results.values():
        if result.unknown:
            raise PlanError("a task's split is void, for want of a schema; nothing was exported")
        written = sum(file.record_count for file in result.files)
        written += sum(file.taken for file in result.shuffled)
        rows += written
        written += sum(file.record_count for file in result.dead_files)
        written += result.left_out + result.elsewhere
        if written != sum(tally.rows for tally in result.tallies.values()):
            raise PlanError("a task's files hold another number of rows than it decoded")
        for partition, tally in result.tallies.items():
            covered[partition] = covered.get(partition, Tally()).plus(tally)
    for partition, end in commit_range.ends.items():
        # What lies outside the wanted offsets was read with a span's edge: it is not ours.
        edge = sum(
            span.records - (span.offset_to - span.offset_from)
            for span in commit_range.spans
            if span.partition == partition
        )
        tally = covered.get(partition, Tally())
        if tally.outside > edge:
            raise PlanError(
                f"partition {partition}: {tally.outside} offsets were left aside as not wanted, "
                f"{edge} are; nothing was exported"
            )
        read = tally.offsets - edge
        wanted = end - commit_range.starts[partition] - commit_range.markers.get(partition, 0)
        if read != wanted:
            raise PlanError(
                f"partition {partition}: {read} offsets were read of {wanted}; nothing was exported"
            )
    return rows
