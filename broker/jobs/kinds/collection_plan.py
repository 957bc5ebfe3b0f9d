"""Which objects may be deleted. Pure; `apply` says the last word to each (`DoomObjects`).

An object that nothing points at may still be needed: by a reader with an old plan (so it waits a
grace), by whoever starts from a snapshot at whose position something pointed at it (so two
snapshots after it must be published), by a pin. An object that no command has named may be
named by its writer as long as that lives; after that, or when a later number was committed, and
when it is older, by the store's clock, than every live agent, it is an orphan. The latter in case
the log is not what it was when the object was written: then a live agent did not write it, and
numbers say nothing.

Snapshots go when two newer ones are published, or when they were given up, unless a pin keeps them
(`coordinator.snapshot.keeping`), and those of a recovery that was given up a day later; archives of the log when they lie before the oldest snapshot that is kept.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Final, NamedTuple

from coordinator.machine.machine import Machine
from coordinator.snapshot import keeping
from coordinator.snapshot.manifest import manifest_key
from protocol.types import Incarnation, Position, leader_epoch
from storage.formats import log_archive
from storage.formats.log_checkpoint import LogCheckpoint
from storage.formats.spans import ObjectId, ObjectKind
from storage.stores.object_store import ObjectInfo

OBJECTS_PER_COMMAND_MAX: Final = 1000
PREFIXES: Final = ("chunks/", "segments/", "indexes/")
SNAPSHOTS: Final = "snapshots/"
ARCHIVES: Final = f"{log_archive.FOLDER}/"
SNAPSHOT_GRACE_MS: Final = 600_000
"""Somebody may be loading it; and the log may name it for a while after the machine does not."""
GIVEN_UP_GRACE_MS: Final = 24 * 3_600_000
"""A recovery that stopped may be repeated, and begins with the snapshot that it left, if nothing was archived since."""


def collectable(machine: Machine, *, grace_ms: int) -> Iterator[ObjectId]:
    """Objects that nothing points at, and that nobody may still need; as far as we can see."""
    horizon = _horizon(machine)
    if horizon is None:
        return
    for object_id, _, since_ms in machine.objects.unreferenced(through=horizon):
        if since_ms <= machine.time_ms - grace_ms:
            yield object_id


def _horizon(machine: Machine) -> Position | None:
    """What was let go of after this position may still be needed; None: nothing may go."""
    published = machine.snapshots.published
    if len(published) < 2:
        return None
    horizon = min(each.position for each in published)
    pinned = machine.pins.oldest(machine.time_ms)
    return horizon if pinned is None else min(horizon, pinned)


def kept_since(machine: Machine) -> Position | None:
    """No snapshot that is kept is older than this; None: all may still be needed."""
    published = machine.snapshots.published
    if len(published) < 2:
        return None
    pins = keeping.snapshot_pins(machine.pins, machine.time_ms)
    return min([*[each.position for each in published], *[each.position for each in pins]])


class Unnamed(NamedTuple):
    """An object that no command has named or can name any more."""

    object_id: ObjectId
    info: ObjectInfo


def unnamed(machine: Machine, infos: Iterable[ObjectInfo]) -> Iterator[Unnamed]:
    """Those among these that no command has named or can name any more.

    The machine must have been at its position before they were listed. What is listed and
    collectable, but waits, is left out; keys of other things are, too.
    """
    found = [
        Unnamed(object_id, info)
        for info in infos
        if (object_id := _object_id(info.key)) is not None
        and not machine.objects.is_referenced(object_id)
        and _is_past(machine, object_id)
    ]
    numbers: dict[tuple[Incarnation, ObjectKind], set[int]] = {}
    for (incarnation, number, kind), _ in found:
        numbers.setdefault((incarnation, kind), set()).add(number)
    waiting = {writer: machine.objects.waiting(*writer, those) for writer, those in numbers.items()}
    for each in found:
        incarnation, number, kind = each.object_id
        if number not in waiting[incarnation, kind]:
            yield each


def orphans(
    machine: Machine, infos: Iterable[ObjectInfo], *, begun_ms: int | None
) -> Iterator[ObjectId]:
    """Unnamed objects that are older than every live agent.

    Those of an era that is over may be records that were acknowledged, and that the log has lost: nobody deletes
    them (`broker.recovery.unarchived`).

    `begun_ms`: when the oldest of those began, by the store's clock; None: that is not known.
    """
    if begun_ms is not None:
        for object_id, info in unnamed(machine, infos):
            if info.modified_ms < begun_ms and not is_of_past_era(machine, object_id):
                yield object_id


def is_of_past_era(machine: Machine, object_id: ObjectId) -> bool:
    return leader_epoch(Position(object_id.incarnation)) < machine.eras.leader_epoch


def begun_ms(machine: Machine, checkpoints: Mapping[LogCheckpoint, int]) -> int | None:
    """When the oldest live agent began, by the store's clock; None: not known of all.

    `checkpoints`: what lies in the store, and when it took each in.
    """
    firsts = {each.incarnation: at for each, at in checkpoints.items() if each.is_first}
    live = [row.incarnation for row in machine.incarnations]
    if not live or not firsts.keys() >= set(live):
        return None
    return min(firsts[incarnation] for incarnation in live)


def old_checkpoints(
    machine: Machine, checkpoints: Iterable[LogCheckpoint]
) -> Iterator[LogCheckpoint]:
    """Those of incarnations that are over, but for the newest of all.

    The machine must have been at its position before they were listed.
    """
    found = sorted(checkpoints, key=attrgetter("position"))
    for each in found[:-1]:
        if (
            each.incarnation <= machine.position
            and machine.incarnations.get(each.incarnation) is None
        ):
            yield each


def _object_id(key: str) -> ObjectId | None:
    try:
        return ObjectId.of_key(key)
    except ValueError:
        return None


def _is_past(machine: Machine, object_id: ObjectId) -> bool:
    """Whether the object cannot be committed any more."""
    if object_id.incarnation > machine.position:
        return False
    writer = machine.incarnations.get(object_id.incarnation)
    return writer is None or object_id.number <= writer.newest(object_id.kind)


def old_snapshots(machine: Machine, infos: Collection[ObjectInfo]) -> Iterator[str]:
    """Keys of snapshots that nobody will start from, and that nothing keeps.

    `infos`: all that there are, listed when the machine was at its position or later.
    """
    published = machine.snapshots.published
    if len(published) < 2:
        return
    stays = {each.position for each in published}
    newest, older = max(stays), min(stays)
    begun = machine.snapshots.begun
    if begun is not None:
        stays.add(begun.position)
    # One between the two that are published is of a round that ended early: nobody ever began with it.
    given_up = range(older + 1, newest)
    there = {info.key for info in infos}
    whole = [
        position
        for position in {_snapshot_position(key) for key in there}
        if position is not None
        and manifest_key(position) in there
        and (position not in given_up or position in stays)
    ]
    stays |= keeping.kept(whole, keeping.snapshot_pins(machine.pins, machine.time_ms)).keys()
    for info in infos:
        position = _snapshot_position(info.key)
        if (
            position is not None
            and position not in stays
            and position < newest
            and (position in given_up or info.modified_ms <= machine.time_ms - SNAPSHOT_GRACE_MS)
        ):
            yield info.key


def given_up_snapshots(machine: Machine, infos: Iterable[ObjectInfo]) -> Iterator[str]:
    """Keys of snapshots of later eras, which recoveries have left that were given up long ago.

    Whoever deletes them makes sure that no such era has begun: then this machine's is over.
    """
    for info in infos:
        position = _snapshot_position(info.key)
        if (
            position is not None
            and leader_epoch(position) > machine.eras.leader_epoch
            and info.modified_ms <= machine.time_ms - GIVEN_UP_GRACE_MS
        ):
            yield info.key


def _snapshot_position(key: str) -> Position | None:
    """Of the snapshot that the object is a part of; None: it is something else."""
    folder, _, rest = key.removeprefix(SNAPSHOTS).partition("/")
    if not key.startswith(SNAPSHOTS) or not rest or len(folder) != 16:
        return None
    try:
        return Position(int(folder, 16))
    except ValueError:
        return None


def old_archives(machine: Machine, infos: Iterable[ObjectInfo]) -> Iterator[str]:
    """Keys of archives that lead to no snapshot that is kept, nor on from one."""
    kept = kept_since(machine)
    for info in infos:
        archived = _archived(info.key)
        if kept is not None and archived is not None and archived[1] <= kept:
            yield info.key


def _archived(key: str) -> tuple[Position, Position] | None:
    try:
        return log_archive.range_of(key)
    except ValueError:
        return None  # Somebody else's.
