"""The catalogue of planted bugs fits the tree; whether each is caught, `make mutants` tells."""

from collections import Counter
from pathlib import Path

import pytest

from tests.mutants import sightings
from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant
from tests.mutants.planting import Tree

PROMISES = tuple(f"P{number}" for number in range(1, 18))


@pytest.fixture(scope="module")
def tree() -> Tree:
    return Tree(Path(__file__).parent.parent.parent)


def test_there_are_sixty_mutants_with_names_of_their_own() -> None:
    names = Counter(mutant.name for mutant in MUTANTS)
    assert len(names) >= 60
    assert [name for name, count in names.items() if count > 1] == []


def test_every_promise_has_three_mutants_or_more() -> None:
    counts = Counter(mutant.promise for mutant in MUTANTS)
    assert set(counts) == set(PROMISES)
    assert [promise for promise in PROMISES if counts[promise] < 3] == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_what_a_mutant_replaces_is_in_the_product_once_and_its_tests_are_there(
    mutant: Mutant, tree: Tree
) -> None:
    assert mutant.before != mutant.after
    assert mutant.why
    tree.file_of(mutant)
    assert tree.test_ids(mutant)


def test_what_no_seed_can_find_says_why_and_no_seed_finds_it() -> None:
    wanted = {mutant.name for mutant in sightings.simulated()}
    found = {name for name, seen in sightings.read().items() if seen.seed is not None}
    explained = {mutant.name for mutant in MUTANTS if mutant.unseen}
    assert found <= wanted
    assert explained <= wanted
    assert explained & found == set()


def test_a_seed_finds_a_mutant_for_the_simulator_or_its_entry_says_why_none_can() -> None:
    found = {name for name, seen in sightings.read().items() if seen.seed is not None}
    left = {each.name for each in sightings.simulated() if not each.unseen}
    assert left - found == set()


def test_the_page_of_planted_bugs_is_current() -> None:
    assert sightings.PAGE.read_text() == sightings.page(sightings.read())
