"""Subscriptions by regular expression: whole names, refusals, bounds."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.groups.consumer.subscriptions import check, resolve
from broker.patterns import REGEX_CHARACTERS_MAX
from protocol.errors import ErrorCode, KafkaError

TOPICS = ["orders", "orders.eu", "orders-us", "old-orders", "bills", "Orders"]


def refusal(regex: str) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        check(regex)
    with pytest.raises(KafkaError) as resolved:
        resolve(regex, TOPICS)
    assert resolved.value.message == caught.value.message
    assert caught.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
    return caught.value


@pytest.mark.parametrize(
    ("regex", "topics"),
    [
        ("orders", {"orders"}),
        ("orders.*", {"orders", "orders.eu", "orders-us"}),
        (r"orders\..*", {"orders.eu"}),
        (".*orders", {"orders", "old-orders"}),
        ("(?i)orders", {"orders", "Orders"}),
        ("orders|bills|none", {"orders", "bills"}),
        ("orders-us|orders", {"orders", "orders-us"}),
        ("^bills$", {"bills"}),
        (r"\Qorders.eu\E", {"orders.eu"}),
        (".*", set(TOPICS)),
        ("", set()),
        ("no", set()),
    ],
)
def test_names_match_as_a_whole(regex: str, topics: set[str]) -> None:
    check(regex)
    assert resolve(regex, TOPICS) == topics


@pytest.mark.parametrize(
    "regex", ["(", "a**", "[z-a]", "(?<=a)b", r"(a)\1", "a{1001}", r"\p{Runes}"]
)
def test_what_is_no_expression_is_refused_with_it_and_the_reason(regex: str) -> None:
    message = refusal(regex).message
    assert message.startswith(f"SubscribedTopicRegex `{regex}` is not a valid regular expression: ")
    assert not message.endswith(": .")


def test_a_long_expression_is_refused_and_not_repeated_whole() -> None:
    check("a" * 2_000)
    message = refusal("a" * (REGEX_CHARACTERS_MAX + 1)).message
    assert "more than 10000 characters" in message
    assert len(message) < 200


def test_an_expression_that_becomes_too_many_steps_is_refused() -> None:
    check(".{249}")
    assert "at most 3000" in refusal("(.{100}x){5}").message


def test_an_expression_that_takes_too_much_memory_is_refused() -> None:
    assert "too large" in refusal(r"\p{L}{60}").message


@given(st.text(max_size=30))
def test_any_text_is_an_expression_or_refused(regex: str) -> None:
    try:
        check(regex)
    except KafkaError:
        refusal(regex)
    else:
        assert resolve(regex, TOPICS) <= set(TOPICS)


@given(
    st.text("abc.*|()+?", max_size=10),
    st.lists(st.text("abc-.", min_size=1, max_size=5), max_size=8),
)
def test_plain_expressions_mean_what_they_mean_to_python(regex: str, topics: list[str]) -> None:
    try:
        python = re.compile(regex)
        check(regex)
    except (re.error, KafkaError):
        return
    assert resolve(regex, topics) == {name for name in topics if python.fullmatch(name)}
