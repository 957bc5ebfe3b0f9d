"""What a benchmark measures: a case is prepared on each side once, and then taken in turns.

Both brokers run at once and take turns (A B C, A B C), so that a machine that slows down slows all;
a ratio is the median of the ratios of the turns. Figures of one run on a shared machine are worth
their ratios, not their absolute values.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tests.bench.pairs import interval
from tests.bench.sides import Side

Figures = Mapping[str, float]
"""Of one turn of one side, by column."""


class Column(NamedTuple):
    """A figure, as tables and plots show it."""

    name: str
    unit: str
    digits: int
    """Behind the point."""
    has_ratio: bool = True


class Effort(NamedTuple):
    """How long a run takes."""

    seconds: float
    """Of a turn, at most."""
    turns: int
    warm_s: float
    """Of load before anything is measured, for what compiles itself."""
    fill_bytes: int
    turn_bytes: int


FULL = Effort(seconds=4.0, turns=4, warm_s=60.0, fill_bytes=192_000_000, turn_bytes=200_000_000)
QUICK = Effort(seconds=2.0, turns=2, warm_s=8.0, fill_bytes=64_000_000, turn_bytes=64_000_000)


class Case(Protocol):
    """One row of a table. `turns_max` where a turn takes long."""

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def sides(self) -> Sequence[str]: ...

    @property
    def turns_max(self) -> int: ...

    def prepare(self, side: Side, effort: Effort) -> None: ...

    def turn(self, side: Side, effort: Effort) -> Figures: ...


class Spread(NamedTuple):
    middle: float
    least: float
    most: float


def spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


@dataclass
class Result:
    """All turns of a case, by side, in the order in which they took turns."""

    case: Case
    turns: dict[str, list[Figures]]

    def of(self, side: str, column: str) -> Spread | None:
        """None: the side has no such figure."""
        values = [each[column] for each in self.turns.get(side, ()) if column in each]
        return spread(values) if values else None

    def ratio(self, side: str, other: str, column: str) -> Spread | None:
        """Of the turns one by one, with the interval of their median; None where there is none."""
        pairs = zip(self.turns.get(side, ()), self.turns.get(other, ()), strict=False)
        values = [
            one[column] / two[column]
            for one, two in pairs
            if column in one and two.get(column, 0.0) > 0
        ]
        return Spread(statistics.median(values), *interval(values)) if values else None
