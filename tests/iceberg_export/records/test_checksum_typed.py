"""The checksum of typed columns: the same for the same values, however they lie in memory."""

import pyarrow as pa
import pytest

from iceberg_export.records.checksum import row_hashes
from iceberg_export.records.rows import ROW_SCHEMA

COUNT = 3


def hashes(column):
    plain = {
        "kafka_partition": pa.array([0] * COUNT, pa.int32()),
        "kafka_offset": pa.array([7] * COUNT, pa.int64()),
        "kafka_timestamp": pa.nulls(COUNT, pa.timestamp("us", "UTC")),
        "kafka_timestamp_type": pa.array([0] * COUNT, pa.int32()),
        "kafka_headers": pa.array([[]] * COUNT, ROW_SCHEMA.field("kafka_headers").type),
        "kafka_timestamp_raw": pa.nulls(COUNT, pa.int64()),
    }
    return row_hashes(pa.table({**plain, "c": column})).tolist()


STRUCT = pa.struct([("x", pa.int32()), ("y", pa.large_string())])
CASES = {
    "bool": (pa.bool_(), [True, False, None]),
    "int": (pa.int32(), [0, 1, None]),
    "float": (pa.float32(), [0.0, 1.5, None]),
    "double": (pa.float64(), [0.0, float("nan"), None]),
    "text": (pa.large_string(), ["", "a", None]),
    "bytes": (pa.large_binary(), [b"", b"a", None]),
    "fixed": (pa.binary(2), [b"\0\0", b"ab", None]),
    "decimal": (pa.decimal128(6, 2), [0, 1, None]),
    "date": (pa.date32(), [0, -1, None]),
    "time": (pa.time64("us"), [0, 1, None]),
    "timestamp": (pa.timestamp("us"), [0, -1, None]),
    "struct": (STRUCT, [{"x": None, "y": None}, {"x": 1, "y": ""}, None]),
    "list": (pa.large_list(pa.int64()), [[], [None], None]),
    "lists": (pa.large_list(pa.large_list(pa.int64())), [[[]], [[1], [2]], [[1, 2]]]),
    "structs": (pa.large_list(STRUCT), [[], [None], None]),
    "map": (pa.map_(pa.large_string(), pa.int64()), [[], [("a", 1)], None]),
}


@pytest.mark.parametrize("name", CASES)
def test_values_null_and_empty_all_differ_and_a_slice_is_what_it_shows(name):
    kind, values = CASES[name]
    column = pa.array(values, kind)
    found = hashes(column)
    assert len(set(found)) == COUNT
    padded = pa.concat_arrays([column, column, column]).slice(COUNT, COUNT)
    assert hashes(padded) == found
    for row in range(COUNT):
        moved = column.take(pa.array([*range(row, COUNT), *range(row)]))
        assert hashes(moved) == found[row:] + found[:row]


def test_what_lies_under_a_null_does_not_count():
    inner = pa.array([1, 2, 3], pa.int32())
    texts = pa.array(["a", "b", "c"], pa.large_string())
    under = pa.StructArray.from_arrays(
        [inner, texts], fields=list(STRUCT), mask=pa.array([False, True, False])
    )
    clean = pa.array([{"x": 1, "y": "a"}, None, {"x": 3, "y": "c"}], STRUCT)
    assert hashes(under) == hashes(clean)


def test_the_order_counts_in_lists_and_not_in_maps():
    kind = pa.map_(pa.large_string(), pa.int64())
    one, two, three = hashes(
        pa.array([[("a", 1), ("b", 2)], [("b", 2), ("a", 1)], [("a", 2), ("b", 1)]], kind)
    )
    assert one == two != three
    first, second, _ = hashes(pa.array([[1, 2], [2, 1], []], pa.large_list(pa.int64())))
    assert first != second
