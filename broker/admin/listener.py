"""The admin HTTP listener: metrics, health, the log, and what the exporter asks.

    GET    /metrics                  Prometheus
    GET    /health/live              200 as long as the process answers
    GET    /health/ready             200, or 503 with the reasons why not (P16); and by what the agent
                                     is overloaded, which is no such reason
    GET    /log?after=P&follow=1     entries of the metadata log, one JSON object per line
    GET    /jobs                     which agent has the jobs, and how far they are
    POST   /jobs/{job}/run           have one run now
    GET    /objects/unnamed          objects in the store that no entry of the log names
    GET    /check?deep=1             what the log points at beside what is in the store: lines about how far
                                     that is (`progress`), and what was found (`found`, or `error`)
    GET    /costs                    what topics hold, and the settings that chunks go by
    GET    /topics/{name}?from=N     where a topic's records lie, from a partition on
    POST   /topics/{name}/lost       {"topic_id", "partition", "base_offset", "next_offset", "rows", "digest"}:
                                     these rows, as a check names them, are lost; who can read them is refused
    GET    /export/topics            topics with their ids, what is set for their tables, how far these are;
                                     `registry`: URL of the schema registry, as whoever asks reaches it
    GET    /export/plan?topic=T      spans of a topic [&partition=P&from=OFFSET], some at a time; `registry`
    POST   /export/progress          {"topic", "topic_id", "offsets", "table", "snapshot_id",
                                     "dead_letters"}: that snapshot of the table has all before these
    POST   /export/pin               {"name", "lifetime_ms"} -> {"position"}
    DELETE /export/pin/{name}

Errors are 400 for the caller's mistakes, 404, and 503 for what may work later (`broker.admin.requests`). Who may ask for
what says `broker.admin.access`; the pages beside these routes are `broker.console`.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from aiohttp import web

from broker.admin import check_stream, log_stream
from broker.admin.access import Role
from broker.admin.admin_view import AdminView
from broker.admin.registry_address import Caller, host_of, registry_url
from broker.admin.requests import (
    ROLES,
    VIEW,
    RefusedError,
    current,
    errors,
    json_answer,
    log_client_of,
)
from broker.admin.shares import Places
from broker.check import losses
from broker.config.settings import Settings
from broker.http.routes import Route, add_routes
from broker.http.turns import SharedAnswer
from broker.jobs.kinds import unnamed_objects
from broker.reports import cost_report, job_report
from broker.reports.export_report import export_view, parse_progress, reports
from broker.reports.log_lines import place
from broker.reports.topic_report import topic_view
from coordinator.commands.entries import Command, Outcome, Pin, Pinned, Rejected, Unpin
from coordinator.commands.job_commands import RequestJob
from coordinator.commands.loss_commands import LOSS_LEVEL
from coordinator.commands.table_commands import TABLES_LEVEL
from coordinator.log_client import LogClient, NotDoneError
from coordinator.machine.machine import Machine
from coordinator.machine.plan_view import topic_plan
from coordinator.snapshot import keeping
from coordinator.tables.pins import PINS_MAX
from coordinator.tables.topics import Topic
from protocol.errors import KafkaError
from protocol.fault_codes import FaultCode
from protocol.types import ERA, POSITION_ZERO, Position, TopicId, era_of
from storage.formats.cluster_identity import ClusterIdentity
from storage.formats.spans import Marker, Page, Span
from storage.stores.object_store import StoreError

PROPOSAL_SECONDS_MAX = 10.0
LOG_READERS_MAX = 5
"""Streams of the whole log at a time; each reads the log anew. One address gets all but one."""
LOG_WRITE_SECONDS_MAX = 30.0
"""A reader that takes nothing for so long gives its place back."""
METRICS_WAIT_S = 0.05
"""Who asks for metrics meanwhile gets the same: they take milliseconds, and everybody may ask."""
PIN_MS_MAX = 7 * 86_400_000
BODY_BYTES_MAX = 1024 * 1024
"""Offsets of all partitions of a topic are the longest."""
PLAN_ROUNDS_MAX = 6
TOPICS_AT_ONCE = 100
"""Between them the loop does other things."""
NUMBER_DIGITS_MAX = 19
"""Of positions and offsets."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
METRICS: web.AppKey[SharedAnswer] = web.AppKey("metrics", SharedAnswer)
LOG_READERS: web.AppKey[Places] = web.AppKey("log_readers", Places)


def make_app(view: AdminView, pages: Sequence[Route[Role]] = ()) -> web.Application:
    """The application; the composition root opens its socket. `pages`: what is served beside ROUTES."""
    app = web.Application(middlewares=[errors], client_max_size=BODY_BYTES_MAX)
    app[VIEW] = view
    app[METRICS] = SharedAnswer(METRICS_WAIT_S)
    app[LOG_READERS] = Places(LOG_READERS_MAX)
    app[ROLES] = add_routes(app, (*ROUTES, *pages))
    return app


async def _metrics(request: web.Request) -> web.StreamResponse:
    view = request.app[VIEW]
    if view.joined is None and view.registry is None:
        raise RefusedError(503, "the agent is starting")
    make = view.own_metrics if view.joined is None else view.joined.metrics
    return web.Response(
        body=await request.app[METRICS].get(make),
        headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
    )


async def _live(_request: web.Request) -> web.StreamResponse:
    return json_answer({"live": True})


async def _ready(request: web.Request) -> web.StreamResponse:
    view = request.app[VIEW]
    said = view.readiness() if view.joined is None else await view.joined.readiness()
    return json_answer(said, status=200 if said["ready"] else 503)


async def _log(request: web.Request) -> web.StreamResponse:
    """Entries after a position; without `follow`, up to the log's end as of now."""
    view = request.app[VIEW]
    readers = request.app[LOG_READERS]
    after = Position(_number(request, "after", POSITION_ZERO))
    follow = request.query.get("follow", "0") not in ("", "0", "false")
    address = _address(request)
    if not readers.take(address):
        raise RefusedError(503, "enough others, or you yourself, are reading the log already")
    try:
        head = await view.log.head()
        if era_of(after) > era_of(head):
            raise RefusedError(400, f"after: positions are like {place(head)}")
        if era_of(after) < era_of(head):
            after = POSITION_ZERO  # All of this era comes behind it.
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        if follow or after < head:
            write = log_stream.within(response.write, LOG_WRITE_SECONDS_MAX)
            stream = log_stream.entries(view.log, write, after=after, end=None if follow else head)
            await log_stream.while_wanted(stream, lambda: request.transport is not None)
        await response.write_eof()
        return response
    except TimeoutError as error:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("a reader of the log took nothing") from error
    finally:
        readers.give(address)


def _address(request: web.Request) -> str:
    return request.remote or "unknown"


async def _unnamed(request: web.Request) -> web.StreamResponse:
    machine = (await current(request)).machine
    listing = request.app[VIEW].listing
    if listing.locked():
        raise RefusedError(503, "the whole store is being listed for somebody else; ask again")
    try:
        async with listing:
            found = await unnamed_objects.count(request.app[VIEW].store, machine)
    except StoreError as error:
        raise RefusedError(503, f"the object store: {error}") from error
    return json_answer(found.view())


async def _check(request: web.Request) -> web.StreamResponse:
    view, log_client = request.app[VIEW], await current(request)
    deep = request.query.get("deep", "0") not in ("", "0", "false")
    if view.listing.locked():
        raise RefusedError(503, "the whole store is being listed for somebody else; ask again")
    async with view.listing:
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        write = log_stream.within(response.write, LOG_WRITE_SECONDS_MAX)
        work = check_stream.check(view.store, view.settings, log_client, write, deep=deep)
        await log_stream.while_wanted(work, lambda: request.transport is not None)
        await response.write_eof()
        return response


async def _costs(request: web.Request) -> web.StreamResponse:
    view = cost_report.costs_view((await current(request)).machine, request.app[VIEW].settings)
    for number, row in enumerate(view.topics, 1):
        view.told.append(row)
        if not number % TOPICS_AT_ONCE:
            await asyncio.sleep(0)
    return json_answer({"settings": view.settings, "agents": view.agents, "topics": view.told})


async def _topic(request: web.Request) -> web.StreamResponse:
    name, first = request.match_info["name"], _number(request, "from", 0)
    machine, topic = await _topic_named(request, name)
    source = request.app[VIEW].sources.get(topic.topic_id)
    told = {"exported_from": None if source is None else source._asdict()}
    return json_answer(topic_view(machine, topic, first=first) | told)


async def _lost(request: web.Request) -> web.StreamResponse:
    try:
        loss = losses.parse(await request.text())
    except ValueError as error:
        raise RefusedError(400, str(error)) from error
    machine, topic = await _topic_named(request, request.match_info["name"])
    if topic.topic_id != loss.topic_id:
        raise RefusedError(404, f'topic "{topic.name}" is another one now: check again')
    _refuse_beside_older(machine, LOSS_LEVEL)
    view, log_client = request.app[VIEW], log_client_of(request)
    losing = losses.Losing(
        store=view.store,
        machine=machine,
        identity=ClusterIdentity(view.settings.cluster_id, ERA),
        incarnation=log_client.incarnation,
        propose=partial(_outcome, request),
    )
    try:
        await losing.declare(loss)
    except losses.LossError as error:
        raise RefusedError(409, str(error)) from error
    except StoreError as error:
        raise RefusedError(503, f"the object store: {error}") from error
    return json_answer({"topic": topic.name, "partition": loss.partition, "rows": loss.rows})


async def _topic_named(request: web.Request, name: str) -> tuple[Machine, Topic]:
    machine = (await current(request)).machine
    topic = machine.topics.by_name(name)
    if topic is None:
        raise RefusedError(404, f'there is no topic named "{name}"')
    return machine, topic


async def _topics(request: web.Request) -> web.StreamResponse:
    log_client = await current(request)
    sources = request.app[VIEW].sources
    topics = []
    for number, topic in enumerate(list(log_client.machine.topics), 1):
        view = export_view(log_client.machine, topic, sources.get(topic.topic_id))
        named = {"name": topic.name, "topic_id": topic.topic_id.hex()}
        topics.append(named | {"partitions": topic.partition_count} | view)
        if not number % TOPICS_AT_ONCE:
            await asyncio.sleep(0)
    told = {"cluster_id": _cluster(request), "registry": _registry(request)}
    return json_answer(told | {"topics": topics})


def _cluster(request: web.Request) -> str:
    """A name alone could be given again, and with it topic ids: they come from positions. A table
    made from one life of the log must not be continued from another; after a recovery it is, where its last
    records are still those of the log (`iceberg_export.records.last_records`)."""
    view = request.app[VIEW]
    return f"{view.settings.cluster_id}/{view.origin}"


async def _plan(request: web.Request) -> web.StreamResponse:
    name = request.query.get("topic", "")
    if not name:
        raise RefusedError(400, "which topic? (?topic=NAME)")
    partitions = None
    if "partition" in request.query:
        partition = _number(request, "partition", 0)
        partitions = {partition: _number(request, "from", 0)}
    return await _answer_plan(request, name, partitions)


async def _plan_of_many(request: web.Request) -> web.StreamResponse:
    """A plan that begins elsewhere in every partition, in one request: who reads what is fresh
    asks often, and of all partitions."""
    try:
        body = json.loads(await request.text())
        name, others = str(body["topic"]), body.get("others")
        others = None if others is None else int(others)
        offsets = {int(number): int(offset) for number, offset in body["offsets"].items()}
    except (AttributeError, ValueError, TypeError, LookupError) as error:
        said = 'send {"topic": name, "offsets": {partition: offset}, "others": offset or null}'
        raise RefusedError(400, said) from error
    if min(offsets.values(), default=0) < 0 or (others or 0) < 0:
        raise RefusedError(400, "offsets are not negative")
    return await _answer_plan(request, name, offsets, others=others)


async def _answer_plan(
    request: web.Request,
    name: str,
    partitions: Mapping[int, int] | None,
    *,
    others: int | None = None,
) -> web.StreamResponse:
    """The plan of a topic; partitions that are not named from `others` on, or left out."""
    machine, topic = await _topic_named(request, name)
    if others is not None and partitions is not None:
        partitions = dict.fromkeys(range(topic.partition_count), others) | dict(partitions)
    try:
        plan = await _plan_with_pages(request, machine, topic.topic_id, partitions)
    except KafkaError as error:
        raise RefusedError(404, str(error)) from error
    except StoreError as error:
        raise RefusedError(503, f"the object store: {error}") from error
    found = {
        "store": _store(request.app[VIEW].settings),
        "cluster_id": _cluster(request),
        "registry": _registry(request),
    }
    source = request.app[VIEW].sources.get(topic.topic_id)
    return json_answer(plan | found | export_view(machine, topic, source))


async def _plan_with_pages(
    request: web.Request,
    machine: Machine,
    topic_id: TopicId,
    partitions: Mapping[int, int] | None,
) -> dict[str, Any]:
    """The plan, pages read as it needs them. Jobs may move rows meanwhile, so it is made anew
    each time, and is of one position."""
    reader = request.app[VIEW].reader
    assert reader is not None  # It is there when the log client is.
    read: dict[Page, Sequence[Span | Marker]] = {}
    for _ in range(PLAN_ROUNDS_MAX):
        plan = topic_plan(machine, topic_id, partitions=partitions, pages=read.get)
        if not plan.missing:
            return plan.view
        read |= zip(plan.missing, await reader.load_pages(plan.missing), strict=True)
    raise RefusedError(503, "rows move faster than their pages are read; ask again")


def _store(settings: Settings) -> dict[str, Any]:
    """Where an exporter finds the objects; never a secret."""
    style = settings.store_path_style
    return {
        "url": settings.store_url,
        "endpoint": settings.store_endpoint,
        "region": settings.store_region,
        "path_style": settings.store_endpoint is not None if style is None else style,
    }


def _registry(request: web.Request) -> str | None:
    """Where whoever asks finds the schema registry; None: nowhere."""
    view = request.app[VIEW]
    if view.settings.registry_advertised is not None:
        return view.settings.registry_advertised
    listener = next(iter(view.settings.registry_listen), None)
    if listener is None or "registry" not in view.bound:
        return None
    local = None if request.transport is None else request.transport.get_extra_info("sockname")
    caller = Caller(
        host=host_of(request.headers.get("Host", "")),
        remote=request.remote or "",
        local=local[0] if isinstance(local, tuple) else "",
    )
    return registry_url(listener._replace(port=view.bound["registry"][1]), caller)


async def _jobs(request: web.Request) -> web.StreamResponse:
    return json_answer(_jobs_view(await current(request), request.app[VIEW].settings))


async def _run_job(request: web.Request) -> web.StreamResponse:
    name = request.match_info["job"]
    kind = job_report.job_kind(name)
    if kind is None:
        raise RefusedError(404, f'there is no job "{name}" ({job_report.names()})')
    await _propose(request, RequestJob(kind))
    view = _jobs_view(log_client_of(request), request.app[VIEW].settings)
    return json_answer(next(job for job in view["jobs"] if job["job"] == kind.name.lower()))


def _jobs_view(log_client: LogClient, settings: Settings) -> dict[str, Any]:
    return job_report.jobs_view(
        log_client.machine, log_bytes=log_client.log_bytes, log_bytes_max=settings.log_bytes_max
    )


async def _progress(request: web.Request) -> web.StreamResponse:
    try:
        progress = parse_progress(await request.text())
    except ValueError as error:
        raise RefusedError(400, str(error)) from error
    machine = (await current(request)).machine
    topic = machine.topics.by_name(progress.topic)
    if topic is None or topic.topic_id.hex() != progress.topic_id:
        said = f'there is no topic "{progress.topic}" with id {progress.topic_id}'
        raise RefusedError(404, said)
    _refuse_beside_older(machine, TABLES_LEVEL)
    for number, offset in progress.offsets.items():
        partition = machine.partitions.get(topic.topic_id, number)
        if partition is not None and offset > partition.last_stable:
            said = f"partition {number} is stable up to {partition.last_stable}, not {offset}"
            raise RefusedError(409, said)
    for command in reports(topic.topic_id, progress.offsets):
        await _propose(request, command)
    sources = request.app[VIEW].sources
    letters: dict[TopicId, Mapping[str, int]] = request.app[VIEW].dead_letters
    for gone in [each for each in {*sources, *letters} if machine.topics.by_id(each) is None]:
        sources.pop(gone, None)
        letters.pop(gone, None)
    if progress.dead_letters is not None:
        letters[topic.topic_id] = progress.dead_letters
    answer: dict[str, Any] = {"topic": topic.name, "partitions": len(progress.offsets)}
    if progress.source is None:
        sources.pop(topic.topic_id, None)
        return json_answer(
            answer | {"note": "an exporter of this release names table and snapshot_id"}
        )
    sources[topic.topic_id] = progress.source
    return json_answer(answer)


async def _pin(request: web.Request) -> web.StreamResponse:
    try:
        body = json.loads(await request.text())
        name, lifetime_ms = body["name"], body["lifetime_ms"]
    except (ValueError, TypeError, LookupError) as error:
        raise RefusedError(400, 'send {"name": text, "lifetime_ms": number}') from error
    if not isinstance(name, str) or not 0 < len(name) <= 100 or not name.isprintable():
        raise RefusedError(400, "name: 1 to 100 printable characters")
    _refuse_reserved(name)
    whole = isinstance(lifetime_ms, int) and not isinstance(lifetime_ms, bool)
    if not whole or not 0 < lifetime_ms <= PIN_MS_MAX:
        raise RefusedError(400, f"lifetime_ms: a number from 1 to {PIN_MS_MAX}")
    machine, address, shares = (
        log_client_of(request).machine,
        _address(request),
        request.app[VIEW].pins,
    )
    living = {row.name for row in machine.pins.alive(machine.time_ms)}
    objection = shares.objection(name, address, living, most=PINS_MAX)
    if objection is not None:
        raise RefusedError(429, objection)
    outcome = await _propose(request, Pin(name, lifetime_ms))
    if not isinstance(outcome, Pinned):
        raise RefusedError(503, f"the pin was not set: {outcome}")
    shares.note(name, address)
    # What was in the log before the pin must be in the plan that is asked for next.
    await current(request)
    return json_answer({"position": outcome.position, "expires_ms": outcome.expires_ms})


async def _unpin(request: web.Request) -> web.StreamResponse:
    name = request.match_info["name"]
    _refuse_reserved(name)
    await _propose(request, Unpin(name))
    return json_answer({"name": name})


def _refuse_reserved(name: str) -> None:
    if name.startswith(keeping.PREFIX):
        raise RefusedError(400, f"name: {keeping.PREFIX}… are the pins that keep snapshots")


def _refuse_beside_older(machine: Machine, level: int) -> None:
    if not machine.incarnations.all_support(level):
        said = "an agent of an older release is live; say it again later"
        raise RefusedError(503, said, FaultCode.VERSION_MISMATCH)


async def _propose(request: web.Request, command: Command) -> Outcome:
    """Put a command into the log and wait until it is done."""
    outcome = await _outcome(request, command)
    if isinstance(outcome, Rejected):
        raise RefusedError(409, outcome.message or outcome.error.name)
    return outcome


async def _outcome(request: web.Request, command: Command) -> Outcome:
    """Put a command into the log and wait for what became of it."""
    future = log_client_of(request).propose(command)
    done, _ = await asyncio.wait([future], timeout=PROPOSAL_SECONDS_MAX)
    if not done:
        raise RefusedError(503, "it is not known yet whether this took effect; send it again")
    try:
        return future.result()
    except NotDoneError as error:
        raise RefusedError(503, f"not done: {error}") from error


def _number(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name, str(default))
    if not text.isascii() or not text.isdigit() or len(text) > NUMBER_DIGITS_MAX:
        raise RefusedError(400, f'{name}: "{text[:40]}" is not a number')
    return int(text)


ROUTES: Final[tuple[Route[Role], ...]] = (
    Route("GET", "/metrics", Role.METRICS, _metrics),
    Route("GET", "/health/live", Role.ANYBODY, _live),
    Route("GET", "/health/ready", Role.ANYBODY, _ready),
    Route("GET", "/log", Role.OPERATOR, _log, has_head=False),
    Route("GET", "/jobs", Role.OPERATOR, _jobs),
    Route("POST", "/jobs/{job}/run", Role.OPERATOR, _run_job),
    Route("GET", "/objects/unnamed", Role.OPERATOR, _unnamed),
    Route("GET", "/check", Role.OPERATOR, _check, has_head=False),
    Route("GET", "/costs", Role.OPERATOR, _costs),
    Route("GET", "/topics/{name}", Role.OPERATOR, _topic),
    Route("POST", "/topics/{name}/lost", Role.OPERATOR, _lost),
    Route("GET", "/export/topics", Role.EXPORTER, _topics),
    Route("GET", "/export/plan", Role.EXPORTER, _plan),
    Route("POST", "/export/plan", Role.EXPORTER, _plan_of_many),
    Route("POST", "/export/progress", Role.EXPORTER, _progress),
    Route("POST", "/export/pin", Role.EXPORTER, _pin),
    Route("DELETE", "/export/pin/{name}", Role.EXPORTER, _unpin),
)
"""Every endpoint, with the role that it needs."""
