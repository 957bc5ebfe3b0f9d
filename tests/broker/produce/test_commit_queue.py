"""The order of commits, and what fails with a chunk that is given up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.produce.commit_queue import CommitQueue, PendingChunk, Ticket, ticket_of
from broker.produce.failed_batches import FAILED_MS_MAX, FailedBatches
from coordinator.commands.entries import ChunkCommitted, ItemResult
from protocol.errors import ErrorCode
from protocol.records import read_header
from protocol.types import Incarnation, TopicId
from storage.accumulator import Accumulator, Limits
from storage.formats.chunk import HEADER_BYTES
from storage.formats.spans import ObjectId
from tests.kit.batches import batch

T = TopicId(bytes(16))
PLAIN = -1


class _Callback:
    """Collects what it is told."""

    def __init__(self) -> None:
        self.results: dict[int, object] = {}

    def settle(self, index, result) -> None:
        assert index not in self.results
        self.results[index] = result


def _chunk(number: int, *rows: tuple[int, int, int], callback=None) -> PendingChunk:
    """A chunk of batches (sender, partition, sequence); sequence PLAIN: without producer id."""
    accumulator = Accumulator(Limits())
    callback = callback or _Callback()
    for index, (sender, partition, sequence) in enumerate(rows):
        plain = sequence == PLAIN
        accumulator.add(
            T,
            partition,
            bytes(100 + index),
            records=index + 1,
            timestamp_max=index,
            producer_id=-1 if plain else sender,
            producer_epoch=-1 if plain else 0,
            first_sequence=-1 if plain else sequence,
            token=Ticket(callback, index, sender=-1 - sender if plain else sender),
            now_ms=0,
        )
    return PendingChunk(ObjectId(Incarnation(9), number), accumulator.close(0))


def test_chunks_are_proposed_in_the_order_of_closing_once_durable() -> None:
    queue = CommitQueue()
    first, second, third = (_chunk(number, (1, 0, PLAIN)) for number in range(3))
    for chunk in (first, second, third):
        queue.close(chunk)
    second.durable = True
    assert queue.advance() == []
    first.durable = True
    assert queue.advance() == [first, second]
    assert queue.advance() == []
    third.durable = True
    assert queue.advance() == [third]


def test_a_chunk_given_up_lets_the_next_one_pass() -> None:
    queue = CommitQueue()
    first, second = _chunk(0, (1, 0, PLAIN)), _chunk(1, (2, 0, PLAIN))
    queue.close(first)
    queue.close(second)
    second.durable = True
    assert queue.give_up(first) == first.live_batches()
    assert queue.advance() == [second]
    assert not queue.holds(first)


def test_what_would_overtake_a_lost_batch_fails_with_it() -> None:
    queue = CommitQueue()
    first = _chunk(0, (1, 0, 5), (2, 0, PLAIN))
    second = _chunk(1, (1, 0, 6), (1, 1, 0), (2, 0, PLAIN), (3, 0, PLAIN))
    queue.close(first)
    queue.close(second)
    failed = queue.give_up(first)
    assert [(ticket_of(b).sender, b.partition) for b in failed] == [(1, 0), (-3, 0)] * 2
    assert failed[:2] == first.live_batches()


def test_batches_that_failed_are_left_out_of_the_command_and_skipped() -> None:
    chunk = _chunk(0, (1, 0, PLAIN), (2, 0, PLAIN), (3, 0, PLAIN), (4, 1, 7))
    chunk.durable = True
    lost = chunk.live_batches()[1]
    ticket_of(lost).live = False
    command = chunk.command()
    zero, one = command.spans
    assert (zero.start, [item[:3] for item in zero.items]) == (
        HEADER_BYTES,
        [(0, 100, 1), (101, 102, 3)],
    )
    assert one.items[0].producer_id == 4
    assert (one.start, one.items[0].first_sequence) == (HEADER_BYTES + 303, 7)


def test_a_chunk_of_which_nothing_lives_is_not_proposed() -> None:
    chunk = _chunk(0, (1, 0, PLAIN))
    chunk.durable = True
    ticket_of(chunk.live_batches()[0]).live = False
    assert chunk.command() is None


@pytest.mark.promise("P2")
def test_offsets_come_from_the_outcome_and_errors_have_none() -> None:
    chunk = _chunk(0, (1, 0, PLAIN), (2, 0, PLAIN), (5, 0, 3), (6, 0, 4), (1, 1, PLAIN))
    chunk.durable = True
    assert chunk.command() is not None
    outcome = ChunkCommitted(
        (
            ItemResult(ErrorCode.NONE, 100, 7),
            ItemResult(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, 7),
            ItemResult(ErrorCode.NONE, 40, 7, duplicate=True, timestamp_max=99),
            ItemResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1),
        )
    )
    told = [result for _, _, result in chunk.results(outcome)]
    assert [result.base_offset for result in told] == [100, 101, -1, 40, -1]
    assert [result.log_append_time for result in told] == [-1, -1, -1, 99, -1]
    assert [result.log_start_offset for result in told] == [7, 7, 7, 7, -1]


def test_a_lost_session_takes_all_that_is_not_proposed() -> None:
    queue = CommitQueue()
    first, second = _chunk(0, (1, 0, PLAIN)), _chunk(1, (1, 0, PLAIN))
    for chunk in (first, second):
        queue.close(chunk)
    first.durable = True
    queue.advance()
    assert queue.give_up_unproposed() == [second]
    assert queue.settle(first.chunk_id) is first
    assert len(queue) == 0


def test_nothing_overtakes_a_chunk_that_is_put_on_its_way_into_the_log() -> None:
    queue = CommitQueue()
    first, second = _chunk(0, (1, 0, PLAIN)), _chunk(1, (1, 0, PLAIN))
    queue.close(first)
    queue.send(first)
    queue.close(second)
    second.durable = True
    assert queue.advance() == []
    assert queue.settle(first.chunk_id) is first
    assert queue.advance() == [second]


def test_a_chunk_that_could_not_be_put_on_its_way_comes_again_before_those_behind_it() -> None:
    queue = CommitQueue()
    first, second = _chunk(0, (1, 0, PLAIN)), _chunk(1, (1, 0, PLAIN))
    queue.close(first)
    queue.send(first)
    assert first.command() is not None
    queue.close(second)
    second.durable = True
    queue.take_back(first)
    assert queue.advance() == []
    first.durable = True
    assert queue.advance() == [first, second]
    assert first.command() is not None


def test_a_sent_chunk_that_is_given_up_takes_its_senders_later_batches_and_lets_others_pass() -> (
    None
):
    queue = CommitQueue()
    first, second = _chunk(0, (1, 0, 5)), _chunk(1, (1, 0, 6), (2, 0, PLAIN))
    queue.close(first)
    queue.send(first)
    queue.close(second)
    second.durable = True
    failed = queue.give_up(first)
    assert [ticket_of(each).sender for each in failed] == [1, 1]
    assert queue.advance() == [second]


def test_a_sent_chunk_whose_fate_stays_open_holds_nothing_up() -> None:
    queue = CommitQueue()
    first, second = _chunk(0, (1, 0, PLAIN)), _chunk(1, (2, 0, PLAIN))
    queue.close(first)
    queue.send(first)
    queue.close(second)
    second.durable = True
    queue.doubt(first.chunk_id)
    assert queue.advance() == [second]


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["durable", "lost"])), max_size=12))
def test_whatever_order_puts_end_in_commits_keep_the_order_of_closing(events) -> None:
    queue = CommitQueue()
    chunks = [_chunk(number, (1, 0, PLAIN)) for number in range(6)]
    for chunk in chunks:
        queue.close(chunk)
    proposed: list[int] = []
    failed_at: int | None = None
    for number, event in events:
        chunk = chunks[number]
        if not queue.holds(chunk) or chunk.durable:
            continue
        if event == "durable":
            chunk.durable = True
        else:
            failed = queue.give_up(chunk)
            for lost in failed:
                ticket_of(lost).live = False
            failed_at = number if failed_at is None else min(failed_at, number)
        for ready in queue.advance():
            if ready.command() is not None:
                proposed.append(ready.chunk_id.number)
    assert proposed == sorted(proposed)
    if failed_at is not None:
        assert all(number < failed_at for number in proposed)


def _header(sequence: int, *, epoch: int = 0):
    return read_header(batch(producer_id=7, epoch=epoch, sequence=sequence))


def _failed(sequence: int):
    return _chunk(0, (7, 0, sequence)).live_batches()


def test_only_the_failed_batch_itself_closes_a_gap() -> None:
    gaps = FailedBatches()
    gaps.note(_failed(0), 0)
    gaps.note(_failed(1), 1)
    assert gaps.overtakes(T, 0, _header(1), 2)
    assert not gaps.overtakes(T, 0, _header(0), 3)
    assert not gaps.overtakes(T, 0, _header(1), 4)


def test_the_least_sequence_that_failed_is_the_gap_in_whatever_order_they_failed() -> None:
    gaps = FailedBatches()
    gaps.note(_failed(3), 0)
    gaps.note(_failed(0), 1)
    assert gaps.overtakes(T, 0, _header(3), 2)
    assert not gaps.overtakes(T, 0, _header(0), 3)


def test_a_batch_before_the_gap_is_taken_and_leaves_the_gap_open() -> None:
    gaps = FailedBatches()
    gaps.note(_failed(3), 0)
    assert not gaps.overtakes(T, 0, _header(0), 1)
    assert gaps.overtakes(T, 0, _header(4), 2)
    assert not gaps.overtakes(T, 0, _header(3), 3)


def test_a_gap_is_of_one_partition_one_epoch_and_two_minutes() -> None:
    gaps = FailedBatches()
    gaps.note(_failed(0), 0)
    assert not gaps.overtakes(T, 1, _header(1), 0)
    assert gaps.overtakes(T, 0, _header(1), FAILED_MS_MAX - 1)
    assert not gaps.overtakes(T, 0, _header(1), FAILED_MS_MAX)
    gaps.note(_failed(0), 0)
    assert not gaps.overtakes(T, 0, _header(0, epoch=1), 0)
    assert len(gaps) == 0


def test_a_later_transaction_does_not_wait_for_what_failed_in_an_earlier_one() -> None:
    gaps = FailedBatches()
    (failed,) = _failed(0)
    failed.instance = 4
    gaps.note([failed], 0)
    assert gaps.overtakes(T, 0, _header(1), 1, instance=4)
    assert gaps.overtakes(T, 0, _header(1), 1, instance=3)
    assert not gaps.overtakes(T, 0, _header(1), 1, instance=5)
    assert len(gaps) == 0


def test_a_batch_that_is_sent_back_is_awaited_in_the_transaction_it_comes_again_in() -> None:
    gaps = FailedBatches()
    (failed,) = _failed(0)
    failed.instance = 3
    gaps.note_one(failed, 4, 0)
    assert gaps.overtakes(T, 0, _header(1), 1, instance=4)
    assert not gaps.overtakes(T, 0, _header(0), 2, instance=4)
    assert not gaps.overtakes(T, 0, _header(1), 3, instance=4)


def test_of_two_transactions_with_failed_batches_the_later_one_counts() -> None:
    gaps = FailedBatches()
    gaps.note_refused(T, 0, _header(5), 0, instance=4)
    gaps.note_refused(T, 0, _header(0), 1, instance=3)
    assert gaps.overtakes(T, 0, _header(6), 2, instance=4)
    gaps.note_refused(T, 0, _header(8), 3, instance=5)
    assert not gaps.overtakes(T, 0, _header(6), 4, instance=5)
    assert gaps.overtakes(T, 0, _header(9), 5, instance=5)
