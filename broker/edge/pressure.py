"""Memory of requests, all connections together: who may be read from when it is scarce, and who goes.

What holds (P15):

* *Easy* below three quarters of the bound: everybody is read from.
* *Tight* above: a connection is read from while it holds no more than its share, a quarter of the
  bound divided by the number of connections. So small requests pass while big ones wait.
* *Choked* above the bound: nobody is read from.
* In both, frames under way have *turns*: the oldest one, and as many others, in the order of their
  beginning, as lack no more than a quarter of the bound together. So something always ends.
* While somebody waits (has sent what is not read, and has not stalled), all who stall are evicted: a
  frame under way that got less than 16 KiB (in its turn: 256 KiB) within 5 s and has no more of it
  waiting in the kernel; and a connection that holds more than its share in requests that are
  unanswered for 5 s, no Produce among them (a Produce waits for the store). Those that have not
  shown themselves (no request of theirs was answered) go after 1 s, and first. Eviction ends as soon
  as memory is easy.

The timer that looks for them runs only while memory is tight or choked. Left out: bounds of a single
connection (`broker.edge.connection`), how many there are (`broker.edge.places`).
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, NamedTuple, Protocol

from broker.node import EdgeStats
from protocol.framing import BufferGrowth

logger = logging.getLogger(__name__)

LOOK_MS: Final = 250
DUE_BYTES: Final = 16 << 10
"""What a frame under way must get within the time that it is given."""
TURN_DUE_BYTES: Final = 256 << 10
"""The same for one that is read from although it holds more than others may."""


class Patience(NamedTuple):
    """For how long, in ms, a connection may stall while others wait."""

    shown: int = 5_000
    new: int = 1_000
    """It has not shown itself."""


class Receiver(Protocol):
    """A connection, as far as its memory goes."""

    number: int
    shown: bool

    @property
    def active_ms(self) -> int: ...

    @property
    def held_bytes(self) -> int: ...

    @property
    def missing_bytes(self) -> int: ...

    @property
    def waits_since_ms(self) -> int | None: ...

    def arrived(self) -> tuple[int, int]: ...

    def abort(self, kind: str, reason: str) -> None: ...


ONE_STEP_BYTES: Final = 64 << 20
"""While no more is held, buffers of great frames grow by great steps."""
TURN_STEPS_BYTES: Final = 16 << 20
"""What they grow by so in one turn of the loop. Memory that nobody has touched for a while costs milliseconds a
MiB: hundreds of frames that begin at once would make the loop stand still for a quarter of a second."""


class Level(Enum):
    EASY = "easy"
    TIGHT = "tight"
    CHOKED = "full"


class _Seen(NamedTuple):
    arrived: int
    since_ms: int


class RequestMemory:
    """What all connections hold, and who may go on."""

    def __init__(
        self,
        stats: EdgeStats,
        connections: Mapping[int, Receiver],
        *,
        bytes_max: int,
        patience: Patience,
        boot_ms: Callable[[], int],
        mark: Callable[[int], None],
    ) -> None:
        """`mark`: have the connection of a number look again whether it may be read from."""
        self.allowance = sys.maxsize
        """How many bytes a connection may hold and still be read from; -1: none at all."""
        self.turns: dict[int, int] = {}
        """Who is read from whatever it holds: what its frame lacked when its turn began, 0 for the
        oldest one."""
        self.level = Level.EASY
        self.growth = BufferGrowth()
        self.begin_turn()
        """Of all connections' frames: in one step while memory is easy, else as little as will do."""
        self._stats = stats
        self._connections = connections
        self._bytes_max = bytes_max
        self._quarter = bytes_max // 4
        self._low, self._high = -1, 3 * self._quarter
        """The level stays while what is held is between the two."""
        self._patience = patience
        self._boot_ms = boot_ms
        self._mark = mark
        self._receiving: dict[int, Receiver] = {}
        """Frames under way, the oldest first."""
        self._held_back: dict[int, Receiver] = {}
        """They would be read from if memory were easy."""
        self._seen: dict[int, _Seen] = {}
        self._timer: asyncio.TimerHandle | None = None

    # What connections call.

    def hold(self, byte_count: int) -> None:
        """So many more bytes are held (negative: fewer)."""
        stats = self._stats
        held = stats.held_bytes = stats.held_bytes + byte_count
        if not self._low < held <= self._high:
            self._set_level()
        self.growth.in_one_step = self.level is Level.EASY and held <= ONE_STEP_BYTES

    def begin_turn(self) -> None:
        """Another turn of the loop: buffers may grow by great steps again."""
        self.growth.left = TURN_STEPS_BYTES

    def hold_back(self, connection: Receiver) -> None:
        """The connection is not read from, for what it holds."""
        self._held_back[connection.number] = connection

    def set_receiving(self, connection: Receiver, *, receiving: bool) -> None:
        """Whether a frame of the connection is under way."""
        number = connection.number
        if receiving:
            self._receiving.setdefault(number, connection)
        elif self._receiving.pop(number, None) is not None:
            self.turns.pop(number, None)
        if self.level is not Level.EASY:
            self._give_turns()

    def forget(self, connection: Receiver) -> None:
        """The connection is closed, or it is not to be read from for another reason."""
        self._held_back.pop(connection.number, None)
        self.set_receiving(connection, receiving=False)

    # Levels and turns.

    def _set_level(self) -> None:
        held = self._stats.held_bytes
        assert held >= 0
        quarter, before = self._quarter, self.level
        if held > self._bytes_max:
            self.level = Level.CHOKED
            self._low, self._high = 3 * quarter, sys.maxsize
        elif held > 3 * quarter or (before is Level.TIGHT and held > quarter * 5 // 2):
            self.level = Level.TIGHT
            self._low, self._high = quarter * 5 // 2, self._bytes_max
        else:
            self.level = Level.EASY
            self._low, self._high = -1, 3 * quarter
        if self.level is not before:
            self._level_changed(before)

    def _level_changed(self, before: Level) -> None:
        logger.info("request memory is %s: %d bytes", self.level.value, self._stats.held_bytes)
        self._set_allowance()
        if self.level is Level.CHOKED:
            for number in self._connections:
                self._mark(number)
        else:
            # When it becomes tight, each one notices by itself at its next read.
            self._release()
        if self.level is Level.EASY:
            self.turns.clear()
            self._seen.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            return
        self._give_turns()
        if before is Level.EASY:
            self._arm()

    def _set_allowance(self) -> None:
        share = self._quarter // max(1, len(self._connections))
        shares = {Level.EASY: sys.maxsize, Level.TIGHT: share, Level.CHOKED: -1}
        self.allowance = shares[self.level]

    def _release(self) -> None:
        """Those that must wait still say so again."""
        held_back, self._held_back = self._held_back, {}
        for number in held_back:
            self._mark(number)

    def _give_turns(self) -> None:
        room = self._quarter - sum(self.turns.values())
        oldest = True
        for number, connection in self._receiving.items():
            missing = connection.missing_bytes
            if number not in self.turns and (oldest or missing <= room):
                self.turns[number] = 0 if oldest else missing
                room -= self.turns[number]
                self._held_back.pop(number, None)
                self._seen.pop(number, None)
                self._mark(number)
            oldest = False
            if room < DUE_BYTES:
                return

    # Who stalls.

    def _arm(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(LOOK_MS / 1000, self._look)

    def _look(self) -> None:
        self._timer = None
        now_ms = self._boot_ms()
        stalled = self._stalled(now_ms)
        waiting = (each for number, each in self._held_back.items() if number not in stalled)
        if any(connection.arrived()[1] for connection in waiting):
            for connection, quiet_ms in sorted(
                stalled.values(), key=lambda each: (each[0].shown, -each[1])
            ):
                if self.level is Level.EASY:
                    break
                connection.abort("stalled", f"no progress for {quiet_ms} ms while others wait")
        if self.level is not Level.EASY:
            self._set_allowance()
            self._give_turns()
            self._arm()

    def _stalled(self, now_ms: int) -> dict[int, tuple[Receiver, int]]:
        """By number: who has stalled for longer than it may, and for how many ms."""
        quiet: dict[int, tuple[Receiver, int]] = {}
        seen, self._seen = self._seen, {}
        for number, connection in self._receiving.items():
            now_seen = self._seen[number] = self._progress(connection, seen.get(number), now_ms)
            quiet[number] = (connection, now_ms - now_seen.since_ms)
        share = self._quarter // max(1, len(self._connections))
        for number, connection in self._held_back.items():
            since_ms = connection.waits_since_ms
            if since_ms is not None and connection.held_bytes > share:
                quiet[number] = (connection, now_ms - since_ms)
        return {
            number: (connection, quiet_ms)
            for number, (connection, quiet_ms) in quiet.items()
            if quiet_ms >= (self._patience.shown if connection.shown else self._patience.new)
        }

    def _progress(self, connection: Receiver, before: _Seen | None, now_ms: int) -> _Seen:
        """What has arrived of its frame, and since when that is too little."""
        arrived, unread = connection.arrived()
        if before is None:
            return _Seen(arrived, now_ms if unread else connection.active_ms)
        due = TURN_DUE_BYTES if connection.number in self.turns else DUE_BYTES
        waits = unread >= min(DUE_BYTES, connection.missing_bytes)
        if waits or arrived - before.arrived >= due:
            return _Seen(arrived, now_ms)
        return before
