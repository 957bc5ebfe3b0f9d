"""Archives and snapshots of a lost log that contradict each other."""

from dataclasses import replace

import pytest

from broker.recovery.rebuilding import RecoveryError, Until
from broker.reports.log_lines import place
from coordinator.commands.job_commands import BeginSnapshot
from coordinator.snapshot.snapshot import dump
from protocol.types import Position
from storage.formats.log_archive import decode_archive
from tests.broker.recovery.disaster import Disaster


class Voided(Disaster):
    """A log with topics `one` to `five` behind a snapshot, of which agents went past `two`, and it was voided then."""

    async def begin(self) -> "Voided":  # type: ignore[override]
        await super().begin()
        self.begun = (await self.snapshot(cut=False)).position
        self.at: dict[str, Position] = {}
        for name in ("one", "two", "three", "four", "five"):
            await self.topic(name)
            self.at[name] = self.head
        await self.whole.wait_for(self.head)
        return self

    async def before(self, after: str, last: str) -> str:
        """An archive by agents that went past the entry."""
        return await self.archive(self.at.get(after, self.begun), self.at[last])

    async def since(self, after: str, last: str) -> str:
        """An archive by agents that pass over it."""
        begun, voided = self.at.get(after, self.begun), self.at["two"]
        return await self.archive(begun, self.at[last], voided=voided)

    async def topics(self, until: Until | None = None) -> list[str]:
        planned = await self.plan(self.lose(), until or Until())
        self.troubles = planned.rebuilt.troubles
        return [topic.name for topic in planned.rebuilt.machine.topics]


PASSED_OVER = ["one", "three", "four", "five"]


async def test_an_entry_that_was_voided_is_passed_over_though_an_archive_of_before_reaches_further() -> (
    None
):
    world = await Voided().begin()
    old = await world.before("", "four")
    await world.since("", "three")
    await world.since("three", "five")
    assert await world.topics() == PASSED_OVER
    assert any(old in trouble and "voided" in trouble for trouble in world.troubles)


async def test_an_archive_of_before_the_voiding_that_begins_behind_the_entry_is_left_out() -> None:
    world = await Voided().begin()
    old = [await world.before("", "one"), await world.before("one", "two")]
    old.append(await world.before("two", "four"))
    await world.since("", "three")
    await world.since("three", "five")
    assert await world.topics() == PASSED_OVER
    assert any(old[2] in trouble and "left out" in trouble for trouble in world.troubles)


async def test_of_an_archive_of_before_the_voiding_that_alone_reaches_the_end_nothing_is_taken() -> (
    None
):
    world = await Voided().begin()
    old = await world.before("", "five")
    await world.since("", "three")
    end = place(world.at["three"])
    with pytest.raises(RecoveryError, match=rf"{old} .*voided since.*--to-position {end}\b"):
        await world.topics()
    assert await world.topics(Until(position=world.at["three"])) == ["one", "three"]


async def test_a_position_before_the_end_of_an_archive_of_before_the_voiding_leaves_the_entry_out() -> (
    None
):
    world = await Voided().begin()
    await world.before("", "five")
    await world.since("", "four")
    assert await world.topics(Until(position=world.at["three"])) == ["one", "three"]
    assert await world.topics(Until(position=world.at["one"])) == ["one"]


async def test_an_entry_that_cannot_be_decoded_is_no_obstacle_where_another_archive_has_it_as_void() -> (
    None
):
    world = await Voided().begin()
    archive = decode_archive(await world.store.get(old := await world.before("", "four")))
    await world.store.delete([old])
    entries = [
        replace(each, payload=b"of another release") if each.position == world.at["two"] else each
        for each in archive.entries
    ]
    await world.put_archive(replace(archive, entries=tuple(entries)))
    young = decode_archive(await world.store.get(key := await world.since("", "three")))
    await world.store.delete([key])
    entries = [
        replace(each, payload=b"of another release") if each.voided else each
        for each in young.entries
    ]
    await world.put_archive(replace(young, entries=tuple(entries)))
    await world.since("three", "five")
    assert await world.topics() == PASSED_OVER


async def test_a_snapshot_that_archives_contradict_yields_to_an_older_one_that_leads_further() -> (
    None
):
    world = await Disaster().begin()
    begun = (await world.snapshot(cut=False)).position
    await world.topic("one")
    await world.topic("two")
    voided = world.head
    at = Position(await world.writer.write(BeginSnapshot()))
    await world.whole.wait_for(at)
    await world.snapshots.write(dump(world.whole.machine))  # And nobody came to publish it.
    await world.topic("three")
    await world.archive(begun, world.head, voided=voided)
    planned = await world.plan(world.lose())
    assert [topic.name for topic in planned.rebuilt.machine.topics] == ["one", "three"]
    assert planned.rebuilt.begun == begun
    assert any(
        f"contradict the snapshot at {place(at)}" in each for each in planned.rebuilt.troubles
    )


async def test_a_snapshot_that_archives_contradict_is_refused_where_no_older_one_leads_as_far() -> (
    None
):
    world = await Voided().begin()
    newer = (await world.snapshot(cut=False)).position
    key = await world.archive(newer, world.head, voided=world.at["two"])
    with pytest.raises(RecoveryError, match=rf"{key} contradicts the snapshot"):
        await world.plan(world.lose())


async def test_an_archive_with_another_digest_is_left_out_where_others_lead_further() -> None:
    world = await Voided().begin()
    archive = decode_archive(await world.store.get(key := await world.before("", "four")))
    await world.store.delete([key])
    await world.put_archive(replace(archive, digest=bytes(16)))
    await world.before("", "two")
    await world.before("two", "five")
    assert await world.topics() == ["one", "two", "three", "four", "five"]
    assert any(key in trouble and "another machine" in trouble for trouble in world.troubles)


async def test_archives_of_two_logs_are_refused_and_named_and_before_that_is_recovered() -> None:
    world = await Voided().begin()
    archive = decode_archive(await world.store.get(key := await world.before("", "three")))
    await world.store.delete([key])
    other = replace(archive.entries[-1], payload=b"what the other log has there")
    entries = (*archive.entries[:-1], other)
    await world.put_archive(replace(archive, entries=entries, digest=bytes(16)))
    beside = await world.before("", "four")
    await world.before("four", "five")
    where = place(world.at["three"])
    with pytest.raises(RecoveryError, match=rf"{key} and {beside} differ .* {where}: .*two logs"):
        await world.topics()
    assert await world.topics(Until(position=world.at["two"])) == ["one", "two"]


async def test_archives_that_two_workers_wrote_of_one_log_are_no_trouble() -> None:
    world = await Voided().begin()
    for after, last in (
        ("", "two"),
        ("one", "four"),
        ("two", "three"),
        ("", "five"),
        ("four", "five"),
    ):
        await world.before(after, last)
    assert await world.topics() == ["one", "two", "three", "four", "five"]
    assert not world.troubles
