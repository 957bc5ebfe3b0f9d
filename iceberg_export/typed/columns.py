"""Payloads of one schema to its columns: the fast way where there is one, else record by record."""

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa

from iceberg_export.decode import Bytes, Ints
from iceberg_export.typed.fields import Shape
from iceberg_export.typed.reference import UndecodableError, decoder_of


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


def decode_payloads(shape: Shape, fields: pa.Schema, payloads: Payloads) -> Rows:
    """The fastest way that gives what `by_reference` gives."""
    return by_reference(shape, fields, payloads)


def by_reference(shape: Shape, fields: pa.Schema, payloads: Payloads) -> Rows:
    """Record by record in plain Python."""
    decode = decoder_of(shape)
    rows: list[dict[str, object] | None] = []
    bad: dict[int, str] = {}
    places = zip(payloads.starts.tolist(), payloads.lengths.tolist(), strict=True)
    for row, (start, length) in enumerate(places):
        try:
            rows.append(decode(payloads.data[start : start + length].tobytes()))
        except UndecodableError as error:
            bad[row] = str(error)
            rows.append(None)
    return Rows(arrays_of(rows, fields), bad)


def arrays_of(rows: list[dict[str, object] | None], fields: pa.Schema) -> list[pa.Array]:
    """Python's values as columns; None is a row of nulls."""
    if not len(fields):
        return []
    structs = pa.array(rows, pa.struct(list(fields)))
    return list(structs.flatten())
