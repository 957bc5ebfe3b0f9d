"""Records that lie in the store and of which nothing that is left of the log tells.

Agents put a chunk, then append its entry, then acknowledge. So a chunk whose number comes after the newest that is known of
its writer may hold records that were acknowledged after the last archive, and may hold some that never were: nothing
but the lost log says which, or at which offsets. They are listed, not placed, and nobody deletes them.
"""

from collections.abc import Iterable
from typing import NamedTuple

from coordinator.machine.machine import Machine
from coordinator.snapshot.listing import pages
from protocol.types import TopicId
from storage.formats import chunk
from storage.formats.chunk import ChunkFormatError, ChunkIndex
from storage.formats.spans import ObjectId, ObjectKind
from storage.stores.object_store import ObjectInfo, ObjectNotFoundError, ObjectStore

CHUNKS = "chunks/"


class UnarchivedRecords(NamedTuple):
    """Records of one partition."""

    topic: str
    """Its name; its id where the machine knows none."""
    partition: int
    records: int
    bytes: int
    chunks: int
    end_offset: int
    """Of the partition, as far as it is known: the first of them may have had this offset."""


class Unarchived(NamedTuple):
    """What lies in a store."""

    rows: tuple[UnarchivedRecords, ...]
    unreadable: tuple[str, ...]
    """Keys of chunks whose index cannot be read."""


async def unarchived(store: ObjectStore, machine: Machine) -> Unarchived:
    """Of all chunks that may have been committed behind the machine's position. Raises StoreError."""
    indexes: list[ChunkIndex] = []
    unreadable: list[str] = []
    async for page in pages(store, CHUNKS):
        for info in page:
            if not _may_be_committed_later(machine, info.key):
                continue
            try:
                indexes.append(await _index_of(store, info))
            except (ChunkFormatError, ObjectNotFoundError):
                unreadable.append(info.key)
    return Unarchived(_summed(machine, indexes), tuple(unreadable))


def _may_be_committed_later(machine: Machine, key: str) -> bool:
    try:
        incarnation, number, kind = ObjectId.of_key(key)
    except ValueError:
        return False
    if kind is not ObjectKind.CHUNK:
        return False
    if incarnation > machine.position:
        return True
    writer = machine.incarnations.get(incarnation)
    # What a closed one has not committed it never will.
    return writer is not None and number > writer.chunk_last


async def _index_of(store: ObjectStore, info: ObjectInfo) -> ChunkIndex:
    """Raises ChunkFormatError, StoreError."""
    if info.length < chunk.FOOTER_BYTES:
        raise ChunkFormatError(f"{info.length} bytes are too few for a chunk")
    start = info.length - chunk.FOOTER_BYTES
    tail = await store.get_range(info.key, start, chunk.FOOTER_BYTES)
    footer = chunk.parse_footer(tail, object_length=info.length)
    encoded = await store.get_range(info.key, footer.index_start, footer.index_length)
    return chunk.parse_index(encoded, footer)


def _summed(machine: Machine, indexes: Iterable[ChunkIndex]) -> tuple[UnarchivedRecords, ...]:
    sums: dict[tuple[TopicId, int], list[int]] = {}
    for index in indexes:
        for place in {(span.topic_id, span.partition) for span in index.spans}:
            sums.setdefault(place, [0, 0, 0])[2] += 1
        for span in index.spans:
            found = sums[span.topic_id, span.partition]
            found[0] += sum([item.records for item in span.items])
            found[1] += sum([item.length for item in span.items])
    rows = []
    for (topic_id, number), (records, length, chunks) in sums.items():
        topic = machine.topics.by_id(topic_id)
        partition = machine.partitions.find(topic_id, number)
        rows.append(
            UnarchivedRecords(
                topic=topic_id.hex() if topic is None else topic.name,
                partition=number,
                records=records,
                bytes=length,
                chunks=chunks,
                end_offset=0 if partition is None else partition.end_offset,
            )
        )
    return tuple(sorted(rows))
