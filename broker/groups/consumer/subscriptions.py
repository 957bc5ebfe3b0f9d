"""Topics by regular expression (KIP-848, `SubscribedTopicRegex`); see `broker.patterns`. Pure."""

from collections.abc import Iterable

from broker import patterns


def check(regex: str) -> None:
    """Raises KafkaError (INVALID_REGULAR_EXPRESSION) unless it can be resolved."""
    patterns.compiled(regex, field="SubscribedTopicRegex")


def resolve(regex: str, topic_names: Iterable[str]) -> frozenset[str]:
    """Those of the names that match as a whole. Raises as `check`."""
    matches = patterns.compiled(regex, field="SubscribedTopicRegex").fullmatch
    return frozenset(name for name in topic_names if matches(name))
