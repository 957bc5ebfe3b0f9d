"""When the loop rests for other threads: when it has worked for most of the last milliseconds."""

import pytest

from broker.calls.rests import BUSY_MS, REST_S, Rests


class Loop:
    """A loop whose time passes by hand."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.worked_s = 0.0
        self.rests: list[float] = []
        self._rests = Rests(
            lambda: self.now_ms, thread_s=lambda: self.worked_s, sleep=self.rests.append
        )
        self._rests.look()

    def work(self, ms: int) -> None:
        self.worked_s += ms / 1000
        self.wait(ms)

    def wait(self, ms: int) -> None:
        self.now_ms += ms
        self._rests.look()


@pytest.fixture
def loop():
    return Loop()


@pytest.mark.promise("P15")
def test_a_loop_that_works_without_a_pause_rests_now_and_then(loop):
    for _ in range(10):
        loop.work(BUSY_MS)
    assert loop.rests == [REST_S] * 10


def test_a_loop_that_has_not_worked_for_long_does_not_rest(loop):
    loop.work(BUSY_MS - 1)
    assert loop.rests == []


def test_a_loop_that_waits_for_a_part_of_its_time_does_not_rest(loop):
    for _ in range(10):
        loop.work(1)
        loop.wait(1)
    assert loop.rests == []


def test_the_first_work_after_a_long_wait_is_no_reason_to_rest(loop):
    loop.wait(1_000)
    loop.work(1)
    assert loop.rests == []
