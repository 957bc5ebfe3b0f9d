"""What stands for agents of the release before."""

import pytest

from coordinator.commands.codec import decode_entry, encode_entry
from coordinator.commands.encoding import CodecError
from coordinator.commands.entries import Command, Entry, Tick
from coordinator.commands.table_commands import ReportExport
from coordinator.log.metadata_log import LogEntry
from protocol.types import INCARNATION_NONE, TOPIC_ID_ZERO, Position
from tests.sim.tables_world import as_read_before


def entry_of(command: Command) -> LogEntry:
    payload = encode_entry(Entry(INCARNATION_NONE, 0, 0, (command,)))
    return LogEntry(Position(7), 1, 0, payload)


def test_an_agent_of_the_release_before_cannot_read_an_entry_about_tables() -> None:
    entry = as_read_before(entry_of(ReportExport(TOPIC_ID_ZERO, ())))
    assert entry.position == Position(7)
    with pytest.raises(CodecError):
        decode_entry(entry.payload)


def test_an_agent_of_the_release_before_reads_all_else_as_it_is() -> None:
    assert as_read_before(entry_of(Tick())) == entry_of(Tick())
