"""An agent declares lost what is, and nothing that can be read."""

import json

import pytest

from broker.check.losses import Losing, LossError, NamedLoss, parse
from broker.jobs.kinds import spill_plan
from coordinator.commands.job_commands import JobKind
from protocol.types import ERA
from storage.formats.cluster_identity import ClusterIdentity
from storage.formats.log_archive import ArchivedEntry, LogArchive, archive_key, encode_archive
from storage.formats.spans import Page
from storage.stores.object_store import StoreRefusedError
from tests.kit.faults import FaultyStore, refused


@pytest.fixture(autouse=True)
def small_pages(monkeypatch):
    monkeypatch.setattr(spill_plan, "ROWS_LEFT", 2)
    monkeypatch.setattr(spill_plan, "PAGE_ROWS_MIN", 3)


def named(found) -> NamedLoss:
    return NamedLoss(
        found.topic_id,
        found.partition,
        found.base_offset,
        found.next_offset,
        found.rows,
        found.digest,
        found.page_body,
    )


def declare(world, loss, *, store=None, before=lambda: None, agent=1):
    async def propose(command):
        before()
        return world.do(command, agent)

    losing = Losing(
        store=store or world.store,
        machine=world.machine,
        identity=ClusterIdentity("jobs", ERA),
        incarnation=lambda: world.agents[agent],
        propose=propose,
    )
    world.runner.run(losing.declare(loss))


def lose(world, row):
    del world.store._objects[row.object_id.key]


def repair(world, checked, **more):
    for found in checked(deep=True).ranges:
        declare(world, named(found), **more)


def offsets(world, place, **more):
    return [record.offset for record in world.records(place, **more)]


def test_consumers_go_on_behind_what_was_declared_lost(world, checked):
    place = world.place("a")
    world.fill(place, 6)
    for row in world.row(place).rows_from(2, 2):
        lose(world, row)
    repair(world, checked)
    assert offsets(world, place) == [0, 1, 4, 5]
    found = checked(deep=True)
    assert (found.wrong, found.ranges) == ([], [])


def test_jobs_go_on_with_a_partition_that_has_lost_something(world, checked):
    place = world.place("a", cleanup_policy="compact")
    world.cycle(place, 30, keys=3)
    lose(world, world.row(place).row(29))
    repair(world, checked)
    assert world.round(JobKind.MERGE, after_ms=2_000)
    assert offsets(world, place) == list(range(29))
    assert world.round(JobKind.SPILL, after_ms=2_000)
    assert world.round(JobKind.COMPACT, after_ms=2_000)
    assert offsets(world, place) == [26, 27, 28]
    assert checked(deep=True).wrong == []


def test_of_a_page_only_the_rows_that_are_lost_go(world, checked):
    place = world.place("a")
    world.fill(place, 20)
    assert world.round(JobKind.SPILL, after_ms=2_000)
    lose(world, world.runner.run(world.rows(world.row(place)))[7])
    repair(world, checked)
    assert offsets(world, place) == [each for each in range(20) if each != 7]
    assert checked(deep=True).wrong == []


def test_behind_a_page_that_is_lost_nobody_takes_later_transactions_for_aborted(
    world, checked, monkeypatch
):
    monkeypatch.setattr(spill_plan, "PAGE_ROWS_MAX", 5)
    place = world.place("a")
    producer = world.producer("p")
    world.produce((place, [(b"k", b"aborted")]), producer=producer)
    world.fill(place, 6)
    world.end(producer, commit=False)
    world.produce((place, [(b"k", b"committed")]), producer=producer)
    world.end(producer, commit=True)
    world.fill(place, 6)
    assert world.round(JobKind.SPILL, after_ms=2_000)
    (ended,) = world.row(place).aborted(0, world.row(place).end_offset)
    pages = [row for row in world.row(place).rows_from(0, 9) if isinstance(row, Page)]
    first = pages[0]
    page = next(row for row in pages if row.next_offset > ended.last_offset)
    assert ended.first_offset < first.next_offset <= page.base_offset
    # All pages lie in one object: only this one is damaged.
    data = bytearray(world.store._objects[page.object_id.key])
    data[page.start] ^= 1
    world.store._objects[page.object_id.key] = bytes(data)
    (found,) = checked(deep=True).ranges
    assert (found.base_offset, found.next_offset) == (page.base_offset, page.next_offset)
    later = page.next_offset
    world.produce((place, [(b"k", b"later")]), producer=producer)
    world.end(producer, commit=True)
    declare(world, named(found))
    assert b"aborted" not in world.values(place)
    assert world.values(place)[-1] == b"later"
    assert next(each for each in offsets(world, place) if each >= page.base_offset) == later
    assert checked(deep=True).wrong == []


def test_pages_of_segments_are_found_again_and_nothing_is_lost(world, checked):
    places = [world.place(name) for name in ("a", "b")]
    # Each span of a segment is of a round of its own.
    written = {place: [] for place in places}
    for _ in range(8):
        for place in places:
            written[place] += world.fill(place, 8, size=400)
        assert world.round(JobKind.MERGE, after_ms=2_000)
    assert world.round(JobKind.SPILL, after_ms=2_000)
    assert {world.row(place).page_count for place in places} == {1}
    (key,) = world.keys("indexes/")
    del world.store._objects[key]
    found = checked()
    assert [each.is_page for each in found.ranges] == [True, True]
    assert all(each.page_body for each in found.ranges)
    with pytest.raises(LossError, match=r"holds no job .frazil job list names"):
        declare(world, named(found.ranges[0]), agent=1)
    repair(world, checked, agent=0)
    for place in places:
        assert world.values(place) == written[place]
    assert checked(deep=True).wrong == []


def test_what_can_be_read_is_not_declared_lost(world, checked):
    place = world.place("a")
    world.fill(place, 6)
    lost = world.row(place).row(2)
    data = world.store._objects[lost.object_id.key]
    lose(world, lost)
    (found,) = checked().ranges
    world.store._objects[lost.object_id.key] = data
    with pytest.raises(LossError, match="offsets 2 to 2 can be read"):
        declare(world, named(found))
    assert offsets(world, place) == list(range(6))


def test_a_store_that_refuses_everything_has_lost_nothing(world, checked):
    place = world.place("a")
    world.fill(place, 3)
    lose(world, world.row(place).row(1))
    (found,) = checked().ranges
    shut = FaultyStore(world.store)
    shut.before["*"] = refused(StoreRefusedError("no right"))
    with pytest.raises(StoreRefusedError):
        declare(world, named(found), store=shut)
    assert world.row(place).row_count == 3


def test_rows_that_are_others_now_are_left_alone(world, checked):
    place = world.place("a")
    world.fill(place, 6)
    lose(world, world.row(place).row(5))
    (found,) = checked().ranges
    declare(world, named(found))
    with pytest.raises(LossError, match="other rows lie there now"):
        declare(world, named(found))


def test_a_job_that_takes_the_number_first_makes_it_try_the_next(world, checked):
    bad, good = world.place("bad"), world.place("good")
    world.claim(world.agents[1])
    world.take_over()
    for place in (bad, good):
        world.fill(place, 6)
    lose(world, world.row(bad).row(0))
    (found,) = [each for each in checked().ranges if each.topic == "bad"]
    segments = iter([True])

    def number_is_taken():
        if next(segments, False):
            row = world.machine.incarnations.get(world.agents[1])
            row.segment_last += 1

    declare(world, named(found), before=number_is_taken)
    assert offsets(world, bad) == list(range(1, 6))


@pytest.mark.parametrize(
    "change",
    [
        {"partition": "0"},
        {"rows": True},
        {"base_offset": -1},
        {"digest": "zz"},
        {"digest": "00"},
        {"topic_id": None},
        {"page_body": "?"},
    ],
    ids=str,
)
def test_what_does_not_name_rows_is_told_to(change):
    body = {
        "topic_id": "00" * 16,
        "partition": 0,
        "base_offset": 1,
        "next_offset": 2,
        "rows": 1,
        "digest": "01" * 16,
    }
    assert parse(json.dumps(body)).rows == 1
    with pytest.raises(ValueError, match=r"send|are numbers|have 16 bytes"):
        parse(json.dumps(body | change))


def archive(world, after: int = 0, *, skip: int = 0) -> None:
    """What the world's log has got, as whoever holds the jobs puts it, in two objects; `skip`: without so many
    entries between them."""
    logged = [ArchivedEntry(*each[:3], False, each.payload) for each in world.logged]
    logged = [each for each in logged if each.position > after]
    half = len(logged) // 2
    second = logged[half + skip - 1].position
    for begin, some in ((after, logged[:half]), (second, logged[half + skip :])):
        put = LogArchive("jobs", begin, some[-1].position, bytes(16), tuple(some))
        data = encode_archive(put)
        world.run(world.store.put_new(archive_key(begin, some[-1].position), [data]))


def spilled_with_ends(world):
    """A page of spans in chunks and of ends of transactions; its object is lost."""
    place = world.place("a")
    producer = world.producer("p")
    world.produce((place, [(b"k", b"aborted")]), producer=producer)
    world.end(producer, commit=False)
    written = world.fill(place, 20)
    assert world.round(JobKind.SPILL, after_ms=2_000)
    (key,) = world.keys("indexes/")
    assert world.row(place).page_count > 0
    return place, written, key


def test_pages_of_chunks_and_ends_of_transactions_are_found_again_in_the_logs_past(world, checked):
    place, written, key = spilled_with_ends(world)
    archive(world)
    del world.store._objects[key]
    found = checked()
    assert [bool(each.page_body) for each in found.ranges if each.is_page] == [True]
    repair(world, checked, agent=0)
    assert world.values(place) == written
    assert b"aborted" not in world.values(place)
    assert checked(deep=True).wrong == []


def test_pages_are_found_again_behind_the_snapshot_that_came_before_them(world, checked):
    world.place("b")
    for _ in range(2):
        assert world.round(JobKind.SNAPSHOT, after_ms=2_000_000)
    older = world.machine.snapshots.published[-1].position
    place, written, key = spilled_with_ends(world)
    archive(world, older)
    del world.store._objects[key]
    repair(world, checked, agent=0)
    assert world.values(place) == written


def test_pages_behind_a_hole_in_the_archives_are_not_found(world, checked):
    place, _, key = spilled_with_ends(world)
    archive(world, skip=2)
    del world.store._objects[key]
    found = checked()
    assert [each.page_body for each in found.ranges] == [b""]
    repair(world, checked, agent=0)
    assert offsets(world, place)[0] > 0
