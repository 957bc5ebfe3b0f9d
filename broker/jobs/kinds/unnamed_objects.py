"""Counts the objects in the store that no entry of the log names.

Some are always there: what agents put and did not commit before they were killed or gave it up. They
are orphans once they are older than every live agent, and the collection deletes those. Should the
log turn out to be older than the store (`broker.store.truncation`), they are records that were
acknowledged: so they can be counted and listed before.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final, NamedTuple

from broker.jobs.kinds import collection_plan
from coordinator.machine.machine import Machine
from storage.formats import log_checkpoint
from storage.formats.log_checkpoint import LogCheckpoint
from storage.stores.object_store import ObjectInfo, ObjectStore

EXAMPLES_MAX: Final = 20


class UnnamedObjects(NamedTuple):
    """All of a store, as of the machine's position."""

    objects: int
    bytes: int
    orphans: int
    """Those of them that the collection may delete."""
    kept: int
    """Those of them that it never does: what an era that is over has lost (`broker.recovery`)."""
    examples: tuple[ObjectInfo, ...]
    """The first in the order of keys."""

    def view(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "unnamed": self.objects,
            "bytes": self.bytes,
            "orphans": self.orphans,
            "kept": self.kept,
            "examples": [
                {"key": each.key, "bytes": each.length, "modified_ms": each.modified_ms}
                for each in self.examples
            ],
        }


NOTHING: Final = UnnamedObjects(0, 0, 0, 0, ())


async def count(store: ObjectStore, machine: Machine) -> UnnamedObjects:
    """List the whole store. Raises StoreError."""
    begun_ms = collection_plan.begun_ms(machine, await checkpoints(store))
    found = NOTHING
    for prefix in collection_plan.PREFIXES:
        async for page in pages(store, prefix):
            found = found_in(found, machine, page, begun_ms=begun_ms)
    return found


def found_in(
    found: UnnamedObjects, machine: Machine, page: Sequence[ObjectInfo], *, begun_ms: int | None
) -> UnnamedObjects:
    """With those of the next page of a listing; `begun_ms` as in `collection_plan.orphans`."""
    unnamed = list(collection_plan.unnamed(machine, page))
    infos = [each.info for each in unnamed]
    past = [collection_plan.is_of_past_era(machine, each.object_id) for each in unnamed]
    orphans = list(collection_plan.orphans(machine, page, begun_ms=begun_ms))
    return UnnamedObjects(
        found.objects + len(infos),
        found.bytes + sum(info.length for info in infos),
        found.orphans + len(orphans),
        found.kept + sum(past),
        (*found.examples, *infos)[:EXAMPLES_MAX],
    )


async def checkpoints(store: ObjectStore) -> dict[LogCheckpoint, int]:
    """All checkpoints, and when the store took each in. Raises StoreError."""
    found: dict[LogCheckpoint, int] = {}
    async for page in pages(store, log_checkpoint.FOLDER):
        found |= log_checkpoint.found_in(page)
    return found


async def pages(store: ObjectStore, prefix: str) -> AsyncGenerator[Sequence[ObjectInfo], None]:
    """All objects under the prefix. Raises StoreError."""
    after = ""
    while page := await store.list_after(prefix, after):
        yield page
        after = page[-1].key
