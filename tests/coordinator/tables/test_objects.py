"""The table of chunks: counts of spans, gaps in the numbers, and slots that are used again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.snapshot.partitions import dump_objects, restore_objects
from coordinator.snapshot.stream import BlockReader, PartWriter
from coordinator.tables.objects import Moment, Objects
from protocol.types import Incarnation, Position
from storage.formats.spans import ObjectId, ObjectKind

A, B = Incarnation(100), Incarnation(200)


def add(chunks: Objects, incarnation: Incarnation, number: int, *, spans: int = 1) -> None:
    slot = chunks.slot(incarnation)
    chunks.add(slot, number, length=1000 + number, references=spans, moment=Moment(Position(5), 50))


def test_a_chunk_is_named_by_its_writers_slot():
    chunks = Objects()
    add(chunks, A, 3)
    assert chunks.id(chunks.slot(A), 3) == ObjectId(A, 3)
    assert chunks.length(ObjectId(A, 3)) == 1003


def test_a_chunk_is_in_use_until_its_last_span_lets_go():
    chunks = Objects()
    add(chunks, A, 0, spans=2)
    chunks.release(chunks.slot(A), 0, Moment(Position(7), 70))
    assert len(chunks) == 1
    chunks.release(chunks.slot(A), 0, Moment(Position(8), 80))
    assert len(chunks) == 0
    assert list(chunks.unreferenced()) == [(ObjectId(A, 0), Position(8), 80)]
    with pytest.raises(KeyError):
        chunks.length(ObjectId(A, 0))


@pytest.mark.parametrize("number", [2, 4, 6, 2**32 - 1])
def test_a_number_that_was_never_committed_has_no_length(number: int):
    chunks = Objects()
    add(chunks, A, 3)
    add(chunks, A, 5)
    with pytest.raises(KeyError):
        chunks.length(ObjectId(A, number))


def test_a_writer_that_never_committed_has_no_chunks():
    with pytest.raises(KeyError):
        Objects().length(ObjectId(A, 0))


def test_what_rows_point_at_is_told_with_its_length():
    chunks = Objects()
    assert [*chunks.referenced()] == []
    for number in (1, 2, 5):
        add(chunks, A, number, spans=2)
    add(chunks, B, 0)
    for _ in range(2):
        chunks.release(chunks.slot(A), 2, Moment(Position(7), 70))
    chunks.release(chunks.slot(A), 5, Moment(Position(8), 80))
    told = [(ObjectId(A, 1), 1001), (ObjectId(A, 5), 1005), (ObjectId(B, 0), 1000)]
    assert [*chunks.referenced()] == told


def test_a_writer_that_is_not_known_has_nothing_that_waits():
    assert Objects().waiting(A, ObjectKind.CHUNK, {1}) == set()


def test_the_slot_of_a_closed_writer_is_used_again_when_nothing_of_it_is_left():
    chunks = Objects()
    add(chunks, A, 0)
    slot = chunks.slot(A)
    chunks.close(A)
    assert chunks.slot(B) != slot
    assert chunks.length(ObjectId(A, 0)) == 1000
    chunks.release(slot, 0, Moment(Position(9), 90))
    chunks.doom(A, ObjectKind.CHUNK, [0], is_live=False)
    assert chunks.slot(Incarnation(300)) != slot
    chunks.forget(A, ObjectKind.CHUNK, {0})
    assert chunks.slot(Incarnation(400)) == slot


def test_closing_a_writer_without_chunks_is_nothing():
    chunks = Objects()
    chunks.close(A)
    chunks.slot(A)
    chunks.close(A)
    assert chunks.slot(B) == 0


def test_unreferenced_chunks_can_be_read_while_more_are_added():
    chunks = Objects()
    for number in range(3):
        add(chunks, A, number, spans=0)
    seen = 0
    for chunk, _, _ in chunks.unreferenced():
        add(chunks, B, chunk.number, spans=0)
        seen += 1
    assert seen == 3


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=40), st.randoms())
def test_counts_agree_with_a_dict(steps: list[tuple[int, int]], rng):
    """Objects with some spans, after a gap; then some spans, of any chunk, let go."""
    chunks = Objects()
    spans: dict[int, int] = {}
    number = -1
    for gap, count in steps:
        number += 1 + gap
        add(chunks, A, number, spans=count)
        if count:
            spans[number] = count
        if spans and rng.random() < 0.6:
            let_go = rng.choice(list(spans))
            chunks.release(chunks.slot(A), let_go, Moment(Position(1), 10))
            spans[let_go] -= 1
            if spans[let_go] == 0:
                del spans[let_go]
        assert len(chunks) == len(spans)
        for each in range(number + 2):
            if each in spans:
                assert chunks.length(ObjectId(A, each)) == 1000 + each
            else:
                with pytest.raises(KeyError):
                    chunks.length(ObjectId(A, each))


def test_objects_of_an_incarnation_are_counted_by_kind():
    objects = Objects()
    for kind in ObjectKind:
        slot = objects.slot(A, kind)
        objects.add(slot, 7, length=10 + kind, references=1, moment=Moment(Position(5), 50))
        assert objects.id(slot, 7) == ObjectId(A, 7, kind)
    assert [objects.length(ObjectId(A, 7, kind)) for kind in ObjectKind] == [10, 11, 12]
    objects.release(objects.slot(A, ObjectKind.SEGMENT), 7, Moment(Position(6), 60))
    found = [objects.is_referenced(ObjectId(A, 7, kind)) for kind in ObjectKind]
    assert found == [True, False, True]
    assert objects.slot(A) != objects.slot(A, ObjectKind.SEGMENT)


def test_what_is_doomed_is_no_longer_unreferenced_and_the_others_keep_their_order():
    objects = Objects()
    for number in range(5):
        add(objects, A, number, spans=0)
    objects.doom(A, ObjectKind.CHUNK, [3, 0], is_live=True)
    assert [each.object_id.number for each in objects.unreferenced()] == [1, 2, 4]
    assert [each.number for each in objects.doomed()] == [3, 0]
    assert (objects.unreferenced_count, objects.doomed_count) == (3, 2)
    assert objects.doomed_of(A, ObjectKind.CHUNK) == {0, 3}
    objects.forget(A, ObjectKind.CHUNK, {0, 1})
    assert [each.number for each in objects.doomed()] == [3]
    assert [each.object_id.number for each in objects.unreferenced()] == [1, 2, 4]
    assert (objects.unreferenced_count, objects.doomed_count) == (3, 1)


@given(
    st.integers(0, 12),
    st.lists(st.lists(st.integers(0, 14), max_size=5, unique=True), max_size=5),
)
def test_whichever_are_doomed_the_others_stay_as_they_were(count: int, dooms: list[list[int]]):
    """Some in front, some in the middle, some that never were: in the order in which they came."""
    objects = Objects()
    left = list(range(count))
    for number in left:
        add(objects, A, number)
    for number in left:
        objects.release(objects.slot(A), number, Moment(Position(100 + number), number))
    doomed: set[int] = set()
    for numbers in dooms:
        new = [number for number in numbers if number not in doomed]
        found = objects.find_unreferenced(A, ObjectKind.CHUNK, set(new))
        assert found == {n: (100 + n, n) for n in new if n in left}
        objects.doom(A, ObjectKind.CHUNK, new, is_live=True)
        doomed.update(new)
        left = [number for number in left if number not in new]
        assert [*objects.unreferenced()] == [(ObjectId(A, n), 100 + n, n) for n in left]
        early = [each.object_id.number for each in objects.unreferenced(through=Position(105))]
        assert early == [n for n in left if n <= 5]
        asked = set(range(0, 14, 3))
        assert objects.waiting(A, ObjectKind.CHUNK, asked) == asked & ({*left} | doomed)
        assert (objects.unreferenced_count, objects.doomed_count) == (len(left), len(doomed))


def test_of_numbers_in_front_that_nothing_points_at_no_trace_is_left():
    """Two tables that have the same in them give the same bytes, however they came to it."""
    released, restored = Objects(), Objects()
    for number in range(40):
        add(released, A, number)
    for number in (1, 2, 0, *range(4, 30)):
        released.release(released.slot(A), number, Moment(Position(6), 60))
    assert released.length(ObjectId(A, 3)) == 1003
    restore_objects(BlockReader(dumped(released)), restored)
    for objects in (released, restored):
        objects.release(objects.slot(A), 3, Moment(Position(7), 70))
        add(objects, A, 45)
        objects.doom(A, ObjectKind.CHUNK, [*range(30)], is_live=True)
        objects.forget(A, ObjectKind.CHUNK, {*range(30)})
    fresh = Objects()
    for number in (*range(30, 40), 45):
        add(fresh, A, number)
    assert dumped(released) == dumped(restored) == dumped(fresh)


def dumped(objects: Objects) -> list[bytes]:
    out = PartWriter()
    dump_objects(out, objects)
    return out.parts(Position(1), bytes(16))


def test_nothing_is_known_of_a_writer_that_never_wrote():
    objects = Objects()
    assert objects.find_unreferenced(A, ObjectKind.CHUNK, {0}) == {}
    assert objects.doomed_of(A, ObjectKind.CHUNK) == frozenset()
    assert not objects.is_referenced(ObjectId(A, 0))
    objects.forget(A, ObjectKind.CHUNK, {0})
    assert len(objects) == 0
