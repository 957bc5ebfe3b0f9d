"""When the loop rests for other threads: when it has worked for most of the last milliseconds."""

from types import SimpleNamespace

import pytest

from broker.calls.rests import BUSY_MS, HAND_OVER_CROWDED_S, HAND_OVER_S, REST_S, Rests
from broker.node import EdgeStats, Node


class Loop:
    """A loop whose time passes by hand."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.worked_s = 0.0
        self.waiting = 0
        self.rests: list[float] = []
        self.hand_overs: list[float] = []
        self._rests = Rests(
            lambda: self.now_ms,
            thread_s=lambda: self.worked_s,
            sleep=self.rests.append,
            hand_over=self.hand_overs.append,
        )
        self._rests.look(self.waiting)

    def work(self, ms: int) -> None:
        self.worked_s += ms / 1000
        self.wait(ms)

    def wait(self, ms: int) -> None:
        self.now_ms += ms
        self._rests.look(self.waiting)


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


@pytest.mark.promise("P15")
def test_threads_have_the_interpreter_soon_while_requests_wait_and_as_ever_when_none_does(loop):
    loop.work(1)
    assert loop.hand_overs == []
    for loop.waiting in (1, 2, 0, 0):
        loop.work(1)
    assert loop.hand_overs == [HAND_OVER_CROWDED_S, HAND_OVER_S]


@pytest.mark.promise("P15")
def test_connections_and_long_requests_that_wait_for_their_turns_are_told():
    told: list[int] = []
    slices = SimpleNamespace(waiting=0)
    node = SimpleNamespace(stats=EdgeStats(), slices=slices, rests=told.append)
    Node.rest(node)
    node.stats.queued = 1
    Node.rest(node)
    node.stats.queued, slices.waiting = 0, 1
    Node.rest(node)
    assert told == [0, 1, 1]
