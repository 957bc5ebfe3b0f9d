"""Typed tables: schemas that evolve, dead letters with reasons, each record in one of both."""

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pytest

from iceberg_export.dead_letters.dead_letter_table import decode_pending
from iceberg_export.errors import SettingsError, StateError
from iceberg_export.runs.export import export_topic
from iceberg_export.runs.job import load_topic_types
from iceberg_export.steps import Step
from iceberg_export.tasks.export_split import BadRecordError
from iceberg_export.typed import registry_client, topic_types, typed_rows
from iceberg_export.typed.framing import frame
from iceberg_export.typed.registry_client import RegistryError
from protocol.records import Record
from tests.iceberg_export.kit.hooks import Killed, Once
from tests.iceberg_export.kit.http import served
from tests.iceberg_export.kit.place import DEAD_TABLE, TABLE
from tests.iceberg_export.kit.registry import (
    ORDER_1,
    ORDER_2,
    ORDER_3,
    FakeRegistry,
    avro,
    framed,
)
from tests.iceberg_export.kit.world import World, make_job

WRONG = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}


def test_avro_values_become_columns_and_tombstones_nulls(here, registry):
    one = registry.register("orders-value", ORDER_1)
    here.send(avro(one, ORDER_1, {"id": 7, "city": "Ulm"}), None)
    report = here.export()
    assert (report.rows, report.dead) == (2, 0)
    assert here.columns("kafka_value_schema_id", "id", "city") == [
        (one, 7, "Ulm"),
        (None, None, None),
    ]
    assert "value" not in here.table().schema().column_names


def test_a_table_grows_and_widens_with_the_schemas_of_its_records(here, registry):
    one = registry.register("orders-value", ORDER_1)
    here.send(avro(one, ORDER_1, {"id": 1, "city": "Ulm"}))
    here.export()
    two = registry.register("orders-value", ORDER_2)
    three = registry.register("orders-value", ORDER_3)
    here.send(
        avro(two, ORDER_2, {"id": 1 << 40, "city": "Bonn", "price": 2.5}),
        avro(one, ORDER_1, {"id": 2, "city": "Kiel"}),
        avro(three, ORDER_3, {"id": 3, "who": {"name": "Ada"}}),
    )
    assert here.export().dead == 0
    assert here.columns("id", "city", "price", "who") == [
        (1, "Ulm", None, None),
        (1 << 40, "Bonn", 2.5, None),
        (2, "Kiel", None, None),
        (3, None, None, {"name": "Ada"}),
    ]


def test_bad_records_are_dead_letters_whole_and_with_their_reason(here, registry):
    one = registry.register("orders-value", ORDER_1)
    wrong = registry.register("orders-value", WRONG)
    other = registry.register("elsewhere", "{}", "JSON")
    good = avro(one, ORDER_1, {"id": 7, "city": "Ulm"})
    here.send(good, b"\1plain", good[:6], avro(wrong, WRONG, {"id": "x"}), framed(99, b""))
    here.send(framed(other, b"{}"), good, partition=1)
    report = here.export()
    assert (report.rows, report.dead) == (2, 5)
    assert "partition 0, offset 1" in report.first_reason
    assert here.dead("kafka_partition", "kafka_offset", "value", "error_code", "schema_id") == [
        (0, 1, b"\1plain", "NOT_FRAMED", None),
        (0, 2, good[:6], "UNDECODABLE", one),
        (0, 3, avro(wrong, WRONG, {"id": "x"}), "INCOMPATIBLE", wrong),
        (0, 4, framed(99, b""), "SCHEMA_UNKNOWN", 99),
        (1, 0, framed(other, b"{}"), "SCHEMA_INVALID", other),
    ]
    reasons = dict(here.dead("kafka_offset", "error_message"))
    assert reasons[3] == "schema 2: column id of the table is int, the schema has string"
    assert {run for (run,) in here.dead("run_id")} == {"r1-1"}


def test_records_that_name_a_schema_each_that_nobody_has_are_dead_letters_after_a_bounded_number_of_questions(
    here, registry, monkeypatch
):
    monkeypatch.setattr(topic_types, "STRANGERS_MAX", 10)
    monkeypatch.setattr(typed_rows, "UNKNOWN_MAX", 4)
    one = registry.register("orders-value", ORDER_1)
    other = registry.register("elsewhere", ORDER_2)
    here.send(*(framed(1_000 + number, b"") for number in range(100)))
    here.send(
        avro(one, ORDER_1, {"id": 1, "city": "Ulm"}),
        avro(other, ORDER_2, {"id": 2, "city": "Bonn", "price": 2.5}),
        partition=1,
    )
    report = here.export()
    assert (report.rows, report.dead) == (2, 100)
    assert {code for (code,) in here.dead("error_code")} == {"SCHEMA_UNKNOWN"}
    assert here.columns("id", "city", "price") == [(1, "Ulm", None), (2, "Bonn", 2.5)]
    asked = [path for path in registry.requests if path.startswith("/schemas/ids/")]
    assert len(asked) == 10 + 1
    verdict = here.verify()
    assert (verdict.records, verdict.dead, verdict.problems) == (2, 100, ())


@pytest.fixture
def here(here):
    here.configure(value_mode="avro")
    here.sets = ("table.partition.by=day",)
    return here


@pytest.fixture
def mixed(here, registry):
    """An exported topic of good records, bad ones and tombstones, keys typed as well."""
    here.world.configs["orders"] |= {"key.mode": "string", "layout": "nested"}
    one = registry.register("orders-value", ORDER_1)
    good = avro(one, ORDER_1, {"id": 1, "city": "Ulm"})
    here.send(good, None, b"bad", good, keys=[b"a", b"b", b"c", b"\xff"])
    here.export()
    three = registry.register("orders-value", ORDER_3)
    here.send(avro(three, ORDER_3, {"id": 1 << 40, "who": {"name": "Ada"}}), b"x", partition=1)
    here.export("table.partition.by=none")
    return good


@pytest.mark.parametrize("decoder", ["compiled", "reference"])
def test_verify_proves_a_typed_table_and_its_dead_letters(here, mixed, registry, decoder):
    # What the registry says now, is not what counts.
    registry.subjects.clear()
    verdict = here.verify(f"verify.decoder={decoder}")
    assert (verdict.records, verdict.dead, verdict.problems) == (3, 3, ())


def test_verify_finds_a_changed_column_and_a_lost_dead_letter(here, mixed, registry):
    here.world.configs["orders"]["partition.by"] = "none"
    here.catalog.drop_table(TABLE)
    here.catalog.drop_table(DEAD_TABLE)
    here.export()
    table = here.table()
    row = table.scan(row_filter="kafka_partition == 0 and kafka_offset == 0").to_arrow()
    table.delete("kafka_partition == 0 and kafka_offset == 0")
    changed = [{"id": 1, "city": "Bonn", "who": None}]
    at = row.column_names.index("value")
    table.append(
        row.set_column(at, row.schema.field(at), pa.array(changed, row.schema.field(at).type))
    )
    here.table(DEAD_TABLE).delete("kafka_partition == 1")
    unlike, unreadable = here.verify().problems
    assert unlike.startswith("partition 0, offsets 0 to 65535: 2 records on both sides, but not")
    assert unreadable == (
        "1 records cannot be decoded and are no dead letters: partition 1, offset 1: "
        "the value does not begin with the id of a schema (NOT_FRAMED)"
    )


def test_verify_finds_a_record_that_is_in_both_tables(here, mixed):
    table = here.table(DEAD_TABLE)
    row = table.scan(row_filter="kafka_partition == 0 and kafka_offset == 2").to_arrow()
    at = row.column_names.index("kafka_offset")
    table.append(row.set_column(at, row.schema.field(at), pa.array([0], pa.int64())))
    problems = here.verify().problems
    assert problems[0] == "partition 0, offsets 0 to 65535: 1 records in the log, 2 in the table"
    assert "but not the same ones" in problems[1]


def test_an_id_of_no_version_is_asked_for_and_its_columns_come(here, registry):
    registry.register("orders-value", ORDER_1)
    moved = registry.register("another-subject", ORDER_2)
    here.send(avro(moved, ORDER_2, {"id": 1 << 40, "city": "Bonn", "price": None}))
    assert here.export().dead == 0
    assert here.columns("id", "city") == [(1 << 40, "Bonn")]
    assert registry.requests.count(f"/schemas/ids/{moved}") == 1


EVENTS = """syntax = "proto3";
message Order { int32 id = 1; }
message Refund { int32 id = 1; string why = 2; message Line { int64 id = 1; repeated int32 no = 2; } }
message Loop { Loop in = 1; }
message Clash { string id = 1; }"""


def test_every_message_of_a_protobuf_file_is_decoded_and_only_misfits_are_dead_letters(
    here, registry
):
    here.world.configs["orders"] = {"value.mode": "protobuf"}
    one = registry.register("orders-value", EVENTS, "PROTOBUF")
    paths = [(0,), (1,), (1, 0), (2,), (3,), (9,), (1, 7)]
    payloads = [b"\x08\x01", b"\x08\x02\x12\x01w", b"\x08\x03\x12\x01\x04", *[b""] * 4]
    here.send(*(frame(one, data, path) for data, path in zip(payloads, paths, strict=True)))
    assert here.export().rows == 3
    assert here.columns("id", "why", "no") == [(1, None, None), (2, "w", None), (3, None, [4])]
    assert here.dead("kafka_offset", "error_code") == [
        (3, "SCHEMA_INVALID"),
        (4, "INCOMPATIBLE"),
        (5, "SCHEMA_INVALID"),
        (6, "SCHEMA_INVALID"),
    ]
    assert here.dead("error_message")[1] == (
        f"schema {one}: column id of the table is long, the schema has string",
    )
    assert registry.requests.count(f"/schemas/ids/{one}") == 0
    for decoder in ("compiled", "reference"):
        assert here.verify(f"verify.decoder={decoder}").problems == ()


def test_messages_are_good_whose_files_first_one_is_not_or_is_of_no_version(here, registry):
    here.world.configs["orders"] = {"value.mode": "protobuf", "layout": "nested"}
    loop = 'syntax = "proto3"; message L { L in = 1; } message M { int32 a = 1; }'
    one = registry.register("orders-value", loop, "PROTOBUF")
    moved = registry.register("another-subject", loop.replace("a =", "b ="), "PROTOBUF")
    here.send(frame(one, b"\x08\x05", (1,)), frame(one, b"", (0,)))
    here.send(frame(moved, b"\x08\x06", (1,)), frame(moved + 1, b"", (1,)))
    assert here.export().rows == 2
    assert here.columns("value") == [({"a": 5, "b": None},), ({"a": None, "b": 6},)]
    assert here.dead("kafka_offset", "error_code") == [(1, "SCHEMA_INVALID"), (3, "SCHEMA_UNKNOWN")]


def test_a_strict_table_does_not_grow_once_it_has_records(here, registry):
    here.world.configs["orders"]["schema.evolution"] = "strict"
    one = registry.register("orders-value", ORDER_1)
    here.send(avro(one, ORDER_1, {"id": 1, "city": "Ulm"}))
    here.export()
    two = registry.register("orders-value", ORDER_2)
    here.send(avro(two, ORDER_2, {"id": 2, "city": "Ulm", "price": 1.0}))
    assert here.export().dead == 1
    assert here.dead("error_code") == [("INCOMPATIBLE",)]
    assert here.columns("id") == [(1,)]


@pytest.mark.parametrize("policy", ["drop", "fail"])
def test_bad_records_are_dropped_and_counted_or_end_the_run_as_the_topic_says(
    here, registry, policy
):
    here.world.configs["orders"]["bad.records"] = policy
    one = registry.register("orders-value", ORDER_1)
    here.send(avro(one, ORDER_1, {"id": 1, "city": "Ulm"}), b"bad")
    if policy == "fail":
        with pytest.raises(BadRecordError, match=r"orders partition 0, offset 1: .*NOT_FRAMED"):
            here.export()
        assert here.columns("kafka_offset") == []
    else:
        report = here.export()
        assert (report.rows, report.dead, report.left_out) == (1, 0, 1)
        assert here.verify().problems == ()
    assert not here.catalog.table_exists(DEAD_TABLE)


def test_fields_that_begin_like_ours_get_another_name_and_keys_are_structs(here, registry):
    here.world.configs["orders"]["key.mode"] = "avro"
    odd = {
        "type": "record",
        "name": "Odd",
        "fields": [{"name": n, "type": "int"} for n in ("kafka_offset", "kafka_offset_", "value")],
    }
    one = registry.register("orders-value", odd)
    two = registry.register("orders-key", ORDER_1)
    value = {"kafka_offset": 1, "kafka_offset_": 2, "value": 3}
    key = avro(two, ORDER_1, {"id": 9, "city": "Ulm"})
    here.send(avro(one, odd, value), avro(one, odd, value), keys=[key, None])
    here.export()
    assert here.columns("kafka_offset", "kafka_offset_", "kafka_offset__", "value") == [
        (0, 1, 2, 3),
        (1, 1, 2, 3),
    ]
    assert here.columns("kafka_key", "kafka_key_schema_id") == [
        ({"id": 9, "city": "Ulm"}, two),
        (None, None),
    ]


def test_a_field_with_a_dot_is_a_column_unless_it_reads_like_another_ones(here, registry):
    here.world.configs["orders"] = {"value.mode": "json"}
    inner = {"type": "object", "properties": {"b": {"type": "integer"}}}
    one = registry.register(
        "orders-value", {"properties": {"a.c": {"type": "integer"}, "a": inner}}, "JSON"
    )
    two = registry.register("orders-value", {"properties": {"a.b": {"type": "integer"}}}, "JSON")
    here.send(framed(one, b'{"a.c": 1, "a": {"b": 2}}'), framed(two, b'{"a.b": 3}'))
    report = here.export()
    assert (report.rows, report.dead) == (1, 1)
    assert here.columns("a.c", "a") == [(1, {"b": 2})]
    ((code, message),) = here.dead("error_code", "error_message")
    assert code == "INCOMPATIBLE"
    assert "column a.b would be there twice" in message
    assert here.verify().problems == ()


def test_the_nested_layout_is_one_struct_that_grows(here, registry):
    here.world.configs["orders"]["layout"] = "nested"
    one = registry.register("orders-value", ORDER_1)
    here.send(avro(one, ORDER_1, {"id": 1, "city": "Ulm"}), None)
    here.export()
    three = registry.register("orders-value", ORDER_3)
    here.send(avro(three, ORDER_3, {"id": 1 << 40, "who": {"name": "Ada"}}))
    assert here.export().dead == 0
    assert here.columns("value") == [
        ({"id": 1, "city": "Ulm", "who": None},),
        (None,),
        ({"id": 1 << 40, "city": None, "who": {"name": "Ada"}},),
    ]


def test_schemas_come_from_the_registry_that_agents_tell_unless_one_is_set(here):
    here.world.configs["orders"] = {"value.mode": "avro"}
    theirs, set_one = FakeRegistry(), FakeRegistry()
    one = theirs.register("orders-value", ORDER_1)
    set_one.register("orders-value", ORDER_1)
    with served(theirs) as told, served(set_one) as url:
        here.world.registry = told
        here.send(avro(one, ORDER_1, {"id": 1, "city": "Ulm"}))
        assert here.export().dead == 0
        two = set_one.register("orders-value", ORDER_2)
        here.send(avro(two, ORDER_2, {"id": 2, "city": "Bonn", "price": 0.5}))
        assert here.export(f"schema.registry.url={url}").dead == 0
    assert here.columns("id", "price") == [(1, None), (2, 0.5)]


class Agent:
    """An agent of a world's cluster with a registry of its own, which dies with it."""

    def __init__(self, world, registry):
        self.world, self.registry = world, registry

    def respond(self, asked):
        self.world.registry = self.registry
        return self.world.respond(asked)


def test_when_the_agent_dies_whose_registry_was_told_another_ones_is_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(registry_client, "PAUSE_S", 0)
    world, registry = World(tmp_path / "store"), FakeRegistry()
    world.create("orders", 1)
    world.configs["orders"] = {"value.mode": "avro"}
    number = registry.register("orders-value", ORDER_1)
    value = avro(number, ORDER_1, {"id": 7, "city": "Ulm"})
    world.commit("orders", {0: [[Record(timestamp=1, value=value)]]})
    with served(registry) as theirs, served(Agent(world, theirs)) as other:
        with served(registry) as its, served(Agent(world, its)) as first:
            job = make_job(f"{first},{other}", tmp_path / "data")
            (topic,) = job.client.topics().topics
            assert topic.registry == its
        assert export_topic(job, topic).rows == 1
    with pytest.raises(RegistryError, match=f"no schema registry answers .*{its}: "):
        load_topic_types(job, topic).check_newest()
    job.catalog.engine.dispose()


def test_a_topic_that_needs_schemas_is_refused_where_nobody_names_a_registry(here):
    here.world.configs["orders"] = {"value.mode": "avro"}
    with pytest.raises(SettingsError, match=r"topic orders needs schemas.*schema\.registry\.url"):
        here.export()
    here.world.configs["orders"] = {"value.mode": "string"}
    here.send(b"text")
    assert here.export().rows == 1


def test_text_is_checked_and_needs_no_registry(here):
    here.world.configs["orders"] = {"value.mode": "string", "key.mode": "string"}
    here.send("grün".encode(), b"\xff", None, b"x", keys=[b"k", None, None, b"\xfe"])
    assert here.export("schema.registry.url=http://127.0.0.1:1").dead == 2
    assert here.columns("kafka_key", "value") == [("k", "grün"), (None, None)]
    assert here.dead("kafka_offset", "error_code") == [(1, "UNDECODABLE"), (3, "UNDECODABLE")]
    assert here.dead("error_message")[1] == ("key: the value is not UTF-8",)


def test_json_without_frames_is_read_by_the_newest_schema(here, registry):
    here.world.configs["orders"] = {"value.mode": "json"}
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    registry.register("orders-value", schema, "JSON")
    schema["properties"]["b"] = {"type": "string"}
    two = registry.register("orders-value", schema, "JSON")
    plain = json.dumps({"a": 1, "b": "x"}).encode()
    here.send(plain, framed(two, plain), b"{")
    assert here.export().dead == 1
    assert here.columns("a", "b", "kafka_value_schema_id") == [(1, "x", None), (1, "x", two)]


def test_a_column_that_the_first_schema_will_bring_is_waited_for(here, registry):
    here.world.configs["orders"]["partition.by"] = "bucket(4,id)"
    with pytest.raises(SettingsError, match=r"no schema is registered under orders-value yet"):
        here.export()
    schema_id = registry.register("orders-value", ORDER_1)
    here.send(avro(schema_id, ORDER_1, {"id": 1, "city": "x"}))
    assert here.export().rows == 1


def test_tables_are_partitioned_by_columns_of_the_schema(here, registry):
    here.world.configs["orders"]["partition.by"] = "bucket(4,id), city"
    one = registry.register("orders-value", ORDER_1)
    here.send(*(avro(one, ORDER_1, {"id": i, "city": "AB"[i % 2]}) for i in range(20)), None)
    report = here.export()
    table = here.table()
    assert [field.name for field in table.spec().fields] == ["id_bucket", "city"]
    assert 3 <= report.files <= 9
    assert here.columns("id") == [(i,) for i in range(20)] + [(None,)]
    assert table.scan(row_filter="id == 7 and city == 'B'").to_arrow()["id"].to_pylist() == [7]


def test_a_table_that_was_made_raw_is_refused_when_the_mode_changes(here, registry):
    here.world.configs["orders"] = {}
    here.send(b"x")
    here.export()
    here.world.configs["orders"] = {"value.mode": "string"}
    here.send(b"y")
    with pytest.raises(StateError, match=r"not made for string in value.*frazil.iceberg.table"):
        here.export()


def test_a_registry_that_is_away_ends_the_run_and_makes_no_dead_letters(here, registry):
    one = registry.register("orders-value", ORDER_1)
    two = registry.register("another", ORDER_2)
    here.send(avro(one, ORDER_1, {"id": 1, "city": "Ulm"}), framed(two, b""))
    registry.refuse = lambda path: (503, {}) if path.startswith("/schemas/ids") else None
    with pytest.raises(RegistryError, match="no schema registry answers"):
        here.export()
    registry.refuse = lambda _path: None
    assert (here.export().rows, here.dead("kafka_offset", "error_code")) == (
        1,
        [(1, "UNDECODABLE")],
    )


def test_columns_of_every_type_are_written_read_by_another_reader_and_proven(here, registry, duck):
    def logical(kind, name, **more):
        return {"type": kind, "logicalType": name, **more}

    here.world.configs["orders"]["types"] = "iceberg"
    record = {"type": "record", "name": "In", "fields": [{"name": "x", "type": "float"}]}
    kinds = {
        "flag": ("boolean", True),
        "half": ("double", float("nan")),
        "data": ("bytes", b"\0\xff"),
        "four": ({"type": "fixed", "name": "Four", "size": 4}, b"abcd"),
        "sort": ({"type": "enum", "name": "Sort", "symbols": ["A", "B"]}, "B"),
        "day": (logical("int", "date"), dt.date(1969, 7, 20)),
        "clock": (logical("long", "time-micros"), dt.time(1, 2, 3, 4)),
        "at": (logical("long", "timestamp-micros"), dt.datetime(1969, 7, 20, tzinfo=dt.UTC)),
        "local": (logical("long", "local-timestamp-millis"), dt.datetime(2025, 1, 2, 3)),
        "cash": (logical("bytes", "decimal", precision=30, scale=2), Decimal("-12.34")),
        "many": ({"type": "array", "items": {"type": "array", "items": "int"}}, [[1], [], [2, 3]]),
        "told": ({"type": "map", "values": ["null", "string"]}, {"a": "b", "c": None}),
        "deep": ({"type": "array", "items": record}, [{"x": 0.5}]),
        "either": (["null", "int", "string"], "text"),
    }
    schema = {
        "type": "record",
        "name": "All",
        "fields": [{"name": n, "type": ["null", k] if not isinstance(k, list) else k}
                   for n, (k, _) in kinds.items()],
    }  # fmt: skip
    one = registry.register("orders-value", schema)
    values = {name: value for name, (_, value) in kinds.items()}
    here.send(avro(one, schema, values), avro(one, schema, dict.fromkeys(kinds)), None)
    assert here.export().dead == 0
    found = dict(zip(kinds, here.columns(*kinds)[0], strict=True))
    assert found["half"] != found["half"]
    wanted = values | {
        "half": found["half"],
        "told": [("a", "b"), ("c", None)],
        "either": {"int": None, "string": "text"},
    }
    assert found == wanted
    for decoder in ("compiled", "reference"):
        assert here.verify(f"verify.decoder={decoder}").problems == ()
    location = here.table().metadata_location
    columns = "day, clock, local, cash, many, deep, either.string, sort, data, four"
    (row, *nulls) = duck.execute(
        f"SELECT {columns} FROM iceberg_scan('{location}') ORDER BY kafka_offset"
    ).fetchall()
    assert row == tuple(
        wanted["either"]["string"] if name == "either.string" else wanted[name]
        for name in columns.split(", ")
    )
    assert nulls == [(None,) * len(row)] * 2


@pytest.mark.parametrize("step", [Step.CHECKED, Step.COMMIT_ANSWERED, Step.COMMITTED])
def test_a_crash_leaves_each_record_in_one_table_whatever_the_registry_says_then(
    here, registry, step
):
    one = registry.register("orders-value", ORDER_1)
    here.send(avro(one, ORDER_1, {"id": 1, "city": "Ulm"}), framed(2, b"\2\2x"), b"bad")
    with pytest.raises(Killed):
        here.export(hook=Once(step, Killed()))
    # The id that was unknown is registered now, as something that its record is.
    registry.register("elsewhere", ORDER_1)
    here.export()
    here.export()
    there = [offset for (offset,) in here.columns("kafka_offset")]
    letters = [offset for (offset,) in here.dead("kafka_offset")]
    assert sorted(there + letters) == [0, 1, 2]
    # Before the commit nothing is decided, after it everything is.
    assert letters == ([2] if step is Step.CHECKED else [1, 2])


def test_after_a_rollback_what_is_a_dead_letter_stays_one_and_is_not_doubled(here, registry):
    one = registry.register("orders-value", ORDER_1)
    good = avro(one, ORDER_1, {"id": 1, "city": "Ulm"})
    here.send(good)
    here.export()
    before = here.head()
    here.send(good, framed(2, good[5:]), b"bad")
    here.export()
    here.roll_back(before)
    registry.register("elsewhere", ORDER_1)
    here.send(b"worse")
    report = here.export()
    assert (report.rows, report.dead, report.left_out) == (1, 1, 2)
    assert [offset for (offset,) in here.columns("kafka_offset")] == [0, 1]
    assert here.dead("kafka_offset", "error_code") == [
        (2, "SCHEMA_UNKNOWN"),
        (3, "NOT_FRAMED"),
        (4, "NOT_FRAMED"),
    ]


def test_the_state_names_the_files_of_dead_letters_that_came_with_it(here, registry):
    registry.register("orders-value", ORDER_1)
    here.send(b"bad")
    here.export()
    told = here.table().properties["frazil.dead-letters"]
    pending = decode_pending(told)
    files = here.table(DEAD_TABLE).scan().plan_files()
    assert (pending.run_id, list(pending.paths)) == ("r1-1", [f.file.file_path for f in files])
    with pytest.raises(StateError, match="list of dead letters cannot be read"):
        decode_pending("eJw=")
