"""Index objects, version 1: pages of many partitions (`storage.formats.page`), for rows that are not kept
in memory.

The object is laid out as `storage.formats.job_objects` says; its table names of every page the partition, the
offsets, the bytes and the digest, so that lost metadata could be found again. Pure.
"""

import struct
from typing import Final, NamedTuple

from protocol.types import Buffer, TopicId
from storage.formats.job_objects import Builder, Format, Table, check_adjacent
from storage.formats.page import DIGEST_BYTES, digest
from storage.formats.spans import ObjectId, ObjectKind

FORMAT: Final = Format(
    ObjectKind.INDEX, b"\x00FRAZILi", 1, struct.Struct(f">16siqqQI{DIGEST_BYTES}s")
)


class IndexedPage(NamedTuple):
    """One page, as the object's table names it."""

    topic_id: TopicId
    partition: int
    base_offset: int
    next_offset: int
    start: int
    length: int
    digest: bytes


class IndexBuilder(Builder):
    """Gathers pages for one object."""

    def __init__(self) -> None:
        super().__init__(FORMAT)

    def add(
        self, topic_id: TopicId, partition: int, *, base_offset: int, next_offset: int, body: bytes
    ) -> IndexedPage:
        """Put a page's body into the object; where it lies there."""
        assert base_offset < next_offset
        assert body
        page = IndexedPage(
            topic_id,
            partition,
            base_offset,
            next_offset,
            self._data_end,
            len(body),
            digest(body),
        )
        self._put(page, [body], length=len(body))
        return page


class IndexObject(NamedTuple):
    cluster_id: str
    object_id: ObjectId
    pages: tuple[IndexedPage, ...]


def parse_index_object(data: Buffer) -> IndexObject:
    """Decodes a whole object; checks everything but the bodies (`damaged_pages`).

    Raises JobObjectFormatError.
    """
    table: Table = FORMAT.parse(data)
    pages = tuple(IndexedPage(*row) for row in table.rows)  # type: ignore[arg-type]
    check_adjacent([(page.start, page.length) for page in pages], data_end=table.data_end)
    return IndexObject(table.cluster_id, table.object_id, pages)


def damaged_pages(data: Buffer, index: IndexObject) -> list[IndexedPage]:
    """The pages whose bodies do not match their digest."""
    view = memoryview(data)
    return [
        page
        for page in index.pages
        if digest(view[page.start : page.start + page.length]) != page.digest
    ]
