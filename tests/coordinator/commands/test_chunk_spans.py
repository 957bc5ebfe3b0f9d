"""Spans in a command: numbers that are read in line, and the same ones read by functions."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.commands import chunk_spans
from coordinator.commands.codec import decode_entry, encode_entry
from coordinator.commands.encoding import CodecError
from coordinator.commands.entries import ChunkSpan, CommitChunk, Entry
from protocol.types import Incarnation, TopicId
from storage.formats.spans import Item
from txn.transactions import NO_TRANSACTION

TOPIC = TopicId(bytes(range(16)))
WIDTHS = (1, 127, 128, 255, 16_383, 16_384, 100_000, (1 << 31) - 1)
"""Numbers of one byte to five, at their borders."""
NUMBERS = st.sampled_from(WIDTHS)


@given(
    partition=NUMBERS,
    start=NUMBERS,
    length=NUMBERS,
    records=NUMBERS,
    timestamp=st.sampled_from([0, -1, 63, 64, -65, 1_700_000_000_000]),
    producer=st.none()
    | st.tuples(NUMBERS, st.sampled_from([0, 63, 64, 32_767]), st.sampled_from([0, *WIDTHS])),
)
def test_numbers_of_every_width_come_back(
    partition: int,
    start: int,
    length: int,
    records: int,
    timestamp: int,
    producer: tuple[int, int, int] | None,
) -> None:
    item = Item(0, length, records, timestamp)
    if producer is not None:
        item = Item(0, length, records, timestamp, *producer, instance=NO_TRANSACTION)
    spans = tuple(ChunkSpan(TOPIC, each, start, (item,)) for each in (partition, 0, partition))
    entry = Entry(Incarnation(1), 1, 0, (CommitChunk(0, (1 << 32) - 1, spans),))
    assert decode_entry(encode_entry(entry)) == entry


def decoded(data: bytes, *, alone: bool) -> object:
    try:
        if alone:
            return chunk_spans._item(data, 0, 7, 1000)
        (item,), *rest = chunk_spans._items(data, 0, 1, 7, 1000)
    except (CodecError, IndexError):
        return "refused"
    return item, *rest


@given(st.binary(max_size=24))
def test_any_bytes_are_the_same_item_alone_and_among_others(data: bytes) -> None:
    assert decoded(data, alone=True) == decoded(data, alone=False)


@pytest.mark.parametrize("flags", range(64))
def test_all_flags_mean_the_same_alone_and_among_others(flags: int) -> None:
    for rest in itertools.product((0, 1, 0x7F, 0x80), repeat=5):
        data = bytes([flags, *rest, 1, 0x81, 0, 1, 0x80, 2, 1, 0])
        assert decoded(data, alone=True) == decoded(data, alone=False)
