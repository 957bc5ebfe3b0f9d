"""Redactions of a topic's table: which records an operator took out, and who and why.

They lie in a table beside it, `<table>__redacted`, a row for each record, by partition and offset. So a
redacted record stays away whatever becomes of the topic's table: exports leave it out when offsets go
back, or when the table is made anew from the log, which may have the record still. The rows here are
committed before those there go (`upkeep.redact`), and are never taken back. The tables of one topic (`routes`) have
one such table, that of the topic's own: a record may become another table's when routes change.
"""

import contextlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, TimestamptzType

from iceberg_export import names
from iceberg_export.errors import StateError
from iceberg_export.table.catalog import Identifier, existing_table, find_table, guarded
from iceberg_export.table.state import CLUSTER_ID, TOPIC, TOPIC_ID

SUFFIX = "__redacted"
REDACTIONS_OF = "frazil.redactions-of"
"""Property of a table: namespace and name of the one whose redactions are its, too; without it its own are."""
REDACTED_BY = "redacted_by"
REDACTED_AT = "redacted_at"
REASON = "reason"
REDACTION_ID = "redaction_id"
_SCHEMA = Schema(
    NestedField(1, names.PARTITION, IntegerType(), required=True),
    NestedField(2, names.OFFSET, LongType(), required=True),
    NestedField(3, REDACTED_AT, TimestamptzType(), required=True),
    NestedField(4, REDACTED_BY, StringType(), required=True),
    NestedField(5, REASON, StringType(), required=True),
    NestedField(6, REDACTION_ID, StringType(), required=True),
)

Places = Mapping[int, npt.NDArray[np.int64]]
"""Offsets, ascending, by partition."""


class Redaction(NamedTuple):
    """What one command took out."""

    redaction_id: str
    at_ms: int
    by: str
    reason: str
    records: int


def redactions_identifier(identifier: Identifier) -> Identifier:
    """Returns the name of a table's redactions."""
    return identifier[0], identifier[1] + SUFFIX


def is_redactions(table: Table) -> bool:
    """Tells whether the table is one of redactions."""
    return REDACTION_ID in table.schema().column_names


def _redactions_of(table: Table) -> Identifier:
    text = table.metadata.properties.get(REDACTIONS_OF, ".".join(table.name()[-2:]))
    namespace, _, name = text.rpartition(".")
    return redactions_identifier((namespace, name))


def find_redactions(table: Table, topic_id: str) -> Table | None:
    """Returns the redactions of the topic's table; None when there are none.

    Raises StateError when a table of that name is none of the exporter's.
    """
    ours = _redactions_of(table)
    found = find_table(table.catalog, ours)
    if found is None:
        return None
    owner = found.metadata.properties.get(TOPIC_ID)
    if owner is None or not is_redactions(found):
        raise StateError(
            f"table {'.'.join(ours)} was not made by `frazil export redact`;"
            " it has the name of the table's redactions: give one of the two another name"
        )
    return found if owner == topic_id else None


def make_redactions(of: Table, *, topic: str, topic_id: str, cluster_id: str) -> Table:
    """Returns the redactions of a table, made if there are none. Raises StateError, CatalogError."""
    found = find_redactions(of, topic_id)
    if found is not None:
        return found
    ours, catalog = _redactions_of(of), of.catalog
    properties = {TOPIC: topic, TOPIC_ID: topic_id, CLUSTER_ID: cluster_id, "format-version": "2"}

    def make() -> None:
        with contextlib.suppress(TableAlreadyExistsError):
            catalog.create_table(ours, _SCHEMA, properties=properties)

    guarded(f"create table {'.'.join(ours)}", make)
    table = existing_table(catalog, ours)
    if table.metadata.properties.get(TOPIC_ID) != topic_id:
        raise StateError(
            f"table {'.'.join(ours)} has the redactions of another topic of this name; rename or drop it"
        )
    return table


def add_redaction(table: Table, places: Places, redaction: Redaction) -> None:
    """Notes records, in one commit. Raises CatalogError: they may be noted or not, and the same again
    is harmless to who asks first what is noted."""
    partitions = [np.full(len(some), number, np.int32) for number, some in places.items()]
    count = sum(map(len, places.values()))
    columns = [
        pa.array(np.concatenate(partitions)),
        pa.array(np.concatenate(list(places.values()))),
        pa.array([redaction.at_ms * 1000] * count, pa.timestamp("us", "UTC")),
        *(
            pa.array([text] * count, pa.large_string())
            for text in (redaction.by, redaction.reason, redaction.redaction_id)
        ),
    ]
    fields = [
        pa.field(name, one.type, nullable=False)
        for name, one in zip(_SCHEMA.column_names, columns, strict=True)
    ]
    rows = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    guarded(f"add to table {'.'.join(table.name())}", lambda: table.append(rows))


def redacted_places(table: Table | None, first: int = 0) -> dict[int, npt.NDArray[np.int64]]:
    """Returns offsets from `first` on, ascending, by partition. Raises CatalogError."""
    if table is None:
        return {}
    scan = table.scan(
        row_filter=f"{names.OFFSET} >= {first}", selected_fields=(names.PARTITION, names.OFFSET)
    )
    return places_of(guarded(f"read table {'.'.join(table.name())}", scan.to_arrow))


def places_of(rows: pa.Table) -> dict[int, npt.NDArray[np.int64]]:
    """Returns where rows are, each place once."""
    partitions, offsets = rows.column(names.PARTITION), rows.column(names.OFFSET)
    return {
        partition: np.unique(np.asarray(offsets.filter(pc.equal(partitions, partition)), np.int64))
        for partition in pc.unique(partitions).to_pylist()
    }


def redactions_in(table: Table) -> list[Redaction]:
    """Returns what was redacted, in order of time. Raises CatalogError."""
    ours = (REDACTION_ID, REDACTED_AT, REDACTED_BY, REASON)
    scan = table.scan(selected_fields=ours)
    rows = guarded(f"read table {'.'.join(table.name())}", scan.to_arrow)
    rows = rows.set_column(
        rows.schema.get_field_index(REDACTED_AT),
        REDACTED_AT,
        pc.divide(rows.column(REDACTED_AT).cast(pa.int64()), 1000),
    )
    grouped = rows.group_by(list(ours)).aggregate([([], "count_all")])
    found = [
        Redaction(
            one[REDACTION_ID], one[REDACTED_AT], one[REDACTED_BY], one[REASON], one["count_all"]
        )
        for one in grouped.to_pylist()
    ]
    return sorted(found, key=lambda one: (one.at_ms, one.redaction_id))


def joined_places(places: Places, others: Places) -> Places:
    """Returns the places that are in one of the two."""
    empty = np.empty(0, np.int64)
    return {
        number: np.union1d(places.get(number, empty), others.get(number, empty))
        for number in places.keys() | others.keys()
    }


def without_places(places: Places, others: Places) -> dict[int, npt.NDArray[np.int64]]:
    """Returns the places that are not among `others`; no partition has none."""
    empty = np.empty(0, np.int64)
    found = {
        number: np.setdiff1d(some, others.get(number, empty)) for number, some in places.items()
    }
    return {number: some for number, some in found.items() if len(some)}
