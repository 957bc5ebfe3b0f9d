"""Archives of the metadata log: objects that hold what was applied, entry by entry.

    archive/<after>-<last>    all entries of the log at positions in (after, last]

    header    16 bytes   magic, version
    owner                whose log this is, from where to where, the machine's digest there, how many
    entries              position, session, number, whether it is void; the payload
    checksum   4 bytes   CRC-32C of all before it

All numbers are big-endian. The last entry is the one at `last`. So whoever has a snapshot and archives that
reach on from it without a hole has the machine at the last one's end, and the digest says whether it is
the same machine; the log is not needed for it. Ranges may overlap: entries of one position are equal. Pure.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from protocol.types import Buffer, Position
from storage.formats.chunk import CLUSTER_ID_BYTES_MAX

FOLDER: Final = "archive"
MAGIC: Final = b"\x00FRAZILa"
VERSION: Final = 1
DIGEST_BYTES: Final = 16

_HEADER: Final = struct.Struct(">8sH6x")
_OWNER: Final = struct.Struct(f">{CLUSTER_ID_BYTES_MAX}sQQ{DIGEST_BYTES}sI")
_ENTRY: Final = struct.Struct(">QqQBI")
_CHECKSUM: Final = struct.Struct(">I")

ENTRY_BYTES: Final = _ENTRY.size
"""Of an entry beside its payload."""
FRAME_BYTES: Final = _HEADER.size + _OWNER.size + _CHECKSUM.size
"""Of an archive beside its entries."""

assert _HEADER.size == 16


class ArchiveFormatError(Exception):
    """The bytes are not an archive of a version that is known here, or are damaged."""


@dataclass(frozen=True, slots=True)
class ArchivedEntry:
    """An entry as the log had it, and whether an operator had voided it."""

    position: Position
    session: int
    n: int
    voided: bool
    payload: bytes


@dataclass(frozen=True, slots=True)
class LogArchive:
    """All entries at positions in (after, last], in order."""

    cluster_id: str
    after: Position
    last: Position
    digest: bytes
    """Of the machine at `last`."""
    entries: tuple[ArchivedEntry, ...]


def archive_key(after: Position, last: Position) -> str:
    """The object's key."""
    return f"{FOLDER}/{after:016x}-{last:016x}"


def range_of(key: str) -> tuple[Position, Position]:
    """The inverse of `archive_key`. Raises ValueError when `key` is not that of an archive."""
    after, _, last = key.removeprefix(f"{FOLDER}/").partition("-")
    try:
        found = Position(int(after, 16)), Position(int(last, 16))
    except ValueError:
        found = Position(0), Position(0)
    if found[0] >= found[1] or key != archive_key(*found):
        raise ValueError(f"{key!r} is not the key of an archive")
    return found


def encode_archive(archive: LogArchive) -> bytes:
    """The object's bytes: always the same for the same archive. The cluster id has at most 64 bytes."""
    cluster_id = archive.cluster_id.encode()
    assert 0 < len(cluster_id) <= CLUSTER_ID_BYTES_MAX
    assert len(archive.digest) == DIGEST_BYTES
    _check_order(archive)
    parts = [
        _HEADER.pack(MAGIC, VERSION),
        _OWNER.pack(cluster_id, archive.after, archive.last, archive.digest, len(archive.entries)),
    ]
    for entry in archive.entries:
        row = (entry.position, entry.session, entry.n, entry.voided, len(entry.payload))
        parts += (_ENTRY.pack(*row), entry.payload)
    return b"".join((*parts, _CHECKSUM.pack(_checksum_of(parts))))


def _checksum_of(parts: Sequence[bytes]) -> int:
    checksum = 0
    for part in parts:
        checksum = crc32c(part, checksum)
    return checksum


def decode_archive(data: Buffer) -> LogArchive:
    """The archive, everything checked. Raises ArchiveFormatError."""
    view = memoryview(data)
    if len(view) < FRAME_BYTES:
        raise ArchiveFormatError(f"{len(view)} bytes are too few for an archive")
    magic, version = _HEADER.unpack_from(view)
    if magic != MAGIC:
        raise ArchiveFormatError("the object does not begin like an archive")
    if version != VERSION:
        raise ArchiveFormatError(f"archive format {version} is not known here, only {VERSION}")
    end = len(view) - _CHECKSUM.size
    if _CHECKSUM.unpack_from(view, end) != (crc32c(view[:end]),):
        raise ArchiveFormatError("the archive does not match its checksum")
    owner, after, last, digest, count = _OWNER.unpack_from(view, _HEADER.size)
    try:
        cluster_id = owner.rstrip(b"\0").decode()
    except UnicodeDecodeError as error:
        raise ArchiveFormatError(f"{owner!r} is no cluster id") from error
    if not cluster_id:
        raise ArchiveFormatError("an archive of no cluster")
    entries = _entries(view[:end], count)
    archive = LogArchive(cluster_id, Position(after), Position(last), digest, entries)
    _check_order(archive)
    return archive


def _entries(view: memoryview, count: int) -> tuple[ArchivedEntry, ...]:
    at = _HEADER.size + _OWNER.size
    entries = []
    for _ in range(count):
        start = at + _ENTRY.size
        if start > len(view):
            raise ArchiveFormatError("the archive ends in the middle of an entry")
        place, session, n, voided, length = _ENTRY.unpack_from(view, at)
        at = start + length
        if at > len(view):
            raise ArchiveFormatError("the archive ends in the middle of a payload")
        if voided > 1:
            raise ArchiveFormatError(f"an entry at {place} that is void by {voided}")
        payload = bytes(view[start:at])
        entries.append(ArchivedEntry(Position(place), session, n, bool(voided), payload))
    if at != len(view):
        raise ArchiveFormatError("the archive is longer than its entries")
    return tuple(entries)


def _check_order(archive: LogArchive) -> None:
    newest = archive.after
    for entry in archive.entries:
        if entry.position <= newest:
            raise ArchiveFormatError(f"an entry at {entry.position} behind position {newest}")
        newest = entry.position
    if not archive.entries or newest != archive.last:
        raise ArchiveFormatError(
            f"an archive to position {archive.last} whose entries end at {newest}"
        )
