"""Declares lost what is lost: an agent's part of `frazil check --repair`.

What holds: nothing is declared lost that can be read. Pages that were made anew come back, which any job may do to
pages, by their digest. The rows must be those that were seen, and each is read once
more here; one that is whole refuses all of them. A segment without records is durable before the log hears of it.

Ends of aborted transactions that a lost page held are written anew, from what the log knows of them: who reads on
would leave out later records of the same producer otherwise.
"""

import asyncio
import json
import logging
from base64 import b64decode
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from coordinator.commands.entries import Command, Outcome, Rejected
from coordinator.commands.job_commands import RecallPage
from coordinator.commands.loss_commands import DeclareLost
from coordinator.machine.machine import Machine
from coordinator.tables.partition import Partition
from protocol import records
from protocol.errors import ErrorCode
from protocol.fault_codes import FaultError
from protocol.types import Incarnation, TopicId
from storage.formats.batches import Batches, DamagedSpanError, marker_batch
from storage.formats.cluster_identity import ClusterIdentity
from storage.formats.page import (
    DIGEST_BYTES,
    PageFormatError,
    decode_rows,
    digest,
    digest_of_rows,
    encode_rows,
)
from storage.formats.segment import SegmentBuilder
from storage.formats.spans import Marker, ObjectId, ObjectKind, Page, Row, Span
from storage.formats.walk import Merged, Output
from storage.stores.object_store import (
    ObjectExistsError,
    ObjectNotFoundError,
    ObjectStore,
    StoreRefusedError,
)

logger = logging.getLogger(__name__)

READS_AT_ONCE: Final = 8
ATTEMPTS_MAX: Final = 5
"""The jobs of this very agent draw numbers of segments, too."""


class LossError(FaultError):
    """It is not declared; the sentence says why."""


class NamedLoss(NamedTuple):
    """Rows of a partition that somebody has found lost (`lost_ranges.LostRange`)."""

    topic_id: TopicId
    partition: int
    base_offset: int
    next_offset: int
    rows: int
    digest: bytes
    page_body: bytes = b""
    """Of a page that was made anew: it comes back, and nothing is lost."""


def parse(text: str) -> NamedLoss:
    """Out of JSON. Raises ValueError."""
    try:
        body = json.loads(text)
        partition, base_offset, next_offset, rows = numbers = [
            body[name] for name in ("partition", "base_offset", "next_offset", "rows")
        ]
        topic_id, seen = bytes.fromhex(body["topic_id"]), bytes.fromhex(body["digest"])
        page_body = b64decode(body.get("page_body", ""), validate=True)
    except (ValueError, TypeError, LookupError) as error:
        names = '"topic_id", "partition", "base_offset", "next_offset", "rows", "digest"'
        raise ValueError(f"send {{{names}}} as frazil check --json has them") from error
    if any(type(number) is not int or not 0 <= number < 1 << 63 for number in numbers):
        raise ValueError("partition, base_offset, next_offset and rows are numbers")
    if len(topic_id) != 16 or len(seen) != DIGEST_BYTES:
        raise ValueError("topic_id and digest have 16 bytes")
    return NamedLoss(TopicId(topic_id), partition, base_offset, next_offset, rows, seen, page_body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Losing:
    """The parts of an agent that it takes."""

    store: ObjectStore
    machine: Machine
    identity: ClusterIdentity
    incarnation: Callable[[], Incarnation | None]
    propose: Callable[[Command], Awaitable[Outcome]]

    async def declare(self, loss: NamedLoss) -> None:
        """Raises LossError, StoreError, and what `propose` raises."""
        if loss.page_body:
            await self._recall(loss)
            return
        partition = self.machine.partitions.get(loss.topic_id, loss.partition)
        if partition is None:
            raise LossError(f"there is no partition {loss.partition} (any more)")
        body, rows = await self._rows(partition, loss)
        if digest_of_rows(rows) != loss.digest:
            raise LossError("other rows lie there now: check again")
        await self._must_be_lost(rows)
        merged = _without_records(partition, rows, loss.next_offset)
        refused = ""
        for _ in range(ATTEMPTS_MAX):
            outcome = await self._attempt(loss, body, merged)
            if not isinstance(outcome, Rejected):
                logger.warning(
                    "offsets %d to %d of partition %d of %s were declared lost",
                    loss.base_offset,
                    loss.next_offset - 1,
                    loss.partition,
                    loss.topic_id.hex(),
                )
                return
            refused = outcome.message
            if outcome.error != ErrorCode.INVALID_REQUEST:
                break
        raise LossError(f"it was refused: {refused}")

    async def _recall(self, loss: NamedLoss) -> None:
        command = RecallPage(loss.topic_id, loss.partition, loss.base_offset, loss.page_body)
        outcome = await self.propose(command)
        if isinstance(outcome, Rejected):
            text = f"the page was not put back: {outcome.message}"
            if outcome.error == ErrorCode.NOT_COORDINATOR:
                text += " (frazil job list names the agent that does: --agent)"
            raise LossError(text)

    async def _rows(self, partition: Partition, loss: NamedLoss) -> tuple[bytes, list[Row]]:
        """The rows that are meant, and the body of the page that they are in, if they are."""
        indexes = partition.rows_between(loss.base_offset, loss.next_offset)
        if indexes is not None and len(indexes) == loss.rows:
            rows = [partition.row(index) for index in indexes]
            if digest_of_rows(rows) == loss.digest:
                return b"", rows
        index = partition.find(loss.base_offset)
        page = partition.row(index) if index < partition.row_count else None
        inside = await self._inside(page) if isinstance(page, Page) else None
        if inside is None:
            return b"", []
        base, following = loss.base_offset, loss.next_offset
        found = [row for row in inside if base <= row.base_offset and row.next_offset <= following]
        return encode_rows(inside), [*found]

    async def _inside(self, page: Page) -> Sequence[Span | Marker] | None:
        """None: it cannot be read. Raises StoreError when that cannot be known."""
        try:
            body = await self.store.get_range(page.object_id.key, page.start, page.length)
            if digest(body) != page.digest:
                return None
            return decode_rows(body, base_offset=page.base_offset, next_offset=page.next_offset)
        except (ObjectNotFoundError, PageFormatError):
            return None
        except StoreRefusedError:
            if await self._is_long_enough(page):
                raise
            return None

    async def _must_be_lost(self, rows: Sequence[Row]) -> None:
        """Raises LossError for a row that can be read, and StoreError when that cannot be known."""
        for first in range(0, len(rows), READS_AT_ONCE):
            some = rows[first : first + READS_AT_ONCE]
            for row, is_whole in zip(
                some, await asyncio.gather(*map(self._is_whole, some)), strict=True
            ):
                if is_whole:
                    ends = f"{row.base_offset} to {row.next_offset - 1}"
                    raise LossError(f"offsets {ends} can be read: check again")

    async def _is_whole(self, row: Row) -> bool:
        if isinstance(row, Marker):
            return True
        if isinstance(row, Page):
            return await self._inside(row) is not None
        try:
            data = await self.store.get_range(row.object_id.key, row.start, row.length)
            Batches.checked(row, memoryview(data))
        except (ObjectNotFoundError, DamagedSpanError):
            return False
        except StoreRefusedError:
            if await self._is_long_enough(row):
                raise
            return False
        return True

    async def _is_long_enough(self, row: Span | Page) -> bool:
        """The store refuses a range. It is lost only where it lies behind the object's end: a store that
        refuses everything has lost nothing. Raises StoreError."""
        try:
            data = await self.store.get(row.object_id.key)
        except ObjectNotFoundError:
            return False
        return len(data) >= row.start + row.length

    async def _attempt(self, loss: NamedLoss, body: bytes, merged: Merged) -> Outcome:
        builder = SegmentBuilder()
        start = builder.add(
            loss.topic_id,
            loss.partition,
            base_offset=loss.base_offset,
            next_offset=loss.next_offset,
            parts=merged.parts,
            timestamp_max=-1,
        )
        object_id = await self._put(builder)
        return await self.propose(
            DeclareLost(
                loss.topic_id,
                loss.partition,
                loss.base_offset,
                loss.next_offset,
                loss.rows,
                loss.digest,
                body,
                object_id.number,
                builder.length,
                start,
                merged.length,
            )
        )

    async def _put(self, builder: SegmentBuilder) -> ObjectId:
        """Under the next number that is free."""
        number = -1
        while True:
            incarnation = self.incarnation()
            row = None if incarnation is None else self.machine.incarnations.get(incarnation)
            if row is None:
                raise LossError("the agent has no session: ask again, or another agent")
            number = max(row.newest(ObjectKind.SEGMENT), number) + 1
            object_id = ObjectId(row.incarnation, number, ObjectKind.SEGMENT)
            parts = builder.object_parts(object_id, cluster_id=self.identity.cluster_id)
            try:
                await self.store.put_new(object_id.key, parts)
            except ObjectExistsError:
                continue  # A job was faster.
            return object_id


def _without_records(partition: Partition, rows: Sequence[Row], next_offset: int) -> Merged:
    """What takes the place of the rows."""
    output = Output()
    for page in [row for row in rows if isinstance(row, Page)]:
        ends = partition.aborted(page.base_offset, page.next_offset)
        for producer_id, _, offset in sorted(ends, key=lambda each: each.last_offset):
            if page.base_offset <= offset < page.next_offset:
                marker = Marker(offset, producer_id, 0, commit=False, timestamp=page.timestamp_max)
                batch = marker_batch(marker)
                output.add(batch, records.read_header(batch))
    return output.finish(next_offset)
