"""Rows of a topic in the columns of its table: keys and values decoded, bad records apart.

`RowTyping` is all that a task needs: schemas by id, what was refused and why, and which of the
table's columns each field fills. A record is bad when its value or its key is, or when no
partition of the table can hold it: then the whole record, as it was, is a dead letter with the
reason. Nothing is guessed: a record whose schema, or message in a Protobuf file, the driver did
not give is neither good nor bad: it is `unknown`, and the split runs again.

Layouts: of values `flat` (fields are columns of the table; one with a name that is taken gets a `_`)
or `nested` (one struct `value`); keys are always one struct, `kafka_key`. Text is a column of its
own name in both. Pure.
"""

import heapq
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_export import names
from iceberg_export.records.cells import CELLS_MAX, Cells, TooManyCellsError, rows_max
from iceberg_export.records.masks import masked
from iceberg_export.records.rows import ROW_SCHEMA, single_array, without_content
from iceberg_export.table.edits import NONE, Edits, field_as_in_table
from iceberg_export.table.evolve import canonical_type
from iceberg_export.table.partition_limits import DecimalTruncation, rows_without_partition
from iceberg_export.typed.decode_values import (
    SCHEMA_UNKNOWN,
    UNDECODABLE,
    BadValue,
    Decoded,
    KnownMessages,
    Message,
    SchemaSelection,
    decode,
)
from iceberg_export.typed.envelope import change_fields
from iceberg_export.typed.inferred import join, read_seen, write_seen
from iceberg_export.typed.schema_headers import KEY_HEADER, VALUE_HEADER, find_schema_headers
from iceberg_export.typed.types import Schema

KEY_SCHEMA_ID = "kafka_key_schema_id"
VALUE_SCHEMA_ID = "kafka_value_schema_id"
ERROR_CODE = "error_code"
ERROR_MESSAGE = "error_message"
SCHEMA_ID = "schema_id"
RUN_ID = "run_id"
DEAD_ROW_SCHEMA = pa.schema(
    [
        *ROW_SCHEMA,
        pa.field(ERROR_CODE, pa.large_string()),
        pa.field(ERROR_MESSAGE, pa.large_string()),
        pa.field(SCHEMA_ID, pa.int32()),
        pa.field(RUN_ID, pa.large_string()),
    ]
)
NO_KEY = "NO_KEY"
NO_PARTITION = "NO_PARTITION"
BAD_BATCH = "BAD_BATCH"
WITHHELD = (
    "withheld, like key and value: the topic's columns are masked (frazil.iceberg.columns.mask)"
)
"""In the place of the message of a dead letter that has no content (`withhold`)."""
UNKNOWN_MAX = 1000
"""Messages that a task asks about at a time. A producer may name a schema of its own in each record."""
_TAKEN = re.compile(
    r"kafka_.*"
    # Metadata columns of Iceberg's readers: Spark reads nothing of a table that has one of its own.
    r"|(?:_file|_pos|_deleted|_spec_id|_partition|_row_id|_last_updated_sequence_number"
    r"|_change_type|_change_ordinal|_commit_snapshot_id)_*"
    # Trino's.
    r"|\$(?:path|file_modified_time|partition)_*",
    re.IGNORECASE | re.DOTALL,
)
"""Names of columns that are ours, or an engine's."""
_MESSAGE_CHARS_MAX = 1000


class Refusal(NamedTuple):
    """Why records of a schema are dead letters."""

    code: str
    message: str


class Side(NamedTuple):
    """How the keys, or the values, of a topic become columns."""

    source: str
    """The column of `ROW_SCHEMA` that is decoded."""
    mode: str = "raw"
    nested: bool = False
    envelope: str = ""
    """Form of the change events that values are (`envelope.FORMS`); "": they are none."""
    schemas: Mapping[int, Schema] = {}
    messages: frozenset[Message] = frozenset()
    """Whose fields are in `target`."""
    refused: Mapping[Message, Refusal] = {}
    others: Refusal | None = None
    """Of records whose schemas are neither given nor refused; None: the registry is to be asked."""
    default: int | None = None
    """Schema id of what has no frame, in json."""
    pinned: int | None = None
    """Schema id of everything: then nothing has a frame, and headers count for nothing."""
    guids: Mapping[int, int] = {}
    """Schema ids by GUIDs, as `typed.schema_headers` has them."""
    target: pa.Schema = pa.schema([])
    """Fields of the schemas, with the types that the table's columns have."""
    edits: Edits = NONE
    """What people changed of these fields."""
    hidden: int = 0
    """Columns of what they dropped, nested ones counted: it is decoded all the same."""

    @property
    def has_schemas(self) -> bool:
        return self.mode not in {"raw", "string"}

    @property
    def header(self) -> str:
        """Name of the records' header that may name a schema."""
        return KEY_HEADER if self.source == names.KEY else VALUE_HEADER

    @property
    def id_column(self) -> str:
        return KEY_SCHEMA_ID if self.source == names.KEY else VALUE_SCHEMA_ID


class RowTyping(NamedTuple):
    """What a task knows of the table's columns."""

    key: Side = Side(names.KEY)
    value: Side = Side(names.VALUE)
    truncations: tuple[DecimalTruncation, ...] = ()
    """Partition fields that some values have no place in."""
    edits: Edits = NONE
    """What people changed of the table's columns."""
    masks: Mapping[str, Any] = {}
    """Of the table's columns, by the exporter's names (`masks.Masks`)."""

    @property
    def is_raw(self) -> bool:
        return self.key.mode == self.value.mode == "raw"


class DecodedRows(NamedTuple):
    """Rows after decoding: the good ones, and the bad ones."""

    rows: pa.Table
    """The good ones, with columns of the table."""
    bad: pa.Table
    """The others, of DEAD_ROW_SCHEMA; without the run's id."""
    unknown: dict[str, set[Message]]
    """Messages whose schemas are unknown, by `Side.source`; when there are any, the rest is void."""
    seen: Mapping[str, str] = {}
    """What inferred types have no place for, by `Side.source` (`inferred.write_seen`)."""
    deleted: pa.Array | None = None
    """Of change events: which of the good rows are deletes, whatever columns the table has."""


def column_name(field: str) -> str:
    """Returns the table's column of a field in the flat layout; different fields have different ones."""
    return f"{field}_" if _TAKEN.fullmatch(field) else field


def side_columns(
    source: str, mode: str, fields: pa.Schema, *, nested: bool, envelope: str = ""
) -> list[pa.Field]:
    """Returns the table's columns for keys or values of that mode, given the fields of a schema."""
    if mode in {"raw", "string"}:
        return [pa.field(source, pa.large_string() if mode == "string" else pa.large_binary())]
    id_column = KEY_SCHEMA_ID if source == names.KEY else VALUE_SCHEMA_ID
    ids = [pa.field(id_column, pa.int32()), *change_fields(envelope)]
    if nested:
        whole = pa.struct(list(fields))
        return [pa.field(source, canonical_type(whole)), *ids] if len(fields) else ids
    return [*ids, *(pa.field(column_name(one.name), canonical_type(one.type)) for one in fields)]


def without_typing(typing: RowTyping, sources: Collection[str]) -> RowTyping:
    """Returns the same, with keys or values left as bytes."""
    sides = (typing.key, typing.value)
    key, value = (Side(one.source) if one.source in sources else one for one in sides)
    return typing._replace(key=key, value=value)


def typed_columns(typing: RowTyping, leave_out: Collection[str] = ()) -> list[str]:
    """Returns names of the columns that `decode_rows` makes of keys and values, by the exporter's names."""
    found: list[str] = []
    for side in (typing.key, typing.value):
        if side.source in leave_out:
            continue
        if side.has_schemas:
            found += [side.id_column, *change_fields(side.envelope).names]
        if side.has_schemas and not side.nested:
            found += [column_name(field.name) for field in side.target]
        elif not side.has_schemas or len(side.target):
            found.append(side.source)
    return [name for name in found if name not in typing.edits.dropped]


def first_reason(bad: pa.Table) -> str:
    """Returns where the first of some dead letters is, and why it is one."""
    first = bad.slice(0, 1).to_pylist()[0]
    return (
        f"partition {first[names.PARTITION]}, offset {first[names.OFFSET]}: "
        f"{first[ERROR_MESSAGE]} ({first[ERROR_CODE]})"
    )


def add_unknown(known: dict[str, set[Message]], found: Mapping[str, set[Message]]) -> None:
    """Adds messages whose schemas are unknown, by `Side.source`: the lowest ids, which registries
    give out first."""
    for source, messages in found.items():
        every = known.get(source, set()) | messages
        known[source] = set(heapq.nsmallest(UNKNOWN_MAX, every))


def add_seen(known: dict[str, str], found: Mapping[str, str]) -> None:
    """Adds what inferred types have no place for, by `Side.source`."""
    for source, text in found.items():
        if text:
            both = [read_seen(one) for one in (known.get(source, ""), text) if one]
            known[source] = write_seen(join(both))


def refuse_unknown(typing: RowTyping, unknown: Mapping[str, set[Message]]) -> RowTyping:
    """Returns the same, but records of unknown schemas are bad ones."""

    def side(one: Side) -> Side:
        reason = "no version of the topic's subject is this schema, or has room for this message"
        refusal = Refusal(SCHEMA_UNKNOWN, reason)
        return one._replace(
            refused={**one.refused, **dict.fromkeys(unknown.get(one.source, ()), refusal)}
        )

    return typing._replace(key=side(typing.key), value=side(typing.value))


class RowDecoder:
    """Decodes the keys and values of rows of `ROW_SCHEMA`; `reference`: record by record."""

    def __init__(self, typing: RowTyping, *, reference: bool = False) -> None:
        self._typing = typing
        self._reference = reference
        hidden = typing.key.hidden + typing.value.hidden
        self._rows_max = rows_max([*typing.key.target, *typing.value.target], hidden)

    def parts(self, rows: pa.Table) -> Iterator[tuple[pa.Table, DecodedRows]]:
        """Yields rows with what they are decoded, as many together as memory is bounded for. A record
        that alone is beyond that is a bad one."""
        todo = [rows.slice(at, self._rows_max) for at in range(0, rows.num_rows, self._rows_max)]
        todo.reverse()
        while todo:
            some = todo.pop()
            half = some.num_rows // 2
            try:
                decoded = decode_rows(self._typing, some, reference=self._reference)
            except TooManyCellsError:
                if half:
                    todo += [some.slice(half), some.slice(0, half)]
                    continue
                decoded = self._refused(some)
            yield some, decoded

    def _refused(self, row: pa.Table) -> DecodedRows:
        message = f"the record holds over {CELLS_MAX} values in lists and maps"
        bad = _dead_letter_rows(row, {0: BadValue(0, UNDECODABLE, message, -1)})
        return DecodedRows(decode_rows(self._typing, row.slice(1)).rows, bad, {})


def decode_rows(typing: RowTyping, rows: pa.Table, *, reference: bool = False) -> DecodedRows:
    """Decodes rows together. Raises TooManyCellsError."""
    cells = Cells()
    columns: dict[str, pa.Array] = {}
    bad_values: dict[int, BadValue] = {}
    unknown: dict[str, set[Message]] = {}
    seen: dict[str, str] = {}
    deleted = None
    for side in (typing.value, typing.key):
        values = single_array(rows.column(side.source))
        if side.mode == "raw":
            columns[side.source] = values
            continue
        decoded = _decoded(side, values, rows.column(names.HEADERS), cells, reference=reference)
        if decoded.unknown:
            unknown[side.source] = set(decoded.unknown)
            seen[side.source] = decoded.seen
            continue
        columns |= _columns(side, values, decoded)
        if decoded.changes is not None:
            deleted = pc.equal(columns[names.CHANGE_OP], names.DELETE).fill_null(False)  # noqa: FBT003
        for one in decoded.bad_values:
            what = "" if side.source == names.VALUE else "key: "
            bad_values.setdefault(one.row, one._replace(message=what + one.message))
    if unknown:
        return DecodedRows(rows.slice(0, 0), DEAD_ROW_SCHEMA.empty_table(), unknown, seen)
    kept = {
        field.name: rows.column(field.name)
        for field in ROW_SCHEMA
        if field.name not in {names.KEY, names.VALUE}
    }
    table = pa.table({**kept, **_as_in_table(masked(columns, typing.masks), typing.edits)})
    for row, reason in rows_without_partition(typing.truncations, table).items():
        bad_values.setdefault(row, BadValue(row, NO_PARTITION, reason, -1))
    if not bad_values:
        return DecodedRows(table, DEAD_ROW_SCHEMA.empty_table(), {}, deleted=deleted)
    good: npt.NDArray[np.bool_] = np.ones(rows.num_rows, np.bool_)
    good[list(bad_values)] = False
    kept_rows = pa.array(good)
    deleted = None if deleted is None else deleted.filter(kept_rows)
    bad = _dead_letter_rows(rows, bad_values)
    return DecodedRows(table.filter(kept_rows), bad, {}, deleted=deleted)


def split_keyless(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Returns rows of `ROW_SCHEMA` that have keys, and the others as dead letters: for upserts."""
    places = np.flatnonzero(np.asarray(rows.column(names.KEY).is_null())).tolist()
    if not places:
        return rows, DEAD_ROW_SCHEMA.empty_table()
    message = "a record without a key has no place in a table of mode upsert"
    bad_values = {row: BadValue(row, NO_KEY, message, -1) for row in places}
    return rows.filter(rows.column(names.KEY).is_valid()), _dead_letter_rows(rows, bad_values)


def unreadable_batches(rows: pa.Table, reasons: Sequence[str]) -> pa.Table:
    """Returns dead letters of batches that cannot be read, from what `span_rows` has of them."""
    bad = {row: BadValue(row, BAD_BATCH, reason, -1) for row, reason in enumerate(reasons)}
    return _dead_letter_rows(rows, bad)


def withhold(letters: pa.Table) -> pa.Table:
    """Returns dead letters that say where and of which kind they are, and nothing of what they hold."""
    said = pa.array([WITHHELD] * letters.num_rows, pa.large_string())
    place = letters.schema.get_field_index(ERROR_MESSAGE)
    return without_content(letters).set_column(place, DEAD_ROW_SCHEMA.field(ERROR_MESSAGE), said)


def _decoded(
    side: Side, values: pa.Array, headers: pa.ChunkedArray, cells: Cells, *, reference: bool
) -> Decoded:
    selection = SchemaSelection(pinned=side.pinned)
    if side.has_schemas and side.pinned is None:
        selection = SchemaSelection(
            default=side.schemas[side.default] if side.default is not None else None,
            schema_headers=find_schema_headers(single_array(headers), side.header),
            guids=side.guids,
        )
    return decode(
        values,
        side.mode,
        side.schemas,
        selection=selection,
        known=KnownMessages(side.messages, side.refused, side.others, side.edits),
        target=side.target,
        envelope=side.envelope,
        reference=reference,
        cells=cells,
    )


def _columns(side: Side, values: pa.Array, decoded: Decoded) -> dict[str, pa.Array]:
    """Returns the table's columns for what was decoded."""
    arrays = [single_array(decoded.columns.column(field.name)) for field in side.target]
    if not side.has_schemas:
        return {side.source: arrays[0]}
    ids = pa.array(decoded.schema_ids, pa.int32(), mask=decoded.schema_ids < 0)
    columns = {side.id_column: ids}
    if decoded.changes is not None:
        for name in decoded.changes.column_names:
            columns[name] = single_array(decoded.changes.column(name))
    if not side.nested:
        for field, array in zip(side.target, arrays, strict=True):
            columns[column_name(field.name)] = array
    elif arrays:
        fields = [pa.field(field.name, field.type) for field in side.target]
        columns[side.source] = pa.StructArray.from_arrays(
            arrays, fields=fields, mask=values.is_null()
        )
    return columns


def _as_in_table(columns: dict[str, pa.Array], edits: Edits) -> dict[str, pa.Array]:
    """Returns columns under the names of today, without those that were dropped."""
    found = {}
    for name, array in columns.items():
        if name not in edits.dropped:
            field = field_as_in_table(pa.field(name, array.type), edits)
            found[field.name] = array if field.type == array.type else array.view(field.type)
    return found


def _dead_letter_rows(rows: pa.Table, bad_values: Mapping[int, BadValue]) -> pa.Table:
    at = sorted(bad_values)
    found = [bad_values[row] for row in at]
    table = rows.select(ROW_SCHEMA.names).take(pa.array(at, pa.int64()))
    reasons = [
        pa.array([one.code for one in found], pa.large_string()),
        pa.array([one.message[:_MESSAGE_CHARS_MAX] for one in found], pa.large_string()),
        pa.array([one.schema_id if one.schema_id >= 0 else None for one in found], pa.int32()),
        pa.nulls(len(found), pa.large_string()),
    ]
    return pa.Table.from_arrays([*table.columns, *reasons], schema=DEAD_ROW_SCHEMA)
