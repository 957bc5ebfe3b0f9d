"""What the tests of typed columns share: a column of values decoded both ways, which must agree."""

import pyarrow as pa

from iceberg_export.typed.decode_values import Decoded, decode
from iceberg_export.typed.envelope import row_fields
from iceberg_export.typed.fields import Schema
from iceberg_export.typed.framing import frame

MODES = {"AVRO": "avro", "JSON": "json", "PROTOBUF": "protobuf"}


def column(values: list[bytes | None]) -> pa.Array:
    return pa.array(values, pa.large_binary())


def assert_equal(first: pa.Table, second: pa.Table) -> None:
    """Also where there is a NaN, which Arrow tells from itself: then as text."""
    assert first.schema == second.schema
    first.validate(full=True)
    second.validate(full=True)
    if not first.equals(second):
        for one, other in zip(first.columns, second.columns, strict=True):
            assert said(one.combine_chunks()) == said(other.combine_chunks())


def said(array: pa.Array) -> list:
    """What an array says, as text: nothing of what lies below a null."""
    if pa.types.is_struct(array.type):
        return [array.is_valid().to_pylist(), *(said(one) for one in array.flatten())]
    if pa.types.is_large_list(array.type):
        return [array.value_lengths().to_pylist(), said(array.flatten())]
    if pa.types.is_map(array.type):
        return [array.offsets.to_pylist(), said(array.keys), said(array.items)]
    return [array.to_string(window=100_000, container_window=100_000)]


def decode_both(schema: Schema, payloads: list[bytes | None], *, envelope: str = "") -> Decoded:
    """Decoded fast, after it has been seen that the reference says the same."""
    indexes = (0,) if schema.kind == "PROTOBUF" else None
    framed = [None if one is None else frame(schema.schema_id, one, indexes) for one in payloads]
    schemas = {schema.schema_id: schema}
    how = {"target": row_fields(schema, envelope=envelope), "envelope": envelope}
    fast = decode(column(framed), MODES[schema.kind], schemas, **how)
    slow = decode(column(framed), MODES[schema.kind], schemas, **how, reference=True)
    assert fast.bad_values == slow.bad_values
    assert_equal(fast.columns, slow.columns)
    if envelope:
        assert_equal(fast.changes, slow.changes)
    return fast
