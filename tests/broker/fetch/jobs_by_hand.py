"""What jobs do to a partition, done by hand through an agent: for tests of who reads meanwhile.

Everything works on all rows of a partition that are in memory and stable. `delete` takes objects
out of the store as collection would at the end.
"""

from itertools import count

from coordinator.commands.job_commands import (
    ClaimJobs,
    ExpireRecords,
    Expiry,
    JobKind,
    NewPage,
    NewSpan,
    RecallPage,
    Replacement,
    ReplaceRows,
    RowsMoved,
    SpillRows,
    Trim,
    TrimLogs,
)
from coordinator.commands.table_commands import (
    ExpireHeldRecords,
    ExportEnd,
    HeldExpiry,
    ReportExport,
)
from protocol.errors import ErrorCode
from protocol.records import batch_positions, empty_batch, read_header
from storage.formats.page import digest, encode_rows
from storage.formats.segment import merge_rows
from storage.formats.spans import Marker, ObjectId, ObjectKind, Page, Span

PADDING = b"padding."
_numbers = count()


async def claim(agent) -> None:
    await agent.log_client.propose(ClaimJobs(tuple(JobKind)))


def stable_rows(row, limit: int = 1000) -> list[Span | Marker]:
    rows = [each for each in row.rows_from(0, limit) if not isinstance(each, Page)]
    return [each for each in rows if each.next_offset <= row.last_stable]


async def merge(agent, row, *, keep=lambda header: True) -> list[ObjectId]:
    """All rows as one span of a segment; a batch stays if `keep(header)`. The objects they were
    in."""
    run = stable_rows(row)
    spans = [each for each in run if isinstance(each, Span)]
    store = agent.world.store.inner
    data = [await store.get_range(each.object_id.key, each.start, each.length) for each in spans]
    base, end = run[0].base_offset, run[-1].next_offset
    merged = merge_rows(run, data, [tuple(each) for each in row.aborted(base, end)])
    body = thinned(b"".join(merged.parts), end, keep)
    object_id = await _put(agent, ObjectKind.SEGMENT, body)
    command = replacing(row, run, object_id.number, body, merged.timestamp_max)
    assert await agent.log_client.propose(command) == RowsMoved((ErrorCode.NONE,))
    return list(dict.fromkeys(each.object_id for each in spans))


def replacing(row, run, number: int, body: bytes, timestamp_max: int) -> ReplaceRows:
    """The rows of the run become one span of a segment, behind its padding."""
    base = run[0].base_offset
    span = NewSpan(len(PADDING), len(body), base, timestamp_max)
    place = row.topic_id, row.partition, base, run[-1].next_offset
    replacement = Replacement(*place, len(run), digest(encode_rows(run)), (span,))
    return ReplaceRows(JobKind.MERGE, number, len(PADDING) + len(body), (replacement,))


def spilling(row, run, number: int, body: bytes) -> SpillRows:
    """The rows of the run, which are the body, become a page of an index object."""
    place = row.topic_id, row.partition, run[0].base_offset, run[-1].next_offset
    page = NewPage(*place, len(run), len(PADDING), len(body), digest(body))
    return SpillRows(number, len(PADDING) + len(body), (page,))


def thinned(data: bytes, end: int, keep) -> bytes:
    """Batches without those that `keep(header)` says no to; they still end at that offset."""
    kept = bytearray()
    reached = -1
    for at in batch_positions(data)[0]:
        header = read_header(data, at)
        if keep(header):
            kept += data[at : at + header.size]
            reached = header.last_offset + 1
    return bytes(kept if reached == end else kept + empty_batch(end - 1))


async def spill(agent, row, limit: int = 1000) -> ObjectId:
    """The first `limit` rows into a page; the index object."""
    run = stable_rows(row, limit)
    body = encode_rows(run)
    object_id = await _put(agent, ObjectKind.INDEX, body)
    command = spilling(row, run, object_id.number, body)
    assert await agent.log_client.propose(command) == RowsMoved((ErrorCode.NONE,))
    return object_id


async def _put(agent, kind: ObjectKind, body: bytes) -> ObjectId:
    object_id = ObjectId(agent.log_client.incarnation(), next(_numbers), kind)
    await agent.world.store.inner.put_new(object_id.key, [PADDING, body])
    return object_id


async def trim(agent, row, offset: int) -> None:
    """Delete the records before `offset`."""
    await agent.log_client.propose(TrimLogs((Trim(row.topic_id, row.partition, offset),)))
    assert row.log_start == offset


async def expire(agent, row, offset: int) -> None:
    """The records before `offset` are too much."""
    expiry = Expiry(row.topic_id, row.partition, offset, -1, 0)
    await agent.log_client.propose(ExpireRecords(agent.log_client.machine.position, (expiry,)))
    assert row.log_start == offset


async def expire_exported(agent, row, offset: int) -> None:
    """The same of a topic that waits for its export, which has come so far."""
    said = ReportExport(row.topic_id, (ExportEnd(row.partition, offset),))
    await agent.log_client.propose(said)
    expiry = HeldExpiry(row.topic_id, row.partition, offset, -1, 0, 1 << 60)
    position = agent.log_client.machine.position
    await agent.log_client.propose(ExpireHeldRecords(position, (expiry,)))
    assert row.log_start == offset


async def delete(agent, *object_ids: ObjectId) -> None:
    await agent.world.store.inner.delete([object_id.key for object_id in object_ids])


async def recall(agent, row, body: bytes) -> None:
    """The rows of the first page come back."""
    await agent.log_client.propose(
        RecallPage(row.topic_id, row.partition, row.row(0).base_offset, body)
    )
    assert not isinstance(row.row(0), Page)
