"""Feature levels that are finalized, the same on all agents (KIP-584).

`transaction.version` is the only one that changes: 2 lets clients use KIP-890 (implicit adds, an
epoch per transaction). A new log begins with the highest level that its first agent can; later an
operator raises it, when all live agents can (docs/design/running.md §11). The epoch is the
position of the newest change: clients take the features of the highest epoch that they have seen,
so it must never go back and be the same everywhere.
"""

from typing import Final

from coordinator.commands.entries import DONE, Done, Open, Rejected
from coordinator.commands.transaction_commands import SetFeatureLevel
from coordinator.tables.incarnations import Incarnations
from protocol.errors import ErrorCode
from protocol.types import POSITION_ZERO, Position

TRANSACTION_VERSION: Final = "transaction.version"
TRANSACTION_VERSION_MAX: Final = 2
AGENT_LEVEL: Final = 1
"""`feature_level_max` of an agent that serves transactions; without them it is 0."""


class Features:
    """Read by handlers, written by `apply`."""

    def __init__(self) -> None:
        self.transaction_version = 0
        self.epoch: Position = POSITION_ZERO
        """Position of the newest change; it has to be 0 or more for clients to look at it."""
        self._begun = False
        """An incarnation has been opened, and the first one has said what is finalized."""

    def validate(self, command: Open) -> Rejected | None:
        """Why an agent of this kind cannot join."""
        if self.transaction_version == 0 or command.feature_level_max >= AGENT_LEVEL:
            return None
        reason = f"this agent is too old for {TRANSACTION_VERSION} {self.transaction_version}"
        return Rejected(ErrorCode.UNSUPPORTED_VERSION, reason)

    def opened(self, command: Open, position: Position) -> None:
        """An incarnation has begun."""
        if not self._begun and command.feature_level_max >= AGENT_LEVEL:
            self.transaction_version = TRANSACTION_VERSION_MAX
            self.epoch = position
        self._begun = True

    def apply(
        self, command: SetFeatureLevel, incarnations: Incarnations, position: Position
    ) -> Done | Rejected:
        """Judge, then set."""
        if command.feature != TRANSACTION_VERSION:
            return Rejected(ErrorCode.INVALID_REQUEST, f"no feature {command.feature!r} to change")
        if not 0 <= command.level <= TRANSACTION_VERSION_MAX:
            reason = f"{command.feature} has levels 0 to {TRANSACTION_VERSION_MAX}"
            return Rejected(ErrorCode.INVALID_REQUEST, reason)
        behind = [row.node_name for row in incarnations if row.feature_level_max < AGENT_LEVEL]
        if behind and command.level > 0:
            reason = f"the live agent {behind[0]!r} is too old for {command.feature}"
            return Rejected(ErrorCode.INVALID_UPDATE_VERSION, reason)
        if command.level != self.transaction_version:
            self.transaction_version = command.level
            self.epoch = position
        return DONE
