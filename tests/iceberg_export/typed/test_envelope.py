"""Change events: their rows, what happened to them, and those that are no rows; both decoders alike."""

import datetime as dt
import json
import struct

import pytest
from google.protobuf import message_factory

from iceberg_export.typed.envelope import read_envelope, row_fields
from iceberg_export.typed.proto_schema import read_protobuf
from iceberg_export.typed.types import AVRO, JSON, PROTOBUF, Schema
from protocol.schemas import SchemaError
from tests.iceberg_export.kit.registry import avro_bytes
from tests.iceberg_export.typed.helpers import decode_both

ROW = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "city", "type": ["null", "string"], "default": None},
    ],
}
SOURCE = {
    "type": "record",
    "name": "Source",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "is_snapshot", "type": "boolean"},
        {"name": "lsn", "type": ["null", "long", "double"], "default": None},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["a", "b"]}},
        {"name": "digest", "type": {"type": "fixed", "name": "Digest", "size": 3}},
    ],
}


def envelope(*more: dict, row: dict = ROW, before: object = None) -> dict:
    """As Debezium writes it; `more`: fields behind `op`."""
    return {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": before or ["null", row], "default": None},
            {"name": "after", "type": ["null", row if before else row["name"]], "default": None},
            {"name": "source", "type": ["null", SOURCE], "default": None},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
            *more,
        ],
    }


ENVELOPE = envelope({"name": "ts_us", "type": ["null", "long"], "default": None})
FULL = {"name": "shop", "is_snapshot": True, "lsn": -(1 << 62), "state": "b", "digest": b"abc"}
AT = dt.datetime(2026, 11, 27, 9, 30, 0, 500_000, tzinfo=dt.UTC)
AT_MS = 1_795_771_800_500


def event(op, before=None, after=None, **more):
    return {"before": before, "after": after, "op": op, "ts_ms": AT_MS, **more}


def row(number, city=None):
    return {"id": number, "city": city}


def avro(*events, schema=ENVELOPE):
    of = Schema(1, AVRO, json.dumps(schema))
    return decode_both(of, [one and avro_bytes(schema, one) for one in events], envelope="debezium")


def rows(decoded):
    """Rows as (id, city, op, time)."""
    both = zip(decoded.columns.to_pylist(), decoded.changes.to_pylist(), strict=True)
    return [(*one.values(), *change.values()) for one, change in both]


EVENTS = (
    event("r", after=row(1, "Ulm"), source=FULL, ts_us=1),
    event("c", after=row(2)),
    event("u", before=row(2), after=row(2, "Bonn"), source=FULL | {"lsn": 0.5}),
    event("d", before=row(2, "Bonn")),
    None,
    event("d"),
    event("c", after=row(3, "Kiel")) | {"ts_ms": None},
)
ROWS = [
    (1, "Ulm", "r", AT),
    (2, None, "c", AT),
    (2, "Bonn", "u", AT),
    (2, "Bonn", "d", AT),
    (None, None, None, None),
    (None, None, "d", AT),
    (3, "Kiel", "c", None),
]


def test_the_row_of_a_change_is_what_is_after_it_and_of_a_delete_what_was_before():
    decoded = avro(*EVENTS)
    assert rows(decoded) == ROWS
    assert not decoded.bad_values


JSON_ROW = {"type": "object", "properties": {"id": {"type": "integer"}, "city": {"type": "string"}}}
JSON_ENVELOPE = {
    "type": "object",
    "properties": {
        "before": {"oneOf": [{"type": "null"}, JSON_ROW]},
        "after": {"oneOf": [{"type": "null"}, JSON_ROW]},
        "op": {"type": "string"},
        "ts_ms": {"type": ["integer", "null"]},
        "source": {"type": "object", "properties": {"lsn": {"type": "integer"}}},
    },
}


def from_json(*texts, schema=JSON_ENVELOPE):
    return decode_both(Schema(1, JSON, json.dumps(schema)), list(texts), envelope="debezium")


def as_json(one):
    """With bytes as text, and something in `source` that its schema does not say."""
    if one is None:
        return None
    return json.dumps({**one, "source": {"lsn": "no number", "more": [1, {}]}}).encode()


def test_json_gives_the_same_rows_whatever_its_source_says():
    decoded = from_json(*map(as_json, EVENTS))
    assert rows(decoded) == ROWS
    assert not decoded.bad_values


def test_json_in_a_payload_beside_its_schema_gives_the_same_rows():
    def wrapped(one, place):
        text = as_json(one)
        if text is None or place == 2:
            return text
        return b'{"schema": {"type": "struct"}, "payload": %s}' % text

    decoded = from_json(*(wrapped(one, place) for place, one in enumerate(EVENTS)))
    assert rows(decoded) == ROWS
    assert not decoded.bad_values


@pytest.mark.parametrize("damage", [b"", b'"', b",", b"}", b"]", b"\n", b"\\", b"\xff", b"1", b"N"])
def test_damage_anywhere_in_json_is_judged_alike_by_both_decoders(damage):
    whole = as_json(EVENTS[1])
    broken = [whole[:at] + damage + whole[at + 1 :] for at in range(len(whole))]
    for first in range(0, len(broken), 20):
        from_json(*broken[first : first + 20])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (b'{"\\u0061fter": {"id": 1}, "op": "c"}', [(1, None, "c", None)]),
        (b'{"after": {"id": 2}, "op": "u", "after": {"id": 1}}', [(1, None, "u", None)]),
        (b'{"after": {"id": 1}, "op": "c", "source": {"n": %s}}' % (b"1" * 5000), [(None, None, None, None)]),
        (b'{"after": {"id": 1}, "op": "c", "source": %s1%s}' % (b"[" * 150, b"]" * 150), [(1, None, "c", None)]),
    ],
    ids=["escaped", "twice", "thousands of digits", "deep"],
)  # fmt: skip
def test_odd_json_of_an_event_is_read_as_a_parser_does(text, wanted):
    assert rows(from_json(text)) == wanted


PROTO = """
syntax = "proto3";
message Envelope {
  message Row { int32 id = 1; optional string city = 2; }
  message Source { string table = 1; }
  Row before = 1;
  Row after = 2;
  Source source = 3;
  string op = 4;
  optional int64 ts_ms = 5;
}
"""


def test_protobuf_gives_the_same_rows():
    schema = Schema(1, PROTOBUF, PROTO)
    message = message_factory.GetMessageClass(read_protobuf(schema).descriptor)

    def payload(one):
        if one is None:
            return None
        parts = {name: part for name, part in one.items() if name not in ("source", "ts_us")}
        return message(**parts, source={"table": "orders"}).SerializeToString()

    decoded = decode_both(schema, list(map(payload, EVENTS)), envelope="debezium")
    assert rows(decoded) == ROWS
    assert not decoded.bad_values


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (event("t"), "a truncate event is no row; rows that were there before it are still there"),
        (event("m"), "a message event is no row"),
        (event("x"), "no event of a row has the op 'x'; known are c, u, r, d"),
        (event("u", before=row(1)), "the event's op is u, and it has no after, so it is no row"),
    ],
)
def test_an_event_that_is_no_row_is_told_by_name(one, message):
    good = event("c", after=row(1, "Ulm"))
    decoded = avro(good, one, good)
    assert rows(decoded) == [(1, "Ulm", "c", AT), (None, None, None, None), (1, "Ulm", "c", AT)]
    assert [(bad.row, bad.code, bad.message) for bad in decoded.bad_values] == [
        (1, "NO_ROW", message)
    ]


def test_json_without_an_op_is_no_row():
    decoded = from_json(b'{"after": {"id": 1}}', b"{}", b'{"payload": {"after": {"id": 1}}}')
    assert {(bad.code, bad.message) for bad in decoded.bad_values} == {
        ("NO_ROW", "the event has no op, so it is no row")
    }


def test_a_time_beyond_the_calendar_is_undecodable():
    last = 253_402_300_799_999
    event_at = [event("c", after=row(1)) | {"ts_ms": ms} for ms in (last, last + 1, -(1 << 63))]
    decoded = avro(*event_at)
    assert rows(decoded)[0][-1] == dt.datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=dt.UTC)
    assert [(bad.row, bad.code) for bad in decoded.bad_values] == [
        (1, "UNDECODABLE"), (2, "UNDECODABLE"),
    ]  # fmt: skip


def test_plain_events_without_source_and_time_are_rows_too():
    schema = {
        "type": "record",
        "name": "E",
        "fields": [
            {"name": "op", "type": {"type": "enum", "name": "Op", "symbols": ["c", "u", "d"]}},
            {"name": "after", "type": ["null", ROW]},
            {"name": "before", "type": ["null", "Row"]},
        ],
    }
    decoded = avro(
        {"op": "c", "after": row(1, "Ulm"), "before": None},
        {"op": "d", "after": None, "before": row(1, "Ulm")},
        schema=schema,
    )
    assert rows(decoded) == [(1, "Ulm", "c", None), (1, "Ulm", "d", None)]


def test_lists_in_what_is_passed_over_do_not_move_the_fields_behind_them():
    more = (
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "marks", "type": {"type": "map", "values": "long"}},
        {"name": "end", "type": "double"},
    )
    one = event("c", after=row(7, "Ulm"), tags=["a", "bc"], marks={"x": 1}, end=0.5)
    decoded = avro(one, one, schema=envelope(*more))
    assert rows(decoded) == [(7, "Ulm", "c", AT)] * 2


WHOLE = avro_bytes(ENVELOPE, EVENTS[0])


@pytest.mark.parametrize("end", range(len(WHOLE)))
def test_an_event_that_is_cut_off_anywhere_is_undecodable(end):
    decoded = decode_both(
        Schema(1, AVRO, json.dumps(ENVELOPE)), [WHOLE, WHOLE[:end]], envelope="debezium"
    )
    assert [(bad.row, bad.code) for bad in decoded.bad_values] == [(1, "UNDECODABLE")]
    assert rows(decoded)[0] == ROWS[0]


@pytest.mark.parametrize(
    "damage",
    [b"\xff" * 11, b"\xff" * 9 + b"\x02", b"\x80\x80\x80\x80\x10", b"\x01", struct.pack("<d", 1.0)],
)
@pytest.mark.parametrize("at", range(len(WHOLE)))
def test_damage_anywhere_is_judged_alike_by_both_decoders(at, damage):
    broken = WHOLE[:at] + damage + WHOLE[at + len(damage) :]
    decode_both(Schema(1, AVRO, json.dumps(ENVELOPE)), [broken], envelope="debezium")


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (ROW, "it has no field before"),
        (envelope(before="int"), "its rows before a change are others than those after it"),
        (
            {**ENVELOPE, "fields": [{"name": name, "type": "string"} for name in ("before", "after", "op")]},
            "its field after is no record, but string",
        ),
        (
            {**ENVELOPE, "fields": [*ENVELOPE["fields"][:3], {"name": "op", "type": "int"}]},
            "its field op is no string, but int",
        ),
        (
            {**ENVELOPE, "fields": [*ENVELOPE["fields"][:4], {"name": "ts_ms", "type": "string"}]},
            "its field ts_ms is no number, but string",
        ),
    ],
)  # fmt: skip
def test_a_schema_that_is_no_envelope_is_refused_with_what_it_lacks(schema, reason):
    with pytest.raises(SchemaError, match=f"it is no envelope of change events: {reason}"):
        read_envelope(Schema(1, AVRO, json.dumps(schema)), envelope="debezium")


def test_fields_are_those_of_the_row():
    schema = Schema(1, AVRO, json.dumps(ENVELOPE))
    assert row_fields(schema, envelope="debezium").names == ["id", "city"]
    assert row_fields(schema, envelope="").names == [
        "before", "after", "source", "op", "ts_ms", "ts_us",
    ]  # fmt: skip


BLOCK = {
    "type": "record",
    "name": "block",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "total_order", "type": "long"},
        {"name": "data_collection_order", "type": "long"},
    ],
}
WITH_TRANSACTIONS = "debezium with transactions"


def within(number, place):
    return {"transaction": {"id": f"{number}:7", "total_order": place, "data_collection_order": 1}}


IN_TRANSACTIONS = (
    event("c", after=row(1), **within(571, 1)),
    event("u", before=row(1), after=row(1, "Ulm"), **within(571, 2)),
    event("d", before=row(1, "Ulm"), **within(572, 1)),
    event("r", after=row(2), transaction=None),
    None,
)
TRANSACTIONS = [("571:7", 1), ("571:7", 2), ("572:7", 1), (None, None), (None, None)]


def transactions(decoded):
    assert not decoded.bad_values
    return [
        (one["kafka_cdc_transaction"], one["kafka_cdc_transaction_order"])
        for one in decoded.changes.to_pylist()
    ]


def test_transactions_are_told_where_that_is_wished():
    schema = envelope({"name": "transaction", "type": ["null", BLOCK], "default": None})
    of = Schema(1, AVRO, json.dumps(schema))
    events = [one and avro_bytes(schema, one) for one in IN_TRANSACTIONS]
    assert transactions(decode_both(of, events, envelope=WITH_TRANSACTIONS)) == TRANSACTIONS
    assert decode_both(of, events, envelope="debezium").changes.column_names == [
        "kafka_cdc_op",
        "kafka_cdc_ts",
    ]


@pytest.mark.parametrize("wrapped", [False, True])
def test_transactions_are_told_of_json_too(wrapped):
    block = {
        "type": "object",
        "properties": {"id": {"type": "string"}, "total_order": {"type": "integer"}},
    }
    properties = {
        **JSON_ENVELOPE["properties"],
        "transaction": {"oneOf": [{"type": "null"}, block]},
    }
    of = Schema(1, JSON, json.dumps({**JSON_ENVELOPE, "properties": properties}))
    texts = [
        one and json.dumps({"payload": one} if wrapped else one).encode() for one in IN_TRANSACTIONS
    ]
    assert transactions(decode_both(of, texts, envelope=WITH_TRANSACTIONS)) == TRANSACTIONS


def test_events_of_a_connector_that_tells_no_transactions_have_none():
    of = Schema(1, AVRO, json.dumps(ENVELOPE))
    decoded = decode_both(of, [avro_bytes(ENVELOPE, EVENTS[1])], envelope=WITH_TRANSACTIONS)
    assert transactions(decoded) == [(None, None)]


@pytest.mark.parametrize(
    "kind",
    [
        "string",
        {**BLOCK, "fields": BLOCK["fields"][1:]},
        {**BLOCK, "fields": [{"name": "id", "type": "long"}]},
        {**BLOCK, "fields": [BLOCK["fields"][0], {"name": "total_order", "type": "string"}]},
    ],
)
def test_a_field_that_says_no_transaction_is_refused_where_transactions_are_wished(kind):
    of = Schema(1, AVRO, json.dumps(envelope({"name": "transaction", "type": kind})))
    read_envelope(of, envelope="debezium")
    with pytest.raises(SchemaError, match="its field transaction has no string id, or no number"):
        read_envelope(of, envelope=WITH_TRANSACTIONS)
