"""Tables are sorted as their topics say, within each row group, whoever writes a file."""

from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.transforms import IdentityTransform

from iceberg_export.errors import SettingsError
from iceberg_export.files.sort_rows import SortColumn, sort_rows
from iceberg_export.table.sort_order import SORTED_BY
from iceberg_export.upkeep.compact import CLOSED_MS, compact
from tests.iceberg_export.kit.place import FAR, NOW_MS, TABLE
from tests.iceberg_export.kit.registry import ORDER_2, avro

CITIES = ["Ulm", "Bonn", "Aachen", "Ulm", "Bonn", "Ulm"]
PRICES = [2.5, None, 1.0, 7.0, 3.0, None]


def send(here, registry):
    schema_id = registry.register("orders-value", ORDER_2)
    first = here.log().end
    here.send(*(
        avro(schema_id, ORDER_2, {"id": first + n, "city": city, "price": price})
        for n, (city, price) in enumerate(zip(CITIES, PRICES, strict=True))
    ))  # fmt: skip


def in_file(here, *columns):
    """Rows of the one file, as they lie there."""
    (path,) = here.live_files()
    return [tuple(row.values()) for row in pq.read_table(path, columns=list(columns)).to_pylist()]


def test_rows_lie_in_the_order_that_the_topic_says_nulls_first_rising_and_last_falling(
    here, registry
):
    here.configure(value_mode="avro", sort_order="city, desc(price)")
    send(here, registry)
    here.export()
    assert in_file(here, "city", "price") == [
        ("Aachen", 1.0), ("Bonn", 3.0), ("Bonn", None), ("Ulm", 7.0), ("Ulm", 2.5), ("Ulm", None),
    ]  # fmt: skip
    assert str(here.table().sort_order()).splitlines()[1:3] == [
        "  10 ASC NULLS FIRST",
        "  11 DESC NULLS LAST",
    ]
    assert here.verify().problems == ()


def test_nulls_come_first_where_values_rise_and_equal_rows_stay_in_order(here, registry):
    here.configure(value_mode="avro", sort_order="price")
    send(here, registry)
    here.export()
    assert [offset for (offset,) in in_file(here, "kafka_offset")] == [1, 5, 2, 0, 4, 3]


def test_a_field_of_a_struct_and_a_table_of_bytes_are_sorted_as_well(here, registry):
    here.configure(value_mode="avro", layout="nested", sort_order="value.city")
    send(here, registry)
    here.export()
    assert [offset for (offset,) in in_file(here, "kafka_offset")] == [2, 1, 4, 0, 3, 5]
    here.catalog.drop_table(TABLE)
    here.configure(sort_order="desc(kafka_offset)")
    here.export()
    assert [offset for (offset,) in in_file(here, "kafka_offset")] == [5, 4, 3, 2, 1, 0]


def test_an_order_that_comes_later_holds_for_new_files_and_for_those_that_are_joined(
    here, registry
):
    here.configure(value_mode="avro")
    send(here, registry)
    here.export()
    here.configure(value_mode="avro", sort_order="city")
    send(here, registry)
    here.export()
    compact(here.job(), TABLE, FAR + CLOSED_MS)
    assert [city for (city,) in in_file(here, "city")] == sorted(CITIES * 2)
    assert here.verify().problems == ()


def test_an_order_that_people_gave_the_table_is_kept_until_the_topic_says_another(here, registry):
    here.configure(value_mode="avro")
    send(here, registry)
    here.export()
    with here.table().update_sort_order() as update:
        update.asc("city", IdentityTransform())
    send(here, registry)
    here.export()
    assert not here.table().sort_order().is_unsorted
    here.configure(value_mode="avro", sort_order="none")
    send(here, registry)
    here.export()
    assert here.table().sort_order().is_unsorted
    assert here.table().properties[SORTED_BY] == "none"


def test_rows_of_an_upsert_are_sorted(here, registry):
    here.configure(value_mode="avro", mode="upsert", sort_order="city", partition_by="none")
    schema_id = registry.register("orders-value", ORDER_2)
    for n, city in enumerate(CITIES):
        value = avro(schema_id, ORDER_2, {"id": n, "city": city, "price": None})
        here.send(value, keys=[bytes([n])], timestamp=NOW_MS + n)
    here.export()
    assert [city for (city,) in in_file(here, "city")] == sorted(CITIES)
    assert here.verify().problems == ()


def test_values_of_any_type_with_an_order_are_sorted_also_those_that_arrow_does_not_sort():
    kinds = {
        "u": pa.uuid(),
        "f": pa.binary(2),
        "d": pa.decimal128(5, 2),
        "b": pa.bool_(),
        "t": pa.timestamp("us", "UTC"),
        "s": pa.large_string(),
    }
    values = [
        [UUID(int=2).bytes, b"ab", Decimal(2), True, 2, "b"],
        [None] * 6,
        [UUID(int=1).bytes, b"aa", Decimal(1), False, 1, "a"],
    ]
    columns = map(list, zip(*values, strict=True))
    named = {name: pa.array(one, kinds[name]) for name, one in zip(kinds, columns, strict=True)}
    rows = pa.table(named)
    for name in kinds:
        rising = sort_rows(rows, (SortColumn((name,), descending=False, nulls_first=True),))
        assert rising.column("s").to_pylist() == [None, "a", "b"]
        falling = sort_rows(rows, (SortColumn((name,), descending=True, nulls_first=False),))
        assert falling.column("s").to_pylist() == ["b", "a", None]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("town", "names the column town; the table has kafka_partition"),
        ("kafka_headers", "kafka_headers, which has no order"),
        ("kafka_headers.element.key", "or within a list or a map"),
        ("city,", "ends with a comma"),
        ("city,city", "names a column twice"),
        ("up(city)", "cannot be read at 'up\\(city\\)'"),
    ],
)
def test_an_order_that_cannot_be_kept_is_refused(here, registry, text, said):
    here.configure(value_mode="avro", sort_order=text)
    send(here, registry)
    with pytest.raises(SettingsError, match=said):
        here.export()
