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
    put_varint,
    read_bytes,
    read_string,
    read_varint,
)
from coordinator.commands.group_commands import GROUP_SHARDS, GroupKind
from coordinator.commands.layout import (
    Layout,
    UInt63,
    converted,
    fields_of,
    layout_of,
    mapping_of,
    member_of,
    optional,
    tuple_of,
)
from coordinator.snapshot.rows import (
    BYTES,
    INCARNATION,
    INT,
    POSITION,
    STRING,
    STRINGS,
    TOPIC_ID,
    UINT,
    Fields,
    read,
    read_fields,
    write,
    write_fields,
)
from coordinator.snapshot.stream import BlockReader, BlockWriter
from coordinator.tables.group_offsets import OFFSET_ROW_BYTES, GroupOffsets, _Column
from coordinator.tables.groups import GroupRow, Groups, MemberRow, shard_of
from coordinator.tables.pending_offsets import Pending, PendingOffsets
from protocol.types import INCARNATION_NONE, Incarnation


def dump_groups(out: BlockWriter, groups: Groups) -> None:
    write_fields(out, (groups, _GROUPS))
    rows = (row for shard in groups._shards for row in shard.values())
    write(out, rows, groups._count, _GROUP)
    write(out, groups._configs.items(), len(groups._configs), _CONFIGS)


def restore_groups(parts: BlockReader, groups: Groups) -> Generator[None, None, None]:
    """In steps of a group."""
    read_fields(parts, (groups, _GROUPS))
    groups._shards = [{} for _ in range(GROUP_SHARDS)]
    groups._count = 0
    for row in read(parts, _GROUP):
        groups._shards[shard_of(row.group_id)][row.group_id] = row
        groups._count += 1
        yield
    groups._configs = dict(read(parts, _CONFIGS))


def _put_column(data: bytearray, column: _Column) -> None:
    put_bytes(data, bytes(column.rows))
    put_varint(data, column.metadata is not None)
    for text in column.metadata or ():
        put_string(data, text)


def _read_column(data: bytes, at: int) -> tuple[_Column, int]:
    column = _Column()
    rows, at = read_bytes(data, at)
    column.rows += rows
    has_metadata, at = read_varint(data, at)
    if has_metadata:
        column.metadata = []
        for _ in range(len(column.rows) // OFFSET_ROW_BYTES):
            text, at = read_string(data, at)
            column.metadata.append(text)
    return column, at


def _read_offsets(data: bytes, at: int) -> tuple[GroupOffsets, int]:
    offsets, at = _OFFSETS.read(data, at)
    rows_bytes = sum([len(column.rows) for column in offsets._columns.values()])
    if rows_bytes != len(offsets) * OFFSET_ROW_BYTES:
        raise ValueError("other offsets than were counted")
    return offsets, at


def _put_pending(data: bytearray, pending: PendingOffsets) -> None:
    put_varint(data, pending._order)
    _WAITING.put(data, tuple(pending))


def _read_pending(data: bytes, at: int) -> tuple[PendingOffsets, int]:
    pending = PendingOffsets()
    pending._order, at = read_varint(data, at)
    rows, at = _WAITING.read(data, at)
    for producer_id, row in rows:
        place = (row.committed.topic_id, row.committed.partition)
        pending._places.setdefault(place, {})[producer_id] = row
        pending._producers.setdefault(producer_id, {})[place] = None
        pending.metadata_size += len(row.committed.metadata)
    pending._count = len(rows)
    return pending, at


_HOLDER: Final[Layout[Incarnation | None]] = converted(
    INCARNATION,
    laid=lambda holder: INCARNATION_NONE if holder is None else holder,
    made=lambda found: None if found == INCARNATION_NONE else found,
)
_GROUPS: Final[Fields] = {
    "_holders": converted(
        tuple_of({f"[{shard}]": _HOLDER for shard in range(GROUP_SHARDS)}), laid=tuple, made=list
    ),
    "offset_rows": UINT,
    "pending_rows": UINT,
    "size": UINT,
}
_WAITING: Final = layout_of(tuple[tuple[UInt63, Pending], ...])
"""Producer ids, and what waits of each."""
_OFFSETS: Final = fields_of(
    GroupOffsets,
    _count=UINT,
    _metadata_size=UINT,
    _columns=mapping_of(TOPIC_ID, Layout(_put_column, _read_column)),
    _pending=optional(Layout(_put_pending, _read_pending)),
)
_GROUP: Final = fields_of(
    GroupRow,
    group_id=STRING,
    kind=member_of(GroupKind),
    epoch=UINT,
    body=BYTES,
    empty_since_ms=INT,
    changed=POSITION,
    members=layout_of(dict[str, MemberRow]),
    offsets=Layout(_OFFSETS.put, _read_offsets),
)
_CONFIGS: Final = tuple_of({"[0]": STRING, "[1]": STRINGS})
