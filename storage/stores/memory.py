"""An object store in a dict, stricter than any real one.

It refuses what some real store would refuse (an object beside a folder of the same name), and it
looks whether the parts of a PUT changed while it was under way. Every call gives way to the loop
before and after its effect, so that callers cannot count on being alone. Faults are not its
business: the simulator wraps it. But it can be told to keep objects, as a store with holds does.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from protocol.types import Buffer
from storage.stores.adapter_rules import (
    PAGE_OBJECTS_MAX,
    check_key,
    check_prefix,
    check_range,
    range_refused,
)
from storage.stores.object_store import (
    DeleteRefusal,
    ObjectExistsError,
    ObjectInfo,
    ObjectNotFoundError,
    StoreRefusedError,
)


def _no_clock() -> int:
    return 0


def _check_same(key: str, present: bytes, submitted: bytes) -> None:
    if present != submitted:
        raise ObjectExistsError(f"{key} exists with other bytes")


def _folders(key: str) -> Iterator[str]:
    """That the key lies in, the innermost first."""
    while "/" in key:
        key = key.rpartition("/")[0]
        yield key


class MemoryStore:
    """An `ObjectStore` that lasts as long as the object; several agents may share it."""

    def __init__(self, now_ms: Callable[[], int] = _no_clock) -> None:
        self._now_ms = now_ms
        self._objects: dict[str, bytes] = {}
        self._modified_ms: dict[str, int] = {}
        self._below: Counter[str] = Counter()
        """Objects below each folder, at any depth; asked at each PUT, of a store with thousands."""
        self.kept: dict[str, str] = {}
        """Beginnings of keys that cannot be deleted, with the reason."""

    async def put_new(self, key: str, parts: Sequence[Buffer]) -> None:
        check_key(key)
        submitted = b"".join(parts)
        await asyncio.sleep(0)
        assert b"".join(parts) == submitted, f"the parts of {key} changed during the PUT"
        present = self._place(key, submitted)
        await asyncio.sleep(0)
        _check_same(key, present, submitted)

    def put_now(self, key: str, parts: Sequence[Buffer]) -> None:
        check_key(key)
        submitted = b"".join(parts)
        _check_same(key, self._place(key, submitted), submitted)

    def _place(self, key: str, submitted: bytes) -> bytes:
        """What lies under the key now."""
        if (present := self._objects.get(key)) is not None:
            return present
        self._check_folders(key)
        self._objects[key] = submitted
        self._below.update(_folders(key))
        self._modified_ms[key] = self._now_ms()
        return submitted

    def _check_folders(self, key: str) -> None:
        for folder in _folders(key):
            if folder in self._objects:
                raise StoreRefusedError(f"{key} cannot exist beside the object {folder}")
        if self._below[key]:
            raise StoreRefusedError(f"{key} cannot exist beside objects below it")

    async def get(self, key: str) -> Buffer:
        check_key(key)
        await asyncio.sleep(0)
        data = self._objects.get(key)
        await asyncio.sleep(0)
        if data is None:
            raise ObjectNotFoundError(key)
        return data

    async def get_range(self, key: str, start: int, length: int) -> Buffer:
        check_range(key, start, length)
        data = await self.get(key)
        if start + length > len(data):
            raise range_refused(key, start, length, found=len(data) - start)
        return memoryview(data)[start : start + length]

    async def list_after(self, prefix: str, start_after: str) -> Sequence[ObjectInfo]:
        check_prefix(prefix)
        await asyncio.sleep(0)
        keys = sorted(key for key in self._objects if key.startswith(prefix) and key > start_after)
        page = [
            ObjectInfo(key, len(self._objects[key]), self._modified_ms[key])
            for key in keys[:PAGE_OBJECTS_MAX]
        ]
        await asyncio.sleep(0)
        return page

    async def delete(self, keys: Sequence[str]) -> Sequence[DeleteRefusal]:
        for key in keys:
            check_key(key)
        await asyncio.sleep(0)
        refused = []
        for key in dict.fromkeys(keys):
            reason = next((why for prefix, why in self.kept.items() if key.startswith(prefix)), "")
            if reason:
                refused.append(DeleteRefusal(key, reason))
                continue
            if self._objects.pop(key, None) is not None:
                self._below.subtract(_folders(key))
            self._modified_ms.pop(key, None)
        await asyncio.sleep(0)
        return refused

    async def aclose(self) -> None:
        """Nothing to release; the objects stay for others that share this store."""
