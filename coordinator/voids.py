"""The entries that an operator has voided, as whoever applies the log goes by them. Pure.

An entry that makes every agent stop would stop them for ever. `frazil log void` voids it, while no agent has
a session: the log remembers which it was, and gets an entry that says so (`VoidEntry`). Whoever applies
the log reads what is voided before the first entry, and passes over it (`Machine.void`).

Who has read that too early, and could apply the entry, comes to the VoidEntry, and stops: nobody is told of
a session of its own before that, since the sessions of that time were over. So no two agents that have
a session differ about an entry. A release that knows nothing of all this stops there as well: it cannot decode it.
"""

from collections.abc import Iterable

from coordinator.commands.entries import Entry, VoidEntry
from coordinator.log.metadata_log import LogEntry, VoidedEntry
from coordinator.log.voided import payload_digest
from protocol.types import Position, era_of, revision_of


class Voids:
    """Those that were read before the first entry."""

    def __init__(self, entries: Iterable[VoidedEntry] = ()) -> None:
        self._entries = {entry.position: entry for entry in entries}

    def __len__(self) -> int:
        return len(self._entries)

    def covers(self, logged: LogEntry) -> bool:
        """Whether to pass over the entry."""
        voided = self._entries.get(logged.position)
        return voided is not None and voided.digest == payload_digest(logged.payload)

    def contradicted_by(self, entry: Entry) -> VoidEntry | None:
        """What the entry says is void though it was applied.

        Where it lies before the snapshot that a replica begins with, so does what says so: nothing is voided
        behind a snapshot.
        """
        for command in entry.commands:
            if not isinstance(command, VoidEntry):
                continue
            voided = self._entries.get(command.position)
            if voided is None or voided.digest != command.digest:
                return command
        return None


def way_out(position: Position) -> str:
    """What an operator can do about an entry that stops every agent."""
    named = f"{era_of(position)}:{revision_of(position)}"
    return (
        "every agent of this release stops there; the way out is a release that can take it, or"
        f" frazil log void {named} (docs/design/running.md §13)"
    )
