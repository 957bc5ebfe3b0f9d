"""A watch whose member lacks what others have answered: by how many answers that is told, and when not."""

from coordinator.log.etcd_lag import ANSWERS_MAX, Lag

EVERY_S = 0.5


def told(*answers: tuple[float, int, int]) -> list[bool]:
    """What each of these (time, its revision, the newest seen) tells."""
    lag = Lag(every_s=EVERY_S)
    return [lag.is_too_long(revision, seen=seen, now_s=at) for at, revision, seen in answers]


def test_so_many_answers_in_a_row_that_lack_it_are_too_many() -> None:
    lacking = [(EVERY_S * number, 7, 9) for number in range(1 + ANSWERS_MAX)]
    assert told(*lacking) == [*[False] * ANSWERS_MAX, True]


def test_what_is_seen_between_two_answers_is_not_expected_of_either() -> None:
    assert not any(told(*((EVERY_S * number, number, number + 1) for number in range(10))))


def test_a_member_that_catches_up_begins_anew() -> None:
    assert not any(told((0, 7, 9), (0.5, 7, 9), (1.0, 9, 12), (1.5, 10, 12), (2.0, 12, 12)))


def test_answers_that_come_together_count_once() -> None:
    """They waited in a process that stood still."""
    assert told((0, 7, 9), (3.0, 7, 9), (3.01, 7, 9), (3.02, 7, 9), (3.5, 7, 9)) == [
        *[False] * 4,
        True,
    ]
