"""Values without any id, read by the newest schema of their subject, pinned for each export."""

import json

import pytest

from iceberg_export.errors import SettingsError
from iceberg_export.runs.job import export_topic
from iceberg_export.verify.proof import verify_topic
from protocol.records import Record
from tests.iceberg_export.fake_registry import FakeRegistry, served_registry
from tests.iceberg_export.world import World, make_job, served

NOW = 1_763_000_000_000


def avro(*fields: str) -> str:
    listed = [{"name": name, "type": "int"} for name in fields]
    return json.dumps({"type": "record", "name": "Order", "fields": listed})


@pytest.fixture
def world(tmp_path):
    found = World(tmp_path / "store")
    found.create("orders", 1)
    found.configs["orders"] = {"value.mode": "avro", "value.schema": "latest"}
    return found


@pytest.fixture
def registry():
    return FakeRegistry()


@pytest.fixture
def jobs(world, registry, tmp_path):
    made = []
    with served(world) as address, served_registry(registry) as url:

        def make():
            sets = (f"schema.registry.url={url}",)
            made.append(make_job(world, address, tmp_path / "data", f"r{len(made)}", sets))
            return made[-1]

        yield make
    for job in made:
        job.catalog.engine.dispose()


def send(world, *values, key=None):
    world.commit("orders", {0: [[Record(timestamp=NOW, key=key, value=one) for one in values]]})


def export(job):
    return export_topic(job, *job.client.topics().topics)


def rows(job, *names):
    table = job.catalog.load_table(("frazil", "orders")).scan().to_arrow().sort_by("kafka_offset")
    return [tuple(row[name] for name in names) for row in table.to_pylist()]


def test_each_export_reads_all_by_what_is_newest_when_it_begins(world, registry, jobs):
    registry.register("orders-value", avro("old", "older"))
    registry.register("orders-value", avro("a"))
    send(world, b"\x0a", None, b"\0\0\0\0\1\x02")
    assert export(jobs()).dead == 1
    registry.register("orders-value", avro("a", "b"))
    send(world, b"\x0c\x0e")
    export(jobs())
    job = jobs()
    # The versions before are no business of a table of the newest.
    assert rows(job, "a", "b", "kafka_value_schema_id") == [
        (5, None, 2), (None, None, None), (6, 7, 3),
    ]  # fmt: skip
    letters = job.catalog.load_table(("frazil", "orders__dlq")).scan().to_arrow().to_pylist()
    assert [(one["error_code"], one["schema_id"]) for one in letters] == [("UNDECODABLE", 2)]
    verdict = verify_topic(job, *job.client.topics().topics)
    assert (verdict.problems, verdict.records, verdict.dead) == ((), 3, 1)


def test_a_record_that_is_missing_is_found_though_its_fields_cannot_be_compared(
    world, registry, jobs
):
    registry.register("orders-value", avro("a"))
    send(world, b"\x0a")
    export(jobs())
    registry.register("orders-value", avro("a", "b"))
    send(world, b"\x0c\x0e")
    export(jobs())
    job = jobs()
    job.catalog.load_table(("frazil", "orders")).delete("kafka_offset = 0")
    (said,) = verify_topic(job, *job.client.topics().topics).problems
    assert "2 records in the log, 1 in the table" in said


def test_records_wait_for_the_first_schema_and_an_empty_topic_does_not(world, registry, jobs):
    assert export(jobs()).rows == 0
    send(world, b"\x0a")
    with pytest.raises(SettingsError, match="no schema is registered under orders-value yet"):
        export(jobs())
    registry.register("orders-value", avro("a"))
    assert export(jobs()).rows == 1


def test_keys_may_be_read_by_the_newest_schema_too(world, registry, jobs):
    world.configs["orders"] = {"key.mode": "json", "key.schema": "latest"}
    text = '{"properties": {"id": {"type": "integer"}}}'
    registry.register("orders-key", text, "JSON")
    send(world, b"raw", key=b'{"id": 7}')
    job = jobs()
    export(job)
    assert rows(job, "kafka_key", "kafka_key_schema_id", "value") == [({"id": 7}, 1, b"raw")]


def test_a_newest_schema_of_another_kind_makes_dead_letters_with_the_reason(world, registry, jobs):
    registry.register("orders-value", "{}", "JSON")
    send(world, b"\x0a")
    report = export(jobs())
    assert report.dead == 1
    assert "schema 1 is JSON, the topic's mode is avro" in report.first_reason
