"""Aborted transactions of one partition as a packed column, 32 bytes each.

Invariant: ranges are in the order of their markers, which are their last offsets.
"""

from bisect import bisect_left
from struct import Struct
from typing import Final, NamedTuple

# Producer id, first offset, last offset (the marker's), last stable offset after it.
_RANGE: Final = Struct("=qqqq")
RANGE_BYTES: Final = _RANGE.size
_WORDS: Final = RANGE_BYTES // 8
_LAST_OFFSET_WORD: Final = 2


class AbortedRange(NamedTuple):
    """Where an aborted transaction has records in a partition; others may lie between them."""

    producer_id: int
    first_offset: int
    last_offset: int
    """That of its marker."""


def pack(producer_id: int, first_offset: int, last_offset: int, last_stable: int) -> bytes:
    """`last_stable`: where read_committed stopped after the marker."""
    return _RANGE.pack(producer_id, first_offset, last_offset, last_stable)


def count(column: bytearray | None) -> int:
    return len(column or b"") // RANGE_BYTES


def ending_before(column: bytearray, offset: int) -> int:
    """How many have their markers below the offset: the first ones."""
    return bisect_left(memoryview(column).cast("q")[_LAST_OFFSET_WORD::_WORDS], offset)


def between(column: bytearray, from_offset: int, to_offset: int) -> list[tuple[int, AbortedRange]]:
    """Ranges that have something in [from_offset, to_offset) and their indexes, ascending.

    Looks at no more of them than begin before `to_offset`, and those that end between.
    """
    first = ending_before(column, from_offset)
    found = []
    rows = memoryview(column)[first * RANGE_BYTES :]
    for index, row in enumerate(_RANGE.iter_unpack(rows), first):
        producer_id, first_offset, last_offset, last_stable = row
        if first_offset < to_offset:
            found.append((index, AbortedRange(producer_id, first_offset, last_offset)))
        # What ends later was open then, or not begun: it has nothing below.
        if last_stable >= to_offset:
            break
    return found


def remove(column: bytearray, indexes: list[int]) -> None:
    """Drop the ranges at these indexes, ascending."""
    if not indexes:
        return
    first, last = indexes[0], indexes[-1]
    gone = set(indexes)
    kept = [
        bytes(column[index * RANGE_BYTES : (index + 1) * RANGE_BYTES])
        for index in range(first, last)
        if index not in gone
    ]
    column[first * RANGE_BYTES : (last + 1) * RANGE_BYTES] = b"".join(kept)
