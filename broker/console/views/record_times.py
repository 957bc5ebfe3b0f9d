"""Timestamps of records as people write and read them: ISO 8601 in UTC, to the millisecond. Pure.

What holds: what `time_text` says, `time_of` reads as the same.
"""

import re
from typing import Final

DAY_MS: Final = 86_400_000
_ERA_DAYS: Final = 146_097
"""Of 400 years."""
_TIME: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,3}))?)?)?Z?", re.ASCII
)
_DIGITS_MAX: Final = 15
_LATEST_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""


def time_text(time_ms: int) -> str:
    """2026-11-29 03:04:05.678; numbers that are no time of our era as they are."""
    if not 0 <= time_ms <= _LATEST_MS:
        return str(time_ms)
    days, rest = divmod(time_ms, DAY_MS)
    year, month, day = _date_of(days)
    seconds, millis = divmod(rest, 1000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{millis:03}"


def time_of(text: str) -> int:
    """Milliseconds since the epoch, of such a text or of their number. Raises ValueError with a sentence."""
    said = text.strip()
    if said.isascii() and said.isdigit() and len(said) <= _DIGITS_MAX:
        return int(said)
    found = _TIME.fullmatch(said)
    if found is not None:
        year, month, day, hour, minute, second = (int(each or 0) for each in found.groups()[:6])
        days = _days_of(year, month, day)
        if _date_of(days) == (year, month, day) and hour < 24 and minute < 60 and second < 60:
            millis = int((found[7] or "").ljust(3, "0"))
            return days * DAY_MS + ((hour * 60 + minute) * 60 + second) * 1000 + millis
    raise ValueError(
        f'"{said[:40]}" is no time: write 2026-11-29T03:04:05 (UTC), or milliseconds since 1970'
    )


def _days_of(year: int, month: int, day: int) -> int:
    """Since 1970-01-01; years begin in March here, so that leap days come last."""
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return (
        era * _ERA_DAYS
        + year_of_era * 365
        + year_of_era // 4
        - year_of_era // 100
        + day_of_year
        - 719_468
    )


def _date_of(days: int) -> tuple[int, int, int]:
    era, of_era = divmod(days + 719_468, _ERA_DAYS)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * of_year + 2) // 153
    day = of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + (3 if shifted < 10 else -9)
    return year + era * 400 + (month <= 2), month, day
