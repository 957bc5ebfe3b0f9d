"""A log is lost, and its cluster goes on in the next era with what the store has of it."""

import random
import weakref
from dataclasses import replace

import pytest

from broker.recovery.rebuilding import RecoveryError, Until
from broker.reports import backup_report
from broker.reports.backup_report import Why
from broker.reports.log_lines import place
from broker.store import identity, truncation
from broker.store.identity import (
    ClusterMismatchError,
    LogIdentity,
    check,
    encode_log_identity,
)
from coordinator.commands.codec import decode_entry
from coordinator.commands.entries import CreateTopic, Pin
from coordinator.log.memory import MemoryLog, MemoryLogCluster
from coordinator.log.metadata_log import LiveSessionsError
from coordinator.snapshot.keeping import DAY_MS, PREFIX
from coordinator.snapshot.listing import stored_snapshots
from coordinator.snapshot.manifest import part_key
from protocol.types import POSITION_ZERO, Position, era_of, first_position
from storage.formats.era_marker import encode_era
from storage.formats.log_archive import (
    ArchivedEntry,
    LogArchive,
    decode_archive,
    encode_archive,
    range_of,
)
from storage.formats.log_checkpoint import LogCheckpoint
from storage.stores.object_store import StoreRefusedError
from tests.broker.recovery.disaster import CLUSTER, Disaster
from tests.broker.store.test_truncation import copied, put_back
from tests.coordinator.support import Writer
from tests.kit.faults import FaultyStore, Gate


async def with_archives() -> Disaster:
    """Topics made before the snapshot, between it and the end of the archive, and after that."""
    world = await Disaster().begin()
    await world.topic("in-the-snapshot")
    snapshot = await world.snapshot(cut=False)
    await world.topic("archived")
    first = world.head
    await world.archive(snapshot.position, first)
    await world.topic("archived-too")
    await world.archive(first, world.head)
    await world.topic("lost")
    return world


def refused_from(call: int) -> Gate:
    """The first calls succeed; from this one on all are refused."""
    calls = 0

    async def gate(*_arguments: object) -> None:
        nonlocal calls
        calls += 1
        if calls >= call:
            raise StoreRefusedError("no")

    return gate


def names(machine: object) -> list[str]:
    return [topic.name for topic in machine.topics]  # type: ignore[attr-defined]


async def test_what_was_archived_is_there_in_the_next_era_and_the_rest_is_not() -> None:
    world = await with_archives()
    marker = await world.recover(log := world.lose())
    machine = await world.started(log)
    assert names(machine) == ["in-the-snapshot", "archived", "archived-too"]
    assert (marker.era, machine.position) == (2, first_position(2))
    assert machine.digest().hex() == marker.digest


async def test_a_dry_run_says_what_there_is_and_writes_nothing() -> None:
    world = await with_archives()
    end = world.head
    before = [info.key for info in await world.store.list_after("", "")]
    planned = await world.plan(log := world.lose())
    assert (planned.era, planned.effects.agents) == (2, ("writer",))
    assert planned.reached < end
    assert not planned.rebuilt.troubles
    assert [info.key for info in await world.store.list_after("", "")] == before
    assert await log.identity() == b""


async def test_agents_go_on_behind_the_recovery_and_lose_their_log_again() -> None:
    world = await with_archives()
    await world.recover(log := world.lose())
    await world.started(log)
    world.writer.log, world.writer.n = log, 0
    world.writer.cluster = world.cluster
    await world.writer.open()
    assert era_of(Position(world.writer.session.incarnation)) == 2
    await world.writer.write()
    marker = await world.recover(again := world.lose())
    assert (marker.era, marker.behind) == (3, first_position(2))
    assert names(await world.started(again)) == ["in-the-snapshot", "archived", "archived-too"]


async def test_the_log_of_the_era_before_is_refused_from_then_on() -> None:
    world = await with_archives()
    old = MemoryLog(world.cluster)
    await world.recover(world.lose())
    with pytest.raises(ClusterMismatchError, match=r"era 1.*era 2"):
        await check(world.store, old, CLUSTER, random.Random(1))


async def test_an_older_log_that_was_put_back_is_begun_anew() -> None:
    world = await Disaster().begin()
    snapshot = await world.snapshot(cut=False)
    await world.topic("in-the-older-log")
    backup = copied(world.cluster)
    await world.topic("archived")
    await world.archive(snapshot.position, world.head)
    put_back(world.cluster, backup)
    world.cluster.expire(world.writer.session.id)
    log = MemoryLog(world.cluster)
    await world.recover(log)
    assert names(await world.started(log)) == ["in-the-older-log", "archived"]


@pytest.mark.promise("P1")
async def test_a_log_that_has_what_the_store_lacks_is_begun_anew_only_where_that_is_asked_for() -> (
    None
):
    world = await with_archives()
    world.cluster.expire(world.writer.session.id)
    log, head = MemoryLog(world.cluster), world.head
    planned = await world.plan(log)
    with pytest.raises(RecoveryError, match=f"--to-position {place(planned.reached)}$"):
        await world.begin_era(log, planned)
    beyond = await world.plan(log, Until(position=head))
    with pytest.raises(RecoveryError, match="start the agents with it"):
        await world.begin_era(log, beyond)
    assert world.head == head
    await world.recover(log, Until(position=planned.reached))
    assert names(await world.started(log)) == ["in-the-snapshot", "archived", "archived-too"]


async def test_a_recovery_that_is_done_is_not_done_again() -> None:
    world = await with_archives()
    log = world.lose()
    marker = await world.recover(log)
    with pytest.raises(RecoveryError, match=r"nothing is lost of it: start the agents.*2:1$"):
        await world.recover(log)
    assert (await identity.newest_era(world.store)) == marker
    assert (await world.recover(log, Until(position=first_position(2)))).era == 3


async def test_a_recovery_to_a_position_that_is_done_is_not_done_again_before_anybody_has_written() -> (
    None
):
    world = await with_archives()
    left_out = (await world.plan(log := world.lose())).reached
    until = Until(position=Position(left_out - 1))
    marker = await world.recover(log, until)
    with pytest.raises(RecoveryError, match=r"era 2 has begun behind 1:\d+ already"):
        await world.recover(log, until)
    assert await identity.newest_era(world.store) == marker
    machine = await world.started(log)
    world.writer.log, world.writer.n, world.writer.cluster = log, 0, world.cluster
    await world.writer.open()
    world.cluster.expire(world.writer.session.id)
    assert names(machine)[-1] == "archived"
    assert (await world.recover(log, until)).era == 3
    assert (await world.recover(world.lose(), until)).era == 4


async def test_a_log_that_ends_where_the_archive_does_is_begun_anew_if_more_was_written() -> None:
    world = await Disaster().begin()
    snapshot = await world.snapshot(cut=False)
    await world.topic("archived")
    await world.archive(snapshot.position, world.head)
    backup, writer = copied(world.cluster), world.writer.session.incarnation
    await world.store.put_new(LogCheckpoint(writer, Position(world.head + 1)).key, [b""])
    put_back(world.cluster, backup)
    world.cluster.expire(world.writer.session.id)
    log = MemoryLog(world.cluster)
    assert (await world.recover(log)).era == 2
    assert names(await world.started(log)) == ["archived"]


async def test_a_log_of_the_same_name_that_began_elsewhere_is_begun_anew() -> None:
    world = await with_archives()
    log = world.lose()
    await log.identify(encode_log_identity(LogIdentity(CLUSTER, 1, "0" * 16)))
    world.writer.log, world.writer.n, world.writer.cluster = log, 0, world.cluster
    await world.writer.open()
    for _ in range(20):
        await world.writer.write()
    world.cluster.expire(world.writer.session.id)
    await world.recover(log)
    assert names(await world.started(log))[-1] == "archived-too"


async def test_no_era_begins_under_an_agent_that_lives() -> None:
    world = await with_archives()
    log = MemoryLog(world.cluster)
    planned = await world.plan(log)
    with pytest.raises(LiveSessionsError):
        await world.recover(log, Until(position=planned.reached))
    await check(world.store, MemoryLog(world.cluster), CLUSTER, random.Random(1))


async def test_agents_of_an_era_start_after_a_recovery_from_it_that_was_given_up() -> None:
    world = await with_archives()
    log = MemoryLog(world.cluster)
    reached = (await world.plan(log)).reached
    with pytest.raises(LiveSessionsError):
        await world.recover(log, Until(position=reached))
    assert await world.store.list_after("snapshots/", f"snapshots/{first_position(2):016x}")
    await check(world.store, log, CLUSTER, random.Random(1))
    await truncation.check(world.store, log, world.whole.machine)


async def test_a_damaged_archive_is_passed_over_where_another_one_says_the_same() -> None:
    world = await with_archives()
    (first, second) = [info.key for info in await world.store.list_after("archive/", "")]
    begin, _ = (Position(int(each, 16)) for each in first.removeprefix("archive/").split("-"))
    _, end = (Position(int(each, 16)) for each in second.removeprefix("archive/").split("-"))
    await world.archive(begin, end)
    damaged = bytearray(await world.store.get(first))
    damaged[-9] ^= 1
    await world.store.delete([first])
    await world.store.put_new(first, [damaged])
    planned = await world.plan(world.lose())
    assert planned.reached == end


async def test_archives_that_are_merged_while_a_dry_run_reads_them_are_found_again() -> None:
    world = await with_archives()
    small = [info.key for info in await world.store.list_after("archive/", "")]
    begin, end = range_of(small[0])[0], range_of(small[1])[1]
    healthy, merges = world.store, [small[1]]

    async def gate(key: str, *_arguments: object) -> None:
        if key in merges:
            merges.clear()
            await world.archive(begin, end)
            await healthy.delete(small)

    faulty = FaultyStore(healthy)
    faulty.before["get"] = gate
    world.store = faulty  # type: ignore[assignment]
    planned = await world.plan(MemoryLog(MemoryLogCluster()))
    assert (planned.reached, planned.rebuilt.is_all) == (end, True)
    assert not planned.rebuilt.troubles


async def test_behind_an_archive_that_is_missing_nothing_is_taken_and_that_is_told() -> None:
    world = await with_archives()
    (first, second) = [info.key for info in await world.store.list_after("archive/", "")]
    await world.store.delete([first])
    planned = await world.plan(log := world.lose())
    assert any(second in trouble for trouble in planned.rebuilt.troubles)
    assert not planned.rebuilt.is_all
    await world.begin_era(log, planned)
    assert names(await world.started(log)) == ["in-the-snapshot"]


async def test_that_the_newest_archive_is_torn_is_told_and_what_is_left_is_not_called_all() -> None:
    world = await with_archives()
    assert (await world.plan(world.lose())).rebuilt.is_all
    (first, second) = [info.key for info in await world.store.list_after("archive/", "")]
    torn = bytes(await world.store.get(second))[:-7]
    await world.store.delete([second])
    await world.store.put_new(second, [torn])
    planned = await world.plan(world.lose())
    assert planned.reached == range_of(first)[1]
    assert any(second in trouble for trouble in planned.rebuilt.troubles)
    assert not planned.rebuilt.is_all


async def test_a_damaged_snapshot_is_passed_over_for_the_one_before() -> None:
    world = await Disaster().begin()
    await world.topic("in-both")
    older = await world.snapshot(cut=False)
    await world.topic("in-the-newer-one")
    newer = await world.snapshot(cut=False)
    await world.archive(older.position, world.head)
    await world.store.delete([newer.key.replace("manifest", "0000")])
    planned = await world.plan(log := world.lose())
    assert any(newer.key in trouble for trouble in planned.rebuilt.troubles)
    await world.begin_era(log, planned)
    assert names(await world.started(log)) == ["in-both", "in-the-newer-one"]


@pytest.mark.promise("P13")
async def test_an_archive_that_contradicts_the_snapshot_is_refused() -> None:
    world = await with_archives()
    (_, key) = [info.key for info in await world.store.list_after("archive/", "")]
    archive = decode_archive(await world.store.get(key))
    await world.store.delete([key])
    await world.store.put_new(key, [encode_archive(replace(archive, digest=bytes(16)))])
    with pytest.raises(RecoveryError, match="contradicts the snapshot"):
        await world.plan(world.lose())


async def test_a_position_says_how_far() -> None:
    world = await Disaster().begin()
    snapshot = await world.snapshot(cut=False)
    await world.topic("before")
    wanted = world.head
    await world.topic("behind")
    await world.archive(snapshot.position, world.head)
    planned = await world.plan(log := world.lose(), Until(position=wanted))
    assert (planned.reached, planned.rebuilt.stopped) == (wanted, True)
    await world.begin_era(log, planned)
    assert names(await world.started(log)) == ["before"]


async def test_a_time_leaves_out_snapshots_that_hold_what_was_written_later() -> None:
    world = await Disaster().begin()
    await Writer(world.cluster).open("idle")  # Its clock, and so the machine's time, stands at 1.
    first = await world.snapshot(cut=False)
    world.writer.clock_ms = 1_000
    await world.topic("before")
    world.writer.clock_ms = 2_000
    await world.topic("behind")
    later = await world.snapshot(cut=False)
    await world.archive(first.position, world.head)
    assert world.whole.machine.time_ms == 1
    planned = await world.plan(log := world.lose(), Until(time_ms=1_999))
    assert planned.rebuilt.begun == first.position
    everything = await world.plan(log, Until(time_ms=2_000))
    assert (everything.rebuilt.begun, everything.rebuilt.stopped) == (later.position, False)
    await world.begin_era(log, planned)
    assert names(await world.started(log)) == ["before"]


async def test_a_time_before_an_era_began_leads_to_the_log_of_the_era_before() -> None:
    world = await Disaster().begin()
    await Writer(world.cluster).open("idle")
    first = await world.snapshot(cut=False)
    world.writer.clock_ms = 500
    await world.topic("before")
    world.writer.clock_ms = 900
    await world.topic("behind")
    await world.archive(first.position, world.head)
    assert (await world.recover(world.lose())).began_ms == 1_000
    log = world.lose()
    assert (await world.plan(log, Until(time_ms=1_000))).rebuilt.begun == first_position(2)
    marker = await world.recover(log, Until(time_ms=899))
    assert marker.era == 3
    assert names(await world.started(log)) == ["before"]


async def test_a_recovery_that_stopped_anywhere_is_finished_by_the_next_one() -> None:
    for stop in range(1, 5):
        world = await with_archives()
        log, healthy = world.lose(), world.store
        planned = await world.plan(log)
        faulty = FaultyStore(healthy)
        faulty.before["put_new"] = refused_from(stop)
        world.store = faulty  # type: ignore[assignment]
        try:
            await world.begin_era(log, planned)
        except StoreRefusedError:
            world.store = healthy
            await world.recover(log)
        world.store = healthy
        assert names(await world.started(log))[-1] == "archived-too"


async def test_a_recovery_keeps_one_machine_at_a_time_when_it_begins_the_era() -> None:
    world = await with_archives()
    log = world.lose()
    planned = await world.plan(log)
    machine = weakref.ref(planned.rebuilt.machine)
    left: list[object] = []

    async def gate(key: str, *_arguments: object) -> None:
        if key.startswith("snapshots/"):
            left.append(machine())

    faulty = FaultyStore(world.store)
    faulty.before["put_new"] = gate
    world.store = faulty  # type: ignore[assignment]
    await world.begin_era(log, planned)
    assert len(left) > 1
    assert set(left) == {None}


async def gone_on_in_era_two() -> Disaster:
    """`archived-too` was left out, `of-era-two` is archived, and the era's only snapshot is damaged then."""
    world = await with_archives()
    left_out = (await world.plan(world.lose())).reached
    log = world.lose()
    await world.recover(log, Until(position=Position(left_out - 1)))
    machine = await world.started(log)
    world.writer.log, world.writer.n, world.writer.cluster = log, 0, world.cluster
    await world.writer.open()
    await world.writer.write(CreateTopic("of-era-two", 1, ()))
    entries = []
    for at, session, n, payload in world.cluster.entries:
        if at > machine.position:
            machine.apply(at, decode_entry(payload))
        entries.append(ArchivedEntry(at, session, n, False, payload))
    begun, digest = first_position(2), machine.digest()
    archive = LogArchive(CLUSTER, begun, machine.position, digest, tuple(entries))
    await world.put_archive(archive)
    await world.store.delete([part_key(begun, 0)])
    return world


async def test_the_first_snapshot_of_an_era_is_made_anew_out_of_the_era_before_when_it_is_damaged() -> (
    None
):
    world = await gone_on_in_era_two()
    planned = await world.plan(log := world.lose())
    assert names(planned.rebuilt.machine) == ["in-the-snapshot", "archived", "of-era-two"]
    assert planned.rebuilt.is_all
    assert any("made anew" in trouble for trouble in planned.rebuilt.troubles)
    assert (await world.begin_era(log, planned)).era == 3
    assert names(await world.started(log))[-1] == "of-era-two"


async def test_a_first_snapshot_that_comes_out_otherwise_is_not_taken_for_that_of_the_era() -> None:
    world = await gone_on_in_era_two()
    marker = await identity.newest_era(world.store)
    assert marker is not None
    await world.store.delete([marker.key])
    other = replace(marker, digest="00" * 16)
    await world.store.put_new(other.key, [encode_era(other)])
    planned = await world.plan(world.lose())
    assert era_of(planned.reached) == 1
    assert not planned.rebuilt.is_all
    assert any("cannot be made anew" in trouble for trouble in planned.rebuilt.troubles)


async def test_agents_are_told_to_repeat_a_recovery_that_stopped_before_its_last_step() -> None:
    world = await with_archives()
    log = world.lose()
    marker = await world.recover(log)
    await world.store.delete([marker.key])
    with pytest.raises(ClusterMismatchError, match=r"era 2.*era 1.*repeat it: frazil recover"):
        await check(world.store, log, CLUSTER, random.Random(1))
    assert await world.recover(log) == marker
    await check(world.store, log, CLUSTER, random.Random(1))


async def test_a_log_in_which_an_era_has_gone_on_is_not_begun_anew_from_a_copy_of_before() -> None:
    world = await with_archives()
    log = world.lose()
    marker = await world.recover(log)
    world.writer.log, world.writer.n, world.writer.cluster = log, 0, world.cluster
    await world.writer.open()
    world.cluster.expire(world.writer.session.id)
    await world.store.delete([marker.key])
    planned = await world.plan(log)
    with pytest.raises(RecoveryError, match="a copy from before a recovery"):
        await world.begin_era(log, planned)
    await world.recover(world.lose())


async def test_of_two_that_recover_a_cluster_the_one_that_is_asked_for_longer_is_refused() -> None:
    world = await with_archives()
    log = world.lose()
    planned = await world.plan(log)
    other = MemoryLog(MemoryLogCluster())
    elsewhere = await world.plan(other, Until(position=Position(planned.reached - 1)))
    marker = await world.begin_era(log, planned)
    for each, own in ((planned, log), (elsewhere, other)):
        with pytest.raises(RecoveryError, match="era 2 has begun meanwhile"):
            await world.begin_era(own, each)
    assert await identity.newest_era(world.store) == marker
    assert await other.identity() == b""
    assert names(await world.started(log))[-1] == "archived-too"


async def test_snapshots_that_are_kept_are_told_as_kept_after_a_recovery_too() -> None:
    world = await Disaster().begin()
    await world.writer.write(Pin(f"{PREFIX}0.{DAY_MS}", DAY_MS))
    kept = await world.snapshot(cut=False)
    await world.topic("in-the-newer-one")
    await world.snapshot(cut=False)
    await world.recover(world.lose())
    found = await stored_snapshots(world.store)
    eras = await identity.begun_eras(world.store)
    reasons = backup_report.reasons(found, 1_000, eras=eras)
    assert [reason.why for reason in reasons] == [Why.NEWEST, Why.BEFORE, Why.KEPT]
    assert found[2].position == kept.position


async def test_a_recovery_that_was_given_up_is_no_obstacle_for_another_one() -> None:
    world = await with_archives()
    log = world.lose()
    marker = await world.recover(log)
    await world.store.delete([marker.key])
    until = Until(position=Position(marker.behind - 1))
    other = await world.recover(log, until)
    assert other.era == 3
    assert names(await world.started(log))[-1] == "archived"


async def test_a_log_that_was_begun_with_a_snapshot_that_is_gone_since_is_begun_with_the_other_one() -> (
    None
):
    world = await with_archives()
    log = world.lose()
    given_up = await world.recover(log)
    folder = f"snapshots/{first_position(2):016x}/"
    left = [info.key for info in await world.store.list_after(folder, "")]
    await world.store.delete([given_up.key, *left])  # The collection does so, a day later.
    marker = await world.recover(log, Until(position=Position(given_up.behind - 1)))
    assert (marker.era, marker.life == given_up.life) == (2, False)
    assert names(await world.started(log))[-1] == "archived"


async def test_a_snapshot_of_an_era_that_was_given_up_is_none_to_go_back_to() -> None:
    world = await with_archives()
    log = world.lose()
    marker = await world.recover(log)
    await world.store.delete([marker.key])
    other = await world.recover(log, Until(position=Position(marker.behind - 1)))
    assert other.era == 3
    back = await world.plan(world.lose(), Until(position=first_position(2)))
    assert era_of(back.rebuilt.begun) == 1
    await world.store.delete([f"snapshots/{first_position(3):016x}/manifest"])
    anew = (await world.plan(world.lose())).rebuilt
    assert (anew.begun, names(anew.machine)[-1]) == (first_position(3), "archived")


async def test_a_young_cluster_without_a_snapshot_is_recovered_from_its_archives() -> None:
    world = await Disaster().begin()
    await world.topic("archived")
    await world.archive(POSITION_ZERO, world.head)
    await world.topic("lost")
    await world.recover(log := world.lose())
    assert names(await world.started(log)) == ["archived"]


async def test_a_store_without_snapshots_and_archives_is_not_recovered_from() -> None:
    world = await Disaster().begin()
    with pytest.raises(RecoveryError, match="no snapshot"):
        await world.plan(world.lose())


async def test_another_cluster_s_store_is_not_recovered_from() -> None:
    world = Disaster()
    await check(world.store, MemoryLog(world.cluster), "another", random.Random(1))
    with pytest.raises(RecoveryError, match=r"'another'.*frazil-test"):
        await world.plan(world.lose())
