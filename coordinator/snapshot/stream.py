"""A snapshot as bytes: one stream of blocks, cut into parts that say what they belong to.

A block is a length and bytes: encoded rows, or a column as it lies in memory. A table writes its
blocks and reads them back in the same order, and does not care where parts end. Each part has a
header: format version, how many parts there are and which one this is, the machine's position
and digest, and a CRC over all of it and the body; so damage, a part of another snapshot, a
missing one and two that changed places are told from what was written.

Columns are in the byte order of the machine that wrote them, which must be little-endian.

Left out: what the blocks say (`tables`, `groups`, `partitions`, `schemas`).
"""

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c
from typing_extensions import override

from coordinator.commands.encoding import put_varint, read_varint
from protocol.types import Buffer, Position

VERSION: Final = 1
"""Of everything in a snapshot. A newer one is refused, an older one may be read or refused."""
PART_BYTES: Final = 8 * 1024 * 1024
"""Of a part with its header; all but the last have just so many."""

_MAGIC: Final = b"FRZS"
# Magic, version, parts, number of this one, position, digest; then the CRC, then the body.
_HEAD = Struct("<4sHIIQ16s")
_CRC = Struct("<I")
HEAD_BYTES: Final = _HEAD.size + _CRC.size
_BODY_BYTES: Final = PART_BYTES - HEAD_BYTES
_LENGTH_BYTES_MAX: Final = 10

_LITTLE_ENDIAN: Final = Struct("=H").pack(1) == Struct("<H").pack(1)


class SnapshotError(Exception):
    """These parts are no snapshot that can be used; the message says why."""


class SnapshotMissingError(SnapshotError):
    """An object of a snapshot is not found, under `key`."""

    def __init__(self, key: str) -> None:
        super().__init__(f"{key} is not in the store")
        self.key = key


class PartHeader(NamedTuple):
    """The header of a part: which snapshot it belongs to, and its number."""

    parts: int
    position: Position
    digest: bytes


class BlockWriter(ABC):
    """Takes blocks in the order in which they will be read."""

    def __init__(self) -> None:
        if not _LITTLE_ENDIAN:
            raise SnapshotError("snapshots are written by little-endian machines only")

    def block(self, data: Buffer) -> None:
        length = bytearray()
        put_varint(length, len(data))
        self._write(length)
        self._write(data)

    @abstractmethod
    def _write(self, data: Buffer) -> None: ...


class PartWriter(BlockWriter):
    """Makes parts of the blocks."""

    def __init__(self) -> None:
        super().__init__()
        self._bodies: list[bytearray] = [bytearray()]

    @override
    def _write(self, data: Buffer) -> None:
        at = 0
        view = memoryview(data)
        while at < len(view):
            body = self._bodies[-1]
            if len(body) == _BODY_BYTES:
                body = bytearray()
                self._bodies.append(body)
            taken = min(_BODY_BYTES - len(body), len(view) - at)
            body += view[at : at + taken]
            at += taken

    def parts(self, position: Position, digest: bytes) -> list[bytes]:
        """All that was written. Nothing can be written after."""
        count = len(self._bodies)
        self._bodies.reverse()
        parts = []
        for number in range(count):
            body = self._bodies.pop()
            head = _HEAD.pack(_MAGIC, VERSION, count, number, position, digest)
            crc = _CRC.pack(crc32c(body, crc32c(head)))
            parts.append(b"".join((head, crc, body)))
        return parts


class PartComparer(BlockWriter):
    """Compares the blocks with those of existing parts."""

    def __init__(self, parts: Sequence[Buffer]) -> None:
        super().__init__()
        self._expected = BlockReader([*parts])
        self._differ = False

    @override
    def _write(self, data: Buffer) -> None:
        if not self._differ:
            self._differ = not self._expected.goes_on_with(data)

    def are_same(self) -> bool:
        """Nothing else was written, and nothing less."""
        return not self._differ and self._expected.is_at_end


class BlockReader:
    """Gives the blocks of parts that `checking` has passed.

    It takes the parts out of the list as it goes, so that they need not lie in memory beside all
    that is made of them.
    """

    def __init__(self, parts: list[Buffer]) -> None:
        if not _LITTLE_ENDIAN:
            raise SnapshotError("snapshots are read by little-endian machines only")
        parts.reverse()
        self._rest = parts
        self._left = sum([len(part) - HEAD_BYTES for part in parts])
        """Bytes in the parts that are still to come, the one under way not counted."""
        self._body = memoryview(b"")
        self._at = 0
        self._turn()

    def block(self) -> Buffer:
        """The next block; a view of its part if it lies in one."""
        return self._take(self._length())

    def bytes(self) -> bytes:
        """The next block, for those who read it number by number."""
        return bytes(self.block())

    def column(self) -> bytearray:
        """The next block as a column of its own."""
        return bytearray(self.block())

    def goes_on_with(self, data: Buffer) -> bool:
        """Whether these bytes come next; then they are taken."""
        if len(data) > self._left + len(self._body) - self._at:
            return False
        return self._take(len(data)) == data

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._body) and not self._rest

    def end(self) -> None:
        """Nothing may be left."""
        if not self.is_at_end:
            raise SnapshotError("the snapshot goes on behind its end")

    def _length(self) -> int:
        data = bytearray()
        while not data or data[-1] >= 0x80:
            if len(data) == _LENGTH_BYTES_MAX:
                raise SnapshotError("a block without a length")
            data += self._take(1)
        length, _ = read_varint(bytes(data), 0)
        return length

    def _take(self, length: int) -> Buffer:
        if self._at + length <= len(self._body):
            taken = self._body[self._at : self._at + length]
            self._at += length
            return taken
        if length > self._left + len(self._body) - self._at:
            raise SnapshotError("the snapshot ends in the middle of a block")
        joined = bytearray()
        while len(joined) < length:
            if self._at == len(self._body):
                self._turn()
            piece = self._body[self._at : self._at + length - len(joined)]
            joined += piece
            self._at += len(piece)
        return joined

    def _turn(self) -> None:
        """To the next part."""
        self._body, self._at = memoryview(self._rest.pop())[HEAD_BYTES:], 0
        self._left -= len(self._body)


def part_header(part: Buffer) -> PartHeader:
    """Returns a part's header; checks nothing but the format."""
    if len(part) < HEAD_BYTES or bytes(part[: len(_MAGIC)]) != _MAGIC:
        raise SnapshotError("this is no part of a snapshot")
    _, version, parts, _, position, digest = _HEAD.unpack_from(part)
    if version != VERSION:
        raise SnapshotError(
            f"the snapshot is of format {version}, this version of Frazil reads format {VERSION}"
        )
    return PartHeader(parts, Position(position), digest)


def check_part(part: Buffer, number: int, head: PartHeader) -> None:
    """Raises SnapshotError unless `part` is whole and that of the number, of the snapshot."""
    found = part_header(part)
    view = memoryview(part)
    (crc,) = _CRC.unpack_from(view, _HEAD.size)
    if crc != crc32c(view[HEAD_BYTES:], crc32c(view[: _HEAD.size])):
        raise SnapshotError(f"part {number} of the snapshot is damaged")
    at = _HEAD.unpack_from(view)[3]
    if found != head or at != number:
        raise SnapshotError(
            f"part {number} of the snapshot at position {head.position} is part {at} of {found}"
        )


def checking(parts: Sequence[Buffer]) -> Generator[None, None, PartHeader]:
    """Checks all parts and returns the snapshot's header. Raises SnapshotError unless all are there and whole.

    In steps of a part.
    """
    head = head_of_all(parts)
    for number, part in enumerate(parts):
        check_part(part, number, head)
        yield
    return head


def head_of_all(parts: Sequence[Buffer]) -> PartHeader:
    """Returns the first part's header, if there are as many parts as it says; checks no other part."""
    if not parts:
        raise SnapshotError("a snapshot without parts")
    head = part_header(parts[0])
    if head.parts != len(parts):
        raise SnapshotError(f"{len(parts)} parts of a snapshot of {head.parts}")
    return head
