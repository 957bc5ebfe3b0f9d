"""Regular expressions that clients send: RE2, as in Kafka. Pure.

RE2 takes time linear in the text whatever the expression, so a client cannot make an agent stand
still; what it takes per character grows with the program that an expression becomes, which is
bounded here (Kafka has no bound). The longest legal names against the worst expressions within
the bound: half a millisecond a name; ordinary ones two microseconds. So many names are matched in
slices, and what came of it is remembered (`Matches`).
"""

from collections import OrderedDict
from collections.abc import Set as AbstractSet
from typing import Any, Final

import re2

from protocol.errors import ErrorCode, KafkaError
from protocol.slices import Sliced

REGEX_CHARACTERS_MAX: Final = 10_000
PROGRAM_SIZE_MAX: Final = 3_000
"""Instructions. An ordinary expression has tens; the names of 250 topics without common beginnings
about this many, names that begin alike far fewer."""
MEMORY_BYTES_MAX: Final = 1 << 20
"""Of an expression's program and what matching remembers; RE2 keeps the 128 newest."""


NAMES_MAX: Final = 1_000_000
"""That `Matches` remembers, of all expressions together."""
SLICE_ELEMENTS: Final = 500
"""Names matched in one slice, if they take microseconds each."""
STEPS_PER_ELEMENT: Final = 6_000
"""Instructions times characters that take as long as one element of a request: four microseconds."""


def elements(expression: Any, text: str) -> int:
    """What matching costs at worst, in elements that are looked at (`broker.calls.slices`)."""
    cost: int = expression.programsize * len(text) // STEPS_PER_ELEMENT
    return cost


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


class _Known:
    """What is known of one expression."""

    __slots__ = ("matched", "seen")

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.matched: set[str] = set()


class Matches:
    """What expressions match. A name is matched once with an expression: names of topics come and go
    one by one, and all of an expression's matches are asked for whenever one does."""

    def __init__(self, *, names_max: int = NAMES_MAX) -> None:
        self._names_max = names_max
        self._known: OrderedDict[str, _Known] = OrderedDict()
        """The one that was asked for last comes last."""

    def resolve(self, regex: str, names: AbstractSet[str], *, field: str) -> Sliced[frozenset[str]]:
        """Those of the names that match as a whole, in slices. Raises as `compiled`."""
        expression = compiled(regex, field=field)
        known = self._known.setdefault(regex, _Known())
        self._known.move_to_end(regex)
        left = SLICE_ELEMENTS
        for name in names - known.seen:
            if expression.fullmatch(name):
                known.matched.add(name)
            known.seen.add(name)
            left -= 1 + elements(expression, name)
            if left <= 0:
                yield
                left = SLICE_ELEMENTS
        found = names & known.matched
        if len(known.seen) > 2 * len(names):  # Of topics that are gone.
            known.seen &= names
            known.matched &= names
        self._forget_oldest()
        return frozenset(found)

    def _forget_oldest(self) -> None:
        count = sum([len(known.seen) for known in self._known.values()])
        while count > self._names_max:
            _, oldest = self._known.popitem(last=False)
            count -= len(oldest.seen)


MATCHES: Final = Matches()
"""Of this process, since what an expression matches hangs on nothing else."""
