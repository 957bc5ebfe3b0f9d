"""Whether snapshots in a store are whole, and all that they point at is there: by the store alone.

A snapshot is read as an agent reads it, made a machine, and that machine dumped again must give the same bytes.
Which objects there are is found out by listing folders: what many snapshots point at is looked for once.

Left out: whether bytes of the objects are what was written (they carry checksums, which readers compare).
"""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple

from coordinator.machine.machine import Machine
from coordinator.snapshot.listing import StoredSnapshot, pages
from coordinator.snapshot.snapshot import is_dump_of, restoring
from coordinator.snapshot.store import SnapshotStore, run_steps
from coordinator.snapshot.stream import SnapshotError
from protocol.types import ERA, Incarnation, era_of
from storage.formats.cluster_identity import ClusterIdentity
from storage.formats.spans import ObjectId, ObjectKind
from storage.stores.object_store import ObjectStore

Tell = Callable[[str], None]


class Verdict(NamedTuple):
    """What was found about a snapshot."""

    snapshot: StoredSnapshot
    objects: int
    """That it points at."""
    bytes: int
    """Of those."""
    damage: str
    """Why it is no machine; "": it is whole."""
    faults: tuple[str, ...]
    """Of objects that it points at, a clause each, in the order of their keys."""

    @property
    def is_good(self) -> bool:
        return not self.damage and not self.faults


class _Pointed(NamedTuple):
    """An object, and which of the snapshots point at it: one of them and all that follow up to another.

    (An object that nothing points at any more is never pointed at again in its era.)
    """

    length: int
    first: int
    last: int


class _Objects:
    """All that the snapshots of an era point at, and was not found yet."""

    def __init__(self) -> None:
        self.writers: dict[tuple[Incarnation, ObjectKind], dict[int, _Pointed]] = {}

    def add(self, machine: Machine, index: int) -> tuple[int, int]:
        """What the snapshot of this index points at: how many, and their bytes."""
        objects = total = 0
        for (incarnation, number, kind), length in machine.objects.referenced():
            found = self.writers.setdefault((incarnation, kind), {})
            first = found[number].first if number in found else index
            found[number] = _Pointed(length, first, index)
            objects += 1
            total += length
        return objects, total

    async def look(self, store: ObjectStore, tell: Tell) -> list[tuple[_Pointed, str]]:
        """What is not there, or has another length, in clauses. Raises StoreError."""
        faults: list[tuple[_Pointed, str]] = []
        for done, ((incarnation, kind), wanted) in enumerate(sorted(self.writers.items())):
            tell(f"listing the folders of objects: {done} of {len(self.writers)}")
            clauses: dict[int, tuple[_Pointed, str]] = {}
            async for object_id, length in _listed(store, incarnation, kind, wanted):
                pointed = wanted.pop(object_id.number, None)
                if pointed is not None and pointed.length != length:
                    clause = f"{object_id.key} has {length} bytes, and not {pointed.length}"
                    clauses[object_id.number] = (pointed, clause)
            for number, pointed in wanted.items():
                key = ObjectId(incarnation, number, kind).key
                clauses[number] = (pointed, f"{key} is missing")
            faults += [clauses[number] for number in sorted(clauses)]
        return faults


async def verify(
    store: ObjectStore, cluster_id: str, snapshots: Sequence[StoredSnapshot], tell: Tell
) -> list[Verdict]:
    """A verdict on each of the snapshots, which are in the order of their positions, either way.

    `tell`: has a clause about what is done now. Raises StoreError.
    """
    source = SnapshotStore(store, ClusterIdentity(cluster_id, ERA))
    eras: dict[int, _Objects] = {}
    """Another one may have begun with an older machine, and points again at what was let go."""
    found = []
    for index, snapshot in enumerate(snapshots):
        tell(f"reading snapshots: {index} of {len(snapshots)}")
        counts, damage = (0, 0), snapshot.trouble
        if not damage:
            objects = eras.setdefault(era_of(snapshot.position), _Objects())
            try:
                counts = objects.add(await _machine_of(source, snapshot), index)
            except SnapshotError as error:
                damage = str(error)
        found.append(Verdict(snapshot, *counts, damage, ()))
    faults: list[list[str]] = [[] for _ in snapshots]
    for objects in eras.values():
        for pointed, clause in await objects.look(store, tell):
            for index in range(pointed.first, pointed.last + 1):
                faults[index].append(clause)
    return [
        each if each.damage else each._replace(faults=tuple(clauses))
        for each, clauses in zip(found, faults, strict=True)
    ]


async def _machine_of(source: SnapshotStore, snapshot: StoredSnapshot) -> Machine:
    """Raises SnapshotError and StoreError."""
    parts = await source.read(snapshot.key)
    machine = Machine()
    await run_steps(restoring(machine, [*parts]))
    if not is_dump_of(machine, parts):
        raise SnapshotError("the machine that it makes is written down in other bytes")
    return machine


async def _listed(
    store: ObjectStore, incarnation: Incarnation, kind: ObjectKind, wanted: dict[int, _Pointed]
) -> AsyncIterator[tuple[ObjectId, int]]:
    """The objects of a writer, and their lengths, from the first that is wanted to the last."""
    first, last = min(wanted), max(wanted)
    folder = ObjectId(incarnation, first, kind).key.rpartition("/")[0] + "/"
    after = ObjectId(incarnation, first - 1, kind).key if first > 0 else ""
    async for page in pages(store, folder, after=after):
        for info in page:
            try:
                object_id = ObjectId.of_key(info.key)
            except ValueError:
                continue
            if object_id.number > last:
                return
            yield object_id, info.length
