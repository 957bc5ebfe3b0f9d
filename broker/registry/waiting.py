"""Who waits for what, by client: each client in turn. Pure.

Whoever asks for much waits for itself. When all places are taken, the client that has most of them
gives up the one it took last, so that one with few always finds a place.
"""

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items of clients, taken round robin."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._by_client: dict[str, deque[T]] = {}
        """In the order of their turns."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, client: str, item: T) -> T | None:
        """Returns what has to go for it; it may be the item itself."""
        self._by_client.setdefault(client, deque()).append(item)
        self._count += 1
        if self._count <= self._places:
            return None
        # Of equals the newcomer: nobody loses a place to another who has as many.
        most = max(self._by_client, key=lambda each: (len(self._by_client[each]), each == client))
        self._count -= 1
        waiting = self._by_client[most]
        gone = waiting.pop()
        if not waiting:
            del self._by_client[most]
        return gone

    def take(self) -> T:
        """The next. Raises LookupError when nobody waits."""
        client = next(iter(self._by_client), None)
        if client is None:
            raise LookupError("nobody waits")
        waiting = self._by_client.pop(client)
        item = waiting.popleft()
        self._count -= 1
        if waiting:
            self._by_client[client] = waiting  # Behind all others.
        return item
