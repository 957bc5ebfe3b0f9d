"""What `frazil backup` says of snapshots in a store: why each is there, and until when. Pure.

All that is known is what the newest manifest says of pins: what was renewed since then is not. Times of the machine are
compared with a wall clock here: a cluster that stands still keeps what its time would be over for.
"""

from collections.abc import Callable, Collection, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from broker.reports.log_lines import place
from broker.reports.tables import Cell, table
from coordinator.snapshot.keeping import kept
from coordinator.snapshot.manifest import StoredSnapshot
from protocol.types import era_of

FAULTS_TOLD_MAX: Final = 10
"""Of one snapshot, a clause each; the others are counted."""


class Why(Enum):
    """Why a snapshot is in the store."""

    NEWEST = "agents start from it"
    OLDER = "agents start from it when the newest is damaged"
    BEFORE = "of an era that is over: frazil recover begins with it when the newest is damaged"
    KEPT = "kept"
    LEFT = "not kept: it goes with a collection"
    GIVEN_UP = "of a recovery that was given up: nobody starts from it"
    DAMAGED = "its manifest cannot be read"


class Reason(NamedTuple):
    why: Why
    until_ms: int | None
    """Kept for that long; None: not by age."""

    @property
    def is_kept(self) -> bool:
        return self.why in (Why.NEWEST, Why.OLDER, Why.BEFORE, Why.KEPT)


def reasons(
    snapshots: Sequence[StoredSnapshot], now_ms: int, *, eras: Collection[int]
) -> list[Reason]:
    """Of each of all snapshots in a store, which are newest first. `eras`: those that have begun.

    Nothing is collected before an era has two.
    """
    readable = [each for each in snapshots if each.manifest is not None]
    begun = [each for each in readable if era_of(each.position) in eras]
    newest = begun[0] if begun else None
    pins = newest.manifest.pins if newest is not None and newest.manifest is not None else ()
    pinned = kept([each.position for each in begun], pins)
    own = [
        each.position
        for each in begun
        if newest is not None and era_of(each.position) == era_of(newest.position)
    ]
    found = []
    for each in snapshots:
        pin = pinned.get(each.position)
        until_ms = None if pin is None else pin.until_ms
        if each.manifest is None:
            why = Why.DAMAGED
        elif era_of(each.position) not in eras:
            why = Why.GIVEN_UP
        elif each.position in own[:2]:
            why = Why.NEWEST if each is newest else Why.OLDER
        elif until_ms is not None and until_ms > now_ms:
            why = Why.KEPT
        else:
            why = Why.LEFT if len(own) > 1 else Why.BEFORE
        found.append(Reason(why, until_ms))
    return found


def views(
    snapshots: Sequence[StoredSnapshot], found: Sequence[Reason], now_ms: int
) -> list[dict[str, Any]]:
    """For JSON, an object for each."""
    return [
        {
            "position": each.position,
            "place": place(each.position),
            "time_ms": None if each.manifest is None else each.manifest.time_ms,
            "age_ms": None if each.manifest is None else now_ms - each.manifest.time_ms,
            "bytes": each.bytes,
            "why": reason.why.name.lower(),
            "kept_until_ms": reason.until_ms,
            "trouble": each.trouble or None,
        }
        for each, reason in zip(snapshots, found, strict=True)
    ]


def lines(
    snapshots: Sequence[StoredSnapshot],
    found: Sequence[Reason],
    now_ms: int,
    when: Callable[[int], str],
) -> list[str]:
    """A table. `when`: a time in ms as people read it."""
    if not snapshots:
        return ["there are no snapshots"]
    rows: list[list[Cell]] = [
        [
            place(each.position),
            None if each.manifest is None else when(each.manifest.time_ms),
            None if each.manifest is None else age(now_ms - each.manifest.time_ms),
            size(each.bytes),
            _told(reason, when),
        ]
        for each, reason in zip(snapshots, found, strict=True)
    ]
    return table(("POSITION", "TIME", "AGE", "SIZE", "KEPT"), rows)


def _told(reason: Reason, when: Callable[[int], str]) -> str:
    if reason.until_ms is None:
        return reason.why.value
    until = f"until {when(reason.until_ms)}"
    if reason.why is Why.KEPT:
        return until
    return f"{reason.why.value}; {until}"


def age(ms: int) -> str:
    """In the largest unit of which there are two."""
    for unit, length_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
        if ms >= 2 * length_ms:
            return f"{ms // length_ms} {unit}"
    return f"{max(ms, 0) // 1000} s"


def size(length: int) -> str:
    """With three digits or so: 1.23 GiB."""
    amount, units = float(length), ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while amount >= 1024 and len(units) > 1:
        amount /= 1024
        units.pop(0)
    return f"{length} bytes" if units[0] == "bytes" else f"{amount:.3g} {units[0]}"
