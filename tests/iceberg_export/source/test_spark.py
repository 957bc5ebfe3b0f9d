"""The format `frazil` as Spark uses it: batch and stream, filters, tables, mistakes.

Spark 4.1 plans a DataFrame of a Python source once and keeps the plan: tests load anew for what is
new.
"""

import pytest

from iceberg_export.records.rows import ROW_SCHEMA
from iceberg_export.runs.export import export_topic
from iceberg_export.source.data_source import TOPIC_SCHEMA, register, spark_schema
from protocol.records import Record
from tests.iceberg_export.kit.http import served
from tests.iceberg_export.kit.registry import FakeRegistry
from tests.iceberg_export.kit.world import World, make_job, some_records

NOW = 1_790_000_000_000


@pytest.fixture
def world(tmp_path):
    found = World(tmp_path / "store")
    found.create("orders", 2)
    for number in range(2):
        batch = some_records(20, 20 * number, timestamp=NOW + 1000 * number)
        found.commit("orders", {p: [batch] for p in range(2)}, codec=4)
    return found


@pytest.fixture
def load(session, world):
    """Loads with the options given, from the world."""
    register(session)
    with served(world) as address:

        def found(reader=None, **options):
            options = {"agent": address, "topic": "orders", **options}
            return (reader or session.read).format("frazil").options(**options).load()

        yield found


def places(frame):
    rows = frame.select("kafka_partition", "kafka_offset").collect()
    return sorted((row.kafka_partition, row.kafka_offset) for row in rows)


def write_stream(frame, folder):
    """All that is there now, into the folder `out`."""
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .option("path", str(folder / "out"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


EVERYTHING = [(p, offset) for p in range(2) for offset in range(40)]


def test_the_columns_of_a_topic_are_those_of_a_raw_table():
    said = [(field.name, field.dataType.simpleString()) for field in TOPIC_SCHEMA]
    assert said == [(one.name, one.dataType.simpleString()) for one in spark_schema(ROW_SCHEMA)]


def test_a_topic_is_a_dataframe_with_every_field_of_its_records(load, world):
    frame = load()
    assert places(frame) == EVERYTHING
    rows = {
        (row.kafka_partition, row.kafka_offset): row
        for row in frame.selectExpr("*", "unix_millis(kafka_timestamp) AS ms").collect()
    }
    for number, log in enumerate(world.topics["orders"][1]):
        for record in log.wanted:
            row = rows[number, record.offset]
            assert (row.kafka_key, row.value, row.ms) == (
                record.key,
                record.value,
                record.timestamp,
            )
            assert [(h.key, h.value) for h in row.kafka_headers] == list(record.headers)
    # One question for columns and one plan, although the DataFrame was used twice; and what came
    # later is in a new one.
    assert world.requests.count("POST /export/plan") == 2
    world.commit("orders", {0: [some_records(1)]})
    assert load().count() == 81


def test_dataframes_with_filters_are_exact_however_often_they_are_used(load):
    frame = load()
    first, second = frame.filter("kafka_offset < 3"), frame.filter("kafka_offset >= 38")
    assert first.count() == 6
    assert second.count() == 4
    assert first.union(second).count() == 10
    assert frame.count() == 80


def test_filters_that_are_pushed_leave_out_what_cannot_match(load, world):
    wanted = "kafka_offset >= 5 AND kafka_offset < 8 AND kafka_partition IN (1)"
    assert places(load(pushFilters="true").filter(wanted)) == [(1, 5), (1, 6), (1, 7)]
    since = load(pushFilters="true").filter(f"kafka_timestamp >= timestamp_millis({NOW + 1000})")
    assert since.count() == 40
    behind = load(pushFilters="true").filter("kafka_offset >= 20")
    assert behind.rdd.getNumPartitions() == 1
    for path in (world.folder / log.spans[0][0] for log in world.topics["orders"][1]):
        path.unlink(missing_ok=True)
    # The chunks before are not even looked at.
    assert behind.count() == 40


def test_a_table_with_what_is_not_exported_yet_is_one_dataframe(load, world, tmp_path):
    with served(world) as address:
        job = make_job(address, tmp_path / "data")
        (topic,) = job.client.topics().topics
        export_topic(job, topic)
        job.catalog.engine.dispose()
    world.commit("orders", {1: [some_records(2)]})
    frame = load(table="frazil.orders", data=str(tmp_path / "data"))
    assert places(frame) == [*EVERYTHING, (1, 40), (1, 41)]
    assert frame.filter("kafka_headers IS NULL").count() == 0


def test_a_stream_goes_on_from_its_checkpoint_and_has_each_record_once(
    load, session, world, tmp_path
):
    def run():
        frame = load(session.readStream, startingOffsets="earliest")
        write_stream(frame, tmp_path)

    run()
    world.commit("orders", {1: [some_records(2)]})
    run()
    assert places(session.read.parquet(str(tmp_path / "out"))) == [*EVERYTHING, (1, 40), (1, 41)]


def test_a_topic_of_decoded_values_is_a_dataframe_and_a_stream_of_their_fields(
    load, session, world, tmp_path
):
    registry = FakeRegistry()
    world.create("json", 1)
    world.configs["json"] = {"value.mode": "json", "key.mode": "string"}
    text = '{"properties": {"id": {"type": "integer"}, "tags": {"items": {"type": "string"}}}}'
    text = text.replace('"items"', '"type": "array", "items"')
    registry.register("json-value", text, "JSON")
    values = (b'{"id": 1, "tags": ["a", null]}', None, b"bad")
    sent = [Record(timestamp=NOW, key=b"k", value=value) for value in values]
    world.commit("json", {0: [sent]})
    with served(registry) as url:
        told = {"topic": "json", "schema.registry.url": url}
        columns = ("id", "tags", "kafka_key", "_corrupt_record.value")
        rows = load(mode="PERMISSIVE", **told).orderBy("kafka_offset").select(*columns).collect()
        assert [tuple(row) for row in rows] == [
            (1, ["a", None], "k", None), (None, None, "k", None), (None, None, None, b"bad"),
        ]  # fmt: skip
        frame = load(session.readStream, mode="DROPMALFORMED", startingOffsets="earliest", **told)
        write_stream(frame, tmp_path)
    found = session.read.parquet(str(tmp_path / "out")).select("kafka_offset", "id").collect()
    assert sorted(tuple(row) for row in found) == [(0, 1), (1, None)]


def test_mistakes_are_told_in_a_sentence(load):
    for options, told in (
        ({"startingOffset": "earliest"}, "startingoffset is not an option, startingOffsets is"),
        ({"topic": "none"}, "there is no topic none"),
    ):
        with pytest.raises(Exception, match=told):
            load(**options).count()
