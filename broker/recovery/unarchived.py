"""Records that lie in the store and of which nothing that is left of the log tells.

Agents put a chunk, then append its entry, then acknowledge. So a chunk whose number comes after the newest that is known of
its writer may hold records that were acknowledged after the last archive, and may hold some that never were: nothing
but the lost log says which, or at which offsets. They are listed, not placed, and nobody deletes them.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from broker.recovery.archives import RETRY, store_is_away
from coordinator.machine.machine import Machine
from coordinator.snapshot.listing import pages
from protocol.types import Buffer, TopicId
from storage.formats import chunk
from storage.formats.chunk import ChunkFormatError, ChunkIndex
from storage.formats.spans import ObjectId, ObjectKind
from storage.stores.object_store import ObjectInfo, ObjectNotFoundError, ObjectStore
from storage.stores.retry import until_done

CHUNKS: Final = "chunks/"
READS_AT_ONCE: Final = 16
"""There may be hundreds of thousands, of days that are left out; nothing of one is kept but its sums."""
TOLD_CHUNKS: Final = 16_000
"""Between two lines about how far it is."""

Sums = dict[tuple[TopicId, int], list[int]]
"""By partition: records, bytes, chunks."""


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


async def unarchived(
    store: ObjectStore, machine: Machine, *, tell: Callable[[str], None]
) -> Unarchived:
    """Of all chunks that may have been committed behind the machine's position. `tell` hears of progress.

    Raises StoreError.
    """
    sums: Sums = {}
    unreadable: list[str] = []
    wanted: list[ObjectInfo] = []
    read = 0

    async def read_wanted() -> None:
        nonlocal read
        found = await asyncio.gather(*[_index_of(store, info) for info in wanted])
        for info, index in zip(wanted, found, strict=True):
            if index is None:
                unreadable.append(info.key)
            else:
                _add(sums, index)
            read += 1
            if read % TOLD_CHUNKS == 0:
                tell(f"read what {read} chunks hold of which no archive tells")
        wanted.clear()

    async for page in pages(store, CHUNKS):
        for info in page:
            if _may_be_committed_later(machine, info.key):
                wanted.append(info)
            if len(wanted) == READS_AT_ONCE:
                await read_wanted()
    await read_wanted()
    return Unarchived(_rows(machine, sums), tuple(unreadable))


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


async def _index_of(store: ObjectStore, info: ObjectInfo) -> ChunkIndex | None:
    """None: it is none that can be read. Raises StoreError."""
    if info.length < chunk.FOOTER_BYTES:
        return None
    start = info.length - chunk.FOOTER_BYTES
    try:
        tail = await _range(store, info.key, start, chunk.FOOTER_BYTES)
        footer = chunk.parse_footer(tail, object_length=info.length)
        encoded = await _range(store, info.key, footer.index_start, footer.index_length)
        return chunk.parse_index(encoded, footer)
    except (ChunkFormatError, ObjectNotFoundError):
        return None


async def _range(store: ObjectStore, key: str, start: int, length: int) -> Buffer:
    """Of thousands of calls one may fail."""
    return await until_done(lambda: store.get_range(key, start, length), RETRY, tell=store_is_away)


def _add(sums: Sums, index: ChunkIndex) -> None:
    for place in {(span.topic_id, span.partition) for span in index.spans}:
        sums.setdefault(place, [0, 0, 0])[2] += 1
    for span in index.spans:
        found = sums[span.topic_id, span.partition]
        found[0] += sum([item.records for item in span.items])
        found[1] += sum([item.length for item in span.items])


def _rows(machine: Machine, sums: Sums) -> tuple[UnarchivedRecords, ...]:
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
