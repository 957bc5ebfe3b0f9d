"""What is still known when the log may have lost its newest entries. Pure.

A log that is begun anew has everything that was archived, and lists what it has not. So of what clients were told
after a moment at which everything was archived, only the listed may be gone.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.faults.drawn.recorded import Found

Event = dict[str, Any]
"""Of a history: see `tests.anomalies`."""


def gone(acknowledged: Mapping[bytes, tuple[int, int]], found: Found) -> list[bytes]:
    """What was acknowledged and is not in its place."""
    return [value for value, place in acknowledged.items() if found.get(place) != value]


def not_listed(
    lost: Mapping[bytes, tuple[int, int]], topic: str, unarchived: Sequence[Mapping[str, Any]]
) -> list[bytes]:
    """What is lost and is not in the list, by partitions: too early, or more than it says.

    `unarchived`: rows of `frazil recover --dry-run --json`.
    """
    rows = {row["partition"]: row for row in unarchived if row["topic"] == topic}
    missed: list[bytes] = []
    for partition in {partition for partition, _ in lost.values()}:
        row = rows.get(partition)
        values = {value: at for value, (each, at) in lost.items() if each == partition}
        if row is None or len(values) > row["records"]:
            missed += values
        else:
            missed += [value for value, offset in values.items() if offset < row["end_offset"]]
    return missed


def known_at(history: Sequence[Event], count: int) -> list[Event]:
    """What is known of operations when only what the first `count` events tell was archived.

    Those that ended later may have been committed or not, and what they read may be gone.
    """
    return [
        event if index < count or event["type"] == "invoke" else _of_unknown_fate(event)
        for index, event in enumerate(history)
    ]


def _of_unknown_fate(event: Event) -> Event:
    type_ = "info" if event["type"] == "ok" else event["type"]
    return {**event, "type": type_, "value": [_forgotten(step) for step in event["value"]]}


def _forgotten(step: Sequence[Any]) -> list[Any]:
    if step[0] == "poll":
        return ["poll"]
    name, key, sent = step
    return [name, key, sent if isinstance(sent, int) else [None, sent[1]]]


def unread_at_last(history: Sequence[Event]) -> list[tuple[int, int]]:
    """Key and value of what was committed and is not in the last operation, which reads all that is there.

    The judgement of histories is content when something was read once: it may be gone since.
    """
    ((_, found),) = history[-1]["value"]
    there = {(key, value) for key, records in found.items() for _, value in records}
    return [
        (key, sent[1])
        for event in history
        if event["type"] == "ok"
        for _, key, sent in (step for step in event["value"] if step[0] == "send")
        if (key, sent[1]) not in there
    ]
