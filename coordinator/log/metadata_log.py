"""The port to the metadata log: totally ordered entries, written under sessions.

A session is a lease with numbered entries: n = 0 opens it, n + 1 is accepted only while it lives
and n is the newest. So an append is idempotent, and when the session is gone, `last` is final:
nothing of it can come later (P3). Payloads are opaque here (`coordinator.commands.codec` makes them).

The log is bounded by cutting it: what two verified snapshots make superfluous is deleted (P14).
The log itself remembers which snapshots those are (`publish`), lets nobody cut beyond the older
one, and never goes back: a publication or a cut that comes late, by whoever held the job before,
changes nothing that a newer one has said.

An entry that no agent can take may be voided by an operator (`void`): it keeps its place and number, and
whoever reads the log passes over it. This is written while no session lives, together with an
entry that tells of it: whoever has passed the voided one as if it counted reads that before it can
be told of a session of its own.

A log that was lost begins anew in another *era* (`begin_era`), from a snapshot and without entries. Which era it
is in, whoever opens it says first (`enter`): the object store knows.

Positions never go back. A log that does (a backup was restored, a copy put back) is another log:
a tail from a position beyond its head raises LogReplacedError, and so does any call whose adapter
can tell.

Every call but `cut` and `begin_era` has a deadline of its own (a few seconds) and ends by answering or raising.
Every adapter passes `tests/contracts/test_metadata_log.py`.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from protocol.fault_codes import FaultCode, FaultError
from protocol.types import Incarnation, Position

LAST_UNKNOWN = -2
"""Instead of a session's newest number: it is gone for so long that nobody keeps its number any
more, or it never had one. Whether an append in doubt is in cannot be told then (P4)."""

SESSIONS_KEPT_MAX = 1000
"""Sessions that are gone and whose entries are all cut, but whose newest number is still kept: an
agent that comes back must find how far it had got."""

VOIDS_MAX = 1000
"""Entries that may be voided in what is not cut yet."""


class LogError(FaultError):
    """A call on the metadata log did not succeed. Always one of the subclasses."""


class LogUnavailableError(LogError):
    """No answer. The call may or may not have taken effect; the same call may be made again."""


class LogRefusedError(LogError):
    """A no that repeating will not change by itself (credentials, another cluster's data, a newer
    format, a full database). The message names what was refused and what to do. What was sent
    before, or by this very call, may be in nevertheless: only SessionLostError is final."""


class SessionLostError(LogError):
    """The session is gone for good. `last` is final: n of its newest entry, -1 when none, or
    LAST_UNKNOWN."""

    def __init__(self, last: int) -> None:
        newest = "not known any more" if last == LAST_UNKNOWN else f"number {last}"
        super().__init__(f"the session is gone; its newest entry is {newest}")
        self.last = last


class LogReplacedError(LogError):
    """The log under this adapter is not the one that it was: an older state of it was put back, or
    another log stands in its place. Final: whoever used the adapter ends, and acknowledges nothing
    that it has not acknowledged before. The message says how it was noticed."""

    fault = FaultCode.OLDER_LOG


class EraOverError(LogReplacedError):
    """The log was begun anew under this adapter (`begin_era`), which was away meanwhile."""

    fault = FaultCode.OTHER_CLUSTER

    def __init__(self) -> None:
        super().__init__(
            "the log was begun anew in another era while this agent was away (frazil recover). It acknowledges nothing"
            " any more and deletes nothing: start it again"
        )


class FirstFailedError(LogError):
    """What was to be done before an append (`LocalLog`) raised `cause`: the entry is not in, by this
    call or an earlier one, and its number is free."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(f"not appended: {cause}")
        self.cause = cause


class LiveSessionsError(LogRefusedError):
    """What must not happen while anybody may be at work: these sessions live."""

    def __init__(self, sessions: "Sequence[Session]") -> None:
        named = ", ".join([f"{session.id:x}" for session in sessions])
        super().__init__(f"sessions of agents live: {named}")
        self.sessions = tuple(sessions)


def other_identity() -> LogRefusedError:
    """What `begin_era` raises when somebody else has written another one."""
    return LogRefusedError("the log says that it belongs to another cluster, or to another era")


class LogHoleError(LogError):
    """The tail cannot go on without leaving entries out (cut, or lost): load anew."""


class LogCutError(LogHoleError):
    """Entries after the position asked for were cut: only a newer snapshot leads to the end."""

    def __init__(self, after: Position, cut: Position) -> None:
        super().__init__(f"the log was cut through position {cut}, and {after} lies before that")
        self.cut = cut


class Session(NamedTuple):
    id: int
    incarnation: Incarnation


class SessionState(NamedTuple):
    """What a linearizable read says of a session."""

    alive: bool
    last: int
    """n of its newest entry; -1 when it has none. Final when not alive, or LAST_UNKNOWN."""


class LogEntry(NamedTuple):
    position: Position
    session: int
    n: int
    payload: bytes


class VoidedEntry(NamedTuple):
    """An entry that an operator has voided."""

    position: Position
    session: int
    n: int
    digest: bytes
    """Of the payload that was looked at (`payload_digest`)."""
    voided_ms: int
    """By the wall clock of the operator's machine."""
    reason: str
    """The operator's."""


class MetadataLog(Protocol):
    """Totally ordered entries. Positions grow; they are not dense."""

    async def identify(self, identity: bytes) -> bytes:
        """Write who this log belongs to if nobody has; return what is written there."""
        ...

    def enter(self, era: int) -> None:
        """Read and write that era from now on; the first one until then. Before any call that follows here."""
        ...

    async def identity(self) -> bytes:
        """Linearizable: who this log belongs to; empty when nobody has written it."""
        ...

    async def begin_era(
        self, era: int, identity: bytes, *, snapshots: bytes, instead_of: bytes
    ) -> None:
        """Have the log begin anew in `era`, with what is published in `snapshots`, and enter it.

        `instead_of`: the identity that was read. Idempotent. All or nothing; only while no session is
        open in that era and the one that was entered. Raises LiveSessionsError, and LogRefusedError when
        another identity was written.
        """
        ...

    async def grant(self, ttl_ms: int) -> int:
        """A new session id whose lease lives `ttl_ms` (rounded up) from now, not yet open."""
        ...

    async def open(self, session: int, payload: bytes) -> Session:
        """Append entry 0 and begin the session; its position is the incarnation. Idempotent.

        Raises SessionLostError when the lease ran out before, and EraOverError when the log says another identity than
        this adapter has read or written.
        """
        ...

    async def keep_alive(self, session: int) -> None:
        """Renew the lease for its ttl, counted from some time after this call began.

        Raises SessionLostError (its `last` is that of a linearizable read).
        """
        ...

    async def append(self, session: Session, n: int, payload: bytes) -> Position:
        """Append entry n of the session; the position of it. Idempotent for the same n.

        (Of one that was in before and has been cut since, the position of the cut.) Raises SessionLostError when the session is gone and entry n is not in; if it is in
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
        from the last position received), LogCutError when what comes after a position is not
        whole any more, LogHoleError, or LogReplacedError when the log ends before `after`. A
        generator, so that whoever stops reading can close it.
        """
        ...

    async def snapshots(self) -> bytes:
        """Linearizable: what was published last; empty when nothing was."""
        ...

    async def publish(self, session: Session, snapshots: bytes, *, older: Position) -> None:
        """Say which snapshots a starting agent may load, for as long as the session lives.

        `older` is the position of the older one of two, POSITION_ZERO while there is only one:
        `cut` goes that far and no further. Idempotent; left undone when what is published has a
        newer one. Raises SessionLostError.
        """
        ...

    async def cut(self, session: Session, through: Position) -> int:
        """Delete the entries at or before a position, in slices; how many were deleted.

        From its first step on, tails from before `through` raise LogCutError. It may take long,
        may end in the middle by LogUnavailableError, and is finished by any later cut. Raises
        SessionLostError, and LogRefusedError when `through` is beyond what `publish` allows.
        """
        ...

    async def voids(self) -> Sequence[VoidedEntry]:
        """Linearizable: the entries that are voided and not cut, in order."""
        ...

    async def void(self, entry: VoidedEntry, notice: bytes, *, snapshots: bytes) -> Position:
        """Void an entry, and append `notice` as entry 0 of a session that never lives; its position.

        Both or neither, and only while no session is open. Idempotent by the entry's position.
        Raises LiveSessionsError, and LogRefusedError: there is no such entry, or its payload is
        another one; something else is published than `snapshots`, which was looked at: a snapshot
        may hold what the entry did; or VOIDS_MAX are there.
        """
        ...

    async def aclose(self) -> None:
        """Release connections; open tails end by raising LogUnavailableError. Idempotent."""
        ...


@runtime_checkable
class LocalLog(MetadataLog, Protocol):
    """A log on this machine, whose thread can do something else first: one hop for both."""

    async def append_after(
        self, first: Callable[[], None], session: Session, n: int, payload: bytes
    ) -> Position:
        """As `append`, once `first` has returned; it may block, and runs in another thread.

        When it raises, so does this, FirstFailedError. Of one entry's calls `first` is to succeed once:
        called again after that it has nothing to do and raises nothing. Appends take effect in the order
        in which they were called, also those that were not answered in time: so when one fails for what
        was to be done first, none of the same number is on its way any more.
        """
        ...
