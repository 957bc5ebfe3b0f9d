"""Payloads of one schema to its columns: the fast way where there is one, else record by record.

No value stops the others. What the fast way raises for, the reference tells apart; and a record for
which that raises what values can make libraries raise (`OF_VALUES`) is bad, whatever was expected.
"""

import struct
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iceberg_export.records.cells import Cells
from iceberg_export.records.decode import Bytes, Ints
from iceberg_export.typed import json_columns, proto_columns
from iceberg_export.typed.avro_columns import avro_column
from iceberg_export.typed.avro_schema import AvroType
from iceberg_export.typed.fields import Shape, shape_is_record
from iceberg_export.typed.inferred_columns import inferred_columns
from iceberg_export.typed.inferred_rows import Inferred, UnseenError
from iceberg_export.typed.json_schema import JsonType
from iceberg_export.typed.reference import UndecodableError, decoder_of

OF_VALUES: tuple[type[Exception], ...] = (
    ArithmeticError,
    MemoryError,
    RecursionError,
    ValueError,
    pa.ArrowException,
    struct.error,
)
"""A number that a type of Arrow's or Python's cannot hold, a document that nests too deep, ..."""


UNSEEN_MAX = 500
"""Of rows together: from so many what they have is drawn, and then all are decoded again."""


class Payloads(NamedTuple):
    """Where each value lies, without its frame."""

    data: Bytes
    starts: Ints
    lengths: Ints


class Rows(NamedTuple):
    columns: list[pa.Array]
    """In the schema's own types, a row for each payload."""
    bad: Mapping[int, str]
    """Rows whose payloads cannot be decoded, and why; what the columns have there means nothing."""
    unseen: Collection[int] = ()
    """Those of them that have something for which types that were inferred have no place."""


Fast = tuple[list[pa.Array], npt.NDArray[np.bool_]]
"""(columns, which rows are odd and left to the reference)."""


def decode_payloads(shape: Shape, fields: pa.Schema, payloads: Payloads, cells: Cells) -> Rows:
    """The fastest way that gives what `by_reference` gives. Raises TooManyCellsError."""
    try:
        found = _fast(shape, payloads, cells)
    except OF_VALUES:
        found = None
    if found is None:
        return by_reference(shape, fields, payloads, cells)
    columns, odd = found
    if not bool(odd.any()):
        return Rows(columns, {})
    places = np.flatnonzero(odd)
    some = Payloads(payloads.data, payloads.starts[places], payloads.lengths[places])
    others = by_reference(shape, fields, some, cells)
    bad = {int(places[row]): message for row, message in others.bad.items()}
    unseen = [int(places[row]) for row in others.unseen]
    if len(bad) < len(places):
        # Where each row is in the columns with the reference's rows behind them.
        order = np.arange(len(odd))
        order[places] = len(odd) + np.arange(len(places))
        taken = pa.array(order)
        pairs = zip(columns, others.columns, strict=True)
        columns = [pa.concat_arrays(pair).take(taken) for pair in pairs]
    return Rows(columns, bad, unseen)


def _fast(shape: Shape, payloads: Payloads, cells: Cells) -> Fast | None:
    if isinstance(shape, AvroType):
        column, odd = avro_column(shape, *payloads, cells)
        return as_columns(shape, column), odd
    if isinstance(shape, Inferred):
        return inferred_columns(shape, *payloads, cells)
    if isinstance(shape, JsonType):
        fast = json_columns.is_fast(shape)
        return json_columns.json_columns(shape, *payloads, cells) if fast else None
    fast = proto_columns.is_fast(shape.type)
    return proto_columns.proto_columns(shape.type, *payloads, cells) if fast else None


def as_columns(shape: Shape, column: pa.Array) -> list[pa.Array]:
    """A record's fields are the columns, all else is one."""
    if pa.types.is_struct(column.type):
        return list(column.flatten())
    return [] if shape_is_record(shape) else [column]


def by_reference(shape: Shape, fields: pa.Schema, payloads: Payloads, cells: Cells) -> Rows:
    """Record by record, as `reference` says. Raises TooManyCellsError."""
    decode = decoder_of(shape)
    rows: list[dict[str, object] | None] = []
    bad: dict[int, str] = {}
    unseen: list[int] = []
    places = zip(payloads.starts.tolist(), payloads.lengths.tolist(), strict=True)
    for row, (start, length) in enumerate(places):
        try:
            rows.append(decode(payloads.data[start : start + length].tobytes(), cells))
        except UndecodableError as error:
            bad[row] = str(error)
            rows.append(None)
        except UnseenError as error:
            bad[row] = str(error)
            unseen.append(row)
            rows.append(None)
            if len(unseen) >= UNSEEN_MAX and isinstance(shape, Inferred) and shape.draws:
                break  # They are a sample: all are decoded again.
        except OF_VALUES as error:
            bad[row] = _error_text(error)
            rows.append(None)
    for row in range(len(rows), len(payloads.starts)):
        bad[row] = "it was not looked at"
        rows.append(None)
    try:
        return Rows(arrays_of(rows, fields), bad, unseen)
    except OF_VALUES:
        for row, message in list(_beyond_types(rows, fields, range(len(rows)))):
            bad[row] = message
            rows[row] = None
    return Rows(arrays_of(rows, fields), bad, unseen)


def _beyond_types(
    rows: list[dict[str, object] | None], fields: pa.Schema, places: range
) -> Iterator[tuple[int, str]]:
    """Rows that the types of the columns cannot hold, and why, found by halves."""
    try:
        arrays_of(rows[places.start : places.stop], fields)
    except OF_VALUES as error:
        if len(places) == 1:
            yield places.start, _error_text(error)
            return
        middle = len(places) // 2
        yield from _beyond_types(rows, fields, places[:middle])
        yield from _beyond_types(rows, fields, places[middle:])


def _error_text(error: Exception) -> str:
    return f"the value cannot be held ({type(error).__name__}: {error})"


def arrays_of(rows: list[dict[str, object] | None], fields: pa.Schema) -> list[pa.Array]:
    """Python's values as columns; None is a row of nulls."""
    if not len(fields):
        return []
    structs = pa.array(rows, pa.struct(list(fields)))
    return list(structs.flatten())
