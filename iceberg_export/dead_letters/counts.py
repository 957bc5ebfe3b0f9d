"""How many dead letters there are of each reason: what `status` prints and Prometheus asks for.

Counted once for each snapshot of a dead-letter table, from the one column of reasons: rows that
people deleted do not count. Nothing of an export depends on the counts.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from iceberg_export.errors import CatalogError
from iceberg_export.table.catalog import guarded
from iceberg_export.typed.typed_rows import ERROR_CODE

NO_CODE = "none"
"""Of rows without a reason: people have put them there."""


@dataclass(slots=True)
class LetterCounts:
    """Dead letters by reason of the tables that were asked about, each as its snapshot has them."""

    _known: dict[str, tuple[int, Mapping[str, int]]] = field(default_factory=dict)
    """By the table's UUID: a snapshot, and its counts."""

    def by_code(self, table: Table) -> Mapping[str, int]:
        """Returns the number of rows by `error_code`, the most frequent code first.

        Raises CatalogError when the table cannot be read.
        """
        head = table.metadata.snapshot_by_name("main")
        if head is None:
            return {}
        name = ".".join(table.name())
        if ERROR_CODE not in table.schema().column_names:
            raise CatalogError(f"table {name} has no column {ERROR_CODE}")
        table_uuid = str(table.metadata.table_uuid)
        snapshot_id, counts = self._known.get(table_uuid, (-1, {}))
        if snapshot_id != head.snapshot_id:
            counts = guarded(
                f"count the dead letters of table {name}",
                lambda: _count(table, head.snapshot_id),
            )
            self._known[table_uuid] = head.snapshot_id, counts
        return counts


def _count(table: Table, snapshot_id: int) -> Mapping[str, int]:
    scan = table.scan(selected_fields=(ERROR_CODE,), snapshot_id=snapshot_id)
    found: Counter[str] = Counter()
    with scan.to_arrow_batch_reader() as batches:
        for batch in batches:
            found += count_codes(pa.Table.from_batches([batch]))
    return dict(sorted(found.items(), key=lambda one: (-one[1], one[0])))


def count_codes(letters: pa.Table) -> Counter[str]:
    """Returns the number of rows by `error_code`."""
    codes = pc.fill_null(letters.column(ERROR_CODE).cast(pa.large_string()), NO_CODE)
    return Counter({one["values"]: one["counts"] for one in pc.value_counts(codes).to_pylist()})
