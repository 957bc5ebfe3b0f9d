"""P17: the agent does not execute a request long after its client gave up.

`StallWatch` notices that the loop stood still (a frozen process, a suspended machine, a long
computation): somebody looks at the clock at least four times a second, so a gap means a stall.
Bytes that arrived meanwhile may be of clients that have long sent the same elsewhere. So after a
stall every connection is suspect: what would change something is refused with a retriable error,
until a frame arrives that was begun after such a refusal had been written there. A live client
sends again; one that gave up does not.

A refusal counts only once the socket had been read dry since the stall. Otherwise the next old
frame, still in the kernel's buffer, would pass for an answer to it. And a frame counts as later only
when its bytes (on TLS the records that they came in) have higher numbers than all that had arrived
when the refusal was written (`broker.edge.numbering`). What stays open is old data
in the *client's* kernel behind a full window; the connection it belongs to is dead by then.

Pure: time is an argument. The server's ticker and its read path ask (`broker.edge.server`).
"""

from enum import Enum
from typing import Final

STALL_MS_MAX: Final = 1_000
TICK_MS: Final = 250
"""How often the server's ticker observes the clock when nothing else does."""

assert 2 * TICK_MS <= STALL_MS_MAX


class StallWatch:
    """Counts the stalls of one loop, by the boot-time clock (it goes on in suspend)."""

    __slots__ = ("_ended_ms", "_seen_ms", "_stall_ms_max", "longest_ms", "stalled_ms", "stalls")

    def __init__(self, now_ms: int, *, stall_ms_max: int = STALL_MS_MAX) -> None:
        self._stall_ms_max = stall_ms_max
        self._seen_ms = now_ms
        self._ended_ms: int | None = None
        self.stalls = 0
        self.longest_ms = 0
        self.stalled_ms = 0
        """All of them together."""

    def observe(self, now_ms: int) -> None:
        """Look at the clock; to be called before anything that was read is handled."""
        gap_ms = now_ms - self._seen_ms
        self._seen_ms = now_ms
        if gap_ms > self._stall_ms_max:
            self.stalls += 1
            self._ended_ms = now_ms
            self.longest_ms = max(self.longest_ms, gap_ms)
            self.stalled_ms += gap_ms

    @property
    def just_ended(self) -> bool:
        """Whether a stall ended so lately that a new connection may have waited through it."""
        return self._ended_ms is not None and self._seen_ms - self._ended_ms <= self._stall_ms_max


class _TrustState(Enum):
    TRUSTED = "trusted"
    SUSPECT = "suspect: a stall, and old bytes may still be in the kernel"
    DRY = "suspect, but all that had arrived was read"
    REFUSED = "a refusal was written after the socket was dry"


class Trust:
    """What one connection's frames may do, from the stalls, reads and refusals it saw."""

    __slots__ = ("_refused_at", "_state", "_under_way_fresh", "stalls")

    def __init__(self, watch: StallWatch) -> None:
        self.stalls = watch.stalls
        """Of which it knows; when the watch has more, all that was read is stale."""
        # A connection accepted right after a stall may have waited in the backlog through it.
        self._state = _TrustState.SUSPECT if watch.just_ended else _TrustState.TRUSTED
        self._under_way_fresh = False
        self._refused_at = 0
        """The number of the first byte that may be in reply to the refusal."""

    def read(
        self, watch: StallWatch, *, begun: int, drained: bool, continued: bool, frames: int
    ) -> int:
        """One read of the socket completed `frames` frames; how many of the first are stale.

        `begun`: the number of its first byte. `drained`: it took all that there was. `continued`: its
        first bytes belong to a frame that an earlier read began. Stale frames must not change
        anything.
        """
        if watch.stalls != self.stalls:
            self.stalls = watch.stalls
            self._state = _TrustState.SUSPECT
            self._under_way_fresh = False
        if self._state is _TrustState.TRUSTED:
            return 0
        fresh = self._state is _TrustState.REFUSED and begun >= self._refused_at
        if self._state is _TrustState.SUSPECT and drained:
            self._state = _TrustState.DRY
        first_fresh = self._under_way_fresh if continued else fresh
        if frames > 0 or not continued:
            self._under_way_fresh = fresh
        if frames > 0 and first_fresh:
            self._state = _TrustState.TRUSTED
            return 0
        if frames > 1 and fresh:
            self._state = _TrustState.TRUSTED
            return 1
        return frames

    def refusal_written(self, arrived: int) -> None:
        """A refusal because of staleness went out on this connection.

        `arrived`: bytes that have arrived so far, also unread.
        """
        if self._state is not _TrustState.REFUSED:
            self._refused_at = arrived
        if self._state is _TrustState.DRY:
            self._state = _TrustState.REFUSED

    @property
    def trusted(self) -> bool:
        return self._state is _TrustState.TRUSTED
