"""What was wrong once is right, and so is a fixed number of inputs from fixed seeds.

No test here asks how long something takes: calls of functions are counted, which are the same on every machine.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz import corpus
from tests.fuzz.campaign import Campaign
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS
from tests.fuzz.verdict import Checker, Verdict

CALLS_MAX = 3_000_000
"""Of functions, by one input: some hundred milliseconds."""
EVERY_TARGET = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)


def calls_of(run: Callable[[], Verdict]) -> tuple[Verdict, int]:
    count = 0

    def called(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event.endswith("call")

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        return run(), count
    finally:
        sys.setprofile(before)


@EVERY_TARGET
def test_what_was_wrong_once_is_right(target: type[Target]) -> None:
    fuzzed = target()
    checker = Checker(fuzzed)
    fuzzed.open()
    try:
        with checker.listening():
            for file in corpus.files_of(target.name):
                _is_right(checker, file)
    finally:
        fuzzed.close()


def _is_right(checker: Checker, file: Path) -> None:
    data = file.read_bytes()
    verdict, calls = calls_of(lambda: checker.check(data, strict=False))
    assert verdict.finding is None, f"{file}: {verdict.finding.sign}\n{verdict.finding.text}"
    assert calls < CALLS_MAX, file


@EVERY_TARGET
def test_of_inputs_from_a_fixed_seed_nothing_is_found(target: type[Target]) -> None:
    campaign = Campaign(target(), seed=1, strict=False)
    found = campaign.run(until=float("inf"), count_max=target.fixed, traced=False)
    assert not found, found[0].finding.text
    assert len(campaign.outcomes) > 3, "all inputs come to the same"


def test_every_file_of_the_corpus_is_of_a_target() -> None:
    folders = {folder.name for folder in corpus.FOLDER.iterdir()}
    assert folders <= set(TARGETS)
