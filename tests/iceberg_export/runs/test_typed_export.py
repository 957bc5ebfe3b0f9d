"""Typed tables: schemas that evolve, dead letters with reasons, each record in one of both."""

import datetime as dt
import io
import json
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest

from iceberg_export.dead_letters.dead_letter_table import decode_pending
from iceberg_export.errors import SettingsError, StateError
from iceberg_export.runs.job import export_topic
from iceberg_export.steps import Step
from iceberg_export.tasks.export_split import BadRecordError
from iceberg_export.typed.framing import frame
from iceberg_export.typed.registry_client import RegistryError
from iceberg_export.verify.proof import verify_topic
from protocol.records import Record
from tests.iceberg_export.fake_registry import FakeRegistry, served_registry
from tests.iceberg_export.world import World, make_job, served

NOW_MS = 1_763_000_000_000
ORDER_1 = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "city", "type": "string"}],
}
ORDER_2 = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "city", "type": "string"},
        {"name": "price", "type": ["null", "double"], "default": None},
    ],
}
ORDER_3 = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "who", "type": {"type": "record", "name": "Who", "fields": [
            {"name": "name", "type": "string"}]}},
    ],
}  # fmt: skip
WRONG = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}


@pytest.fixture
def world(tmp_path):
    found = World(tmp_path / "store")
    found.create("orders", 2)
    found.configs["orders"] = {"value.mode": "avro"}
    return found


@pytest.fixture
def registry():
    return FakeRegistry()


@pytest.fixture
def jobs(world, registry, tmp_path):
    """Makes jobs over the world and the registry; each its own run, all on one warehouse."""
    made = []
    with served(world) as address, served_registry(registry) as url:

        def make(*sets, **options):
            found = make_job(
                world,
                address,
                tmp_path / "data",
                run_id=f"r{len(made)}",
                sets=(f"schema.registry.url={url}", *sets),
                **options,
            )._replace(clock_ms=lambda: NOW_MS)
            made.append(found)
            return found

        yield make
    for job in made:
        job.catalog.engine.dispose()


def topic_of(job):
    (found,) = job.client.topics().topics
    return found


def export(job):
    return export_topic(job, topic_of(job))


def framed(schema_id, payload):
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def avro(schema_id, schema, value):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(dict(schema)), value)
    return framed(schema_id, out.getvalue())


def send(world, *values, partition=0, keys=None):
    keys = keys or [None] * len(values)
    records = [
        Record(timestamp=NOW_MS + i, key=key, value=value)
        for i, (key, value) in enumerate(zip(keys, values, strict=True))
    ]
    world.commit("orders", {partition: [records]})


def rows_of(job, *columns, table="orders"):
    found = job.catalog.load_table(("frazil", table)).scan().to_arrow()
    found = found.sort_by([("kafka_partition", "ascending"), ("kafka_offset", "ascending")])
    return [tuple(row.values()) for row in found.select(list(columns)).to_pylist()]


def dead(job, *columns):
    return rows_of(job, *(columns or ("kafka_offset", "error_code")), table="orders__dlq")


def test_avro_values_become_columns_and_tombstones_nulls(world, registry, jobs):
    one = registry.register("orders-value", ORDER_1)
    send(world, avro(one, ORDER_1, {"id": 7, "city": "Ulm"}), None)
    job = jobs()
    report = export(job)
    assert (report.rows, report.dead) == (2, 0)
    assert rows_of(job, "kafka_value_schema_id", "id", "city") == [
        (one, 7, "Ulm"),
        (None, None, None),
    ]
    assert "value" not in job.catalog.load_table(("frazil", "orders")).schema().column_names


def test_a_table_grows_and_widens_with_the_schemas_of_its_records(world, registry, jobs):
    one = registry.register("orders-value", ORDER_1)
    send(world, avro(one, ORDER_1, {"id": 1, "city": "Ulm"}))
    job = jobs()
    export(job)
    two = registry.register("orders-value", ORDER_2)
    three = registry.register("orders-value", ORDER_3)
    send(
        world,
        avro(two, ORDER_2, {"id": 1 << 40, "city": "Bonn", "price": 2.5}),
        avro(one, ORDER_1, {"id": 2, "city": "Kiel"}),
        avro(three, ORDER_3, {"id": 3, "who": {"name": "Ada"}}),
    )
    job = jobs()
    assert export(job).dead == 0
    assert rows_of(job, "id", "city", "price", "who") == [
        (1, "Ulm", None, None),
        (1 << 40, "Bonn", 2.5, None),
        (2, "Kiel", None, None),
        (3, None, None, {"name": "Ada"}),
    ]


def test_bad_records_are_dead_letters_whole_and_with_their_reason(world, registry, jobs):
    one = registry.register("orders-value", ORDER_1)
    wrong = registry.register("orders-value", WRONG)
    other = registry.register("elsewhere", "{}", "JSON")
    good = avro(one, ORDER_1, {"id": 7, "city": "Ulm"})
    send(world, good, b"\1plain", good[:6], avro(wrong, WRONG, {"id": "x"}), framed(99, b""))
    send(world, framed(other, b"{}"), good, partition=1)
    job = jobs()
    report = export(job)
    assert (report.rows, report.dead) == (2, 5)
    assert "partition 0, offset 1" in report.first_reason
    assert dead(job, "kafka_partition", "kafka_offset", "value", "error_code", "schema_id") == [
        (0, 1, b"\1plain", "NOT_FRAMED", None),
        (0, 2, good[:6], "UNDECODABLE", one),
        (0, 3, avro(wrong, WRONG, {"id": "x"}), "INCOMPATIBLE", wrong),
        (0, 4, framed(99, b""), "SCHEMA_UNKNOWN", 99),
        (1, 0, framed(other, b"{}"), "SCHEMA_INVALID", other),
    ]
    reasons = dict(dead(job, "kafka_offset", "error_message"))
    assert reasons[3] == "schema 2: column id of the table is int, the schema has string"
    assert {run for (run,) in dead(job, "run_id")} == {"r0-1"}


@pytest.fixture
def mixed(world, registry, jobs):
    """An exported topic of good records, bad ones and tombstones, keys typed as well."""
    world.configs["orders"] |= {"key.mode": "string", "layout": "nested"}
    one = registry.register("orders-value", ORDER_1)
    good = avro(one, ORDER_1, {"id": 1, "city": "Ulm"})
    send(world, good, None, b"bad", good, keys=[b"a", b"b", b"c", b"\xff"])
    export(jobs())
    three = registry.register("orders-value", ORDER_3)
    send(world, avro(three, ORDER_3, {"id": 1 << 40, "who": {"name": "Ada"}}), b"x", partition=1)
    export(jobs("table.partition.by=none"))
    return good


@pytest.mark.parametrize("decoder", ["compiled", "reference"])
def test_verify_proves_a_typed_table_and_its_dead_letters(jobs, mixed, registry, decoder):
    # What the registry says now, is not what counts.
    registry.subjects.clear()
    job = jobs(f"verify.decoder={decoder}")
    verdict = verify_topic(job, topic_of(job))
    assert (verdict.records, verdict.dead, verdict.problems) == (3, 3, ())


def test_verify_finds_a_changed_column_and_a_lost_dead_letter(jobs, mixed, world, registry):
    world.configs["orders"]["partition.by"] = "none"
    job = jobs()
    job.catalog.drop_table(("frazil", "orders"))
    job.catalog.drop_table(("frazil", "orders__dlq"))
    export(job)
    table = job.catalog.load_table(("frazil", "orders"))
    row = table.scan(row_filter="kafka_partition == 0 and kafka_offset == 0").to_arrow()
    table.delete("kafka_partition == 0 and kafka_offset == 0")
    changed = [{"id": 1, "city": "Bonn", "who": None}]
    at = row.column_names.index("value")
    table.append(
        row.set_column(at, row.schema.field(at), pa.array(changed, row.schema.field(at).type))
    )
    job.catalog.load_table(("frazil", "orders__dlq")).delete("kafka_partition == 1")
    unlike, unreadable = verify_topic(job, topic_of(job)).problems
    assert unlike.startswith("partition 0, offsets 0 to 65535: 2 records on both sides, but not")
    assert unreadable == (
        "1 records cannot be decoded and are no dead letters: partition 1, offset 1: "
        "the value does not begin with the id of a schema (NOT_FRAMED)"
    )


def test_verify_finds_a_record_that_is_in_both_tables(jobs, world, mixed):
    job = jobs()
    table = job.catalog.load_table(("frazil", "orders__dlq"))
    row = table.scan(row_filter="kafka_partition == 0 and kafka_offset == 2").to_arrow()
    at = row.column_names.index("kafka_offset")
    table.append(row.set_column(at, row.schema.field(at), pa.array([0], pa.int64())))
    problems = verify_topic(job, topic_of(job)).problems
    assert problems[0] == "partition 0, offsets 0 to 65535: 1 records in the log, 2 in the table"
    assert "but not the same ones" in problems[1]


def test_an_id_of_no_version_is_asked_for_and_its_columns_come(world, registry, jobs):
    registry.register("orders-value", ORDER_1)
    moved = registry.register("another-subject", ORDER_2)
    send(world, avro(moved, ORDER_2, {"id": 1 << 40, "city": "Bonn", "price": None}))
    job = jobs()
    assert export(job).dead == 0
    assert rows_of(job, "id", "city") == [(1 << 40, "Bonn")]
    assert registry.requests.count(f"/schemas/ids/{moved}") == 1


EVENTS = """syntax = "proto3";
message Order { int32 id = 1; }
message Refund { int32 id = 1; string why = 2; message Line { int64 id = 1; repeated int32 no = 2; } }
message Loop { Loop in = 1; }
message Clash { string id = 1; }"""


def test_every_message_of_a_protobuf_file_is_decoded_and_only_misfits_are_dead_letters(
    world, registry, jobs
):
    world.configs["orders"] = {"value.mode": "protobuf"}
    one = registry.register("orders-value", EVENTS, "PROTOBUF")
    paths = [(0,), (1,), (1, 0), (2,), (3,), (9,), (1, 7)]
    payloads = [b"\x08\x01", b"\x08\x02\x12\x01w", b"\x08\x03\x12\x01\x04", *[b""] * 4]
    send(world, *(frame(one, data, path) for data, path in zip(payloads, paths, strict=True)))
    job = jobs()
    assert export(job).rows == 3
    assert rows_of(job, "id", "why", "no") == [(1, None, None), (2, "w", None), (3, None, [4])]
    assert dead(job) == [
        (3, "SCHEMA_INVALID"),
        (4, "INCOMPATIBLE"),
        (5, "SCHEMA_INVALID"),
        (6, "SCHEMA_INVALID"),
    ]
    assert dead(job, "error_message")[1] == (
        f"schema {one}: column id of the table is long, the schema has string",
    )
    assert registry.requests.count(f"/schemas/ids/{one}") == 0
    for decoder in ("compiled", "reference"):
        told = jobs(f"verify.decoder={decoder}")
        assert verify_topic(told, topic_of(told)).problems == ()


def test_messages_are_good_whose_files_first_one_is_not_or_is_of_no_version(world, registry, jobs):
    world.configs["orders"] = {"value.mode": "protobuf", "layout": "nested"}
    loop = 'syntax = "proto3"; message L { L in = 1; } message M { int32 a = 1; }'
    one = registry.register("orders-value", loop, "PROTOBUF")
    moved = registry.register("another-subject", loop.replace("a =", "b ="), "PROTOBUF")
    send(world, frame(one, b"\x08\x05", (1,)), frame(one, b"", (0,)))
    send(world, frame(moved, b"\x08\x06", (1,)), frame(moved + 1, b"", (1,)))
    job = jobs()
    assert export(job).rows == 2
    assert rows_of(job, "value") == [({"a": 5, "b": None},), ({"a": None, "b": 6},)]
    assert dead(job) == [(1, "SCHEMA_INVALID"), (3, "SCHEMA_UNKNOWN")]


def test_a_strict_table_does_not_grow_once_it_has_records(world, registry, jobs):
    world.configs["orders"]["schema.evolution"] = "strict"
    one = registry.register("orders-value", ORDER_1)
    send(world, avro(one, ORDER_1, {"id": 1, "city": "Ulm"}))
    export(jobs())
    two = registry.register("orders-value", ORDER_2)
    send(world, avro(two, ORDER_2, {"id": 2, "city": "Ulm", "price": 1.0}))
    job = jobs()
    assert export(job).dead == 1
    assert dead(job, "error_code") == [("INCOMPATIBLE",)]
    assert rows_of(job, "id") == [(1,)]


@pytest.mark.parametrize("policy", ["drop", "fail"])
def test_bad_records_are_dropped_and_counted_or_end_the_run_as_the_topic_says(
    world, registry, jobs, policy
):
    world.configs["orders"]["bad.records"] = policy
    one = registry.register("orders-value", ORDER_1)
    send(world, avro(one, ORDER_1, {"id": 1, "city": "Ulm"}), b"bad")
    job = jobs()
    if policy == "fail":
        with pytest.raises(BadRecordError, match=r"orders partition 0, offset 1: .*NOT_FRAMED"):
            export(job)
        assert rows_of(job, "kafka_offset") == []
    else:
        report = export(job)
        assert (report.rows, report.dead, report.left_out) == (1, 0, 1)
        assert verify_topic(job, topic_of(job)).problems == ()
    assert not job.catalog.table_exists(("frazil", "orders__dlq"))


def test_fields_that_begin_like_ours_get_another_name_and_keys_are_structs(world, registry, jobs):
    world.configs["orders"]["key.mode"] = "avro"
    odd = {
        "type": "record",
        "name": "Odd",
        "fields": [{"name": n, "type": "int"} for n in ("kafka_offset", "kafka_offset_", "value")],
    }
    one = registry.register("orders-value", odd)
    two = registry.register("orders-key", ORDER_1)
    value = {"kafka_offset": 1, "kafka_offset_": 2, "value": 3}
    key = avro(two, ORDER_1, {"id": 9, "city": "Ulm"})
    send(world, avro(one, odd, value), avro(one, odd, value), keys=[key, None])
    job = jobs()
    export(job)
    assert rows_of(job, "kafka_offset", "kafka_offset_", "kafka_offset__", "value") == [
        (0, 1, 2, 3),
        (1, 1, 2, 3),
    ]
    assert rows_of(job, "kafka_key", "kafka_key_schema_id") == [
        ({"id": 9, "city": "Ulm"}, two),
        (None, None),
    ]


def test_the_nested_layout_is_one_struct_that_grows(world, registry, jobs):
    world.configs["orders"]["layout"] = "nested"
    one = registry.register("orders-value", ORDER_1)
    send(world, avro(one, ORDER_1, {"id": 1, "city": "Ulm"}), None)
    export(jobs())
    three = registry.register("orders-value", ORDER_3)
    send(world, avro(three, ORDER_3, {"id": 1 << 40, "who": {"name": "Ada"}}))
    job = jobs()
    assert export(job).dead == 0
    assert rows_of(job, "value") == [
        ({"id": 1, "city": "Ulm", "who": None},),
        (None,),
        ({"id": 1 << 40, "city": None, "who": {"name": "Ada"}},),
    ]


def test_text_is_checked_and_needs_no_registry(world, jobs):
    world.configs["orders"] = {"value.mode": "string", "key.mode": "string"}
    send(world, "grün".encode(), b"\xff", None, b"x", keys=[b"k", None, None, b"\xfe"])
    job = jobs("schema.registry.url=http://127.0.0.1:1")
    assert export(job).dead == 2
    assert rows_of(job, "kafka_key", "value") == [("k", "grün"), (None, None)]
    assert dead(job) == [(1, "UNDECODABLE"), (3, "UNDECODABLE")]
    assert dead(job, "error_message")[1] == ("key: the value is not UTF-8",)


def test_json_without_frames_is_read_by_the_newest_schema(world, registry, jobs):
    world.configs["orders"] = {"value.mode": "json"}
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    registry.register("orders-value", schema, "JSON")
    schema["properties"]["b"] = {"type": "string"}
    two = registry.register("orders-value", schema, "JSON")
    plain = json.dumps({"a": 1, "b": "x"}).encode()
    send(world, plain, framed(two, plain), b"{")
    job = jobs()
    assert export(job).dead == 1
    assert rows_of(job, "a", "b", "kafka_value_schema_id") == [(1, "x", None), (1, "x", two)]


def test_a_column_that_the_first_schema_will_bring_is_waited_for(world, jobs, registry):
    world.configs["orders"]["partition.by"] = "bucket(4,id)"
    with pytest.raises(SettingsError, match=r"no schema is registered under orders-value yet"):
        export(jobs())
    schema_id = registry.register("orders-value", ORDER_1)
    send(world, avro(schema_id, ORDER_1, {"id": 1, "city": "x"}))
    assert export(jobs()).rows == 1


def test_tables_are_partitioned_by_columns_of_the_schema(world, registry, jobs):
    world.configs["orders"]["partition.by"] = "bucket(4,id), city"
    one = registry.register("orders-value", ORDER_1)
    send(world, *(avro(one, ORDER_1, {"id": i, "city": "AB"[i % 2]}) for i in range(20)), None)
    job = jobs()
    report = export(job)
    table = job.catalog.load_table(("frazil", "orders"))
    assert [field.name for field in table.spec().fields] == ["id_bucket", "city"]
    assert 3 <= report.files <= 9
    assert rows_of(job, "id") == [(i,) for i in range(20)] + [(None,)]
    assert table.scan(row_filter="id == 7 and city == 'B'").to_arrow()["id"].to_pylist() == [7]


def test_a_table_that_was_made_raw_is_refused_when_the_mode_changes(world, registry, jobs):
    world.configs["orders"] = {}
    send(world, b"x")
    export(jobs())
    world.configs["orders"] = {"value.mode": "string"}
    send(world, b"y")
    with pytest.raises(StateError, match=r"not made for string in value.*frazil.iceberg.table"):
        export(jobs())


def test_a_registry_that_is_away_ends_the_run_and_makes_no_dead_letters(world, registry, jobs):
    one = registry.register("orders-value", ORDER_1)
    two = registry.register("another", ORDER_2)
    send(world, avro(one, ORDER_1, {"id": 1, "city": "Ulm"}), framed(two, b""))
    registry.refuse = lambda path: (503, {}) if path.startswith("/schemas/ids") else None
    with pytest.raises(RegistryError, match="no schema registry answers"):
        export(jobs())
    registry.refuse = lambda _path: None
    job = jobs()
    assert (export(job).rows, dead(job)) == (1, [(1, "UNDECODABLE")])


def test_columns_of_every_type_are_written_read_by_another_reader_and_proven(
    world, registry, jobs, duck
):
    def logical(kind, name, **more):
        return {"type": kind, "logicalType": name, **more}

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
    send(world, avro(one, schema, values), avro(one, schema, dict.fromkeys(kinds)), None)
    job = jobs()
    assert export(job).dead == 0
    found = dict(zip(kinds, rows_of(job, *kinds)[0], strict=True))
    assert found["half"] != found["half"]
    wanted = values | {
        "half": found["half"],
        "told": [("a", "b"), ("c", None)],
        "either": {"int": None, "string": "text"},
    }
    assert found == wanted
    for decoder in ("compiled", "reference"):
        told = jobs(f"verify.decoder={decoder}")
        assert verify_topic(told, topic_of(told)).problems == ()
    location = job.catalog.load_table(("frazil", "orders")).metadata_location
    columns = "day, clock, local, cash, many, deep, either.string, sort, data, four"
    (row, *nulls) = duck.execute(
        f"SELECT {columns} FROM iceberg_scan('{location}') ORDER BY kafka_offset"
    ).fetchall()
    assert row == tuple(
        wanted["either"]["string"] if name == "either.string" else wanted[name]
        for name in columns.split(", ")
    )
    assert nulls == [(None,) * len(row)] * 2


class Died(Exception):
    """The driver, at a step."""


def die_at(step):
    def at(passed):
        if passed is step:
            raise Died

    return at


@pytest.mark.parametrize("step", [Step.CHECKED, Step.COMMIT_ANSWERED, Step.COMMITTED])
def test_a_crash_leaves_each_record_in_one_table_whatever_the_registry_says_then(
    world, registry, jobs, step
):
    one = registry.register("orders-value", ORDER_1)
    send(world, avro(one, ORDER_1, {"id": 1, "city": "Ulm"}), framed(2, b"\2\2x"), b"bad")
    with pytest.raises(Died):
        export(jobs()._replace(hook=die_at(step)))
    # The id that was unknown is registered now, as something that its record is.
    registry.register("elsewhere", ORDER_1)
    job = jobs()
    export(job)
    export(jobs())
    there = [offset for (offset,) in rows_of(job, "kafka_offset")]
    letters = [offset for (offset,) in dead(job, "kafka_offset")]
    assert sorted(there + letters) == [0, 1, 2]
    # Before the commit nothing is decided, after it everything is.
    assert letters == ([2] if step is Step.CHECKED else [1, 2])


def test_after_a_rollback_what_is_a_dead_letter_stays_one_and_is_not_doubled(world, registry, jobs):
    one = registry.register("orders-value", ORDER_1)
    good = avro(one, ORDER_1, {"id": 1, "city": "Ulm"})
    send(world, good)
    job = jobs()
    export(job)
    before = job.catalog.load_table(("frazil", "orders")).current_snapshot().snapshot_id
    send(world, good, framed(2, good[5:]), b"bad")
    export(jobs())
    table = job.catalog.load_table(("frazil", "orders"))
    table.manage_snapshots().rollback_to_snapshot(before).commit()
    registry.register("elsewhere", ORDER_1)
    send(world, b"worse")
    job = jobs()
    report = export(job)
    assert (report.rows, report.dead, report.left_out) == (1, 1, 2)
    assert [offset for (offset,) in rows_of(job, "kafka_offset")] == [0, 1]
    assert dead(job) == [(2, "SCHEMA_UNKNOWN"), (3, "NOT_FRAMED"), (4, "NOT_FRAMED")]


def test_the_state_names_the_files_of_dead_letters_that_came_with_it(world, registry, jobs):
    registry.register("orders-value", ORDER_1)
    send(world, b"bad")
    job = jobs()
    export(job)
    told = job.catalog.load_table(("frazil", "orders")).properties["frazil.dead-letters"]
    pending = decode_pending(told)
    files = job.catalog.load_table(("frazil", "orders__dlq")).scan().plan_files()
    assert (pending.run_id, list(pending.paths)) == ("r0-1", [f.file.file_path for f in files])
    with pytest.raises(StateError, match="list of dead letters cannot be read"):
        decode_pending("eJw=")
