"""Topics by regular expression (KIP-848, `SubscribedTopicRegex`): RE2, as in Kafka. Pure.

RE2 takes time linear in the topic's name whatever the expression, so members cannot make the
coordinator stand still; what it takes per character grows with the program that an expression
becomes, which is bounded here (Kafka has no bound). The longest legal names against the worst
expressions within the bound: half a millisecond a topic; ordinary ones two microseconds.
"""

from collections.abc import Iterable
from typing import Any, Final

import re2

from protocol.errors import ErrorCode, KafkaError

REGEX_CHARACTERS_MAX: Final = 10_000
PROGRAM_SIZE_MAX: Final = 3_000
"""Instructions. An ordinary expression has tens; the names of 250 topics without common beginnings
about this many, names that begin alike far fewer."""
MEMORY_BYTES_MAX: Final = 1 << 20
"""Of an expression's program and what matching remembers; RE2 keeps the 128 newest."""


def check(regex: str) -> None:
    """Raises KafkaError (INVALID_REGULAR_EXPRESSION) unless it can be resolved."""
    _compiled(regex)


def resolve(regex: str, topic_names: Iterable[str]) -> frozenset[str]:
    """Those of the names that match as a whole. Raises as `check`."""
    matches = _compiled(regex).fullmatch
    return frozenset(name for name in topic_names if matches(name))


def _compiled(regex: str) -> Any:
    if len(regex) > REGEX_CHARACTERS_MAX:
        raise _invalid(regex[:40] + "…", f"more than {REGEX_CHARACTERS_MAX} characters")
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = MEMORY_BYTES_MAX
    try:
        compiled = re2.compile(regex, options)
    except re2.error as error:
        raise _invalid(regex, error.args[0].decode(errors="replace")) from error
    if compiled.programsize > PROGRAM_SIZE_MAX:
        raise _invalid(regex, f"it has {compiled.programsize} steps, at most {PROGRAM_SIZE_MAX}")
    return compiled


def _invalid(regex: str, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {why}.",
    )
