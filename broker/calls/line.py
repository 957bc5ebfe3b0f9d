"""Who waits, drawn round robin: by owner (`broker.calls.shares`), and then by connection. Pure.

So what one client waits for, over however many connections, keeps nobody else waiting for longer
than one of its things.
"""

from collections import OrderedDict, deque
from typing import Generic, TypeVar

from broker.calls.shares import Owner

T = TypeVar("T")


class Line(Generic[T]):
    """Waiters of all connections; those of one connection keep their order."""

    def __init__(self) -> None:
        # A dict would walk over what was taken from its front, each time.
        self._owners: OrderedDict[Owner, OrderedDict[int, deque[T]]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._owners)

    def put(self, owner: Owner, connection: int, waiter: T) -> None:
        """An owner that has nobody in the line comes behind all others, and so does a connection
        among those of its owner."""
        connections = self._owners.get(owner)
        if connections is None:
            connections = self._owners[owner] = OrderedDict()
        connections.setdefault(connection, deque()).append(waiter)

    def take(self) -> T:
        """The next one; its connection and its owner go to the end."""
        owner, connections = self._owners.popitem(last=False)
        number, waiters = connections.popitem(last=False)
        waiter = waiters.popleft()
        if waiters:
            connections[number] = waiters
        if connections:
            self._owners[owner] = connections
        return waiter

    def drop(self, owner: Owner, connection: int) -> None:
        """Forget the waiters of a connection, if it has any."""
        connections = self._owners.get(owner)
        if connections is not None and connection in connections:
            del connections[connection]
            if not connections:
                del self._owners[owner]
