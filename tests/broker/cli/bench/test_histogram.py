"""Times in buckets, and what is told of them."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.cli.bench.histogram import Histogram

times = st.lists(st.integers(0, 1 << 40), min_size=1, max_size=50)


def of(*values: int) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    return histogram


@given(times, st.sampled_from([1, 50, 90, 99, 99.9, 100]))
def test_a_percentile_is_at_most_a_thirty_second_above_the_exact_one(values, part):
    exact = sorted(values)[max(math.ceil(len(values) * part / 100 - 1e-9), 1) - 1]
    found = of(*values).percentile(part)
    assert exact <= found <= exact + exact / 32


def test_short_times_are_exact():
    assert [of(time).percentile(50) for time in range(64)] == list(range(64))


@given(times, times)
def test_what_several_counted_is_what_one_would_have(some, others):
    merged = Histogram.merged([of(*some).counts, of(*others).counts])
    assert merged.counts == of(*some, *others).counts
    assert merged.total == len(some) + len(others)


def test_of_no_times_nothing_is_told():
    assert Histogram.merged([Counter()]).percentile(50) is None
    assert Histogram().within([1, 2]) == [0, 0]


def test_bars_count_the_times_up_to_their_ends():
    assert of(0, 5, 10, 11, 30, 63).within([10, 20, 50]) == [3, 1, 1]


@pytest.mark.parametrize("value", [1 << 50])
def test_very_long_times_have_a_bucket(value):
    assert of(value).percentile(100) >= value
