"""The table of a topic: flat columns, so that Iceberg's Spark reader stays vectorised.

A struct of Kafka's fields would turn off vectorised reads for every query that touches one of
them, and plain names (`offset`, `timestamp`, `partition`) need quoting in some engines: hence the
prefix. Columns are found by name in the table's own schema, so a table may have gained
columns of other people; those stay null.

No record loses its timestamp: one that a timestamp column cannot hold (before 1970, after the
year 9999) lies in `kafka_timestamp_raw` instead. None at all (Kafka's -1) is null in both.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from iceberg_export.errors import SettingsError, StateError
from iceberg_export.names import (
    HEADERS,
    KEY,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    TIMESTAMP_RAW,
    TIMESTAMP_TYPE,
    VALUE,
)
from iceberg_export.table import column_note
from iceberg_export.table.catalog import Identifier, send_change
from iceberg_export.table.column_note import ColumnsView
from iceberg_export.table.column_rules import edits_of, read_rules
from iceberg_export.table.edits import field_as_in_table
from iceberg_export.table.evolve import canonical_type
from iceberg_export.table.pyiceberg_internals import (
    schema_without_ids,
)
from iceberg_export.table.topic_settings import PartitionTerm

TABLE_SCHEMA = Schema(
    NestedField(1, PARTITION, IntegerType(), required=True),
    NestedField(2, OFFSET, LongType(), required=True),
    NestedField(3, TIMESTAMP, TimestamptzType(), required=False),
    NestedField(
        4, TIMESTAMP_TYPE, IntegerType(), required=False, doc="0 by the producer, 1 on append"
    ),
    NestedField(5, KEY, BinaryType(), required=False),
    NestedField(
        6,
        HEADERS,
        # A list, not a map: duplicates and order matter.
        ListType(
            element_id=9,
            element_type=StructType(
                NestedField(10, "key", StringType(), required=True),
                NestedField(11, "value", BinaryType(), required=False),
            ),
            element_required=True,
        ),
        required=False,
    ),
    NestedField(
        7, TIMESTAMP_RAW, LongType(), required=False, doc="ms, where kafka_timestamp cannot hold it"
    ),
    NestedField(8, VALUE, BinaryType(), required=False, doc="null: a tombstone"),
)

TABLE_PROPERTIES = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    "write.target-file-size-bytes": str(512 * 1024 * 1024),
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "50",
    # Off by default in PyIceberg: every plan would read one manifest per commit.
    "commit.manifest-merge.enabled": "true",
    "write.distribution-mode": "none",
    "write.metadata.metrics.column.value": "none",
    "write.metadata.metrics.column.kafka_headers.element.key": "none",
    "write.metadata.metrics.column.kafka_headers.element.value": "none",
    "history.expire.max-snapshot-age-ms": "86400000",
}

_TRANSFORMS: dict[str, Callable[[int], Transform[Any, Any]]] = {
    "year": lambda _number: YearTransform(),
    "month": lambda _number: MonthTransform(),
    "day": lambda _number: DayTransform(),
    "hour": lambda _number: HourTransform(),
    "identity": lambda _number: IdentityTransform(),
    "bucket": BucketTransform,
    "truncate": TruncateTransform,
}


def partition_spec(
    by: str | Sequence[PartitionTerm], schema: Schema = TABLE_SCHEMA
) -> PartitionSpec:
    """The spec of a new table: by terms, or day or hour of the timestamp, or none.

    Raises SettingsError for a column that the table has not, or that no such transform takes.
    """
    if isinstance(by, str):
        by = () if by == "none" else [PartitionTerm(by, TIMESTAMP)]
    return PartitionSpec(
        *(_partition_field(term, 1000 + place, schema) for place, term in enumerate(by))
    )


def _partition_field(term: PartitionTerm, field_id: int, schema: Schema) -> PartitionField:
    try:
        source = schema.find_field(term.column)
    except ValueError as error:
        has = ", ".join(field.name for field in schema.fields)
        raise SettingsError(
            f"partition.by names the column {term.column}, the table has {has}"
        ) from error
    transform = _TRANSFORMS[term.transform](term.number)
    if not source.field_type.is_primitive or not transform.can_transform(source.field_type):
        raise SettingsError(
            f"partition.by says {term.transform} of {term.column}, which is a {source.field_type}"
        )
    name = term.column.replace(".", "_")
    if term.transform != "identity":
        name = f"{name}_{term.transform}"
    return PartitionField(source.field_id, field_id, transform, name)


def table_schema(columns: pa.Schema) -> Schema:
    """The schema of a new table: Kafka's columns, and those that keys and values become."""
    given = _iceberg(columns)
    fields = []
    for field in TABLE_SCHEMA.fields:
        if field.name not in {KEY, VALUE}:
            fields.append(field)
        elif field.name in columns.names:
            doc = field.doc if field.name == VALUE else None
            fields.append(given.find_field(field.name).model_copy(update={"doc": doc}))
    named = {field.name for field in fields}
    fields += [field for field in given.fields if field.name not in named]
    return assign_fresh_schema_ids(Schema(*fields))


def _iceberg(columns: pa.Schema) -> Schema:
    """Arrow's types as Iceberg's, all optional. The ids are not those of `TABLE_SCHEMA`."""
    return assign_fresh_schema_ids(schema_without_ids(columns), itertools.count(1000).__next__)


def table_properties(columns: Schema) -> dict[str, str]:
    """`TABLE_PROPERTIES` for a table of these columns. Java's catalogs refuse one that names a
    column which the table has not: `value`, where its fields have become columns."""
    prefix = "write.metadata.metrics.column."
    return {
        name: value
        for name, value in TABLE_PROPERTIES.items()
        if not name.startswith(prefix) or name.removeprefix(prefix) in columns.column_names
    }


def columns_of(table: Table) -> pa.Schema:
    """The columns of a table, in Arrow's types."""
    return arrow_schema(table.schema())


def arrow_schema(columns: Schema) -> pa.Schema:
    """Columns in Arrow's types."""
    return schema_to_pyarrow(columns, include_field_ids=False)


def columns_view(table: Table) -> ColumnsView:
    """The columns of a table by the exporter's names. Raises StateError."""
    name, properties = ".".join(table.name()), table.metadata.properties
    note = column_note.read_note(name, properties)
    return column_note.view(note, table.schema(), edits_of(read_rules(f"table {name}", properties)))


def grow(
    catalog: Catalog,
    identifier: Identifier,
    table: Table,
    columns: pa.Schema,
    *,
    wanted: Sequence[pa.Field],
    properties: Mapping[str, str] = MappingProxyType({}),
) -> Table | None:
    """Brings the columns of `table` to `columns`, which are by the exporter's names, and notes those that
    schemas want (`column_note`); in a commit of its own, as `send_change`. `properties` come with it.

    Returns None when there is nothing to do. Raises StateError, CatalogError.
    """
    name = ".".join(table.name())
    note = column_note.read_note(name, table.metadata.properties)
    ruled = edits_of(read_rules(f"table {name}", table.metadata.properties))
    seen = column_note.view(note, table.schema(), ruled)
    transaction = table.transaction()
    there = {field.name: canonical_type(field.type) for field in arrow_schema(seen.columns)}
    more = [field for field in columns if there.get(field.name) != field.type]
    if more:
        named = [field_as_in_table(field, seen.edits) for field in more]
        with transaction.update_schema() as update:
            update.union_by_name(_iceberg(pa.schema(named)))
    grown = column_note.view(note, transaction.table_metadata.schema(), ruled)
    after = column_note.noted(note, grown.columns, wanted, ruled)
    changed = {
        name: text
        for name, text in properties.items()
        if table.metadata.properties.get(name) != text
    }
    if after == note and not more and not changed:
        return None
    if after != note:
        changed[column_note.COLUMNS] = column_note.note_text(after)
    if changed:
        transaction.set_properties(changed)
    return send_change(catalog, identifier, table, transaction)


def check_schema(schema: Schema, table: str, *, typed: Iterable[str] = ()) -> None:
    """Can our rows be written into this schema? Raises StateError, naming the column.

    The columns `typed` are what keys and values became; `grow` has seen to them.
    """
    for found in schema.fields:
        if _has_empty_struct(found.field_type):
            raise StateError(
                f"column {found.name} of table {table} has a struct that has lost all its fields, which no"
                " Parquet file can hold; drop the struct as well"
            )
    ours = [field for field in TABLE_SCHEMA.fields if field.name not in set(typed)]
    for field in ours:
        try:
            found = schema.find_field(field.name)
        except ValueError as error:
            raise StateError(
                f"table {table} has lost its column {field.name}; the exporter cannot go on"
            ) from error
        same = type(found.field_type) is type(field.field_type)
        widened = isinstance(field.field_type, IntegerType) and isinstance(
            found.field_type, LongType
        )
        if not same and not widened:
            raise StateError(
                f"column {field.name} of table {table} is a {found.field_type}, "
                f"the exporter writes {field.field_type}"
            )
    known = {field.name for field in ours}
    for found in schema.fields:
        if found.required and found.name not in known:
            raise StateError(
                f"table {table} demands the column {found.name}, which the exporter does not know"
            )


def _has_empty_struct(kind: IcebergType) -> bool:
    if isinstance(kind, StructType):
        inner = [one.field_type for one in kind.fields]
        return not inner or any(map(_has_empty_struct, inner))
    if isinstance(kind, ListType):
        return _has_empty_struct(kind.element_type)
    return isinstance(kind, MapType) and _has_empty_struct(kind.value_type)
