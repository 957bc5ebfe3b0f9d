"""Which aborted ranges are kept while rows move into segments, into pages, and away."""

from collections.abc import Sequence

import pytest

from coordinator.commands.entries import DONE
from coordinator.commands.job_commands import RowsMoved, Trim, TrimLogs
from coordinator.commands.transaction_commands import (
    EndTransaction,
)
from coordinator.tables.partition import AbortedRange, Partition
from protocol.errors import ErrorCode
from tests.coordinator.machine.job_story import SPAN_BYTES, JobStory
from tests.coordinator.machine.story import batch
from txn.transactions import OF_EPOCH

MOVED = RowsMoved((ErrorCode.NONE,))


class AbortedStory(JobStory):
    """Transactions of several ids, the batches of which are as long as is asked for."""

    def begin(self, name: str, *records: int) -> None:
        self.producer(self.agent, name)
        self.go_on(name, *records)

    def go_on(self, name: str, *records: int, sequence: int = 0) -> None:
        row = self.machine.transactions.get(name)
        assert row is not None
        producer_id, epoch = row.txn_metadata.producer_id, row.txn_metadata.epoch
        for count in records:
            item = batch(producer_id, sequence, count, epoch=epoch, instance=OF_EPOCH)
            self.send(item._replace(length=SPAN_BYTES))
            sequence += count

    def abort(self, name: str) -> None:
        row = self.machine.transactions.get(name)
        assert row is not None
        producer_id, epoch = row.txn_metadata.producer_id, row.txn_metadata.epoch
        self.do(self.agent, EndTransaction(name, producer_id, epoch, commit=False, proof=None))

    def trim(self, offset: int) -> None:
        self.do(self.agent, TrimLogs((Trim(self.topic_id, 0, offset),)))

    def ranges(self) -> list[tuple[int, int]]:
        return [(first, last) for _, first, last in self.found()]

    def found(self) -> Sequence[AbortedRange]:
        found = self.row.aborted(self.row.log_start, self.row.end_offset)
        assert self.row.aborted_count == self.machine.partitions.aborted_count
        return found


def aborted_behind(before: int) -> AbortedStory:
    """`before` records of a row, two rows of 10 of an aborted transaction, a marker, a row."""
    story = AbortedStory()
    story.produce(before)
    story.begin("pay", 10, 10)
    story.abort("pay")
    story.produce(5)
    assert story.ranges() == [(before, before + 20)]
    return story


def test_a_range_goes_when_all_of_its_rows_are_in_segments():
    story = aborted_behind(7)
    assert story.merge(1, 3) == MOVED
    assert story.ranges() == []


def test_a_range_stays_while_one_of_its_rows_is_in_a_chunk():
    for first, count in ((1, 1), (2, 2)):
        story = aborted_behind(7)
        assert story.merge(first, count) == MOVED
        assert story.ranges() == [(7, 27)]


def test_one_record_in_a_chunk_is_enough():
    story = AbortedStory()
    story.begin("pay", 1, 10)
    story.abort("pay")
    assert story.merge(1, 2) == MOVED
    assert story.ranges() == [(0, 11)]
    assert story.merge(0, 1) == MOVED
    assert story.ranges() == []


def test_a_row_of_others_in_a_chunk_within_the_range_keeps_it():
    """Whose batches are in a row is not known, so any row counts."""
    story = AbortedStory()
    story.begin("pay", 10)
    story.produce(3)
    story.abort("pay")
    assert story.merge(0, 1) == MOVED
    assert story.ranges() == [(0, 13)]


def test_ranges_that_have_nothing_in_what_moved_stay():
    story = AbortedStory()
    story.begin("pay", 10)
    story.abort("pay")
    story.begin("ship", 10)
    story.abort("ship")
    assert story.ranges() == [(0, 10), (11, 21)]
    assert story.merge(2, 2) == MOVED
    assert story.ranges() == [(0, 10)]
    assert story.merge(0, 2) == MOVED
    assert story.ranges() == []


def test_of_ranges_that_lie_in_each_other_only_the_covered_one_goes():
    story = AbortedStory()
    story.begin("pay", 10)
    story.begin("ship", 10)
    story.abort("ship")
    story.begin("bill", 10)
    story.abort("bill")
    story.abort("pay")
    assert sorted(story.ranges()) == [(0, 32), (10, 20), (21, 31)]
    # "pay" has ended, so all is stable. "ship" has its rows in a segment then.
    assert story.merge(1, 2) == MOVED
    assert sorted(story.ranges()) == [(0, 32), (21, 31)]
    assert story.merge(2, 2) == MOVED
    assert story.ranges() == [(0, 32)]
    assert story.merge(0, 4) == MOVED
    assert story.ranges() == []


def test_a_range_that_stays_may_have_its_marker_between_those_of_ranges_that_go():
    story = AbortedStory()
    story.begin("pay", 10)
    story.begin("ship", 10)
    story.abort("ship")
    story.abort("pay")
    story.begin("bill", 10)
    story.abort("bill")
    kept = (0, 21)
    assert sorted(story.ranges()) == [kept, (10, 20), (22, 32)]
    assert story.merge(1, 5) == MOVED
    assert story.ranges() == [kept]
    assert [each.last_offset for each in story.row.aborted(5, 6)] == [21]


def test_a_page_with_chunks_keeps_the_range_and_one_of_segments_does_not():
    story = aborted_behind(7)
    story.spill(2, 2)
    assert story.merge(1, 1) == MOVED
    assert story.ranges() == [(7, 27)]
    story = aborted_behind(7)
    story.merge(2, 2)
    story.spill(2, 1)
    assert story.merge(1, 1) == MOVED
    assert story.ranges() == []


def test_a_page_that_begins_with_the_marker_and_has_chunks_keeps_the_range():
    story = aborted_behind(7)
    story.spill(3, 2)
    assert story.merge(1, 2) == MOVED
    assert story.ranges() == [(7, 27)]
    assert story.recall(27) == DONE
    assert story.merge(2, 1) == MOVED
    assert story.ranges() == []


@pytest.mark.parametrize(("first", "looked_at"), [(4, []), (10, [9, 11, 12]), (20, [])])
def test_no_more_rows_are_looked_at_than_those_of_the_ranges(
    monkeypatch: pytest.MonkeyPatch, first: int, looked_at: list[int]
):
    """Rows of one record are in segments, but for one in the middle of an aborted transaction
    (9 to 12) and its marker; then a row goes into another segment."""
    story = AbortedStory()
    story.produce(*[1] * 9)
    story.begin("pay", 1, 1, 1)
    story.abort("pay")
    story.produce(*[1] * 9)
    for index in (*range(10), 11, *range(13, 22)):
        assert story.merge(index, 1) == MOVED
    looked: list[int] = []
    is_raw = Partition._is_raw

    def spy(partition: Partition, index: int) -> bool:
        looked.append(index)
        return is_raw(partition, index)

    monkeypatch.setattr(Partition, "_is_raw", spy)
    assert story.merge(first, 1) == MOVED
    assert looked == looked_at


@pytest.mark.parametrize(("offset", "kept"), [(7, True), (27, True), (28, False)])
def test_a_range_goes_when_its_marker_is_before_the_log_start(offset: int, kept: bool):
    story = aborted_behind(7)
    story.trim(offset)
    assert story.ranges() == [(7, 27)] * kept
    assert story.row.aborted_count == kept


def test_ranges_are_found_behind_a_log_start_within_an_open_transaction():
    story = AbortedStory()
    story.begin("pay", 10)
    story.begin("ship", 10)
    story.abort("ship")
    story.trim(5)
    story.produce(3)
    story.abort("pay")
    assert story.row.last_stable == story.row.end_offset == 25
    assert sorted(story.ranges()) == [(0, 24), (10, 20)]
    assert [each.last_offset for each in story.row.aborted(5, 8)] == [24]


def test_bytes_of_segments_go_with_them():
    story = JobStory(10, 10, 10)
    story.merge(0, 2)
    assert (story.row.data_bytes, story.row.segment_bytes) == (7 + SPAN_BYTES, 7)
    story.merge(0, 2)
    assert (story.row.data_bytes, story.row.segment_bytes) == (7, 7)
    story.do(story.agent, TrimLogs((Trim(story.topic_id, 0, -1),)))
    assert (story.row.data_bytes, story.row.segment_bytes) == (0, 0)
    table = story.machine.partitions
    assert (table.data_bytes, table.segment_bytes) == (0, 0)
