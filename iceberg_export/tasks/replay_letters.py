"""One task of a replay: it decodes dead letters again, and writes those that have become good as rows.

What is still bad stays where it is: the task writes none of it, and counts it by reason. Batches that
could not be read are not tried, since what is wrong with them no schema mends; nor are letters whose content
is withheld, rows that people have put among them, redacted records, nor what lies at or after the table's offsets, which
exports will judge. Leaves out the commit (`upkeep.replay`).
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask

from iceberg_export import names
from iceberg_export.dead_letters.counts import count_codes
from iceberg_export.files.read import read_rows
from iceberg_export.files.target import Target
from iceberg_export.files.write import FileWriter, discarded_on_error
from iceberg_export.records.decode import Ints
from iceberg_export.records.rows import ROW_SCHEMA, is_among
from iceberg_export.table.redactions import Places, joined_places, places_of
from iceberg_export.typed.decode_values import Message
from iceberg_export.typed.typed_rows import (
    BAD_BATCH,
    ERROR_CODE,
    ERROR_MESSAGE,
    RUN_ID,
    WITHHELD,
    RowDecoder,
    RowTyping,
    add_seen,
    add_unknown,
    first_reason,
)


class ReplaySetup(NamedTuple):
    """What all tasks of a replay share."""

    run_id: str
    letters: Target
    """The dead-letter table."""
    target: Target
    typing: RowTyping
    ends: Mapping[int, int]
    """Offsets of the table, by partition."""
    redacted: Mapping[int, Ints] = {}


class LettersSplit(NamedTuple):
    """Files of dead letters for one task."""

    number: int
    files: tuple[FileScanTask, ...]

    @property
    def byte_count(self) -> int:
        return sum(file.file.file_size_in_bytes for file in self.files)


class ReplayResult(NamedTuple):
    number: int
    files: list[DataFile]
    places: Places
    """Of the letters that have become rows."""
    left: Mapping[str, int]
    """Number of letters that stay, by reason."""
    first_reason: str = ""
    """Why the first of those that were tried stays."""
    unknown: Mapping[str, set[Message]] = {}
    """Messages whose schemas the task did not know; when there are any, nothing was written."""
    seen: Mapping[str, str] = {}
    """What inferred types have no place for, by `Side.source` (`inferred.write_seen`)."""


class _Letters:
    """Writes the letters of a split that can be decoded by now."""

    def __init__(self, setup: ReplaySetup, name: str) -> None:
        self._setup = setup
        self._decoder = RowDecoder(setup.typing)
        self._writer = FileWriter(setup.target, name)
        self._places: Places = {}
        self._left: Counter[str] = Counter()
        self._first_reason = ""
        self._unknown: dict[str, set[Message]] = {}
        self._seen: dict[str, str] = {}

    def take(self, letters: pa.Table) -> None:
        tried = self._tried(letters)
        withheld = pc.equal(letters.column(ERROR_MESSAGE), WITHHELD).fill_null(False)  # noqa: FBT003
        self._left += count_codes(letters.filter(pc.and_not(pc.invert(tried), withheld)))
        self._left["withheld"] += pc.sum(withheld).as_py() or 0
        tried = pc.and_not(tried, withheld)
        rows = letters.filter(tried).select(ROW_SCHEMA.names).cast(ROW_SCHEMA)
        for _, decoded in self._decoder.parts(rows):
            add_unknown(self._unknown, decoded.unknown)
            add_seen(self._seen, decoded.seen)
            if self._unknown:
                continue
            if decoded.bad.num_rows:
                self._left += count_codes(decoded.bad)
                self._first_reason = self._first_reason or first_reason(decoded.bad)
            if decoded.rows.num_rows:
                self._writer.write(decoded.rows)
                self._places = joined_places(self._places, places_of(decoded.rows))

    def _tried(self, letters: pa.Table) -> pa.Array:
        ours = pc.and_(letters.column(RUN_ID).is_valid(), letters.column(ERROR_CODE).is_valid())
        readable = pc.not_equal(letters.column(ERROR_CODE), BAD_BATCH).fill_null(False)  # noqa: FBT003
        partitions, offsets = letters.column(names.PARTITION), letters.column(names.OFFSET)
        ends = [self._setup.ends.get(number, 0) for number in partitions.to_pylist()]
        below = pc.less(offsets, pa.array(ends, pa.int64()))
        stays_away = is_among(letters, self._setup.redacted)
        return pc.and_(pc.and_(ours, readable), pc.and_not(below, stays_away))

    def result(self, number: int) -> ReplayResult:
        if self._unknown:
            self.discard()
            return ReplayResult(number, [], {}, {}, unknown=self._unknown, seen=self._seen)
        return ReplayResult(
            number, self._writer.close(), self._places, +self._left, self._first_reason
        )

    def discard(self) -> None:
        self._writer.discard()


def replay_letters(payload: Any, attempt: int) -> ReplayResult:
    """Writes the good ones of a split of `(ReplaySetup, LettersSplit)`.

    Raises ExportError; then none of its files are left.
    """
    setup: ReplaySetup
    split: LettersSplit
    setup, split = payload
    metadata, io = setup.letters.open()
    columns = metadata.schema().select(*ROW_SCHEMA.names, ERROR_CODE, ERROR_MESSAGE, RUN_ID)
    out = _Letters(setup, f"{setup.run_id}-{split.number:05d}-{attempt}")
    with discarded_on_error(out):
        for letters in read_rows(split.files, metadata, io, columns):
            out.take(letters)
        return out.result(split.number)
