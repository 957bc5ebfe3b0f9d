"""Topics by regular expression (KIP-848, `SubscribedTopicRegex`); see `broker.patterns`. Pure."""

from collections.abc import Iterable
from typing import Any, Final

from broker import patterns

FIELD: Final = "SubscribedTopicRegex"


def check(regex: str) -> None:
    """Raises KafkaError (INVALID_REGULAR_EXPRESSION) unless it can be resolved."""
    _compiled(regex)


def resolve(regex: str, topic_names: Iterable[str]) -> frozenset[str]:
    """Those of a few names that match as a whole. Raises as `check`."""
    matches = _compiled(regex).fullmatch
    return frozenset(name for name in topic_names if matches(name))


def _compiled(regex: str) -> Any:
    return patterns.compiled(regex, field=FIELD)
