"""The table of delegation tokens: whose each is, who may renew it, when it ends (KIP-48).

What a token proves itself by is not here, and nowhere in the log (`coordinator.commands.token_commands`).

Invariants: a token ends at its `max_ms` at the latest; number and sizes are bounded. A token that
has ended stays until it is removed: time is the agents'. `version` is the position of the newest change.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import assert_never

from coordinator.commands.entries import DONE, Done, Rejected
from coordinator.commands.layout import Int64
from coordinator.commands.token_commands import (
    PRINCIPAL_MAX,
    TOKEN_ID_MAX,
    TOKENS_MAX,
    CreateDelegationToken,
    ExtendDelegationToken,
    RemoveDelegationTokens,
    TokenCommand,
)
from protocol.errors import ErrorCode
from protocol.types import POSITION_ZERO, Position


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """One token. Times are ms since the epoch."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: Int64
    expires_ms: Int64
    max_ms: Int64

    def has_ended(self, now_ms: int) -> bool:
        return self.expires_ms < now_ms

    def may_be_renewed_by(self, principal: str) -> bool:
        return principal == self.owner or principal in self.renewers

    def concerns(self, principal: str) -> bool:
        """Whether it is the principal's to know of it."""
        return principal == self.requester or self.may_be_renewed_by(principal)


class DelegationTokens:
    """Tokens in the order in which they were made. To be read only, but by `apply`."""

    def __init__(self) -> None:
        self.version: Position = POSITION_ZERO
        self._rows: dict[str, DelegationToken] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[DelegationToken]:
        return iter(self._rows.values())

    def get(self, token_id: str) -> DelegationToken | None:
        return self._rows.get(token_id)

    # For `apply`.

    def apply(self, command: TokenCommand, position: Position) -> Done | Rejected:
        """Codes of a refusal: INVALID_REQUEST it cannot be one, POLICY_VIOLATION there is no room,
        DELEGATION_TOKEN_NOT_FOUND."""
        match command:
            case CreateDelegationToken():
                outcome = self._create(command)
            case ExtendDelegationToken():
                outcome = self._extend(command)
            case RemoveDelegationTokens():
                outcome = self._remove(command)
            case _:
                assert_never(command)
        if outcome == DONE:
            self.version = position
        return outcome

    def _create(self, command: CreateDelegationToken) -> Done | Rejected:
        if (reason := misfit(command)) is not None:
            return Rejected(ErrorCode.INVALID_REQUEST, reason)
        if command.token_id in self._rows:
            return Rejected(ErrorCode.INVALID_REQUEST, "there is a token of this id")
        if len(self._rows) >= TOKENS_MAX:
            return Rejected(ErrorCode.POLICY_VIOLATION, f"there are {TOKENS_MAX} tokens")
        self._rows[command.token_id] = DelegationToken(
            command.token_id,
            command.owner,
            command.requester,
            command.renewers,
            command.issued_ms,
            command.expires_ms,
            command.max_ms,
        )
        return DONE

    def _extend(self, command: ExtendDelegationToken) -> Done | Rejected:
        row = self._rows.get(command.token_id)
        if row is None:
            return Rejected(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "there is no such token")
        if command.expires_ms > row.max_ms:
            return Rejected(ErrorCode.INVALID_REQUEST, "a token ends when its longest life does")
        self._rows[command.token_id] = replace(row, expires_ms=command.expires_ms)
        return DONE

    def _remove(self, command: RemoveDelegationTokens) -> Done:
        for token_id in command.token_ids:
            row = self._rows.get(token_id)
            if row is not None and row.expires_ms <= command.ended_ms:
                del self._rows[token_id]
        return DONE


def misfit(command: CreateDelegationToken) -> str | None:
    """Why this cannot be a token, as a sentence; None when it can."""
    if not 0 < len(command.token_id) <= TOKEN_ID_MAX:
        return f"the id of a token has 1 to {TOKEN_ID_MAX} characters"
    for principal in (command.owner, command.requester, *command.renewers):
        if not 0 < len(principal) <= PRINCIPAL_MAX:
            return f"a principal has 1 to {PRINCIPAL_MAX} characters"
    if command.expires_ms > command.max_ms:
        return "a token ends when its longest life does"
    return None
