"""Queries of tables whose columns are inferred from JSON, with what is not exported yet."""

import json

from iceberg_export import names
from iceberg_export.runs.export import export_topic
from iceberg_export.runs.table_choice import each_table
from protocol.records import Record
from tests.iceberg_export.kit.world import World
from tests.iceberg_export.source.test_queries import NOW, decoded_rows, exported, options


def test_what_is_not_exported_yet_is_read_into_the_columns_there_are_and_the_rest_is_left_out(
    tmp_path,
):
    world = World(tmp_path / "store")
    world.create("orders", 1)
    world.configs["orders"] = {"value.mode": "json", "value.schema": "infer"}

    def send(*values):
        records = [Record(timestamp=NOW, value=json.dumps(one).encode()) for one in values]
        world.commit("orders", {0: [records]})

    send({"id": 1, "at": {"y": 2026}}, {"id": "two"}, {"id": 3})
    with exported(world, tmp_path) as (address, job):
        send({"id": 4, "new": True}, {"id": "five", "at": 7}, {"id": 6, "at": {"y": 1, "z": 2}})
        rows = decoded_rows(options(address, table="orders"), job.catalog)
    assert [(row[names.OFFSET], row["id"], row["at"]) for row in rows] == [
        (0, "1", {"y": 2026}), (1, '"two"', None), (2, "3", None),
        (3, "4", None), (4, '"five"', None), (5, "6", {"y": 1}),
    ]  # fmt: skip


def test_what_is_not_exported_yet_is_masked_renamed_and_dropped_as_the_tables_rows_are(tmp_path):
    world = World(tmp_path / "store")
    world.create("orders", 1)
    world.configs["orders"] = {
        "value.mode": "json",
        "value.schema": "inline",
        "value.schema.json": json.dumps(
            {"properties": {name: {"type": "string"} for name in ("id", "city", "who")}}
        ),
        "columns.drop": "id",
        "columns.rename": "city:town",
        "columns.mask": "truncate(1,who)",
    }

    def send(*values):
        records = [Record(timestamp=NOW, value=json.dumps(one).encode()) for one in values]
        world.commit("orders", {0: [records]})

    send({"id": "1", "city": "Ulm", "who": "Ada"})
    with exported(world, tmp_path) as (address, job):
        send({"id": "2", "city": "Bonn", "who": "Bo"})
        rows = decoded_rows(options(address, table="orders"), job.catalog)
    assert [(row["town"], row["who"], "id" in row, "city" in row) for row in rows] == [
        ("Ulm", "A", False, False),
        ("Bonn", "B", False, False),
    ]


def test_what_is_not_exported_yet_of_a_table_with_a_route_is_its_records_alone(tmp_path):
    world = World(tmp_path / "store")
    world.create("orders", 1)
    world.configs["orders"] = {
        "value.mode": "json",
        "value.schema": "infer",
        "route.by": "type",
        "route.tables": "refund:refunds",
    }

    def send(*values):
        records = [Record(timestamp=NOW, value=json.dumps(one).encode()) for one in values]
        world.commit("orders", {0: [records]})

    send({"type": "refund"}, {"type": "order"})
    with exported(world, tmp_path) as (address, job):
        _own, refunds = each_table(*job.client.topics().topics)
        export_topic(job._replace(run_id="r2"), refunds)
        send({"type": "order"}, {"type": "refund"}, {"type": "refund"})
        found = {
            table: decoded_rows(options(address, table=table), job.catalog)
            for table in ("orders", "refunds")
        }
    assert {table: [row[names.OFFSET] for row in rows] for table, rows in found.items()} == {
        "orders": [1, 2],
        "refunds": [0, 3, 4],
    }
