"""How many values a core decodes: `python -m tests.bench.bench_typed [--values 100000] [--write]`.

An order of six fields (long, two strings, double, timestamp, boolean) in Avro, JSON and Protobuf,
framed, once also with a list of two strings; fast and by the reference. Then the same rows in other clothes,
beside the plain ones: without a schema, with values that drift, of two tables, in Debezium's envelope, masked. CPU
seconds, best of five, compilation left out.
"""

import argparse
import io
import json
import time
from collections.abc import Callable
from typing import NamedTuple

import fastavro
import pyarrow as pa
from google.protobuf import message_factory

from iceberg_export.names import VALUE
from iceberg_export.records.masks import masked
from iceberg_export.records.routed_rows import rows_of_route
from iceberg_export.routes import Route
from iceberg_export.table.column_rules import ColumnRules, Mask, masks_of
from iceberg_export.typed.decode_values import SchemaSelection, decode
from iceberg_export.typed.envelope import row_fields
from iceberg_export.typed.fields import fields_of
from iceberg_export.typed.framing import frame
from iceberg_export.typed.inferred import DRAWS, NOTHING, draw, read_seen, write_types
from iceberg_export.typed.inferred_rows import fields_of_type
from iceberg_export.typed.inline import INLINE
from iceberg_export.typed.proto_schema import read_protobuf
from iceberg_export.typed.types import AVRO, INFERRED, JSON, PROTOBUF, Schema
from tests.bench.report import machine, write_section

TS = 1_790_000_000_123
INTRODUCTION = """`python -m tests.bench.bench_typed --write`: values of six fields (long, two strings, double, timestamp,
boolean), framed as Confluent's serializers frame them, into columns: by the exporter's loops, and by the
reference in plain Python that defines what they do. CPU seconds, best of five, compilation left out.

{machine}

| values | bytes each | thousands a core and second | MB/s | reference, thousands |
|---|---|---|---|---|
{rows}

The same rows otherwise, CPU a row beside the plain ones, which were measured in turn with them:

| rows | bytes each | times the CPU of |
|---|---|---|
{others}

Events are creates, updates with the row before, and deletes, as 6 : 3 : 1. Drifting values have text in one of a hundred
numbers.
"""
FIELDS = {
    "id": "long",
    "name": "string",
    "country": ["null", "string"],
    "amount": "double",
    "at": {"type": "long", "logicalType": "timestamp-millis"},
    "ok": "boolean",
}
JSON_FIELDS = {
    "id": {"type": "integer"},
    "name": {"type": "string"},
    "country": {"type": ["null", "string"]},
    "amount": {"type": "number"},
    "at": {"type": "string", "format": "date-time"},
    "ok": {"type": "boolean"},
}
PROTO = """syntax = "proto3"; import "google/protobuf/timestamp.proto";
message Order { int64 id = 1; string name = 2; optional string country = 3; double amount = 4;
  google.protobuf.Timestamp at = 5; bool ok = 6; TAGS }"""


def value(number: int) -> dict:
    return {
        "id": number * 12_345,
        "name": f"customer number {number}",
        "country": None if number % 3 else "Norway",
        "amount": number / 7,
        "ok": number % 2 == 0,
        "tags": ["abc", "defg"],
    }


def avro(count: int, *, tags: bool) -> tuple[Schema, list[bytes]]:
    kinds = FIELDS | ({"tags": {"type": "array", "items": "string"}} if tags else {})
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    schema = {"type": "record", "name": "Order", "fields": fields}
    parsed = fastavro.parse_schema(schema)
    values = []
    for number in range(count):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, value(number) | {"at": TS + number})
        values.append(frame(1, out.getvalue()))
    return Schema(1, AVRO, json.dumps(schema)), values


def json_values(count: int, *, tags: bool) -> tuple[Schema, list[bytes]]:
    kinds = JSON_FIELDS | ({"tags": {"type": "array", "items": {"type": "string"}}} if tags else {})
    schema = Schema(1, JSON, json.dumps({"type": "object", "properties": kinds}))
    at = {"at": "2026-11-22T01:02:03.123Z"}
    texts = [
        json.dumps({name: (value(number) | at)[name] for name in kinds}) for number in range(count)
    ]
    return schema, [frame(1, text.encode()) for text in texts]


def protobuf(count: int, *, tags: bool) -> tuple[Schema, list[bytes]]:
    schema = Schema(1, PROTOBUF, PROTO.replace("TAGS", "repeated string tags = 7;" if tags else ""))
    order = message_factory.GetMessageClass(read_protobuf(schema).descriptor)
    values = []
    for number in range(count):
        said = value(number)
        if not tags:
            del said["tags"]
        message = order(**{name: one for name, one in said.items() if one is not None})
        message.at.seconds, message.at.nanos = TS // 1000, 123_000_000
        values.append(frame(1, message.SerializeToString(), (0,)))
    return schema, values


def measure(schema: Schema, values: list[bytes], *, reference: bool) -> float:
    """Values per CPU second."""
    column = pa.array(values[:5000] if reference else values, pa.large_binary())
    target = fields_of(schema)

    def work() -> None:
        found = decode(column, schema.kind.lower(), {1: schema}, target=target, reference=reference)
        assert not found.bad_values

    return len(column) / min(cpu_of(work) for _ in range(2 if reference else 5))


def cpu_of(work: Callable[[], None]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


class Rows(NamedTuple):
    """Rows in some clothes, and what decodes them."""

    name: str
    byte_count: int
    decode: Callable[[], None]


def decoded(name: str, schema: Schema, values: list[bytes], *, envelope: str = "") -> Rows:
    """Framed values by a schema, perhaps in an envelope."""
    column = pa.array(values, pa.large_binary())
    target = row_fields(schema, envelope=envelope)

    def work() -> None:
        found = decode(column, schema.kind.lower(), {1: schema}, target=target, envelope=envelope)
        assert not found.bad_values

    return Rows(name, sum(map(len, values)) // len(values), work)


def bare(name: str, schema: Schema, texts: list[bytes], target: pa.Schema) -> Rows:
    """JSON that names no schema, by the one that its topic has."""
    column = pa.array(texts, pa.large_binary())
    selection = SchemaSelection(pinned=INLINE)

    def work() -> None:
        found = decode(column, "json", {INLINE: schema}, selection=selection, target=target)
        assert not found.bad_values
        assert not found.seen

    return Rows(name, sum(map(len, texts)) // len(texts), work)


def inferred(name: str, texts: list[bytes], sample: list[bytes]) -> Rows:
    """JSON without a schema, once types are drawn: from a sample, and then from what does not fit it."""
    known, column = NOTHING, pa.array(sample, pa.large_binary())
    while True:
        schema = Schema(INLINE, INFERRED, write_types(known, DRAWS))
        target = pa.schema(fields_of_type(known))
        found = decode(
            column,
            "json",
            {INLINE: schema},
            selection=SchemaSelection(pinned=INLINE),
            target=target,
        )
        if found.seen:
            known = draw(known, read_seen(found.seen))
        elif len(column) < len(texts):
            column = pa.array(texts, pa.large_binary())
        else:
            return bare(name, schema, texts, target)


def routed(name: str, schema: Schema, values: list[bytes]) -> Rows:
    """It is told whose each row is, and those that are this table's are decoded."""
    target = fields_of(schema)
    rows = pa.table({VALUE: pa.array(values, pa.large_binary())})
    route = Route("ok", ("true",))
    selection = SchemaSelection(pinned=schema.schema_id)

    def work() -> None:
        column = rows.filter(rows_of_route(route, rows)).column(VALUE).combine_chunks()
        decode(column, "json", {schema.schema_id: schema}, selection=selection, target=target)

    return Rows(name, sum(map(len, values)) // len(values), work)


def masked_rows(name: str, schema: Schema, values: list[bytes]) -> Rows:
    """Two texts of six fields are hashed."""
    column = pa.array(values, pa.large_binary())
    target = fields_of(schema)
    masks = masks_of(ColumnRules(masked=(("name", Mask("hash")), ("country", Mask("hash")))))

    def work() -> None:
        found = decode(column, schema.kind.lower(), {1: schema}, target=target)
        masked({one: found.columns.column(one).combine_chunks() for one in target.names}, masks)

    return Rows(name, sum(map(len, values)) // len(values), work)


def event(number: int, row: dict) -> dict:
    """A change of a row, as Debezium's connectors write it."""
    op = "ccccccuuud"[number % 10]
    return {
        "before": row if op in "ud" else None,
        "after": None if op == "d" else row,
        "source": {"table": "orders", "lsn": number},
        "op": op,
        "ts_ms": TS + number,
    }


def avro_events(count: int) -> tuple[Schema, list[bytes]]:
    row = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": name, "type": kind} for name, kind in FIELDS.items()],
    }
    source = {
        "type": "record",
        "name": "Source",
        "fields": [{"name": "table", "type": "string"}, {"name": "lsn", "type": "long"}],
    }
    fields = {"before": ["null", row], "after": ["null", "Order"], "source": source}
    kinds = fields | {"op": "string", "ts_ms": "long"}
    schema = {
        "type": "record",
        "name": "Envelope",
        "fields": [{"name": name, "type": kind} for name, kind in kinds.items()],
    }
    parsed = fastavro.parse_schema(schema)
    values = []
    for number in range(count):
        out = io.BytesIO()
        said = event(number, value(number) | {"at": TS + number})
        fastavro.schemaless_writer(out, parsed, said)
        values.append(frame(1, out.getvalue()))
    return Schema(1, AVRO, json.dumps(schema)), values


def json_events(count: int) -> tuple[Schema, list[bytes]]:
    row = {"type": "object", "properties": JSON_FIELDS}
    either = {"oneOf": [{"type": "null"}, row]}
    kinds = {"op": {"type": "string"}, "ts_ms": {"type": "integer"}}
    schema = {"type": "object", "properties": {"before": either, "after": either, **kinds}}
    values = []
    for number in range(count):
        said = value(number) | {"at": "2026-11-22T01:02:03.123Z"}
        values.append(json.dumps(event(number, {name: said[name] for name in JSON_FIELDS})))
    return Schema(1, JSON, json.dumps(schema)), [frame(1, text.encode()) for text in values]


def beside(plain: Rows, *others: Rows) -> list[str]:
    """Lines of the second table; each is measured in turn with the plain rows."""
    lines = []
    for one in others:
        times = [(cpu_of(plain.decode), cpu_of(one.decode)) for _ in range(5)]
        ratio = min(mine for _, mine in times) / min(theirs for theirs, _ in times)
        lines.append(f"| {one.name} | {one.byte_count} | {ratio:.2f} {plain.name} |")
        print(lines[-1], flush=True)
    return lines


def measure_others(count: int) -> list[str]:
    avro_schema, avro_plain = avro(count, tags=False)
    plain_avro = decoded("Avro", avro_schema, avro_plain)
    json_schema, json_plain = json_values(count, tags=False)
    texts = [one[5:] for one in json_plain]
    bare_schema = json_schema._replace(schema_id=INLINE)
    by_schema = bare("JSON with a schema", bare_schema, texts, fields_of(json_schema))
    drifting = [
        text.replace(b'"amount": ', b'"amount": "about ').replace(b', "at"', b'", "at"')
        if number % 100 == 99
        else text
        for number, text in enumerate(texts)
    ]
    return [
        *beside(
            by_schema,
            inferred("JSON whose types were drawn", texts, texts[:50]),
            inferred("the same, drifting", drifting, texts[:50]),
            routed("JSON of two tables, half of it this one's", bare_schema, texts),
        ),
        *beside(
            plain_avro,
            decoded("Debezium's events in Avro", *avro_events(count), envelope="debezium"),
            masked_rows("Avro, two texts hashed", avro_schema, avro_plain),
        ),
        *beside(
            decoded("JSON", json_schema, json_plain),
            decoded("Debezium's events in JSON", *json_events(count), envelope="debezium"),
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_typed")
    parser.add_argument("--values", type=int, default=100_000)
    parser.add_argument("--write", action="store_true", help="write the section of BENCHMARKS.md")
    options = parser.parse_args()
    rows = []
    for make in (avro, json_values, protobuf):
        for tags in (False, True):
            schema, values = make(options.values, tags=tags)
            mean = sum(map(len, values)) / options.values
            fast = measure(schema, values, reference=False)
            slow = measure(schema, values, reference=True)
            name = schema.kind + (" with a list" if tags else "")
            rows.append(
                f"| {name} | {mean:.0f} | **{fast / 1e3:.0f}** | {fast * mean / 1e6:.0f} "
                f"| {slow / 1e3:.0f} |"
            )
            print(rows[-1], flush=True)
    others = measure_others(options.values)
    if options.write:
        text = INTRODUCTION.format(
            machine=machine(), rows="\n".join(rows), others="\n".join(others)
        )
        write_section("Typed values", text)


if __name__ == "__main__":
    main()
