"""What waits to be archived: in batches without a hole, in little memory."""

import math

from hypothesis import given
from hypothesis import strategies as st

from broker.jobs.worker.archive_backlog import (
    OVERHEAD_BYTES,
    QUIET_S,
    Backlog,
    Digests,
    newest_of_chain,
)
from protocol.types import Position
from storage.formats.log_archive import ENTRY_BYTES, ArchivedEntry
from tests.storage.rows import UNHURRIED


def entry(place: int, length: int = 10) -> ArchivedEntry:
    return ArchivedEntry(Position(place), 7, place, False, bytes(length))


def digest(place: int) -> bytes:
    return place.to_bytes(16, "big")


def add(backlog: Backlog, *places: int, length: int = 10, changes: bool = True, at: float = 0.0):
    for place in places:
        backlog.add(entry(place, length), digest(place), changes=changes, now_s=at)


def taken(backlog: Backlog) -> list[tuple[int, int, list[int]]]:
    """Where each begins and ends, and what it has of its entries."""
    found = []
    while (batch := backlog.next(backlog.newest)) is not None:
        assert batch.digest == digest(batch.last)
        places: list[int] = [each.position for each in batch.entries or ()]
        found.append((batch.after, batch.last, places))
        backlog.done(batch)
    return found


def test_batches_begin_where_the_one_before_ended() -> None:
    backlog = Backlog(Position(5), object_bytes=2 * (ENTRY_BYTES + 10))
    add(backlog, 7, 8, 11)
    first = backlog.next(backlog.newest)
    add(backlog, 12)
    assert first is not None
    assert first.digest == digest(8)
    assert taken(backlog) == [(5, 8, [7, 8]), (8, 12, [11, 12])]
    assert (len(backlog), backlog.held_bytes, backlog.newest) == (0, 0, 12)


def test_a_batch_that_is_being_put_gets_no_more() -> None:
    backlog = Backlog()
    add(backlog, 1)
    batch = backlog.next(backlog.newest)
    add(backlog, 2)
    assert batch is not None
    assert batch.last == 1
    assert taken(backlog) == [(0, 1, [1]), (1, 2, [2])]


def test_what_comes_while_a_batch_is_being_put_waits_for_what_follows_it() -> None:
    backlog = Backlog()
    add(backlog, 1)
    last = backlog.newest
    batch = backlog.next(last)
    assert batch is not None
    add(backlog, 2)
    backlog.done(batch)
    assert backlog.next(last) is None
    add(backlog, 3)
    assert taken(backlog) == [(1, 3, [2, 3])], "one object a turn, and not two"


def test_what_changes_something_is_due_after_the_interval_and_what_does_not_after_a_minute() -> (
    None
):
    backlog = Backlog()
    assert backlog.due_s(put_s=100.0, every_s=1.0) == math.inf
    add(backlog, 1, changes=False, at=100.5)
    assert backlog.due_s(put_s=100.0, every_s=1.0) == 100.5 + QUIET_S
    add(backlog, 2, at=101.0)
    assert backlog.due_s(put_s=100.0, every_s=1.0) == 101.0
    assert backlog.age_s(103.0) == 2.5


def test_what_is_archived_already_is_left_out_of_the_middle_of_a_batch() -> None:
    backlog = Backlog(object_bytes=3 * (ENTRY_BYTES + 10))
    add(backlog, 1, 2, 3, 4, 5, 6)
    backlog.archived_to(Position(4))
    assert backlog.held_bytes == 2 * (OVERHEAD_BYTES + 10)
    assert taken(backlog) == [(4, 6, [5, 6])]


def test_beyond_the_bound_only_the_ends_of_batches_are_kept() -> None:
    backlog = Backlog(object_bytes=2 * (ENTRY_BYTES + 10), held_bytes_max=3 * OVERHEAD_BYTES)
    add(backlog, *range(1, 10))
    assert backlog.held_bytes <= 3 * OVERHEAD_BYTES + 40
    assert taken(backlog) == [(0, 2, [1, 2]), (2, 3, [3]), (3, 5, []), (5, 7, []), (7, 9, [])]
    add(backlog, 20)
    assert taken(backlog) == [(9, 20, [20])]


def test_a_batch_whose_name_is_taken_ends_later() -> None:
    backlog = Backlog(object_bytes=2 * (ENTRY_BYTES + 10))
    add(backlog, 1)
    batch = backlog.next(backlog.newest)
    assert batch is not None
    backlog.reach_further(batch)
    add(backlog, 2, 3)
    again = backlog.next(backlog.newest)
    assert again is batch
    backlog.reach_further(batch)
    assert taken(backlog) == [(0, 3, [1, 2, 3])]
    assert backlog.held_bytes == 0


def test_a_batch_that_was_joined_with_one_that_was_forgotten_is_read_again() -> None:
    backlog = Backlog(object_bytes=ENTRY_BYTES + 10, held_bytes_max=1)
    add(backlog, 1, 2)
    batch = backlog.next(backlog.newest)
    assert batch is not None
    backlog.reach_further(batch)
    joined = backlog.next(backlog.newest)
    assert joined is not None
    assert (joined.after, joined.last, joined.entries) == (0, 2, None)
    assert backlog.held_bytes == 0


def test_one_that_begins_anew_knows_nothing_of_before() -> None:
    backlog = Backlog()
    add(backlog, 1, 2)
    before = backlog.next(backlog.newest)
    backlog.begin(Position(50))
    add(backlog, 51)
    assert before is not None
    backlog.done(before)
    assert taken(backlog) == [(50, 51, [51])]


@UNHURRIED
@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 60)), max_size=40),
    st.integers(40, 300),
    st.integers(0, 4000),
    st.lists(st.integers(0, 40), max_size=6),
)
def test_every_entry_is_in_one_batch_and_the_batches_leave_no_hole(
    steps: list[tuple[int, int]], object_bytes: int, held_bytes_max: int, puts: list[int]
) -> None:
    backlog = Backlog(object_bytes=object_bytes, held_bytes_max=held_bytes_max)
    added, found = [0], []
    for number, (step, length) in enumerate(steps):
        added.append(added[-1] + step)
        add(backlog, added[-1], length=length)
        if number in puts:
            found += taken(backlog)
    found += taken(backlog)
    assert backlog.held_bytes == 0
    at = 0
    for after, last, places in found:
        assert after == at
        if places:
            assert places == [place for place in added if after < place <= last]
        at = last
    assert at == added[-1]


@UNHURRIED
@given(st.lists(st.integers(1, 9), max_size=30))
def test_digests_are_found_by_position(steps: list[int]) -> None:
    digests, place, places = Digests(), 1 << 48, set()
    for step in steps:
        place += step
        places.add(place)
        digests.add(Position(place), digest(place))
    for at in range((1 << 48) - 1, place + 2):
        assert digests.at(Position(at)) == (digest(at) if at in places else None)


def test_archives_lead_on_until_there_is_a_hole() -> None:
    ranges = [(0, 5), (3, 9), (9, 12), (12, 30), (13, 20), (40, 50)]
    found = [(Position(after), Position(last)) for after, last in ranges]
    for after, until, newest in (
        (4, 100, (12, 30)),
        (4, 29, (9, 12)),
        (0, 8, (0, 5)),
        (9, 12, (9, 12)),
        (30, 100, None),
        (31, 100, None),
        (39, 100, None),
        (41, 100, (40, 50)),
    ):
        assert newest_of_chain(Position(after), found, until=Position(until)) == newest
