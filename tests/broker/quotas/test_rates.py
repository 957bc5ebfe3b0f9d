"""Kafka's arithmetic: rates over samples, and buckets of tokens."""

import pytest

from broker.quotas.rates import THROTTLE_MS_MAX, Rate, TokenBucket, Window

KAFKAS = Window(samples=11, sample_ms=1_000)
START_MS = 5_000_000


def test_a_rate_is_over_ten_seconds_although_it_has_just_begun():
    rate = Rate(KAFKAS)
    rate.record(1_000, START_MS)
    assert rate.observed(START_MS) == 100
    assert rate.observed(START_MS + 500) == pytest.approx(1_000 / 10.5)


def test_what_was_recorded_is_forgotten_when_the_newest_of_its_sample_is_eleven_seconds_old():
    rate = Rate(KAFKAS)
    rate.record(600, START_MS)
    rate.record(400, START_MS + 900)
    assert rate.observed(START_MS + 11_899) == pytest.approx(1_000 / 11.899)
    assert rate.observed(START_MS + 11_900) == 0


def test_samples_go_one_by_one():
    rate = Rate(KAFKAS)
    for second in range(20):
        rate.record(100, START_MS + 1_000 * second)
    # Those of seconds 9 to 19 are left, ten seconds from the first one's beginning on.
    assert rate.observed(START_MS + 19_000) == 110
    assert rate.observed(START_MS + 20_000) == pytest.approx(1_000 / 10)


def test_fractions_that_have_gone_leave_nothing_behind():
    rate = Rate(KAFKAS)
    for second in range(30):
        rate.record(0.1, START_MS + 1_000 * second)
    assert rate.observed(START_MS + 60_000) == 0


def test_a_bucket_is_full_at_first_and_overdrawn_once():
    bucket = TokenBucket(KAFKAS.whole_ms)
    assert bucket.tokens(2, START_MS) == 22
    bucket.take(30, 2, START_MS)
    assert bucket.throttle_ms(2, START_MS) == 4_000
    assert bucket.throttle_ms(2, START_MS + 3_000) == 1_000
    assert bucket.throttle_ms(2, START_MS + 4_000) == 0


@pytest.mark.parametrize("quota", [1e-300, 5e-324, 5e-324 / 2])
def test_of_a_quota_that_is_next_to_nothing_one_waits_as_long_as_can_be_told(quota):
    bucket = TokenBucket(KAFKAS.whole_ms)
    bucket.take(1, quota, START_MS)
    assert bucket.throttle_ms(quota, START_MS) == THROTTLE_MS_MAX


def test_a_bucket_never_holds_more_than_its_burst():
    bucket = TokenBucket(KAFKAS.whole_ms)
    bucket.take(1, 2, START_MS)
    assert not bucket.is_full(2, START_MS + 400)
    assert bucket.is_full(2, START_MS + 1_000_000)
    assert bucket.tokens(2, START_MS + 1_000_000) == 22


def test_a_smaller_quota_makes_the_bucket_smaller():
    bucket = TokenBucket(KAFKAS.whole_ms)
    assert bucket.tokens(10, START_MS) == 110
    assert bucket.tokens(1, START_MS) == 11
