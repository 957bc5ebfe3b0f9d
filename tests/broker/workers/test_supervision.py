"""What becomes of a worker that ended: the table, and the waits."""

import pytest

from broker.workers.supervision import (
    BACKOFF_MS,
    BACKOFF_MS_MAX,
    STEADY_MS,
    Again,
    AllEnd,
    Ended,
    Over,
    Step,
    backoff_ms,
    step_after,
)

EVEN = 0.5
"""The chance by which a wait is neither longer nor shorter."""
REFUSED = "cannot listen on 127.0.0.1:9192"
FIRST = Again(BACKOFF_MS, 1)


@pytest.mark.parametrize(
    ("ended", "leaving", "step"),
    [
        (Ended(1, REFUSED), False, AllEnd(REFUSED)),
        (Ended(1, REFUSED, served_ms=5), False, FIRST),
        (Ended(-9), False, FIRST),
        (Ended(-9, served_ms=5), False, FIRST),
        (Ended(0, served_ms=5), False, FIRST),
        (Ended(0, served_ms=5), True, Over()),
        (Ended(1, REFUSED), True, Over()),
        (Ended(-9), True, Over()),
    ],
)
def test_a_worker_is_kept_unless_all_leave_or_it_refuses_before_it_has_served(
    ended: Ended, leaving: bool, step: Step
) -> None:
    assert step_after(ended, failures=0, leaving=leaving, chance=EVEN) == step


def test_a_worker_that_dies_again_and_again_is_started_later_and_later_up_to_a_bound() -> None:
    failures, waits = 0, []
    for _ in range(10):
        step = step_after(Ended(-11), failures=failures, leaving=False, chance=EVEN)
        assert isinstance(step, Again)
        failures = step.failures
        waits.append(step.after_ms)
    assert waits == [100, 200, 400, 800, 1600, 3200, 6400, *[BACKOFF_MS_MAX] * 3]


def test_a_worker_that_has_served_for_long_is_started_again_at_once() -> None:
    steady = Ended(-9, served_ms=STEADY_MS)
    assert step_after(steady, failures=7, leaving=False, chance=EVEN) == FIRST
    unsteady = Ended(-9, served_ms=STEADY_MS - 1)
    assert step_after(unsteady, failures=7, leaving=False, chance=EVEN) == Again(BACKOFF_MS_MAX, 8)


def test_waits_differ_by_a_fifth_so_that_workers_do_not_start_together() -> None:
    assert [backoff_ms(1, chance) for chance in (0.0, 0.5, 1.0)] == [160, 200, 240]
