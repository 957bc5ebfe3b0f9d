"""Kafka's rules for sequences (`ProducerAppendInfo`), case by case and as a model.

They are in docs/design/kafka-semantics.md §4.
"""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocol.errors import ErrorCode
from txn.producers import (
    BATCHES_MAX,
    WINDOW_BYTES_MAX,
    Duplicate,
    Fresh,
    Verdict,
    WindowView,
    advance,
    check_sequence,
    continued,
    describe,
    fence,
    updated_ms,
)

LAST = (1 << 31) - 1


def appended(*batches: tuple[int, int, int]) -> bytes:
    """The window after batches of (epoch, first sequence, records), at offsets 0, 100, 200, …"""
    window: bytes | None = None
    for index, (epoch, first_sequence, records) in enumerate(batches):
        window = advance(
            window,
            epoch=epoch,
            first_sequence=first_sequence,
            records=records,
            base_offset=100 * index,
            timestamp_max=1000 + index,
            updated_ms=5000 + index,
        )
    assert window is not None
    return window


def verdict(window: bytes | None, epoch: int, first_sequence: int, records: int) -> Verdict:
    return check_sequence(window, epoch=epoch, first_sequence=first_sequence, records=records)


@pytest.mark.parametrize("first_sequence", [0, 1, 12345, LAST])
def test_without_state_any_sequence_is_fresh(first_sequence: int):
    assert verdict(None, 3, first_sequence, 10) == Fresh()


OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
OLD_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH
SIX = [(0, 10 * index, 10) for index in range(BATCHES_MAX + 1)]
NEWER = [(5, 0, 10), (6, 0, 3)]
VERDICTS = {
    "the next sequence": ([(0, 0, 10)], (0, 10, 5), Fresh()),
    "a repeated batch, at its first offset and timestamp": (
        [(0, 0, 10), (0, 10, 5), (0, 15, 1)],
        (0, 10, 5),
        Duplicate(100, 1001),
    ),
    "a repetition older than five batches": (SIX, (0, 0, 10), OUT_OF_ORDER),
    "the first of a known batch, shorter": ([(0, 0, 10), (0, 10, 10)], (0, 0, 9), OUT_OF_ORDER),
    "the first of the newest batch, shorter": ([(0, 0, 10), (0, 10, 10)], (0, 10, 9), OUT_OF_ORDER),
    "the last of a known batch with another first": ([(0, 0, 10)], (0, 1, 9), OUT_OF_ORDER),
    "an older epoch that goes on": ([(5, 0, 10)], (4, 10, 1), OLD_EPOCH),
    "an older epoch that repeats": ([(5, 0, 10)], (4, 0, 10), OLD_EPOCH),
    "a newer epoch begins at zero": ([(5, 0, 10)], (6, 0, 3), Fresh()),
    "a newer epoch that goes on": ([(5, 0, 10)], (6, 10, 3), OUT_OF_ORDER),
    "a batch of the epoch before": (NEWER, (5, 0, 10), OLD_EPOCH),
    "a batch of the epoch before, in the newer": (NEWER, (6, 0, 10), OUT_OF_ORDER),
    "a repeated batch of a newer epoch": (NEWER, (6, 0, 3), Duplicate(100, 1001)),
    "zero after the greatest sequence": ([(0, LAST - 9, 10)], (0, 0, 5), Fresh()),
    "the greatest sequence again": ([(0, LAST - 9, 10)], (0, LAST, 5), OUT_OF_ORDER),
    "a repeated batch across the greatest": (
        [(0, LAST - 4, 10), (0, 5, 5)],
        (0, LAST - 4, 10),
        Duplicate(0, 1000),
    ),
    "what follows one across the greatest": ([(0, LAST - 4, 10), (0, 5, 5)], (0, 10, 1), Fresh()),
}


@pytest.mark.parametrize(("batches", "offer", "expected"), VERDICTS.values(), ids=VERDICTS)
def test_a_batch_is_judged_by_the_window_before_it(
    batches: list[tuple[int, int, int]], offer: tuple[int, int, int], expected: Verdict
):
    assert verdict(appended(*batches), *offer) == expected


def test_all_five_batches_are_remembered():
    batches = [(0, 10 * index, 10) for index in range(BATCHES_MAX)]
    window = appended(*batches)
    for index, (epoch, first_sequence, records) in enumerate(batches):
        assert verdict(window, epoch, first_sequence, records) == Duplicate(
            100 * index, 1000 + index
        )


def test_a_gap_is_out_of_order():
    window = appended((0, 0, 10))
    assert verdict(window, 0, 11, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_window_never_exceeds_its_bound():
    window = appended(*[(0, index, 1) for index in range(3 * BATCHES_MAX)])
    assert len(window) == WINDOW_BYTES_MAX


class Model:
    """The rules as in Kafka's source: a list of (first, last, offset), newest last."""

    def __init__(self) -> None:
        self.epoch = -1
        self.batches: list[tuple[int, int, int]] = []

    def offer(self, epoch: int, first: int, records: int, offset: int) -> object:
        last = (first + records - 1) % (1 << 31)
        for known in self.batches:
            if epoch == self.epoch and known[:2] == (first, last):
                return known[2]
        if epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        expected = (self.batches[-1][1] + 1) % (1 << 31) if epoch == self.epoch else 0
        if self.epoch != -1 and first != expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if epoch != self.epoch:
            self.batches = []
        self.epoch = epoch
        self.batches = [*self.batches, (first, last, offset)][-5:]
        return None


# Few values, near the wrap, so that repetitions and successors are likely.
offers = st.tuples(
    st.integers(0, 2),
    st.sampled_from([0, 1, 2, 3, 4, 5, 6, LAST - 2, LAST - 1, LAST]),
    st.sampled_from([1, 2, 3]),
)


@given(st.lists(st.one_of(offers, st.just("next"), st.integers(1, 7)), max_size=40))
def test_windows_decide_as_the_model_does(events: list[object]):
    model = Model()
    window: bytes | None = None
    history: list[tuple[int, int, int]] = [(0, 0, 1)]
    for offset, event in enumerate(events):
        epoch, first, records = history[-1]
        if event == "next":
            offer = (epoch, (first + records) % (1 << 31), 2)
        elif isinstance(event, int):
            offer = history[max(len(history) - event, 0)]
        else:
            assert isinstance(event, tuple)
            offer = event
        expected = model.offer(*offer, offset)
        found = verdict(window, *offer)
        match found:
            case Fresh():
                assert expected is None
                window = advance(
                    window,
                    epoch=offer[0],
                    first_sequence=offer[1],
                    records=offer[2],
                    base_offset=offset,
                    timestamp_max=-1,
                    updated_ms=offset,
                )
                history.append(offer)
            case Duplicate(base_offset, _):
                assert expected == base_offset
            case _:
                assert expected is found


def test_after_a_marker_of_its_epoch_the_sequences_of_a_window_go_on():
    window = fence(appended((3, 0, 10)), epoch=3, updated_ms=7000)
    assert verdict(window, 3, 10, 5) == Fresh()
    assert verdict(window, 3, 0, 10) == Duplicate(0, 1000)
    assert describe(window) == WindowView(3, 9, 1000, 7000)


def test_after_a_marker_of_a_newer_epoch_that_epoch_begins_at_0_and_the_old_one_is_fenced():
    window = fence(appended((3, 0, 10), (3, 10, 5)), epoch=4, updated_ms=7000)
    assert verdict(window, 4, 0, 5) == Fresh()
    assert verdict(window, 4, 15, 5) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert verdict(window, 3, 10, 5) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert verdict(window, 5, 0, 5) == Fresh()
    assert describe(window) == WindowView(4, -1, -1, 7000)


def test_the_first_batch_after_a_fence_goes_on_from_there():
    window = fence(appended((3, 0, 10)), epoch=4, updated_ms=7000)
    window = advance(
        window,
        epoch=4,
        first_sequence=0,
        records=5,
        base_offset=300,
        timestamp_max=1003,
        updated_ms=8000,
    )
    assert describe(window) == WindowView(4, 4, 1003, 8000)
    assert verdict(window, 4, 0, 5) == Duplicate(300, 1003)
    assert verdict(window, 4, 5, 1) == Fresh()


def test_a_window_tells_of_its_newest_batch():
    window = appended((3, 0, 10), (3, 10, 5))
    assert describe(window) == WindowView(3, 14, 1001, 5001)
    assert updated_ms(window) == 5001


COUNTS = st.sampled_from([1, 2, 20, 1 << 30, (1 << 30) - 1, LAST])
"""Of records: few, and so many that sequences go once around within a window."""


@given(
    batches=st.lists(COUNTS, min_size=1, max_size=BATCHES_MAX + 2),
    first_sequence=st.sampled_from([0, LAST - 40]),
    fenced=st.booleans(),
    batch=st.tuples(st.sampled_from([0, 1]), st.sampled_from([0, 1, -1]), COUNTS),
)
@example(batches=[1 << 30] * 2, first_sequence=0, fenced=False, batch=(0, 0, 1 << 30))
def test_a_batch_that_plainly_goes_on_is_fresh_and_advances_the_window(
    batches: list[int], first_sequence: int, *, fenced: bool, batch: tuple[int, int, int]
) -> None:
    window, sequence = None, first_sequence
    for count in batches:
        window = appended_to(window, 0, sequence, count)
        sequence = (sequence + count) & LAST
    assert window is not None
    if fenced:
        window = fence(window, epoch=0, updated_ms=7)
    epoch, distance, records = batch
    given_batch = {"epoch": epoch, "first_sequence": (sequence + distance) & LAST}
    after = continued(
        window, **given_batch, records=records, base_offset=9, timestamp_max=8, updated_ms=7
    )
    if after is None:
        return
    assert check_sequence(window, **given_batch, records=records) == Fresh()
    assert after == appended_to(window, epoch, given_batch["first_sequence"], records)


def appended_to(window: bytes | None, epoch: int, first_sequence: int, records: int) -> bytes:
    return advance(
        window,
        epoch=epoch,
        first_sequence=first_sequence,
        records=records,
        base_offset=9,
        timestamp_max=8,
        updated_ms=7,
    )


def test_the_next_batch_of_a_producer_plainly_goes_on() -> None:
    window = appended((0, 0, 10), (0, 10, 10))
    after = continued(
        window,
        epoch=0,
        first_sequence=20,
        records=5,
        base_offset=200,
        timestamp_max=1002,
        updated_ms=5002,
    )
    assert after == appended((0, 0, 10), (0, 10, 10), (0, 20, 5))
