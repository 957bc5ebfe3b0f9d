"""A plugin of pytest: what tests draw is the same in every run, unless `--explore SEED` asks for more.

A test draws with Hypothesis, or it takes a `seed`. Without the option both are fixed: by the test's
own source alone, whatever ran before it, on which machine, in which process. With it every test that
draws draws several times as much, afresh, by SEED alone; the others are left out. The same SEED draws
the same again, also for one test by its id: so a finding is replayed.
"""

import functools
import random
from pathlib import Path
from types import ModuleType
from unittest import TestCase

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants, constants_from_module
from hypothesis.internal.floats import float_to_int
from sortedcontainers import SortedSet

ROOT = Path(__file__).parent.parent
PACKAGES = ("protocol", "storage", "txn", "coordinator", "broker", "iceberg_export")
TIMES = 5
"""How much more a test draws when it explores: enough to pay for the start of its process."""

NOBODYS = Constants()
"""Hypothesis would try what the modules say that happen to be loaded; not the same in every process."""


def fix() -> None:
    """Nothing in these settings waits for time, and nothing is remembered from one run to the next."""
    settings.register_profile(
        "fixed",
        derandomize=True,
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("fixed")
    providers._get_local_constants = lambda: NOBODYS


def draw_afresh() -> None:
    """Slow or wasteful draws are no findings; what our own modules compare with is tried as well."""
    settings.register_profile(
        "fresh",
        settings.get_profile("fixed"),
        derandomize=False,
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile("fresh")
    providers._get_local_constants = ours


@functools.cache
def ours() -> Constants:
    """What our modules say, all of them, loaded or not."""
    said = Constants()
    for file in sorted(file for name in PACKAGES for file in ROOT.glob(f"{name}/**/*.py")):
        module = ModuleType(file.stem)
        module.__file__ = str(file)
        said |= constants_from_module(module)
    # In order, as Hypothesis has its own: that of plain sets hangs on whether it knew a file already.
    return Constants(
        integers=SortedSet(said.integers),
        floats=SortedSet(said.floats, key=float_to_int),
        bytes=SortedSet(said.bytes),
        strings=SortedSet(said.strings),
    )


fix()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--explore", type=int, metavar="SEED", help="draw afresh, by this seed")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """After Hypothesis, which takes its own option here."""
    seed = config.getoption("--explore")
    if seed is not None:
        from hypothesis import core

        core.global_force_seed = seed
        draw_afresh()


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Before pytest reads the marks: other seeds than those that the test names."""
    explored = metafunc.config.getoption("--explore")
    if explored is None:
        return
    marks = metafunc.definition.own_markers
    for index, mark in enumerate(marks):
        if mark.name == "parametrize" and mark.args[0] == "seed":
            first = random.Random(explored).randrange(1 << 40)
            fresh = range(first, first + TIMES * len(mark.args[1]))
            marks[index] = pytest.mark.parametrize("seed", fresh).mark


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--explore") is None:
        return
    drawing = [item for item in items if uses_hypothesis(item) or takes_a_seed(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in drawing])
    items[:] = drawing
    held = [item.cls if issubclass(item.cls or object, TestCase) else item.obj for item in drawing]
    # Tests of one function share its settings.
    for holder in {id(holder): holder for holder in held}.values():
        name = "settings" if isinstance(holder, type) else "_hypothesis_internal_use_settings"
        if (written := getattr(holder, name, None)) is not None:
            setattr(holder, name, settings(written, max_examples=TIMES * written.max_examples))


def uses_hypothesis(item: pytest.Item) -> bool:
    return getattr(getattr(item, "obj", None), "is_hypothesis_test", False)


def takes_a_seed(item: pytest.Item) -> bool:
    return hasattr(item, "callspec") and "seed" in item.callspec.params
