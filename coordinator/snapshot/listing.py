"""The snapshots that lie in a store, as far as their manifests tell: without a log, and without an agent.

A snapshot counts when its manifest is there: that is put last. One whose manifest cannot be read is listed with
the reason. Left out: whether parts are whole (`store`), and what the machines in them point at.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Final

from coordinator.snapshot.manifest import FOLDER, StoredSnapshot, decode_manifest, position_of
from coordinator.snapshot.store import READS_AT_ONCE, RETRY
from coordinator.snapshot.stream import SnapshotError
from protocol.types import Position
from storage.stores.object_store import ObjectInfo, ObjectNotFoundError, ObjectStore
from storage.stores.retry import until_done

__all__ = ["StoredSnapshot", "pages", "stored_snapshots"]

logger = logging.getLogger(__name__)

_MANIFEST: Final = "/manifest"
"""What its key ends in."""


async def stored_snapshots(store: ObjectStore) -> list[StoredSnapshot]:
    """All snapshots in the store, newest first, of whatever cluster and era. Raises StoreError."""
    found: dict[Position, list[ObjectInfo]] = {}
    async for page in pages(store, f"{FOLDER}/"):
        for info in page:
            try:
                position = position_of(info.key)
            except ValueError:
                continue
            found.setdefault(position, []).append(info)
    wanted = [
        (position, info, sum([each.length for each in infos]))
        for position, infos in sorted(found.items(), reverse=True)
        for info in infos
        if info.key.endswith(_MANIFEST)
    ]
    snapshots: list[StoredSnapshot | None] = []
    for first in range(0, len(wanted), READS_AT_ONCE):
        some = wanted[first : first + READS_AT_ONCE]
        snapshots += await asyncio.gather(*[_stored(store, *each) for each in some])
    return [each for each in snapshots if each is not None]


async def _stored(
    store: ObjectStore, position: Position, info: ObjectInfo, length: int
) -> StoredSnapshot | None:
    """None: it was deleted meanwhile."""
    snapshot = partial(StoredSnapshot, position, info.key, length, info.modified_ms)
    try:
        manifest = decode_manifest(await until_done(lambda: store.get(info.key), RETRY, tell=_tell))
    except ObjectNotFoundError:
        return None
    except SnapshotError as error:
        return snapshot(None, str(error))
    if manifest.position != position:
        return snapshot(None, f"it is the manifest of position {manifest.position}")
    return snapshot(manifest)


async def pages(
    store: ObjectStore, prefix: str, *, after: str = ""
) -> AsyncIterator[Sequence[ObjectInfo]]:
    """All objects under the prefix behind a key, in the order of their keys. Raises StoreError."""
    while page := await until_done(partial(store.list_after, prefix, after), RETRY, tell=_tell):
        yield page
        after = page[-1].key


def _tell(error: Exception, failures: int) -> None:
    logger.info("the store is away, attempt %d: %s", failures, error)
