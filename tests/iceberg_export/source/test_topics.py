"""Topics read alone, with the columns and rows that their tables have; what is newer; what is bad."""

import json
from contextlib import contextmanager

import pyarrow as pa
import pytest
from crc32c import crc32c

from iceberg_export import names
from iceberg_export.errors import PlanError, SettingsError
from iceberg_export.records.rows import ROW_SCHEMA
from iceberg_export.runs.export import export_topic
from iceberg_export.source.data_source import TOPIC_SCHEMA, FrazilDataSource
from iceberg_export.source.planning import plan_topic
from iceberg_export.source.reading import read_task
from iceberg_export.source.streaming import Stream
from iceberg_export.source.tasks import CORRUPT, CORRUPT_TYPE
from iceberg_export.source.topics import TopicDecoding, registry, topic_columns
from iceberg_export.table import schema
from iceberg_export.typed import registry_client
from iceberg_export.typed.framing import frame
from iceberg_export.typed.registry_client import RegistryError
from protocol.records import Record, build_batch
from tests.iceberg_export.kit.http import served
from tests.iceberg_export.kit.registry import FakeRegistry, avro
from tests.iceberg_export.kit.world import World, make_job
from tests.iceberg_export.source.test_queries import NOW, avro_orders, client, options

PEOPLE = {
    "type": "record",
    "name": "Person",
    "fields": [
        {"name": name, "type": kind}
        for name, kind in (("id", "long"), ("city", "string"), ("who", "string"))
    ],
}
PROTO = 'syntax = "proto3"; message A { int32 a = 1; } message B { int32 b = 1; }'


class Here:
    """A world with one topic, orders, its registry, and what queries over it read."""

    def __init__(self, world: World, registry: FakeRegistry, address: str, url: str):
        self.world, self.registry, self.address, self.url = world, registry, address, url

    def send(self, *values: bytes, key: bytes = b"k", headers=()):
        sent = [Record(timestamp=NOW, key=key, value=one, headers=headers) for one in values]
        self.world.commit("orders", {0: [sent]})

    def options(self, *, streaming=False, **more):
        return options(self.address, topic="orders", streaming=streaming, **more)

    def told(self, **more):
        found = self.options(**more)
        return topic_columns(found, client(found))

    def read(self, told=None, **more):
        """Rows of a query that was told its columns then, or now."""
        found = self.options(**more)
        told = told or topic_columns(found, client(found))
        tasks = plan_topic(
            found,
            client(found),
            found.query_range,
            TopicDecoding(found, told, lambda: client(found)),
        )
        return self.rows(tasks, told.columns, found)

    def rows(self, tasks, columns, found):
        if found.mode == "PERMISSIVE":
            columns = columns.append(pa.field(CORRUPT, CORRUPT_TYPE))
        batches = [b for task in tasks for b in read_task(task, columns, found.query_range)]
        return pa.Table.from_batches(batches, columns).sort_by(names.OFFSET).to_pylist()


@pytest.fixture
def here(tmp_path):
    world, registry = World(tmp_path / "store"), FakeRegistry()
    world.create("orders", 1)
    world.configs["orders"] = {"value.mode": "avro"}
    with served(world) as address, served(registry) as url:
        world.registry = url
        yield Here(world, registry, address, url)


@contextmanager
def exported(here, tmp_path):
    sets = (f"schema.registry.url={here.url}",)
    job = make_job(here.address, tmp_path / "data", sets=sets)
    export_topic(job, *job.client.topics().topics)
    yield job.catalog.load_table(("frazil", "orders"))
    job.catalog.engine.dispose()


@pytest.mark.parametrize("layout", ["flat", "nested"])
@pytest.mark.parametrize("mode", ["avro", "string"])
def test_a_topic_alone_has_the_columns_and_the_rows_of_its_table(here, tmp_path, layout, mode):
    here.world.configs["orders"] = {"value.mode": mode, "key.mode": "string", "layout": layout}
    if mode == "avro":
        orders = avro_orders(here.registry)
        more = avro_orders(here.registry, price=7)
        here.world.commit("orders", {0: [[*orders, *more, orders[0]._replace(value=None)]]})
    else:
        here.send("é".encode(), None)
    told = here.told()
    rows = here.read(told)
    with exported(here, tmp_path) as table:
        assert told.columns == schema.columns_of(table)
        assert rows == table.scan().to_arrow().sort_by(names.OFFSET).to_pylist()


def test_a_topics_rules_for_columns_hold_when_it_is_read_alone(here, tmp_path):
    here.world.configs["orders"] |= {
        "columns.drop": "id",
        "columns.rename": "city:town",
        "columns.mask": "truncate(1,who)",
    }
    schema_id = here.registry.register("orders-value", PEOPLE)
    here.send(avro(schema_id, PEOPLE, {"id": 7, "city": "Ulm", "who": "Ada"}))
    told = here.told()
    assert {"id", "city"}.isdisjoint(told.columns.names)
    (row,) = here.read()
    assert (row["town"], row["who"]) == ("Ulm", "A")
    job = make_job(here.address, tmp_path / "data")
    (topic,) = job.client.topics().topics
    export_topic(job, topic)
    table = job.catalog.load_table(("frazil", "orders"))
    assert told.columns == schema.columns_of(table)
    assert table.scan(selected_fields=("town", "who")).to_arrow().to_pylist() == [
        {"town": "Ulm", "who": "A"}
    ]
    job.catalog.engine.dispose()


def test_keys_and_values_may_be_read_as_they_are(here):
    assert here.told(typed="false") is None
    here.world.configs["orders"] = {}
    assert here.told() is None


def test_the_registry_that_does_not_answer_is_told_with_a_way_round_it(here, monkeypatch):
    monkeypatch.setattr(registry_client, "PAUSE_S", 0)
    here.registry.refuse = lambda _path: (500, {"error_code": 500, "message": "ill"})
    with pytest.raises(RegistryError, match=r"ill.*typed=false reads keys and values as they are"):
        here.told(**{"schema.registry.timeout.ms": "1000"})


def test_a_query_asks_another_agents_registry_when_the_one_that_was_told_is_gone(here, monkeypatch):
    monkeypatch.setattr(registry_client, "PAUSE_S", 0)
    here.world.commit("orders", {0: [avro_orders(here.registry)]})
    found, told = here.options(), here.told()
    agents = client(found)
    plan = agents.plan_by_name("orders", {})._replace(registry="http://127.0.0.1:1")
    assert TopicDecoding(found, told, lambda: agents)(plan).typing is not None
    assert registry(found, plan, lambda: agents).latest("orders-value") is not None


def test_a_record_that_cannot_be_decoded_ends_the_query_is_kept_or_left_out(here):
    here.world.commit("orders", {0: [avro_orders(here.registry)]})
    here.send(b"bad")
    here.send(frame(9, b"\x02"), key=None)
    with pytest.raises(PlanError) as refused:
        here.read(startingOffsets='{"0": 1}', endingOffsets='{"0": 4}')
    assert str(refused.value).startswith(
        "topic orders partition 0, offset 3: the value does not begin with the id of a schema "
        "(NOT_FRAMED); mode=PERMISSIVE"
    )
    with pytest.raises(PlanError, match=r"schema 9 of value is no version of the topic's subject"):
        here.read(startingOffsets='{"0": 4}')
    assert [row["id"] for row in here.read(mode="dropMalformed")] == [0, 1, 2]
    kept = here.read(mode="permissive")
    assert [(row["id"], row[CORRUPT] and row[CORRUPT]["error_code"]) for row in kept] == [
        (0, None), (1, None), (2, None), (None, "NOT_FRAMED"), (None, "SCHEMA_UNKNOWN"),
    ]  # fmt: skip
    assert (kept[3][names.OFFSET], kept[3][names.TIMESTAMP].timestamp() * 1000) == (3, NOW)
    bad = kept[3][CORRUPT]
    assert (bad["key"], bad["value"], bad["schema_id"]) == (b"k", b"bad", None)
    assert (kept[4][CORRUPT]["key"], kept[4][CORRUPT]["schema_id"]) == (None, 9)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"mode": "ignore"}, "mode must be one of FAILFAST, DROPMALFORMED, PERMISSIVE"),
        ({"typed": "no"}, "typed must be true or false"),
        ({"table": "t", "mode": "FAILFAST"}, "typed and mode are of a topic alone"),
    ],
)
def test_options_for_records_that_cannot_be_decoded_are_checked(given, told):
    with pytest.raises(SettingsError, match=told):
        options("http://localhost", **{"topic": "t", **given})


def test_of_schemas_that_came_after_the_columns_were_told_only_those_are_shown(here):
    here.world.commit("orders", {0: [avro_orders(here.registry)]})
    told = here.told()
    here.world.commit("orders", {0: [avro_orders(here.registry, price=7)]})
    rows = here.read(told)
    assert [row["id"] for row in rows] == [0, 1, 2, 0, 1, 2]
    assert {row["kafka_value_schema_id"] for row in rows} == {1, 2}
    assert "price" not in rows[0]
    wide = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    number = here.registry.register("orders-value", wide)
    here.send(frame(number, b"\x0a"))
    assert here.read(told)[-1]["id"] == 5
    here.send(frame(number, b"\xfe\xff\xff\xff\xff\xff\x7f"))
    with pytest.raises(PlanError, match="column id has become wider since the columns were told"):
        here.read(told)
    assert here.read()[-1]["id"] > 1 << 40


def test_a_topic_whose_columns_are_inferred_is_read_through_its_table_or_as_bytes(here):
    here.world.configs["orders"] = {"value.mode": "json", "value.schema": "infer"}
    with pytest.raises(SettingsError, match=r"read that with option table, or .* typed=false"):
        here.told()


def test_a_topic_whose_modes_have_changed_is_loaded_again(here):
    here.world.commit("orders", {0: [avro_orders(here.registry)]})
    told = here.told()
    here.world.configs["orders"] = {"value.mode": "string"}
    with pytest.raises(
        PlanError,
        match="modes, the layout, the rules for columns or the own schema of topic orders have changed",
    ):
        here.read(told)


def test_another_message_than_a_files_first_is_read_from_the_table_or_kept(here):
    here.world.configs["orders"] = {"value.mode": "protobuf"}
    number = here.registry.register("orders-value", PROTO, "PROTOBUF")
    here.send(frame(number, b"\x08\x05", (0,)), frame(number, b"\x08\x05", (1,)))
    with pytest.raises(PlanError, match=r"message \[1\] of schema 1 .*, and read its table"):
        here.read()
    kept = here.read(mode="PERMISSIVE")
    assert [(row["a"], row[CORRUPT] is None) for row in kept] == [(5, True), (None, False)]


def test_a_stream_decodes_what_newer_schemas_write_and_asks_little_for_it(here):
    here.world.commit("orders", {0: [avro_orders(here.registry)]})
    found = here.options(streaming=True, startingOffsets="earliest")
    told = topic_columns(found, client(found))
    agents, stream = client(found), Stream(found, TopicDecoding(found, told, lambda: client(found)))
    start, ids = stream.initial(stream.fetch_bounds(agents)), []
    for _ in range(3):
        end = stream.latest(stream.fetch_bounds(agents))
        rows = here.rows(stream.tasks(agents, start, end), told.columns, found)
        ids.append([row["kafka_value_schema_id"] for row in rows])
        asked = len(here.registry.requests)
        start = end
        here.world.commit("orders", {0: [avro_orders(here.registry, **{f"f{len(ids)}": 1})]})
    assert ids == [[1] * 3, [2] * 3, [3] * 3]
    last = here.registry.requests[:asked][-2:]
    assert last == ["/subjects/orders-value/versions", "/subjects/orders-value/versions/3"]


def test_headers_and_the_newest_schema_say_how_values_are_read_as_in_an_export(here, tmp_path):
    text = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
    number = here.registry.register("orders-value", text)
    guid = bytes.fromhex(here.registry.schemas[number]["guid"].replace("-", ""))
    here.send(b"\x0a", headers=(("__value_schema_id", b"\1" + guid),))
    assert [(row["id"], row["kafka_value_schema_id"]) for row in here.read()] == [(5, number)]
    here.world.configs["orders"]["value.schema"] = "latest"
    here.world.configs["orders"]["value.subject"] = "others"
    with pytest.raises(SettingsError, match="no schema is registered under others yet"):
        here.told()
    del here.world.configs["orders"]["value.subject"]
    here.send(b"\x0c")
    rows = here.read()
    assert [(row["id"], row["kafka_value_schema_id"]) for row in rows] == [(5, 1), (6, 1)]
    with exported(here, tmp_path) as table:
        assert rows == table.scan().to_arrow().sort_by(names.OFFSET).to_pylist()
    assert json.loads(here.registry.schemas[number]["schema"]) == text


def poison(count):
    """A batch whose checksum is right, and whose records are none."""
    batch = bytearray(build_batch([Record(timestamp=NOW)] * count))
    batch[61:] = b"\xff" * (len(batch) - 61)
    batch[17:21] = crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
    return bytes(batch)


@pytest.mark.parametrize("mode", ["raw", "string"])
def test_a_batch_that_nobody_can_read_ends_the_query_is_kept_or_left_out(here, mode):
    here.world.configs["orders"] = {"value.mode": mode}
    good = [Record(timestamp=NOW, value=b"a")]
    here.world.commit("orders", {0: [good, poison(3), good]})

    def read(**more):
        found = here.options(**more)
        told = topic_columns(found, client(found))
        tasks = plan_topic(
            found,
            client(found),
            found.query_range,
            TopicDecoding(found, told, lambda: client(found)),
        )
        columns = ROW_SCHEMA if told is None else told.columns
        return here.rows(tasks, columns, found)

    with pytest.raises(
        PlanError, match=r"topic orders partition 0: the batch of offsets 1 to 3 can"
    ):
        read()
    assert [row["kafka_offset"] for row in read(mode="DROPMALFORMED")] == [0, 4]
    rows = read(mode="PERMISSIVE")
    assert [row["kafka_offset"] for row in rows] == [0, 3, 4]
    assert rows[1][CORRUPT]["error_code"] == "BAD_BATCH"
    assert rows[1][CORRUPT]["value"][16:] == poison(3)[16:]
    assert rows[1]["value"] is None


def test_a_query_that_ends_within_such_a_batch_is_told_as_well(here):
    here.world.configs["orders"] = {}
    here.world.commit("orders", {0: [poison(3)]})
    found = here.options(endingOffsets='{"0": 2}')
    tasks = plan_topic(
        found, client(found), found.query_range, TopicDecoding(found, None, lambda: client(found))
    )
    with pytest.raises(PlanError, match="the batch of offsets 0 to 2 cannot be read"):
        here.rows(tasks, ROW_SCHEMA, found)


def test_a_raw_topic_has_the_column_of_what_cannot_be_read_where_it_is_asked_for(here):
    here.world.configs["orders"] = {}
    plain = {"agent": here.address, "topic": "orders"}
    assert FrazilDataSource(plain).schema() == TOPIC_SCHEMA
    assert FrazilDataSource({**plain, "mode": "PERMISSIVE"}).schema().names == [
        *TOPIC_SCHEMA.names,
        CORRUPT,
    ]
