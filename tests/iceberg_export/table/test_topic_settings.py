"""Settings of topics: defaults, values, and refusals that name the mistake."""

import pytest

from iceberg_export.errors import SettingsError, StateError
from iceberg_export.routes import ROUTE, Route, read_route, route_text
from iceberg_export.table.column_rules import Mask
from iceberg_export.table.topic_settings import (
    PartitionTerm,
    SortTerm,
    TopicTable,
    parse,
    parse_partition_by,
)


def test_a_topic_without_settings_has_the_defaults_and_subjects_of_its_name():
    assert parse({}, "orders") == TopicTable(value_subject="orders-value", key_subject="orders-key")


def test_every_setting_is_read():
    said = {
        "enable": "false",
        "table": "lake.orders",
        "mode": "upsert",
        "value.mode": "avro",
        "key.mode": "string",
        "layout": "nested",
        "value.subject": "com.example.Order",
        "key.subject": "k",
        "value.schema": "latest",
        "key.schema": "by-id",
        "value.schema.json": "{}",
        "key.schema.json": "",
        "envelope": "debezium",
        "envelope.transactions": "true",
        "partition.by": "none",
        "columns.drop": "email, address.street",
        "columns.rename": "city : town",
        "columns.mask": "hash(name),truncate(3, phone), NULL(iban)",
        "sort.order": "city, DESC(price)",
        "bad.records": "fail",
        "schema.evolution": "strict",
        "types": "iceberg",
        "target.file.size": "2097152",
        "max.lag.ms": "1000",
        "retention.hold": "true",
        "retention.hold.max.ms": "5",
    }
    found = parse({f"frazil.iceberg.{name}": value for name, value in said.items()}, "orders")
    assert found == TopicTable(
        False, "lake.orders", "upsert", "avro", "string", "nested", "com.example.Order", "k",
        "latest", "by-id", "{}", "", "debezium", True, (), ("email", "address.street"), (("city", "town"),),
        (("name", Mask("hash")), ("phone", Mask("truncate", 3)), ("iban", Mask("null"))),
        (SortTerm("city"), SortTerm("price", True)), "", (), "fail", "strict", "iceberg", 2_097_152, 1000, True,
        5,
    )  # fmt: skip


def test_empty_values_mean_the_defaults_and_unknown_names_are_left_alone():
    said = {"value.subject": "", "key.subject": "", "partition.by": "", "of.next.year": "x"}
    found = parse({f"frazil.iceberg.{name}": value for name, value in said.items()}, "t")
    assert found == parse({}, "t")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("mode", "merge", "must be one of append, upsert, not 'merge'"),
        ("value.mode", "xml", "raw, string, json, avro, protobuf"),
        ("key.schema", "newest", "one of by-id, latest, inline, infer"),
        ("enable", "yes", "one of true, false"),
        ("max.lag.ms", "-1", "a whole number of milliseconds"),
        ("partition.by", "day(", "cannot be read at 'day('"),
    ],
)
def test_a_wrong_value_is_refused_with_topic_and_name(name, value, said):
    with pytest.raises(SettingsError, match="topic orders: ") as refused:
        parse({f"frazil.iceberg.{name}": value}, "orders")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("none", ()),
        ("city", [("identity", "city", 0)]),
        ("day(kafka_timestamp)", [("day", "kafka_timestamp", 0)]),
        (
            " hour(ts) ,bucket( 16 , user.id ),truncate(4,name), city ",
            [
                ("hour", "ts", 0),
                ("bucket", "user.id", 16),
                ("truncate", "name", 4),
                ("identity", "city", 0),
            ],
        ),
    ],
)
def test_partitionings_are_lists_of_columns_and_transforms(text, terms):
    assert parse_partition_by(text) == tuple(PartitionTerm(*term) for term in terms)


@pytest.mark.parametrize(
    "text",
    [
        "day(a b)",
        "bucket(a)",
        "bucket(0,a)",
        "day(3,a)",
        "week(a)",
        "a,,b",
        "a,",
        ",",
        "a b",
        "a,a",
    ],
)
def test_what_is_no_partitioning_is_refused(text):
    with pytest.raises(SettingsError, match=r"partition\.by"):
        parse_partition_by(text)


def test_a_table_has_the_exporters_namespace_unless_it_names_its_own():
    assert TopicTable().identifier("frazil", "orders") == ("frazil", "orders")
    assert TopicTable(table="o").identifier("frazil", "orders") == ("frazil", "o")
    assert TopicTable(table="a.b.o").identifier("frazil", "orders") == ("a.b", "o")


ROUTED = {
    "value.mode": "json",
    "route.by": "type",
    "route.tables": 'refund:refunds,"a b" : shop.b,c:shop.b',
}


def routed(**more):
    said = {**ROUTED, **{name.replace("_", "."): value for name, value in more.items()}}
    return parse({f"frazil.iceberg.{name}": value for name, value in said.items()}, "orders")


def test_routes_are_values_with_tables_and_the_topics_own_table_has_all_others():
    found = routed()
    assert found.routes == ["refunds", "shop.b"]
    assert found.route("refunds") == Route("type", ("refund",))
    assert found.route("shop.b") == Route("type", ("a b", "c"))
    assert found.route("") == Route("type", ("a b", "c", "refund"), takes_others=True)
    assert TopicTable().route("") is None


@pytest.mark.parametrize(
    ("by", "path", "header"),
    [
        ("type", ("type",), None),
        ("payload.kind", ("payload", "kind"), None),
        ("kafka_headers.ce.type", (), "ce.type"),
        ("kafka_key", (), None),
    ],
)
def test_a_value_is_in_a_field_a_header_or_the_key(by, path, header):
    route = routed(route_by=by).route("")
    assert (route.path, route.header) == (path, header)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"route_by": ""}, "set both, or neither"),
        ({"route_tables": " "}, "set both, or neither"),
        ({"mode": "upsert"}, "is for mode append"),
        (
            {"value_mode": "avro"},
            "is a field of JSON values, and frazil.iceberg.value.mode is avro",
        ),
        ({"route_by": "a..b"}, "must be a field of JSON values"),
        ({"route_by": "kafka_headers"}, "must be a field of JSON values"),
        ({"route_by": "kafka_key.id"}, "must be a field of JSON values"),
        ({"route_by": 'a"b'}, "must be a field of JSON values"),
        ({"route_tables": "a:b,"}, "ends with a comma"),
        ({"route_tables": "a"}, "cannot be read at 'a'"),
        ({"route_tables": "a:b c:d"}, "cannot be read"),
        ({"route_tables": "a:b,a:c"}, "names a twice"),
        (
            {"route_tables": ",".join(f"v{n}:t{n}" for n in range(17))},
            "at most 1000 values and 16 tables",
        ),
        ({"route_tables": ",".join(f"v{n}:t" for n in range(1001))}, "at most 1000 values"),
    ],
)
def test_routes_that_cannot_be_are_refused_with_the_reason(more, said):
    with pytest.raises(SettingsError, match="topic orders: ") as refused:
        routed(**more)
    assert said in str(refused.value)


def test_a_table_notes_its_route_and_reads_it_again():
    for route in (Route("type", ("a", "ü")), Route("x.y", (), takes_others=True), None):
        assert read_route("t", {ROUTE: route_text(route)}) == route
    assert read_route("t", {}) is None
    with pytest.raises(StateError, match="cannot be read"):
        read_route("t", {ROUTE: "{}"})
