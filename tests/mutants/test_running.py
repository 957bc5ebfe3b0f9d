"""What is said of mutants in a tree of one function and its tests."""

from pathlib import Path

import pytest

from tests.mutants import running
from tests.mutants.mutant import Mutant
from tests.mutants.planting import MisfitError, Tree, planted
from tests.mutants.running import Fate, UnplantedError, run_all

PRODUCT = '''"""A product."""


def larger(one: int, other: int) -> int:
    return one if one > other else other
'''
TESTS = """from product.larger import larger


def test_the_larger_comes():
    assert larger(1, 2) == 2


def test_one_comes():
    assert larger(1, 1) == 1


def test_it_never_stood():
    assert larger(1, 2) == 1
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "product").mkdir(parents=True)
    (root / "tests").mkdir()
    (root / "pyproject.toml").write_text(
        '[tool.hatch.build.targets.wheel]\npackages = ["product"]\n'
    )
    (root / "product" / "larger.py").write_text(PRODUCT)
    (root / "tests" / "test_larger.py").write_text(TESTS)
    return root


def mutant(
    name: str, after: str, *, before: str = "one > other", test: str = "test_the_larger_comes"
) -> Mutant:
    return Mutant(name=name, promise="P1", before=before, after=after, tests=(test,), why="")


def test_each_mutant_is_told_by_what_became_of_its_tests(root: Path) -> None:
    mutants = [
        mutant("wrong", "one < other"),
        mutant("equal", "one >= other"),
        mutant("broken", "one >"),
        mutant("nowhere", "", before="one == other"),
        mutant("twice", "", before="other"),
        mutant("untested", "one < other", test="test_of_nothing"),
    ]
    verdicts = {each.mutant.name: each for each in run_all(root, mutants, workers=1)}
    assert {name: verdict.fate for name, verdict in verdicts.items()} == {
        "wrong": Fate.CAUGHT,
        "equal": Fate.SURVIVED,
        "broken": Fate.ERROR,
        "nowhere": Fate.ERROR,
        "twice": Fate.ERROR,
        "untested": Fate.ERROR,
    }
    assert "assert 1 == 2" in verdicts["wrong"].told
    assert (root / "product" / "larger.py").read_text() == PRODUCT


def test_a_mutant_whose_tests_do_not_end_is_no_survivor(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "HUNG_S", 1.0)
    (verdict,) = run_all(root, [mutant("hanging", "__import__('time').sleep(600)")], workers=1)
    assert verdict.fate is Fate.HUNG
    assert verdict.fate.is_good


def test_tests_that_fail_without_any_mutant_end_the_run(root: Path) -> None:
    failing = mutant("wrong", "one < other", test="test_it_never_stood")
    with pytest.raises(UnplantedError, match="test_it_never_stood"):
        list(run_all(root, [failing], workers=1))


def test_a_file_is_what_it_was_when_a_mutant_is_taken_out(root: Path) -> None:
    wrong = mutant("wrong", "one < other")
    file = root / Tree(root).file_of(wrong)
    with planted(wrong, file):
        assert "one < other" in file.read_text()
    assert file.read_text() == PRODUCT


def test_a_test_is_found_wherever_its_name_is(root: Path) -> None:
    (root / "tests" / "deeper").mkdir()
    (root / "tests" / "deeper" / "test_more.py").write_text(
        "async def test_one_comes():\n    ...\n"
    )
    tree = Tree(root)
    assert tree.test_ids(mutant("one", "", test="test_one_comes[x]")) == [
        "tests/deeper/test_more.py::test_one_comes[x]",
        "tests/test_larger.py::test_one_comes[x]",
    ]
    with pytest.raises(MisfitError, match=r"there is no test test_on$"):
        tree.test_ids(mutant("one", "", test="test_on"))
