"""The routes by which an operator writes one record, once what will be done was shown.

    GET  /console/records/produce    ?topic= : a form
    POST /console/records/confirm    its fields: what would be written, and where
    POST /console/records/produced   the same fields: it is written, once
    GET  /console/records/produced   ?topic= &partition= &offset= : where it was written; a reload writes no other

They need the operator's role, and WRITE of the topic where there is an authorizer. The record goes the way of every
Produce (`broker.calls.local_calls`): checks, quotas, rights and errors are those of producers, and it is answered when it is
durable (P1). Posts of other sites are refused before (`broker.http.admission`).
"""

from typing import Any, Final
from urllib.parse import urlencode

from aiohttp import web

from broker.admin.access import Role
from broker.admin.requests import RefusedError, requester_in
from broker.calls.local_calls import LocalCallError
from broker.console.pages import page
from broker.console.record_access import RECORDS
from broker.console.record_pages import topic_named
from broker.console.views.record_form import (
    FormError,
    NewRecord,
    RecordForm,
    form_of,
    record_of,
)
from broker.console.views.record_questions import QuestionError, RecordAsked, record_asked
from broker.console.views.record_text import shown_bytes
from broker.http.admission import FORM
from broker.http.routes import Route
from coordinator.tables.topics import Topic
from protocol import apis
from protocol.acls import Operation
from protocol.errors import ErrorCode
from protocol.messages import hot
from protocol.records import Record, build_batch

PRODUCE: Final = 9
"""The version: it names topics by their names."""
PRODUCE_S_MAX: Final = 20.0
TIMEOUT_MS: Final = 15_000
ACKS_ALL: Final = -1
CONFIRMED_CHARACTERS: Final = 2_000


async def _form(request: web.Request) -> web.StreamResponse:
    form = form_of(request.query)
    topic = await _topic(request, form)
    return await _drawn_form(request, topic, form, "")


async def _confirm(request: web.Request) -> web.StreamResponse:
    form = await _fields(request)
    topic = await _topic(request, form)
    try:
        record = _record(request, topic, form)
    except FormError as error:
        return await _drawn_form(request, topic, form, str(error))
    # What is confirmed is this partition, whatever was drawn.
    form = form._replace(partition=str(record.partition))
    values = {
        "form": form,
        "key": shown_bytes(record.key, characters_max=CONFIRMED_CHARACTERS, is_whole=True),
        "value": shown_bytes(record.value, characters_max=CONFIRMED_CHARACTERS, is_whole=True),
        "headers": [
            (name, shown_bytes(said, characters_max=CONFIRMED_CHARACTERS))
            for name, said in record.headers
        ],
        "principal": requester_in(request).principal,
    }
    return await page(request, "produce_confirm", values)


async def _produced(request: web.Request) -> web.StreamResponse:
    form = await _fields(request)
    topic = await _topic(request, form)
    try:
        record = _record(request, topic, form)
    except FormError as error:
        return await _drawn_form(request, topic, form, str(error))
    offset = await _produce(request, topic, record)
    written = urlencode(RecordAsked(topic.name, record.partition, offset).query())
    return web.Response(status=303, headers={"Location": f"{request.path}?{written}"})


async def _written(request: web.Request) -> web.StreamResponse:
    try:
        asked = record_asked(request.query)
    except QuestionError as error:
        raise RefusedError(400, str(error)) from error
    return await page(request, "produced", {"asked": asked})


async def _drawn_form(
    request: web.Request, topic: Topic, form: RecordForm, mistake: str
) -> web.StreamResponse:
    values = {"form": form, "partition_count": topic.partition_count, "mistake": mistake}
    answer = await page(request, "produce", values)
    if mistake:
        answer.set_status(400)
    return answer


async def _topic(request: web.Request, form: RecordForm) -> Topic:
    """Raises RefusedError."""
    request.app[RECORDS].require(request, Operation.WRITE, form.topic)
    return (await topic_named(request, form.topic))[1]


async def _fields(request: web.Request) -> RecordForm:
    """Raises RefusedError."""
    if request.content_type != FORM:
        raise RefusedError(415, f"a record is written by a form ({FORM})")
    try:
        fields = await request.post()
    except ValueError as error:
        raise RefusedError(400, "the form cannot be read") from error
    return form_of({name: said for name, said in fields.items() if isinstance(said, str)})


def _record(request: web.Request, topic: Topic, form: RecordForm) -> NewRecord:
    """Raises FormError."""
    draw = request.app[RECORDS].now_ms()
    return record_of(form, partition_count=topic.partition_count, draw=draw)


async def _produce(request: web.Request, topic: Topic, record: NewRecord) -> int:
    """Write it; its offset. Raises RefusedError."""
    access = request.app[RECORDS]
    _, key, value, headers = record
    batch = build_batch([Record(key=key, value=value, headers=headers, timestamp=access.now_ms())])
    data = hot.PartitionProduceData(index=record.partition, records=batch)
    wanted = hot.ProduceRequest(
        acks=ACKS_ALL,
        timeout_ms=TIMEOUT_MS,
        topic_data=[hot.TopicProduceData(name=topic.name, partition_data=[data])],
    )
    try:
        answer: Any = await access.calls.ask(
            requester_in(request), apis.PRODUCE, PRODUCE, wanted, seconds=PRODUCE_S_MAX
        )
    except LocalCallError as error:
        said = f"it is not known whether the record was written: {error}; look for it first"
        raise RefusedError(503, said) from error
    ((row,),) = [each.partition_responses for each in answer.responses]
    if row.error_code:
        raise _refusal(row)
    offset: int = row.base_offset
    return offset


def _refusal(row: hot.PartitionProduceResponse) -> RefusedError:
    code = ErrorCode(row.error_code)
    if code is ErrorCode.REQUEST_TIMED_OUT:
        said = "it is not known whether the record was written: look for it before it is sent again"
        return RefusedError(503, said)
    reasons = [row.error_message, *(each.batch_index_error_message for each in row.record_errors)]
    told = "; ".join(each for each in reasons if each)
    said = f"the record was not written: {code.name}{': ' if told else ''}{told}"
    return RefusedError(503 if code.name in _PASSING else 409, said)


_PASSING: Final = {"NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS", "KAFKA_STORAGE_ERROR"}

ROUTES: Final[tuple[Route[Role], ...]] = (
    Route("GET", "/console/records/produce", Role.OPERATOR, _form),
    Route("POST", "/console/records/confirm", Role.OPERATOR, _confirm),
    Route("POST", "/console/records/produced", Role.OPERATOR, _produced),
    Route("GET", "/console/records/produced", Role.OPERATOR, _written),
)
