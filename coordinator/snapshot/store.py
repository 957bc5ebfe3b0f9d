"""Snapshots in the object store: written and read back, and found again by their key.

A snapshot counts as written when it was read back from the store, made a machine, and that machine
dumped again gave the same bytes (P14). The manifest is put last and names every part with length
and digest, so a part that is missing, damaged or another snapshot's is noticed on reading.

Left out: which snapshots there are (`MetadataLog.snapshots`) and when old ones are deleted.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import closing
from typing import Final, TypeVar

from coordinator.machine.machine import Machine
from coordinator.snapshot.keeping import SnapshotPin
from coordinator.snapshot.manifest import (
    Manifest,
    decode_manifest,
    digesting,
    encode_manifest,
    manifest_key,
    part_key,
    position_of,
)
from coordinator.snapshot.snapshot import is_dump_of, restoring, time_ms_of
from coordinator.snapshot.stream import (
    PartHeader,
    SnapshotError,
    SnapshotMissingError,
    head_of_all,
)
from protocol.types import Buffer, era_of
from storage.formats import cluster_identity
from storage.formats.cluster_identity import ClusterIdentity
from storage.stores.object_store import ObjectNotFoundError, ObjectStore
from storage.stores.retry import until_done
from storage.stores.retry_policy import RetryPolicy

T = TypeVar("T")

logger = logging.getLogger(__name__)

RETRY: Final = RetryPolicy(first_s=0.5, attempts_max=5)
"""For some seconds only: whoever writes or reads a snapshot begins again."""
READS_AT_ONCE: Final = 4
STEP_S: Final = 0.01
"""Longest time that work on a snapshot keeps the loop before others may run."""


class SnapshotStore:
    """Snapshots of one cluster in its object store."""

    def __init__(
        self,
        store: ObjectStore,
        identity: ClusterIdentity,
        *,
        pace: Callable[[int], Awaitable[None]] | None = None,
        admit: Callable[[str, int], None] | None = None,
    ) -> None:
        """`pace` is awaited with the bytes of what is put or read next. `admit` is called before the parts of
        a snapshot are read, with its key and their bytes together, and may raise what keeps them unread."""
        self._store = store
        self._identity = identity
        self._pace = pace
        self._admit = admit

    async def write(self, parts: Sequence[bytes], pins: Sequence[SnapshotPin] = ()) -> str:
        """Put a dumped machine into the store and verify it; the key of its manifest.

        `pins`: those of the machine that keep snapshots. May be repeated. Raises SnapshotError when what was read back is not what was written,
        and StoreError: a store that is away is asked a few times only.
        """
        head = head_of_all(parts)
        await self._write(head, parts, pins)
        found = await self.read(manifest_key(head.position))
        machine = Machine()
        await run_steps(restoring(machine, found))
        if not is_dump_of(machine, parts):
            raise SnapshotError(
                f"the snapshot at position {head.position} makes another machine than it was"
            )
        return manifest_key(head.position)

    async def _write(
        self, head: PartHeader, parts: Sequence[bytes], pins: Sequence[SnapshotPin]
    ) -> None:
        infos = []
        for number, part in enumerate(parts):
            infos.append(await run_steps(digesting(part)))
            await self._put(part_key(head.position, number), part)
        manifest = Manifest(
            cluster_id=self._identity.cluster_id,
            era=era_of(head.position),
            position=head.position,
            digest=head.digest,
            time_ms=time_ms_of(parts),
            parts=tuple(infos),
            pins=tuple(pins),
        )
        await self._put(manifest_key(head.position), encode_manifest(manifest))

    async def read(self, key: str) -> list[Buffer]:
        """The parts of the snapshot whose manifest is `key`, each compared with the manifest.

        Raises SnapshotError when it is not there, not whole or not this cluster's, and StoreError
        when the store is away or refuses.
        """
        manifest = await self._read_manifest(key)
        if self._admit is not None:
            self._admit(key, sum([part.length for part in manifest.parts]))
        parts: list[Buffer] = []
        for first in range(0, len(manifest.parts), READS_AT_ONCE):
            numbers = range(first, min(first + READS_AT_ONCE, len(manifest.parts)))
            parts += await asyncio.gather(
                *[self._read_part(manifest, number) for number in numbers]
            )
        head = head_of_all(parts)
        if (head.position, head.digest) != (manifest.position, manifest.digest):
            raise SnapshotError(f"the parts of {key} are of position {head.position}")
        return parts

    async def hidden(self, key: str) -> str | None:
        """Why an object that is not found need not be gone; None: it is. Raises StoreError.

        A proxy may say "not found" of what is there, for ever or for a while.
        """
        folder, _, _ = key.rpartition("/")
        rows = await until_done(lambda: self._store.list_after(f"{folder}/", ""), RETRY, tell=_tell)
        if any(row.key == key for row in rows):
            return f"{key} is listed and not found"
        try:
            await until_done(lambda: self._store.get(cluster_identity.KEY), RETRY, tell=_tell)
        except ObjectNotFoundError:
            return f"{key} is not found, nor is {cluster_identity.KEY}"
        return None

    async def _read_manifest(self, key: str) -> Manifest:
        manifest = decode_manifest(await self._get(key))
        if manifest.cluster_id != self._identity.cluster_id:
            raise SnapshotError(f"{key} is a snapshot of the cluster {manifest.cluster_id!r}")
        if manifest.position != position_of(key):
            raise SnapshotError(f"{key} is the manifest of position {manifest.position}")
        return manifest

    async def _read_part(self, manifest: Manifest, number: int) -> Buffer:
        key = part_key(manifest.position, number)
        part = await self._get(key, manifest.parts[number].length)
        if await run_steps(digesting(part)) != manifest.parts[number]:
            raise SnapshotError(f"{key} is not what the manifest says: {len(part)} bytes")
        return part

    async def _put(self, key: str, data: bytes) -> None:
        await self._paced(len(data))
        await until_done(
            lambda: self._store.put_new(key, [data]), RETRY, byte_count=len(data), tell=_tell
        )

    async def _get(self, key: str, length: int = 0) -> Buffer:
        await self._paced(length)
        try:
            return await until_done(
                lambda: self._store.get(key), RETRY, byte_count=length, tell=_tell
            )
        except ObjectNotFoundError as error:
            raise SnapshotMissingError(key) from error

    async def _paced(self, length: int) -> None:
        if self._pace is not None and length:
            await self._pace(length)


async def run_steps(steps: Generator[None, None, T]) -> T:
    """Runs all the steps, lets others run between them, and returns the result."""
    loop = asyncio.get_running_loop()
    turn_s = loop.time()
    # Whoever gives up in the middle closes them, so that they can tidy up.
    with closing(steps):
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            if loop.time() - turn_s > STEP_S:
                await asyncio.sleep(0)
                turn_s = loop.time()


def _tell(error: Exception, failures: int) -> None:
    logger.info("the store is away, attempt %d: %s", failures, error)
