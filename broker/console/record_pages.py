"""The routes of records: a page of a topic's, one alone, and its bytes.

    GET /console/records             ?topic= &partition= &from= &where= &search= &uncommitted= (`record_questions`)
    GET /console/record              ?topic= &partition= &offset= &uncommitted=
    GET /console/record/bytes        the same and &part=key|value: as they are, to be saved

They need the role `reader`, and READ of the topic where there is an authorizer (`broker.console.record_access`). Any
agent reads any partition. What is read for a page is bounded, and so is how many are read at a time. A page that follows
the newest says when to ask again (`ask_again_ms`), so that whoever leaves it open takes a hundredth of a core at most.
"""

from collections.abc import Callable
from time import process_time
from typing import Final, TypeVar

from aiohttp import web

from broker.admin.access import Role
from broker.admin.requests import RefusedError, current, requester_in
from broker.console.pages import NAME_SHOWN_MAX, page
from broker.console.record_access import RECORDS
from broker.console.record_decoding import shown_records
from broker.console.record_reading import Bounds, Read, RecordReader
from broker.console.rendering import HEADERS
from broker.console.views.record_batches import FoundRecord
from broker.console.views.record_questions import (
    QuestionError,
    RecordAsked,
    RecordsAsked,
    Start,
    record_asked,
    records_asked,
)
from broker.console.views.records import (
    ROWS_MAX,
    SHORT_CHARACTERS,
    RecordsView,
    looked_text,
    next_pages,
    record_row,
    record_view,
)
from broker.http.routes import Route
from coordinator.machine.machine import Machine
from coordinator.tables.topics import Topic
from protocol.acls import Operation

BOUNDS: Final = Bounds()
WHOLE_CHARACTERS: Final = 256 << 10
"""Of a key or value on the page of its record; there are more in the bytes."""
FOLLOWING_SHARE: Final = 0.01
"""Of one core, that a page which follows may take."""
PAUSE_MS_MAX: Final = 300_000
ASK_AGAIN: Final = "Ask-Again-Ms"
"""A header: the page is not to ask again before that."""
Asked = TypeVar("Asked")


async def _records(request: web.Request) -> web.StreamResponse:
    began_s = process_time()
    asked = _parsed(lambda: records_asked(request.query))
    access = request.app[RECORDS]
    access.require(request, Operation.READ, asked.topic)
    machine, topic = await topic_named(request, asked.topic)
    async with access.page():
        read = await _read(request, machine, topic, asked, limit=ROWS_MAX)
        shown = await shown_records(
            access,
            machine.schemas,
            read.records,
            client=requester_in(request).host,
            characters_max=SHORT_CHARACTERS,
        )
    rows = [
        record_row(asked, one, key, value)
        for one, (key, value) in zip(read.records, shown, strict=True)
    ]
    if asked.goes_back != asked.newest_first:
        rows.reverse()
    newer, older = next_pages(asked, read.further, read.before)
    view = RecordsView(
        asked=asked,
        partition_count=topic.partition_count,
        partitions_read=len(read.ranges),
        rows=rows,
        looked=looked_text(read.ranges, looked=read.looked, byte_count=read.byte_count),
        notes=read.notes,
        newer=newer,
        older=older,
        is_bounded=read.is_bounded,
    )
    answer = await page(request, "records", {"records": view})
    if asked.follows:
        answer.headers[ASK_AGAIN] = str(ask_again_ms(process_time() - began_s))
    return answer


def ask_again_ms(took_s: float) -> int:
    """After an answer in whose time the process took so much of its cores, for whatever and in whichever thread: so it
    is no less than what the answer took."""
    return min(round(took_s * 1000 / FOLLOWING_SHARE), PAUSE_MS_MAX)


async def _record(request: web.Request) -> web.StreamResponse:
    asked = _parsed(lambda: record_asked(request.query))
    access = request.app[RECORDS]
    access.require(request, Operation.READ, asked.topic)
    machine, topic = await topic_named(request, asked.topic)
    async with access.page():
        found = await _one(request, machine, topic, asked)
        ((key, value),) = await shown_records(
            access,
            machine.schemas,
            [found],
            client=requester_in(request).host,
            characters_max=WHOLE_CHARACTERS,
            is_whole=True,
        )
    return await page(request, "record", {"record": record_view(asked, found, key, value)})


async def _bytes(request: web.Request) -> web.StreamResponse:
    asked = _parsed(lambda: record_asked(request.query))
    part = request.query.get("part", "value")
    access = request.app[RECORDS]
    access.require(request, Operation.READ, asked.topic)
    machine, topic = await topic_named(request, asked.topic)
    async with access.page():
        found = await _one(request, machine, topic, asked)
    data = {"key": found.record.key, "value": found.record.value}.get(part)
    if data is None:
        raise RefusedError(404, f"the record has no {'key' if part == 'key' else 'value'}")
    name = f"{topic.name}-{asked.partition}-{asked.offset}.{part}"
    headers = HEADERS | {
        "Cache-Control": "no-store",
        "Content-Disposition": f'attachment; filename="{name}"',
    }
    return web.Response(body=data, content_type="application/octet-stream", headers=headers)


async def topic_named(request: web.Request, name: str) -> tuple[Machine, Topic]:
    """Raises RefusedError."""
    machine = (await current(request)).machine
    topic = machine.topics.by_name(name)
    if topic is None:
        raise RefusedError(404, f'there is no topic named "{name[:NAME_SHOWN_MAX]}"')
    return machine, topic


async def _read(
    request: web.Request, machine: Machine, topic: Topic, asked: RecordsAsked, *, limit: int
) -> Read:
    """Raises RefusedError."""
    calls = request.app[RECORDS].calls
    reader = RecordReader(calls, requester_in(request), topic, committed=asked.committed)
    try:
        return await reader.read(machine, asked, limit=limit, bounds=BOUNDS)
    except QuestionError as error:
        raise RefusedError(404, str(error)) from error


async def _one(
    request: web.Request, machine: Machine, topic: Topic, asked: RecordAsked
) -> FoundRecord:
    """Raises RefusedError where there is none."""
    question = RecordsAsked(
        asked.topic, asked.partition, Start.OFFSET, str(asked.offset), committed=asked.committed
    )
    read = await _read(request, machine, topic, question, limit=1)
    found = next(iter(read.records), None)
    if found is not None and found.record.offset == asked.offset:
        return found
    if read.notes:
        raise RefusedError(503, " ".join(read.notes))
    behind = "" if found is None else f"; the next one is at {found.record.offset}"
    raise RefusedError(
        404,
        f"at offset {asked.offset} of partition {asked.partition} there is no record to be shown: it is beyond what"
        f" is there or not yet stable, was aborted or compacted away, or ends a transaction{behind}",
    )


def _parsed(parse: Callable[[], Asked]) -> Asked:
    """Raises RefusedError."""
    try:
        return parse()
    except QuestionError as error:
        raise RefusedError(400, str(error)) from error


ROUTES: Final[tuple[Route[Role], ...]] = (
    Route("GET", "/console/records", Role.READER, _records),
    Route("GET", "/console/record", Role.READER, _record),
    Route("GET", "/console/record/bytes", Role.READER, _bytes),
)
