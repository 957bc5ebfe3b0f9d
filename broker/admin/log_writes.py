"""What an agent writes to the log, counted by cause: an entry is one write of etcd.

An entry may hold commands of several causes. It would have been written for the first of them
alone, so it counts for that one.
"""

from collections import Counter
from typing import Final

from coordinator.commands.declaration import DECLARATIONS
from coordinator.commands.entries import (
    AllocateProducerIds,
    Close,
    Command,
    CommitChunk,
    Open,
    Pin,
    Tick,
    Unpin,
    VoidEntry,
)
from coordinator.log_client import Applied, LogClient

_OF_MODULES: Final = {
    "group_commands": "groups",
    "job_commands": "jobs",
    "table_commands": "export",
    "transaction_commands": "transactions",
}
_OF_COMMANDS: Final[dict[type, str]] = {
    CommitChunk: "produce",
    AllocateProducerIds: "produce",
    Tick: "clock",
    Open: "session",
    Close: "session",
    VoidEntry: "session",
    Pin: "export",
    Unpin: "export",
}
OTHERS: Final = "administration"
"""Topics, configs, users, rights, quotas, schemas."""


def cause_of(command: type[Command]) -> str:
    """What such a command is written for."""
    module = command.__module__.rpartition(".")[2]
    return _OF_COMMANDS.get(command) or _OF_MODULES.get(module, OTHERS)


CAUSES: Final = {command: cause_of(command) for command in DECLARATIONS}


class LogWrites:
    """Counts what the agent's own incarnations wrote, as it is applied."""

    def __init__(self, log_client: LogClient) -> None:
        self.counts: Counter[str] = Counter()
        self._log_client = log_client
        log_client.on_applied(self._applied)

    def _applied(self, applied: Applied) -> None:
        commands = applied.entry.commands
        if commands and applied.incarnation == self._log_client.incarnation():
            self.counts[CAUSES[type(commands[0])]] += 1
