"""Entries that this agent appends, kept until its own tail brings them: they need not be decoded.

Invariant: what is given back for an entry of the log is what its bytes would be decoded to. Only
entries of chunks are kept: those are many, and their commands are made of the same values that a
decoder makes (`group_items`). The bytes are compared, so nothing else passes for what was appended.
Pure.
"""

from typing import Final

from coordinator.commands.entries import Command, CommitChunk, Entry
from coordinator.log.metadata_log import LogEntry
from protocol.types import Incarnation

KEPT_MAX: Final = 64
"""One append is in flight at a time; more wait only for a tail that lags."""


class OwnEntries:
    """By session and number: the bytes, and what they say."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], tuple[bytes, Entry]] = {}  # Oldest first.

    def keep(
        self,
        session: int,
        payload: bytes,
        *,
        incarnation: Incarnation,
        n: int,
        clock_ms: int,
        commands: tuple[Command, ...],
    ) -> None:
        """Entry n of the session is about to be appended."""
        for command in commands:
            if type(command) is not CommitChunk:
                return
        if len(self._kept) >= KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        self._kept[session, n] = (payload, Entry(incarnation, n, clock_ms, commands))

    def take(self, logged: LogEntry) -> Entry | None:
        """What the entry says, if it is one that was kept; then it is forgotten."""
        kept = self._kept.pop((logged.session, logged.n), None)
        if kept is None or kept[0] != logged.payload:
            return None
        return kept[1]
