"""The newest record of each key, against a dictionary; and the query that finds the same."""

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg_export import names
from iceberg_export.table.latest_view import create_view_statement, latest_query
from iceberg_export.upsert.newest_records import (
    KEY_BYTES,
    TOMBSTONE,
    last_in_partition,
    newest_rows,
)

KEYS = st.sampled_from([b"", b"a", b"b", b"c", bytes(200)])
TIMES = st.none() | st.integers(-3, 3)


@st.composite
def partitions(draw, count=3):
    """Records of some partitions: (partition, offset, timestamp, key, value), holes between."""
    found = []
    for partition in range(count):
        offset = 0
        for key, time, value in draw(
            st.lists(st.tuples(KEYS, TIMES, st.none() | st.just(b"v")), max_size=8)
        ):
            offset += draw(st.integers(1, 3))
            found.append((partition, offset, time, key, value))
    return found


def table_of(records):
    columns = list(zip(*records, strict=True)) or [()] * 5
    return pa.table(
        {
            names.PARTITION: pa.array(columns[0], pa.int32()),
            names.OFFSET: pa.array(columns[1], pa.int64()),
            names.TIMESTAMP: pa.array(columns[2], pa.timestamp("us", "UTC")),
            KEY_BYTES: pa.array(columns[3], pa.large_binary()),
            names.KEY: pa.array(columns[3], pa.large_binary()),
            names.VALUE: pa.array(columns[4], pa.large_binary()),
            TOMBSTONE: pa.array([value is None for value in columns[4]], pa.bool_()),
        }
    )


def wanted(records):
    """As a person would say it: dictionaries that later records overwrite."""
    last = {}
    for record in sorted(records):
        last[record[3], record[0]] = record
    best = {}
    for record in last.values():
        rank = (record[2] is not None, record[2] or 0, record[0])
        if record[3] not in best or rank > best[record[3]][0]:
            best[record[3]] = (rank, record)
    return sorted(record[:2] for _rank, record in best.values() if record[4] is not None)


def places(table):
    return list(
        zip(
            table.column(names.PARTITION).to_pylist(),
            table.column(names.OFFSET).to_pylist(),
            strict=True,
        )
    )


def test_a_key_without_a_record_in_it_is_another_than_one_whose_record_has_no_values():
    """As Avro has them: `a` is null, or a record whose only field is null."""
    keys = pa.struct([("a", pa.struct([("b", pa.int32())]))])
    sent = [{"a": None}, {"a": {"b": None}}, {"a": {"b": 1}}]
    records = [(0, offset, 0, b"", b"v") for offset in range(2 * len(sent))]
    table = table_of(records).drop_columns([names.KEY])
    table = table.append_column(names.KEY, pa.array(2 * sent, keys))
    kept = table.take(newest_rows(table))
    assert kept.column(names.OFFSET).to_pylist() == [3, 4, 5]
    assert kept.column(names.KEY).to_pylist() == sent


@settings(deadline=None)
@given(records=partitions(), seed=st.integers(0, 1000))
def test_the_newest_record_of_each_key_is_found_whatever_the_order(records, seed):
    table = table_of(records)
    shuffled = table.take(pa.array(np.random.default_rng(seed).permutation(len(records))))
    assert places(shuffled.take(pa.array(newest_rows(shuffled)))) == wanted(records)


@settings(deadline=None)
@given(records=partitions(count=1), cut=st.integers(0, 8))
def test_of_one_partition_exports_in_steps_end_where_one_export_does(records, cut):
    """What was kept and what is new, merged, is what all of it at once gives."""
    kept = table_of(records[:cut])
    kept = kept.take(pa.array(newest_rows(kept)))
    merged = pa.concat_tables([kept, table_of(records[cut:])])
    assert places(merged.take(pa.array(newest_rows(merged)))) == wanted(records)


@settings(deadline=None)
@given(records=partitions(), cut=st.integers(0, 24))
def test_pieces_may_be_reduced_before_they_are_merged(records, cut):
    pieces = [table_of(records[:cut]), table_of(records[cut:])]
    merged = pa.concat_tables([last_in_partition(piece) for piece in pieces])
    assert places(merged.take(pa.array(newest_rows(merged)))) == wanted(records)


@pytest.fixture(scope="module")
def duck():
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection


@settings(deadline=None, max_examples=50)
@given(records=partitions())
def test_the_view_over_an_append_table_shows_what_upsert_keeps(duck, records):
    every = table_of(records).select(
        [names.PARTITION, names.OFFSET, names.TIMESTAMP, names.KEY, names.VALUE]
    )
    duck.register("every_record", every)
    query = latest_query(["every_record"], every.column_names, "duckdb")
    found = duck.execute(f"{query} ORDER BY kafka_partition, kafka_offset").fetchall()
    assert [row[:2] for row in found] == wanted(records)


def test_the_view_of_a_typed_table_takes_rows_of_nulls_for_deletions(duck):
    table = pa.table(
        {
            names.PARTITION: [0, 0, 0],
            names.OFFSET: [0, 1, 2],
            names.TIMESTAMP: pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
            names.KEY: ["gone", "stays", "gone"],
            'odd "name"': [1, 2, None],
            "kafka_value_schema_id": pa.array([7, None, None], pa.int32()),
        }
    )
    duck.register("every_record", table)
    query = latest_query(["every_record"], table.column_names, "duckdb")
    assert [row[3:] for row in duck.execute(query).fetchall()] == [("stays", 2, None)]


NAMES = ["plain", "select", "with space", "a.b", 'quo"te', "back`tick", "'; DROP TABLE t; --", "é"]


@pytest.mark.parametrize("name", NAMES)
def test_a_view_of_any_name_has_the_columns_of_any_names(duck, name):
    table = pa.table(
        {
            names.PARTITION: [0, 0],
            names.OFFSET: [0, 1],
            names.TIMESTAMP: pa.array([1, 2], pa.timestamp("us", "UTC")),
            names.KEY: ["k", "k"],
            f"column {name}": [1, 2],
            "frazil_last": [3, 3],
            "Frazil_Newest": [4, 4],
        }
    )
    space, enclosed = name.replace('"', '""'), f"table {name}".replace('"', '""')
    duck.register("given", table)
    duck.execute(f'CREATE SCHEMA "{space}"')
    duck.execute(f'CREATE TABLE "{space}"."{enclosed}" AS FROM given')
    duck.execute(create_view_statement([name, f"table {name}"], table.column_names, "duckdb"))
    found = duck.execute(f'FROM "{space}"."{enclosed}_latest"').fetchall()
    assert [row[3:] for row in found] == [("k", 2, 3, 4)]


def test_the_statement_for_spark_quotes_as_spark_does():
    named = ["lake", "fra`zil", "or.ders"]
    text = create_view_statement(named, ["kafka_key", "value", "a`b"], "spark")
    assert text.startswith(
        "CREATE OR REPLACE VIEW `lake`.`fra``zil`.`or.ders_latest` AS\n"
        "SELECT `kafka_key`, `value`, `a``b`"
    )
    assert "FROM `lake`.`fra``zil`.`or.ders` every" in text
    assert "(`value` IS NOT NULL OR `a``b` IS NOT NULL)" in text
