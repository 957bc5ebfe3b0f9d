"""The chunk format, version 2: what one flush writes as one object. Version 1 is read, too: there
an item does not say to which transaction it belongs, since there were none.

    header   16 bytes   magic, version, the log's revision that its agent knew of (0: not told)
    data                record batches, adjacent per partition, base offsets as the clients sent
    index               whose chunk this is, and every item: what the log's entry says, again
    footer   32 bytes   where the index begins, its length and CRC-32C, version, magic

All numbers are big-endian and of fixed width, so the length of an object is known before its
name is. With the index a bucket can be audited without the log; serving never reads it. Every
span's data carries a CRC-32C of its own beside those of its batches.

The revision in the header is of the incarnation's era. It tells that a log is older than a chunk
which it does not name; nothing else reads it.

The log, not the index, says what counts: a batch that is in a chunk may have been refused.
Big data is never joined: a chunk is a list of buffers. Pure. What is left out: compression (the
batches are the clients', compressed or not) and encryption (the store's).
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from crc32c import crc32c

from protocol.types import (
    REVISION_BITS,
    Buffer,
    Incarnation,
    Position,
    TopicId,
    era_of,
    position,
    revision_of,
)
from storage.formats.spans import Item, ObjectId

MAGIC: Final = b"\x00FRAZILc"
VERSION: Final = 2
CLUSTER_ID_BYTES_MAX: Final = 64

_HEADER: Final = struct.Struct(">8sH6s")
_OWNER: Final = struct.Struct(f">{CLUSTER_ID_BYTES_MAX}sHQII")
_SPAN: Final = struct.Struct(">16siQQII")
_ITEM: Final = struct.Struct(">IIIqqhiq")
_ITEMS: Final = {1: struct.Struct(">IIIqqhi"), VERSION: _ITEM}
"""Of each version that is known here."""
_FOOTER: Final = struct.Struct(">QIIH6x8s")

HEADER_BYTES: Final = _HEADER.size
FOOTER_BYTES: Final = _FOOTER.size

_REVISION_BYTES: Final = REVISION_BITS // 8

assert HEADER_BYTES == 16
assert _REVISION_BYTES == 6
assert FOOTER_BYTES == 32


class ChunkFormatError(Exception):
    """The bytes are not a chunk of a version that is known here, or are damaged."""


class IndexSpan(NamedTuple):
    """The batches of one partition: bytes [start, start + length) of the object."""

    topic_id: TopicId
    partition: int
    start: int
    length: int
    checksum: int
    """CRC-32C of the bytes."""
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class ChunkIndex:
    """The decoded index of a chunk."""

    cluster_id: str
    chunk: ObjectId
    spans: tuple[IndexSpan, ...]

    @property
    def era(self) -> int:
        return era_of(Position(self.chunk.incarnation))


def index_bytes(*, span_count: int, item_count: int) -> int:
    """Length of an encoded index."""
    return _OWNER.size + span_count * _SPAN.size + item_count * _ITEM.size


def chunk_bytes(*, data_bytes: int, span_count: int, item_count: int) -> int:
    """Length of the whole object."""
    tail = index_bytes(span_count=span_count, item_count=item_count) + FOOTER_BYTES
    return HEADER_BYTES + data_bytes + tail


def encode_header(reached: Position) -> bytes:
    """The header of a chunk whose agent has applied the log up to `reached`."""
    return _HEADER.pack(MAGIC, VERSION, revision_of(reached).to_bytes(_REVISION_BYTES, "big"))


def position_in(header: Buffer, incarnation: Incarnation) -> Position:
    """What `encode_header` was told, of a chunk of the incarnation; revision 0 when it was not.

    Raises ChunkFormatError.
    """
    magic, _, revision = _HEADER.unpack_from(header)
    if magic != MAGIC:
        raise ChunkFormatError("the object does not begin like a chunk")
    return position(era_of(Position(incarnation)), int.from_bytes(revision, "big"))


def encode_index(index: ChunkIndex) -> bytes:
    """The index alone, without the footer. The cluster id has at most 64 bytes."""
    cluster_id = index.cluster_id.encode()
    assert 0 < len(cluster_id) <= CLUSTER_ID_BYTES_MAX
    incarnation, number, _ = index.chunk
    parts = [_OWNER.pack(cluster_id, index.era, incarnation, number, len(index.spans))]
    for topic_id, partition, start, length, checksum, items in index.spans:
        parts.append(_SPAN.pack(topic_id, partition, start, length, checksum, len(items)))
        parts.extend(_ITEM.pack(*item) for item in items)
    return b"".join(parts)


def encode_tail(index: ChunkIndex, *, data_end: int) -> bytes:
    """Index and footer of a chunk whose header and data end at byte `data_end`."""
    encoded = encode_index(index)
    return encoded + _FOOTER.pack(data_end, len(encoded), crc32c(encoded), VERSION, MAGIC)


def checksum_of(parts: Iterable[Buffer]) -> int:
    """CRC-32C of the joined parts, without joining them."""
    checksum = 0
    for part in parts:
        checksum = crc32c(part, checksum)
    return checksum


class Footer(NamedTuple):
    """Where the index lies in the object."""

    index_start: int
    index_length: int
    index_checksum: int
    version: int


def parse_footer(footer: Buffer, *, object_length: int) -> Footer:
    """Read the last FOOTER_BYTES of an object. Raises ChunkFormatError."""
    if len(footer) != FOOTER_BYTES or object_length < chunk_bytes(
        data_bytes=0, span_count=0, item_count=0
    ):
        raise ChunkFormatError(f"{object_length} bytes are too few for a chunk")
    start, length, checksum, version, magic = _FOOTER.unpack(footer)
    if magic != MAGIC:
        raise ChunkFormatError("the object does not end like a chunk")
    if version not in _ITEMS:
        raise ChunkFormatError(f"chunk format {version} is not known here, only {list(_ITEMS)}")
    if start < HEADER_BYTES or start + length + FOOTER_BYTES != object_length:
        raise ChunkFormatError("the footer points outside of the object")
    return Footer(start, length, checksum, version)


def parse_index(encoded: Buffer, footer: Footer) -> ChunkIndex:
    """Read the index that `footer` points at. Raises ChunkFormatError."""
    if len(encoded) != footer.index_length or crc32c(encoded) != footer.index_checksum:
        raise ChunkFormatError("the index does not match its checksum")
    try:
        owner, era, incarnation, number, span_count = _OWNER.unpack_from(encoded)
        cluster_id = owner.rstrip(b"\0").decode()
        spans, at = [], _OWNER.size
        for _ in range(span_count):
            span, at = _parse_span(encoded, at, _ITEMS[footer.version])
            spans.append(span)
    except (struct.error, UnicodeDecodeError) as error:
        raise ChunkFormatError(f"the index is not readable: {error}") from error
    if at != len(encoded):
        raise ChunkFormatError("the index is longer than its spans")
    index = ChunkIndex(cluster_id, ObjectId(Incarnation(incarnation), number), tuple(spans))
    if index.era != era:
        raise ChunkFormatError(f"era {era} does not fit incarnation {incarnation:x}")
    _check_spans(index.spans, data_end=footer.index_start)
    return index


def _parse_span(encoded: Buffer, at: int, item: struct.Struct) -> tuple[IndexSpan, int]:
    topic_id, partition, start, length, checksum, item_count = _SPAN.unpack_from(encoded, at)
    at += _SPAN.size
    end = at + item_count * item.size
    if end > len(encoded):
        raise ChunkFormatError("the index is shorter than its items")
    items = tuple(Item(*row) for row in item.iter_unpack(memoryview(encoded)[at:end]))
    return IndexSpan(TopicId(topic_id), partition, start, length, checksum, items), end


def _check_spans(spans: Sequence[IndexSpan], *, data_end: int) -> None:
    at = HEADER_BYTES
    for span in spans:
        if span.start != at:
            raise ChunkFormatError(f"a span begins at byte {span.start}, not at {at}")
        at += span.length
        if sum(item.skip + item.length for item in span.items) > span.length:
            raise ChunkFormatError(f"the items at byte {span.start} are longer than their span")
    if at != data_end:
        raise ChunkFormatError(f"the spans end at byte {at}, the data at {data_end}")


def parse_chunk(chunk: Buffer) -> ChunkIndex:
    """The index of a whole object, everything checked but the data (`damaged_spans`).

    Raises ChunkFormatError.
    """
    view = memoryview(chunk)
    footer = parse_footer(view[-FOOTER_BYTES:], object_length=len(view))
    magic, version, _ = _HEADER.unpack_from(view)
    if magic != MAGIC or version != footer.version:
        raise ChunkFormatError("the object does not begin like a chunk")
    return parse_index(view[footer.index_start : -FOOTER_BYTES], footer)


def damaged_spans(chunk: Buffer, index: ChunkIndex) -> list[IndexSpan]:
    """The spans whose bytes do not match their checksum."""
    view = memoryview(chunk)
    return [
        span
        for span in index.spans
        if crc32c(view[span.start : span.start + span.length]) != span.checksum
    ]
