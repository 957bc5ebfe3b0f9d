"""The archives of a log that a store has: which there are, and what is in each.

One that cannot be used is told once, and is none of them from then on. Left out: in which order they are applied
(`histories`).
"""

import logging
from typing import Final, Self

from broker.recovery.archive_chain import ArchiveRange
from coordinator.snapshot.listing import pages
from storage.formats import log_archive
from storage.formats.log_archive import ArchiveFormatError, LogArchive, decode_archive
from storage.stores.object_store import ObjectNotFoundError, ObjectStore
from storage.stores.retry import until_done
from storage.stores.retry_policy import RetryPolicy

logger = logging.getLogger(__name__)

RETRY: Final = RetryPolicy(first_s=0.5, attempts_max=5)


class Archives:
    """Those of one cluster."""

    def __init__(self, store: ObjectStore, cluster_id: str) -> None:
        self._store = store
        self._cluster_id = cluster_id
        self._unusable: set[ArchiveRange] = set()
        self.ranges: list[ArchiveRange] = []
        """Of all that may be used."""
        self.troubles: list[str] = []
        """A sentence for each that cannot be used."""

    async def look(self) -> Self:
        """See which there are. What has another key is somebody else's. Raises StoreError."""
        self.ranges = []
        async for page in pages(self._store, f"{log_archive.FOLDER}/"):
            for info in page:
                try:
                    self.ranges.append(ArchiveRange(*log_archive.range_of(info.key)))
                except ValueError:
                    continue
        self.ranges = [each for each in self.ranges if each not in self._unusable]
        return self

    async def read(self, link: ArchiveRange) -> LogArchive | None:
        """None: it cannot be used, or is not there any more; then `ranges` are other ones. Raises StoreError."""
        try:
            return await self._read(link)
        except ObjectNotFoundError as error:
            # Agents may be running: small ones go when they are part of a large one.
            await self.look()
            if link in self.ranges:
                self._drop(link, error)
        except ArchiveFormatError as error:
            self._drop(link, error)
        return None

    def _drop(self, link: ArchiveRange, error: Exception) -> None:
        self.troubles.append(f"{link.key} cannot be used: {error}")
        self._unusable.add(link)
        self.ranges.remove(link)

    async def read_beside(self, link: ArchiveRange) -> LogArchive | None:
        """As `read`, of one that is not needed: it may have been deleted, and nothing is told. Raises StoreError."""
        try:
            return await self._read(link)
        except (ArchiveFormatError, ObjectNotFoundError):
            return None

    async def _read(self, link: ArchiveRange) -> LogArchive:
        data = await until_done(lambda: self._store.get(link.key), RETRY, tell=store_is_away)
        archive = decode_archive(data)
        if archive.cluster_id != self._cluster_id or (archive.after, archive.last) != link:
            raise ArchiveFormatError(
                f"it is an archive of {archive.cluster_id!r}, or of other positions"
            )
        return archive


def store_is_away(error: Exception, failures: int) -> None:
    """For `until_done`."""
    logger.info("the store is away, attempt %d: %s", failures, error)
