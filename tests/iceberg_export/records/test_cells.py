"""Records that take much of a table and few bytes: decoded a bounded number together, or dead letters."""

import json

import pyarrow as pa
import pytest

from iceberg_export.records import cells
from iceberg_export.records.cells import CELLS_MAX, Cells, TooManyCellsError
from iceberg_export.records.rows import ROW_SCHEMA
from iceberg_export.typed.fields import AVRO, JSON, PROTOBUF, Schema, fields_of, shape_of
from iceberg_export.typed.framing import frame
from iceberg_export.typed.typed_rows import RowDecoder, RowTyping, Side

WIDTH = 100
MODES = {AVRO: "avro", JSON: "json", PROTOBUF: "protobuf"}


def wide_avro(kind):
    fields = [{"name": f"f{n}", "type": ["null", "int"]} for n in range(WIDTH)]
    wide = ["null", {"type": "record", "name": "Wide", "fields": fields}]
    items = {"type": kind, "values" if kind == "map" else "items": wide}
    return {"type": "record", "name": "R", "fields": [{"name": "list", "type": items}]}


def avro_of(kind):
    def payload(count):
        element = b"\x02k\x00" if kind == "map" else b"\x00"
        return varint(2 * count) + element * count + b"\x00" if count else b"\x00"

    return Schema(7, AVRO, json.dumps(wide_avro(kind))), payload


def json_of(kind, element):
    wide = {"type": "object", "properties": {f"f{n}": {"type": "integer"} for n in range(WIDTH)}}
    items = {"type": "array", "items": wide}
    if kind == "map":
        items = {"type": "object", "additionalProperties": wide}
    schema = {"type": "object", "properties": {"list": items}}

    def payload(count):
        if kind == "map":
            return json.dumps({"list": {str(n): {} for n in range(count)}}).encode()
        return b'{"list": [%s]}' % b",".join([element] * count)

    return Schema(7, JSON, json.dumps(schema)), payload


def wide_protobuf(width):
    fields = " ".join(f"int32 f{n} = {n + 1};" for n in range(width))
    return Schema(7, PROTOBUF, f'syntax = "proto3"; message R {{ {fields} }}'), bytes


def protobuf_of(declared="repeated Wide", *, keys=False, width=WIDTH):
    fields = " ".join(f"int32 f{n} = {n + 1};" for n in range(width))
    text = f'syntax = "proto3"; message R {{ {declared} list = 1; }} message Wide {{ {fields} }}'

    def payload(count):
        elements = [b"\x08" + varint(n) if keys else b"" for n in range(count)]
        return b"".join(b"\x0a" + varint(len(one)) + one for one in elements)

    return Schema(7, PROTOBUF, text), payload


def varint(number):
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


SHAPES = {
    "avro-array": avro_of("array"),
    "avro-map": avro_of("map"),
    "json-objects": json_of("array", b"{}"),
    "json-nulls": json_of("array", b"null"),
    "json-map": json_of("map", b"{}"),
    "protobuf-list": protobuf_of(),
    "protobuf-map": protobuf_of("map<int32, Wide>", keys=True),
}


def rows_of(schema, payloads):
    indexes = (0,) if schema.kind == PROTOBUF else None
    values = [frame(schema.schema_id, one, indexes) for one in payloads]
    table = pa.table({"value": pa.array(values, pa.large_binary())})
    columns = {
        field.name: pa.nulls(len(values), field.type) if field.nullable else pa.array(
            range(len(values)), field.type
        )
        for field in ROW_SCHEMA
    }  # fmt: skip
    return pa.Table.from_arrays(
        [table.column("value") if name == "value" else columns[name] for name in ROW_SCHEMA.names],
        schema=ROW_SCHEMA,
    )


def typing_of(schema):
    target = fields_of(schema)
    side = Side("value", MODES[schema.kind], schemas={7: schema}, target=target)
    return RowTyping(value=side)


@pytest.mark.parametrize("reference", [False, True], ids=["compiled", "reference"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_record_that_holds_too_many_values_is_a_dead_letter_and_the_others_are_rows(
    shape, reference, monkeypatch
):
    schema, payload = SHAPES[shape]
    root = shape_of(schema)
    nodes = (root.type if schema.kind == PROTOBUF else root).nodes
    monkeypatch.setattr(cells.Cells.__init__, "__defaults__", (10 * nodes,))
    counts = [3, 0, 50, 7, 9, 3, 2]
    decoder = RowDecoder(typing_of(schema), reference=reference)
    parts = [found for _, found in decoder.parts(rows_of(schema, map(payload, counts)))]
    good = [offset for one in parts for offset in one.rows.column("kafka_offset").to_pylist()]
    bad = [row for one in parts for row in one.bad.to_pylist()]
    assert good == [0, 1, 3, 4, 5, 6]
    assert [row["kafka_offset"] for row in bad] == [2]
    assert all("values in lists and maps" in row["error_message"] for row in bad)


def test_records_of_wide_schemas_are_decoded_so_many_together_that_their_columns_are_bounded():
    fields = [{"name": f"f{n}", "type": ["null", "long"]} for n in range(3 * WIDTH)]
    schema = Schema(7, AVRO, json.dumps({"type": "record", "name": "R", "fields": fields}))
    count = 3 * CELLS_MAX // (3 * WIDTH) + 1
    rows = rows_of(schema, [bytes(3 * WIDTH)] * count)
    sizes = [found.rows.num_rows for _, found in RowDecoder(typing_of(schema)).parts(rows)]
    assert sum(sizes) == count
    assert max(sizes) * 3 * WIDTH <= CELLS_MAX


def test_cells_are_counted_before_memory_is_taken_for_them():
    left = Cells(3)
    left.take(3)
    with pytest.raises(TooManyCellsError):
        left.take(1)
