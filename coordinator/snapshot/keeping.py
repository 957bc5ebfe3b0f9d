"""Which snapshots are kept for longer than agents need them, and until when. Pure.

What keeps a snapshot is a pin with a name of its own, set right before the snapshot was begun: so what the
snapshot points at stays as long as the pin lives, whoever has the jobs. A pin keeps the first snapshot
behind it. Its name says when it was set and until when it is wanted; it is renewed when that is longer
than pins live.

Snapshots are kept the more sparsely the older they are: what is the first of ten minutes for an hour, the first
of an hour for a day, the first of six hours for as long as the retention is (`PERIODS`). So there are at most
KEPT_MAX of them, and how long one is kept is known when it is begun: nothing is thinned out later. A retention
that was changed holds for snapshots from then on.

Left out: the two newest snapshots, which are never deleted (`coordinator.tables.snapshots`).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from coordinator.commands.entries import Command, Pin
from coordinator.commands.layout import Int64
from coordinator.tables.pins import PIN_LIFETIME_MS_MAX, Pins
from protocol.types import Position

PREFIX: Final = "frazil.snapshots."
"""Of the names of pins that keep snapshots; nobody else may set such a pin."""
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
RETENTION_MS_MAX: Final = 30 * DAY_MS
PERIODS: Final = (
    (6 * HOUR_MS, RETENTION_MS_MAX),
    (HOUR_MS, DAY_MS),
    (10 * MINUTE_MS, HOUR_MS),
)
"""The first snapshot of such a period, and how long it is kept at most."""
KEPT_MAX: Final = sum(1 + lifetime_ms // period_ms for period_ms, lifetime_ms in PERIODS)
RENEWED_BELOW_MS: Final = PIN_LIFETIME_MS_MAX // 2


class SnapshotPin(NamedTuple):
    """A pin that keeps the first snapshot behind its position."""

    position: Position
    set_ms: Int64
    until_ms: Int64
    """When the snapshot is old enough to go."""
    expires_ms: Int64
    """Of the pin: it may have to be renewed until then. All in the machine's time."""

    @property
    def name(self) -> str:
        return f"{PREFIX}{self.set_ms}.{self.until_ms}"


def is_snapshot_pin(command: Command) -> bool:
    return isinstance(command, Pin) and command.name.startswith(PREFIX)


def snapshot_pins(pins: Pins, time_ms: int) -> list[SnapshotPin]:
    """Those that live, the oldest first."""
    found = []
    for row in pins.alive(time_ms):
        set_ms, _, until_ms = row.name.removeprefix(PREFIX).partition(".")
        if row.name.startswith(PREFIX) and _is_number(set_ms) and _is_number(until_ms):
            found.append(SnapshotPin(row.position, int(set_ms), int(until_ms), row.expires_ms))
    return sorted(found)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def next_pin(pins: Pins, time_ms: int, *, retention_ms: int) -> Pin | None:
    """The pin to be set before a snapshot that is begun now; None: it is not kept for longer."""
    living = snapshot_pins(pins, time_ms)
    for period_ms, longest_ms in PERIODS:
        lifetime_ms = min(longest_ms, retention_ms)
        is_first = not any(
            each.set_ms // period_ms == time_ms // period_ms
            and each.until_ms - each.set_ms >= lifetime_ms
            for each in living
        )
        if lifetime_ms > 0 and is_first:
            wanted = SnapshotPin(Position(0), time_ms, time_ms + lifetime_ms, 0)
            return Pin(wanted.name, min(lifetime_ms, PIN_LIFETIME_MS_MAX))
    return None


def renewals(pins: Pins, time_ms: int) -> Iterator[Pin]:
    """Of pins that are wanted for longer than they live now."""
    for each in snapshot_pins(pins, time_ms):
        lives_ms, wanted_ms = each.expires_ms - time_ms, each.until_ms - time_ms
        if lives_ms < min(RENEWED_BELOW_MS, wanted_ms):
            yield Pin(each.name, min(wanted_ms, PIN_LIFETIME_MS_MAX))


def kept(positions: Iterable[Position], pins: Sequence[SnapshotPin]) -> dict[Position, SnapshotPin]:
    """Those of the snapshots at these positions that are kept, and the pin that keeps each for longest."""
    found: dict[Position, SnapshotPin] = {}
    ascending = sorted(positions)
    for pin in pins:
        first = next((position for position in ascending if position > pin.position), None)
        if first is not None and (first not in found or found[first].until_ms < pin.until_ms):
            found[first] = pin
    return found
