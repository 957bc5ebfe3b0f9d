"""Engines that read tables and share no code with what writes them, asked the same questions.

An engine is a dialect (how it writes the few functions that differ) and a means to run a query on
the table that a metadata file describes. Answers are rows of integers and text: binary values as
hexadecimal, headers as one text, timestamps as microseconds. DuckDB runs in this process, Spark
in the tests' own session, ClickHouse (chDB) in a process of its own, since it brings half a
gigabyte of code and its own allocator; PyIceberg's reader is none of what the exporter reads by;
Trino is a server (`tests.parts.trino`).
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from pyiceberg.table import StaticTable

from tests.iceberg_export.kit.world import World
from tests.parts.trino import TrinoServer

Rows = list[tuple[Any, ...]]

COLUMNS = (
    "kafka_partition, kafka_offset, {micros}, kafka_timestamp_type, {hex}(kafka_key), {headers}, "
    "kafka_timestamp_raw, {hex}(value)"
)


class Dialect(NamedTuple):
    micros: str
    """Of kafka_timestamp, since 1970."""
    hex: str
    headers: str
    """All headers of a record, in order, as `key=HEX,key=-` (a header without value)."""
    instant: str
    """A literal, from text such as 2026-11-22 00:00:00."""
    size: str
    """Of a list; 0 for none."""
    last: str
    """A field of the last struct of a list."""
    member: str = "{}.{}"
    """A field of a struct column."""
    element: str = "{}['{}']"
    """Of a map, by its key."""
    text: str = "VARCHAR"
    """A type."""
    millis: str = "epoch_ms({})"
    """Of a timestamp, since 1970."""
    bytes: str = "hex({})"
    """As hexadecimal."""

    def say(self, text: str) -> str:
        """The text with what stands in braces in this dialect: `{member:who,name}`, `{hex}`."""
        found = re.sub(
            r"\{(\w+):([^}]+)\}",
            lambda one: getattr(self, one[1]).format(*one[2].split(",")),
            text,
        )
        for name in ("micros", "hex", "headers", "text"):
            found = found.replace(f"{{{name}}}", getattr(self, name))
        return found


DUCKDB = Dialect(
    micros="epoch_us(kafka_timestamp)",
    hex="hex",
    headers="coalesce(array_to_string(list_transform(kafka_headers, "
    "lambda h: h.key || '=' || coalesce(hex(h.value), '-')), ','), '')",
    instant="TIMESTAMPTZ '{}+00'",
    size="coalesce(len({}), 0)",
    last="{}[-1].{}",
)
CLICKHOUSE = Dialect(
    micros="toUnixTimestamp64Micro(kafka_timestamp)",
    hex="hex",
    headers="arrayStringConcat(arrayMap(h -> concat(h.key, '=', ifNull(hex(h.value), '-')), "
    "kafka_headers), ',')",
    instant="toDateTime64('{}', 6, 'UTC')",
    size="length({})",
    last="if(empty({0}), NULL, tupleElement({0}[-1], '{1}'))",
    # `who.name` is refused by 26.9 when there are files older than the column `who`.
    member="tupleElement({}, '{}')",
)
SPARK = Dialect(
    micros="unix_micros(kafka_timestamp)",
    hex="hex",
    headers="array_join(transform(kafka_headers, "
    "h -> concat(h.key, '=', coalesce(hex(h.value), '-'))), ',')",
    instant="TIMESTAMP '{}'",
    size="coalesce(size({}), 0)",
    last="try_element_at({}, -1).{}",
    text="STRING",
    millis="unix_millis({})",
)
TRINO = Dialect(
    micros="1000 * date_diff('millisecond', TIMESTAMP '1970-01-01 00:00:00 UTC', kafka_timestamp)"
    " + CAST(date_format(kafka_timestamp, '%f') AS bigint) % 1000",
    hex="to_hex",
    headers="array_join(transform(kafka_headers, "
    "h -> concat(h.key, '=', coalesce(to_hex(h.value), '-'))), ',')",
    instant="TIMESTAMP '{} UTC'",
    size="coalesce(cardinality({}), 0)",
    last="element_at({}, -1).{}",
    millis="date_diff('millisecond', TIMESTAMP '1970-01-01 00:00:00 UTC', {})",
    bytes="to_hex({})",
)


class Engine(NamedTuple):
    """`ask(metadata file, query)`, in which {table} stands for the table."""

    dialect: Dialect
    ask: Callable[[Path, str], Rows]

    def rows(self, metadata: Path, where: str = "true", more: str = "") -> Rows:
        """The rows in order of (partition, offset); `more` are columns beside Kafka's own."""
        query = f"SELECT {COLUMNS}{more} FROM {{table}} WHERE {where} ORDER BY 1, 2"
        return self.ask(metadata, self.dialect.say(query))

    def summary(self, metadata: Path) -> Rows:
        """What an aggregate says of each partition."""
        query = (
            "SELECT kafka_partition, count(*), count(DISTINCT kafka_offset), min(kafka_offset), "
            "max(kafka_offset), sum(kafka_offset), count(kafka_key), count(value), "
            "min({micros}), max({micros}) FROM {table} GROUP BY 1 ORDER BY 1"
        )
        return self.ask(metadata, self.dialect.say(query))

    def instant(self, text: str) -> str:
        return self.dialect.instant.format(text)

    def member(self, column: str, field: str) -> str:
        return self.dialect.member.format(column, field)


def duckdb_engine(connection: Any) -> Engine:
    def ask(metadata: Path, query: str) -> Rows:
        table = f"iceberg_scan('{metadata}')"
        return connection.execute(query.replace("{table}", table)).fetchall()

    return Engine(DUCKDB, ask)


def pyiceberg_engine(connection: Any) -> Engine:
    """PyIceberg's own reader; DuckDB only asks what it has read."""

    def ask(metadata: Path, query: str) -> Rows:
        connection.register(
            "read_by_pyiceberg", StaticTable.from_metadata(str(metadata)).scan().to_arrow()
        )
        return connection.execute(query.replace("{table}", "read_by_pyiceberg")).fetchall()

    return Engine(DUCKDB, ask)


def spark_engine(session: Any) -> Engine:
    def ask(metadata: Path, query: str) -> Rows:
        session.read.format("iceberg").load(str(metadata)).createOrReplaceTempView("readers")
        return [tuple(row) for row in session.sql(query.replace("{table}", "readers")).collect()]

    return Engine(SPARK, ask)


_CHDB = "import chdb, sys; print(chdb.query(sys.stdin.read(), 'JSONCompactEachRow'))"


def clickhouse_engine() -> Engine:
    """Finds the newest metadata file of the table's folder by itself."""

    def ask(metadata: Path, query: str) -> Rows:
        folder = metadata.parent.parent
        table = f"icebergLocal('{folder}/')"
        said = subprocess.run(
            [sys.executable, "-c", _CHDB],
            input=query.replace("{table}", table)
            + " SETTINGS output_format_json_quote_64bit_integers = 0, "
            "optimize_functions_to_subcolumns = 0",
            # It reads files below its current folder only.
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert said.returncode == 0, said.stderr
        return [tuple(json.loads(line)) for line in said.stdout.splitlines() if line]

    return Engine(CLICKHOUSE, ask)


def trino_engine(server: TrinoServer) -> Engine:
    """A metadata file is made known to the server when it is first asked about."""
    names: dict[Path, str] = {}

    def ask(metadata: Path, query: str) -> Rows:
        if metadata not in names:
            names[metadata] = server.register(metadata)
        return server.query(query.replace("{table}", names[metadata]))

    return Engine(TRINO, ask)


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex().upper()


def wanted_rows(world: World, topic: str) -> Rows:
    """What `Engine.rows` must answer: the committed records of the topic."""
    rows: Rows = []
    for partition, log in enumerate(world.topics[topic][1]):
        for one in log.wanted:
            headers = ",".join(
                f"{key}={_hex(value) or '-' * (value is None)}" for key, value in one.headers
            )
            rows.append(
                (
                    partition,
                    one.offset,
                    one.timestamp * 1000,
                    0,
                    _hex(one.key),
                    headers,
                    None,
                    _hex(one.value),
                )
            )
    return rows


def wanted_summary(rows: Rows) -> Rows:
    """What `Engine.summary` must answer for a table of these rows."""
    found: Rows = []
    for partition in sorted({row[0] for row in rows}):
        own = [row for row in rows if row[0] == partition]
        offsets = [row[1] for row in own]
        found.append(
            (
                partition,
                len(own),
                len(set(offsets)),
                min(offsets),
                max(offsets),
                sum(offsets),
                sum(row[4] is not None for row in own),
                sum(row[7] is not None for row in own),
                min(row[2] for row in own),
                max(row[2] for row in own),
            )
        )
    return found
