"""Values without any id, read by the newest schema of their subject, pinned for each export."""

import json

import pytest

from iceberg_export.errors import SettingsError
from tests.iceberg_export.kit.place import DEAD_TABLE


def avro(*fields: str) -> str:
    listed = [{"name": name, "type": "int"} for name in fields]
    return json.dumps({"type": "record", "name": "Order", "fields": listed})


@pytest.fixture
def here(here):
    here.configure(value_mode="avro", value_schema="latest")
    return here


def test_each_export_reads_all_by_what_is_newest_when_it_begins(here, registry):
    registry.register("orders-value", avro("old", "older"))
    registry.register("orders-value", avro("a"))
    here.send(b"\x0a", None, b"\0\0\0\0\1\x02")
    assert here.export().dead == 1
    registry.register("orders-value", avro("a", "b"))
    here.send(b"\x0c\x0e")
    here.export()
    # The versions before are no business of a table of the newest.
    assert here.columns("a", "b", "kafka_value_schema_id") == [
        (5, None, 2), (None, None, None), (6, 7, 3),
    ]  # fmt: skip
    letters = here.table(DEAD_TABLE).scan().to_arrow().to_pylist()
    assert [(one["error_code"], one["schema_id"]) for one in letters] == [("UNDECODABLE", 2)]
    verdict = here.verify()
    assert (verdict.problems, verdict.records, verdict.dead) == ((), 3, 1)


def test_a_record_that_is_missing_is_found_though_its_fields_cannot_be_compared(here, registry):
    registry.register("orders-value", avro("a"))
    here.send(b"\x0a")
    here.export()
    registry.register("orders-value", avro("a", "b"))
    here.send(b"\x0c\x0e")
    here.export()
    here.table().delete("kafka_offset = 0")
    (said,) = here.verify().problems
    assert "2 records in the log, 1 in the table" in said


def test_records_wait_for_the_first_schema_and_an_empty_topic_does_not(here, registry):
    assert here.export().rows == 0
    here.send(b"\x0a")
    with pytest.raises(SettingsError, match="no schema is registered under orders-value yet"):
        here.export()
    registry.register("orders-value", avro("a"))
    assert here.export().rows == 1


def test_keys_may_be_read_by_the_newest_schema_too(here, registry):
    here.world.configs["orders"] = {"key.mode": "json", "key.schema": "latest"}
    text = '{"properties": {"id": {"type": "integer"}}}'
    registry.register("orders-key", text, "JSON")
    here.send(b"raw", keys=[b'{"id": 7}'])
    here.export()
    assert here.columns("kafka_key", "kafka_key_schema_id", "value") == [({"id": 7}, 1, b"raw")]


def test_a_newest_schema_of_another_kind_makes_dead_letters_with_the_reason(here, registry):
    registry.register("orders-value", "{}", "JSON")
    here.send(b"\x0a")
    report = here.export()
    assert report.dead == 1
    assert "schema 1 is JSON, the topic's mode is avro" in report.first_reason
