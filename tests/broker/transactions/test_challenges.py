"""Tokens of a connection: which frames are in reply to which challenge.

This is rule 3 of docs/design/kafka-semantics.md §6.3.
"""

from hypothesis import given
from hypothesis import strategies as st

from broker.calls.challenges import TOKENS_MAX, Challenge, Challenges

FIRST = Challenge("id", 1)


def test_a_frame_begun_after_the_answer_had_left_is_a_reply():
    challenges = Challenges()
    challenges.told(FIRST)
    challenges.left(100)
    assert challenges.answered_by(FIRST, 100)
    assert challenges.answered_by(FIRST, 5_000)


def test_a_frame_whose_first_byte_had_arrived_is_none():
    challenges = Challenges()
    challenges.told(FIRST)
    challenges.left(100)
    assert not challenges.answered_by(FIRST, 99)


def test_before_the_answer_has_left_nothing_is_a_reply():
    challenges = Challenges()
    challenges.told(FIRST)
    assert challenges.leaving
    assert not challenges.answered_by(FIRST, 1_000_000)
    challenges.left(0)
    assert not challenges.leaving


def test_a_token_is_for_one_transaction_of_one_id():
    challenges = Challenges()
    challenges.told(FIRST)
    challenges.left(0)
    assert not challenges.answered_by(Challenge("id", 2), 10)
    assert not challenges.answered_by(Challenge("other", 1), 10)


def test_a_second_challenge_does_not_take_the_first_token_away():
    challenges = Challenges()
    challenges.told(FIRST)
    challenges.left(100)
    challenges.told(FIRST)
    challenges.left(300)
    assert challenges.answered_by(FIRST, 200)


def test_tokens_are_bounded_and_the_oldest_goes_first():
    challenges = Challenges()
    for instance in range(TOKENS_MAX + 1):
        challenges.told(Challenge("id", instance))
        challenges.left(10)
    assert not challenges.answered_by(Challenge("id", 0), 10)
    assert challenges.answered_by(Challenge("id", 1), 10)
    assert challenges.answered_by(Challenge("id", TOKENS_MAX), 10)


@given(st.lists(st.tuples(st.sampled_from("tlf"), st.integers(0, 2), st.integers(0, 50))))
def test_a_reply_always_begins_behind_all_that_had_arrived_when_its_challenge_left(steps):
    """Against a model that remembers every departure."""
    challenges, told, departures, arrived = Challenges(), set(), {}, 0
    for what, instance, count in steps:
        challenge = Challenge("id", instance)
        if what == "t":
            challenges.told(challenge)
            told.add(challenge)
        elif what == "l":
            arrived += count
            challenges.left(arrived)
            for each in told:
                departures.setdefault(each, arrived)
            told.clear()
        else:
            expected = challenge in departures and count >= departures[challenge]
            assert challenges.answered_by(challenge, count) == expected
