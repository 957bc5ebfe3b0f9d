"""Groups in a snapshot: claims, members, committed offsets and those that wait, configs.

A friend of `groups`, `group_offsets` and `pending_offsets`: it reads their fields and sets all of
them. Columns of offsets are copied as they lie. Which producers have something waiting in a place
is written once, by producer.
"""

from collections.abc import Generator
from typing import Final

from coordinator.commands.encoding import (
    put_bytes,
    put_string,
    put_topic_id,
    put_varint,
    read_bytes,
    read_string,
    read_topic_id,
    read_varint,
)
from coordinator.commands.group_commands import GROUP_SHARDS, CommittedOffset, GroupKind
from coordinator.commands.layout import (
    Layout,
    attributes_of,
    fields_of,
    mapping_of,
    member_of,
    tuple_of,
)
from coordinator.snapshot.rows import (
    BYTES,
    INT,
    POSITION,
    STRING,
    STRINGS,
    TOPIC_ID,
    UINT,
    read,
    write,
)
from coordinator.snapshot.stream import BlockReader, BlockWriter
from coordinator.tables.group_offsets import OFFSET_ROW_BYTES, GroupOffsets, _Column
from coordinator.tables.groups import GroupRow, Groups, MemberRow, shard_of
from coordinator.tables.pending_offsets import Pending, PendingOffsets
from protocol.types import INCARNATION_NONE, POSITION_ZERO, Incarnation


def dump_groups(out: BlockWriter, groups: Groups) -> None:
    head = bytearray()
    for holder in groups._holders:
        put_varint(head, holder if holder is not None else INCARNATION_NONE)
    for count in (groups.offset_rows, groups.pending_rows, groups.size):
        put_varint(head, count)
    out.block(head)
    rows = (row for shard in groups._shards for row in shard.values())
    write(out, rows, groups._count, _GROUP)
    write(out, groups._configs.items(), len(groups._configs), _CONFIGS)


def restore_groups(parts: BlockReader, groups: Groups) -> Generator[None, None, None]:
    """In steps of a group."""
    head = parts.bytes()
    at = 0
    holders: list[Incarnation | None] = []
    for _ in range(GROUP_SHARDS):
        holder, at = read_varint(head, at)
        holders.append(Incarnation(holder) if holder != INCARNATION_NONE else None)
    groups._holders = holders
    groups.offset_rows, at = read_varint(head, at)
    groups.pending_rows, at = read_varint(head, at)
    groups.size, at = read_varint(head, at)
    groups._shards = [{} for _ in range(GROUP_SHARDS)]
    groups._count = 0
    for row in read(parts, _GROUP):
        groups._shards[shard_of(row.group_id)][row.group_id] = row
        groups._count += 1
        yield
    groups._configs = dict(read(parts, _CONFIGS))


def _put_offsets(data: bytearray, offsets: GroupOffsets) -> None:
    put_varint(data, offsets._count)
    put_varint(data, offsets._metadata_size)
    put_varint(data, len(offsets._columns))
    for topic_id, column in offsets._columns.items():
        put_topic_id(data, topic_id)
        put_bytes(data, bytes(column.rows))
        put_varint(data, column.metadata is not None)
        for text in column.metadata or ():
            put_string(data, text)
    put_varint(data, offsets._pending is not None)
    if offsets._pending is not None:
        _put_pending(data, offsets._pending)


def _read_offsets(data: bytes, at: int) -> tuple[GroupOffsets, int]:
    offsets = GroupOffsets()
    offsets._count, at = read_varint(data, at)
    offsets._metadata_size, at = read_varint(data, at)
    count, at = read_varint(data, at)
    rows_left = offsets._count
    for _ in range(count):
        topic_id, at = read_topic_id(data, at)
        column = offsets._columns[topic_id] = _Column()
        rows, at = read_bytes(data, at)
        column.rows += rows
        has_metadata, at = read_varint(data, at)
        if has_metadata:
            column.metadata = []
            for _ in range(len(column.rows) // OFFSET_ROW_BYTES):
                text, at = read_string(data, at)
                column.metadata.append(text)
        rows_left -= len(column.rows) // OFFSET_ROW_BYTES
    if rows_left:
        raise ValueError("other offsets than were counted")
    has_pending, at = read_varint(data, at)
    if has_pending:
        offsets._pending, at = _read_pending(data, at)
    return offsets, at


def _put_pending(data: bytearray, pending: PendingOffsets) -> None:
    put_varint(data, pending._order)
    put_varint(data, pending._count)
    for row in pending:
        _PENDING.put(data, row)


def _read_pending(data: bytes, at: int) -> tuple[PendingOffsets, int]:
    pending = PendingOffsets()
    pending._order, at = read_varint(data, at)
    pending._count, at = read_varint(data, at)
    for _ in range(pending._count):
        (producer_id, order, committed), at = _PENDING.read(data, at)
        place = (committed.topic_id, committed.partition)
        pending._places.setdefault(place, {})[producer_id] = Pending(order, committed)
        pending._producers.setdefault(producer_id, {})[place] = None
        pending.metadata_size += len(committed.metadata)
    return pending, at


# Rows.


_PENDING: Final = tuple_of(
    {
        "[0]": UINT,
        "[1].order": UINT,
        "[1].committed": fields_of(
            CommittedOffset,
            topic_id=TOPIC_ID,
            partition=UINT,
            offset=INT,
            leader_epoch=INT,
            metadata=STRING,
        ),
    }
)
"""Of a producer."""
_GROUP: Final = attributes_of(
    lambda: GroupRow("", POSITION_ZERO, 0),
    group_id=STRING,
    kind=member_of(GroupKind),
    epoch=UINT,
    body=BYTES,
    empty_since_ms=INT,
    changed=POSITION,
    members=mapping_of(STRING, fields_of(MemberRow, epoch=INT, body=BYTES)),
    offsets=Layout(_put_offsets, _read_offsets),
)
_CONFIGS: Final = tuple_of({"[0]": STRING, "[1]": STRINGS})
