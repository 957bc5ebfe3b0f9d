"""What no partition can hold: some decimals. Pure.

Truncation leads down to a multiple of its width, of the least numbers of a type to one with more
digits than the type has. Iceberg's Java library refuses to write such a partition down.
"""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc


class DecimalTruncation(NamedTuple):
    """A partition field that truncates decimals."""

    path: tuple[str, ...]
    """Of the source column; longer than one inside of structs."""
    width: int
    precision: int
    scale: int


def truncated(value: Decimal, width: int, scale: int) -> Decimal:
    """The greatest multiple of the width, in units of the last digit, that is not above `value`."""
    sign, digits, _ = value.as_tuple()
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    return decimal_of(unscaled - unscaled % width, scale)


def decimal_of(unscaled: int, scale: int) -> Decimal:
    """Exactly: arithmetic of decimals would round to the digits of a context."""
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def column_at(path: tuple[str, ...], rows: pa.Table) -> pa.Array:
    """A column of the rows, or a field of one; nulls when they have none."""
    if path[0] not in rows.column_names:
        return pa.nulls(rows.num_rows)
    found = rows.column(path[0]).combine_chunks()
    found = found.chunk(0) if isinstance(found, pa.ChunkedArray) else found
    for name in path[1:]:
        if found.type.get_field_index(name) < 0:
            return pa.nulls(rows.num_rows)
        found = pc.struct_field(found, name)
    return found


def rows_without_partition(
    truncations: Iterable[DecimalTruncation], rows: pa.Table
) -> dict[int, str]:
    """Rows that no partition can hold, and why."""
    found: dict[int, str] = {}
    for truncation in truncations:
        source = column_at(truncation.path, rows)
        least = decimal_of(-(10**truncation.precision) + 1, truncation.scale)

        def is_held(
            value: Any, truncation: DecimalTruncation = truncation, least: Decimal = least
        ) -> bool:
            return value is None or truncated(value, truncation.width, truncation.scale) >= least

        if is_held(pc.min(source).as_py()):
            continue
        for row, value in enumerate(source.to_pylist()):
            if not is_held(value):
                name, kind = (
                    ".".join(truncation.path),
                    f"decimal({truncation.precision}, {truncation.scale})",
                )
                found.setdefault(
                    row, f"truncate[{truncation.width}] of {name}, {value}, is no {kind}"
                )
    return found
