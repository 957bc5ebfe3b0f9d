"""The format that segments and index objects share: the objects that jobs write.

    header   16 bytes   magic, version
    data                pieces of partitions, adjacent
    table               whose object this is, and of every piece: partition, offsets, bytes, and
                        more as the kind wants it
    footer   32 bytes   where the table begins, its length and CRC-32C, version, magic

All numbers are big-endian and of fixed width, so the length of an object is known before its
name is. Serving never reads the table: the log says what lies where, and compares it. With it a
bucket can be audited without the log. Pure.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from protocol.types import Buffer, Incarnation, Position, era_of
from storage.formats.chunk import CLUSTER_ID_BYTES_MAX
from storage.formats.spans import ObjectId, ObjectKind

_HEADER: Final = struct.Struct(">8sH6x")
_OWNER: Final = struct.Struct(f">{CLUSTER_ID_BYTES_MAX}sHQII")
_FOOTER: Final = struct.Struct(">QIIH6x8s")

HEADER_BYTES: Final = _HEADER.size
FOOTER_BYTES: Final = _FOOTER.size

assert HEADER_BYTES == 16
assert FOOTER_BYTES == 32


class JobObjectFormatError(Exception):
    """The bytes are not such an object of a version that is known here, or are damaged."""


class Format(NamedTuple):
    """One kind of object."""

    kind: ObjectKind
    magic: bytes
    version: int
    row: struct.Struct
    """Of a piece in the table."""

    def header(self) -> bytes:
        return _HEADER.pack(self.magic, self.version)

    def length(self, *, data_bytes: int, pieces: int) -> int:
        """Of the whole object."""
        return HEADER_BYTES + data_bytes + _OWNER.size + pieces * self.row.size + FOOTER_BYTES

    def tail(
        self,
        object_id: ObjectId,
        *,
        cluster_id: str,
        rows: Sequence[tuple[bytes | int, ...]],
        data_end: int,
    ) -> bytes:
        """Table and footer of an object whose data ends at byte `data_end`."""
        assert object_id.kind == self.kind
        owner = cluster_id.encode()
        assert 0 < len(owner) <= CLUSTER_ID_BYTES_MAX
        incarnation, number, _ = object_id
        era = era_of(Position(incarnation))
        parts = [_OWNER.pack(owner, era, incarnation, number, len(rows))]
        parts.extend(self.row.pack(*row) for row in rows)
        table = b"".join(parts)
        footer = _FOOTER.pack(data_end, len(table), crc32c(table), self.version, self.magic)
        return table + footer

    def parse(self, data: Buffer) -> "Table":
        """Decodes the table of a whole object. Raises JobObjectFormatError."""
        view = memoryview(data)
        if len(view) < self.length(data_bytes=0, pieces=0):
            raise JobObjectFormatError(f"{len(view)} bytes are too few")
        magic, version = _HEADER.unpack_from(view)
        if magic != self.magic:
            raise JobObjectFormatError(f"no object of kind {self.kind.name.lower()}")
        if version != self.version:
            raise JobObjectFormatError(f"version {version} is not known here, only {self.version}")
        if view[:HEADER_BYTES] != self.header():
            raise JobObjectFormatError("header and footer are not those of one object")
        found = self.parse_end(view, object_length=len(view))
        assert isinstance(found, Table)
        return found

    def parse_end(self, end: Buffer, *, object_length: int) -> "Table | int":
        """Decodes the table by the last bytes of an object, FOOTER_BYTES or more; or says how many of
        them it takes. Raises JobObjectFormatError."""
        view = memoryview(end)
        start, length, checksum, _, _ = _FOOTER.unpack(view[-FOOTER_BYTES:])
        if view[-FOOTER_BYTES:] != _FOOTER.pack(start, length, checksum, self.version, self.magic):
            raise JobObjectFormatError("header and footer are not those of one object")
        if start < HEADER_BYTES or start + length + FOOTER_BYTES != object_length:
            raise JobObjectFormatError("the footer points outside of the object")
        if length + FOOTER_BYTES > len(view):
            return int(length + FOOTER_BYTES)
        table = view[len(view) - FOOTER_BYTES - length : len(view) - FOOTER_BYTES]
        if crc32c(table) != checksum or length < _OWNER.size:
            raise JobObjectFormatError("the table does not match its checksum")
        owner, era, incarnation, number, count = _OWNER.unpack_from(table)
        if length != _OWNER.size + count * self.row.size:
            raise JobObjectFormatError(f"a table of {length} bytes for {count} pieces")
        try:
            cluster_id = owner.rstrip(b"\0").decode()
        except UnicodeDecodeError as error:
            raise JobObjectFormatError(f"{owner!r} is no cluster id") from error
        if era_of(Position(incarnation)) != era:
            raise JobObjectFormatError(f"era {era} does not fit incarnation {incarnation:x}")
        object_id = ObjectId(Incarnation(incarnation), number, self.kind)
        return Table(cluster_id, object_id, list(self.row.iter_unpack(table[_OWNER.size :])), start)


class Table(NamedTuple):
    """The decoded table of an object."""

    cluster_id: str
    object_id: ObjectId
    rows: list[tuple[bytes | int, ...]]
    data_end: int


class Builder:
    """Gathers the pieces of one object; the builders of the kinds `add` them."""

    def __init__(self, kind: Format) -> None:
        self._format = kind
        self._rows: list[tuple[bytes | int, ...]] = []
        self._parts: list[Buffer] = []
        self._data_end = HEADER_BYTES

    def __len__(self) -> int:
        """Pieces."""
        return len(self._rows)

    @property
    def length(self) -> int:
        """Bytes of the object as it would be now."""
        data_bytes = self._data_end - HEADER_BYTES
        return self._format.length(data_bytes=data_bytes, pieces=len(self._rows))

    def _put(self, row: tuple[bytes | int, ...], parts: Sequence[Buffer], *, length: int) -> None:
        self._rows.append(row)
        self._parts.extend(parts)
        self._data_end += length

    def object_parts(self, object_id: ObjectId, *, cluster_id: str) -> list[Buffer]:
        """The object's bytes, in parts."""
        assert self._rows
        tail = self._format.tail(
            object_id, cluster_id=cluster_id, rows=self._rows, data_end=self._data_end
        )
        return [self._format.header(), *self._parts, tail]


def check_adjacent(pieces: Sequence[tuple[int, int]], *, data_end: int) -> None:
    """Starts and lengths: pieces without a hole from the header to `data_end`.

    Raises JobObjectFormatError.
    """
    at = HEADER_BYTES
    for start, length in pieces:
        if start != at:
            raise JobObjectFormatError(f"a piece begins at byte {start}, not at {at}")
        at += length
    if at != data_end:
        raise JobObjectFormatError(f"the pieces end at byte {at}, the data at {data_end}")
