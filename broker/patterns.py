"""Regular expressions that clients send: RE2, as in Kafka. Pure.

RE2 takes time linear in the text whatever the expression, so a client cannot make an agent stand
still; what it takes per character grows with the program that an expression becomes, which is
bounded here (Kafka has no bound). The longest legal names against the worst expressions within
the bound: half a millisecond a name; ordinary ones two microseconds.
"""

from typing import Any, Final

import re2

from protocol.errors import ErrorCode, KafkaError

REGEX_CHARACTERS_MAX: Final = 10_000
PROGRAM_SIZE_MAX: Final = 3_000
"""Instructions. An ordinary expression has tens; the names of 250 topics without common beginnings
about this many, names that begin alike far fewer."""
MEMORY_BYTES_MAX: Final = 1 << 20
"""Of an expression's program and what matching remembers; RE2 keeps the 128 newest."""


def compiled(regex: str, *, field: str) -> Any:
    """The expression, of the request's `field`; `fullmatch` is what Kafka does with all of them.

    Raises KafkaError (INVALID_REGULAR_EXPRESSION).
    """
    if len(regex) > REGEX_CHARACTERS_MAX:
        raise _invalid(regex[:40] + "…", field, f"more than {REGEX_CHARACTERS_MAX} characters")
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = MEMORY_BYTES_MAX
    try:
        made = re2.compile(regex, options)
    except re2.error as error:
        raise _invalid(regex, field, error.args[0].decode(errors="replace")) from error
    if made.programsize > PROGRAM_SIZE_MAX:
        raise _invalid(regex, field, f"it has {made.programsize} steps, at most {PROGRAM_SIZE_MAX}")
    return made


def _invalid(regex: str, field: str, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"{field} `{regex}` is not a valid regular expression: {why}.",
    )
