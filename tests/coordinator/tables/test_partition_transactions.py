"""Queries of one partition that holds markers, open transactions and aborted ranges."""

from coordinator.commands.entries import DeleteTopic
from coordinator.commands.transaction_commands import (
    EndTransaction,
)
from coordinator.tables.partition import AbortedRange, Partition
from coordinator.tables.partitions import PURGE_ROWS_MAX
from coordinator.tables.rows import ROW_BYTES
from protocol.types import Incarnation, TopicId
from storage.formats.spans import MARKER_BYTES, Marker, Span
from tests.coordinator.machine.story import Story, batch, begun, plain, span
from txn.transactions import OF_EPOCH


def written(
    story: Story, agent: Incarnation, topic_id: TopicId, count: int, *, commit: bool
) -> None:
    """Transactions of one batch of ten records each, one after the other."""
    producer_id, epoch = story.producer(agent, "orders")
    for number in range(epoch, epoch + count):
        item = batch(producer_id, 0, epoch=number, timestamp=500, instance=OF_EPOCH)
        story.commit(agent, span(topic_id, item))
        story.do(agent, EndTransaction("orders", producer_id, number, commit, None), clock_ms=9000)


def three(*, commit: bool = True) -> Partition:
    story, agent, topic_id = begun()
    written(story, agent, topic_id, 3, commit=commit)
    return story.partition(topic_id)


def test_a_marker_takes_an_offset_and_a_row():
    partition = three()
    assert (partition.end_offset, partition.last_stable, partition.row_count) == (33, 33, 6)
    assert ROW_BYTES == 32
    rows = partition.rows_from(0, 9)
    assert [type(row) for row in rows] == [Span, Marker] * 3
    assert [row.base_offset for row in rows] == [0, 10, 11, 21, 22, 32]
    assert [row.next_offset for row in rows] == [10, 11, 21, 22, 32, 33]
    assert rows[1] == Marker(10, 0, 1, commit=True, timestamp=9000)


def test_an_offset_of_a_marker_is_found_at_the_marker():
    partition = three()
    found = [partition.find(offset) for offset in (9, 10, 11, 32, 33)]
    assert found == [0, 1, 2, 5, 6]


def test_producer_ids_and_epochs_of_markers_may_be_as_large_as_they_get():
    story, agent, topic_id = begun()
    story.machine.producer_ids.next = (1 << 62) - 1
    producer_id, epoch = story.producer(agent, "orders")
    story.commit(agent, span(topic_id, batch(producer_id, 0, instance=OF_EPOCH)))
    story.do(agent, EndTransaction("orders", producer_id, epoch, False, None))
    marker = story.partition(topic_id).row(1)
    assert isinstance(marker, Marker)
    assert marker.producer_id == (1 << 62) - 1


def test_bytes_of_markers_are_those_that_clients_get():
    partition = three()
    assert partition.bytes_between(10, 11, 1000) == MARKER_BYTES
    assert partition.bytes_between(0, 33, 1000) == 300 + 3 * MARKER_BYTES


def test_timestamps_of_markers_are_found_as_those_of_records():
    partition = three()
    assert partition.newest_timestamp() == 9000
    assert partition.first_row_with_timestamp(501) == 1
    assert partition.first_row_with_timestamp(500) == 0


def test_aborted_ranges_are_none_where_all_was_committed():
    assert three().aborted(0, 99) == []
    assert three().aborted_count == 0


def test_aborted_ranges_of_a_range_are_those_that_have_something_in_it():
    partition = three(commit=False)
    ranges = [AbortedRange(0, 0, 10), AbortedRange(0, 11, 21), AbortedRange(0, 22, 32)]
    assert partition.aborted(0, 33) == ranges
    for start in range(34):
        for end in range(34):
            expected = [each for each in ranges if each.last_offset >= start]
            expected = [each for each in expected if each.first_offset < end]
            assert partition.aborted(start, end) == expected


def test_a_purge_takes_markers_windows_and_aborted_ranges_in_slices():
    story, agent, topic_id = begun()
    count = 450
    written(story, agent, topic_id, count, commit=False)
    for producer_id in range(100, 200):
        story.commit(agent, span(topic_id, batch(producer_id, 0)))
    partitions = story.machine.partitions
    table = story.machine.topics
    counts = (partitions.row_count, partitions.window_count, partitions.aborted_count)
    assert counts == (2 * count + 100, 101, count)
    story.do(agent, DeleteTopic(topic_id))
    assert table.by_id(topic_id) is None
    slices = 0
    while (purge := story.machine.next_purge()) is not None:
        before = partitions.row_count + partitions.window_count + partitions.aborted_count
        story.do(agent, purge)
        slices += 1
        after = partitions.row_count + partitions.window_count + partitions.aborted_count
        assert 0 < before - after <= PURGE_ROWS_MAX
    assert (partitions.row_count, partitions.window_count, partitions.aborted_count) == (0, 0, 0)
    assert slices == 2
    assert len(story.machine.objects) == 0


def test_an_open_transaction_of_a_purged_topic_ends_without_a_trace():
    story, agent, topic_id = begun()
    assert story.producer(agent, "orders") == (0, 0)
    story.commit(agent, span(topic_id, plain(), batch(0, 0, instance=OF_EPOCH)))
    row = story.partition(topic_id)
    assert dict(row.open_transactions) == {0: 10}
    story.do(agent, DeleteTopic(topic_id))
    purge = story.machine.next_purge()
    assert purge is not None
    story.do(agent, purge)
    assert row.is_empty
    ended = story.do(agent, EndTransaction("orders", 0, 0, True, None))
    assert ended.marked == ()  # type: ignore[union-attr]
    assert row.is_empty
    assert story.machine.partitions.row_count == 0
