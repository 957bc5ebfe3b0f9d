"""What a check finds in a store where something is missing, damaged, or nobody's."""

import asyncio

import pytest

from broker.check import check_report, checking
from broker.check.comparison import DAMAGED, LENGTH, MISSING, MOVED
from broker.jobs.kinds import spill_plan
from coordinator.commands.entries import DeleteTopic
from coordinator.commands.job_commands import JobKind
from protocol import records
from storage.formats.page import digest_of_rows
from storage.formats.spans import Page, Span
from storage.stores.object_store import (
    ObjectNotFoundError,
    StoreRefusedError,
    StoreUnavailableError,
)
from tests.kit.faults import FaultyStore, refused


def ranges_of(found):
    return [
        (each.topic, each.partition, each.base_offset, each.next_offset) for each in found.ranges
    ]


def lose(world, key):
    del world.store._objects[key]


def damage(world, key, at=-1):
    data = bytearray(world.store._objects[key])
    data[at] ^= 1
    world.store._objects[key] = bytes(data)


@pytest.fixture
def small_pages(monkeypatch):
    monkeypatch.setattr(spill_plan, "ROWS_LEFT", 2)
    monkeypatch.setattr(spill_plan, "PAGE_ROWS_MIN", 3)


@pytest.mark.parametrize("deep", [False, True])
def test_nothing_is_wrong_with_a_cluster_whose_jobs_have_done_what_they_do(
    world, checked, deep, small_pages
):
    places = [world.place(name) for name in ("a", "b")]
    producer = world.producer("p")
    for place in places:
        world.fill(place, 30)
        world.produce((place, [(b"k", b"v")]), producer=producer)
    world.end(producer, commit=False)
    for kind in (JobKind.MERGE, JobKind.SPILL, JobKind.SNAPSHOT):
        world.fill(places[0], 10)
        assert world.round(kind, after_ms=2_000)
    found = checked(deep=deep)
    assert (found.wrong, found.ranges) == ([], [])
    assert (found.spans > 0) == deep
    assert sum(each.objects for each in found.counted.values()) == len(world.referenced())


def test_of_a_chunk_that_is_lost_topic_partition_and_offsets_are_told(world, checked):
    a, b = world.place("a"), world.place("b")
    world.fill(a, 3)
    world.produce((a, [(b"k", b"v")] * 2), (b, [(b"k", b"v")] * 5))
    world.fill(a, 3)
    lost = world.row(a).row(3)
    lose(world, lost.object_id.key)
    found = checked()
    (wrong,) = found.wrong
    assert (wrong.key, wrong.kind, wrong.trouble) == (lost.object_id.key, "chunk", MISSING)
    assert ranges_of(found) == [("a", 0, 3, 5), ("b", 0, 0, 5)]
    assert found.ranges[0].digest == digest_of_rows([lost])


def test_neighbours_that_are_lost_are_one_range(world, checked):
    place = world.place("a")
    world.fill(place, 6)
    for index in (1, 2, 4):
        lose(world, world.row(place).row(index).object_id.key)
    found = checked()
    assert ranges_of(found) == [("a", 0, 1, 3), ("a", 0, 4, 5)]
    assert [each.rows for each in found.ranges] == [2, 1]


def test_rows_of_pages_are_named_too_and_so_are_pages_that_are_lost(world, checked, small_pages):
    a, b = world.place("a"), world.place("b")
    world.fill(a, 40)
    assert world.round(JobKind.SPILL, after_ms=2_000)
    world.fill(b, 40)
    assert world.round(JobKind.SPILL, after_ms=2_000)
    inside = world.runner.run(world.rows(world.row(a)))[5]
    page = world.row(b).row(0)
    assert isinstance(page, Page)
    lose(world, inside.object_id.key)
    lose(world, page.object_id.key)
    found = checked()
    assert ranges_of(found) == [("a", 0, 5, 6), ("b", 0, 0, page.next_offset)]
    assert [each.is_page for each in found.ranges] == [False, True]
    assert found.ranges[1].digest == digest_of_rows([page])


def test_what_is_left_of_an_object_that_was_cut_is_not_lost(world, checked):
    a, b = world.place("a"), world.place("b")
    world.produce((a, [(b"k", b"v")]), (b, [(b"k", b"v")]))
    key = world.row(a).row(0).object_id.key
    world.store._objects[key] = world.store._objects[key][:-1]
    found = checked()
    assert [each.trouble for each in found.wrong] == [LENGTH]
    assert ranges_of(found) == [("b", 0, 0, 1)]


def test_a_bit_that_flipped_is_found_by_a_deep_check_alone(world, checked):
    a, b = world.place("a"), world.place("b")
    world.produce((a, [(b"k", b"v")]), (b, [(b"k", b"v")]))
    damage(world, world.row(a).row(0).object_id.key)
    assert checked().wrong == []
    found = checked(deep=True)
    assert [each.trouble for each in found.wrong] == [DAMAGED]
    assert ranges_of(found) == [("b", 0, 0, 1)]


def test_a_page_that_is_another_one_is_found_by_a_deep_check(world, checked, small_pages):
    place = world.place("a")
    world.fill(place, 40)
    assert world.round(JobKind.SPILL, after_ms=2_000)
    page = world.row(place).row(0)
    damage(world, page.object_id.key, page.start + page.length - 1)
    assert checked().wrong == []
    found = checked(deep=True)
    assert [(each.kind, each.trouble) for each in found.wrong] == [("index", DAMAGED)]
    assert ranges_of(found) == [("a", 0, 0, page.next_offset)]


@pytest.mark.parametrize("deep", [False, True])
def test_a_snapshot_with_a_part_that_is_gone_is_told(world, checked, deep):
    world.fill(world.place("a"), 3)
    world.snapshots(1)
    key = next(each for each in world.keys("snapshots/") if not each.endswith("manifest"))
    lose(world, key)
    found = checked(deep=deep)
    assert [(each.kind, each.trouble) for each in found.wrong] == [("snapshot", DAMAGED)]
    assert key in found.wrong[0].text


def test_a_bit_of_a_snapshot_is_found_by_a_deep_check(world, checked):
    world.fill(world.place("a"), 3)
    world.snapshots(1)
    damage(world, next(each for each in world.keys("snapshots/") if each.endswith("/0000")))
    assert checked().wrong == []
    assert [each.kind for each in checked(deep=True).wrong] == ["snapshot"]


def test_what_the_jobs_took_away_meanwhile_was_no_loss(world, checked):
    place = world.place("a")
    world.fill(place, 5)
    lose(world, world.row(place).row(2).object_id.key)

    def trim():
        world.trim(place, 5)

    assert checked(meanwhile=trim).wrong == []


def test_what_goes_while_many_that_are_missing_are_looked_for_again_was_no_loss(world, checked):
    place = world.place("a")
    world.fill(place, 20)
    for row in range(20):
        lose(world, world.row(place).row(row).object_id.key)
    whole, world.store = world.store, FaultyStore(world.store)

    async def trim(*_arguments):
        if world.partition(place).log_start < 15:
            world.trim(place, 15)

    world.store.before["get_range"] = trim
    found = checked()
    world.store = whole
    assert ranges_of(found) == [("a", 0, 15, 20)]
    assert len(found.wrong) == 5


@pytest.mark.parametrize("call", ["list_after", "get_range", "get"])
def test_one_answer_that_is_lost_does_not_end_a_check(world, checked, call):
    place = world.place("a")
    world.fill(place, 5)
    assert world.round(JobKind.SNAPSHOT, after_ms=2_000)
    lose(world, world.row(place).row(2).object_id.key)
    calls = 0

    async def every_fourth(*_arguments):
        nonlocal calls
        calls += 1
        if calls % 4 == 2:
            raise StoreUnavailableError("slow down")

    whole, world.store = world.store, FaultyStore(world.store)
    world.store.before[call] = every_fourth
    found = checked(deep=True)
    world.store = whole
    assert calls >= 2
    assert ranges_of(found) == [("a", 0, 2, 3)]


def test_how_far_a_long_check_is_is_told(world, checked, small_pages, monkeypatch):
    monkeypatch.setattr(checking, "TOLD_PAGES", 2)
    monkeypatch.setattr(checking, "TOLD_MISSING", 4)
    place = world.place("a")
    for _ in range(4):
        world.fill(place, 6)
        assert world.round(JobKind.SPILL, after_ms=2_000)
    world.fill(place, 6)
    for row in range(world.row(place).row_count):
        if isinstance(found := world.row(place).row(row), Span):
            lose(world, found.object_id.key)
    told = []
    checked(tell=told.append)
    assert any("missing objects" in line for line in told), told
    assert "read 2 pages, for what lies in them" in told


def test_what_was_put_and_not_committed_is_counted_and_so_is_what_is_nobodys(world, checked):
    world.fill(world.place("a"), 2)
    incarnation = world.agents[0]
    world._there(f"chunks/{incarnation:016x}/00000000.copy", b"123")
    world._there(f"segments/{1:016x}/00000000", b"12")
    found = checked()
    assert found.wrong == []
    assert found.unnamed["unnamed"] == 1
    assert (found.foreign.objects, found.foreign.bytes) == (1, 3)


def test_a_deleted_topic_loses_nothing_that_anybody_could_read(world, checked):
    place = world.place("a")
    world.fill(place, 2)
    lose(world, world.row(place).row(0).object_id.key)
    world.do(DeleteTopic(place[0]))
    found = checked()
    assert len(found.wrong) == 1
    assert found.ranges == []


@pytest.mark.parametrize("call", ["list_after", "get_range"])
def test_a_store_that_refuses_to_be_read_has_lost_nothing_by_that(world, checked, call):
    world.fill(world.place("a"), 3)
    whole, world.store = world.store, FaultyStore(world.store)
    world.store.before[call] = world.store.before["get"] = refused(StoreRefusedError("no right"))
    with pytest.raises(StoreRefusedError, match="no right"):
        checked(deep=True)
    world.store = whole
    assert checked(deep=True).wrong == []


def holed_segment(world):
    """The span of a segment with a hole behind its second batch, and where that batch begins in the object."""
    place = world.place("a")
    producer = world.producer("p")
    world.fill(place, 2)
    world.produce((place, [(b"k", b"v")] * 4), producer=producer)
    world.end(producer, commit=False)
    world.fill(place, 4)
    assert world.round(JobKind.MERGE, after_ms=2_000_000)
    (span,) = world.runner.run(world.rows(world.row(place)))
    first = records.read_header(world.store._objects[span.object_id.key], span.start)
    return span, span.start + first.size


def test_an_offset_in_a_segment_that_moved_within_a_hole_is_found_by_a_deep_check_and_not_lost(
    world, checked
):
    span, second = holed_segment(world)
    key = span.object_id.key
    assert checked(deep=True).wrong == []
    data = bytearray(world.store._objects[key])
    assert data[second + 7] == 1
    data[second + 7] = 5
    world.store._objects[key] = bytes(data)
    assert checked().wrong == []
    found = checked(deep=True)
    assert [(each.key, each.trouble) for each in found.wrong] == [(key, MOVED)]
    assert f"bytes {span.start} to " in found.wrong[0].text
    assert found.ranges == []
    told = [*check_report.lines(check_report.view(found))]
    assert any("--repair lets them be" in line for line in told)
    assert not any("No record that could be read is lost" in line for line in told)


def test_a_table_of_a_segment_that_is_not_to_be_had_is_no_damage_of_what_it_tells_of(
    world, checked
):
    span, _ = holed_segment(world)
    damage(world, span.object_id.key, -40)
    assert checked(deep=True).wrong == []


def test_many_pages_are_read_some_at_a_time_and_what_is_lost_among_them_is_found(
    world, checked, small_pages, monkeypatch
):
    monkeypatch.setattr(spill_plan, "PAGE_ROWS_MAX", 3)
    place = world.place("a")
    for _ in range(5):
        world.fill(place, 30)
        assert world.round(JobKind.SPILL, after_ms=700_000)
    pages = [world.row(place).row(at) for at in range(world.row(place).page_count)]
    assert len(pages) > 2 * checking.PAGES_AT_ONCE
    lost = [pages[at] for at in (3, 20, 21)]
    whole, world.store = world.store, FaultyStore(world.store)
    under_way, most, read = 0, 0, []

    async def before(key, *_range):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        read.append(key)
        await asyncio.sleep(0.01)
        if (key, *_range[:1]) in {(page.object_id.key, page.start) for page in lost}:
            under_way -= 1
            raise ObjectNotFoundError(key)

    async def after(*_arguments):
        nonlocal under_way
        under_way -= 1

    world.store.before["get_range"], world.store.after["get_range"] = before, after
    found = checked(deep=True)
    world.store = whole
    assert 4 < most <= checking.PAGES_AT_ONCE
    assert under_way == 0
    named = {each.key for each in found.wrong}
    assert named == {page.object_id.key for page in lost}
