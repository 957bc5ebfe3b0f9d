"""Connections of clients that are over a quota: for how long each is not heard (KIP-219).

What holds:

* The answer leaves first; then nothing more is read from the connection, and nothing that was read
  before begins, until the time is over. Answers to what has begun still leave.
* No connection is muted for longer than the window of quotas: what waited longer could be of a client
  that has given up (P17). What was read before is not stale by that alone.
* Who is muted is neither idle nor stalled: a frame of it that is under way has no turn meanwhile
  (`broker.edge.pressure`), and gets one behind the others afterwards.
* Whose Produce begins over its quota, or who was muted, is *throttled* until an answer leaves that
  does not mute it: no request of it begins beside another, so that what was sent at once does not count
  as one, and it is read no further than what it was answered, so that what waits for nothing but a
  quota does not fill memory that others need.

Left out: who is over which quota (`broker.quotas`).
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Protocol


class Mutable(Protocol):
    """A connection, as far as muting goes."""

    number: int
    muted: bool
    throttled: bool

    def unmuted(self) -> None:
        """Its time is over: go on."""
        ...


class _Mute(NamedTuple):
    until_ms: int
    timer: asyncio.TimerHandle


class Mutes:
    """All that are muted."""

    def __init__(self, *, window_ms: int, boot_ms: Callable[[], int]) -> None:
        self._window_ms = window_ms
        self._boot_ms = boot_ms
        self._mutes: dict[int, _Mute] = {}

    def __len__(self) -> int:
        return len(self._mutes)

    def mute(self, connection: Mutable, ms: int) -> None:
        """From now on for so long, or for as long as it was muted before if that is longer."""
        ms = min(ms, self._window_ms)
        until_ms = self._boot_ms() + ms
        before = self._mutes.get(connection.number)
        connection.throttled = True
        if before is not None:
            if before.until_ms >= until_ms:
                return
            before.timer.cancel()
        connection.muted = True
        timer = asyncio.get_running_loop().call_later(ms / 1000, self.lift, connection)
        self._mutes[connection.number] = _Mute(until_ms, timer)

    def lift(self, connection: Mutable) -> None:
        """It is heard again, if it was not."""
        if self.forget(connection):
            connection.unmuted()

    def forget(self, connection: Mutable) -> bool:
        """Whether it was muted; it is not any more."""
        connection.muted = False
        mute = self._mutes.pop(connection.number, None)
        if mute is None:
            return False
        mute.timer.cancel()
        return True
