"""A table's sort order follows its topic's setting: `frazil.iceberg.sort.order`.

The order is the table's own (Iceberg specification, "Sorting"), so other engines that write or rewrite its
files go by it as well. As with partitions, the setting that it was last made from is a property of the table, and only
another setting is a reason to change it: whoever orders the table by hand is left alone.
"""

from collections.abc import Sequence

from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IcebergType, PrimitiveType, StructType

from iceberg_export.errors import CatalogError, SettingsError
from iceberg_export.table.catalog import Identifier, send_change
from iceberg_export.table.commit import Pause
from iceberg_export.table.topic_settings import SortTerm

SORTED_BY = "frazil.sort-order"
"""Property of the table: the setting that its sort order was last made from."""
ATTEMPTS_MAX = 5


def check_sort_columns(terms: Sequence[SortTerm], columns: Sequence[str]) -> None:
    """Raises SettingsError unless all are among the columns that a table has, or is to have."""
    for one in terms:
        if one.column not in columns:
            raise SettingsError(
                f"frazil.iceberg.sort.order names the column {one.column}; the table has {', '.join(columns)}"
            )


def keep_sort_order(
    catalog: Catalog,
    identifier: Identifier,
    table: Table,
    terms: Sequence[SortTerm] | None,
    pause: Pause,
) -> Table:
    """Brings the order to what the topic's setting says, in a commit of its own; returns the table after it.

    None: the topic says nothing, and the table stays as it is, as it does while it lacks one of the columns.
    Raises SettingsError for a column that has no order; CatalogError.
    """
    if terms is None:
        return table
    wanted = ", ".join(f"desc({one.column})" if one.descending else one.column for one in terms)
    wanted = wanted or "none"
    for _ in pause.attempts(ATTEMPTS_MAX):
        there = table.schema()
        is_kept = table.metadata.properties.get(SORTED_BY) == wanted
        if is_kept or not {one.column for one in terms} <= set(there.column_names):
            return table
        for one in terms:
            _check_has_order(there, one.column)
        transaction = table.transaction()
        with transaction.update_sort_order() as update:
            for one in terms:
                # Nulls where Spark and Trino put them when nobody says where.
                if one.descending:
                    update.desc(one.column, IdentityTransform(), NullOrder.NULLS_LAST)
                else:
                    update.asc(one.column, IdentityTransform(), NullOrder.NULLS_FIRST)
        transaction.set_properties({SORTED_BY: wanted})
        table = send_change(catalog, identifier, table, transaction)
    raise CatalogError(
        f"the sort order of table {'.'.join(identifier)} cannot be brought to {wanted}"
    )


def _check_has_order(schema: Schema, column: str) -> None:
    kind: IcebergType = schema.as_struct()
    for name in column.split("."):
        # Elements of lists and values of maps have no order among rows.
        field = kind.field_by_name(name) if isinstance(kind, StructType) else None
        kind = field.field_type if field is not None else StructType()
    if not isinstance(kind, PrimitiveType):
        raise SettingsError(
            f"frazil.iceberg.sort.order names the column {column}, which has no order: it is"
            f" {schema.find_type(column)}, or within a list or a map"
        )
