"""Which archives lead on from a snapshot."""

import random

import pytest

from broker.recovery.archive_chain import ArchiveRange, FurthestFirst, beyond, overlapping
from protocol.types import Position


def ranges(*pairs: tuple[int, int]) -> list[ArchiveRange]:
    return [ArchiveRange(Position(after), Position(last)) for after, last in pairs]


def chain(given: list[ArchiveRange], at: int) -> list[ArchiveRange]:
    """As a recovery takes them."""
    found, links = list[ArchiveRange](), FurthestFirst(given)
    while (link := links.next(Position(at))) is not None:
        found.append(link)
        at = link.last
    return found


@pytest.mark.parametrize(
    ("given", "at", "chosen"),
    [
        ([], 5, []),
        ([(5, 9)], 5, [(5, 9)]),
        ([(0, 5), (5, 9), (9, 12)], 0, [(0, 5), (5, 9), (9, 12)]),
        ([(0, 5), (5, 9), (9, 12)], 7, [(5, 9), (9, 12)]),
        ([(0, 5), (7, 9)], 0, [(0, 5)]),
        ([(7, 9)], 5, []),
        ([(0, 12), (0, 5), (5, 9)], 0, [(0, 12)]),
        ([(0, 5), (3, 9), (4, 7), (8, 10)], 0, [(0, 5), (3, 9), (8, 10)]),
    ],
)
def test_as_few_archives_as_possible_reach_on_without_a_hole(
    given: list[tuple[int, int]], at: int, chosen: list[tuple[int, int]]
) -> None:
    assert chain(ranges(*given), at) == ranges(*chosen)


def test_what_lies_behind_a_hole_is_told() -> None:
    given = ranges((7, 9), (0, 5), (9, 12))
    assert beyond(given, Position(5)) == ranges((7, 9), (9, 12))


def test_of_those_that_lead_on_the_one_that_ends_last_comes_first_and_each_of_them_once() -> None:
    links = FurthestFirst(ranges((0, 5), (2, 7), (1, 6), (3, 9)))
    given = [links.next(Position(2)) for _ in range(4)]
    assert given == [*ranges((2, 7), (1, 6), (0, 5)), None]
    assert links.next(Position(3)) == ranges((3, 9))[0]


def test_archives_overlap_where_they_have_a_position_in_common() -> None:
    given = ranges((0, 5), (4, 7), (7, 9), (9, 12), (3, 12))
    assert overlapping(given, Position(5), Position(8)) == ranges((3, 12), (4, 7), (7, 9))
    assert overlapping(given, Position(5), Position(5)) == []


@pytest.mark.parametrize("seed", range(50))
def test_a_chain_reaches_as_far_as_all_archives_together(seed: int) -> None:
    chance = random.Random(seed)
    pairs = [(after, after + chance.randint(1, 4)) for after in chance.choices(range(30), k=15)]
    at = chance.randrange(10)
    covered = {place for after, last in pairs for place in range(after + 1, last + 1)}
    end = at
    while end + 1 in covered:
        end += 1
    found = chain(ranges(*pairs), at)
    reached = at
    for link in found:
        assert link.after <= reached < link.last
        reached = link.last
    assert reached == end
