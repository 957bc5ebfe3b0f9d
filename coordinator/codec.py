"""Entries of the metadata log as bytes, and back.

    version: 1 byte · crc32c of version and body: 4 · body
    body: incarnation, n, clock, number of commands (varints), commands
    command: kind: 1 byte · fields

Numbers are varints (base 128, least significant group first), those that may be negative
zigzagged. `CommitChunk` is delta-coded: an idempotent batch costs about 12 bytes, one that goes
on with the sequence of the batch before about 6.

Invariants: `decode_entry(encode_entry(e)) == e`, but that an item without a producer id comes back
with epoch and sequence -1, whatever its batch's header said; any other bytes raise CodecError, nothing else;
what was decoded lies within the bounds named here, so the machine's columns can hold it. What a
command means, and whether it makes sense, is not looked at.
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final

from crc32c import crc32c

from coordinator.commands import (
    AllocateProducerIds,
    ChunkSpan,
    Close,
    Command,
    CommitChunk,
    CreateTopic,
    DeleteTopic,
    Entry,
    Item,
    Listener,
    Open,
    Pin,
    PurgePartitions,
    Tick,
    Unpin,
)
from protocol.types import Incarnation, TopicId

FORMAT_VERSION = 1
ENTRY_BYTES_MAX = 64 * 1024
ENTRY_OVERHEAD_BYTES_MAX = 5 + 4 * 10
"""What an entry takes besides its commands, at most."""

STRING_BYTES_MAX = 32_767
"""Kafka's own bound on a string."""
LISTENERS_MAX = 64
CONFIGS_MAX = 1000

_U31 = (1 << 31) - 1
_U32 = (1 << 32) - 1
_U63 = (1 << 63) - 1
_I16 = range(-(1 << 15), 1 << 15)
_I32 = range(-(1 << 31), 1 << 31)
_TOPIC_ID_BYTES = 16

_HEAD = Struct("<BI")
_VERSION_CRC = crc32c(bytes([FORMAT_VERSION]))

# Flags of an item.
_SKIPS = 1
_TIMESTAMP_DIFFERS = 2
_PRODUCER = 4
_CONTINUES = 8
"""Producer and epoch of the item before in the span, and the sequence number that follows."""
_FLAGS = _SKIPS | _TIMESTAMP_DIFFERS | _PRODUCER | _CONTINUES


class CodecError(Exception):
    """These bytes are no entry, or this value does not fit into one."""


def encode_entry(entry: Entry) -> bytes:
    """Raises CodecError when a value is out of bounds or the entry is over ENTRY_BYTES_MAX."""
    return join_entry(
        incarnation=entry.incarnation,
        n=entry.n,
        clock_ms=entry.clock_ms,
        commands=[encode_command(command) for command in entry.commands],
    )


def join_entry(
    *, incarnation: Incarnation, n: int, clock_ms: int, commands: Sequence[bytes]
) -> bytes:
    """An entry of commands that `encode_command` made, for writers that gather by size.

    Raises CodecError like `encode_entry`.
    """
    body = bytearray()
    _put_number(body, incarnation, _U63)
    _put_number(body, n, _U63)
    _put_signed(body, clock_ms)
    _put_number(body, len(commands), _U32)
    for command in commands:
        body += command
    if _HEAD.size + len(body) > ENTRY_BYTES_MAX:
        raise CodecError(f"an entry of {_HEAD.size + len(body)} bytes, at most {ENTRY_BYTES_MAX}")
    return _HEAD.pack(FORMAT_VERSION, crc32c(body, _VERSION_CRC)) + body


def encode_command(command: Command) -> bytes:
    """One command as it stands in an entry. Raises CodecError when a value is out of bounds."""
    kind, put = _ENCODERS[type(command)]
    out = bytearray((kind,))
    put(out, command)
    return bytes(out)


def encoded_size(command: Command) -> int:
    """Bytes that the command takes in an entry. Raises CodecError as `encode_command`."""
    return len(encode_command(command))


def decode_entry(data: bytes) -> Entry:
    """Raises CodecError for anything that is not a whole, unharmed entry of a known version."""
    if not _HEAD.size < len(data) <= ENTRY_BYTES_MAX:
        raise CodecError(f"an entry of {len(data)} bytes")
    version, checksum = _HEAD.unpack_from(data)
    if version != FORMAT_VERSION:
        raise CodecError(f"an entry of format version {version}; known is {FORMAT_VERSION}")
    if crc32c(memoryview(data)[_HEAD.size :], _VERSION_CRC) != checksum:
        raise CodecError("an entry whose checksum is wrong")
    try:
        incarnation, at = _number(data, _HEAD.size, _U63)
        n, at = _number(data, at, _U63)
        clock_ms, at = _signed(data, at)
        count, at = _number(data, at, _U32)
        commands: list[Command] = []
        while count > 0:
            if (decode := _DECODERS.get(data[at])) is None:
                raise CodecError(f"a command of kind {data[at]}")
            command, at = decode(data, at + 1)
            commands.append(command)
            count -= 1
    except IndexError:
        raise CodecError("an entry that ends in the middle") from None
    except UnicodeDecodeError:
        raise CodecError("a string that is not UTF-8") from None
    if at != len(data):
        raise CodecError(f"{len(data) - at} bytes after an entry's end")
    return Entry(Incarnation(incarnation), n, clock_ms, tuple(commands))


# Numbers, strings, topic ids. All readers take the bytes and a place, and return value and place.


def _put_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """At most 70 bits: room for the zigzagged difference of two timestamps of 64 bits."""
    value = data[at]
    at += 1
    if value < 0x80:
        return value, at
    value &= 0x7F
    shift = 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift >= 70:
            raise CodecError("a number of more than ten bytes")


def _put_number(out: bytearray, value: int, most: int) -> None:
    if not 0 <= value <= most:
        raise CodecError(f"{value} is not between 0 and {most}")
    _put_varint(out, value)


def _number(data: bytes, at: int, most: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    if value > most:
        raise CodecError(f"{value} is more than {most}")
    return value, at


def _put_zigzag(out: bytearray, value: int) -> None:
    _put_varint(out, value << 1 if value >= 0 else ~value << 1 | 1)


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return value >> 1 ^ -(value & 1), at


def _put_signed(out: bytearray, value: int) -> None:
    if not -_U63 - 1 <= value <= _U63:
        raise CodecError(f"{value} has more than 64 bits")
    _put_zigzag(out, value)


def _signed(data: bytes, at: int) -> tuple[int, int]:
    value, at = _zigzag(data, at)
    if not -_U63 - 1 <= value <= _U63:
        raise CodecError(f"{value} has more than 64 bits")
    return value, at


def _put_string(out: bytearray, value: str) -> None:
    try:
        data = value.encode()
    except UnicodeEncodeError:
        raise CodecError(f"{value!r} is not a string of characters") from None
    if len(data) > STRING_BYTES_MAX:
        raise CodecError(f"a string of {len(data)} bytes, at most {STRING_BYTES_MAX}")
    _put_varint(out, len(data))
    out += data


def _string(data: bytes, at: int) -> tuple[str, int]:
    length, at = _number(data, at, STRING_BYTES_MAX)
    return _bytes(data, at, length).decode(), at + length


def _bytes(data: bytes, at: int, length: int) -> bytes:
    if at + length > len(data):
        raise CodecError("an entry that ends in the middle")
    return data[at : at + length]


def _put_topic_id(out: bytearray, topic_id: TopicId) -> None:
    if len(topic_id) != _TOPIC_ID_BYTES:
        raise CodecError(f"a topic id of {len(topic_id)} bytes")
    out += topic_id


def _topic_id(data: bytes, at: int) -> tuple[TopicId, int]:
    return TopicId(_bytes(data, at, _TOPIC_ID_BYTES)), at + _TOPIC_ID_BYTES


def _bounded(count: int, most: int, what: str) -> int:
    if count > most:
        raise CodecError(f"{count} {what}, at most {most}")
    return count


# The cold commands.


def _put_open(out: bytearray, command: Open) -> None:
    _put_number(out, command.session, _U63)
    _put_string(out, command.node_name)
    _put_number(out, command.node_id + 1, _U31)
    _put_string(out, command.zone)
    _put_varint(out, _bounded(len(command.listeners), LISTENERS_MAX, "listeners"))
    for listener in command.listeners:
        _put_string(out, listener.name)
        _put_string(out, listener.host)
        _put_number(out, listener.port, 0xFFFF)
    _put_string(out, command.software_version)
    _put_number(out, command.feature_level_max, _U31)


def _open(data: bytes, at: int) -> tuple[Open, int]:
    session, at = _number(data, at, _U63)
    node_name, at = _string(data, at)
    node_id, at = _number(data, at, _U31)
    zone, at = _string(data, at)
    count, at = _number(data, at, LISTENERS_MAX)
    listeners = []
    for _ in range(count):
        name, at = _string(data, at)
        host, at = _string(data, at)
        port, at = _number(data, at, 0xFFFF)
        listeners.append(Listener(name, host, port))
    software_version, at = _string(data, at)
    feature_level_max, at = _number(data, at, _U31)
    command = Open(
        session=session,
        node_name=node_name,
        node_id=node_id - 1,
        zone=zone,
        listeners=tuple(listeners),
        software_version=software_version,
        feature_level_max=feature_level_max,
    )
    return command, at


def _put_close(out: bytearray, command: Close) -> None:
    _put_number(out, command.incarnation, _U63)
    _put_signed(out, command.last)


def _close(data: bytes, at: int) -> tuple[Close, int]:
    incarnation, at = _number(data, at, _U63)
    last, at = _signed(data, at)
    return Close(Incarnation(incarnation), last), at


def _put_tick(out: bytearray, command: Tick) -> None:
    del out, command  # A tick has no fields.


def _tick(data: bytes, at: int) -> tuple[Tick, int]:
    del data
    return Tick(), at


def _put_create_topic(out: bytearray, command: CreateTopic) -> None:
    _put_string(out, command.name)
    _put_signed(out, command.partition_count)
    _put_varint(out, _bounded(len(command.configs), CONFIGS_MAX, "configs"))
    for name, value in command.configs:
        _put_string(out, name)
        _put_string(out, value)


def _create_topic(data: bytes, at: int) -> tuple[CreateTopic, int]:
    name, at = _string(data, at)
    partition_count, at = _signed(data, at)
    count, at = _number(data, at, CONFIGS_MAX)
    configs = []
    for _ in range(count):
        config, at = _string(data, at)
        value, at = _string(data, at)
        configs.append((config, value))
    return CreateTopic(name, partition_count, tuple(configs)), at


def _put_delete_topic(out: bytearray, command: DeleteTopic) -> None:
    _put_topic_id(out, command.topic_id)


def _delete_topic(data: bytes, at: int) -> tuple[DeleteTopic, int]:
    topic_id, at = _topic_id(data, at)
    return DeleteTopic(topic_id), at


def _put_purge(out: bytearray, command: PurgePartitions) -> None:
    _put_topic_id(out, command.topic_id)
    _put_number(out, command.first, _U31)
    _put_number(out, command.count, _U31)


def _purge(data: bytes, at: int) -> tuple[PurgePartitions, int]:
    topic_id, at = _topic_id(data, at)
    first, at = _number(data, at, _U31)
    count, at = _number(data, at, _U31)
    return PurgePartitions(topic_id, first, count), at


def _put_allocate(out: bytearray, command: AllocateProducerIds) -> None:
    _put_signed(out, command.count)


def _allocate(data: bytes, at: int) -> tuple[AllocateProducerIds, int]:
    count, at = _signed(data, at)
    return AllocateProducerIds(count), at


def _put_pin(out: bytearray, command: Pin) -> None:
    _put_string(out, command.name)
    _put_signed(out, command.lifetime_ms)


def _pin(data: bytes, at: int) -> tuple[Pin, int]:
    name, at = _string(data, at)
    lifetime_ms, at = _signed(data, at)
    return Pin(name, lifetime_ms), at


def _put_unpin(out: bytearray, command: Unpin) -> None:
    _put_string(out, command.name)


def _unpin(data: bytes, at: int) -> tuple[Unpin, int]:
    name, at = _string(data, at)
    return Unpin(name), at


# CommitChunk: number, length, the topics' ids, and per span: index of the topic, partition,
# distance of its start from the end of the span before (zigzag), number of items, items.


def _put_commit_chunk(out: bytearray, command: CommitChunk) -> None:
    _put_number(out, command.number, _U32)
    _put_number(out, command.length, _U32)
    topics: dict[TopicId, int] = {}
    for span in command.spans:
        topics.setdefault(span.topic_id, len(topics))
    _put_varint(out, len(topics))
    for topic_id in topics:
        _put_topic_id(out, topic_id)
    _put_varint(out, len(command.spans))
    end = timestamp = 0
    for topic_id, partition, start, items in command.spans:
        if not (items and 0 <= start <= _U32):
            raise CodecError(f"a span of {len(items)} items at {start}")
        _put_varint(out, topics[topic_id])
        _put_number(out, partition, _U31)
        _put_zigzag(out, start - end)
        _put_varint(out, len(items))
        timestamp = _put_items(out, items, timestamp)
        end = start + sum(item.skip + item.length for item in items)


def _put_items(out: bytearray, items: tuple[Item, ...], timestamp: int) -> int:
    """Returns the timestamp of the last item, from which the next span's go on.

    What a client may have put into a batch's header can be said, sense or not: apply refuses it.
    """
    before: tuple[int, int, int] | None = None
    for skip, length, records, timestamp_max, producer_id, epoch, sequence in items:
        if not (
            0 <= skip <= _U32
            and 0 < length <= _U32
            and 0 < records <= (_U31 if producer_id >= 0 else _U63)
            and -_U63 - 1 <= timestamp_max <= _U63
        ):
            raise CodecError(f"an item of {length} bytes, {records} records, skipping {skip}")
        flags = (_SKIPS if skip else 0) | (_TIMESTAMP_DIFFERS if timestamp_max != timestamp else 0)
        if producer_id >= 0:
            if not (producer_id <= _U63 and epoch in _I16 and sequence in _I32):
                raise CodecError(f"producer {producer_id}, epoch {epoch}, sequence {sequence}")
            follows = before == (producer_id, epoch, sequence)
            flags |= _CONTINUES if follows else _PRODUCER
            before = (producer_id, epoch, (sequence + records) & _U31)
        else:
            before = None
        out.append(flags)
        _put_varint(out, length)
        _put_varint(out, records)
        if skip:
            _put_varint(out, skip)
        if timestamp_max != timestamp:
            _put_zigzag(out, timestamp_max - timestamp)
            timestamp = timestamp_max
        if flags & _PRODUCER:
            _put_varint(out, producer_id)
            _put_zigzag(out, epoch)
            _put_zigzag(out, sequence)
    return timestamp


def _commit_chunk(data: bytes, at: int) -> tuple[CommitChunk, int]:
    number, at = _number(data, at, _U32)
    length, at = _number(data, at, _U32)
    topic_count, at = _number(data, at, len(data) // _TOPIC_ID_BYTES)
    topics = []
    for _ in range(topic_count):
        topic_id, at = _topic_id(data, at)
        topics.append(topic_id)
    span_count, at = _number(data, at, len(data))
    spans = []
    end = timestamp = 0
    for _ in range(span_count):
        topic, at = _varint(data, at)
        if topic >= topic_count:
            raise CodecError(f"topic {topic} of {topic_count}")
        partition, at = _number(data, at, _U31)
        distance, at = _zigzag(data, at)
        item_count, at = _varint(data, at)
        start = end + distance
        if not (item_count > 0 and 0 <= start <= _U32):
            raise CodecError(f"a span of {item_count} items at {start}")
        items, at, end, timestamp = _items(data, at, item_count, start, timestamp)
        spans.append(ChunkSpan(topics[topic], partition, start, items))
    return CommitChunk(number, length, tuple(spans)), at


def _items(
    data: bytes, at: int, count: int, end: int, timestamp: int
) -> tuple[tuple[Item, ...], int, int, int]:
    """The items, the place after them, the end of the last in the chunk, and its timestamp.

    The hottest function of a replica; one-byte numbers are read in line.
    """
    items: list[Item] = []
    append, make = items.append, Item._make
    producer_id = epoch = sequence = -1
    while count > 0:
        count -= 1
        flags = data[at]
        length = data[at + 1]
        if length < 0x80:
            at += 2
        else:
            length, at = _varint(data, at + 1)
        records = data[at]
        if records < 0x80:
            at += 1
        else:
            records, at = _varint(data, at)
        skip = 0
        if flags & _SKIPS:
            skip, at = _varint(data, at)
        if flags & _TIMESTAMP_DIFFERS:
            distance, at = _varint(data, at)
            timestamp += distance >> 1 ^ -(distance & 1)
        if flags & _PRODUCER:
            producer_id, at = _number(data, at, _U63)
            epoch, at = _zigzag(data, at)
            sequence, at = _zigzag(data, at)
            if epoch not in _I16 or sequence not in _I32:
                raise CodecError(f"producer {producer_id}, epoch {epoch}, sequence {sequence}")
        elif not flags & _CONTINUES:
            producer_id = epoch = sequence = -1
        if not (
            0 < length <= _U32
            and 0 < records <= (_U31 if producer_id >= 0 else _U63)
            and skip <= _U32
            and -_U63 - 1 <= timestamp <= _U63
        ):
            raise CodecError(f"an item of {length} bytes, {records} records, skipping {skip}")
        if flags > _FLAGS or (flags & _CONTINUES and (flags & _PRODUCER or producer_id < 0)):
            raise CodecError(f"an item with flags {flags:#x}")
        append(make((skip, length, records, timestamp, producer_id, epoch, sequence)))
        if producer_id >= 0:
            sequence = (sequence + records) & _U31
        end += skip + length
    return tuple(items), at, end, timestamp


_ENCODERS: Final[dict[type[Command], tuple[int, Callable[[bytearray, Any], None]]]] = {
    Open: (1, _put_open),
    Close: (2, _put_close),
    Tick: (3, _put_tick),
    CreateTopic: (4, _put_create_topic),
    DeleteTopic: (5, _put_delete_topic),
    PurgePartitions: (6, _put_purge),
    AllocateProducerIds: (7, _put_allocate),
    CommitChunk: (8, _put_commit_chunk),
    Pin: (9, _put_pin),
    Unpin: (10, _put_unpin),
}

_DECODERS: Final[dict[int, Callable[[bytes, int], tuple[Command, int]]]] = {
    1: _open,
    2: _close,
    3: _tick,
    4: _create_topic,
    5: _delete_topic,
    6: _purge,
    7: _allocate,
    8: _commit_chunk,
    9: _pin,
    10: _unpin,
}
