"""At the ends of every type: partitions and bounds are those of Iceberg's Java library, case by case."""

import hashlib
import struct
from collections.abc import Sequence
from decimal import Decimal
from itertools import groupby
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    NestedField,
    StringType,
    UUIDType,
)

from iceberg_export.errors import StateError
from iceberg_export.files.metrics import lower_bound, upper_bound
from iceberg_export.files.partition_values import decimal_truncations, partition_columns, split_rows
from iceberg_export.table.partition_limits import rows_without_partition
from tests.iceberg_export.files.transform_cases import Case, ask_java, cases

TRANSFORMS = [case for case in cases() if not case.transform.startswith(("lower", "upper"))]
GROUPS = {key: list(some) for key, some in groupby(TRANSFORMS, key=lambda case: case[:2])}
BOUNDS = [case for case in cases() if case.transform.startswith(("lower", "upper"))]


def typed(name: str) -> IcebergType:
    return NestedField.model_validate({"id": 2, "name": "v", "type": name, "required": False}).field_type  # fmt: skip


def metadata_of(kind: str, transform: str) -> TableMetadata:
    table_schema = Schema(NestedField(2, "v", typed(kind), required=False))
    spec = PartitionSpec(PartitionField(2, 1000, parse_transform(transform), "p"))
    return new_table_metadata(
        table_schema, spec, UNSORTED_SORT_ORDER, "file:///t", {"format-version": "3"}
    )


def raw(text: str) -> bytes:
    digits, _, count = text.partition("*")
    return bytes.fromhex(digits) * int(count or 1)


def column(kind: IcebergType, texts: Sequence[str]) -> pa.Array:
    """The values as a column that the exporter would write."""
    arrow = schema_to_pyarrow(Schema(NestedField(2, "v", kind, required=False))).field(0).type
    if isinstance(kind, FloatType | DoubleType):
        data = b"".join(bytes.fromhex(text)[::-1] for text in texts)
        return pa.Array.from_buffers(arrow, len(texts), [None, pa.py_buffer(data)])
    if isinstance(kind, DecimalType):
        return pa.array([unscaled(int(text), kind.scale) for text in texts], arrow)
    if isinstance(kind, StringType):
        return pa.array([raw(text).decode() for text in texts], arrow)
    if isinstance(kind, BinaryType | FixedType | UUIDType):
        stored = arrow.storage_type if isinstance(arrow, pa.BaseExtensionType) else arrow
        held = pa.array([raw(text) for text in texts], stored)
        return pa.ExtensionArray.from_storage(arrow, held) if stored != arrow else held
    if str(kind) == "boolean":
        return pa.array([text == "true" for text in texts], arrow)
    width = pa.int32() if arrow.bit_width == 32 else pa.int64()
    return pa.array([int(text) for text in texts], width).view(arrow)


def unscaled(number: int, scale: int) -> Decimal:
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


def spelled(value: Any, kind: IcebergType) -> str:
    """As results of cases are."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return struct.pack(">f" if isinstance(kind, FloatType) else ">d", value).hex()
    if isinstance(value, Decimal):
        sign, digits, exponent = value.as_tuple()
        assert isinstance(kind, DecimalType)
        assert exponent == -kind.scale
        return str((-1 if sign else 1) * int("".join(map(str, digits))))
    if isinstance(value, int):
        return str(value)
    found = value.encode() if isinstance(value, str) else getattr(value, "bytes", value)
    if len(found) <= 64:
        return str(found.hex())
    return f"{len(found)} bytes {hashlib.sha256(found).hexdigest()[:16]}"


@pytest.mark.parametrize("key", GROUPS, ids=" of ".join)
def test_each_value_lies_in_the_partition_that_icebergs_java_library_says(key):
    kind_name, transform = key
    metadata = metadata_of(kind_name, transform)
    if GROUPS[key][0].result == "refused":
        with pytest.raises(StateError, match="cannot write into partitions"):
            partition_columns(metadata)
        return
    columns = partition_columns(metadata)
    kind = columns[0].kind
    texts = [case.value for case in GROUPS[key]]
    rows = pa.table({"row": range(len(texts)), "v": column(kind, texts)})
    found = dict.fromkeys(
        rows_without_partition(decimal_truncations(metadata), rows), "cannot be written"
    )
    kept = rows.take(pa.array([row for row in range(len(texts)) if row not in found], pa.int64()))
    for (value,), part in split_rows(columns, kept):
        result = columns[0].field.transform.result_type(kind)
        found |= dict.fromkeys(part["row"].to_pylist(), spelled(value, result))
    wanted = {row: case.result for row, case in enumerate(GROUPS[key])}
    told = {texts[row]: (found.get(row), wanted[row]) for row in wanted if found.get(row) != wanted[row]}  # fmt: skip
    assert not told


@pytest.mark.parametrize("case", BOUNDS, ids=lambda case: " ".join(case[:3]))
def test_each_bound_of_a_column_is_that_of_icebergs_java_library(case: Case):
    kind = typed(case.type)
    value: Any = raw(case.value).decode() if case.type == "string" else raw(case.value)
    length = int(case.transform[6:-1])
    bound = upper_bound if case.transform.startswith("upper") else lower_bound
    assert spelled(bound(value, length), kind) == case.result


def test_a_value_that_is_not_held_is_told_with_its_partition():
    metadata = metadata_of("decimal(9,2)", "truncate[7]")
    rows = pa.table({"v": column(typed("decimal(9,2)"), ["0", "-999999999"])})
    (said,) = rows_without_partition(decimal_truncations(metadata), rows).items()
    assert said == (1, "truncate[7] of v, -9999999.99, is no decimal(9, 2)")


@pytest.mark.integration
def test_the_cases_are_what_icebergs_java_library_says_now():
    assert ask_java() == cases()
