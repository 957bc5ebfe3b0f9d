"""Tables that every engine opens: types and names that some of them do not know, and partitions that change."""

import datetime as dt

import pytest

from iceberg_export.errors import SettingsError
from iceberg_export.typed.framing import frame
from tests.iceberg_export.kit.registry import ORDER_1, ORDER_2, avro


@pytest.fixture
def here(here):
    here.configure(value_mode="avro")
    return here


CLOCKS = {
    "type": "record",
    "name": "Shift",
    "fields": [
        {"name": "starts", "type": {"type": "int", "logicalType": "time-millis"}},
        {
            "name": "breaks",
            "type": {"type": "array", "items": {"type": "long", "logicalType": "time-micros"}},
        },
    ],
}
MORNING, NOON = dt.time(6, 30), dt.time(12, 0, 0, 5)
SHIFT = {"starts": MORNING, "breaks": [NOON]}


def test_a_time_of_day_is_text_in_a_table_that_every_engine_can_read(here, registry):
    one = registry.register("orders-value", CLOCKS)
    here.send(avro(one, CLOCKS, SHIFT))
    assert here.export().dead == 0
    assert here.columns("starts", "breaks") == [("06:30:00.000000", ["12:00:00.000005"])]
    assert here.verify().problems == ()


def test_a_schema_that_begins_to_have_times_leaves_its_table_readable(here, registry):
    one = registry.register("orders-value", ORDER_1)
    here.send(avro(one, ORDER_1, {"id": 7, "city": "Ulm"}))
    here.export()
    two = registry.register("orders-value", CLOCKS)
    here.send(avro(two, CLOCKS, SHIFT))
    assert here.export().dead == 0
    assert here.columns("id", "starts") == [(7, None), (None, "06:30:00.000000")]


def test_a_table_of_all_that_iceberg_has_keeps_its_times_whatever_is_set_later(here, registry):
    here.world.configs["orders"]["types"] = "iceberg"
    one = registry.register("orders-value", CLOCKS)
    here.send(avro(one, CLOCKS, SHIFT))
    here.export()
    del here.world.configs["orders"]["types"]
    here.send(avro(one, CLOCKS, SHIFT))
    assert here.export().dead == 0
    assert here.columns("starts", "breaks") == [(MORNING, [NOON])] * 2
    assert here.verify().problems == ()


def ints(*names: str) -> dict[str, object]:
    fields = [{"name": name, "type": "int"} for name in names]
    return {"type": "record", "name": "Order", "fields": fields}


def test_fields_that_differ_only_in_case_are_told_and_the_table_stays_readable(here, registry):
    good, both = ints("id", "Status"), ints("id", "status")
    one = registry.register("orders-value", good)
    here.send(avro(one, good, {"id": 1, "Status": 2}))
    here.export()
    two = registry.register("orders-value", both)
    here.send(avro(two, both, {"id": 1, "status": 3}))
    assert here.export().dead == 1
    ((code, message),) = here.dead("error_code", "error_message")
    assert code == "INCOMPATIBLE"
    assert "column status differs from Status only in case" in message
    assert "status" not in here.table().schema().column_names


@pytest.mark.parametrize(
    ("field", "column"),
    [
        ("_pos", "_pos_"),
        ("_FILE", "_FILE_"),
        ("_pos_", "_pos__"),
        ("Kafka_Offset", "Kafka_Offset_"),
    ],
)
def test_a_field_that_is_called_like_an_engines_column_gets_another_name(
    here, registry, field, column
):
    schema = ints(field)
    one = registry.register("orders-value", schema)
    here.send(avro(one, schema, {field: 5}))
    assert here.export().dead == 0
    assert here.columns(column) == [(5,)]
    assert field not in here.table().schema().column_names


PLACES = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {
            "name": "at",
            "type": {
                "type": "record",
                "name": "At",
                "fields": [{"name": "city", "type": "string"}],
            },
        },
    ],
}


def place(number: int, city: str) -> dict[str, object]:
    return {"id": number, "at": {"city": city}}


def specs(here) -> dict[int, list[str]]:
    """Names of partition fields, by spec of the files that the table has."""
    table = here.table()
    found = {task.file.spec_id for task in table.scan().plan_files()}
    return {number: [one.name for one in table.specs()[number].fields] for number in found}


def test_a_changed_partition_by_is_the_spec_of_new_files(here, registry):
    here.world.configs["orders"]["partition.by"] = "none"
    one = registry.register("orders-value", PLACES)
    here.send(avro(one, PLACES, place(1, "Ulm")))
    here.export()
    here.world.configs["orders"]["partition.by"] = "at.city, bucket(4, id)"
    here.send(avro(one, PLACES, place(2, "Bonn")), avro(one, PLACES, place(3, "Kiel")))
    assert here.export().rows == 2
    assert sorted(map(sorted, specs(here).values())) == [[], ["at_city", "id_bucket"]]
    here.world.configs["orders"]["partition.by"] = "at.city"
    here.send(avro(one, PLACES, place(4, "Bonn")))
    here.export()
    assert [one.name for one in here.table().spec().fields] == ["at_city"]
    assert here.columns("id") == [(1,), (2,), (3,), (4,)]
    assert here.verify().problems == ()


def test_a_table_that_was_partitioned_by_hand_stays_so_until_the_setting_changes(here, registry):
    here.world.configs["orders"]["partition.by"] = "none"
    one = registry.register("orders-value", PLACES)
    here.send(avro(one, PLACES, place(1, "Ulm")))
    here.export()
    with here.table().update_spec() as update:
        update.add_field("at.city", "identity", "town")
    here.send(avro(one, PLACES, place(2, "Bonn")))
    here.export()
    assert [one.name for one in here.table().spec().fields] == ["town"]
    here.world.configs["orders"]["partition.by"] = "bucket(2, id)"
    here.send(avro(one, PLACES, place(3, "Kiel")))
    here.export()
    assert [one.name for one in here.table().spec().fields] == ["id_bucket"]
    assert here.verify().problems == ()


def test_a_setting_that_says_what_the_table_is_changes_nothing_but_is_remembered(here, registry):
    one = registry.register("orders-value", PLACES)
    here.send(avro(one, PLACES, place(1, "Ulm")))
    here.export("table.partition.by=day")
    before = here.table().spec()
    here.world.configs["orders"]["partition.by"] = "day(kafka_timestamp)"
    here.send(avro(one, PLACES, place(2, "Bonn")))
    here.export()
    assert here.table().spec() == before
    with here.table().update_spec() as update:
        update.add_field("at.city", "identity", "town")
    here.send(avro(one, PLACES, place(3, "Kiel")))
    here.export()
    assert [each.name for each in here.table().spec().fields][-1] == "town"
    assert here.verify().problems == ()


def test_a_column_that_is_to_come_partitions_the_table_once_it_is_there(here, registry):
    one = registry.register("orders-value", ORDER_1)
    here.send(avro(one, ORDER_1, {"id": 1, "city": "Ulm"}))
    here.export()
    here.world.configs["orders"]["partition.by"] = "truncate(1, price)"
    with pytest.raises(SettingsError, match="names the column price, the table has"):
        here.export()
    here.world.configs["orders"]["partition.by"] = "price"
    two = registry.register("orders-value", ORDER_2)
    here.send(avro(two, ORDER_2, {"id": 2, "city": "Bonn", "price": 2.5}))
    here.export()
    here.send(avro(two, ORDER_2, {"id": 3, "city": "Bonn", "price": 2.5}))
    here.export()
    assert [one.name for one in here.table().spec().fields] == ["price"]
    assert here.columns("id", "price") == [(1, None), (2, 2.5), (3, 2.5)]


def test_a_table_of_mode_upsert_keeps_its_buckets_and_says_so(here):
    here.world.configs["orders"] = {"mode": "upsert", "partition.by": "bucket(2, kafka_key)"}
    here.export()
    here.world.configs["orders"]["partition.by"] = "bucket(4, kafka_key)"
    with pytest.raises(SettingsError, match=r"was made with other partitions, which it keeps"):
        here.export()


FILE = """syntax = "proto3";
message Header { string trace = 1; }
message Order { int32 id = 1; }"""
ORDER = (1,)


@pytest.mark.parametrize("by", ["bucket(2, id)", "none"])
def test_columns_and_partitions_are_those_of_the_message_that_records_name(here, registry, by):
    here.world.configs["orders"] = {"value.mode": "protobuf", "partition.by": by}
    one = registry.register("orders-value", FILE, "PROTOBUF")
    here.send(frame(one, b"\x08\x05", ORDER), frame(one, b"\x08\x06", ORDER))
    assert here.export().rows == 2
    assert here.columns("id") == [(5,), (6,)]
    assert "trace" not in here.table().schema().column_names
    names = ["id_bucket"] if by != "none" else []
    assert list(specs(here).values()) == [names]
    assert here.verify().problems == ()


def test_a_column_that_no_message_has_brought_yet_waits_without_stopping_the_export(here, registry):
    here.world.configs["orders"] = {"value.mode": "protobuf", "partition.by": "trace"}
    one = registry.register("orders-value", FILE, "PROTOBUF")
    here.send(frame(one, b"\x08\x05", ORDER))
    assert here.export().rows == 1
    here.send(frame(one, b"\x08\x06", ORDER))
    assert here.export().rows == 1
    assert not here.table().spec().fields
    here.send(frame(one, b"\x0a\x01t", (0,)))
    assert here.export().rows == 1
    assert [each.name for each in here.table().spec().fields] == ["trace"]
    assert here.columns("id", "trace") == [(5, None), (6, None), (None, "t")]
