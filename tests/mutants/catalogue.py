"""All mutants, in the order of their promises."""

from typing import Final

from tests.mutants import (
    bounding,
    connections,
    console,
    fetch,
    groups,
    harm,
    http,
    log,
    produce,
    rights,
    sasl,
    tables,
    transactions,
)
from tests.mutants.mutant import Mutant

_SUBJECTS: Final = (
    produce,
    log,
    fetch,
    connections,
    groups,
    transactions,
    bounding,
    tables,
    harm,
    rights,
    sasl,
    http,
    console,
)

MUTANTS: Final[tuple[Mutant, ...]] = tuple(
    sorted(
        [mutant for subject in _SUBJECTS for mutant in subject.MUTANTS],
        key=lambda mutant: int(mutant.promise[1:]),
    )
)
