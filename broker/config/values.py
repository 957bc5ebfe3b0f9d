"""Words into values: the few spellings that settings of all kinds share. Pure.

Every function raises ValueError with the end of a sentence ("is not a whole number") that the
caller completes with the setting's name. Kafka's own settings are read strictly as Kafka reads
them; Frazil's also take units ("64MiB", "10s"). `SettingsError` has all such sentences; it is here,
as the command line catches it and is not to import all settings for that.
"""

import re
from collections.abc import Iterable, Sequence

from protocol.fault_codes import FaultCode, FaultError, Sentence, fault_of

_LIKENESS_MIN = 0.6
"""A part of both names' characters."""
_BYTES = re.compile(r"(\d+)\s*(B|KiB|MiB|GiB|KB|MB|GB)?", re.IGNORECASE)
_BYTE_UNITS = {
    "b": 1,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
}
_DURATION = re.compile(r"(\d+)\s*(ms|s|min|h|d)?")
_DURATION_UNITS = {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class SettingsError(FaultError):
    """The settings cannot be used. `mistakes` has a sentence for each reason."""

    def __init__(self, mistakes: Sequence[str]) -> None:
        self.mistakes = tuple(
            each if fault_of(each) else Sentence(each, FaultCode.WRONG_VALUE) for each in mistakes
        )
        super().__init__("\n".join(mistakes), fault=fault_of(next(iter(self.mistakes), None)))


def unknown_setting(text: str) -> Sentence:
    """A mistake about a name."""
    return Sentence(text, FaultCode.UNKNOWN_SETTING)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`; None when nothing is near enough to be meant.

    Those are alike that begin and end alike, as with a slip in one place. One request may have
    thousands of unknown names: difflib takes a millisecond for each, this some microseconds.
    """
    best, most = None, _LIKENESS_MIN
    for each in sorted(known):
        both = len(name) + len(each)
        if 2 * min(len(name), len(each)) > most * both:
            likeness = 2 * _shared(name, each) / both
            if likeness > most:
                best, most = each, likeness
    return best


def _shared(one: str, other: str) -> int:
    """Characters that both have at the beginning, or else at the end."""
    count, length = 0, min(len(one), len(other))
    while count < length and one[count] == other[count]:
        count += 1
    end = 0
    while end < length - count and one[-1 - end] == other[-1 - end]:
        end += 1
    return count + end


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: `; did you mean "…"?`, or nothing."""
    match = nearest(name, known)
    return f'; did you mean "{match}"?' if match is not None else ""


def whole_number(text: str, *, minimum: int | None = None, maximum: int | None = None) -> int:
    """A decimal integer within the limits (either may be None)."""
    if not re.fullmatch(r"[+-]?[0-9]{1,20}", text.strip()):
        raise ValueError(f'"{text}" is not a whole number')
    return within(int(text), minimum=minimum, maximum=maximum)


def within(number: int, *, minimum: int | None, maximum: int | None) -> int:
    if minimum is not None and number < minimum:
        raise ValueError(f"{number} is too small: at least {minimum}")
    if maximum is not None and number > maximum:
        raise ValueError(f"{number} is too large: at most {maximum}")
    return number


def boolean(text: str) -> bool:
    """`true` or `false`, in any case, as Kafka reads them."""
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
        case _:
            raise ValueError(f'"{text}" is neither true nor false')


def byte_count(text: str) -> int:
    """Bytes: a whole number, with a unit if wanted (`64MiB`)."""
    match = _BYTES.fullmatch(text.strip())
    if match is None:
        raise ValueError(f'"{text}" is not a number of bytes (examples: 1048576, 64MiB)')
    return int(match[1]) * _BYTE_UNITS[(match[2] or "B").lower()]


def milliseconds(text: str) -> int:
    """A duration in ms: a whole number, with a unit if wanted (`10s`)."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f'"{text}" is not a duration (examples: 500, 500ms, 10s)')
    return int(match[1]) * _DURATION_UNITS[match[2] or "ms"]


def principals(text: str) -> frozenset[str]:
    """As `super.users` has them: `User:alice;User:CN=bob,O=b`."""
    found = [*filter(None, map(str.strip, text.split(";")))]
    for each in found:
        kind, colon, name = each.partition(":")
        if not (kind and colon and name):
            raise ValueError(f'"{each}" is not a principal (example: User:admin)')
    return frozenset(found)
