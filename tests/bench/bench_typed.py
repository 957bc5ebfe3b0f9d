"""How many values a core decodes: `python -m tests.bench.bench_typed [--values 100000] [--write]`.

An order of six fields (long, two strings, double, timestamp, boolean) in Avro, JSON and Protobuf,
framed, once also with a list of two strings; fast and by the reference. CPU seconds, best of five,
compilation left out.
"""

import argparse
import io
import json
import time

import fastavro
import pyarrow as pa
from google.protobuf import message_factory

from iceberg_export.typed.decode_values import decode
from iceberg_export.typed.fields import AVRO, JSON, PROTOBUF, Schema, fields_of
from iceberg_export.typed.framing import frame
from iceberg_export.typed.proto_schema import read_protobuf
from tests.bench.report import machine, write_section

TS = 1_790_000_000_123
INTRODUCTION = """`python -m tests.bench.bench_typed --write`: values of six fields (long, two strings, double, timestamp,
boolean), framed as Confluent's serializers frame them, into columns: by the exporter's loops, and by the
reference in plain Python that defines what they do. CPU seconds, best of five, compilation left out.

{machine}

| values | bytes each | thousands a core and second | MB/s | reference, thousands |
|---|---|---|---|---|
{rows}
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
    best = float("inf")
    for _ in range(2 if reference else 5):
        start = time.process_time()
        found = decode(column, schema.kind.lower(), {1: schema}, target=target, reference=reference)
        best = min(best, time.process_time() - start)
        assert not found.bad_values
    return len(column) / best


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
    if options.write:
        write_section("Typed values", INTRODUCTION.format(machine=machine(), rows="\n".join(rows)))


if __name__ == "__main__":
    main()
