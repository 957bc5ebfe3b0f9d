"""When a change of rights, or of a delegation token, holds on every agent: each says so in the log.

An agent decides by what it has applied, so a change holds there once its replica has read the entry.
Every agent that applies one of another writes `ConfirmRights` with its position. Who asked for the
change waits for those of all incarnations that were live at that position, but for those that have
been closed since: they may not act any more. Who joins later has read the log's end before.

An agent that has no session confirms when it has one again; it is closed soon, or cannot be reached
by clients with reason. Left out: what is done when the wait is too long (the handlers of ACLs and tokens).
"""

import asyncio
from typing import Final

from broker.calls.outcomes import forget
from coordinator.commands.entries import Close, Open
from coordinator.commands.rights_commands import ConfirmRights, CreateAcls, DeleteAcls
from coordinator.commands.token_commands import (
    CreateDelegationToken,
    ExtendDelegationToken,
    RemoveDelegationTokens,
)
from coordinator.log_client import Applied, LogClient
from protocol.types import POSITION_ZERO, Incarnation, Position

_CHANGES: Final = frozenset(
    {
        CreateAcls,
        DeleteAcls,
        CreateDelegationToken,
        ExtendDelegationToken,
        RemoveDelegationTokens,
    }
)
_AWAITED: Final = frozenset({ConfirmRights, Open, Close})


class RightsAgreement:
    """Of one agent; belongs to its loop."""

    def __init__(self, log_client: LogClient) -> None:
        self._log_client = log_client
        self._confirmed: dict[Incarnation, Position] = {}
        """By agent, the newest position that it has confirmed."""
        self._due: Position = POSITION_ZERO
        """The newest change of another agent; POSITION_ZERO when it is confirmed."""
        self._waiting: dict[asyncio.Future[None], Position] = {}
        log_client.on_applied(self._applied)
        log_client.on_incarnation(lambda _: self._confirm())

    async def reached(self, position: Position, *, timeout_ms: int) -> bool:
        """Wait until every live agent has applied what is there; False when that takes too long."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = position
        self._settle()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await future
        except TimeoutError:
            return False
        finally:
            self._waiting.pop(future, None)
        return True

    def _applied(self, applied: Applied) -> None:
        for command in applied.entry.commands:
            kind = type(command)
            if kind in _CHANGES and applied.incarnation != self._log_client.incarnation():
                self._due = applied.position
                self._confirm()
            elif kind in _AWAITED:
                if isinstance(command, ConfirmRights):
                    self._confirmed[applied.incarnation] = command.position
                if self._waiting:
                    self._settle()

    def _confirm(self) -> None:
        incarnation = self._log_client.incarnation()
        if incarnation is None or self._due == POSITION_ZERO:
            return
        forget(self._log_client.propose(ConfirmRights(self._due), incarnation))
        self._due = POSITION_ZERO

    def _settle(self) -> None:
        live = [row.incarnation for row in self._log_client.machine.incarnations]
        self._confirmed = {each: self._confirmed[each] for each in live if each in self._confirmed}
        own = self._log_client.incarnation()
        for future, position in self._waiting.items():
            behind = [
                each
                for each in live
                if each < position
                and each != own
                and self._confirmed.get(each, POSITION_ZERO) < position
            ]
            if not behind and not future.done():
                future.set_result(None)
