"""A column of bytes to a table of columns: `decode`. One schema's values at a time, then in order.

Every row of the input is a row of the output. A null value is a row of nulls; so is a bad one,
and it is named in `bad_values` with a code and a sentence, never dropped, never guessed at.
Values of an id that the caller did not give are bad (`SCHEMA_UNKNOWN`) and named in `unknown`:
whoever can ask the registry does, and decodes again. So are messages of a Protobuf file beside
its first that the caller does not know and that the target has no columns for: it may become
wider.

Columns come in the target's types and order. A schema that says a field that the target has not, or
has in a type that cannot hold it, makes all its values bad (`INCOMPATIBLE`): nothing is left out
silently, but for fields whose columns somebody dropped. Fast decoders take whole columns; what they cannot tell, they leave to `reference`, record
by record, so that both give the same.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iceberg_export.records.cells import Cells
from iceberg_export.records.decode import Ints
from iceberg_export.table.edits import NONE, Edits, fields_without_dropped
from iceberg_export.typed import types
from iceberg_export.typed.arrays import conform, text_array, utf8_rows
from iceberg_export.typed.columns import Payloads, Rows, by_reference, decode_payloads
from iceberg_export.typed.envelope import change_fields, decode_changes, read_envelope, row_fields
from iceberg_export.typed.fields import STRING_FIELDS, Shape, fields_of, shape_of
from iceberg_export.typed.framing import (
    FIRST_MESSAGE,
    NULL_VALUE,
    UNFRAMED,
    Frames,
    column_bytes,
    is_valid,
    message_indexes,
    split_frames,
    whole_values,
)
from iceberg_export.typed.inferred import Fraction, Seen, Type, join, unseen_in, write_seen
from iceberg_export.typed.inferred_rows import Inferred
from iceberg_export.typed.inline import INLINE, say_schema
from iceberg_export.typed.reference import read_json_value
from iceberg_export.typed.schema_headers import GUID, NO_SCHEMA, SchemaHeaders, parse_schema_header
from iceberg_export.typed.types import AVRO, INFERRED, JSON, PROTOBUF, Schema
from protocol.schemas import SchemaError

NOT_FRAMED = "NOT_FRAMED"
SCHEMA_UNKNOWN = "SCHEMA_UNKNOWN"
SCHEMA_INVALID = "SCHEMA_INVALID"
UNDECODABLE = "UNDECODABLE"
INCOMPATIBLE = "INCOMPATIBLE"

STRING = "string"
KIND_OF_MODE = {"avro": AVRO, "json": JSON, "protobuf": PROTOBUF}
"""What `frazil.iceberg.value.mode` says, to the registry's types."""


_NO_JSON_SCHEMA = (
    ", and the topic has none: register a JSON Schema under its subject, or set"
    " frazil.iceberg.value.schema (key.schema) to infer, or to inline with value.schema.json"
)


class BadValue(NamedTuple):
    row: int
    code: str
    message: str
    schema_id: int
    """UNFRAMED when there is none."""


Message = tuple[int, tuple[int, ...]]
"""A schema's id and, in Protobuf, which message of its file; else `FIRST_MESSAGE`."""
UNSEEN: Message = (INLINE, ())
"""In the place of a message: values have something for which inferred types have no place yet."""


class SchemaSelection(NamedTuple):
    """Which schema decodes a value, beside what its frame says."""

    default: Schema | None = None
    """Of JSON that is not framed."""
    pinned: int | None = None
    """The id of the schema of all values, none of which is framed."""
    schema_headers: SchemaHeaders | None = None
    """What the rows' headers say; not with `pinned`."""
    guids: Mapping[int, int] = {}
    """Ids by the GUIDs that headers name, as `schema_headers` has them."""


class KnownMessages(NamedTuple):
    """What the caller knows about messages."""

    messages: Collection[Message] = ()
    """The target has room for them. First messages count always."""
    refused: Mapping[Message, tuple[str, str]] = {}
    """Code and sentence why values are bad; of a first message also for all of an id that is
    not given."""
    others: tuple[str, str] | None = None
    """The same for all ids that are neither given nor refused; None: they are unknown."""
    edits: Edits = NONE
    """What people changed of the target's columns."""


class Decoded(NamedTuple):
    columns: pa.Table
    """As many rows as values, in the target's columns."""
    bad_values: list[BadValue]
    """In order of rows."""
    schema_ids: npt.NDArray[np.int32]
    """Of each row; UNFRAMED or NULL_VALUE when it has none."""
    unknown: frozenset[Message]
    """To be found out about before the rest counts. Of an id that is not given the first message,
    so that what is named is never more than schemas have, whatever values say."""
    changes: pa.Table | None = None
    """Of values in envelopes: `envelope.change_fields` of each row."""
    seen: str = ""
    """What has no place in inferred types (`inferred.write_seen`); its message `UNSEEN` is unknown."""


class _Group(NamedTuple):
    """Rows that one schema, and in Protobuf one message of it, decodes."""

    schema: Schema
    indexes: tuple[int, ...]
    rows: Ints


class _Piece(NamedTuple):
    """What was decoded of a group."""

    rows: Ints
    """Those that are good."""
    columns: pa.Table
    changes: pa.Table | None = None
    seen: Seen | None = None


def decode(
    values: pa.Array,
    mode: str,
    schemas: Mapping[int, Schema],
    *,
    selection: SchemaSelection | None = None,
    known: KnownMessages | None = None,
    target: pa.Schema,
    envelope: str = "",
    reference: bool = False,
    cells: Cells | None = None,
) -> Decoded:
    """Values (a large binary array) of mode string, json, avro or protobuf.

    `envelope`: values are change events, of which the rows are decoded (`envelope`).
    `reference`: record by record throughout. Raises TooManyCellsError when lists and maps hold more
    than `cells`.
    """
    if mode == STRING:
        return _decode_strings(values, target)
    selection = selection or SchemaSelection()
    frames, named = _rows_by_schema(values, mode, selection)
    bad_values: list[BadValue] = []
    cells = cells or Cells()
    known = known or KnownMessages()
    groups, unknown = _groups(frames, named, (mode, schemas, selection.default, known), bad_values)
    pieces: list[_Piece] = []
    decode_group = partial(_decode_changes, form=envelope) if envelope else _decode_group
    for group in groups:
        code, reason = _unusable(mode, group, target, known.edits, envelope=envelope)
        if code:
            bad_values += _bad_values(frames, group.rows, code, reason)
            message = (group.schema.schema_id, group.indexes)
            if code == INCOMPATIBLE and mode == "protobuf" and message not in known.messages:
                unknown.add(message)
            continue
        read = by_reference if reference else decode_payloads
        piece = decode_group(frames, group, target, bad_values, partial(read, cells=cells))
        pieces.append(piece)
    columns = _assemble([(one.rows, one.columns) for one in pieces], len(values), target)
    changes = None
    if envelope:
        parts = [(one.rows, one.changes) for one in pieces]
        changes = _assemble(parts, len(values), change_fields(envelope))
    seen = join(piece.seen for piece in pieces if piece.seen is not None)
    told = ""
    if seen != Seen():
        unknown.add(UNSEEN)
        told = write_seen(seen)
    return Decoded(
        columns, sorted(bad_values), frames.schema_ids, frozenset(unknown), changes, told
    )


def _decode_strings(values: pa.Array, target: pa.Schema) -> Decoded:
    data, starts, lengths = column_bytes(values)
    valid = is_valid(values)
    bad = np.flatnonzero(~utf8_rows(data, starts, lengths) & valid)
    bad_values = [
        BadValue(int(row), UNDECODABLE, "the value is not UTF-8", UNFRAMED) for row in bad
    ]
    valid[bad] = False
    column = text_array(data, starts, np.where(valid, lengths, -1))
    rows = np.arange(len(values))
    columns = _assemble([(rows, _table([column], STRING_FIELDS, target))], len(values), target)
    ids = np.full(len(values), UNFRAMED, np.int32)
    ids[~is_valid(values)] = NULL_VALUE
    return Decoded(columns, bad_values, ids, frozenset())


class _SchemaRows(NamedTuple):
    """Rows that name the same schema."""

    number: int
    """An id, `UNFRAMED`, or what a header says (`schema_headers`)."""
    rows: Ints
    indexes: tuple[int, ...] | None = None
    """As a header says; None: as the frames do."""


def _rows_by_schema(
    values: pa.Array, mode: str, selection: SchemaSelection
) -> tuple[Frames, list[_SchemaRows]]:
    """Where the payloads are, and which schema each row names; rows without a value name none."""
    if selection.pinned is not None:
        frames = whole_values(values)
        frames.schema_ids[frames.schema_ids == UNFRAMED] = selection.pinned
    else:
        frames = split_frames(values, indexes=mode == "protobuf")
    named: list[_SchemaRows] = []
    by_frame = frames.schema_ids != NULL_VALUE
    if selection.schema_headers is not None:
        named += _rows_by_header(frames, values, selection, indexes=mode == "protobuf")
        by_frame &= selection.schema_headers.codes < 0
    named += _rows_by_number(frames.schema_ids, by_frame)
    return frames, named


def _rows_by_number(
    numbers: Ints | npt.NDArray[np.int32], which: npt.NDArray[np.bool_]
) -> Iterator[_SchemaRows]:
    """Sorted once: a producer may give each record a number of its own."""
    rows = np.flatnonzero(which)
    found = numbers[rows]
    if len(rows) and bool((found != found[0]).any()):
        order = np.argsort(found, kind="stable")
        rows, found = rows[order], found[order]
    firsts = np.flatnonzero(found[1:] != found[:-1]) + 1
    for some in np.split(rows, firsts) if len(rows) else ():
        yield _SchemaRows(int(numbers[some[0]]), some)


def _rows_by_header(
    frames: Frames, values: pa.Array, selection: SchemaSelection, *, indexes: bool
) -> Iterator[_SchemaRows]:
    """Rows by their headers; in `frames` their values are all payload then."""
    assert selection.schema_headers is not None
    codes = np.where(frames.schema_ids == NULL_VALUE, -1, selection.schema_headers.codes)
    here = codes >= 0
    _, starts, lengths = column_bytes(values)
    frames.starts[here], frames.lengths[here] = starts[here], lengths[here]
    for code, rows, _ in _rows_by_number(codes, here):
        head = parse_schema_header(selection.schema_headers.contents[code], indexes=indexes)
        number = NO_SCHEMA if head is None else selection.guids.get(head.number, head.number)
        frames.schema_ids[rows] = number if 0 <= number < GUID else UNFRAMED
        yield _SchemaRows(number, rows, None if head is None else head.indexes)


def _groups(
    frames: Frames,
    named: list[_SchemaRows],
    given: tuple[str, Mapping[int, Schema], Schema | None, KnownMessages],
    bad_values: list[BadValue],
) -> tuple[list[_Group], set[Message]]:
    mode, schemas, default, known = given
    groups: list[_Group] = []
    unknown: set[Message] = set()
    for one in named:
        number, rows, _ = one
        first = (number, FIRST_MESSAGE)
        if number == UNFRAMED:
            if default is not None and mode == "json":
                groups.append(_Group(default, FIRST_MESSAGE, rows))
            else:
                reason = "the value does not begin with the id of a schema" + (
                    _NO_JSON_SCHEMA if mode == "json" else ""
                )
                bad_values += _bad_values(frames, rows, NOT_FRAMED, reason)
        elif number == NO_SCHEMA:
            reason = "the record's header for the schema names none"
            bad_values += _bad_values(frames, rows, NOT_FRAMED, reason)
        elif number not in schemas:
            refusal = known.refused.get(first, known.others)
            if refusal is None:
                unknown.add(first)
                refusal = SCHEMA_UNKNOWN, f"the schema registry has no schema {number}"
            bad_values += _bad_values(frames, rows, *refusal)
        else:
            for group in _by_message(frames, one, schemas[number], mode):
                if refusal := known.refused.get((number, group.indexes)):
                    bad_values += _bad_values(frames, group.rows, *refusal)
                else:
                    groups.append(group)
    return groups, unknown


def _bad_values(frames: Frames, rows: Ints, code: str, message: str) -> list[BadValue]:
    return [BadValue(row, code, message, int(frames.schema_ids[row])) for row in rows.tolist()]


def _by_message(frames: Frames, named: _SchemaRows, schema: Schema, mode: str) -> list[_Group]:
    rows = named.rows
    if mode != "protobuf" or named.indexes is not None:
        return [_Group(schema, named.indexes or FIRST_MESSAGE, rows)]
    sizes = frames.starts[rows] - frames.index_starts[rows]
    # One byte of indexes can only be the zero that stands for the first message; none at all too.
    first = sizes <= 1
    groups = [_Group(schema, FIRST_MESSAGE, rows[first])] if bool(first.any()) else []
    others: dict[tuple[int, ...], list[int]] = {}
    for row in rows[~first].tolist():
        raw = frames.data[frames.index_starts[row] : frames.starts[row]].tobytes()
        others.setdefault(message_indexes(raw), []).append(row)
    return groups + [_Group(schema, indexes, np.array(some)) for indexes, some in others.items()]


def _decode_group(
    frames: Frames,
    group: _Group,
    target: pa.Schema,
    bad_values: list[BadValue],
    read: Callable[[Shape, pa.Schema, Payloads], Rows],
) -> _Piece:
    schema, rows = group.schema, group.rows
    ids = frames.schema_ids
    shape = shape_of(schema, group.indexes)
    payloads = Payloads(frames.data, frames.starts[rows], frames.lengths[rows])
    fields = fields_of(schema, group.indexes)
    found = read(shape, fields, payloads)
    unseen = frozenset(found.unseen)
    for row, message in found.bad.items():
        code = INCOMPATIBLE if row in unseen else UNDECODABLE
        bad_values.append(BadValue(int(rows[row]), code, message, int(ids[rows[row]])))
    seen = None
    if isinstance(shape, Inferred) and shape.draws:
        seen = _seen(shape.type, payloads, found.unseen)
    if found.bad:
        good = np.ones(len(rows), np.bool_)
        good[list(found.bad)] = False
        columns = [column.filter(pa.array(good)) for column in found.columns]
        rows = rows[good]
    else:
        columns = found.columns
    return _Piece(rows, _table(columns, fields, target, len(rows)), seen=seen)


def _seen(known: Type, payloads: Payloads, rows: Iterable[int]) -> Seen:
    """What rows have for which there is no place."""
    found = []
    for row in rows:
        start = payloads.starts[row]
        payload = payloads.data[start : start + payloads.lengths[row]].tobytes()
        value = read_json_value(payload, Cells(), parse_float=Fraction)
        found.append(unseen_in(known, value) or Seen())
    return join(found)


def _decode_changes(
    frames: Frames,
    group: _Group,
    target: pa.Schema,
    bad_values: list[BadValue],
    read: Callable[[Shape, pa.Schema, Payloads], Rows],
    *,
    form: str,
) -> _Piece:
    rows, ids = group.rows, frames.schema_ids
    envelope = read_envelope(group.schema, group.indexes, envelope=form)
    payloads = Payloads(frames.data, frames.starts[rows], frames.lengths[rows])
    found = decode_changes(envelope, payloads, read)
    columns = _table(found.columns, envelope.row, target, len(rows))
    if not found.bad:
        return _Piece(rows, columns, found.changes)
    for row, (code, message) in found.bad.items():
        bad = BadValue(int(rows[row]), code or UNDECODABLE, message, int(ids[rows[row]]))
        bad_values.append(bad)
    good = np.ones(len(rows), np.bool_)
    good[list(found.bad)] = False
    kept = pa.array(good)
    return _Piece(rows[good], columns.filter(kept), found.changes.filter(kept))


def _unusable(
    mode: str, group: _Group, target: pa.Schema, edits: Edits, *, envelope: str
) -> tuple[str, str]:
    """(code, sentence) why no value of this schema can be decoded into the target."""
    schema = group.schema
    kind = KIND_OF_MODE[mode]
    if schema.kind != kind and (mode, schema.kind) != ("json", INFERRED):
        return (
            SCHEMA_INVALID,
            f"{say_schema(schema.schema_id)} is {schema.kind}, the topic's mode {mode}",
        )
    try:
        fields = row_fields(schema, group.indexes, envelope=envelope)
    except SchemaError as error:
        return SCHEMA_INVALID, f"{say_schema(schema.schema_id)}: {error}"
    reason = types.type_mismatch(
        pa.struct(fields_without_dropped(fields, edits)), pa.struct(list(target))
    )
    return (INCOMPATIBLE, f"schema {schema.schema_id}: {reason}") if reason else ("", "")


def _table(
    columns: list[pa.Array], fields: pa.Schema, target: pa.Schema, count: int | None = None
) -> pa.Table:
    """The columns in the target's types, with nulls for those that the schema lacks."""
    count = len(columns[0]) if count is None else count
    by_name = dict(zip(fields.names, columns, strict=True))
    arrays = [
        conform(by_name[field.name], field.type)
        if field.name in by_name
        else pa.nulls(count, field.type)
        for field in target
    ]
    return pa.table(arrays, schema=_optional(target))


def _optional(target: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, field.type) for field in target])


def _assemble(pieces: list[tuple[Ints, pa.Table]], count: int, target: pa.Schema) -> pa.Table:
    """All rows in their order; nulls where no piece has the row."""
    if len(pieces) == 1 and len(pieces[0][0]) == count:
        return pieces[0][1]
    places = np.full(count, -1, np.int64)
    before = 0
    for rows, _ in pieces:
        places[rows] = np.arange(before, before + len(rows))
        before += len(rows)
    if before == 0:
        nulls = [pa.nulls(count, field.type) for field in target]
        return pa.table(nulls, schema=_optional(target))
    whole = pa.concat_tables([table for _, table in pieces]).combine_chunks()
    return whole.take(pa.array(places, mask=places < 0))
