"""A table follows its topic's rules for columns: the property that says which, and the columns themselves.

Both change in one commit: columns that are there are dropped and renamed, as a person would do it. A column
whose mask changes has rows of both kinds then; the note says so, and no proof compares it any more.
"""

from collections.abc import Iterable, Mapping, Sequence

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table, Transaction
from pyiceberg.types import ListType, MapType, NestedField, StructType

from iceberg_export.errors import CatalogError, SettingsError
from iceberg_export.table import column_note
from iceberg_export.table.catalog import Identifier, send_change
from iceberg_export.table.column_note import ColumnsView, Note, RuledChange
from iceberg_export.table.column_rules import (
    COLUMN_RULES,
    NO_RULES,
    ColumnRules,
    edits_of,
    read_rules,
    rules_properties,
)
from iceberg_export.table.commit import Pause

ATTEMPTS_MAX = 5


def keep_rules(
    catalog: Catalog,
    identifier: Identifier,
    table: Table,
    rules: ColumnRules,
    *,
    has_data: bool,
    pause: Pause,
) -> Table:
    """Brings the table to its topic's rules; returns it as it is then.

    Raises SettingsError for a dropped column that the table is partitioned by, CatalogError.
    """
    name = ".".join(identifier)
    ruled = edits_of(rules)
    for _ in pause.attempts(ATTEMPTS_MAX):
        properties = table.metadata.properties
        before = read_rules(f"table {name}", properties)
        note = column_note.read_note(name, properties)
        seen = column_note.view(note, table.schema(), ruled)
        to_do = column_note.ruled_changes(seen, ruled)
        if before == rules and not to_do:
            return table
        _check_partitions(table, seen, rules)
        transaction = table.transaction()
        _change_columns(name, transaction, to_do)
        after = column_note.without_ids(note, ruled) if to_do else note
        if has_data:
            after = _noted_again(after, _changed_masks(before, rules))
        if rules == NO_RULES:
            transaction.remove_properties(COLUMN_RULES)
        more = {} if after == note else {column_note.COLUMNS: column_note.note_text(after)}
        if more := {**more, **rules_properties(rules)}:
            transaction.set_properties(more)
        table = send_change(catalog, identifier, table, transaction)
    raise CatalogError(f"table {name} cannot be told the rules for its columns; run again")


def _change_columns(table: str, transaction: Transaction, to_do: Sequence[RuledChange]) -> None:
    """Raises SettingsError when a column cannot have its new name."""
    if not to_do:
        return
    try:
        with transaction.update_schema() as update:
            for one in to_do:
                if one.name:
                    update.rename_column(one.path, one.name)
                else:
                    update.delete_column(one.path)
    except ValueError as error:
        raise SettingsError(f"frazil.iceberg.columns.*: table {table}: {error}") from error


def _noted_again(note: Note, columns: Iterable[str]) -> Note:
    """Returns the note, saying of these columns that older rows have something else there."""
    found = dict(note)
    for column in columns:
        if column in found:
            found[column] = found[column]._replace(again=True)
    return found


def _changed_masks(before: ColumnRules, after: ColumnRules) -> set[str]:
    """Returns the columns that have, or whose fields have, another mask now."""
    changed = set(before.masked) ^ set(after.masked)
    return {path.split(".")[0] for path, _ in changed}


def _check_partitions(table: Table, seen: ColumnsView, rules: ColumnRules) -> None:
    """Raises SettingsError: a spec whose column is gone cannot be read any more, an old one neither."""
    sources = {field.source_id for spec in table.metadata.partition_specs for field in spec.fields}
    sources |= {field.source_id for order in table.metadata.sort_orders for field in order.fields}
    paths = _paths(seen.columns.fields, "")
    for path in rules.dropped:
        inside = [i for other, i in paths.items() if f"{other}.".startswith(f"{path}.")]
        if sources & set(inside):
            raise SettingsError(
                f"frazil.iceberg.columns.drop: table {'.'.join(table.name())} is, or was, partitioned or sorted by {path},"
                " and no engine could read it without; mask it, or give the topic another table"
            )


def _paths(fields: Iterable[NestedField], above: str) -> Mapping[str, int]:
    """Returns ids of fields by their paths, at every depth."""
    found: dict[str, int] = {}
    for field in fields:
        path = f"{above}{field.name}"
        found[path] = field.field_id
        kind = field.field_type
        while isinstance(kind, ListType | MapType):
            kind = kind.element_type if isinstance(kind, ListType) else kind.value_type
        if isinstance(kind, StructType):
            found |= _paths(kind.fields, f"{path}.")
    return found
