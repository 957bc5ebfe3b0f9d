"""What is in the store, as its readers see it: chunks, segments, indexes and their pages, the
cluster's marker, keys of checkpoints, batches placed by a span, and archives of the log.

The first byte of an input says which of them the rest is.
"""

import random
import struct
from collections.abc import Callable, Hashable

from crc32c import crc32c
from typing_extensions import override

from protocol import records
from protocol.types import Incarnation, Position, position
from storage.formats import chunk, index_object, job_objects, page, segment
from storage.formats.batches import Batches, DamagedSpanError
from storage.formats.chunk import ChunkFormatError
from storage.formats.cluster_identity import ClusterIdentity, decode_identity, encode_identity
from storage.formats.job_objects import JobObjectFormatError
from storage.formats.log_archive import (
    ArchivedEntry,
    ArchiveFormatError,
    LogArchive,
    decode_archive,
    encode_archive,
)
from storage.formats.log_checkpoint import LogCheckpoint
from storage.formats.page import PageFormatError
from storage.formats.spans import Item, Marker, ObjectId, ObjectKind, Span
from storage.stores.object_store import StoreRefusedError
from tests.fuzz import batches, mutation
from tests.fuzz.target import Target, WrongError, words
from tests.storage.build import TOPIC_A, TOPIC_B

CHUNK, SEGMENT, INDEX, PAGE, IDENTITY, CHECKPOINT, SPAN, ARCHIVE = range(8)
INCARNATION = Incarnation(position(1, 77))
BASE = 1000
TEN = 10
_REFUSALS = (
    ArchiveFormatError,
    ChunkFormatError,
    JobObjectFormatError,
    PageFormatError,
    DamagedSpanError,
    StoreRefusedError,
)


def _rows(rng: random.Random) -> list[Span | Marker]:
    rows: list[Span | Marker] = []
    offset = BASE
    for _ in range(rng.choice((1, 2, 10, 60))):
        if rng.random() < 0.2:
            rows.append(Marker(offset, 1, 0, rng.random() < 0.5, 5000))
            offset += 1
            continue
        kind = rng.choice((ObjectKind.CHUNK, ObjectKind.SEGMENT))
        count = rng.choice((1, 5, 1000))
        rows.append(
            Span(ObjectId(INCARNATION, rng.randrange(300), kind), 16, 100, offset, count, 5)
        )
        offset += count
    return rows


def _chunk(rng: random.Random) -> bytes:
    head, data, spans = chunk.encode_header(Position(9)), b"", []
    for topic in (TOPIC_A, TOPIC_B)[: rng.choice((1, 2))]:
        batch = batches.generate(rng, hostility=0)
        item = Item(0, len(batch), 1, 5000)
        start = len(head) + len(data)
        spans.append(chunk.IndexSpan(topic, 0, start, len(batch), crc32c(batch), (item,)))
        data += batch
    index = chunk.ChunkIndex("cluster", ObjectId(INCARNATION, 3), tuple(spans))
    return head + data + chunk.encode_tail(index, data_end=len(head) + len(data))


def _segment(rng: random.Random) -> bytes:
    builder = segment.SegmentBuilder()
    for partition in range(rng.choice((1, 3))):
        parts = [batches.generate(rng, hostility=0)]
        builder.add(TOPIC_A, partition, base_offset=0, next_offset=9, parts=parts, timestamp_max=5)
    object_id = ObjectId(INCARNATION, 3, ObjectKind.SEGMENT)
    return b"".join(map(bytes, builder.object_parts(object_id, cluster_id="cluster")))


def _index(rng: random.Random) -> bytes:
    builder = index_object.IndexBuilder()
    for partition in range(rng.choice((1, 3))):
        body = page.encode_rows(_rows(rng))
        builder.add(TOPIC_A, partition, base_offset=BASE, next_offset=BASE + 9, body=body)
    object_id = ObjectId(INCARNATION, 3, ObjectKind.INDEX)
    return b"".join(map(bytes, builder.object_parts(object_id, cluster_id="cluster")))


def _page(rng: random.Random) -> bytes:
    rows = _rows(rng)
    return rows[-1].next_offset.to_bytes(8, "big") + page.encode_rows(rows)


def _identity(_: random.Random) -> bytes:
    return encode_identity(ClusterIdentity("cluster", 1))


def _checkpoint(rng: random.Random) -> bytes:
    return LogCheckpoint(INCARNATION, Position(rng.getrandbits(63))).key.encode()


def _span(rng: random.Random) -> bytes:
    return b"".join([batches.generate(rng, hostility=0.02) for _ in range(rng.choice((1, 2, 5)))])


def _archive(rng: random.Random) -> bytes:
    at, entries = BASE, []
    for n in range(rng.choice((1, 3, 20))):
        at += rng.choice((1, 1, 9))
        payload = rng.randbytes(rng.choice((0, 5, 90)))
        entries.append(ArchivedEntry(Position(at), 7, n, rng.random() < 0.1, payload))
    digest = rng.randbytes(16)
    return encode_archive(
        LogArchive("cluster", Position(BASE), Position(at), digest, tuple(entries))
    )


_MAKERS: tuple[Callable[[random.Random], bytes], ...] = (
    _chunk,
    _segment,
    _index,
    _page,
    _identity,
    _checkpoint,
    _span,
    _archive,
)


def _read_chunk(data: bytes) -> Hashable:
    index = chunk.parse_chunk(data)
    return len(index.spans), len(chunk.damaged_spans(data, index))


def _read_segment(data: bytes) -> Hashable:
    found = segment.parse_segment(data)
    return len(found.spans), len(segment.damaged_spans(data, found))


def _read_index(data: bytes) -> Hashable:
    found = index_object.parse_index_object(data)
    return len(found.pages), len(index_object.damaged_pages(data, found))


def _read_page(data: bytes) -> Hashable:
    next_offset = int.from_bytes(data[:8], "big")
    rows = page.decode_rows(data[8:], base_offset=BASE, next_offset=next_offset)
    if page.decode_rows(page.encode_rows(rows), base_offset=BASE, next_offset=next_offset) != rows:
        raise WrongError(f"other rows when they are written again: {rows}")
    return len(rows)


def _read_identity(data: bytes) -> Hashable:
    return decode_identity(data).era


def _read_checkpoint(data: bytes) -> Hashable:
    try:
        found = LogCheckpoint.of_key(data.decode("utf-8", "replace"))
    except ValueError as error:
        return words(error)
    return found.key == data.decode()


def _read_span(data: bytes) -> Hashable:
    """Whatever it is of, what says that it is adjacent has as many offsets as the span."""
    starts, counts = records.batch_positions(data)
    span = Span(ObjectId(INCARNATION, 3), 16, len(data), BASE, max(1, sum(counts)), 5)
    found = Batches.checked(span, memoryview(data))
    return len(found), len(starts)


def _read_archive(data: bytes) -> Hashable:
    found = decode_archive(data)
    if decode_archive(encode_archive(found)) != found:
        raise WrongError(f"another archive when it is written again: {found}")
    return len(found.entries)


_READERS: tuple[Callable[[bytes], Hashable], ...] = (
    _read_chunk,
    _read_segment,
    _read_index,
    _read_page,
    _read_identity,
    _read_checkpoint,
    _read_span,
    _read_archive,
)


class Objects(Target):
    name = "objects"
    fixed = 1500

    @override
    def generate(self, rng: random.Random) -> bytes:
        kind = rng.randrange(len(_MAKERS))
        return bytes((kind,)) + _MAKERS[kind](rng)

    @override
    def mutate(self, rng: random.Random, data: bytes, other: bytes) -> bytes:
        return self.sealed(data[:1] + mutation.mutated(rng, data[1:], other[1:]))

    @override
    def sealed(self, data: bytes) -> bytes:
        """The table at an object's end, or the whole object, under a right checksum."""
        kind = data[0] if data else CHUNK
        if kind == ARCHIVE and len(data) > 4:
            return data[:-4] + crc32c(data[1:-4]).to_bytes(4, "big")
        if kind > INDEX or len(data) < 1 + job_objects.FOOTER_BYTES:
            return data
        body = bytearray(data[1:])
        footer = len(body) - job_objects.FOOTER_BYTES
        start, length = struct.unpack_from(">QI", body, footer)
        if start + length != footer and start < footer:
            length = footer - start
        struct.pack_into(">QII", body, footer, start, length, crc32c(body[start : start + length]))
        return data[:1] + bytes(body)

    @override
    def run(self, data: bytes) -> Hashable:
        kind = data[0] % len(_READERS) if data else CHUNK
        try:
            return kind, _READERS[kind](data[1:])
        except _REFUSALS as error:
            return kind, words(error)
        except records.ProtocolError as error:
            if kind != SPAN:
                raise
            return kind, words(error)
