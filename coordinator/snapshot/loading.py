"""Loads a published snapshot into an empty machine when an agent starts (P14).

The newest snapshot that can be used is taken: one that is missing, damaged or of another version
is passed over, with a warning, for the older one. A log or a store that is away is waited for
(P16): that they are away says nothing about a snapshot.

Left out: what comes after the snapshot (`replica`).
"""

import asyncio
import contextlib
import gc
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, Protocol, TypeVar

from coordinator.log.metadata_log import LogRefusedError, LogUnavailableError
from coordinator.machine.machine import Machine
from coordinator.snapshot.manifest import LoadableSnapshot, decode_published
from coordinator.snapshot.snapshot import restoring
from coordinator.snapshot.store import run_steps
from coordinator.snapshot.stream import SnapshotError, SnapshotMissingError, head_of_all
from coordinator.stats import LogClientStats
from protocol.types import Buffer
from storage.stores.object_store import StoreError, StoreUnavailableError
from storage.stores.retry import until_done
from storage.stores.retry_policy import NO_LIMIT, RetryPolicy

T = TypeVar("T")

logger = logging.getLogger(__name__)

RETRY: Final = RetryPolicy(attempt_s_max=NO_LIMIT)
"""A snapshot takes as long as it takes; `SnapshotStore` bounds the calls that it is read by."""


class SnapshotSource(Protocol):
    """Where snapshots are read from; `SnapshotStore` is one."""

    async def read(self, key: str) -> list[Buffer]:
        """The parts of a snapshot. Raises SnapshotError and StoreError."""
        ...


class PublishedSnapshots(Protocol):
    """What says which snapshots there are; a log is one."""

    async def snapshots(self) -> bytes:
        """As `MetadataLog.snapshots`."""
        ...


class Loader:
    """Loads snapshots into one machine."""

    def __init__(
        self,
        log: PublishedSnapshots,
        source: SnapshotSource,
        machine: Machine,
        stats: LogClientStats,
    ) -> None:
        self._log = log
        self._source = source
        self._machine = machine
        self._stats = stats
        self.failures: list[str] = []
        """Why the snapshots that were published could not be used, of the newest attempt."""
        self.missing: list[str] = []
        """Keys of objects of theirs that were not found."""

    async def load(self) -> bool:
        """Whether the machine is that of a snapshot now; else it is as it was, or empty."""
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        self.failures = []
        self.missing = []
        try:
            published = decode_published(await until_answered(self._log.snapshots))
        except SnapshotError as error:
            self._failed("the list of snapshots", error)
            return False
        for named in published:
            try:
                await self._restore(named)
            except SnapshotError as error:
                self._failed(named.key, error)
                if isinstance(error, SnapshotMissingError):
                    self.missing.append(error.key)
                continue
            self._stats.snapshot_position = named.position
            self._stats.snapshot_seconds = loop.time() - started_s
            logger.info(
                "loaded the snapshot at position %d in %.1f s",
                named.position,
                self._stats.snapshot_seconds,
            )
            return True
        return False

    async def _restore(self, named: LoadableSnapshot) -> None:
        parts = await until_answered(lambda: self._source.read(named.key))
        head = head_of_all(parts)
        if (head.position, head.digest) != (named.position, named.digest):
            raise SnapshotError(
                f"it is of position {head.position}, digest {head.digest.hex()}, and not"
                f" {named.position}, {named.digest.hex()} as the log says"
            )
        self._stats.snapshot_bytes = sum(map(len, parts))
        with _without_collector():
            await run_steps(restoring(self._machine, parts))

    def _failed(self, what: str, error: SnapshotError) -> None:
        logger.error("%s cannot be used: %s", what, error)
        self.failures.append(f"{what}: {error}")


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Rows that are made stay; walking all of them again and again would hold up the loop."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


async def until_answered(call: Callable[[], Awaitable[T]]) -> T:
    """Repeats a call on the log or the store until it succeeds, however long they are away or refuse."""
    passing = (LogUnavailableError, LogRefusedError, StoreError)
    return await until_done(call, RETRY, tell=_tell, passing=passing)


def _tell(error: Exception, _failures: int) -> None:
    away = isinstance(error, LogUnavailableError | StoreUnavailableError)
    logger.log(logging.INFO if away else logging.WARNING, "waiting, to load a snapshot: %s", error)
