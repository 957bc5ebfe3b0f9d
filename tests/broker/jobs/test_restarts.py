"""When another worker follows one that ended, and when another agent should have the jobs."""

from broker.jobs.restarts import (
    ENDS_MAX,
    MEMORY_S_MAX,
    MEMORY_S_MIN,
    RESTART_S_MAX,
    STEADY_S,
    Restarts,
)

SENTENCE = "it takes 99 MiB"


def test_workers_that_end_soon_follow_each_other_slower_and_slower_and_then_go_elsewhere() -> None:
    restarts = Restarts()
    pauses = []
    for _ in range(ENDS_MAX - 1):
        pauses.append(restarts.ended(lived_s=1, now_ms=0))
        assert not restarts.passes_on
    pauses += [restarts.ended(lived_s=1, now_ms=0) for _ in range(4)]
    assert restarts.passes_on
    assert pauses == [1, 2, 4, 8, 16, 32, RESTART_S_MAX, RESTART_S_MAX]


def test_a_worker_that_lived_long_begins_anew() -> None:
    restarts = Restarts()
    for _ in range(ENDS_MAX):
        restarts.ended(lived_s=1, now_ms=0)
    assert restarts.ended(lived_s=STEADY_S, now_ms=0) == 1
    assert not restarts.passes_on


def test_want_of_memory_goes_elsewhere_at_once_and_the_pauses_double_up_to_ten_minutes() -> None:
    restarts = Restarts()
    pauses = []
    for _ in range(7):
        pauses.append(restarts.gave_up(SENTENCE, now_ms=0))
        assert restarts.passes_on
    assert pauses == [MEMORY_S_MIN, 60, 120, 240, 480, MEMORY_S_MAX, MEMORY_S_MAX]
    assert restarts.short_of_memory == SENTENCE


def test_nothing_is_started_before_the_pause_is_over() -> None:
    restarts = Restarts()
    restarts.gave_up(SENTENCE, now_ms=1000)
    assert not restarts.may_start(1000 + int(MEMORY_S_MIN * 1000) - 1)
    assert restarts.may_start(1000 + int(MEMORY_S_MIN * 1000))


def test_jobs_that_come_back_meet_the_pause_that_was_left() -> None:
    restarts = Restarts()
    restarts.gave_up(SENTENCE, now_ms=0)
    restarts.passed_on()
    assert not restarts.passes_on
    assert not restarts.may_start(1000)
    assert restarts.gave_up(SENTENCE, now_ms=60_000) == 2 * MEMORY_S_MIN


def test_a_snapshot_that_was_made_shows_that_there_is_enough() -> None:
    restarts = Restarts()
    for _ in range(5):
        restarts.gave_up(SENTENCE, now_ms=0)
    restarts.enough()
    assert restarts.short_of_memory is None
    assert restarts.gave_up(SENTENCE, now_ms=0) == MEMORY_S_MIN
