"""What is said of mutants in a tree of one function and a simulator of its own."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mutants import simulating
from tests.mutants.mutant import Concern, Mutant
from tests.mutants.running import UnplantedError
from tests.mutants.simulating import plain, seeds_for, simulate_all

PRODUCT = '''"""A product."""


def larger(one: int, other: int) -> int:
    return one if one > other else other
'''
SIMULATOR = """import json, sys

from product.larger import larger

for seed in map(int, sys.argv[1:]):
    found = [f"{larger(1, 2)} of 1 and 2"] if larger(seed, 7) != max(seed, 7) else []
    print(json.dumps([seed, found]), flush=True)
    if found:
        break
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "product").mkdir(parents=True)
    (root / "tests" / "sim").mkdir(parents=True)
    for package in ("product", "tests", "tests/sim"):
        (root / package / "__init__.py").touch()
    (root / "pyproject.toml").write_text(
        '[tool.hatch.build.targets.wheel]\npackages = ["product"]\n'
    )
    (root / "product" / "larger.py").write_text(PRODUCT)
    (root / "tests" / "sim" / "first_failing.py").write_text(SIMULATOR)
    return root


def mutant(name: str, after: str, *, before: str = "one > other") -> Mutant:
    concern = Concern.LEASES
    return Mutant(
        name=name, promise="P5", before=before, after=after, tests=(), why="", concern=concern
    )


def test_a_mutant_is_seen_by_the_first_seed_that_fails_with_it(root: Path) -> None:
    mutants = [
        mutant("wrong", "one > other and one < 10"),
        mutant("equal", "one >= other"),
        mutant("broken", "one > "),
        mutant("nowhere", "", before="one == other"),
    ]
    seen = {each.mutant.name: each for each in simulate_all(root, mutants, {}, most=20)}
    assert {name: (each.seed, each.runs) for name, each in seen.items()} == {
        "wrong": (10, 6),
        "equal": (None, 12),
        "broken": (1, 1),
        "nowhere": (None, 0),
    }
    assert seen["wrong"].told == "2 of 1 and 2"
    assert "SyntaxError" in seen["broken"].told
    assert (root / "product" / "larger.py").read_text() == PRODUCT


def test_the_seed_that_is_known_to_find_a_mutant_comes_first(root: Path) -> None:
    wrong = mutant("wrong", "one > other and one < 10")
    (seen,) = simulate_all(root, [wrong], {"wrong": 17}, most=20)
    assert (seen.seed, seen.runs) == (17, 1)


def test_a_run_that_never_ends_is_seen(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = itertools.count(1)

    class Timer:
        """Over at once for the fourth line, which never comes: seeds are 1, 2, 5 and 6."""

        def __init__(self, _seconds: float, end: Callable[[], None]) -> None:
            self.end = end

        def start(self) -> None:
            if next(lines) == 4:
                self.end()

        def cancel(self) -> None:
            """It was in time."""

    monkeypatch.setattr(simulating.threading, "Timer", Timer)
    hanging = mutant("hanging", "one > other or (one == 6 and __import__('time').sleep(600))")
    (seen,) = simulate_all(root, [hanging], {}, most=20)
    assert (seen.seed, seen.told) == (6, simulating.HUNG)


def test_a_seed_that_fails_without_any_mutant_ends_the_run(root: Path) -> None:
    product = root / "product" / "larger.py"
    product.write_text(PRODUCT.replace("one if", "one if one < 10 and"))
    with pytest.raises(UnplantedError, match="seed 10 fails"):
        list(simulate_all(root, [mutant("equal", "one >= other")], {}, most=20))


def test_what_is_told_is_the_same_wherever_the_copy_is() -> None:
    told = "failed at /tmp/frazil-x7/copy/product/larger.py:4: <Larger object at 0x7fcf955de390>"
    assert plain(told, Path("/tmp/frazil-x7/copy")) == (
        "failed at product/larger.py:4: <Larger object at 0x…>"
    )


def test_seeds_are_of_worlds_that_have_what_a_mutant_concerns() -> None:
    assert seeds_for(Concern.TRANSACTIONS, 20, None) == [2, 7, 12, 17]
    assert seeds_for(Concern.COLLECTION, 10, 8) == [8, 3, 4, 5, 9, 10]
    for concern in Concern:
        assert seeds_for(concern, 1000, None)
