"""What is counted within the time that a benchmark measures."""

from broker.cli.bench.worker import Measured


def test_what_happens_after_the_time_is_not_counted() -> None:
    measured = Measured(1.0)
    times = (measured.begin_ns, measured.end_ns, measured.end_ns + 1)
    assert [measured.counts(time) for time in times] == [True, True, False]
    assert measured.counted(0, "")[:2] == (2, 1.0)


def test_the_first_counts_however_late_it_is_and_the_time_lasts_until_then() -> None:
    measured = Measured(1.0)
    late_ns = measured.end_ns + 2_000_000_000
    assert [measured.counts(time) for time in (late_ns, late_ns, late_ns + 1)] == [
        True,
        True,
        False,
    ]
    assert measured.counted(0, "")[:2] == (2, 3.0)


def test_nothing_at_all_is_none_in_the_time_that_was_asked_for() -> None:
    assert Measured(2.0).counted(7, "why")[:3] == (0, 2.0, 7)
