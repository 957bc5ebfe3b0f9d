"""What the simulator found of the catalogue, kept in `sightings.json`, and the page made from it."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Concern, Mutant

KEPT: Final = Path(__file__).parent / "sightings.json"
PAGE: Final = Path(__file__).parent.parent.parent / "docs" / "planted-bugs.md"
TOLD_MAX = 120
_HEAD = """\
# Planted bugs that the simulator finds

Which seed of the simulator ([design/anomalies.md](design/anomalies.md#41-simulator)) finds which bug of the catalogue
in `tests/mutants/`, of those that concern what it is there for, and what it says then; or why none can: then the tests
that the catalogue names find it. A seed fails with the bug and passes without. This page is generated:
`make mutants SIMULATE=1` runs the seeds, and writes it.
"""


class Kept(NamedTuple):
    """What seeds said of a mutant."""

    seed: int | None
    """That found it; None: none did."""
    told: str
    most: int
    """The last seed that was to be tried."""


def simulated() -> list[Mutant]:
    """The mutants for the simulator."""
    return [mutant for mutant in MUTANTS if mutant.concern is not None]


def read() -> dict[str, Kept]:
    """By the names of mutants."""
    if not KEPT.exists():
        return {}
    return {name: Kept(*seen) for name, seen in json.loads(KEPT.read_text()).items()}


def write(kept: Mapping[str, Kept]) -> None:
    """Keep them, and write the page."""
    lines = [f"{json.dumps(name)}: {json.dumps(kept[name])}" for name in sorted(kept)]
    KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    PAGE.write_text(page(kept))


def page(kept: Mapping[str, Kept]) -> str:
    """The text of `docs/planted-bugs.md`."""
    return "\n".join([_HEAD, *(line for each in Concern for line in _section(each, kept))])


def _section(concern: Concern, kept: Mapping[str, Kept]) -> Iterator[str]:
    mutants = [each for each in simulated() if each.concern is concern]
    found = [each for each in mutants if each.name in kept and kept[each.name].seed is not None]
    yield f"## {concern.value.capitalize()}: {len(found)} of {len(mutants)}\n"
    if found:
        yield "| bug | what somebody would see | seed | what the simulator says |"
        yield "|--|--|--|--|"
        for mutant in found:
            seed, told, _ = kept[mutant.name]
            yield f"| {mutant.name} | {mutant.why} | {seed} | `{_short(told)}` |"
        yield ""
    left = [each for each in mutants if each not in found]
    if left:
        yield "No seed finds:\n"
        yield from (f"* {each.name}: {each.why} *{_reason(each, kept)}*" for each in left)
        yield ""


def _reason(mutant: Mutant, kept: Mapping[str, Kept]) -> str:
    if mutant.unseen:
        return mutant.unseen
    if mutant.name in kept:
        return f"None up to {kept[mutant.name].most} does, and it is not known why."
    return "None has been tried yet."


def _short(told: str) -> str:
    told = told.replace("|", "/").replace("`", "'")
    return told if len(told) <= TOLD_MAX else told[:TOLD_MAX].rstrip() + " …"
