"""The snapshots of a store, without a log: what counts, and in which order."""

import pytest

from coordinator.machine.machine import Machine
from coordinator.snapshot.listing import stored_snapshots
from coordinator.snapshot.manifest import manifest_key, part_key
from coordinator.snapshot.snapshot import dump
from coordinator.snapshot.store import SnapshotStore
from protocol.types import Position
from storage.formats.cluster_identity import ClusterIdentity
from storage.stores.memory import MemoryStore
from storage.stores.object_store import ObjectNotFoundError
from tests.coordinator.histories import history
from tests.kit.faults import FaultyStore

IDENTITY = ClusterIdentity("frazil-test", 1)


def machine_of(seed: int) -> Machine:
    return history(seed, steps=50 + seed).machine


async def written(*seeds: int) -> tuple[MemoryStore, list[Machine]]:
    """A store with a snapshot of each history; the machines, newest first."""
    store = MemoryStore(lambda: 7)
    machines = [machine_of(seed) for seed in seeds]
    for machine in machines:
        await SnapshotStore(store, IDENTITY).write(dump(machine))
    return store, sorted(machines, key=lambda each: each.position, reverse=True)


async def test_all_snapshots_are_listed_the_newest_first() -> None:
    store, machines = await written(1, 2, 3, 4, 5, 6)
    found = await stored_snapshots(store)
    assert [each.position for each in found] == [each.position for each in machines]
    for snapshot, machine in zip(found, machines, strict=True):
        assert snapshot.key == manifest_key(machine.position)
        assert snapshot.manifest is not None
        assert snapshot.manifest.time_ms == machine.time_ms
        assert snapshot.modified_ms == 7
        parts = sum(part.length for part in snapshot.manifest.parts)
        assert snapshot.bytes == parts + len(await store.get(snapshot.key))


async def test_what_has_no_manifest_and_what_is_no_snapshot_does_not_count() -> None:
    store, (machine,) = await written(1)
    await store.put_new(part_key(Position(machine.position + 1), 0), [b"half of one"])
    await store.put_new("snapshots/read.me", [b"of somebody else"])
    assert [each.position for each in await stored_snapshots(store)] == [machine.position]


async def test_a_manifest_that_cannot_be_read_is_listed_with_the_reason() -> None:
    store, (machine,) = await written(1)
    other = Position(machine.position - 1)
    await store.put_new(manifest_key(other), [b"scratched"])
    moved = Position(machine.position - 2)
    await store.put_new(manifest_key(moved), [await store.get(manifest_key(machine.position))])
    _, scratched, misplaced = await stored_snapshots(store)
    assert (scratched.position, scratched.manifest) == (other, None)
    assert "is not JSON" in scratched.trouble
    assert misplaced.trouble == f"it is the manifest of position {machine.position}"


async def test_a_snapshot_that_goes_while_it_is_listed_is_left_out() -> None:
    store, (_, older) = await written(1, 2)
    faulty = FaultyStore(store)

    async def gone(key: str, *_: object) -> None:
        if key == manifest_key(older.position):
            raise ObjectNotFoundError(key)

    faulty.before["get"] = gone
    assert len(await stored_snapshots(faulty)) == 1


@pytest.mark.parametrize("count", [0, 1])
async def test_a_store_without_snapshots_has_none(count: int) -> None:
    store = MemoryStore()
    for number in range(count):
        await store.put_new(f"chunks/{number:016x}/00000000", [b"x"])
    assert await stored_snapshots(store) == []
