"""What becomes of a worker that ended. Pure.

| leaving | said why, before it ever served | served, or said nothing | → |
|---|---|---|---|
| no | yes | | all end, with that sentence, as a single agent would |
| no | | yes | it is started again, later and later |
| yes | | | it is over |

A worker that says why before it has served is refused by something that another start would not mend:
a port, a certificate, somebody else's bucket. One that has served may be replaced, or may have stood still
while the log was cut; the next start either serves or says the same at once.

The wait is Kafka's exponential backoff: doubled up to a bound, and a fifth more or less by chance.
"""

from typing import Final, NamedTuple

BACKOFF_MS: Final = 100
BACKOFF_MS_MAX: Final = 10_000
JITTER: Final = 0.2
STEADY_MS: Final = 60_000
"""Who has served for so long begins anew with the shortest wait."""


class Ended(NamedTuple):
    """How one life of a worker was."""

    code: int
    """As subprocess tells: -9 by SIGKILL."""
    sentence: str | None = None
    """What the worker said itself."""
    served_ms: int | None = None
    """None: it has never served."""


class Over(NamedTuple):
    """Nothing more is done."""


class AllEnd(NamedTuple):
    """The others leave, and the sentence is told."""

    sentence: str


class Again(NamedTuple):
    """It is started again."""

    after_ms: int
    failures: int
    """In a row, this one included."""


Step = Over | AllEnd | Again


def step_after(ended: Ended, *, failures: int, leaving: bool, chance: float) -> Step:
    """`failures`: in a row, before this end; `chance`: from 0 to 1."""
    if leaving:
        return Over()
    if ended.sentence is not None and ended.served_ms is None:
        return AllEnd(ended.sentence)
    if (ended.served_ms or 0) >= STEADY_MS:
        failures = 0
    return Again(backoff_ms(failures, chance), failures + 1)


def backoff_ms(failures: int, chance: float) -> int:
    """How long to wait after so many failures before this one."""
    wait_ms = min(BACKOFF_MS_MAX, BACKOFF_MS << min(failures, 30))
    return round(wait_ms * (1 + JITTER * (2 * chance - 1)))
