"""Bytes per second: what waits how long."""

from hypothesis import given
from hypothesis import strategies as st

from broker.jobs.worker.pace import Pace


def test_a_seconds_worth_may_be_moved_at_once() -> None:
    pace = Pace(1000)
    assert [pace.wait_s(500, 10.0), pace.wait_s(500, 10.0)] == [0.0, 0.0]


def test_what_comes_after_a_large_request_waits_until_that_is_paid_for() -> None:
    pace = Pace(1000)
    assert pace.wait_s(5000, 10.0) == 0.0
    assert pace.wait_s(1, 10.0) == 4.0


def test_time_without_requests_is_not_saved_up_beyond_a_second() -> None:
    pace = Pace(1000)
    assert pace.wait_s(1000, 10.0) == 0.0
    assert pace.wait_s(2000, 100.0) == 0.0
    assert pace.wait_s(1000, 100.0) == 1.0


@given(st.lists(st.tuples(st.integers(0, 3000), st.floats(0, 2)), max_size=50))
def test_no_more_is_moved_than_the_rate_allows_and_one_request(
    requests: list[tuple[int, float]],
) -> None:
    pace, now_s, first_s, moved = Pace(1000), 0.0, None, 0
    for length, pause_s in requests:
        now_s += pause_s
        begin_s = now_s + pace.wait_s(length, now_s)
        first_s = begin_s if first_s is None else first_s
        # What was moved before this one begins fits into the time since the first, and a second.
        assert moved <= 1000 * (begin_s - first_s) + 1000 + 1e-6
        moved += length
        now_s = begin_s
