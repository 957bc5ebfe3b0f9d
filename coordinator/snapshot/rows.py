"""Rows of a snapshot's tables: many in a block, one after the other, and how their fields look.

`write` and `read` are given the layout of one row (`coordinator.commands.layout`), which names all
of its fields. A block ends behind a row, so no row is larger than its block. What a table has
besides rows is a block of some of its fields.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from coordinator.commands.encoding import U63, put_varint, read_varint
from coordinator.commands.layout import (
    Int64,
    Layout,
    converted,
    layout_of,
    mapping_of,
    number,
)
from coordinator.snapshot.stream import BlockReader, BlockWriter, SnapshotError
from protocol.types import Incarnation, Position, TopicId

Row = TypeVar("Row")
Fields = Mapping[str, Layout[Any]]
"""Names of fields, in the order of their bytes."""

UINT: Final = number(U63)
INT: Final[Layout[int]] = layout_of(Int64)
FLAG: Final[Layout[bool]] = layout_of(bool)
STRING: Final[Layout[str]] = layout_of(str)
BYTES: Final[Layout[bytes]] = layout_of(bytes)
TOPIC_ID: Final[Layout[TopicId]] = layout_of(TopicId)
POSITION: Final[Layout[Position]] = layout_of(Position)
INCARNATION: Final[Layout[Incarnation]] = layout_of(Incarnation)
STRINGS: Final = mapping_of(STRING, STRING)
COLUMN: Final = converted(BYTES, laid=bytes, made=bytearray)

_BLOCK_BYTES: Final = 256 * 1024


def write(out: BlockWriter, rows: Iterable[Row], count: int, layout: Layout[Row]) -> None:
    """There are `count` rows."""
    data = bytearray()
    put_varint(data, count)
    for row in rows:
        if len(data) > _BLOCK_BYTES:
            out.block(data)
            data = bytearray()
        layout.put(data, row)
    out.block(data)


def read(parts: BlockReader, layout: Layout[Row]) -> Iterator[Row]:
    """All rows must be taken."""
    data = parts.bytes()
    count, at = read_varint(data, 0)
    for _ in range(count):
        if at == len(data):
            data, at = parts.bytes(), 0
        row, at = layout.read(data, at)
        yield row
    if at != len(data):
        raise SnapshotError("a table of the snapshot goes on behind its last row")


def write_fields(out: BlockWriter, *tables: tuple[object, Fields]) -> None:
    """One block of what tables have besides their rows."""
    data = bytearray()
    for table, fields in tables:
        for name, layout in fields.items():
            layout.put(data, getattr(table, name))
    out.block(data)


def read_fields(parts: BlockReader, *tables: tuple[object, Fields]) -> None:
    """Sets the fields that `write_fields` has written."""
    data, at = parts.bytes(), 0
    for table, fields in tables:
        for name, layout in fields.items():
            value, at = layout.read(data, at)
            setattr(table, name, value)
