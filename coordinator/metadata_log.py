"""The port to the metadata log: totally ordered entries, written under sessions.

A session is a lease with numbered entries: n = 0 opens it, n + 1 is accepted only while it lives
and n is the newest. So an append is idempotent, and when the session is gone, `last` is final:
nothing of it can come later (P3). Payloads are opaque here (`coordinator.codec` makes them).

Every call has a deadline of its own (a few seconds) and ends by answering or raising. Every
adapter passes `tests/contracts/test_metadata_log.py`.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple, Protocol

from protocol.types import Incarnation, Position


class LogError(Exception):
    """A call on the metadata log did not succeed. Always one of the subclasses."""


class LogUnavailableError(LogError):
    """No answer. The call may or may not have taken effect; the same call may be made again."""


class LogRefusedError(LogError):
    """A definite no that repeating will not change (credentials, another cluster's data, a newer
    format). The message names what was refused and what to do."""


class SessionLostError(LogError):
    """The session is gone for good. `last` is final: n of its newest entry, -1 when none."""

    def __init__(self, last: int) -> None:
        super().__init__(f"the session is gone; its newest entry is number {last}")
        self.last = last


class LogHoleError(LogError):
    """The tail cannot go on without leaving entries out (cut, or lost): load anew."""


class Session(NamedTuple):
    id: int
    incarnation: Incarnation


class SessionState(NamedTuple):
    """What a linearizable read says of a session."""

    alive: bool
    last: int
    """n of its newest entry; -1 when it has none. Final when not alive."""


class LogEntry(NamedTuple):
    position: Position
    session: int
    n: int
    payload: bytes


class MetadataLog(Protocol):
    """Totally ordered entries. Positions grow; they are not dense."""

    async def identify(self, identity: bytes) -> bytes:
        """Write who this log belongs to if nobody has; return what is written there."""
        ...

    async def grant(self, ttl_ms: int) -> int:
        """A new session id whose lease lives `ttl_ms` (rounded up) from now, not yet open."""
        ...

    async def open(self, session: int, payload: bytes) -> Session:
        """Append entry 0 and begin the session; its position is the incarnation. Idempotent.

        Raises SessionLostError when the lease ran out before.
        """
        ...

    async def keep_alive(self, session: int) -> None:
        """Renew the lease for its ttl, counted from some time after this call began.

        Raises SessionLostError (its `last` is that of a linearizable read).
        """
        ...

    async def append(self, session: Session, n: int, payload: bytes) -> Position:
        """Append entry n of the session; the position of it. Idempotent for the same n.

        Raises SessionLostError when the session is gone and entry n is not in; if it is in
        (`last` >= n) that error still tells, by `last`. LogUnavailableError: unknown, repeat.
        """
        ...

    async def read_session(self, session: int) -> SessionState:
        """Linearizable: is it alive, and which entry is its newest."""
        ...

    async def revoke(self, session: int) -> None:
        """End the session now. Idempotent."""
        ...

    async def head(self) -> Position:
        """Linearizable: the newest position (0 when the log is empty)."""
        ...

    def tail(self, after: Position) -> AsyncGenerator[Sequence[LogEntry], None]:
        """All entries after a position, in order, in batches, for ever.

        Catches up by pages at one revision, then follows. Raises LogUnavailableError (tail again
        from the last position received) or LogHoleError. A generator, so that whoever stops
        reading can close it.
        """
        ...

    async def aclose(self) -> None:
        """Release connections; open tails end by raising LogUnavailableError. Idempotent."""
        ...
