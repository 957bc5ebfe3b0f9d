"""What Spark sees: `spark.read.format("frazil")` and `spark.readStream.format("frazil")`.

    from iceberg_export.source.data_source import register

    register(spark)
    spark.read.format("frazil").option("agent", "http://host:9094").option("topic", "orders").load()

Filters are told to us only on request (`pushFilters`): Spark 4.1 keeps the first plan that a
DataFrame gets, with the filters pushed into it, for all that is done with that DataFrame later, and
so gives too few rows without a word. Options that say what to read are safe, and so are plans
kept without filters: two queries over one DataFrame see the same records.

Spark makes these objects in Python workers of its own, pickles them, and never tells them that a
query has ended: so nothing here is kept but options, and pins end by themselves. It is the
composition root of this package: clocks are read here.
"""

import datetime as dt
import time
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.datasource import Filter as SparkFilter
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from typing_extensions import override

from iceberg_export.errors import SettingsError
from iceberg_export.plan.agent_client import ROUNDS, ROUNDS_OF_STREAMS, AgentClient
from iceberg_export.plan.splits import TopicPlan
from iceberg_export.plan.trust import pinned_store
from iceberg_export.source.filters import Filter, narrow_range
from iceberg_export.source.one_sentence import each_in_one_sentence, one_sentence
from iceberg_export.source.planning import pin, plan_topic
from iceberg_export.source.read_options import KEEP, ReadOptions, parse_options
from iceberg_export.source.streaming import Stream
from iceberg_export.source.tasks import CORRUPT, CORRUPT_TYPE, Task
from iceberg_export.source.topics import TopicColumns, TopicDecoding, topic_columns
from iceberg_export.tls_files import AGENT, TlsFiles

TOPIC_SCHEMA = StructType(
    [
        StructField("kafka_partition", IntegerType()),
        StructField("kafka_offset", LongType()),
        StructField("kafka_timestamp", TimestampType()),
        StructField("kafka_timestamp_type", IntegerType()),
        StructField("kafka_key", BinaryType()),
        StructField(
            "kafka_headers",
            ArrayType(
                StructType([StructField("key", StringType()), StructField("value", BinaryType())])
            ),
        ),
        StructField("kafka_timestamp_raw", LongType()),
        StructField("value", BinaryType()),
    ]
)
"""`rows.ROW_SCHEMA`, written out: to load that module, and its compiler, takes longer than a plan."""
ASK_S = 0.25
"""Agents are asked so often what is new, however often Spark comes."""
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

_clients: dict[tuple[object, ...], AgentClient] = {}
"""By settings: those of this worker, which know who did not answer."""
_pinned: dict[str, dict[str, int]] = {}
"""By agents: the pin that this worker has asked for last."""


class TaskPartition(InputPartition):
    """One task of a query."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)


class FrazilDataSource(DataSource):
    """The format `frazil`."""

    @classmethod
    @override
    def name(cls) -> str:
        return "frazil"

    _query_columns: "_QueryColumns | None" = None
    """Spark asks for columns, and then for a reader of this object or of a pickled one."""

    @override
    @one_sentence
    def schema(self) -> StructType:
        self._query_columns = _columns(parse_options(self.options, streaming=None))
        return self._query_columns.schema

    @override
    @one_sentence
    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(self.options, streaming=False)
        topic = self._checked(options, schema)
        return (PushingReader if options.push_filters else FrazilReader)(options, schema, topic)

    @override
    @one_sentence
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = parse_options(self.options, streaming=True)
        return FrazilStreamReader(options, schema, self._checked(options, schema))

    def _checked(self, options: ReadOptions, schema: StructType) -> TopicColumns | None:
        """A schema that the user gave must be a part of ours. Raises SettingsError."""
        if self._query_columns is None:
            self._query_columns = _columns(options)
        ours = {field.name: field for field in self._query_columns.schema.fields}
        for field in schema.fields:
            if field.name not in ours:
                raise SettingsError(
                    f"there is no column {field.name}; columns are {', '.join(ours)}"
                )
            if field.dataType != ours[field.name].dataType:
                raise SettingsError(
                    f"column {field.name} is {ours[field.name].dataType.simpleString()}, "
                    f"not {field.dataType.simpleString()}"
                )
        return self._query_columns.topic


class _QueryColumns(NamedTuple):
    """The columns of a query, as they were when it was loaded."""

    schema: StructType
    topic: TopicColumns | None = None
    """Of a topic alone whose keys or values are decoded."""


def spark_schema(columns: pa.Schema) -> StructType:
    """Returns Arrow's columns as Spark has them, all optional: a missing one is null."""
    found = from_arrow_schema(columns)
    for field in found.fields:
        field.nullable = True
    return found


def _columns(options: ReadOptions) -> _QueryColumns:
    if options.table:
        from iceberg_export.source.tables import columns_of, open_options

        columns = columns_of(options, open_options(options), lambda: _client(options))
        return _QueryColumns(spark_schema(columns))
    topic = topic_columns(options, _client(options))
    corrupt = [pa.field(CORRUPT, CORRUPT_TYPE)] if options.mode == KEEP else []
    if topic is None:
        more = spark_schema(pa.schema(corrupt)).fields
        return _QueryColumns(StructType([*TOPIC_SCHEMA.fields, *more]))
    return _QueryColumns(spark_schema(pa.schema([*topic.columns, *corrupt])), topic)


def _client(options: ReadOptions, rounds: int = ROUNDS) -> AgentClient:
    known = (rounds, *sorted(options.settings.values.items()))
    client = _clients.get(known) or _new_client(options, rounds)
    _clients[known] = client
    pin(
        client,
        options.settings.number("pin.lifetime.ms"),
        int(time.time() * 1000),  # noqa: TID251 - composition root.
        _pinned.setdefault(options.settings["agent"], {}),
    )
    return client


def _new_client(options: ReadOptions, rounds: int) -> AgentClient:
    return AgentClient(
        options.settings.agents,
        timeout_ms=options.settings.number("agent.timeout.ms"),
        sleep=time.sleep,
        store=pinned_store(options.settings.values),
        token=options.settings.agent_token,
        context=TlsFiles(options.settings.values, AGENT).context,
        rounds=rounds,
    )


class FrazilReader(DataSourceReader):
    """One query over what is there now."""

    def __init__(
        self, options: ReadOptions, schema: StructType, topic: TopicColumns | None
    ) -> None:
        self._options = options
        self._schema = schema
        self._topic = topic
        self._query_range = options.query_range

    @override
    @one_sentence
    def partitions(self) -> list[InputPartition]:
        options = self._options
        if options.table:
            from iceberg_export.source.tables import open_options, plan_table

            # Before the agent is asked: the log then reaches at least as far as the table.
            table = open_options(options)
            tasks = plan_table(options, _client(options), table, self._query_range)
        else:
            decide = TopicDecoding(options, self._topic, partial(_client, options))
            tasks = plan_topic(options, _client(options), self._query_range, decide)
        return [TaskPartition(task) for task in tasks]

    @override
    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        if partition is None:  # Spark's way to say that there are no partitions.
            return iter(())
        return _read(partition, self._schema, self._options)


class PushingReader(FrazilReader):
    """Leaves out what filters exclude; Spark applies them again, so all go back to it."""

    @override
    def pushFilters(self, filters: list[SparkFilter]) -> list[SparkFilter]:
        found = [Filter(type(one).__name__, *_terms(one)) for one in filters]
        self._query_range = narrow_range(found, self._options.query_range)
        return filters


def _terms(one: SparkFilter) -> tuple[tuple[str, ...], Any]:
    """Returns column and value of a filter; nothing of one that has other parts."""
    value = getattr(one, "value", None)
    values = [_plain(part) for part in value] if isinstance(value, list | tuple) else _plain(value)
    return getattr(one, "attribute", ()), values


def _plain(value: Any) -> Any:
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        # Whole microseconds: a float of seconds would round them.
        return (value - _EPOCH) // dt.timedelta(microseconds=1)
    return value


class FrazilStreamReader(DataSourceStreamReader):
    """A query that goes on; where it stands is in Spark's checkpoint."""

    def __init__(
        self, options: ReadOptions, schema: StructType, topic: TopicColumns | None
    ) -> None:
        self._options = options
        self._schema = schema
        self._stream = Stream(options, TopicDecoding(options, topic, partial(_client, options)))
        self._asked_s = float("-inf")

    @override
    @one_sentence
    def initialOffset(self) -> dict[str, Any]:
        return self._stream.initial(self._fetch_bounds())

    @override
    @one_sentence
    def latestOffset(self) -> dict[str, Any]:
        return self._stream.latest(self._fetch_bounds())

    @override
    @one_sentence
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        tasks = self._stream.tasks(self._agents(), start, end)
        return [TaskPartition(task) for task in tasks]

    def _fetch_bounds(self) -> TopicPlan:
        """Fetches where the topic begins and ends. Spark comes every 10 ms when there is nothing new."""
        wait_s = self._asked_s + ASK_S - time.monotonic()  # noqa: TID251 - composition root.
        if wait_s > 0:
            time.sleep(wait_s)
        self._asked_s = time.monotonic()  # noqa: TID251
        return self._stream.fetch_bounds(self._agents())

    def _agents(self) -> AgentClient:
        return _client(self._options, ROUNDS_OF_STREAMS)

    @override
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._schema, self._options)


def _read(
    partition: InputPartition, schema: StructType, options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    # Only tasks need the decoder, and what compiles it.
    from iceberg_export.source.reading import read_task

    batches = read_task(partition.value, to_arrow_schema(schema), options.query_range)
    return each_in_one_sentence(batches)


def register(spark: Any) -> None:
    """Make `format("frazil")` known to a Spark session."""
    spark.dataSource.register(FrazilDataSource)
