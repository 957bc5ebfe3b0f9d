"""Topics of change events: a table of the rows as they are now, or of all that happened to them."""

import datetime as dt
import json

import pytest

from iceberg_export.errors import SettingsError, StateError
from iceberg_export.table.latest_view import latest_query
from tests.iceberg_export.kit.place import DEAD_TABLE
from tests.iceberg_export.kit.registry import avro

KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
AT = dt.datetime(2026, 11, 27, 9, 30, 0, 500_000, tzinfo=dt.UTC)
AT_MS = 1_795_771_800_500
FIELDS = [{"name": "id", "type": "int"}, {"name": "city", "type": ["null", "string"]}]
WIDER = [{"name": "id", "type": "long"}, *FIELDS[1:], {"name": "price", "type": ["null", "double"]}]


def envelope(fields):
    """As Debezium's connectors register it."""
    row = {"type": "record", "name": "Value", "fields": fields}
    source = {
        "type": "record",
        "name": "Source",
        "fields": [{"name": "table", "type": "string"}, {"name": "lsn", "type": "long"}],
    }
    return {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", row]},
            {"name": "after", "type": ["null", "Value"]},
            {"name": "source", "type": source},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"]},
        ],
    }


ENVELOPE, WIDER_ENVELOPE = envelope(FIELDS), envelope(WIDER)
JSON_ROW = {"properties": {"id": {"type": "integer"}, "city": {"type": ["string", "null"]}}}
JSON_ENVELOPE = {
    "properties": {
        "before": {"oneOf": [{"type": "null"}, JSON_ROW]},
        "after": {"oneOf": [{"type": "null"}, JSON_ROW]},
        "op": {"type": "string"},
        "ts_ms": {"type": "integer"},
    }
}


def row(number, city, **more):
    return {"id": number, "city": city, **more}


def event(op, before=None, after=None):
    source = {"table": "orders", "lsn": 1 << 40}
    return {"before": before, "after": after, "op": op, "ts_ms": AT_MS, "source": source}


CHANGES = (
    event("r", after=row(1, "Ulm")),
    event("c", after=row(2, "Bonn")),
    event("u", before=row(1, "Ulm"), after=row(1, "Kiel")),
    event("d", before=row(2, "Bonn")),
    None,
)
HISTORY = [
    (1, "Ulm", "r", AT),
    (2, "Bonn", "c", AT),
    (1, "Kiel", "u", AT),
    (2, "Bonn", "d", AT),
    (None, None, None, None),
]


def sender(here, registry, mode, schema=ENVELOPE):
    """Registers the schema; returns what writes a value by it."""
    if mode == "avro":
        number = registry.register("orders-value", schema)
        return lambda one: one and avro(number, schema, one)
    registry.register("orders-value", JSON_ENVELOPE, "JSON")
    wrapped = mode == "connect"
    return lambda one: (
        one and json.dumps({"schema": {}, "payload": one} if wrapped else one).encode()
    )


def configure(here, kind="avro", **more):
    value_mode = "json" if kind == "connect" else kind
    here.configure(value_mode=value_mode, envelope="debezium", **more)


def columns(here):
    return here.columns("id", "city", "kafka_cdc_op", "kafka_cdc_ts")


def key_of(one, number):
    changed = (one["after"] or one["before"])["id"] if one else 2
    return avro(number, KEY, {"id": changed})


@pytest.mark.parametrize("mode", ["avro", "json", "connect"])
def test_mode_append_keeps_every_change_as_a_row(here, registry, mode):
    configure(here, mode)
    value = sender(here, registry, mode)
    here.send(*map(value, CHANGES))
    report = here.export()
    assert (report.rows, report.dead) == (5, 0)
    assert columns(here) == HISTORY
    assert "source" not in here.table().schema().column_names
    verdict = here.verify()
    assert (verdict.records, verdict.problems) == (5, ())


@pytest.mark.parametrize("mode", ["avro", "json", "connect"])
def test_mode_upsert_keeps_the_rows_of_the_database_as_they_are_now(here, registry, mode):
    configure(here, mode, mode="upsert", key_mode="avro")
    value = sender(here, registry, mode)
    key = registry.register("orders-key", KEY)
    first, then = CHANGES[:2], CHANGES[2:4]
    here.send(*map(value, first), keys=[key_of(one, key) for one in first])
    here.export()
    assert columns(here) == HISTORY[:2]
    here.send(*map(value, then), keys=[key_of(one, key) for one in then])
    assert here.export().dead == 0
    assert columns(here) == [(1, "Kiel", "u", AT)]
    again = event("c", after=row(2, "Hof"))
    here.send(value(None), value(again), keys=[key_of(None, key), key_of(again, key)])
    here.export()
    assert columns(here) == [(1, "Kiel", "u", AT), (2, "Hof", "c", AT)]
    verdict = here.verify()
    assert (verdict.records, verdict.problems) == (2, ())


def test_a_delete_without_the_row_before_it_deletes_in_upsert_and_is_a_row_of_nulls_in_append(
    here, registry
):
    configure(here, mode="upsert")
    value = sender(here, registry, "avro")
    here.send(value(event("c", after=row(2, "Bonn"))), value(event("d")), keys=[b"k", b"k"])
    here.export()
    assert columns(here) == []
    assert here.verify().problems == ()
    here.world.configs["orders"] |= {"mode": "append"}
    here.catalog.drop_table(here.name)
    here.export()
    assert columns(here) == [(2, "Bonn", "c", AT), (None, None, "d", AT)]


def test_deletes_delete_also_where_somebody_dropped_the_column_of_ops(here, registry):
    configure(here, mode="upsert")
    value = sender(here, registry, "avro")
    here.send(value(event("c", after=row(2, "Bonn"))), keys=[b"k"])
    here.export()
    with here.table().update_schema() as update:
        update.delete_column("kafka_cdc_op")
    here.send(value(event("d", before=row(2, "Bonn"))), keys=[b"k"])
    here.export()
    assert here.columns("id") == []


def test_a_table_grows_with_the_rows_of_the_database(here, registry):
    configure(here)
    old = sender(here, registry, "avro")
    here.send(old(event("c", after=row(1, "Ulm"))))
    here.export()
    new = sender(here, registry, "avro", WIDER_ENVELOPE)
    here.send(new(event("d", before=row(1 << 40, "Bonn", price=2.5))), old(CHANGES[2]))
    assert here.export().dead == 0
    assert here.columns("id", "city", "price", "kafka_cdc_op") == [
        (1, "Ulm", None, "c"), (1 << 40, "Bonn", 2.5, "d"), (1, "Kiel", None, "u"),
    ]  # fmt: skip
    assert here.verify().problems == ()


def test_in_layout_nested_the_value_is_the_row(here, registry):
    configure(here, layout="nested")
    here.send(*map(sender(here, registry, "avro"), CHANGES))
    here.export()
    assert here.columns("value", "kafka_cdc_op") == [
        (row(1, "Ulm"), "r"), (row(2, "Bonn"), "c"), (row(1, "Kiel"), "u"), (row(2, "Bonn"), "d"),
        (None, None),
    ]  # fmt: skip
    assert here.verify().problems == ()


def test_events_that_are_no_rows_are_dead_letters_with_the_reason(here, registry):
    configure(here)
    value = sender(here, registry, "avro")
    here.send(*map(value, (event("t"), event("c", after=row(1, "Ulm")), event("m"), event("u"))))
    report = here.export()
    assert (report.rows, report.dead) == (1, 3)
    assert here.dead("kafka_offset", "error_code") == [(0, "NO_ROW"), (2, "NO_ROW"), (3, "NO_ROW")]
    assert "a truncate event is no row" in report.first_reason
    verdict = here.verify()
    assert (verdict.records, verdict.dead, verdict.problems) == (1, 3, ())


def test_values_of_a_schema_that_is_no_envelope_are_dead_letters_that_say_so(here, registry):
    configure(here)
    plain = {"type": "record", "name": "Value", "fields": FIELDS}
    number = registry.register("orders-value", plain)
    here.send(avro(number, plain, row(1, "Ulm")))
    here.export()
    ((code, message),) = here.columns("error_code", "error_message", table=DEAD_TABLE)
    assert code == "SCHEMA_INVALID"
    assert message == "schema 1: it is no envelope of change events: it has no field before"


@pytest.mark.parametrize("mode", ["raw", "string"])
def test_values_without_fields_cannot_be_change_events(here, mode):
    configure(here, mode)
    with pytest.raises(SettingsError, match=r"value.mode is .*, which has no fields"):
        here.export()


def test_a_table_with_rows_keeps_its_envelope(here, registry):
    configure(here)
    here.send(sender(here, registry, "avro")(CHANGES[0]))
    here.export()
    here.configure(value_mode="avro")
    with pytest.raises(
        StateError, match=r"envelope is none, .* exported with debezium; set it back"
    ):
        here.export()


def test_a_table_without_rows_follows_the_setting_of_its_topic(here, registry):
    here.configure(value_mode="avro")
    here.export()
    configure(here)
    here.send(*map(sender(here, registry, "avro"), CHANGES))
    here.export()
    assert columns(here) == HISTORY
    here.export()


def test_the_view_of_the_newest_rows_leaves_out_what_was_deleted():
    query = latest_query(["orders"], ["kafka_key", "id", "kafka_cdc_op"], "duckdb")
    assert query.endswith("""("id" IS NOT NULL) AND coalesce("kafka_cdc_op", '') <> 'd'""")


MAXWELL = {
    "properties": {
        "type": {"type": "string"},
        "ts": {"type": "integer"},
        "data": JSON_ROW,
    }
}


def maxwell(what, number, city, **more):
    """As its documentation shows events."""
    data = {"id": number, "city": city}
    said = {"database": "shop", "table": "orders", "type": what, "ts": AT_MS // 1000, "xid": 23396}
    return json.dumps(said | {"commit": True, "data": data} | more).encode()


@pytest.fixture
def maxwells(here):
    here.configure(
        value_mode="json",
        value_schema="inline",
        value_schema_json=json.dumps(MAXWELL),
        envelope="maxwell",
    )
    return here


def send_maxwells(here):
    keys = [
        json.dumps({"database": "shop", "table": "orders", "pk.id": n}).encode() for n in (1, 2)
    ]
    here.send(
        maxwell("bootstrap-insert", 1, "Ulm"),
        maxwell("insert", 2, "Bonn"),
        maxwell("update", 1, "Kiel", old={"city": "Ulm"}),
        maxwell("delete", 2, "Bonn"),
        keys=[keys[0], keys[1], keys[0], keys[1]],
    )


def test_maxwells_events_are_rows_with_what_happened_in_debeziums_words(maxwells):
    send_maxwells(maxwells)
    assert maxwells.export().dead == 0
    at = AT.replace(microsecond=0)
    assert maxwells.columns("id", "city", "kafka_cdc_op", "kafka_cdc_ts") == [
        (1, "Ulm", "r", at), (2, "Bonn", "c", at), (1, "Kiel", "u", at), (2, "Bonn", "d", at),
    ]  # fmt: skip
    assert maxwells.verify("verify.decoder=reference").problems == ()


def test_maxwells_deletes_delete_in_mode_upsert(maxwells):
    maxwells.world.configs["orders"] |= {"mode": "upsert", "partition.by": "none"}
    send_maxwells(maxwells)
    maxwells.export()
    assert maxwells.columns("id", "city") == [(1, "Kiel")]
    assert maxwells.verify().problems == ()


def test_maxwells_events_that_are_no_rows_are_dead_letters_with_the_reason(maxwells):
    maxwells.send(
        maxwell("bootstrap-start", 1, "x"),
        json.dumps({"type": "table-create", "ts": 1}).encode(),
        json.dumps({"type": "insert", "ts": 1}).encode(),
    )
    maxwells.export()
    known = "known are insert, update, bootstrap-insert, delete"
    assert maxwells.dead("error_code", "error_message") == [
        ("NO_ROW", f"no event of a row has the type 'bootstrap-start'; {known}"),
        ("NO_ROW", f"no event of a row has the type 'table-create'; {known}"),
        ("NO_ROW", "the event's type is insert, and it has no data, so it is no row"),
    ]
    assert maxwells.verify().problems == ()


def test_a_schema_without_maxwells_fields_is_no_envelope(maxwells):
    maxwells.world.configs["orders"]["value.schema.json"] = json.dumps(JSON_ENVELOPE)
    maxwells.send(maxwell("insert", 1, "Ulm"))
    with pytest.raises(SettingsError, match="it has no field data"):
        maxwells.export()


BLOCK = {
    "type": "record",
    "name": "block",
    "fields": [{"name": "id", "type": "string"}, {"name": "total_order", "type": "long"}],
}
IN_TRANSACTIONS = {
    **ENVELOPE,
    "fields": [
        *ENVELOPE["fields"],
        {"name": "transaction", "type": ["null", BLOCK], "default": None},
    ],
}


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_table_says_of_which_transaction_each_change_is(here, registry, mode):
    configure(here, mode=mode, key_mode="avro", envelope_transactions="true")
    value = sender(here, registry, "avro", IN_TRANSACTIONS)
    key = registry.register("orders-key", KEY)
    changes = [
        {**one, "transaction": {"id": f"7{number}:9", "total_order": number}}
        for number, one in enumerate(CHANGES[1:3], 1)
    ]
    here.send(*map(value, changes), keys=[key_of(one, key) for one in changes])
    assert here.export().dead == 0
    wanted = [("71:9", 1), ("72:9", 2)]
    assert here.columns("kafka_cdc_transaction", "kafka_cdc_transaction_order") == wanted
    assert here.verify().problems == ()


def test_a_table_with_rows_that_say_no_transactions_goes_on_without_them(here, registry):
    configure(here)
    here.send(sender(here, registry, "avro")(CHANGES[0]))
    here.export()
    configure(here, envelope_transactions="true")
    with pytest.raises(
        StateError, match=r"is debezium with transactions, .* with debezium; set it"
    ):
        here.export()


@pytest.mark.parametrize("envelope_of", ["none", "maxwell"])
def test_only_debezium_tells_transactions(here, envelope_of):
    here.configure(value_mode="avro", envelope=envelope_of, envelope_transactions="true")
    with pytest.raises(SettingsError, match=r"envelope\.transactions is for .*envelope=debezium"):
        here.export()
