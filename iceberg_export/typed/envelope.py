"""Change events as rows: what a schema of an envelope says, and what its values do.

Debezium's envelope is a record with the fields `before` and `after`, the row before and after the change,
and `op`; `ts_ms` is optional, so is `transaction`, which is read where that is wished, and all else (`source`) is
passed over. Maxwell's has the row in `data`, of a delete as well, what happened in `type`, and when in `ts`
(`FORMS`). The rows of a table are those after a change, of a delete that before it; what happened to them, when, and
in which transaction are `change_fields` beside them, in Debezium's words. An event that is no change of a row is
refused by name, never guessed at.

One pass reads row, op and time; only of Debezium's deletes a second one reads `before`. JSON may also
lie in the field `payload`, as Kafka Connect's converter writes it with its schemas enabled. Pure.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_export.names import CHANGE_OP, CHANGE_ORDER, CHANGE_TIME, CHANGE_TRANSACTION, DELETE
from iceberg_export.records.decode import Ints
from iceberg_export.typed import types
from iceberg_export.typed.arrays import Bools, conform, number_array
from iceberg_export.typed.avro_schema import AvroType
from iceberg_export.typed.columns import Payloads, Rows
from iceberg_export.typed.fields import Shape, fields_of, shape_of
from iceberg_export.typed.framing import FIRST_MESSAGE
from iceberg_export.typed.json_schema import JsonType
from iceberg_export.typed.proto_schema import ProtoMessage
from iceberg_export.typed.reference import SECONDS_MAX, SECONDS_MIN
from iceberg_export.typed.types import Schema
from protocol.schemas import SchemaError

_CHANGE_FIELDS = pa.schema([(CHANGE_OP, types.TEXT), (CHANGE_TIME, types.TIMESTAMP)])
_TRANSACTION_FIELDS = (
    pa.field(CHANGE_TRANSACTION, types.TEXT),
    pa.field(CHANGE_ORDER, types.LONG),
)
NO_ROW = "NO_ROW"

_PAYLOAD = "payload"
_TRANSACTION = "transaction"
_TRANSACTION_ID = "id"
_TRANSACTION_ORDER = "total_order"
_NO_ROWS = {
    "t": "a truncate event is no row; rows that were there before it are still there",
    "m": "a message event is no row",
}


class Form(NamedTuple):
    """How a tool writes change events."""

    before: str
    """Field of the row before a change; "": a delete has it where the others have theirs."""
    after: str
    op: str
    time: str
    time_unit_us: int
    ops: Mapping[str, str]
    """What happened, by the word for it, as `change_fields` have it: c, u, r or d."""
    transactions: bool = False
    """Events say of which transaction they are, if the connector was told to (`provide.transaction.metadata`)."""


_DEBEZIUM = Form(
    "before", "after", "op", "ts_ms", 1000, {"c": "c", "u": "u", "r": "r", "d": DELETE}
)
FORMS: Mapping[str, Form] = {
    "debezium": _DEBEZIUM,
    "debezium with transactions": _DEBEZIUM._replace(transactions=True),
    "maxwell": Form(
        "", "data", "type", "ts", 1_000_000,
        {"insert": "c", "update": "u", "bootstrap-insert": "r", "delete": DELETE},
    ),
}  # fmt: skip
"""By `TopicTable.envelope_form`. Maxwell's is described at maxwells-daemon.io/dataformat."""


def change_fields(envelope: str) -> pa.Schema:
    """Returns the table's columns beside the row's, of a form (`FORMS`); "": none."""
    if not envelope:
        return pa.schema([])
    return pa.schema(
        [*_CHANGE_FIELDS, *(_TRANSACTION_FIELDS if FORMS[envelope].transactions else ())]
    )


class Envelope(NamedTuple):
    """What is read of the values of one schema."""

    form: Form
    change: Shape
    """The row after the change, what happened, and when."""
    deletion: Shape
    """The row before it; without `Form.before` nothing is read by it."""
    row: pa.Schema
    """Fields of the row."""
    change_fields: pa.Schema


class Changes(NamedTuple):
    """Rows of a table, one for each payload."""

    columns: list[pa.Array]
    """Of `Envelope.row`."""
    changes: pa.Table
    """Of `change_fields`."""
    bad: Mapping[int, tuple[str, str]]
    """Code and sentence, of payloads that are no rows; an empty code: they cannot be decoded."""


def row_fields(
    schema: Schema, indexes: tuple[int, ...] = FIRST_MESSAGE, *, envelope: str
) -> pa.Schema:
    """The fields that rows get of a schema, or of the row in its envelope (`FORMS`; "": there is none).
    Raises SchemaError."""
    if envelope:
        return read_envelope(schema, indexes, envelope=envelope).row
    return fields_of(schema, indexes)


def read_envelope(
    schema: Schema, indexes: tuple[int, ...] = FIRST_MESSAGE, *, envelope: str
) -> Envelope:
    """Raises SchemaError for a schema that is none of such an envelope (`FORMS`)."""
    references = tuple(schema.references.items())
    return _read(schema.kind, schema.text, references, indexes, envelope)


@lru_cache(maxsize=256)
def _read(
    kind: str,
    text: str,
    references: tuple[tuple[str, str], ...],
    indexes: tuple[int, ...],
    envelope: str,
) -> Envelope:
    form = FORMS[envelope]
    schema = Schema(0, kind, text, dict(references))
    found = {field.name: field.type for field in fields_of(schema, indexes)}
    for name in (form.before, form.after, form.op):
        if name and name not in found:
            raise _no_envelope(f"it has no field {name}")
    row = found[form.after]
    if not pa.types.is_struct(row):
        raise _no_envelope(f"its field {form.after} is no record, but {types.say(row)}")
    if form.before and (reason := types.type_mismatch(found[form.before], row, form.before)):
        raise _no_envelope(f"its rows before a change are others than those after it: {reason}")
    if found[form.op] != types.TEXT:
        raise _no_envelope(f"its field {form.op} is no string, but {types.say(found[form.op])}")
    time = found.get(form.time, types.LONG)
    if time not in (types.LONG, types.INT, types.TIMESTAMP):
        raise _no_envelope(f"its field {form.time} is no number, but {types.say(time)}")
    if form.transactions and (reason := _wrong_transaction(found.get(_TRANSACTION))):
        raise _no_envelope(reason)
    shape = shape_of(schema, indexes)
    more = (_TRANSACTION,) if form.transactions else ()
    return Envelope(
        form,
        _with_payload(shape, (form.after, form.op, form.time, *more)),
        _with_payload(shape, (form.before,)),
        pa.schema(list(row)),
        change_fields(envelope),
    )


def _wrong_transaction(kind: pa.DataType | None) -> str:
    """Why a field says no transaction; "" when it does, or there is none."""
    if kind is None:
        return ""
    found = {field.name: field.type for field in kind} if pa.types.is_struct(kind) else {}
    if found.get(_TRANSACTION_ID) == types.TEXT and found.get(_TRANSACTION_ORDER, types.LONG) in (
        types.LONG,
        types.INT,
    ):
        return ""
    return (
        f"its field {_TRANSACTION} has no string {_TRANSACTION_ID}, or no number {_TRANSACTION_ORDER}: it is "
        f"{types.say(kind)}"
    )


def _no_envelope(reason: str) -> SchemaError:
    return SchemaError(f"it is no envelope of change events: {reason}")


def _with_payload(shape: Shape, names: tuple[str, ...]) -> Shape:
    """The shape with these fields alone; of JSON also with those of its payload."""
    if isinstance(shape, JsonType):
        few = _json_object([(name, one) for name, one in shape.fields if name in names])
        if any(name == _PAYLOAD for name, _ in shape.fields):
            return few
        return _json_object([*few.fields, (_PAYLOAD, few)])
    if isinstance(shape, AvroType) and shape.kind == "record":
        fields = tuple(
            (name, one if name in names or _repeats(one) else _passed_over(one))
            for name, one in shape.fields
        )
        kept = [(name, one.arrow) for name, one in fields if one.arrow != pa.null()]
        return shape._replace(arrow=types.struct_of(kept), fields=fields)
    return shape


def _repeats(one: AvroType) -> bool:
    return one.kind in {"array", "map"} or any(_repeats(inner) for _, inner in one.fields)


def _passed_over(one: AvroType) -> AvroType:
    """The type of which no column is made, and of whose values nothing is judged but where they end."""
    fields = tuple((name, _passed_over(inner)) for name, inner in one.fields)
    kind = {"string": "bytes", "int": "long", "enum": "long", "boolean": "fixed"}.get(one.kind)
    size = 1 if one.kind == "boolean" else one.size
    return one._replace(kind=kind or one.kind, size=size, fields=fields, arrow=pa.null())


def _json_object(fields: list[tuple[str, JsonType]]) -> JsonType:
    arrow = types.struct_of([(name, one.arrow) for name, one in fields])
    return JsonType(
        "object",
        arrow,
        tuple(fields),
        types.count_nodes(one.nodes for _, one in fields),
        is_part=True,
    )


def decode_changes(
    envelope: Envelope, payloads: Payloads, read: Callable[[Shape, pa.Schema, Payloads], Rows]
) -> Changes:
    """Rows and what happened to them. `read` decodes payloads of a shape; what it raises is raised."""
    form = envelope.form
    columns, bad = _fields(envelope, envelope.change, payloads, read)
    after, said = columns[form.after], columns[form.op]
    codes = pc.index_in(said, pa.array(list(form.ops), types.TEXT))
    # A word that is none of these is shown as it is, with the reason why there is no row.
    ops = pc.coalesce(pa.array(list(form.ops.values()), types.TEXT).take(codes), said)
    known = _is_valid(codes)
    deleted: Bools = known & pc.equal(ops, DELETE).fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003
    is_row = known & _is_valid(after)
    if form.before:
        is_row |= deleted
    reasons = {
        int(row): (NO_ROW, _no_row(form, said[row].as_py(), known=bool(known[row])))
        for row in np.flatnonzero(~is_row).tolist()
    }
    rows = after.flatten()
    if form.before and deleted.any():
        places = np.flatnonzero(deleted)
        rows, worse = _with_deleted(envelope, rows, payloads, places, read)
        bad = {**bad, **worse}
    times, outside = _times(columns.get(form.time), len(codes), form.time_unit_us)
    for row in np.flatnonzero(outside).tolist():
        reasons[row] = ("", f"{form.time} lies outside the years 1 to 9999")
    reasons |= {row: ("", message) for row, message in bad.items()}
    said_of_it = [ops, times]
    if form.transactions:
        said_of_it += _transactions(columns.get(_TRANSACTION), len(codes))
    return Changes(rows, pa.table(said_of_it, schema=envelope.change_fields), reasons)


def _transactions(array: pa.Array | None, count: int) -> list[pa.Array]:
    """Ids, and places within the transaction; nulls where an event is of none."""
    found = (
        {}
        if array is None
        else dict(zip([f.name for f in array.type], array.flatten(), strict=True))
    )
    return [
        found[name].cast(field.type) if name in found else pa.nulls(count, field.type)
        for name, field in zip(
            (_TRANSACTION_ID, _TRANSACTION_ORDER), _TRANSACTION_FIELDS, strict=True
        )
    ]


def _fields(
    envelope: Envelope,
    shape: Shape,
    payloads: Payloads,
    read: Callable[[Shape, pa.Schema, Payloads], Rows],
) -> tuple[dict[str, pa.Array], dict[int, str]]:
    """(arrays by field, rows that cannot be decoded)."""
    fields = pa.schema(list(shape.type.arrow if isinstance(shape, ProtoMessage) else shape.arrow))
    found = read(shape, fields, payloads)
    columns = dict(zip(fields.names, found.columns, strict=True))
    inner = columns.pop(_PAYLOAD, None) if isinstance(shape, JsonType) else None
    if inner is None or inner.null_count == len(inner):
        return columns, dict(found.bad)
    # What has an op of its own is no wrapping of another.
    chosen = _is_valid(inner)
    if (op := envelope.form.op) in columns:
        chosen &= ~_is_valid(columns[op])
    order = pa.array(np.arange(len(chosen)) + np.where(chosen, len(chosen), 0))
    parts = dict(zip([field.name for field in inner.type], inner.flatten(), strict=True))
    columns = {
        name: pa.concat_arrays([array, parts[name]]).take(order) for name, array in columns.items()
    }
    return columns, dict(found.bad)


def _is_valid(array: pa.Array) -> Bools:
    valid: Bools = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _no_row(form: Form, op: str | None, *, known: bool) -> str:
    if op is None:
        return f"the event has no {form.op}, so it is no row"
    if known:
        return f"the event's {form.op} is {op}, and it has no {form.after}, so it is no row"
    words = ", ".join(form.ops)
    return _NO_ROWS.get(op, f"no event of a row has the {form.op} {op[:40]!r}; known are {words}")


def _with_deleted(
    envelope: Envelope,
    rows: list[pa.Array],
    payloads: Payloads,
    places: Ints,
    read: Callable[[Shape, pa.Schema, Payloads], Rows],
) -> tuple[list[pa.Array], dict[int, str]]:
    """The rows, where they were deleted as they were before, and what cannot be decoded."""
    some = Payloads(payloads.data, payloads.starts[places], payloads.lengths[places])
    columns, bad = _fields(envelope, envelope.deletion, some, read)
    before = conform(columns[envelope.form.before], pa.struct(list(envelope.row))).flatten()
    order = np.arange(len(payloads.starts))
    order[places] = len(order) + np.arange(len(places))
    taken = pa.array(order)
    merged = [pa.concat_arrays(pair).take(taken) for pair in zip(rows, before, strict=True)]
    return merged, {int(places[row]): message for row, message in bad.items()}


def _times(array: pa.Array | None, count: int, unit_us: int) -> tuple[pa.Array, Bools]:
    """(timestamps, which of them no table can hold)."""
    if array is None or array.type == types.TIMESTAMP:
        times = pa.nulls(count, types.TIMESTAMP) if array is None else array
        return times, np.zeros(count, np.bool_)
    units = array.cast(types.LONG).fill_null(0).to_numpy()
    second = 1_000_000 // unit_us
    outside = (units < SECONDS_MIN * second) | (units >= (SECONDS_MAX + 1) * second)
    valid = _is_valid(array) & ~outside
    return number_array(np.where(valid, units, 0) * unit_us, valid, types.TIMESTAMP), outside
