"""Metrics of a data file for the table's manifests: sizes, counts, and bounds of values.

Bounds are those of Iceberg's Java library: of text and bytes their beginning, of the greatest one
raised, so that nothing lies above. Read from Parquet's statistics as they are stored: no value is
turned into a date of Python's, which ends with the year 9999. Parquet keeps no statistics of
values of some kilobytes. A column that has such a value has no bounds at all: those of the file's
other row groups would hide it from whoever looks for it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    StatisticsCollector,
    compute_statistics_plan,
    parquet_path_to_id_mapping,
)
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import DecimalType, DoubleType, FloatType, PrimitiveType, StringType
from pyiceberg.utils.decimal import unscaled_to_decimal

CODE_POINT_MAX = 0x10FFFF
SURROGATES = range(0xD800, 0xE000)


class _Bounds(NamedTuple):
    least: Any
    most: Any


def lower_bound(value: Any, length: int) -> Any:
    """Returns the beginning of a text or of bytes: nothing that begins so lies below."""
    return value[:length]


def upper_bound(value: Any, length: int) -> Any:
    """Returns at most so many characters or bytes that are not below `value`; None: there are none."""
    if len(value) <= length:
        return value
    for end in range(length, 0, -1):
        if (raised := _raised(value[:end])) is not None:
            return raised
    return None


def _raised(value: Any) -> Any:
    """Returns the value with the next greater last character; None when that is the greatest."""
    if isinstance(value, bytes):
        return value[:-1] + bytes([value[-1] + 1]) if value[-1] < 0xFF else None
    code = ord(value[-1]) + 1
    if code in SURROGATES:
        code = SURROGATES.stop
    return value[:-1] + chr(code) if code <= CODE_POINT_MAX else None


def file_metrics(metadata: TableMetadata, footer: Any) -> dict[str, Any]:
    """Returns the metrics of a file by its Parquet footer, named as in Iceberg's data files."""
    plan = compute_statistics_plan(metadata.schema(), metadata.properties)
    ids = parquet_path_to_id_mapping(metadata.schema())
    sizes: dict[int, int] = {}
    counts: dict[int, int] = {}
    nulls: dict[int, int] = {}
    bounds: dict[int, _Bounds | None] = {}
    without_statistics = set()
    for place in range(footer.num_columns * footer.num_row_groups):
        group, number = divmod(place, footer.num_columns)
        column = footer.row_group(group).column(number)
        field_id = ids[column.path_in_schema]
        mode = plan[field_id].mode.type
        sizes[field_id] = sizes.get(field_id, 0) + column.total_compressed_size
        if mode == MetricModeTypes.NONE:
            continue
        counts[field_id] = counts.get(field_id, 0) + column.num_values
        statistics = column.statistics
        if statistics is None or not statistics.has_null_count:
            without_statistics.add(field_id)
            continue
        nulls[field_id] = nulls.get(field_id, 0) + statistics.null_count
        if mode != MetricModeTypes.COUNTS:
            _widen(bounds, plan[field_id], statistics)
    for field_id in without_statistics:
        nulls.pop(field_id, None)
        bounds.pop(field_id, None)
    return {
        "record_count": footer.num_rows,
        "column_sizes": sizes,
        "value_counts": counts,
        "null_value_counts": nulls,
        "nan_value_counts": {},
        "split_offsets": sorted(
            _offset(footer.row_group(group).column(0)) for group in range(footer.num_row_groups)
        ),
        **_as_bytes(plan, bounds),
    }


def _offset(column: Any) -> int:
    data: int = column.data_page_offset
    return min(data, column.dictionary_page_offset or data) if column.has_dictionary_page else data


def _widen(bounds: dict[int, _Bounds | None], column: StatisticsCollector, statistics: Any) -> None:
    """Widens a column's bounds by those of a row group; None, for good, when the group has none."""
    field_id, kind = column.field_id, column.iceberg_type
    if not statistics.has_min_max:
        # Floats of a group may all be NaN, and those are in no bounds.
        if statistics.num_values > 0 and not isinstance(kind, FloatType | DoubleType):
            bounds[field_id] = None
        return
    least, most = _stored(statistics.min_raw, kind), _stored(statistics.max_raw, kind)
    before = bounds.get(field_id, _Bounds(least, most))
    if before is not None:
        bounds[field_id] = _Bounds(min(before.least, least), max(before.most, most))


def _stored(value: Any, kind: PrimitiveType) -> Any:
    """Returns Parquet's value as Iceberg has it."""
    if isinstance(kind, DecimalType):
        if isinstance(value, bytes):
            value = int.from_bytes(value, "big", signed=True)
        return unscaled_to_decimal(value, kind.scale)
    return value.decode() if isinstance(kind, StringType) and isinstance(value, bytes) else value


def _as_bytes(
    plan: Mapping[int, StatisticsCollector], bounds: Mapping[int, _Bounds | None]
) -> dict[str, dict[int, bytes]]:
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    for field_id, found in bounds.items():
        if found is None:
            continue
        kind, length = plan[field_id].iceberg_type, plan[field_id].mode.length
        least = found.least if length is None else lower_bound(found.least, length)
        most = found.most if length is None else upper_bound(found.most, length)
        lower[field_id] = to_bytes(kind, least)
        if most is not None:
            upper[field_id] = to_bytes(kind, most)
    return {"lower_bounds": lower, "upper_bounds": upper}
