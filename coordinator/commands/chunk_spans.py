"""Spans of a chunk in a command, by hand: most of the log's bytes are these.

    the topics' ids; how many spans; per span: index of the topic, partition, distance of its start
    from the end of the span before (zigzag), number of items, items
    item: flags, length, records, and what the flags say

An idempotent batch costs about 12 bytes, one that goes on with the sequence of the batch before
about 6, also in a transaction.

Invariant: spans come back as they were, but that an item without a producer id comes back with
epoch, sequence and instance -1, whatever its batch's header said.
"""

from collections.abc import Sequence
from typing import TypeVar

from coordinator.commands.encoding import (
    I16,
    I32,
    U31,
    U32,
    U63,
    CodecError,
    put_number,
    put_topic_id,
    put_varint,
    put_zigzag,
    read_number,
    read_varint,
)
from coordinator.commands.layout import Layout
from coordinator.commands.runs import read_topics
from protocol.types import TopicId
from storage.formats.spans import Item
from txn.transactions import NO_TRANSACTION, OF_EPOCH

_Span = tuple[TopicId, int, int, tuple[Item, ...]]
_SpanT = TypeVar("_SpanT", bound=_Span)

# Flags of an item.
_SKIPS = 1
_TIMESTAMP_DIFFERS = 2
_PRODUCER = 4
_CONTINUES = 8
"""Producer, epoch and instance of the item before in the span, and the sequence number that
follows."""
_OF_EPOCH = 16
"""With _PRODUCER: the instance is OF_EPOCH. Without this and the next flag it is NO_TRANSACTION."""
_INSTANCE = 32
"""With _PRODUCER: the instance is given."""
_PLAIN_FLAGS = _SKIPS | _TIMESTAMP_DIFFERS | _PRODUCER | _CONTINUES
_FLAGS_END = _INSTANCE + _OF_EPOCH
"""Above all that can be: not both of them."""
U16 = (1 << 16) - 1
_SIMPLE_FLAGS = _TIMESTAMP_DIFFERS | _PRODUCER

_NEW = tuple.__new__
"""Makes a named tuple of its fields, in half the time that its class takes."""


def spans_of(kind: type[_SpanT]) -> Layout[tuple[_SpanT, ...]]:
    """Rows of topic id, partition, start in the chunk, and items, as named tuples of that kind."""

    def read(data: bytes, at: int) -> tuple[tuple[_SpanT, ...], int]:
        topics, span_count, at = read_topics(data, at)
        spans: list[_SpanT] = []
        append = spans.append
        end = timestamp = 0
        for _ in range(span_count):
            # As a rule each of these is one byte.
            topic, partition, distance, count = data[at], data[at + 1], data[at + 2], data[at + 3]
            if topic | partition | distance | count < 0x80:
                at += 4
            elif topic | distance | count < 0x80 and (more := data[at + 4]) < 0x80:
                # The partition has two bytes: what comes after it lies one further.
                partition, distance, count = partition + (distance - 1 << 7), count, more
                at += 5
            else:
                topic, partition, distance, count, at = _span_head(data, at)
            if topic >= len(topics):
                raise CodecError(f"topic {topic} of {len(topics)}")
            start = end + (distance >> 1 ^ -(distance & 1))
            if not (count > 0 and 0 <= start <= U32):
                raise CodecError(f"a span of {count} items at {start}")
            if count == 1:
                item, at, end, timestamp = _item(data, at, start, timestamp)
                append(_NEW(kind, (topics[topic], partition, start, (item,))))
            else:
                items, at, end, timestamp = _items(data, at, count, start, timestamp)
                append(_NEW(kind, (topics[topic], partition, start, items)))
        return tuple(spans), at

    return Layout(_put_spans, read)


def _span_head(data: bytes, at: int) -> tuple[int, int, int, int, int]:
    """Topic, partition, distance as it is said, number of items, and the place after them."""
    topic, at = read_varint(data, at)
    partition, at = read_number(data, at, U31)
    distance, at = read_varint(data, at)
    count, at = read_varint(data, at)
    return topic, partition, distance, count, at


def _put_spans(out: bytearray, spans: Sequence[_Span]) -> None:
    topics: dict[TopicId, int] = {}
    for topic_id, _, _, _ in spans:
        topics.setdefault(topic_id, len(topics))
    put_varint(out, len(topics))
    for topic_id in topics:
        put_topic_id(out, topic_id)
    put_varint(out, len(spans))
    end = timestamp = 0
    for topic_id, partition, start, items in spans:
        if not (items and 0 <= start <= U32):
            raise CodecError(f"a span of {len(items)} items at {start}")
        put_varint(out, topics[topic_id])
        put_number(out, partition, U31)
        put_zigzag(out, start - end)
        put_varint(out, len(items))
        timestamp = _put_items(out, items, timestamp)
        end = start + sum([item.skip + item.length for item in items])


def _put_items(out: bytearray, items: tuple[Item, ...], timestamp: int) -> int:
    """Returns the timestamp of the last item, from which the next span's go on.

    What a client may have put into a batch's header can be said, sense or not: apply refuses it.
    """
    before: tuple[int, int, int, int] | None = None
    for skip, length, records, timestamp_max, producer_id, epoch, sequence, instance in items:
        if not (
            0 <= skip <= U32
            and 0 < length <= U32
            and 0 < records <= (U31 if producer_id >= 0 else U63)
            and -U63 - 1 <= timestamp_max <= U63
        ):
            raise CodecError(f"an item of {length} bytes, {records} records, skipping {skip}")
        flags = (_SKIPS if skip else 0) | (_TIMESTAMP_DIFFERS if timestamp_max != timestamp else 0)
        if producer_id >= 0:
            if not (producer_id <= U63 and epoch in I16 and sequence in I32):
                raise CodecError(f"producer {producer_id}, epoch {epoch}, sequence {sequence}")
            follows = before == (producer_id, epoch, sequence, instance)
            flags |= _CONTINUES if follows else _PRODUCER | _instance_flag(instance)
            before = (producer_id, epoch, (sequence + records) & U31, instance)
        else:
            before = None
        out.append(flags)
        put_varint(out, length)
        put_varint(out, records)
        if skip:
            put_varint(out, skip)
        if timestamp_max != timestamp:
            put_zigzag(out, timestamp_max - timestamp)
            timestamp = timestamp_max
        if flags & _PRODUCER:
            put_varint(out, producer_id)
            put_zigzag(out, epoch)
            put_zigzag(out, sequence)
            if flags & _INSTANCE:
                put_varint(out, instance)
    return timestamp


def _instance_flag(instance: int) -> int:
    if instance == NO_TRANSACTION:
        return 0
    if instance == OF_EPOCH:
        return _OF_EPOCH
    if not 0 <= instance <= U63:
        raise CodecError(f"instance {instance}")
    return _INSTANCE


def _item(data: bytes, at: int, start: int, timestamp: int) -> tuple[Item, int, int, int]:
    """As `_items`, for the only item of a span. The hottest function of a replica: numbers of one
    byte, and of two where that is common, are read in line."""
    begun, flags, length = at, data[at], data[at + 1]
    at += 2
    if length >= 0x80:
        if (high := data[at]) < 0x80:
            length += high - 1 << 7
            at += 1
        else:
            length, at = read_varint(data, at - 1)
    records = data[at]
    at += 1
    if flags & ~_SIMPLE_FLAGS or records >= 0x80:
        (item,), at, end, timestamp = _items(data, begun, 1, start, timestamp)
        return item, at, end, timestamp
    if flags & _TIMESTAMP_DIFFERS:
        distance = data[at]
        at += 1
        if distance >= 0x80:
            distance, at = read_varint(data, at - 1)
        timestamp += distance >> 1 ^ -(distance & 1)
    if not (0 < length <= U32 and records > 0 and -U63 - 1 <= timestamp <= U63):
        raise CodecError(f"an item of {length} bytes, {records} records, at {timestamp}")
    if not flags & _PRODUCER:
        fields = (0, length, records, timestamp, -1, -1, -1, -1)
        return _NEW(Item, fields), at, start + length, timestamp
    producer_id = data[at]
    at += 1
    if producer_id >= 0x80:
        if (high := data[at]) < 0x80:
            producer_id += high - 1 << 7
            at += 1
        else:
            producer_id, at = read_varint(data, at - 1)
    epoch, sequence = data[at], data[at + 1]
    at += 2
    if epoch | sequence >= 0x80:
        epoch, sequence, at = _sequence(data, at - 2)
    epoch = epoch >> 1 ^ -(epoch & 1)
    sequence = sequence >> 1 ^ -(sequence & 1)
    if producer_id > U63 or sequence not in I32:
        raise CodecError(f"producer {producer_id}, epoch {epoch}, sequence {sequence}")
    fields = (0, length, records, timestamp, producer_id, epoch, sequence, NO_TRANSACTION)
    return _NEW(Item, fields), at, start + length, timestamp


def _sequence(data: bytes, at: int) -> tuple[int, int, int]:
    """Epoch and sequence as they are said, and the place after them."""
    epoch, sequence, high = data[at], data[at + 1], data[at + 2]
    if epoch < 0x80 and high < 0x80:
        return epoch, sequence + (high - 1 << 7), at + 3
    epoch, at = read_varint(data, at)
    if epoch > U16:
        raise CodecError(f"epoch {epoch}")
    sequence, at = read_varint(data, at)
    return epoch, sequence, at


def _items(
    data: bytes, at: int, count: int, end: int, timestamp: int
) -> tuple[tuple[Item, ...], int, int, int]:
    """The items, the place after them, the end of the last in the chunk, and its timestamp.

    One-byte numbers are read in line.
    """
    items: list[Item] = []
    append = items.append
    producer_id = epoch = sequence = instance = -1
    while count > 0:
        count -= 1
        flags = data[at]
        length = data[at + 1]
        if length < 0x80:
            at += 2
        else:
            length, at = read_varint(data, at + 1)
        records = data[at]
        if records < 0x80:
            at += 1
        else:
            records, at = read_varint(data, at)
        skip = 0
        if flags & _SKIPS:
            skip, at = read_varint(data, at)
        if flags & _TIMESTAMP_DIFFERS:
            distance, at = read_varint(data, at)
            timestamp += distance >> 1 ^ -(distance & 1)
        if flags & _PRODUCER:
            producer_id, epoch, sequence, instance, at = _producer(data, at, flags)
        elif not flags & _CONTINUES:
            producer_id = epoch = sequence = instance = -1
        if not (
            0 < length <= U32
            and 0 < records <= (U31 if producer_id >= 0 else U63)
            and skip <= U32
            and -U63 - 1 <= timestamp <= U63
        ):
            raise CodecError(f"an item of {length} bytes, {records} records, skipping {skip}")
        if (flags > _PLAIN_FLAGS and not (flags & _PRODUCER and flags < _FLAGS_END)) or (
            flags & _CONTINUES and (flags & _PRODUCER or producer_id < 0)
        ):
            raise CodecError(f"an item with flags {flags:#x}")
        fields = (skip, length, records, timestamp, producer_id, epoch, sequence, instance)
        append(_NEW(Item, fields))
        if producer_id >= 0:
            sequence = (sequence + records) & U31
        end += skip + length
    return tuple(items), at, end, timestamp


def _producer(data: bytes, at: int, flags: int) -> tuple[int, int, int, int, int]:
    """Producer id, epoch, first sequence and instance, and the place after them."""
    producer_id, at = read_varint(data, at)
    epoch, at = read_varint(data, at)
    epoch = epoch >> 1 ^ -(epoch & 1)
    sequence, at = read_varint(data, at)
    sequence = sequence >> 1 ^ -(sequence & 1)
    if producer_id > U63 or epoch not in I16 or sequence not in I32:
        raise CodecError(f"producer {producer_id}, epoch {epoch}, sequence {sequence}")
    if flags <= _PLAIN_FLAGS:
        return producer_id, epoch, sequence, NO_TRANSACTION, at
    if not flags & _INSTANCE:
        return producer_id, epoch, sequence, OF_EPOCH, at
    instance, at = read_number(data, at, U63)
    return producer_id, epoch, sequence, instance, at
