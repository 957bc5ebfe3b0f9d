"""Groups in a snapshot: claims, members, committed offsets and those that wait, configs.

A friend of `groups`, `group_offsets` and `pending_offsets`: it reads their fields and sets all of
them. Columns of offsets are copied as they lie. Which producers have something waiting in a place
is written once, by producer.
"""

from collections.abc import Generator

from coordinator.commands.encoding import (
    put_bytes,
    put_signed,
    put_string,
    put_topic_id,
    put_varint,
    read_bytes,
    read_signed,
    read_string,
    read_topic_id,
    read_varint,
)
from coordinator.commands.group_commands import GROUP_SHARDS, CommittedOffset, GroupKind
from coordinator.snapshot.rows import put_strings, read, read_strings, write
from coordinator.snapshot.stream import In, Out
from coordinator.tables.group_offsets import OFFSET_ROW_BYTES, GroupOffsets, _Column
from coordinator.tables.groups import GroupRow, Groups, MemberRow, shard_of
from coordinator.tables.pending_offsets import Pending, PendingOffsets
from protocol.types import INCARNATION_NONE, Incarnation, Position


def dump_groups(out: Out, groups: Groups) -> None:
    head = bytearray()
    for holder in groups._holders:
        put_varint(head, holder if holder is not None else INCARNATION_NONE)
    for count in (groups.offset_rows, groups.pending_rows, groups.size):
        put_varint(head, count)
    out.block(head)
    rows = (row for shard in groups._shards for row in shard.values())
    write(out, rows, groups._count, _put_group)
    write(out, groups._configs.items(), len(groups._configs), _put_configs)


def restore_groups(parts: In, groups: Groups) -> Generator[None, None, None]:
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
    for row in read(parts, _read_group):
        groups._shards[shard_of(row.group_id)][row.group_id] = row
        groups._count += 1
        yield
    groups._configs = dict(read(parts, _read_configs))


def _put_configs(data: bytearray, configs: tuple[str, dict[str, str]]) -> None:
    put_string(data, configs[0])
    put_strings(data, configs[1])


def _read_configs(data: bytes, at: int) -> tuple[tuple[str, dict[str, str]], int]:
    group_id, at = read_string(data, at)
    configs, at = read_strings(data, at)
    return (group_id, configs), at


def _put_group(data: bytearray, row: GroupRow) -> None:
    put_string(data, row.group_id)
    put_varint(data, row.kind)
    put_varint(data, row.epoch)
    put_bytes(data, row.body)
    put_signed(data, row.empty_since_ms)
    put_varint(data, row.changed)
    put_varint(data, len(row.members))
    for member_id, member in row.members.items():
        put_string(data, member_id)
        put_signed(data, member.epoch)
        put_bytes(data, member.body)
    _put_offsets(data, row.offsets)


def _read_group(data: bytes, at: int) -> tuple[GroupRow, int]:
    group_id, at = read_string(data, at)
    kind, at = read_varint(data, at)
    epoch, at = read_varint(data, at)
    body, at = read_bytes(data, at)
    empty_since_ms, at = read_signed(data, at)
    changed, at = read_varint(data, at)
    row = GroupRow(group_id, Position(changed), empty_since_ms)
    row.kind = GroupKind(kind)
    row.epoch = epoch
    row.body = body
    count, at = read_varint(data, at)
    for _ in range(count):
        member_id, at = read_string(data, at)
        epoch, at = read_signed(data, at)
        body, at = read_bytes(data, at)
        row.members[member_id] = MemberRow(epoch, body)
    return row, _read_offsets(data, at, row.offsets)


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


def _read_offsets(data: bytes, at: int, offsets: GroupOffsets) -> int:
    """Into offsets that are new; the place behind them."""
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
    return at


def _put_pending(data: bytearray, pending: PendingOffsets) -> None:
    put_varint(data, pending._order)
    put_varint(data, pending._count)
    for producer_id, (order, committed) in pending:
        put_varint(data, producer_id)
        put_varint(data, order)
        put_topic_id(data, committed.topic_id)
        put_varint(data, committed.partition)
        put_signed(data, committed.offset)
        put_signed(data, committed.leader_epoch)
        put_string(data, committed.metadata)


def _read_pending(data: bytes, at: int) -> tuple[PendingOffsets, int]:
    pending = PendingOffsets()
    pending._order, at = read_varint(data, at)
    pending._count, at = read_varint(data, at)
    for _ in range(pending._count):
        producer_id, at = read_varint(data, at)
        order, at = read_varint(data, at)
        topic_id, at = read_topic_id(data, at)
        partition, at = read_varint(data, at)
        offset, at = read_signed(data, at)
        leader_epoch, at = read_signed(data, at)
        metadata, at = read_string(data, at)
        committed = CommittedOffset(topic_id, partition, offset, leader_epoch, metadata)
        place = (topic_id, partition)
        pending._places.setdefault(place, {})[producer_id] = Pending(order, committed)
        pending._producers.setdefault(producer_id, {})[place] = None
        pending.metadata_size += len(metadata)
    return pending, at
