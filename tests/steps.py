"""`python -m tests.steps plan | NAME`: what `make test` is going to do, and which of its steps begins (Makefile).

Minutes are those of two cores. Imports nothing that has to be installed.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.packages import STEPS as PACKAGES
from tests.parts.install import DOWNLOADS_MB, PARTS, missing

STEPS: Final = {
    "packages": "packages",
    "style": "format and lint",
    "unit": "tests that start no other program (23,000, about 7 minutes); parts are made and types checked beside them",
    "parts": "waiting for parts",
    "real": "tests against real parts (1,900, about 20 minutes); the simulator runs beside them",
    "rest": "waiting for types and simulator",
    "alone": "tests that have the machine for themselves (74, about 11 minutes)",
}
MINUTES: Final = 34
PACKAGES_MINUTES: Final = 3
PARTS_MINUTES: Final = 10
"""Once: parts are made while other steps run, but for what is left then."""


def plan(packages: Sequence[str], parts: Sequence[str]) -> str:
    """What is going to happen, with those packages and parts to be had first."""
    packages_mb = sum(PACKAGES[name].download_mb for name in packages)
    parts_mb = sum(DOWNLOADS_MB[name] for name in parts)
    once = {
        "packages": f"up to {packages_mb:,} MB to download, about {PACKAGES_MINUTES} minutes, this once"
        if packages
        else "all there",
        "parts": f"{', '.join(parts)}: about {parts_mb:,} MB to download and {PARTS_MINUTES} minutes, this once"
        if parts
        else "all there",
    }
    minutes = MINUTES + PACKAGES_MINUTES * bool(packages) + PARTS_MINUTES * bool(parts)
    return f"make test: {len(STEPS)} steps, about {minutes} minutes on two cores\n" + "\n".join(
        f"  {number} {_described(name, once)}" for number, name in enumerate(STEPS, 1)
    )


def _described(name: str, once: Mapping[str, str]) -> str:
    return f"{STEPS[name]}: {once[name]}" if name in once else STEPS[name]


def begins(name: str) -> str:
    """The line that says so."""
    return f"[{list(STEPS).index(name) + 1} of {len(STEPS)}] {STEPS[name]}"


def main(name: str) -> None:
    if name == "plan":
        folder = Path(sys.prefix)
        waiting = [one for one, step in PACKAGES.items() if not (folder / step.stamp).exists()]
        print(plan(waiting, missing(PARTS)), flush=True)
    else:
        print(begins(name), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
