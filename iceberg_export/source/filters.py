"""The range that a query's filters leave: of partition, offset and timestamp.

A filter here only leaves out what cannot match: Spark applies all of them again to what comes.
So one that is not understood costs time, never rows. Pure.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from iceberg_export import names

OFFSET_END = 1 << 63


class Filter(NamedTuple):
    """One of a query's conditions, all of which must hold: `kind` is the class of Spark's API."""

    kind: str
    column: tuple[str, ...]
    value: Any
    """Points in time as whole microseconds since 1970."""


class QueryRange(NamedTuple):
    """Ranges of partition, offset and timestamp that can match."""

    partitions: frozenset[int] | None = None
    """None: all."""
    offset_from: int = 0
    offset_to: int = OFFSET_END
    """First offset no longer wanted."""
    micros_from: int | None = None
    """Of the timestamp; what has none is not wanted then. None: all."""
    micros_to: int | None = None
    """First one no longer wanted."""

    def has(self, partition: int) -> bool:
        return self.partitions is None or partition in self.partitions


def narrow_range(filters: Iterable[Filter], query: QueryRange) -> QueryRange:
    """Narrows a range by filters that all must hold."""
    for one in filters:
        if len(one.column) != 1:
            continue
        narrow = _NARROW.get(one.column[0])
        values = tuple(one.value) if one.kind == "In" else (one.value,)
        if narrow is not None and values and all(value is not None for value in values):
            query = narrow(query, one.kind, values)
    return query


def _narrow_partitions(query: QueryRange, kind: str, values: tuple[Any, ...]) -> QueryRange:
    if kind not in {"EqualTo", "EqualNullSafe", "In"}:
        return query
    found = frozenset(int(value) for value in values)
    return query._replace(
        partitions=found if query.partitions is None else query.partitions & found
    )


def _range(kind: str, values: tuple[int, ...]) -> tuple[int | None, int | None]:
    """[from, to) of whole numbers; None: open."""
    if kind in {"EqualTo", "EqualNullSafe", "In"}:
        return min(values), max(values) + 1
    (value,) = values
    return {
        "GreaterThan": (value + 1, None),
        "GreaterThanOrEqual": (value, None),
        "LessThan": (None, value),
        "LessThanOrEqual": (None, value + 1),
    }.get(kind, (None, None))


def _narrow_offsets(query: QueryRange, kind: str, values: tuple[Any, ...]) -> QueryRange:
    start, end = _range(kind, tuple(int(value) for value in values))
    return query._replace(
        offset_from=max(query.offset_from, start if start is not None else 0),
        offset_to=min(query.offset_to, end if end is not None else OFFSET_END),
    )


def _narrow_timestamps(query: QueryRange, kind: str, values: tuple[Any, ...]) -> QueryRange:
    if not all(isinstance(value, int) for value in values):
        return query
    start, end = _range(kind, values)
    lower = [one for one in (query.micros_from, start) if one is not None]
    upper = [one for one in (query.micros_to, end) if one is not None]
    return query._replace(micros_from=max(lower, default=None), micros_to=min(upper, default=None))


_NARROW: dict[str, Callable[[QueryRange, str, tuple[Any, ...]], QueryRange]] = {
    names.PARTITION: _narrow_partitions,
    names.OFFSET: _narrow_offsets,
    names.TIMESTAMP: _narrow_timestamps,
}
