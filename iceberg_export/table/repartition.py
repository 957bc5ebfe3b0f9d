"""A table's partitioning follows its topic's setting: a changed `partition.by` is the spec of new files.

The setting that the spec was last made from is a property of the table. Only another setting is a reason to
change the spec, so whoever partitions the table by hand is left alone. Files that are there keep their
spec, and readers go by each file's own (Iceberg specification, "Partition Evolution").

A table of mode upsert keeps its buckets: all that is known of a key lies in the files of one.
"""

from collections.abc import Sequence

from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from iceberg_export.errors import CatalogError, SettingsError
from iceberg_export.table.catalog import Identifier, send_change
from iceberg_export.table.commit import Pause
from iceberg_export.table.schema import columns_view, partition_spec
from iceberg_export.table.topic_settings import PartitionTerm

PARTITIONED_BY = "frazil.partition-by"
"""Property of the table: the setting that its spec was last made from."""
ATTEMPTS_MAX = 5


def setting_of(terms: Sequence[PartitionTerm]) -> str:
    """The setting in one form."""
    return ", ".join(map(_text, terms)) or "none"


def _text(term: PartitionTerm) -> str:
    if term.transform == "identity":
        return term.column
    number = f"{term.number}, " if term.number else ""
    return f"{term.transform}({number}{term.column})"


def repartition(
    catalog: Catalog,
    identifier: Identifier,
    table: Table,
    terms: Sequence[PartitionTerm],
    *,
    to_be: Schema | None,
    upserts: bool,
    pause: Pause,
) -> Table:
    """Bring the spec to what the topic's setting says, in a commit of its own; the table after it.

    Left as it is when it names a column that the table does not have yet: `to_be` is what a table would
    have that were made now; None: nobody knows. Raises SettingsError for a column that the table has not, or has in another type, and for a table of
    mode upsert that is partitioned otherwise; CatalogError.
    """
    name = ".".join(identifier)
    wanted = setting_of(terms)
    for _ in pause.attempts(ATTEMPTS_MAX):
        if table.metadata.properties.get(PARTITIONED_BY) == wanted:
            return table
        try:
            spec = _spec(terms, table)
        except SettingsError:
            if to_be is not None:
                partition_spec(terms, to_be)
            return table
        if upserts and not _same(spec, table.spec()):
            raise SettingsError(
                f"frazil.iceberg.partition.by is {wanted}, and table {name}, whose mode is upsert, was made"
                " with other partitions, which it keeps; set it back, or name another table"
                " (frazil.iceberg.table)"
            )
        table = _commit(catalog, identifier, table, spec, wanted)
    raise CatalogError(f"the partitioning of table {name} cannot be brought to {wanted}")


def _spec(terms: Sequence[PartitionTerm], table: Table) -> PartitionSpec:
    """By the exporter's names of columns, or else by those of today. Raises SettingsError."""
    try:
        return partition_spec(terms, columns_view(table).columns)
    except SettingsError:
        return partition_spec(terms, table.schema())


def _same(one: PartitionSpec, other: PartitionSpec) -> bool:
    return _parts(one) == _parts(other)


def _parts(spec: PartitionSpec) -> dict[tuple[int, str], str]:
    """Names of the fields, by what they are made of."""
    return {(field.source_id, str(field.transform)): field.name for field in spec.fields}


def _commit(
    catalog: Catalog, identifier: Identifier, table: Table, spec: PartitionSpec, wanted: str
) -> Table:
    """Fields that are in both specs stay what they are."""
    there, to_be = _parts(table.spec()), _parts(spec)
    schema = table.schema()
    transaction = table.transaction()
    with transaction.update_spec() as update:
        for part in there.keys() - to_be.keys():
            update.remove_field(there[part])
        for field in spec.fields:
            if (field.source_id, str(field.transform)) not in there:
                source = schema.find_column_name(field.source_id)
                assert source is not None
                update.add_field(source, field.transform, field.name)
    transaction.set_properties({PARTITIONED_BY: wanted})
    return send_change(catalog, identifier, table, transaction)
