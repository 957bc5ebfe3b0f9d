"""What is applied from memory is what its bytes say: compared whenever it happens, in all tests.

Tests call `watch` before anything else; so does the simulator.
"""

from coordinator.commands.codec import decode_entry
from coordinator.commands.entries import Entry
from coordinator.log.metadata_log import LogEntry
from coordinator.own_entries import OwnEntries

_take = OwnEntries.take


def watch() -> None:
    """From now on, `OwnEntries.take` compares what it gives back."""
    setattr(OwnEntries, "take", _compared)  # noqa: B010 - Assigned, its type would be another.


def _compared(own: OwnEntries, logged: LogEntry) -> Entry | None:
    entry = _take(own, logged)
    assert entry is None or _exactly(entry) == _exactly(decode_entry(logged.payload))
    return entry


def _exactly(entry: Entry) -> str:
    """Types too: a list equals no tuple, and a bool no number."""
    return repr(entry)
