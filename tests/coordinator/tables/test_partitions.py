"""What readers ask a partition: spans by offset and by timestamp, and bytes between offsets."""

from hypothesis import given
from hypothesis import strategies as st

from coordinator.tables.partitions import Partition
from tests.coordinator.machine.story import begun, plain, span


def partition_of(*spans: tuple[int, int, int]) -> Partition:
    """Spans of (records, bytes, newest timestamp)."""
    story, agent, topic_id = begun()
    for records, length, timestamp in spans:
        story.commit(agent, span(topic_id, plain(length, records, timestamp)))
    return story.partition(topic_id)


def test_an_empty_partition_has_nothing_anywhere():
    partition = partition_of()
    assert (partition.log_start, partition.end_offset, partition.row_count) == (0, 0, 0)
    assert partition.find(0) == 0
    assert partition.rows_from(0, 10) == []
    assert partition.bytes_between(0, 100, 100) == 0
    assert partition.newest_timestamp() == -1
    assert partition.first_row_with_timestamp(-1) == 0


def test_the_span_of_an_offset_is_found():
    partition = partition_of((10, 100, 0), (1, 100, 0), (5, 100, 0))
    found = [partition.find(offset) for offset in range(18)]
    assert found == [0] * 10 + [1] + [2] * 5 + [3, 3]


def test_rows_from_an_offset_begin_with_the_one_that_holds_it():
    partition = partition_of((10, 100, 0), (10, 100, 0), (10, 100, 0))
    assert [each.base_offset for each in partition.rows_from(15, 9)] == [10, 20]
    assert [each.base_offset for each in partition.rows_from(0, 2)] == [0, 10]
    assert partition.rows_from(30, 2) == []


def test_bytes_between_offsets_count_parts_of_spans_in_proportion():
    partition = partition_of((10, 100, 0), (10, 1000, 0))
    assert partition.bytes_between(0, 20, 10_000) == 1100
    assert partition.bytes_between(5, 20, 10_000) == 1050
    assert partition.bytes_between(5, 15, 10_000) == 550
    assert partition.bytes_between(20, 20, 10_000) == 0
    assert partition.bytes_between(19, 20, 10_000) == 100


def test_bytes_are_not_counted_beyond_what_is_enough():
    partition = partition_of((10, 100, 0), (10, 1000, 0), (10, 1000, 0))
    assert partition.bytes_between(0, 30, 50) == 100


def test_the_first_span_of_a_timestamp_is_found_though_they_are_not_sorted():
    partition = partition_of((1, 1, 50), (1, 1, 90), (1, 1, 70), (1, 1, 100))
    found = [partition.first_row_with_timestamp(timestamp) for timestamp in (0, 51, 91, 101)]
    assert found == [0, 1, 3, 4]


def test_the_newest_timestamp_need_not_be_the_last():
    assert partition_of((1, 1, 50), (1, 1, 90), (1, 1, 70)).newest_timestamp() == 90


def test_a_partition_of_a_deleted_topic_that_somebody_holds_does_not_change():
    story, agent, topic_id = begun()
    held = story.partition(topic_id)
    story.commit(agent, span(topic_id, plain()))
    assert held is story.partition(topic_id)
    assert held.end_offset == 10


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 50), st.integers(-1, 9)), max_size=12))
def test_queries_agree_with_a_list_of_records(spans: list[tuple[int, int, int]]):
    partition = partition_of(*spans)
    starts = [sum(records for records, _, _ in spans[:index]) for index in range(len(spans) + 1)]
    assert partition.end_offset == starts[-1]
    for offset in range(starts[-1] + 2):
        ends = starts[1:]
        assert partition.find(offset) == next(
            (index for index, end in enumerate(ends) if end > offset), len(spans)
        )
    for timestamp in range(-1, 11):
        assert partition.first_row_with_timestamp(timestamp) == next(
            (index for index, each in enumerate(spans) if each[2] >= timestamp), len(spans)
        )
    assert partition.newest_timestamp() == max((each[2] for each in spans), default=-1)
    read = partition.rows_from(0, len(spans))
    assert [(each.records, each.length, each.timestamp_max) for each in read] == spans
    assert [each.base_offset for each in read] == starts[:-1]
