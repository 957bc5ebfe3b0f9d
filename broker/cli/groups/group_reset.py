"""Plans `frazil group reset`: the new offset of each partition of a group. Pure.

The rules are those of kafka-consumer-groups.sh: a new offset stays between the log's start and
end, with a warning when it had to be moved there; a time behind the last record means the end.
Leaves out: asking and committing (`broker.cli.groups.group_tool`).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple, assert_never

from broker.config.values import milliseconds
from broker.reports.group_report import Partition
from broker.reports.tables import Cell, table

_DURATION: Final = re.compile(
    r"P(?:(?P<d>\d+)D)?(?:T(?=.)(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d{1,9})?)S)?)?"
)


_LONGEST_MS: Final = (1 << 63) - 1


class ResetError(Exception):
    """The reset makes no sense; the sentence says why."""


class ResetRule(Enum):
    """How the new offset is found."""

    EARLIEST = "earliest"
    LATEST = "latest"
    CURRENT = "current"
    OFFSET = "offset"
    SHIFT = "shift"
    TIME = "time"


class ResetTarget(NamedTuple):
    rule: ResetRule
    value: int = 0
    """OFFSET: it; SHIFT: by how much; TIME: ms since the epoch; else nothing."""


class PartitionOffsets(NamedTuple):
    """The offsets of a partition that a plan needs."""

    start: int
    end: int
    committed: int | None
    at_time: int | None
    """Offset of the first record at or behind the target's time; None: there is none."""


class OffsetReset(NamedTuple):
    topic: str
    partition: int
    before: int | None
    after: int


def plan(
    target: ResetTarget, places: Mapping[Partition, PartitionOffsets]
) -> tuple[Sequence[OffsetReset], Sequence[str]]:
    """The changes in order of topics and partitions, and warnings. Raises ResetError."""
    if target.rule is ResetRule.SHIFT:
        lacking = sorted(where for where, place in places.items() if place.committed is None)
        if lacking:
            raise ResetError(
                f"{_names(lacking)}: nothing is committed there, so it cannot be shifted"
            )
    changes, warnings = [], []
    for where, place in sorted(places.items()):
        after, warning = _aim(target, place)
        changes.append(OffsetReset(*where, place.committed, after))
        if warning:
            warnings.append(f"{_names([where])}: {warning}")
    return changes, warnings


def _aim(target: ResetTarget, place: PartitionOffsets) -> tuple[int, str | None]:
    match target.rule:
        case ResetRule.EARLIEST:
            return place.start, None
        case ResetRule.LATEST:
            return place.end, None
        case ResetRule.CURRENT:
            if place.committed is None:
                return place.end, f"nothing is committed there; its end, {place.end}, is taken"
            return place.committed, None
        case ResetRule.OFFSET:
            return _within(target.value, place)
        case ResetRule.SHIFT:
            assert place.committed is not None
            return _within(place.committed + target.value, place)
        case ResetRule.TIME:
            if place.at_time is None:
                return place.end, f"no record is that new; its end, {place.end}, is taken"
            return place.at_time, None
        case unknown:
            assert_never(unknown)


def _within(offset: int, place: PartitionOffsets) -> tuple[int, str | None]:
    if offset > place.end:
        return place.end, f"{offset} is behind its end; {place.end} is taken"
    if offset < place.start:
        return place.start, f"{offset} is before its start; {place.start} is taken"
    return offset, None


def plan_lines(changes: Sequence[OffsetReset]) -> list[str]:
    """The plan as a table."""
    rows: list[Sequence[Cell]] = [
        [
            change.topic,
            change.partition,
            change.before,
            change.after,
            None if change.before is None else change.after - change.before,
        ]
        for change in changes
    ]
    return table(("TOPIC", "PARTITION", "COMMITTED", "NEW", "BY"), rows)


def topics(texts: Iterable[str]) -> dict[str, set[int] | None]:
    """Partitions by topic from `orders` (all of them: None) and `orders:0,3`.

    Raises ValueError with a sentence.
    """
    found: dict[str, set[int] | None] = {}
    for text in texts:
        name, colon, numbers = text.partition(":")
        parts = numbers.split(",") if colon else []
        if not name or not all(re.fullmatch(r"[0-9]{1,9}", part) for part in parts):
            raise ValueError(f'"{text}" is not a topic with partitions (examples: orders:0,3)')
        chosen = found.setdefault(name, set())
        if not colon or chosen is None:
            found[name] = None
        else:
            chosen |= {int(part) for part in parts}
    return found


def duration_ms(text: str) -> int:
    """ms of an ISO 8601 duration (`P7D`, `PT1H30M`), or of Frazil's own (`90min`).

    Raises ValueError with a sentence.
    """
    wrong = ValueError(f'"{text}" is not a duration (examples: P7D, PT1H30M, 90min)')
    try:
        found = _duration_ms(text)
    except (ValueError, OverflowError):
        raise wrong from None
    if found > _LONGEST_MS:
        raise wrong
    return found


def _duration_ms(text: str) -> int:
    match = _DURATION.fullmatch(text.strip().upper())
    if match is None or not any(match.groups()):
        return milliseconds(text)
    days, hours, minutes = (int(match[name] or 0) for name in ("d", "h", "m"))
    seconds = ((days * 24 + hours) * 60 + minutes) * 60
    return seconds * 1000 + int(float(match["s"] or 0) * 1000)


def _names(partitions: Iterable[Partition]) -> str:
    return ", ".join(f"{topic}:{partition}" for topic, partition in partitions)
