"""What the subscriptions of a KIP-848 group mean, at one version of the topics."""

from collections import OrderedDict

import pytest

from broker import patterns
from broker.groups.consumer.members import Subscription
from broker.groups.consumer.topics import (
    PATTERNS_MAX,
    RESOLVE_EVERY_MS,
    SubscribedTopics,
    refuse_too_many,
    subscribes,
)
from broker.patterns import Matches
from coordinator.tables.topics import Topic, Topics
from protocol.errors import ErrorCode, KafkaError
from protocol.slices import finish
from protocol.types import Position, TopicId

ORDERS = Subscription(frozenset({"orders", "missing"}))
PATTERN = Subscription(regex="orders.*")
BOTH = Subscription(frozenset({"bills"}), "orders-.*")


def topic_id(number: int) -> TopicId:
    return TopicId(number.to_bytes(16, "big"))


def some_topics(*topics: tuple[int, str, int]) -> Topics:
    table = Topics()
    for number, name, count in topics:
        table.add(Topic(topic_id(number), name, count, {}, Position(number)))
    return table


def test_names_and_patterns_mean_topics_that_exist():
    topics = some_topics((1, "orders", 2), (2, "orders-eu", 3), (3, "bills", 1), (4, "other", 9))
    metadata = SubscribedTopics().metadata([ORDERS, PATTERN, BOTH, Subscription()], topics, 0)
    assert metadata.ids == {
        ORDERS: {topic_id(1)},
        PATTERN: {topic_id(1), topic_id(2)},
        BOTH: {topic_id(2), topic_id(3)},
        Subscription(): frozenset(),
    }
    assert metadata.partitions == {topic_id(1): 2, topic_id(2): 3, topic_id(3): 1}


def test_the_fingerprint_is_of_ids_and_partitions_of_subscribed_topics_and_of_nothing_else():
    def fingerprint(*topics: tuple[int, str, int]) -> bytes:
        return SubscribedTopics().metadata([ORDERS, PATTERN], some_topics(*topics), 0).fingerprint

    as_it_was = fingerprint((1, "orders", 2), (2, "orders-eu", 3))
    assert fingerprint((2, "orders-eu", 3), (9, "other", 1), (1, "orders", 2)) == as_it_was
    assert fingerprint((1, "orders", 2)) != as_it_was
    assert fingerprint((1, "orders", 3), (2, "orders-eu", 3)) != as_it_was
    assert fingerprint((5, "orders", 2), (2, "orders-eu", 3)) != as_it_was, "created again"
    assert fingerprint() != as_it_was


def test_topics_are_looked_at_again_when_there_are_others_but_not_all_the_time():
    topics = some_topics((1, "orders", 2))
    subscribed = SubscribedTopics()
    assert subscribed.is_due(topics, 0), "nothing was seen yet"
    metadata = subscribed.metadata([PATTERN], topics, 0)
    assert subscribed.is_due(topics, 0), "a look that nobody acted upon does not count"
    subscribed.acted_on(metadata)
    assert not subscribed.is_due(topics, 10 * RESOLVE_EVERY_MS)

    topics.add(Topic(topic_id(2), "orders-eu", 1, {}, Position(2)))
    assert not subscribed.is_due(topics, RESOLVE_EVERY_MS - 1)
    assert subscribed.is_due(topics, RESOLVE_EVERY_MS)
    metadata = subscribed.metadata([PATTERN], topics, RESOLVE_EVERY_MS)
    assert metadata.ids[PATTERN] == {topic_id(1), topic_id(2)}
    topics.remove(topic_id(1))
    subscribed.acted_on(metadata)
    assert subscribed.is_due(topics, 2 * RESOLVE_EVERY_MS), "what came after the look was not seen"


def test_a_pattern_is_resolved_once_for_a_version_of_the_topics():
    topics = some_topics((1, "orders", 2))
    subscribed = SubscribedTopics()
    subscribed.metadata([PATTERN], topics, 0)

    class Unlistable(Topics):
        def __iter__(self):  # type: ignore[no-untyped-def]
            raise AssertionError("resolved again")

    same = Unlistable()
    same.version = topics.version
    assert subscribed.metadata([PATTERN, ORDERS], same, 0).ids[PATTERN] == frozenset()
    topics.add(Topic(topic_id(2), "orders-eu", 1, {}, Position(2)))
    assert subscribed.metadata([PATTERN], topics, 0).ids[PATTERN] == {topic_id(1), topic_id(2)}


def test_a_topic_is_subscribed_to_by_name_or_by_pattern():
    assert subscribes([ORDERS], "orders")
    assert subscribes([ORDERS], "missing")
    assert subscribes([Subscription(), BOTH], "orders-eu")
    assert not subscribes([Subscription(), BOTH], "orders")
    assert not subscribes([Subscription()], "")


@pytest.fixture
def matched(monkeypatch) -> list[str]:
    """Names that were matched with expressions, each time."""
    names: list[str] = []
    compiled = patterns.compiled

    class Counting:
        def __init__(self, regex: str, *, field: str) -> None:
            self._known = compiled(regex, field=field)
            self.programsize = self._known.programsize

        def fullmatch(self, name: str):  # type: ignore[no-untyped-def]
            names.append(name)
            return self._known.fullmatch(name)

    monkeypatch.setattr(patterns, "compiled", Counting)
    monkeypatch.setattr(patterns.MATCHES, "_known", OrderedDict())
    return names


@pytest.mark.promise("P15")
def test_a_name_is_matched_once_however_many_topics_come_and_go(matched):
    topics = some_topics((1, "orders", 2), (2, "bills", 1))
    subscribed = SubscribedTopics()
    for number in range(3, 10):
        topics.add(Topic(topic_id(number), f"orders-{number}", 1, {}, Position(number)))
        metadata = subscribed.metadata([PATTERN, BOTH], topics, 0)
    assert len(metadata.ids[PATTERN]) == 8
    assert len(matched) == 2 * 9
    subscribed.metadata([PATTERN], topics, 0)
    SubscribedTopics().metadata([PATTERN, BOTH], topics, 0)
    assert len(matched) == 2 * 9, "of other groups either"


def test_what_is_remembered_of_expressions_is_bounded_and_of_topics_that_are_gone_is_forgotten():
    matches = Matches(names_max=25)
    names = frozenset(f"t{number}" for number in range(10))
    for number in range(5):
        assert finish(matches.resolve(f"t.*|x{number}", names, field="")) == names
    assert len(matches._known) == 2
    assert finish(matches.resolve("t.*|x4", frozenset({"t1", "u"}), field="")) == {"t1"}
    assert len(matches._known["t.*|x4"].seen) == 2


@pytest.mark.promise("P15")
def test_members_of_a_group_have_few_different_expressions():
    there = [Subscription(regex=f"t{number}") for number in range(PATTERNS_MAX)]
    refuse_too_many(there, Subscription(regex="t1"))
    refuse_too_many(there, ORDERS)
    refuse_too_many(there[1:], Subscription(regex="other"))
    with pytest.raises(KafkaError) as refused:
        refuse_too_many(there, Subscription(regex="other"))
    assert refused.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
