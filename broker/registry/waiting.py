"""Who waits for what, by client: each client in turn, of a client's what is cheapest first. Pure.

Whoever asks for much waits for itself; and where many share an address, for no more than what is as
cheap. When all places are taken, the client that has most of them gives up the dearest (of equals the
last), so that one with few always finds a place.
"""

from bisect import insort
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class _Place(NamedTuple, Generic[T]):
    cost: int
    number: int
    """In the order of coming."""
    item: T


class FairQueue(Generic[T]):
    """Items of clients, taken round robin."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._by_client: dict[str, list[_Place[T]]] = {}
        """In the order of their turns; each ascending."""
        self._count = 0
        self._number = 0

    def __len__(self) -> int:
        return self._count

    def put(self, client: str, item: T, cost: int = 0) -> T | None:
        """Returns what has to go for it; it may be the item itself."""
        self._number += 1
        # Numbers differ, so items are never compared.
        insort(self._by_client.setdefault(client, []), _Place(cost, self._number, item))
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
        return gone.item

    def take(self) -> T:
        """The next. Raises LookupError when nobody waits."""
        client = next(iter(self._by_client), None)
        if client is None:
            raise LookupError("nobody waits")
        waiting = self._by_client.pop(client)
        place = waiting.pop(0)
        self._count -= 1
        if waiting:
            self._by_client[client] = waiting  # Behind all others.
        return place.item
