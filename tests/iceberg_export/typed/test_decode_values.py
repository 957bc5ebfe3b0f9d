"""Columns of many schemas at once: widened, completed with nulls, in order; poison by its code."""

import json
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg_export.typed.arrays import utf8_rows
from iceberg_export.typed.decode_values import decode
from iceberg_export.typed.fields import AVRO, JSON, Schema, fields_of
from iceberg_export.typed.framing import FIRST_MESSAGE, column_bytes, frame
from iceberg_export.typed.types import type_mismatch
from tests.iceberg_export.typed.helpers import column

TEXT = pa.large_string()


def record(number: int, **fields: object) -> Schema:
    listed = [{"name": name, "type": kind} for name, kind in fields.items()]
    return Schema(number, AVRO, json.dumps({"type": "record", "name": "R", "fields": listed}))


def test_values_of_several_schemas_become_the_tables_columns_in_their_order():
    inner = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}
    price = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}
    schemas = {
        1: record(1, id="int", ratio="float", price=price),
        2: record(2, id="long", inner=["null", inner], list={"type": "array", "items": "I"}),
        3: record(3, id="string"),
        4: record(4, surplus="int"),
        5: Schema(5, AVRO, "{"),
        6: Schema(6, JSON, "{}"),
        7: record(7, m={"type": "map", "values": "int"}),
    }
    wide = pa.struct([("y", TEXT), ("x", pa.int64())])
    target = pa.schema(
        [
            ("inner", wide),
            ("id", pa.int64()),
            ("ratio", pa.float64()),
            ("list", pa.large_list(pa.field("element", wide))),
            ("m", pa.map_(TEXT, pa.int64())),
            ("price", pa.decimal128(9, 1)),
        ]
    )
    values = [
        *(None, frame(2, b"\x04\x02\x06\x02\x08\x00"), frame(1, b"\x02\0\0\0\x3f\x02\x0f")),
        *(frame(3, b"\x02a"), frame(4, b"\x02"), frame(5, b""), frame(6, b"{}"), frame(9, b"")),
        *(b"plain", frame(1, b"\x02"), frame(2, b"\x06\x00\x00"), frame(7, b"\x02\x02k\x0a\x00")),
    ]
    decoded = decode(column(values), "avro", schemas, target=target)
    assert decoded.columns.schema == target
    decoded.columns.validate(full=True)
    rows = decoded.columns.to_pylist()
    nothing = dict.fromkeys(target.names)
    assert rows[1] == nothing | {
        "id": 2,
        "inner": {"y": None, "x": 3},
        "list": [{"y": None, "x": 4}],
    }
    assert rows[2] == nothing | {"id": 1, "ratio": 0.5, "price": Decimal("1.5")}
    assert rows[10] == nothing | {"id": 3, "list": []}
    assert rows[11] == nothing | {"m": [("k", 5)]}
    assert all(rows[number] == nothing for number in (0, *range(3, 10)))
    assert [(one.row, one.code, one.schema_id) for one in decoded.bad_values] == [
        (3, "INCOMPATIBLE", 3),
        (4, "INCOMPATIBLE", 4),
        (5, "SCHEMA_INVALID", 5),
        (6, "SCHEMA_INVALID", 6),
        (7, "SCHEMA_UNKNOWN", 9),
        (8, "NOT_FRAMED", -1),
        (9, "UNDECODABLE", 1),
    ]
    messages = {one.row: one.message for one in decoded.bad_values}
    assert messages[3] == "schema 3: field id is string, in the table long"
    assert messages[4] == "schema 4: field surplus is not in the table"
    assert messages[6] == "schema 6 is JSON, the topic's mode avro"
    assert decoded.unknown == {(9, FIRST_MESSAGE)}
    assert decoded.schema_ids.tolist() == [-2, 2, 1, 3, 4, 5, 6, 9, -1, 1, 2, 7]


def test_the_target_may_have_short_strings_and_required_fields_within():
    target = pa.schema([pa.field("s", pa.string(), nullable=False), ("b", pa.binary())])
    schemas = {1: record(1, s="string", b="bytes")}
    decoded = decode(column([frame(1, b"\x02a\x02b"), None]), "avro", schemas, target=target)
    assert decoded.columns.schema == pa.schema([("s", pa.string()), ("b", pa.binary())])
    assert decoded.columns.to_pylist() == [{"s": "a", "b": b"b"}, {"s": None, "b": None}]


def test_nothing_and_only_nulls_give_tables_too():
    schemas = {1: record(1, s="string")}
    target = fields_of(schemas[1])
    assert decode(column([]), "avro", schemas, target=target).columns.num_rows == 0
    assert decode(column([None]), "avro", schemas, target=target).columns.to_pylist() == [
        {"s": None}
    ]


def test_text_that_is_not_utf8_is_poison_in_mode_string():
    target = pa.schema([("value", TEXT), ("more", pa.int32())])
    decoded = decode(column([b"h\xc3\xa9", None, b"\xff", b""]), "string", {}, target=target)
    assert decoded.columns["value"].to_pylist() == ["hé", None, None, ""]
    ((row, code, _, schema_id),) = decoded.bad_values
    assert (row, code, schema_id) == (2, "UNDECODABLE", -1)


@settings(deadline=None)
@given(
    st.lists(
        st.binary(max_size=5)
        | st.text(max_size=3).map(lambda one: one.encode("utf-8", "surrogatepass")),
        max_size=8,
    )
)
def test_utf8_is_what_python_takes_for_it(values):
    def is_text(raw: bytes) -> bool:
        try:
            raw.decode()
        except UnicodeDecodeError:
            return False
        return True

    assert utf8_rows(*column_bytes(column(values))).tolist() == [is_text(one) for one in values]


@pytest.mark.parametrize(
    ("have", "want", "reason"),
    [
        (pa.int32(), pa.int64(), None),
        (pa.int64(), pa.int32(), "field value is long, in the table int"),
        (pa.int32(), pa.float64(), "field value is int, in the table double"),
        (pa.decimal128(4, 1), pa.decimal128(5, 1), None),
        (
            pa.decimal128(4, 1),
            pa.decimal128(5, 2),
            "decimal128(4, 1), in the table decimal128(5, 2)",
        ),
        (pa.decimal128(5, 1), pa.decimal128(4, 1), "decimal128(5, 1), in the table"),
        (pa.large_list(TEXT), TEXT, "field value is a list, in the table string"),
        (
            pa.large_list(pa.int64()),
            pa.large_list(pa.int32()),
            "field [] is long, in the table int",
        ),
        (pa.map_(TEXT, pa.int32()), pa.map_(pa.int32(), pa.int32()), "field {key} is string"),
        (pa.struct([("a", pa.int32())]), pa.struct([("b", pa.int32())]), "field a is not in"),
    ],
)
def test_types_fit_as_iceberg_widens_them(have, want, reason):
    found = type_mismatch(have, want)
    assert found is None if reason is None else reason in (found or "")
