"""What benchmarks of two agents compute by themselves."""

from tests.bench.pairs import interval


def test_the_interval_of_twenty_is_from_the_sixth_to_the_fifteenth() -> None:
    """As tables of order statistics have it: 95.9 %."""
    assert interval([float(number) for number in range(20, 0, -1)]) == (6.0, 15.0)


def test_the_interval_of_few_is_all_of_them() -> None:
    assert interval([1.1, 1.0, 1.2]) == (1.0, 1.2)
