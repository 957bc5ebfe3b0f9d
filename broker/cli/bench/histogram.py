"""Counts of times in buckets that widen with the times, each at most a thirty-second wide. Pure."""

from collections import Counter
from collections.abc import Iterable
from typing import Final, Self

_BITS: Final = 5
"""Of a time, behind its first one, that tell buckets apart."""


class Histogram:
    """Of microseconds. `Counter` is what processes send each other of it."""

    def __init__(self, counts: Counter[int] | None = None) -> None:
        self.counts: Counter[int] = Counter() if counts is None else counts

    def add(self, time_us: int) -> None:
        shift = max(time_us.bit_length() - _BITS - 1, 0)
        self.counts[(shift << _BITS) + (time_us >> shift)] += 1

    @classmethod
    def merged(cls, several: Iterable[Counter[int]]) -> Self:
        return cls(sum(several, Counter()))

    @property
    def total(self) -> int:
        return self.counts.total()

    def percentile(self, part: float) -> int | None:
        """The time that so many of 100 are not above, by the end of its bucket; None of no times."""
        wanted = max(self.total * part / 100, 1)
        seen = 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= wanted - 1e-9:
                return _end_of(bucket)
        return None

    def within(self, ends_us: Iterable[int]) -> list[int]:
        """How many times are not above each end and above the one before; those above the last one are left out."""
        counts = []
        before = -1
        for end in ends_us:
            counts.append(
                sum(n for bucket, n in self.counts.items() if before < _end_of(bucket) <= end)
            )
            before = end
        return counts


def _end_of(bucket: int) -> int:
    """The longest time that is in it, µs."""
    if bucket < 1 << (_BITS + 1):
        return bucket
    shift = (bucket >> _BITS) - 1
    first = bucket - (shift << _BITS)
    return ((first + 1) << shift) - 1
