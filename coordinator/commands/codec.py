"""Entries of the metadata log as bytes, and back.

    version: 1 byte · crc32c of version and body: 4 · body
    body: incarnation, n, clock, number of commands (varints), commands
    command: kind: 1 byte · fields

Numbers are varints (base 128, least significant group first), those that may be negative
zigzagged. `CommitChunk` is delta-coded: an idempotent batch costs about 12 bytes, one that goes
on with the sequence of the batch before about 6, also in a transaction. Commands about groups are
in `group_codec`, those about transactions in `transaction_codec`, those of jobs in `job_codec`,
those about tables in `table_codec`.

Invariants: `decode_entry(encode_entry(e)) == e`, but that an item without a producer id comes back
with epoch, sequence and instance -1, whatever its batch's header said; any other bytes raise CodecError,
nothing else; what was decoded lies within the bounds named here, so the machine's columns can
hold it. What a command means, and whether it makes sense, is not looked at.
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final

from crc32c import crc32c

from coordinator.commands.encoding import (
    CONFIGS_MAX,
    I16,
    I32,
    STRING_BYTES_MAX,
    TOPIC_ID_BYTES,
    U31,
    U32,
    U63,
    CodecError,
    bounded,
    put_number,
    put_signed,
    put_string,
    put_topic_id,
    put_varint,
    put_zigzag,
    read_number,
    read_signed,
    read_string,
    read_topic_id,
    read_varint,
    read_zigzag,
)
from coordinator.commands.entries import (
    AllocateProducerIds,
    ChunkSpan,
    Close,
    Command,
    CommitChunk,
    CreateTopic,
    DeleteTopic,
    Entry,
    Listener,
    Open,
    Pin,
    PurgePartitions,
    Tick,
    Unpin,
)
from coordinator.commands.group_codec import GROUP_DECODERS, GROUP_ENCODERS
from coordinator.commands.job_codec import JOB_DECODERS, JOB_ENCODERS
from coordinator.commands.table_codec import TABLE_DECODERS, TABLE_ENCODERS
from coordinator.commands.transaction_codec import TRANSACTION_DECODERS, TRANSACTION_ENCODERS
from protocol.types import Incarnation, TopicId
from storage.formats.spans import Item
from txn.transactions import NO_TRANSACTION, OF_EPOCH

__all__ = [
    "ENTRY_BYTES_MAX",
    "ENTRY_OVERHEAD_BYTES_MAX",
    "FORMAT_VERSION",
    "STRING_BYTES_MAX",
    "CodecError",
    "decode_entry",
    "encode_command",
    "encode_entry",
    "encoded_size",
    "join_entry",
]

FORMAT_VERSION = 1
ENTRY_BYTES_MAX = 64 * 1024
ENTRY_OVERHEAD_BYTES_MAX = 5 + 4 * 10
"""What an entry takes besides its commands, at most."""

LISTENERS_MAX = 64

_HEAD = Struct("<BI")
_VERSION_CRC = crc32c(bytes([FORMAT_VERSION]))

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
    put_number(body, incarnation, U63)
    put_number(body, n, U63)
    put_signed(body, clock_ms)
    put_number(body, len(commands), U32)
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
        incarnation, at = read_number(data, _HEAD.size, U63)
        n, at = read_number(data, at, U63)
        clock_ms, at = read_signed(data, at)
        count, at = read_number(data, at, U32)
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


# The cold commands.


def _put_open(out: bytearray, command: Open) -> None:
    put_number(out, command.session, U63)
    put_string(out, command.node_name)
    put_number(out, command.node_id + 1, U31)
    put_string(out, command.zone)
    put_varint(out, bounded(len(command.listeners), LISTENERS_MAX, "listeners"))
    for listener in command.listeners:
        put_string(out, listener.name)
        put_string(out, listener.host)
        put_number(out, listener.port, 0xFFFF)
    put_string(out, command.software_version)
    put_number(out, command.feature_level_max, U31)


def _open(data: bytes, at: int) -> tuple[Open, int]:
    session, at = read_number(data, at, U63)
    node_name, at = read_string(data, at)
    node_id, at = read_number(data, at, U31)
    zone, at = read_string(data, at)
    count, at = read_number(data, at, LISTENERS_MAX)
    listeners = []
    for _ in range(count):
        name, at = read_string(data, at)
        host, at = read_string(data, at)
        port, at = read_number(data, at, 0xFFFF)
        listeners.append(Listener(name, host, port))
    software_version, at = read_string(data, at)
    feature_level_max, at = read_number(data, at, U31)
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
    put_number(out, command.incarnation, U63)
    put_signed(out, command.last)


def _close(data: bytes, at: int) -> tuple[Close, int]:
    incarnation, at = read_number(data, at, U63)
    last, at = read_signed(data, at)
    return Close(Incarnation(incarnation), last), at


def _put_tick(out: bytearray, command: Tick) -> None:
    del out, command  # A tick has no fields.


def _tick(data: bytes, at: int) -> tuple[Tick, int]:
    del data
    return Tick(), at


def _put_create_topic(out: bytearray, command: CreateTopic) -> None:
    put_string(out, command.name)
    put_signed(out, command.partition_count)
    put_varint(out, bounded(len(command.configs), CONFIGS_MAX, "configs"))
    for name, value in command.configs:
        put_string(out, name)
        put_string(out, value)


def _create_topic(data: bytes, at: int) -> tuple[CreateTopic, int]:
    name, at = read_string(data, at)
    partition_count, at = read_signed(data, at)
    count, at = read_number(data, at, CONFIGS_MAX)
    configs = []
    for _ in range(count):
        config, at = read_string(data, at)
        value, at = read_string(data, at)
        configs.append((config, value))
    return CreateTopic(name, partition_count, tuple(configs)), at


def _put_delete_topic(out: bytearray, command: DeleteTopic) -> None:
    put_topic_id(out, command.topic_id)


def _delete_topic(data: bytes, at: int) -> tuple[DeleteTopic, int]:
    topic_id, at = read_topic_id(data, at)
    return DeleteTopic(topic_id), at


def _put_purge(out: bytearray, command: PurgePartitions) -> None:
    put_topic_id(out, command.topic_id)
    put_number(out, command.first, U31)
    put_number(out, command.count, U31)


def _purge(data: bytes, at: int) -> tuple[PurgePartitions, int]:
    topic_id, at = read_topic_id(data, at)
    first, at = read_number(data, at, U31)
    count, at = read_number(data, at, U31)
    return PurgePartitions(topic_id, first, count), at


def _put_allocate(out: bytearray, command: AllocateProducerIds) -> None:
    put_signed(out, command.count)


def _allocate(data: bytes, at: int) -> tuple[AllocateProducerIds, int]:
    count, at = read_signed(data, at)
    return AllocateProducerIds(count), at


def _put_pin(out: bytearray, command: Pin) -> None:
    put_string(out, command.name)
    put_signed(out, command.lifetime_ms)


def _pin(data: bytes, at: int) -> tuple[Pin, int]:
    name, at = read_string(data, at)
    lifetime_ms, at = read_signed(data, at)
    return Pin(name, lifetime_ms), at


def _put_unpin(out: bytearray, command: Unpin) -> None:
    put_string(out, command.name)


def _unpin(data: bytes, at: int) -> tuple[Unpin, int]:
    name, at = read_string(data, at)
    return Unpin(name), at


# CommitChunk: number, length, the topics' ids, and per span: index of the topic, partition,
# distance of its start from the end of the span before (zigzag), number of items, items.


def _put_commit_chunk(out: bytearray, command: CommitChunk) -> None:
    put_number(out, command.number, U32)
    put_number(out, command.length, U32)
    topics: dict[TopicId, int] = {}
    for span in command.spans:
        topics.setdefault(span.topic_id, len(topics))
    put_varint(out, len(topics))
    for topic_id in topics:
        put_topic_id(out, topic_id)
    put_varint(out, len(command.spans))
    end = timestamp = 0
    for topic_id, partition, start, items in command.spans:
        if not (items and 0 <= start <= U32):
            raise CodecError(f"a span of {len(items)} items at {start}")
        put_varint(out, topics[topic_id])
        put_number(out, partition, U31)
        put_zigzag(out, start - end)
        put_varint(out, len(items))
        timestamp = _put_items(out, items, timestamp)
        end = start + sum(item.skip + item.length for item in items)


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


def _commit_chunk(data: bytes, at: int) -> tuple[CommitChunk, int]:
    number, at = read_number(data, at, U32)
    length, at = read_number(data, at, U32)
    topic_count, at = read_number(data, at, len(data) // TOPIC_ID_BYTES)
    topics = []
    for _ in range(topic_count):
        topic_id, at = read_topic_id(data, at)
        topics.append(topic_id)
    span_count, at = read_number(data, at, len(data))
    spans = []
    end = timestamp = 0
    for _ in range(span_count):
        topic, at = read_varint(data, at)
        if topic >= topic_count:
            raise CodecError(f"topic {topic} of {topic_count}")
        partition, at = read_number(data, at, U31)
        distance, at = read_zigzag(data, at)
        item_count, at = read_varint(data, at)
        start = end + distance
        if not (item_count > 0 and 0 <= start <= U32):
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
        append(make((skip, length, records, timestamp, producer_id, epoch, sequence, instance)))
        if producer_id >= 0:
            sequence = (sequence + records) & U31
        end += skip + length
    return tuple(items), at, end, timestamp


def _producer(data: bytes, at: int, flags: int) -> tuple[int, int, int, int, int]:
    """Producer id, epoch, first sequence and instance, and the place after them."""
    producer_id, at = read_varint(data, at)
    epoch = data[at]
    if epoch < 0x80:
        at += 1
    else:
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
    **GROUP_ENCODERS,
    **TRANSACTION_ENCODERS,
    **JOB_ENCODERS,
    **TABLE_ENCODERS,
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
    **GROUP_DECODERS,
    **TRANSACTION_DECODERS,
    **JOB_DECODERS,
    **TABLE_DECODERS,
}
