"""What goes into a chunk, when it is due, and how its batches are described as items."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.accumulator import (
    ITEM_ENTRY_BYTES,
    SPAN_ENTRY_BYTES,
    Accumulator,
    BatchPlace,
    Limits,
    group_items,
)
from storage.formats.chunk import HEADER_BYTES
from storage.formats.spans import Item
from tests.storage.build import TOPIC_A, TOPIC_B, add


def limits(**changes: int) -> Limits:
    return Limits(**({"puts_per_second": 10, "puts_burst": 3} | changes))


def test_nothing_is_due_while_nothing_waits() -> None:
    accumulator = Accumulator(limits())
    assert not accumulator.due(10**9, 0)
    assert accumulator.due_ms(0) is None


def test_batch_is_due_at_once_with_nothing_in_flight() -> None:
    accumulator = Accumulator(limits())
    add(accumulator, b"x", now_ms=500)
    assert accumulator.due(500, 0)


def test_batch_waits_for_the_linger_that_was_set() -> None:
    accumulator = Accumulator(limits(linger_ms=20))
    add(accumulator, b"x", now_ms=500)
    add(accumulator, b"y", now_ms=515)
    assert not accumulator.due(519, 0)
    assert accumulator.due(520, 0)


def test_batch_waits_longer_while_a_put_is_in_flight() -> None:
    accumulator = Accumulator(limits(busy_linger_ms=50))
    add(accumulator, b"x", now_ms=500)
    assert not accumulator.due(549, 1)
    assert accumulator.due(550, 1)
    assert accumulator.due_ms(0) == 500


@pytest.mark.parametrize(("round_ms", "due_ms"), [(64.0, 532), (400.0, 550), (1.5, 505)])
def test_batch_waits_for_half_of_what_chunks_take_while_a_put_is_in_flight(
    round_ms: float, due_ms: int
) -> None:
    accumulator = Accumulator(limits(busy_linger_ms=50))
    accumulator.round_ms = round_ms
    add(accumulator, b"x", now_ms=500)
    assert accumulator.due_ms(1) == due_ms
    assert accumulator.due_ms(0) == 500


def test_chunk_that_is_worth_its_put_waits_to_be_worth_more_beyond_the_budget() -> None:
    accumulator = Accumulator(limits(puts_per_second=10, puts_burst=1, worthwhile_bytes=100))
    accumulator.round_ms = 40.0
    add(accumulator, bytes(100), now_ms=500)
    assert accumulator.due_ms(1) == 520
    accumulator.close(520)
    add(accumulator, bytes(100), now_ms=530)
    assert accumulator.due_ms(1) == 580
    add(accumulator, bytes(100), now_ms=540)
    assert accumulator.due_ms(1) == 580


def test_linger_longer_than_the_busy_one_holds_while_a_put_is_in_flight() -> None:
    accumulator = Accumulator(limits(linger_ms=200, busy_linger_ms=50))
    add(accumulator, b"x", now_ms=500)
    assert accumulator.due_ms(1) == 700


def test_puts_beyond_the_burst_wait_for_the_budget() -> None:
    accumulator = Accumulator(limits(puts_per_second=10, puts_burst=3))
    closed_at = []
    now_ms = 10_000
    while now_ms < 11_000:
        add(accumulator, b"x", now_ms=now_ms)
        if accumulator.due(now_ms, 0):
            accumulator.close(now_ms)
            closed_at.append(now_ms)
        now_ms += 1
    assert closed_at[:3] == [10_000, 10_001, 10_002]
    assert closed_at[3:6] == [10_100, 10_200, 10_300]
    assert len(closed_at) == 3 + 9


def test_chunk_that_is_worth_its_put_does_not_wait_for_the_budget() -> None:
    accumulator = Accumulator(limits(puts_per_second=10, puts_burst=1, worthwhile_bytes=100))
    add(accumulator, b"x", now_ms=0)
    accumulator.close(0)
    add(accumulator, b"x" * 99, now_ms=1)
    assert accumulator.due_ms(0) == 100
    add(accumulator, b"x", now_ms=2)
    assert accumulator.due_ms(0) == 1


def test_pause_gives_back_the_burst_and_no_more() -> None:
    accumulator = Accumulator(limits(puts_per_second=10, puts_burst=3))
    for now_ms in (0, 1, 2, 100_000, 100_001, 100_002):
        add(accumulator, b"x", now_ms=now_ms)
        assert accumulator.due(now_ms, 0)
        accumulator.close(now_ms)
    add(accumulator, b"x", now_ms=100_003)
    assert accumulator.due_ms(0) == 100_100


def test_chunk_at_its_size_is_due_whatever_is_in_flight_and_without_budget() -> None:
    accumulator = Accumulator(limits(chunk_bytes_max=100, linger_ms=1000, puts_burst=1))
    for _ in range(5):
        add(accumulator, b"x" * 100, now_ms=7)
        assert accumulator.due(7, 8)
        assert accumulator.close(7).data_bytes == 100


def test_full_chunks_leave_a_debt_of_one_put_at_most() -> None:
    accumulator = Accumulator(limits(chunk_bytes_max=100, puts_per_second=10, puts_burst=1))
    for _ in range(50):
        add(accumulator, b"x" * 100, now_ms=1000)
        accumulator.close(1000)
    add(accumulator, b"x", now_ms=1000)
    assert accumulator.due_ms(0) == 1100


def test_batch_that_does_not_fit_any_more_begins_the_next_chunk() -> None:
    accumulator = Accumulator(limits(chunk_bytes_max=100))
    add(accumulator, b"x" * 60, now_ms=1)
    add(accumulator, b"y" * 50, now_ms=2)
    assert accumulator.due(2, 8)
    assert accumulator.close(2).data_bytes == 60
    assert not accumulator.due(2, 8)
    assert accumulator.close(2).data_bytes == 50


def test_batch_larger_than_a_chunk_is_a_chunk_of_its_own() -> None:
    accumulator = Accumulator(limits(chunk_bytes_max=100))
    add(accumulator, b"x" * 10)
    add(accumulator, b"y" * 1000)
    add(accumulator, b"z" * 10)
    assert [accumulator.close(0).data_bytes for _ in range(3)] == [10, 1000, 10]


def test_chunk_with_an_entrys_worth_of_items_is_sealed() -> None:
    room = 10 * (ITEM_ENTRY_BYTES + SPAN_ENTRY_BYTES)
    accumulator = Accumulator(limits(entry_bytes_max=room))
    for partition in range(25):
        add(accumulator, b"x", partition=partition)
    chunks = [accumulator.close(0) for _ in range(3)]
    assert [len(chunk.spans) for chunk in chunks] == [10, 10, 5]


def test_partitions_are_sorted_and_their_batches_keep_the_order_of_arrival() -> None:
    accumulator = Accumulator(limits())
    add(accumulator, b"b1-1", topic_id=TOPIC_B, partition=1)
    add(accumulator, b"a9-1", topic_id=TOPIC_A, partition=9)
    add(accumulator, b"a2-1", topic_id=TOPIC_A, partition=2)
    add(accumulator, b"a9-2", topic_id=TOPIC_A, partition=9)
    add(accumulator, b"b1-2", topic_id=TOPIC_B, partition=1)
    chunk = accumulator.close(0)
    assert [batch.data for batch in chunk.batches()] == [
        b"a2-1",
        b"a9-1",
        b"a9-2",
        b"b1-1",
        b"b1-2",
    ]
    assert [batch.start for batch in chunk.batches()] == [
        HEADER_BYTES + 4 * number for number in range(5)
    ]


def test_waiting_bytes_count_what_is_not_closed_yet() -> None:
    accumulator = Accumulator(limits(chunk_bytes_max=100))
    add(accumulator, b"x" * 60)
    add(accumulator, b"x" * 60)
    assert accumulator.waiting_bytes == 120
    accumulator.close(0)
    assert accumulator.waiting_bytes == 60
    accumulator.close(0)
    assert accumulator.waiting_bytes == 0


def test_withdrawn_batches_are_in_no_chunk_sealed_or_open() -> None:
    accumulator = Accumulator(limits(chunk_bytes_max=100))
    for number in range(6):
        add(accumulator, b"x" * 40, token=number, partition=number % 2)
    withdrawn = accumulator.withdraw(lambda batch: batch.token in {1, 2, 4, 5})
    assert [batch.token for batch in withdrawn] == [1, 2, 4, 5]
    assert accumulator.waiting_bytes == 80
    chunks = [accumulator.close(0), accumulator.close(0)]
    assert [[batch.token for batch in chunk.batches()] for chunk in chunks] == [[0], [3]]
    assert accumulator.due_ms(0) is None


def test_adjacent_plain_batches_share_an_item_and_are_found_in_it() -> None:
    accumulator = Accumulator(limits())
    add(accumulator, b"12", records=3, timestamp_max=50)
    add(accumulator, b"345", records=4, timestamp_max=40)
    add(accumulator, b"6", records=1, timestamp_max=60)
    (span,) = accumulator.close(0).spans
    assert span.items == (Item(0, 6, 8, 60),)
    assert span.places == (BatchPlace(0, 0), BatchPlace(0, 3), BatchPlace(0, 7))


def test_idempotent_batches_are_items_of_their_own() -> None:
    accumulator = Accumulator(limits())
    add(accumulator, b"1", records=2, producer_id=7, first_sequence=0)
    add(accumulator, b"22", records=3, producer_id=7, first_sequence=2)
    add(accumulator, b"3", records=1)
    add(accumulator, b"4", records=1)
    add(accumulator, b"5", records=1, producer_id=8, first_sequence=0)
    (span,) = accumulator.close(0).spans
    assert span.items == (
        Item(0, 1, 2, 1000, 7, 0, 0),
        Item(0, 2, 3, 1000, 7, 0, 2),
        Item(0, 2, 2, 1000),
        Item(0, 1, 1, 1000, 8, 0, 0),
    )
    assert [place.item for place in span.places] == [0, 1, 2, 2, 3]


def test_batches_given_up_after_closing_are_skipped_bytes() -> None:
    accumulator = Accumulator(limits())
    for token in range(6):
        add(accumulator, b"x" * (token + 1), records=1, token=token)
    (span,) = accumulator.close(0).spans
    kept = [batch for batch in span.batches if batch.token in {1, 2, 4}]
    items, places = group_items(span.start, kept)
    assert items == [Item(1, 2 + 3, 2, 1000), Item(4, 5, 1, 1000)]
    assert places == [BatchPlace(0, 0), BatchPlace(0, 1), BatchPlace(1, 0)]


@pytest.mark.parametrize("count", [0, 1])
def test_group_of_so_few_batches_needs_no_special_case(count: int) -> None:
    accumulator = Accumulator(limits())
    add(accumulator, b"x")
    (span,) = accumulator.close(0).spans
    items, places = group_items(span.start, span.batches[:count])
    assert len(items) == len(places) == count


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 60), st.integers(-1, 1)),
        min_size=1,
        max_size=60,
    )
)
def test_every_batch_comes_out_once_in_order_and_within_the_limits(
    rows: list[tuple[int, int, int]],
) -> None:
    entry_bytes_max = 5 * (ITEM_ENTRY_BYTES + SPAN_ENTRY_BYTES)
    accumulator = Accumulator(limits(chunk_bytes_max=100, entry_bytes_max=entry_bytes_max))
    for token, (partition, length, producer_id) in enumerate(rows):
        add(
            accumulator,
            bytes([token]) * length,
            partition=partition,
            producer_id=producer_id,
            token=token,
        )
    out: dict[int, list[object]] = {}
    while accumulator.due_ms(0) is not None:
        chunk = accumulator.close(0)
        assert chunk.data_bytes <= 100
        items = sum(len(span.items) for span in chunk.spans)
        assert items * ITEM_ENTRY_BYTES + len(chunk.spans) * SPAN_ENTRY_BYTES <= entry_bytes_max
        at = HEADER_BYTES
        for span in chunk.spans:
            assert span.start == at
            at += sum(item.skip + item.length for item in span.items)
            assert at == span.start + span.length
            assert sum(item.records for item in span.items) == len(span.batches)
            out.setdefault(span.partition, []).extend(batch.token for batch in span.batches)
    expected: dict[int, list[object]] = {}
    for token, (partition, _, _) in enumerate(rows):
        expected.setdefault(partition, []).append(token)
    assert out == expected
    assert accumulator.waiting_bytes == 0


def test_a_batch_of_a_transaction_says_which_in_its_item() -> None:
    accumulator = Accumulator(limits())
    for sequence, instance in enumerate([-1, -2, 12]):
        add(accumulator, b"x", producer_id=7, first_sequence=sequence, instance=instance)
    (span,) = accumulator.close(0).spans
    assert [item.instance for item in span.items] == [-1, -2, 12]
