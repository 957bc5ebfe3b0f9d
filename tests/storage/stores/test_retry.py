"""A call on the store that is made again: when, how often, and what is the caller's at once."""

import ast
import asyncio
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from storage.stores.object_store import (
    ObjectNotFoundError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
)
from storage.stores.retry import until_done
from storage.stores.retry_policy import RetryPolicy
from tests.storage.build import run_virtual

AWAY = StoreUnavailableError("away")


class Calls:
    """A call that ends as told, in turn: an error, "hang", or with 7; when it was made, in s."""

    def __init__(self, ends: Sequence[Exception | str]) -> None:
        self.ends = list(ends)
        self.made_s: list[float] = []
        self.told: list[tuple[str, int]] = []

    async def __call__(self) -> int:
        self.made_s.append(round(asyncio.get_running_loop().time(), 6))
        end = self.ends.pop(0) if self.ends else 7
        if isinstance(end, Exception):
            raise end
        if end == "hang":
            await asyncio.sleep(10_000)
        return 7

    def tell(self, error: Exception, failures: int) -> None:
        self.told.append((str(error), failures))

    def play(self, policy: RetryPolicy, *, within: float = 1e6, **more: object) -> int | None:
        """What `until_done` returns."""
        found: list[int] = []

        async def test() -> None:
            begun = asyncio.get_running_loop().time()
            try:
                found.append(
                    await until_done(self, policy, tell=self.tell, deadline=begun + within, **more)
                )
            finally:
                self.made_s = [round(each - begun, 6) for each in self.made_s]

        run_virtual(test)
        return found[0]


def test_delays_double_from_the_first_to_the_longest() -> None:
    policy = RetryPolicy(first_s=0.5, longest_s=3.0)
    assert [policy.delay_s(failures) for failures in range(1, 6)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert policy.delay_s(10_000) == 3.0


def test_chance_spreads_a_delay_over_its_upper_half() -> None:
    policy = RetryPolicy(first_s=1.0)
    assert policy.delay_s(1, chance=0.0) == 0.5
    assert policy.delay_s(1, chance=0.5) == 0.75


def test_a_call_that_fails_is_made_again_after_the_delays_of_the_policy() -> None:
    calls = Calls([AWAY, AWAY, AWAY])
    assert calls.play(RetryPolicy(first_s=1.0, longest_s=2.0)) == 7
    assert calls.made_s == [0.0, 1.0, 3.0, 5.0]
    assert calls.told == [("away", 1), ("away", 2), ("away", 3)]


def test_an_attempt_without_an_answer_in_time_is_given_up_and_made_anew() -> None:
    calls = Calls(["hang"])
    assert calls.play(RetryPolicy(first_s=1.0, attempt_s_max=5.0)) == 7
    assert calls.made_s == [0.0, 6.0]
    assert calls.told == [("no answer in time", 1)]


def test_an_attempt_that_moves_many_bytes_has_time_for_them() -> None:
    policy = RetryPolicy(first_s=1.0, attempt_s_max=5.0, bytes_per_second_min=10.0)
    calls = Calls(["hang"])
    assert calls.play(policy, byte_count=30) == 7
    assert calls.made_s == [0.0, 9.0]


def test_after_the_last_attempt_its_error_is_the_callers() -> None:
    calls = Calls([AWAY, AWAY, StoreUnavailableError("still away")])
    with pytest.raises(StoreUnavailableError, match="still away"):
        calls.play(RetryPolicy(attempts_max=3))
    assert len(calls.made_s) == 3
    assert len(calls.told) == 2


def test_no_attempt_begins_at_the_deadline_or_later() -> None:
    calls = Calls([AWAY] * 9)
    with pytest.raises(StoreUnavailableError):
        calls.play(RetryPolicy(first_s=1.0, longest_s=1.0), within=3.0)
    assert calls.made_s == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("error", [StoreRefusedError("no"), ObjectNotFoundError("x"), ValueError()])
def test_what_repeating_does_not_change_is_raised_at_once(error: Exception) -> None:
    calls = Calls([error])
    with pytest.raises(type(error)):
        calls.play(RetryPolicy())
    assert (len(calls.made_s), calls.told) == (1, [])


def test_the_caller_says_which_errors_may_pass() -> None:
    calls = Calls([StoreRefusedError("no"), ObjectNotFoundError("x")])
    assert calls.play(RetryPolicy(), passing=(StoreError,)) == 7
    assert [failures for _, failures in calls.told] == [1, 2]


def test_the_same_seed_waits_the_same_and_another_one_differently() -> None:
    def waits(seed: int) -> list[float]:
        calls = Calls([AWAY] * 5)
        calls.play(RetryPolicy(), rng=random.Random(seed))
        return calls.made_s

    assert waits(1) == waits(1) != waits(2)


ROOT = Path(__file__).parents[3]
OWN_LOOPS = {
    "storage/stores/retry.py",
    "broker/store/probe.py",  # It asks for ever, and an error is what it wants to know.
}


def repeated_after_an_error_of_the_store(file: Path) -> Iterator[int]:
    """Lines of loops that catch an error of the store and then wait."""
    for loop in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(loop, ast.While | ast.For):
            nodes = list(ast.walk(loop))
            caught = [
                ast.unparse(n.type) for n in nodes if isinstance(n, ast.ExceptHandler) and n.type
            ]
            calls = [ast.unparse(n.func) for n in nodes if isinstance(n, ast.Call)]
            if "asyncio.sleep" in calls and any("Store" in names for names in caught):
                yield loop.lineno


def test_nobody_else_repeats_a_call_on_the_store() -> None:
    files = [
        file
        for package in ("storage", "coordinator", "broker")
        for file in (ROOT / package).rglob("*.py")
    ]
    found = {
        f"{file.relative_to(ROOT)}": lines
        for file in files
        if (lines := list(repeated_after_an_error_of_the_store(file)))
    }
    assert found.keys() <= OWN_LOOPS, "use storage.stores.retry.until_done"
