"""`frazil backup`: what is told of the snapshots in a store, and what of damage."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from broker.cli.backup import backup_tool
from broker.cli.command_result import CommandResult, ToolError
from broker.config.settings import Settings
from broker.reports.log_lines import place as told
from coordinator.commands.job_commands import JobKind
from coordinator.machine.machine import Machine
from coordinator.snapshot import stream
from coordinator.snapshot.keeping import HOUR_MS, MINUTE_MS
from coordinator.snapshot.listing import StoredSnapshot, stored_snapshots
from coordinator.snapshot.manifest import manifest_key, part_key
from coordinator.snapshot.snapshot import dump, restore
from coordinator.snapshot.store import SnapshotStore
from protocol.types import Position, first_position
from storage.formats.cluster_identity import ClusterIdentity, claim_store
from storage.formats.era_marker import era_key
from storage.stores.memory import MemoryStore
from storage.stores.object_store import ObjectNotFoundError, StoreUnavailableError
from tests.broker.jobs.world import SETTINGS, World
from tests.kit.faults import FaultyStore

pytestmark = pytest.mark.real_loop


class Backups:
    """A store with snapshots of some hours, of which nobody is left who wrote them."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = world
        self.store = FaultyStore(world.store)
        self.told: list[str] = []
        monkeypatch.setattr(backup_tool, "open_store", lambda *_, **__: self.store)
        monkeypatch.setattr(backup_tool, "now_ms", lambda: self.world.clock_ms)
        self.run(claim_store(world.store, ClusterIdentity("jobs", 1)))

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.world.runner.run(work)

    @property
    def objects(self) -> dict[str, bytes]:
        return self.world.store._objects

    def stored(self) -> list[StoredSnapshot]:
        return self.run(stored_snapshots(self.world.store))

    def list(self, *, as_json: bool = False) -> CommandResult:
        work = backup_tool.list_snapshots(SETTINGS, is_named=True, as_json=as_json)
        return self.run(work)

    def verify(
        self, *positions: int, everything: bool = False, settings: Settings = SETTINGS
    ) -> CommandResult:
        return self.run(
            backup_tool.verify(
                settings, positions, everything=everything, is_named=True, tell=self.told.append
            )
        )


@pytest.fixture
def backups(monkeypatch: pytest.MonkeyPatch) -> Iterator[Backups]:
    settings = replace(SETTINGS, snapshot_retention_ms=2 * HOUR_MS)
    with closing(World(settings)) as world:
        place = world.place("a")
        for _ in range(13):
            world.fill(place, 4)
            if (end := world.row(place).end_offset) > 12:
                world.trim(place, end - 12)
            for kind in (JobKind.MERGE, JobKind.SNAPSHOT, JobKind.COLLECT):
                assert world.round(kind, after_ms=10 * MINUTE_MS // 3)
        yield Backups(world, monkeypatch)


def test_snapshots_are_listed_with_their_age_and_until_when_they_are_kept(
    backups: Backups,
) -> None:
    header, *lines = backups.list().lines
    assert header.split() == ["POSITION", "TIME", "AGE", "SIZE", "KEPT"]
    found = backups.stored()
    assert [line.split()[0] for line in lines] == [told(each.position) for each in found]
    assert len(lines) > 6
    newest, older, *others = lines
    assert "agents start from it;" in newest
    assert "agents start from it when the newest is damaged" in older
    assert "1970-01-01T02:" in newest
    assert "until 1970-01-01T" in newest
    assert all("until 1970" in line or "not kept" in line for line in others)
    assert " h " in lines[-1] or " min " in lines[-1]


def test_a_list_for_programs_has_one_object_a_snapshot(backups: Backups) -> None:
    (line,) = backups.list(as_json=True).lines
    views = json.loads(line)
    found = backups.stored()
    assert [each["position"] for each in views] == [each.position for each in found]
    assert views[0]["why"] == "newest"
    assert views[1]["why"] == "older"
    assert {each["why"] for each in views[2:]} <= {"kept", "left"}
    oldest = views[-1]
    assert oldest["bytes"] == found[-1].bytes
    assert oldest["kept_until_ms"] > backups.world.clock_ms
    assert oldest["age_ms"] == backups.world.clock_ms - oldest["time_ms"] > HOUR_MS
    assert oldest["trouble"] is None


def test_what_a_recovery_left_that_was_given_up_is_listed_so_and_not_verified_as_the_newest(
    backups: Backups,
) -> None:
    newest = backups.stored()[0]
    manifest = backups.objects[newest.key].replace(
        b'"position": %d' % newest.position, b'"position": %d' % first_position(2)
    )
    key = manifest_key(first_position(2))
    backups.run(backups.world.store.put_new(key, [manifest]))
    views = json.loads(backups.list(as_json=True).lines[0])
    assert [each["why"] for each in views[:3]] == ["given_up", "newest", "older"]
    said = backups.verify()
    assert said.lines[0].startswith(f"{told(newest.position)} is whole")
    assert not said.failures


def test_what_an_era_points_at_again_that_went_back_is_not_missed_by_snapshots_in_between(
    backups: Backups,
) -> None:
    newest, *_, oldest = backups.stored()
    source = SnapshotStore(backups.world.store, ClusterIdentity("jobs", 1))
    old, new = Machine(), Machine()
    for machine, snapshot in ((old, oldest), (new, newest)):
        restore(machine, backups.run(source.read(snapshot.key)))
    before = {object_id for object_id, _ in old.objects.referenced()}
    again = min(before - {object_id for object_id, _ in new.objects.referenced()})
    old.begin_era(first_position(2), snapshot_key=manifest_key(first_position(2)))
    backups.run(source.write(dump(old)))
    backups.run(backups.world.store.put_new(era_key(2), [b""]))
    backups.run(backups.world.store.delete([again.key]))
    said = backups.verify(everything=True)
    told_of = {line.split(":")[0] + ":" + line.split(":")[1] for line in said.failures}
    assert told(first_position(2)) in told_of
    assert told(newest.position) not in told_of


def test_a_manifest_that_cannot_be_read_is_listed_and_told(backups: Backups) -> None:
    key = backups.stored()[-1].key
    backups.objects[key] = b"scratched"
    said = backups.list()
    assert said.lines[-1].endswith("its manifest cannot be read")
    assert said.warnings[0].startswith(f"{key} cannot be read: the manifest")
    (failure,) = backups.verify(everything=True).failures
    assert failure.startswith(f"{told(backups.stored()[-1].position)} is damaged: the manifest")


def test_a_store_of_nobody_has_no_snapshots_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup_tool, "open_store", lambda *_, **__: MemoryStore())
    listing = backup_tool.list_snapshots(SETTINGS, is_named=False, as_json=False)
    said = asyncio.run(listing)
    assert said.lines == ["there are no snapshots"]
    assert "is nobody's store" in said.warnings[0]
    work = backup_tool.verify(SETTINGS, (), everything=True, is_named=False, tell=print)
    with pytest.raises(ToolError, match="there are no snapshots in memory://"):
        asyncio.run(work)


def test_the_store_of_another_cluster_is_refused(backups: Backups) -> None:
    with pytest.raises(ToolError, match="belongs to cluster 'jobs', era 1, and not to 'other'"):
        backups.verify(settings=replace(SETTINGS, cluster_id="other"))


def test_all_that_is_kept_is_verified_by_the_store_alone(backups: Backups) -> None:
    said = backups.verify(everything=True)
    found = backups.stored()
    assert said.failures == ()
    assert [line.split()[0] for line in said.lines] == [told(each.position) for each in found]
    assert all(
        "is whole (" in line and "that it points at are there" in line for line in said.lines
    )
    assert backups.told[0] == f"reading snapshots: 0 of {len(found)}"
    assert backups.told[-1].startswith("listing the folders of objects: ")


def test_without_a_position_it_is_the_newest_that_is_verified(backups: Backups) -> None:
    newest, *_, oldest = backups.stored()
    (line,) = backups.verify().lines
    assert line.startswith(told(newest.position))
    first, second = backups.verify(oldest.position, newest.position).lines
    assert first.startswith(told(newest.position))
    assert second.startswith(told(oldest.position))
    with pytest.raises(ToolError, match="there is no snapshot at 0:7: frazil backup list has all"):
        backups.verify(newest.position, 7)


def _pointed_at_by_the_oldest_alone(backups: Backups) -> str:
    """An object that would be gone, were the snapshot not kept."""
    waiting = {each.object_id.key for each in backups.world.machine.objects.unreferenced()}
    for key in sorted(waiting):
        data = backups.objects.pop(key)
        failures = backups.verify(backups.stored()[-1].position).failures
        backups.objects[key] = data
        if failures:
            return key
    raise AssertionError("nothing is kept for it")


def test_an_object_that_is_missing_is_named_for_each_snapshot_that_points_at_it(
    backups: Backups,
) -> None:
    key = _pointed_at_by_the_oldest_alone(backups)
    del backups.objects[key]
    oldest = backups.stored()[-1]
    said = backups.verify(everything=True)
    assert f"{told(oldest.position)}: {key} is missing" in said.failures
    assert all(failure.endswith(f": {key} is missing") for failure in said.failures)
    assert len(said.failures) + len(said.lines) == len(backups.stored())
    assert said.lines


def test_an_object_of_another_length_is_told_with_both(backups: Backups) -> None:
    key = _pointed_at_by_the_oldest_alone(backups)
    length = len(backups.objects[key])
    backups.objects[key] += b"x"
    said = backups.verify(backups.stored()[-1].position)
    assert said.failures == [
        f"{told(backups.stored()[-1].position)}: {key} has {length + 1} bytes, and not {length}"
    ]


def test_of_many_objects_that_are_missing_some_are_named_and_all_are_counted(
    backups: Backups,
) -> None:
    place = next(iter(backups.world.written))
    backups.world.fill(place, 15)
    backups.world.snapshots(1)
    for key in backups.world.keys("chunks/"):
        del backups.objects[key]
    said = backups.verify()
    assert len(said.failures) == 11
    assert " more of its " in said.failures[-1]


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "is not what the manifest says"),
        (lambda data: data[:-1], "is not what the manifest says"),
        (None, "is not in the store"),
    ],
    ids=["flipped", "short", "missing"],
)
def test_a_part_that_is_damaged_or_missing_is_told(
    backups: Backups, spoil: Callable[[bytes], bytes] | None, sentence: str
) -> None:
    oldest = backups.stored()[-1]
    key = part_key(oldest.position, 0)
    data = backups.objects.pop(key)
    if spoil is not None:
        backups.objects[key] = spoil(data)
    (failure,) = backups.verify(oldest.position).failures
    assert failure.startswith(f"{told(oldest.position)} is damaged: {key} {sentence}")


def test_a_machine_that_is_written_down_in_other_bytes_is_told(
    backups: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream.PartComparer, "are_same", lambda _: False)
    (failure,) = backups.verify().failures
    assert failure.endswith("the machine that it makes is written down in other bytes")


def test_what_is_missing_of_a_snapshot_that_is_not_kept_any_more_is_no_failure(
    backups: Backups,
) -> None:
    """It is collected, in some order, while somebody looks."""
    oldest = backups.stored()[-1]
    key = _pointed_at_by_the_oldest_alone(backups)
    backups.world.clock_ms += 3 * HOUR_MS
    del backups.objects[key]
    said = backups.verify(oldest.position)
    assert said.failures == []
    assert said.warnings == [
        f"{told(oldest.position)} is not kept any more, and this is no failure",
        f"{told(oldest.position)}: {key} is missing",
    ]


def test_a_snapshot_that_is_deleted_while_it_is_read_is_no_failure(backups: Backups) -> None:
    oldest = backups.stored()[-1]
    part = part_key(oldest.position, 0)

    async def gone(key: str, *_: object) -> None:
        if key == part:
            backups.objects.pop(oldest.key, None)
            raise ObjectNotFoundError(key)

    backups.store.before["get"] = gone
    said = backups.verify(oldest.position)
    assert said.failures == []
    assert f"{part} is not in the store" in said.warnings[-1]


def test_a_store_that_is_away_is_one_sentence(
    backups: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise StoreUnavailableError("no route to host")

    backups.store.before["get"] = away
    with pytest.raises(ToolError, match=r"^memory://: no route to host"):
        backups.list()


def test_only_the_folders_of_writers_that_are_pointed_at_are_listed(backups: Backups) -> None:
    listed: list[str] = []

    async def seen(prefix: str, *_: object) -> None:
        listed.append(prefix)

    backups.store.before["list_after"] = seen
    assert backups.verify().lines
    folders = [each for each in listed if not each.startswith(("snapshots", "eras"))]
    assert folders
    assert all(len(each.split("/")[1]) == 16 for each in folders)
    assert manifest_key(Position(1)).split("/")[0] not in folders
