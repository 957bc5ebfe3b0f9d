"""What is asked of an object store, counted by cause: stores charge by the request.

A call is counted when it is made, bytes when it has succeeded; one that is repeated is charged again.
A store of one cause looks like the store itself, so whoever uses it need not know. Hot paths count
themselves (`storage.writer`, `storage.reader`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from protocol.types import Buffer
from storage.stores.object_store import DeleteRefusal, ObjectInfo, ObjectStore


@dataclass(slots=True)
class StoreCalls:
    """Of one cause."""

    puts: int = 0
    gets: int = 0
    """Whole objects, and ranges."""
    lists: int = 0
    """Pages."""
    deletes: int = 0
    """Calls, of many keys each."""
    bytes_written: int = 0
    bytes_read: int = 0


class CountedStore:
    """An `ObjectStore` that counts into `calls`."""

    def __init__(self, store: ObjectStore, calls: StoreCalls) -> None:
        self._store = store
        self._calls = calls

    async def put_new(self, key: str, parts: Sequence[Buffer]) -> None:
        self._calls.puts += 1
        await self._store.put_new(key, parts)
        self._calls.bytes_written += sum([memoryview(part).nbytes for part in parts])

    async def get(self, key: str) -> Buffer:
        self._calls.gets += 1
        data = await self._store.get(key)
        self._calls.bytes_read += len(data)
        return data

    async def get_range(self, key: str, start: int, length: int) -> Buffer:
        self._calls.gets += 1
        data = await self._store.get_range(key, start, length)
        self._calls.bytes_read += len(data)
        return data

    async def list_after(self, prefix: str, start_after: str) -> Sequence[ObjectInfo]:
        self._calls.lists += 1
        return await self._store.list_after(prefix, start_after)

    async def delete(self, keys: Sequence[str]) -> Sequence[DeleteRefusal]:
        self._calls.deletes += 1
        return await self._store.delete(keys)

    async def aclose(self) -> None:
        await self._store.aclose()


class StoreUse:
    """What one process asks of its store beside records, by cause."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.calls: dict[str, StoreCalls] = {}

    def by(self, cause: str) -> ObjectStore:
        """The store; what is asked of it counts for that cause."""
        return CountedStore(self._store, self.calls.setdefault(cause, StoreCalls()))
