"""Rows of a snapshot's tables: many in a block, one after the other, and how their fields look.

`write` and `read` are given what one row is in bytes. A block ends behind a row, so no row is
larger than its block; numbers and strings are those of the metadata log (`encoding`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeVar

from coordinator.commands.encoding import put_string, put_varint, read_string, read_varint
from coordinator.snapshot.stream import In, Out, SnapshotError

Row = TypeVar("Row")

_BLOCK_BYTES: Final = 256 * 1024


def write(out: Out, rows: Iterable[Row], count: int, put: Callable[[bytearray, Row], None]) -> None:
    """`put` appends one row; there are `count` of them."""
    data = bytearray()
    put_varint(data, count)
    for row in rows:
        if len(data) > _BLOCK_BYTES:
            out.block(data)
            data = bytearray()
        put(data, row)
    out.block(data)


def read(parts: In, get: Callable[[bytes, int], tuple[Row, int]]) -> Iterator[Row]:
    """`get` gives one row and the place behind it. All rows must be taken."""
    data = parts.bytes()
    count, at = read_varint(data, 0)
    for _ in range(count):
        if at == len(data):
            data, at = parts.bytes(), 0
        row, at = get(data, at)
        yield row
    if at != len(data):
        raise SnapshotError("a table of the snapshot goes on behind its last row")


def put_strings(data: bytearray, strings: Mapping[str, str]) -> None:
    put_varint(data, len(strings))
    for name, value in strings.items():
        put_string(data, name)
        put_string(data, value)


def read_strings(data: bytes, at: int) -> tuple[dict[str, str], int]:
    count, at = read_varint(data, at)
    strings = {}
    for _ in range(count):
        name, at = read_string(data, at)
        strings[name], at = read_string(data, at)
    return strings, at
