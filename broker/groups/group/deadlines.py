"""Deadlines by member of which most are moved long before they are due. Pure.

Every heartbeat moves one, so moving costs an assignment and nothing is kept sorted: `next_ms` is a
lower bound, and all are looked at only when it has come. That is once in a session timeout, less
a heartbeat interval, however many members there are.
"""


class Deadlines:
    __slots__ = ("_at_ms", "next_ms")

    def __init__(self) -> None:
        self._at_ms: dict[str, int] = {}
        self.next_ms: int | None = None
        """Nothing is due before; None: nothing at all."""

    def __contains__(self, key: object) -> bool:
        return key in self._at_ms

    def set(self, key: str, at_ms: int) -> None:
        self._at_ms[key] = at_ms
        if self.next_ms is None or at_ms < self.next_ms:
            self.next_ms = at_ms

    def drop(self, key: str) -> None:
        self._at_ms.pop(key, None)
        if not self._at_ms:
            self.next_ms = None

    def take_due(self, now_ms: int) -> list[str]:
        """Those that have come, in the order in which they were first set; they are forgotten."""
        if self.next_ms is None or now_ms < self.next_ms:
            return []
        due = [key for key, at_ms in self._at_ms.items() if at_ms <= now_ms]
        for key in due:
            del self._at_ms[key]
        self.next_ms = min(self._at_ms.values(), default=None)
        return due
