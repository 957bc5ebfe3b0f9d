"""The table of pins: objects reachable at a position stay until the pin expires.

Expiry compares with the machine's time, never with a clock (docs/design/log-and-sessions.md §10).
A pin that has expired counts no more, whether or not its row is still here.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from coordinator.commands.entries import Pin, Rejected
from coordinator.commands.layout import Int64
from protocol.errors import ErrorCode
from protocol.types import Position

PINS_MAX = 1000
PIN_LIFETIME_MS_MAX = 7 * 24 * 3600 * 1000
PIN_NAME_MAX = 255


@dataclass(frozen=True, slots=True)
class PinRow:
    name: str
    position: Position
    expires_ms: Int64
    """In the machine's time."""


class Pins:
    """Pins by name, in order of their first setting."""

    def __init__(self) -> None:
        self._rows: dict[str, PinRow] = {}

    def __len__(self) -> int:
        """Rows, expired ones included."""
        return len(self._rows)

    def alive(self, time_ms: int) -> Iterator[PinRow]:
        """Pins that have not expired at `time_ms`."""
        return (row for row in self._rows.values() if row.expires_ms > time_ms)

    def oldest(self, time_ms: int) -> Position | None:
        """The least position that is pinned; None when nothing is."""
        return min((row.position for row in self.alive(time_ms)), default=None)

    def validate(self, command: Pin, *, time_ms: int) -> Rejected | None:
        if not 0 < len(command.name) <= PIN_NAME_MAX:
            reason = f"the name of a pin has 1 to {PIN_NAME_MAX} characters"
            return Rejected(ErrorCode.INVALID_REQUEST, reason)
        if not 0 < command.lifetime_ms <= PIN_LIFETIME_MS_MAX:
            reason = f"a pin lives 1 to {PIN_LIFETIME_MS_MAX} ms, then it must be renewed"
            return Rejected(ErrorCode.INVALID_REQUEST, reason)
        if command.name not in self._rows and sum(1 for _ in self.alive(time_ms)) >= PINS_MAX:
            return Rejected(ErrorCode.POLICY_VIOLATION, f"there are {PINS_MAX} pins already")
        return None

    def set(self, command: Pin, *, position: Position, time_ms: int) -> PinRow:
        """`validate` had no objection. A pin that lives keeps its position and never loses time."""
        for name in [row.name for row in self._rows.values() if row.expires_ms <= time_ms]:
            del self._rows[name]
        expires_ms = time_ms + command.lifetime_ms
        before = self._rows.get(command.name)
        if before is not None:
            position = before.position
            expires_ms = max(expires_ms, before.expires_ms)
        row = PinRow(command.name, position, expires_ms)
        self._rows[command.name] = row
        return row

    def remove(self, name: str) -> None:
        """Nothing happens when there is no such pin."""
        self._rows.pop(name, None)
