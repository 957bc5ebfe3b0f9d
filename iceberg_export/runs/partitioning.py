"""How a topic's new table is partitioned: by its own setting, else by its mode or the exporter's setting.

A table of mode upsert has buckets of its keys, and no other partitions: what cannot be exported is refused before
there is a table that stands in the way. Pure, but for PyIceberg's types.
"""

from collections.abc import Sequence
from typing import Any

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import StructType

from iceberg_export.errors import SettingsError
from iceberg_export.names import KEY
from iceberg_export.table import schema
from iceberg_export.table.topic_settings import PartitionTerm, TopicTable
from iceberg_export.upsert.buckets import other_than_buckets
from iceberg_export.upsert.newest_records import BUCKETS_DEFAULT


def new_spec(
    topic_table: TopicTable,
    columns: Schema,
    default: str,
    missing: Sequence[str],
    *,
    more_to_come: bool,
) -> PartitionSpec | None:
    """Returns the spec of a table with these columns; `default` is that of mode append. None: it names a
    column that may come with the first records (`more_to_come`), and is made then (`table.repartition`).

    `missing`: subjects without a schema, which may bring a column. Raises SettingsError.
    """
    upserts = topic_table.mode == "upsert"
    by: str | Sequence[PartitionTerm] = default
    if topic_table.partition_by is not None:
        by = topic_table.partition_by
    elif upserts:
        by = [PartitionTerm("bucket", one, BUCKETS_DEFAULT) for one in _key_columns(columns)]
    try:
        spec = schema.partition_spec(by, columns)
    except SettingsError as error:
        if more_to_come and not upserts:
            return None
        raise SettingsError(f"{error}{_yet(missing)}") from error
    if not upserts:
        return spec
    if (problem := other_than_buckets(_parts(spec, columns))) is not None:
        raise SettingsError(f"frazil.iceberg.partition.by: {problem}")
    if not _has_key(columns):
        raise SettingsError(
            f"mode upsert tells rows apart by the columns of their keys, and there are none{_yet(missing)}"
        )
    return spec


def _yet(missing: Sequence[str]) -> str:
    if not missing:
        return ""
    return f"; no schema is registered under {' and '.join(missing)} yet, which may bring it"


def _has_key(columns: Schema) -> bool:
    return KEY in (one.name for one in columns.fields)


def _parts(spec: PartitionSpec, columns: Schema) -> list[tuple[list[str], Any]]:
    """Paths of columns, and what becomes of them."""
    names = [columns.find_column_name(one.source_id) or "" for one in spec.fields]
    return [(name.split("."), one.transform) for name, one in zip(names, spec.fields, strict=True)]


def _key_columns(columns: Schema) -> list[str]:
    """Returns what buckets are made by: the key, or the first column of it that can be; none can be."""
    if not _has_key(columns):
        return [KEY]  # No schema brings it yet, which whoever asks for it is told.
    key = columns.find_field(KEY).field_type
    if not isinstance(key, StructType):
        return [KEY]
    bucket: BucketTransform[Any] = BucketTransform(BUCKETS_DEFAULT)
    return [f"{KEY}.{one.name}" for one in key.fields if bucket.can_transform(one.field_type)][:1]
