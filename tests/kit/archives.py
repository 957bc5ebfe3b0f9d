"""The log as the object store has it: archives, and the machine that follows from them."""

from collections.abc import Iterable, Mapping

from coordinator.commands.codec import decode_entry
from coordinator.machine.machine import Machine
from coordinator.snapshot.snapshot import restore
from coordinator.snapshot.store import SnapshotStore
from protocol.types import Position
from storage.formats.cluster_identity import ClusterIdentity
from storage.formats.log_archive import LogArchive, archive_key, decode_archive, range_of
from storage.stores.memory import MemoryStore


def archives_in(objects: Mapping[str, bytes]) -> list[LogArchive]:
    """All of them, in the order of where they begin."""
    found = []
    for key in sorted(objects):
        if key.startswith("archive/0"):  # And not what somebody else put there.
            archive = decode_archive(objects[key])
            assert range_of(key) == (archive.after, archive.last)
            assert key == archive_key(archive.after, archive.last)
            found.append(archive)
    return found


def reached(objects: Iterable[str], after: Position) -> tuple[Position, Position]:
    """How far archives of these keys lead on from `after` without a hole; and how far any of them does."""
    ranges = sorted([range_of(key) for key in objects if key.startswith("archive/")])
    for begin, last in ranges:
        if begin <= after:
            after = max(after, last)
    return after, max([after, *[last for _, last in ranges]])


def replay(machine: Machine, archives: Iterable[LogArchive]) -> Position:
    """Go on from where the machine is as far as archives lead without a hole; where that is."""
    for archive in sorted(archives, key=lambda each: each.after):
        if archive.after > machine.position:
            break
        for entry in archive.entries:
            if entry.position <= machine.position:
                continue
            if entry.voided:
                machine.void(entry.position, session=entry.session, n=entry.n)
            else:
                machine.apply(entry.position, decode_entry(entry.payload))
            if entry.position == archive.last:
                assert machine.digest() == archive.digest, f"another machine at {archive.last:#x}"
    return machine.position


async def recovered(store: MemoryStore, machine: Machine, *, cluster_id: str) -> Machine:
    """Made of what the store has, of the newest snapshot that `machine` knows and the archives."""
    made = Machine()
    if published := machine.snapshots.published:
        snapshots = SnapshotStore(store, ClusterIdentity(cluster_id, 1))
        restore(made, await snapshots.read(published[0].key))
    replay(made, archives_in(store._objects))
    return made
