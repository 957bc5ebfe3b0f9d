"""Where `frazil consume` begins and ends, and what it still wants."""

import pytest

from broker.cli.records.arguments import place_of
from broker.cli.records.places import Bounds, Place, offsets_at
from broker.cli.records.reading import Reading

BOUNDS = {("t", 0): Bounds(10, 50), ("t", 1): Bounds(0, 0), ("u", 0): Bounds(0, 3)}
A, B = ("t", 0), ("u", 0)


def in_each(place: Place) -> list[int]:
    times = {("t", 0): 20, ("t", 1): None, ("u", 0): 0}
    found = offsets_at(place, BOUNDS, lambda time_ms: times if time_ms == 1000 else {})
    return [found[one] for one in BOUNDS]


@pytest.mark.parametrize(
    ("text", "offsets"),
    [
        ("earliest", [10, 0, 0]),
        ("Beginning", [10, 0, 0]),
        ("latest", [50, 0, 3]),
        ("end", [50, 0, 3]),
        ("20", [20, 0, 3]),
        ("2", [10, 0, 2]),
        ("-5", [45, 0, 0]),
        ("-0", [50, 0, 3]),
        ("@1000", [20, 0, 0]),
        ("@1970-01-01T00:00:01", [20, 0, 0]),
        ("@1970-01-01T02:00:01+02:00", [20, 0, 0]),
    ],
)
def test_a_place_is_an_offset_in_every_partition(text, offsets):
    assert in_each(place_of(text)) == offsets


@pytest.mark.parametrize(
    "text", ["", "newest", "+5", "--5", "1.5", "@", "@yesterday", "٣", "9" * 19]
)
def test_what_is_no_place_is_refused_with_examples(text):
    with pytest.raises(ValueError, match="2026-01-31T08:00:00"):
        place_of(text)


def test_so_many_records_are_taken_and_no_more():
    reading = Reading(limit=2, stops=False)
    reading.begin([A, B])
    taken = [reading.takes(one, offset) for one, offset in ((A, 0), (B, 0), (A, 1))]
    assert taken == [True, True, False]
    assert reading.is_done()
    assert reading.taken() == {A: 1, B: 1}
    assert reading.taken() == {}


def test_partitions_are_read_to_their_ends():
    reading = Reading(limit=None, stops=True, ends={A: 5, B: 3})
    reading.begin([A, B])
    assert reading.takes(A, 4)
    assert not reading.is_done()
    assert not reading.takes(B, 3), "it is behind the end, as after a gap"
    assert reading.is_done()


def test_a_partition_that_has_no_more_ends_before_its_end():
    """Markers of transactions are offsets that nobody is given."""
    reading = Reading(limit=None, stops=True, ends={A: 5})
    reading.begin([A])
    assert reading.takes(A, 3)
    reading.at_end(A)
    assert reading.is_done()


def test_without_an_end_the_end_of_a_partition_is_waited_at():
    reading = Reading(limit=None, stops=False)
    reading.begin([A])
    reading.at_end(A)
    assert not reading.is_done()


def test_a_member_is_done_when_what_it_was_given_is_read_and_not_before_it_was_given_any():
    reading = Reading(limit=None, stops=True)
    assert not reading.is_done()
    reading.begin([A])
    reading.begin([B])
    reading.at_end(A)
    assert not reading.is_done()
    reading.leave([B])
    assert reading.is_done()


def test_a_member_whose_partitions_are_shared_anew_waits_for_its_next_ones():
    reading = Reading(limit=None, stops=True)
    reading.begin([A])
    reading.leave([A])
    assert not reading.is_done()
    reading.begin([B])
    reading.at_end(B)
    assert reading.is_done()


def test_of_partitions_that_were_given_away_nothing_is_committed():
    reading = Reading(limit=None, stops=False)
    reading.begin([A, B])
    assert reading.takes(A, 0)
    assert reading.takes(B, 0)
    reading.leave([B])
    assert reading.taken() == {A: 1}


def test_with_no_partition_to_read_it_is_done():
    reading = Reading(limit=None, stops=True, ends={A: 0})
    reading.begin([])
    assert reading.is_done()


def test_who_goes_on_begins_with_a_record_that_could_not_be_written():
    reading = Reading(limit=None, stops=False)
    reading.begin([A, B])
    assert reading.takes(A, 11)
    assert reading.takes(B, 2)
    assert reading.takes(A, 12)
    reading.stops_at(A, 12)
    assert reading.taken() == {A: 12, B: 3}
