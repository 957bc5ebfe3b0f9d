"""Work that is cut into slices, so that whoever runs it may do something else between two of them, or stop.

A generator that gives nothing but pauses, about a thousand records or a millisecond from one to the
next (a codec, which runs without the interpreter's lock, takes its time in one slice), and returns
the result. Pure.
"""

from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

Sliced = Generator[None, None, T]


class Ended(NamedTuple):
    """What the work came to."""

    result: Any


def advance(work: Sliced[T]) -> Ended | None:
    """Do the next slice; None when there are more."""
    try:
        next(work)
    except StopIteration as end:
        return Ended(end.value)
    return None


def finish(work: Sliced[T]) -> T:
    """Do all that is left at once."""
    while (ended := advance(work)) is None:
        pass
    result: T = ended.result
    return result
