"""Mode upsert by keys that have become columns: rows are of the same key when its values are the same."""

import pytest

from iceberg_export.errors import SettingsError, StateError
from iceberg_export.table.catalog import find_table
from iceberg_export.table.settings_kept import MODE
from tests.iceberg_export.kit.place import TABLE
from tests.iceberg_export.kit.registry import avro

KEY_1 = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
KEY_2 = {
    "type": "record",
    "name": "Key",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "region", "type": ["null", "string"], "default": None},
    ],
}
FLAGS = {"type": "record", "name": "Key", "fields": [{"name": "on", "type": "boolean"}]}


@pytest.fixture
def here(here):
    here.world.configs["orders"] = {"mode": "upsert", "key.mode": "avro"}
    return here


def rows(here):
    return here.columns("kafka_offset", "kafka_key", "value")


def send(here, schema_id, schema, *pairs):
    """One record for each (key, value)."""
    keys = [avro(schema_id, schema, key) for key, _ in pairs]
    here.send(*[value for _, value in pairs], keys=keys)


@pytest.mark.parametrize("by", ["", "bucket(4, kafka_key.id)", "none"])
def test_rows_are_the_newest_of_keys_with_the_same_values(here, registry, by):
    here.world.configs["orders"]["partition.by"] = by
    one = registry.register("orders-key", KEY_1)
    send(here, one, KEY_1, *[({"id": number % 5}, b"%d" % number) for number in range(12)])
    assert here.export().dead == 0
    assert [value for _, _, value in rows(here)] == [b"7", b"8", b"9", b"10", b"11"]
    send(here, one, KEY_1, ({"id": 3}, None), ({"id": 4}, b"new"))
    here.export()
    assert rows(here)[-1] == (13, {"id": 4}, b"new")
    assert {"id": 3} not in [key for _, key, _ in rows(here)]
    assert here.verify().problems == ()


def test_a_new_version_of_the_key_schema_with_the_same_values_is_the_same_row(here, registry):
    one = registry.register("orders-key", KEY_1)
    send(here, one, KEY_1, ({"id": 1}, b"a"), ({"id": 2}, b"b"))
    here.export()
    two = registry.register("orders-key", KEY_2)
    send(
        here, two, KEY_2,
        ({"id": 1, "region": None}, b"c"), ({"id": 1, "region": "eu"}, b"d"),
    )  # fmt: skip
    assert here.export().dead == 0
    assert rows(here) == [
        (1, {"id": 2, "region": None}, b"b"),
        (2, {"id": 1, "region": None}, b"c"),
        (3, {"id": 1, "region": "eu"}, b"d"),
    ]
    assert here.verify().problems == ()


def test_keys_of_which_no_column_can_make_buckets_are_one_bucket(here, registry):
    one = registry.register("orders-key", FLAGS)
    send(here, one, FLAGS, ({"on": True}, b"a"), ({"on": False}, b"b"), ({"on": True}, b"c"))
    here.export()
    assert rows(here) == [(1, {"on": False}, b"b"), (2, {"on": True}, b"c")]
    assert not here.table().spec().fields


@pytest.mark.parametrize(
    "by", ["kafka_key.id", "day(kafka_timestamp)", "bucket(4, kafka_key.id), kafka_partition"]
)
def test_other_partitions_are_refused_before_there_is_a_table(here, registry, by):
    registry.register("orders-key", KEY_1)
    here.world.configs["orders"]["partition.by"] = by
    job = here.job()
    with pytest.raises(SettingsError, match="is partitioned by buckets of its key"):
        here.export()
    assert find_table(job.catalog, TABLE) is None


EMPTY = {"type": "record", "name": "Key", "fields": []}


@pytest.mark.parametrize("by", ["", "none"])
@pytest.mark.parametrize("schema", [None, EMPTY])
def test_keys_without_a_column_are_refused_before_there_is_a_table(here, registry, by, schema):
    if schema is not None:
        registry.register("orders-key", schema)
    here.world.configs["orders"]["partition.by"] = by
    job = here.job()
    with pytest.raises(SettingsError, match=r"the column kafka_key|there are none") as refused:
        here.export()
    assert ("no schema is registered under orders-key" in str(refused.value)) == (schema is None)
    assert find_table(job.catalog, TABLE) is None


def test_a_table_without_partitions_that_was_made_for_appends_is_not_upserted(here, registry):
    one = registry.register("orders-key", KEY_1)
    here.world.configs["orders"] = {"key.mode": "avro", "partition.by": "none"}
    send(here, one, KEY_1, ({"id": 1}, b"a"))
    here.export()
    with here.table().transaction() as transaction:
        transaction.remove_properties(MODE)
    here.world.configs["orders"]["mode"] = "upsert"
    send(here, one, KEY_1, ({"id": 1}, b"b"))
    with pytest.raises(StateError, match="was made for mode append"):
        here.export()
