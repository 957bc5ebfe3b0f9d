"""Answers that are made and that their clients have not taken yet, of all connections (P15).

Each fetch brings records of its own, so many clients that take them slowly would fill the memory, though none of them
holds much. What holds:

* The more is untaken, the less the next fetch is given, at least a batch: so a slow way is no offence.
* At the bound no fetch begins. Whoever waits for that has the server cut off who takes the least (`broker.edge.server`).

Counted is what a connection holds beyond its write buffer's mark, from the moment of the answer. Pure.
"""

from typing import Final

BYTES_MAX: Final = 256 << 20
ROOM_SHARE: Final = 0.75
"""Of the bound; beyond, who takes next to nothing is in the way of others."""
GIVEN_SHARE: Final = 4
"""One fetch is given one in so many parts of the room."""
GIVEN_BYTES_MIN: Final = 64 << 10


class UntakenAnswers:
    """By connection."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.total = 0
        self._sizes: dict[int, int] = {}
        self._waiting: dict[int, None] = {}
        """Connections whose next fetch does not begin, the first that came first."""

    @property
    def excess(self) -> int:
        """How much more it is than leaves room for others."""
        return self.total - int(self.bytes_max * ROOM_SHARE)

    @property
    def is_waited_for(self) -> bool:
        """The next fetch of somebody does not begin."""
        return bool(self._waiting)

    def made(self, number: int, size: int) -> None:
        """The connection has an answer more."""
        self._sizes[number] = self._sizes.get(number, 0) + size
        self.total += size

    def left(self, number: int, size: int = 0) -> list[int]:
        """So much is left of what the connection had. The connections whose fetches may begin now."""
        before = self._sizes.pop(number, 0)
        if size:
            self._sizes[number] = size
        self.total += size - before
        assert self.total >= 0
        return self._let_in() if self._waiting else []

    def forget(self, number: int) -> list[int]:
        """As `left`: the connection is gone."""
        self._waiting.pop(number, None)
        return self.left(number)

    def admits(self, number: int) -> bool:
        """Whether a fetch of the connection may begin; else it is among those that `left` names."""
        if self.total < self.bytes_max:
            self._waiting.pop(number, None)
            return True
        self._waiting[number] = None
        return False

    def allowance(self, wanted: int) -> int:
        """How much of that the next answer may have, besides its first batch."""
        room = (self.bytes_max - self.total) // GIVEN_SHARE
        return min(wanted, max(room, GIVEN_BYTES_MIN))

    def _let_in(self) -> list[int]:
        if self.total > self.bytes_max * ROOM_SHARE:
            return []
        waiting, self._waiting = self._waiting, {}
        return list(waiting)
