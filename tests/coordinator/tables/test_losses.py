"""Losses of a partition: in order, apart from each other, and not more than there may be."""

from coordinator.tables.losses import LOSSES_MAX, Loss, Losses
from protocol.types import TopicId

PLACE = (TopicId(bytes(16)), 3)


def added(*losses: tuple[int, int, int], log_start: int = 0) -> list[Loss]:
    table = Losses()
    for each in losses:
        table.add(PLACE, Loss(*each), log_start=log_start)
    return [*table.rows[PLACE]]


def test_neighbours_and_those_that_overlap_become_one_with_the_newer_time() -> None:
    assert added((10, 20, 1), (30, 40, 2), (20, 30, 3)) == [(10, 40, 3)]
    assert added((10, 20, 5), (15, 17, 2)) == [(10, 20, 5)]
    assert added((10, 20, 1), (21, 30, 2)) == [(10, 20, 1), (21, 30, 2)]


def test_beyond_the_bound_those_at_the_lowest_offsets_are_forgotten() -> None:
    found = added(*[(10 * number, 10 * number + 1, 1) for number in range(LOSSES_MAX + 5)])
    assert len(found) == LOSSES_MAX
    assert found[0].base_offset == 50


def test_what_lies_before_the_logs_start_is_forgotten() -> None:
    assert added((0, 5, 1), (10, 20, 1), (30, 40, 1), log_start=5) == [(10, 20, 1), (30, 40, 1)]


def test_those_that_reach_into_a_range_are_found_whole() -> None:
    table = Losses()
    for base_offset in (0, 10, 20):
        table.add(PLACE, Loss(base_offset, base_offset + 5, 1), log_start=0)
    assert [each.base_offset for each in table.between(PLACE, 4, 11)] == [0, 10]
    assert [each.base_offset for each in table.between(PLACE, 5, 10)] == []
    assert table.between((PLACE[0], 4), 0, 100) == []
