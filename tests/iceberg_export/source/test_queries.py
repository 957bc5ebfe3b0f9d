"""What a query over a topic or a table reads, without Spark: options, boxes, plans, tasks, streams."""

from contextlib import contextmanager

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from iceberg_export import names
from iceberg_export.errors import CatalogError, ExportError, PlanError, SettingsError, StateError
from iceberg_export.plan.agent_client import AgentClient
from iceberg_export.plan.splits import PlannedSpan
from iceberg_export.records.rows import ROW_SCHEMA
from iceberg_export.runs.export import export_topic
from iceberg_export.source.filters import Filter, QueryRange, narrow_range
from iceberg_export.source.planning import _too_old, pin, plan_topic
from iceberg_export.source.read_options import Bounds, parse_options
from iceberg_export.source.reading import read_task
from iceberg_export.source.streaming import Stream, limited
from iceberg_export.source.tables import columns_of, open_options, open_table, plan_table
from iceberg_export.typed.framing import frame
from protocol.records import Record
from tests.iceberg_export.kit.http import served
from tests.iceberg_export.kit.registry import FakeRegistry, avro
from tests.iceberg_export.kit.world import InTransaction, World, make_job, some_records

NOW = 1_790_000_000_000


def options(address: str, *, streaming: bool | None = False, **more: str):
    return parse_options({"agent": address, **more}, streaming=streaming)


def client(found) -> AgentClient:
    return AgentClient(found.settings.agents, timeout_ms=5000, sleep=lambda _seconds: None)


def rows_of(tasks, query_range: QueryRange) -> list[dict]:
    return [
        row
        for task in tasks
        for b in read_task(task, ROW_SCHEMA, query_range)
        for row in b.to_pylist()
    ]


def read_topic(
    address: str, wanted: QueryRange | None = None, **more: str
) -> list[tuple[int, int]]:
    found = options(address, topic="orders", **more)
    tasks = plan_topic(found, client(found), found.query_range if wanted is None else wanted)
    return places(rows_of(tasks, found.query_range))


def places(rows) -> list[tuple[int, int]]:
    return sorted((row[names.PARTITION], row[names.OFFSET]) for row in rows)


@pytest.fixture
def world(tmp_path):
    """Three chunks of 20 records for each of two partitions, a second apart."""
    found = World(tmp_path / "store")
    found.create("orders", 2)
    for number in range(3):
        batch = some_records(20, 20 * number, timestamp=NOW + 1000 * number)
        found.commit("orders", {p: [batch] for p in range(2)})
    return found


@pytest.fixture
def address(world):
    with served(world) as found:
        yield found


@contextmanager
def exported(world, tmp_path, *sets):
    """The world, served; what it holds now is in table frazil.orders."""
    with served(world) as address:
        job = make_job(address, tmp_path / "data", sets=sets)
        (topic,) = job.client.topics().topics
        export_topic(job, topic)
        yield address, job
        job.catalog.engine.dispose()


# Options.


def test_all_mistakes_in_options_are_told_at_once_with_the_right_names():
    with pytest.raises(SettingsError) as caught:
        parse_options(
            {"maxOffsetPerTrigger": "1", "failOnDataLoss": "maybe", "partitions": "1;2"},
            streaming=False,
        )
    told = str(caught.value)
    assert "maxoffsetpertrigger is not an option, maxOffsetsPerTrigger is" in told
    assert "failOnDataLoss must be true or false" in told
    assert "partitions must be a list" in told
    assert "say what to read" in told


@pytest.mark.parametrize(
    ("given", "streaming", "told"),
    [
        ({"topic": "t", "startingOffsets": "soon"}, False, "startingOffsets must be earliest"),
        ({"topic": "t", "startingOffsets": '{"0": -3}'}, False, "startingOffsets must be"),
        ({"topic": "t", "startingOffsets": "latest"}, False, "leaves nothing"),
        ({"topic": "t", "endingOffsets": "latest"}, True, "a stream has no endingOffsets"),
        ({"topic": "t", "maxOffsetsPerTrigger": "0"}, True, "a number above 0"),
        ({"topic": "t", "timestampFrom": "2026-01-01T00:00:00"}, False, "with its zone"),
        ({"topic": "t", "timestampTo": "noon"}, False, "a time like"),
        ({"table": "t"}, True, "a stream cannot be had of a table"),
        ({"table": "t", "startingOffsets": "earliest"}, False, "cannot be had of a table"),
    ],
)
def test_an_option_that_cannot_be_is_refused_with_a_reason(given, streaming, told):
    with pytest.raises(SettingsError, match=told):
        parse_options(given, streaming=streaming)


def test_options_are_read_as_sparks_kafka_source_writes_them():
    found = parse_options(
        {
            "path": "orders",
            "startingoffsets": '{"orders": {"0": 7, "1": -1}}',
            "ENDINGOFFSETS": "latest",
            "timestampfrom": "2026-11-22T10:00:00.000001+00:00",
            "store.access.key": "k",
        },
        streaming=False,
    )
    assert found.topic == "orders"
    assert found.starting == Bounds(-2, {0: 7, 1: -1})
    assert found.ending == Bounds(-1)
    assert found.query_range.micros_from == 1_795_341_600_000_001
    assert found.store_options["store.access.key"] == "k"


# Boxes.

_KINDS = st.sampled_from(
    ["EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual"]
)
_COLUMNS = [names.PARTITION, names.OFFSET, names.TIMESTAMP]
_FILTERS = st.lists(
    st.one_of(
        st.builds(
            Filter, _KINDS, st.sampled_from(_COLUMNS).map(lambda name: (name,)), st.integers(0, 6)
        ),
        st.builds(
            Filter,
            st.just("In"),
            st.sampled_from(_COLUMNS).map(lambda name: (name,)),
            st.lists(st.integers(0, 6), min_size=1),
        ),
        st.just(Filter("IsNotNull", (names.OFFSET,), None)),
        st.just(Filter("StringStartsWith", (names.OFFSET,), "1")),
        st.just(Filter("Not", (), None)),
    )
)
_HOLDS = {
    "EqualTo": lambda a, b: a == b,
    "EqualNullSafe": lambda a, b: a == b,
    "GreaterThan": lambda a, b: a > b,
    "GreaterThanOrEqual": lambda a, b: a >= b,
    "LessThan": lambda a, b: a < b,
    "LessThanOrEqual": lambda a, b: a <= b,
    "In": lambda a, b: a in b,
}


@given(_FILTERS, st.tuples(*[st.integers(0, 6)] * 3))
@settings(max_examples=300)
def test_no_row_that_all_filters_let_pass_lies_outside_the_box(filters, row):
    value = dict(zip(_COLUMNS, row, strict=True))
    understood = [one for one in filters if one.kind in _HOLDS]
    if all(_HOLDS[one.kind](value[one.column[0]], one.value) for one in understood):
        query_range = narrow_range(filters, QueryRange())
        assert query_range.has(value[names.PARTITION])
        assert query_range.offset_from <= value[names.OFFSET] < query_range.offset_to
        assert query_range.micros_from is None or query_range.micros_from <= value[names.TIMESTAMP]
        assert query_range.micros_to is None or value[names.TIMESTAMP] < query_range.micros_to


def test_filters_make_the_box_smaller():
    filters = [
        Filter("In", (names.PARTITION,), [1, 2]),
        Filter("GreaterThan", (names.OFFSET,), 5),
        Filter("LessThanOrEqual", (names.OFFSET,), 9),
        Filter("EqualTo", (names.TIMESTAMP,), 77),
    ]
    query_range = QueryRange(partitions=frozenset({2, 3}))
    assert narrow_range(filters, query_range) == QueryRange(frozenset({2}), 6, 10, 77, 78)


# Topics.


def test_a_topic_is_read_whole_with_one_request(world, address):
    found = read_topic(address)
    assert found == [(p, offset) for p in range(2) for offset in range(60)]
    assert world.requests == ["POST /export/plan"]


def test_rows_are_those_that_the_exporter_writes(world, tmp_path):
    with exported(world, tmp_path) as (address, job):
        found = options(address, topic="orders")
        tasks = plan_topic(found, client(found), found.query_range)
        batches = [b for task in tasks for b in read_task(task, ROW_SCHEMA, found.query_range)]
        table = job.catalog.load_table(("frazil", "orders")).scan().to_arrow()
        order = [(names.PARTITION, "ascending"), (names.OFFSET, "ascending")]
        ours = pa.Table.from_batches(batches).sort_by(order)
        assert ours.to_pylist() == table.sort_by(order).to_pylist()


def test_a_plan_in_many_pieces_is_read_whole(world, address):
    world.rows_max = 1
    assert len(read_topic(address)) == 120


def test_open_and_aborted_transactions_are_not_read(world, address):
    for producer, commit in ((1, True), (2, False)):
        world.commit("orders", {0: [InTransaction(producer, some_records(5))]})
        world.end("orders", 0, producer, commit=commit)
    world.commit("orders", {0: [InTransaction(3, some_records(5))]})
    found = read_topic(address)
    assert [offset for p, offset in found if p == 0] == [*range(65)]


def test_offsets_of_the_options_begin_and_end_a_read(address):
    found = read_topic(
        address, startingOffsets='{"0": 15, "1": -1}', endingOffsets='{"0": 25, "1": -1}'
    )
    assert found == [(0, offset) for offset in range(15, 25)]


def test_only_what_lies_in_the_box_is_planned(address):
    query_range = QueryRange(partitions=frozenset({1}), offset_from=21, offset_to=23)
    assert read_topic(address, query_range) == [(1, 21), (1, 22)]
    assert read_topic(address, query_range._replace(partitions=frozenset({9}))) == []
    assert read_topic(address, query_range._replace(offset_from=1 << 62)) == []


@pytest.mark.parametrize("kind", ["segments", "chunks"])
def test_of_what_is_older_than_wanted_only_segments_are_believed(kind: str) -> None:
    span = PlannedSpan(0, f"{kind}/0/0", 0, 10, 0, 1, 0, 1, timestamp_max=NOW)
    for later_ms, is_passed_over in ((0, False), (1, kind == "segments")):
        wanted = QueryRange(micros_from=(NOW + later_ms) * 1000)
        assert _too_old(span, wanted) is is_passed_over
    assert not _too_old(span._replace(timestamp_max=-1), QueryRange(micros_from=NOW * 2000))


def test_records_are_found_by_their_time_whatever_their_chunk_says(world, address):
    for log in world.topics["orders"][1]:
        for span in log.spans:
            span[5] = NOW - 1000
    found = options(address, topic="orders", timestampFrom=str(NOW + 1000))
    tasks = plan_topic(found, client(found), found.query_range)
    assert places(rows_of(tasks, found.query_range)) == [
        (p, o) for p in range(2) for o in range(20, 60)
    ]
    until = options(address, topic="orders", timestampTo=str(NOW + 1))
    tasks = plan_topic(until, client(until), until.query_range)
    assert places(rows_of(tasks, until.query_range)) == [(0, 0), (1, 0)]


def test_records_that_retention_has_deleted_are_an_error_unless_that_is_allowed(world, address):
    world.topics["orders"][1][0].log_start = 30
    assert len(read_topic(address)) == 30 + 60
    starting = '{"0": 10, "1": 0}'
    with pytest.raises(PlanError, match=r"offsets 10 to 29 are deleted.*failOnDataLoss"):
        read_topic(address, startingOffsets=starting)
    lossy = read_topic(address, startingOffsets=starting, failOnDataLoss="false")
    assert len(lossy) == 30 + 60


def test_offsets_and_partitions_that_are_not_there_are_refused(address):
    with pytest.raises(PlanError, match="partition 0: offset 61 is not there yet"):
        read_topic(address, startingOffsets='{"0": 61}')
    with pytest.raises(PlanError, match="offset 99 is not there yet"):
        read_topic(address, endingOffsets='{"1": 99}')
    with pytest.raises(SettingsError, match="no partition 5"):
        read_topic(address, startingOffsets='{"5": 0}')
    found = options(address, topic="none")
    with pytest.raises(ExportError, match="there is no topic none"):
        plan_topic(found, client(found), found.query_range)


def test_columns_that_a_query_names_come_in_its_order(address):
    schema = pa.schema([ROW_SCHEMA.field(names.OFFSET), ROW_SCHEMA.field(names.PARTITION)])
    found = options(address, topic="orders", partitions="1", endingOffsets='{"0": 1, "1": 2}')
    (task,) = plan_topic(found, client(found), found.query_range)
    (batch,) = read_task(task, schema, found.query_range)
    assert batch.to_pydict() == {names.OFFSET: [0, 1], names.PARTITION: [1, 1]}


# Pins.


def test_queries_of_a_while_share_one_pin_that_outlives_them(world, address):
    ours, other = {}, {}
    found = client(options(address, topic="orders"))
    pin(found, 600_000, 1_000_000_000, ours)
    pin(found, 600_000, 1_000_050_000, ours)
    assert world.requests == ["POST /export/pin"]
    pin(found, 600_000, 1_000_050_000, other)
    assert len(world.pins) == 1
    pin(found, 600_000, 1_000_120_000, ours)
    assert list(world.pins.values()) == [700_000, 700_000]


# Tables.


def read_table(address, job, wanted=None, **more):
    found = options(address, table="orders", **more)
    wanted = found.query_range if wanted is None else wanted
    table = open_table(found, job.catalog)
    return rows_of(plan_table(found, client(found), table, wanted), found.query_range)


def test_a_table_and_what_is_not_in_it_yet_have_each_record_once(world, tmp_path):
    with exported(world, tmp_path) as (address, job):
        world.commit("orders", {0: [some_records(5)]})
        found = read_table(address, job)
        assert places(found) == [(0, o) for o in range(65)] + [(1, o) for o in range(60)]
        values = {(r[names.PARTITION], r[names.OFFSET]): r[names.VALUE] for r in found}
        for number, log in enumerate(world.topics["orders"][1]):
            assert [values[number, one.offset] for one in log.wanted] == [
                one.value for one in log.wanted
            ]


def test_what_was_exported_comes_from_the_table_and_its_deletes_count(world, tmp_path):
    with exported(world, tmp_path, "table.partition.by=none") as (address, job):
        world.commit("orders", {1: [some_records(1)]})
        table = job.catalog.load_table(("frazil", "orders"))
        table.delete(f"{names.OFFSET} >= 10 and {names.PARTITION} = 0")
        assert places(read_table(address, job)) == (
            [(0, o) for o in range(10)] + [(1, o) for o in range(61)]
        )


def test_a_box_counts_for_table_and_chunks_alike(world, tmp_path):
    with exported(world, tmp_path) as (address, job):
        world.commit("orders", {p: [some_records(5, timestamp=NOW + 9000)] for p in range(2)})
        since = read_table(address, job, timestampFrom=str(NOW + 2000 + 40), partitions="1")
        assert places(since) == [(1, o) for o in range(40, 65)]
        query_range = QueryRange(frozenset({0}), 58, 62, micros_to=(NOW + 9001) * 1000)
        assert {(0, 58), (0, 59), (0, 60)} <= set(places(read_table(address, job, query_range)))
        assert read_table(address, job, QueryRange(frozenset())) == []


def test_a_partition_that_is_newer_than_the_table_is_read_from_its_start(world, tmp_path):
    with exported(world, tmp_path) as (address, job):
        world.topics["orders"][1].append(type(world.topics["orders"][1][0])())
        world.commit("orders", {2: [some_records(3)]})
        assert [place for place in places(read_table(address, job)) if place[0] == 2] == [
            (2, 0), (2, 1), (2, 2),
        ]  # fmt: skip


def test_a_table_that_is_behind_what_retention_left_is_an_error(world, tmp_path):
    with exported(world, tmp_path) as (address, job):
        world.commit("orders", {0: [some_records(5)]})
        world.topics["orders"][1][0].log_start = 62
        with pytest.raises(PlanError, match="offsets 60 to 61 are deleted"):
            read_table(address, job)
        assert len(read_table(address, job, failOnDataLoss="false")) == 123


def test_tables_of_others_and_none_are_refused(world, tmp_path):
    with exported(world, tmp_path) as (address, job):
        for name, error in (("none", CatalogError), ("frazil.none", CatalogError)):
            with pytest.raises(error, match=r"no table frazil\.none"):
                open_table(options(address, table=name), job.catalog)
        with pytest.raises(SettingsError, match="of topic orders"):
            read_table(address, job, topic="others")
        world.cluster_id = "cluster-b"
        with pytest.raises(StateError, match="made from cluster cluster-a"):
            read_table(address, job)


def test_reading_a_table_makes_no_warehouse_where_there_is_none(tmp_path):
    options = parse_options(
        {"table": "frazil.orders", "data": str(tmp_path / "typo")}, streaming=None
    )
    with pytest.raises(CatalogError, match=r"no warehouse .*typo/warehouse; say option"):
        open_options(options)
    assert not (tmp_path / "typo").exists()


def test_a_table_of_newest_records_is_refused_whatever_the_topic_says_by_now(world, tmp_path):
    world.configs["orders"] = {"mode": "upsert"}
    with exported(world, tmp_path) as (address, job):
        world.configs["orders"] = {"mode": "append"}
        with pytest.raises(SettingsError, match="newest record of each key"):
            read_table(address, job)


def test_a_table_of_all_records_is_read_whatever_the_topic_says_by_now(world, tmp_path):
    with exported(world, tmp_path) as (address, job):
        found = read_table(address, job)
        world.configs["orders"] = {"mode": "upsert"}
        assert read_table(address, job) == found


def test_a_table_with_decoded_columns_is_not_filled_up_with_raw_rows(world, tmp_path):
    with exported(world, tmp_path) as (address, job):
        world.configs["orders"] = {"value.mode": "json"}
        with pytest.raises(SettingsError, match="modes of topic orders are not those"):
            read_table(address, job)


def avro_orders(registry, **more):
    """Three orders of a new version of the schema, with `more` fields."""
    fields = [{"name": "id", "type": "int"}, *({"name": one, "type": "long"} for one in more)]
    schema = {"type": "record", "name": "Order", "fields": fields}
    number = registry.register("orders-value", schema)
    found = []
    for i in range(3):
        value = avro(number, schema, {"id": i, **more})
        found.append(Record(timestamp=NOW, key=b"k", value=value))
    return found


def decoded_rows(found, catalog):
    """What a query of these options shows of the table and what is not in it yet."""
    table = open_table(found, catalog)
    columns = columns_of(found, table, lambda: client(found))
    tasks = plan_table(found, client(found), table, found.query_range)
    batches = [b for task in tasks for b in read_task(task, columns, found.query_range)]
    return pa.Table.from_batches(batches).sort_by(names.OFFSET).to_pylist()


def test_what_is_not_exported_yet_is_decoded_also_into_columns_that_the_table_will_get(tmp_path):
    world, registry = World(tmp_path / "store"), FakeRegistry()
    world.create("orders", 1)
    world.configs["orders"] = {"value.mode": "avro"}
    world.commit("orders", {0: [avro_orders(registry)]})
    with (
        served(registry) as url,
        exported(world, tmp_path, f"schema.registry.url={url}") as (address, job),
    ):
        # The last one cannot be decoded: it will be a dead letter.
        later = [*avro_orders(registry, price=7), Record(timestamp=NOW, value=b"bad")]
        world.commit("orders", {0: [later]})
        found = options(address, table="orders", **{"schema.registry.url": url})
        rows = decoded_rows(found, job.catalog)
        assert [(row[names.OFFSET], row["id"], row["price"]) for row in rows] == [
            (0, 0, None), (1, 1, None), (2, 2, None), (3, 0, 7), (4, 1, 7), (5, 2, 7),
        ]  # fmt: skip


def test_columns_that_people_dropped_or_renamed_are_so_in_what_is_not_exported_yet(tmp_path):
    world, registry = World(tmp_path / "store"), FakeRegistry()
    world.create("orders", 1)
    world.configs["orders"] = {"value.mode": "avro"}
    fields = [{"name": name, "type": "int"} for name in ("a", "b", "c")]
    one = registry.register("orders-value", {"type": "record", "name": "R", "fields": fields[:2]})
    first = {"type": "record", "name": "R", "fields": fields[:2]}
    world.commit("orders", {0: [[Record(value=avro(one, first, {"a": 1, "b": 2}))]]})
    with served(registry) as url, exported(world, tmp_path, f"schema.registry.url={url}") as given:
        address, job = given
        with job.catalog.load_table(("frazil", "orders")).update_schema() as update:
            update.delete_column("a")
            update.rename_column("b", "bee")
        second = {"type": "record", "name": "R", "fields": fields}
        two = registry.register("orders-value", second)
        world.commit("orders", {0: [[Record(value=avro(two, second, {"a": 1, "b": 3, "c": 4}))]]})
        found = options(address, table="orders", **{"schema.registry.url": url})
        rows = decoded_rows(found, job.catalog)
    assert [(row.get("a"), row["bee"], row["c"]) for row in rows] == [(None, 2, None), (None, 3, 4)]


def test_a_message_that_the_table_has_no_columns_for_yet_is_an_error_with_its_cure(tmp_path):
    world, registry = World(tmp_path / "store"), FakeRegistry()
    world.create("orders", 1)
    world.configs["orders"] = {"value.mode": "protobuf"}
    text = 'syntax = "proto3"; message A { int32 a = 1; } message B { int32 b = 1; }'
    registry.register("orders-value", "no schema at all", "PROTOBUF")
    number = registry.register("orders-value", text, "PROTOBUF")

    def send(*paths):
        sent = [Record(timestamp=NOW, value=frame(number, b"\x08\x05", path)) for path in paths]
        world.commit("orders", {0: [sent]})

    send((0,))
    with (
        served(registry) as url,
        exported(world, tmp_path, f"schema.registry.url={url}") as (address, job),
    ):
        send((0,), (1,))
        found = options(address, table="orders", **{"schema.registry.url": url})
        with pytest.raises(PlanError, match=r"message \[1\] of schema 2 .* export the topic first"):
            decoded_rows(found, job.catalog)
        export_topic(job, *job.client.topics().topics)
        send((1,))
        rows = decoded_rows(found, job.catalog)
        assert [(row["a"], row["b"]) for row in rows] == [(5, None)] * 2 + [(None, 5)] * 2


# Streams.


def stream_of(address: str, **more: str):
    found = options(address, topic="orders", streaming=True, **more)
    return Stream(found), client(found), found


def test_a_stream_reads_each_record_once_batch_by_batch(world, address):
    stream, agents, found = stream_of(address, startingOffsets="earliest")
    start = stream.initial(stream.fetch_bounds(agents))
    seen = []
    for _ in range(3):
        end = stream.latest(stream.fetch_bounds(agents))
        seen += rows_of(stream.tasks(agents, start, end), found.query_range)
        start = end
        world.commit("orders", {1: [some_records(4)]})
    assert places(seen) == [(0, o) for o in range(60)] + [(1, o) for o in range(68)]


def test_a_stream_begins_at_the_end_unless_it_is_told_otherwise(address):
    stream, agents, _ = stream_of(address)
    assert stream.initial(stream.fetch_bounds(agents))["offsets"] == {"0": 60, "1": 60}
    stream, agents, _ = stream_of(address, startingOffsets='{"0": 7, "1": -1}')
    assert stream.initial(stream.fetch_bounds(agents))["offsets"] == {"0": 7, "1": 60}


def test_a_batch_of_a_stream_is_as_small_as_was_asked_for(address):
    stream, agents, found = stream_of(
        address, startingOffsets="earliest", maxOffsetsPerTrigger="50"
    )
    start = stream.initial(stream.fetch_bounds(agents))
    sizes = []
    while (end := stream.latest(stream.fetch_bounds(agents))) != start:
        sizes.append(len(rows_of(stream.tasks(agents, start, end), found.query_range)))
        start = end
    assert sizes == [50, 50, 20]


def test_a_batch_planned_again_after_a_restart_has_the_same_records(world, address):
    stream, agents, _ = stream_of(address, startingOffsets="earliest")
    start = stream.initial(stream.fetch_bounds(agents))
    end = stream.latest(stream.fetch_bounds(agents))
    world.commit("orders", {0: [some_records(4)]})
    again, agents, found = stream_of(address, startingOffsets="earliest")
    assert len(rows_of(again.tasks(agents, start, end), found.query_range)) == 120
    assert again.latest(again.fetch_bounds(agents))["offsets"] == {"0": 64, "1": 60}


def test_a_partition_that_comes_while_a_stream_runs_is_read_from_its_start(world, address):
    stream, agents, found = stream_of(address)
    start = stream.initial(stream.fetch_bounds(agents))
    world.topics["orders"][1].append(type(world.topics["orders"][1][0])())
    world.commit("orders", {2: [some_records(3)]})
    end = stream.latest(stream.fetch_bounds(agents))
    assert places(rows_of(stream.tasks(agents, start, end), found.query_range)) == [
        (2, 0), (2, 1), (2, 2),
    ]  # fmt: skip


def test_a_stream_does_not_go_on_in_another_topic_of_the_name(world, address):
    stream, agents, _ = stream_of(address, startingOffsets="earliest")
    start = stream.initial(stream.fetch_bounds(agents))
    end = stream.latest(stream.fetch_bounds(agents))
    world.topics["orders"] = ("f" * 32, world.topics["orders"][1])
    with pytest.raises(PlanError, match="deleted and created again"):
        stream.tasks(agents, start, end)
    for log in world.topics["orders"][1]:
        log.spans.clear()
        log.end = 0
    with pytest.raises(PlanError, match="the stream already stands at"):
        stream.latest(stream.fetch_bounds(agents))


@given(
    st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 50), st.integers(0, 50))),
    st.integers(1, 100),
)
@example({0: (0, 1), 1: (0, 1), 2: (0, 4)}, 3)
@example({0: (0, 1), 1: (0, 1)}, 1)
def test_a_limited_batch_moves_every_partition_that_has_something_and_none_too_far(logs, limit):
    starts = {number: start for number, (start, _) in logs.items()}
    ends = {number: start + size for number, (start, size) in logs.items()}
    found = limited(starts, ends, limit)
    assert found.keys() == ends.keys()
    for number, end in found.items():
        assert starts[number] <= end <= ends[number]
        assert (end > starts[number]) == (ends[number] > starts[number])
    assert sum(found.values()) - sum(starts.values()) <= max(limit, len(logs))
