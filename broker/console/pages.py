"""The routes of the console.

    GET /                            the cluster
    GET /console/topics              ?search= &page=
    GET /console/topic               ?name= &page=
    GET /console/groups              ?search= &page=
    GET /console/group               ?id= &page=
    GET /console/transactions        ?search= &page= &all=1
    GET /console/tables              ?search= &page=
    GET /console/jobs
    GET /console/schemas             ?search= &page=
    GET /console/schema              ?subject= &version=
    GET /console/access              users, ACLs and quotas
    GET /console/static/{name}       files of the look

Records have routes of their own (`broker.console.record_pages`), and so has what acts (`broker.console.actions`).

Every page needs the role `viewer`, and that of rights the operator's; files need none, since they say nothing of a
cluster. What reads the machine waits at a barrier first, as everything of this listener does (P8). A page is drawn by one
agent from its memory, and nothing here changes anything.
"""

from collections.abc import Callable
from typing import Any, Final

from aiohttp import web

from broker.admin.access import Role
from broker.admin.requests import ERROR_PAGE, VIEW, RefusedError, current, may
from broker.console.confirming import done_sentence
from broker.console.looking import Looking
from broker.console.rendering import Renderer
from broker.console.views.access import access_view
from broker.console.views.cluster import cluster_view
from broker.console.views.groups import group_view, groups_view
from broker.console.views.jobs import NUMBERS, jobs_view
from broker.console.views.live import NO_CURVE, curve_of
from broker.console.views.page_of_rows import Asked, asked_of
from broker.console.views.schemas import subject_view, subjects_view
from broker.console.views.tables import Told, tables_view
from broker.console.views.topics import topic_view, topics_view
from broker.console.views.transactions import transactions_view
from broker.http.listener import FORMS_BELOW
from broker.http.routes import Route
from coordinator.log_client import LogClient
from coordinator.machine.machine import Machine
from coordinator.tables.schemas import LATEST

NAME_SHOWN_MAX: Final = 100
VERSION_DIGITS_MAX: Final = 10
_NO_FRAME: Final = {"cluster_id": "", "node_name": "", "here": "", "may_act": False, "done": ""}
RENDERER: web.AppKey[Renderer] = web.AppKey("renderer", Renderer)
LOOKING: web.AppKey[Looking] = web.AppKey("looking", Looking)


def install(app: web.Application, now_ms: Callable[[], int]) -> None:
    """Have the admin listener's application draw pages, of errors as well. `now_ms`: a clock that nobody sets."""
    app[LOOKING] = Looking(now_ms)
    app[RENDERER] = Renderer()
    app[ERROR_PAGE] = _error
    app[FORMS_BELOW] = "/console/"


async def _cluster(request: web.Request) -> web.StreamResponse:
    machine = await current_machine(request)
    view = request.app[VIEW]
    said = view.readiness() if view.joined is None else await view.joined.readiness()
    values = {"cluster": cluster_view(machine), "readiness": said}
    return await page(request, "cluster", values)


async def _topics(request: web.Request) -> web.StreamResponse:
    machine = await current_machine(request)
    return await page(request, "topics", {"topics": topics_view(machine, asked(request))})


async def _topic(request: web.Request) -> web.StreamResponse:
    machine = await current_machine(request)
    name = request.query.get("name", "")
    topic = machine.topics.by_name(name)
    if topic is None:
        raise RefusedError(404, f'there is no topic named "{name[:NAME_SHOWN_MAX]}"')
    view = topic_view(machine, topic, asked(request).number)
    return await page(request, "topic", {"topic": view})


async def _groups(request: web.Request) -> web.StreamResponse:
    machine = await current_machine(request)
    return await page(request, "groups", {"groups": groups_view(machine, asked(request))})


async def _group(request: web.Request) -> web.StreamResponse:
    machine = await current_machine(request)
    group_id = request.query.get("id", "")
    group = machine.groups.get(group_id)
    if group is None:
        raise RefusedError(404, f'there is no group of the id "{group_id[:NAME_SHOWN_MAX]}"')
    view = group_view(machine, group, asked(request).number)
    lag = view.summary.lag
    curve = curve_of(*request.app[LOOKING].lags(group_id, lag)) if lag is not None else NO_CURVE
    return await page(request, "group", {"group": view, "lag_curve": curve})


async def _transactions(request: web.Request) -> web.StreamResponse:
    machine = await current_machine(request)
    only_open = request.query.get("all", "") != "1"
    found = transactions_view(machine, asked(request), only_open=only_open)
    return await page(request, "transactions", {"found": found, "only_open": only_open})


async def _tables(request: web.Request) -> web.StreamResponse:
    machine = await current_machine(request)
    view = request.app[VIEW]
    told = Told(view.sources, view.dead_letters)
    return await page(request, "tables", {"tables": tables_view(machine, asked(request), told)})


async def _jobs(request: web.Request) -> web.StreamResponse:
    machine = await current_machine(request)
    numbers = request.app[VIEW].numbers(NUMBERS)
    return await page(request, "jobs", {"jobs": jobs_view(machine, numbers)})


async def _schemas(request: web.Request) -> web.StreamResponse:
    machine = await current_machine(request)
    values = {"subjects": subjects_view(machine, asked(request))}
    return await page(request, "schemas", values)


async def _schema(request: web.Request) -> web.StreamResponse:
    machine = await current_machine(request)
    subject, version = request.query.get("subject", ""), request.query.get("version", "")
    is_number = version.isascii() and version.isdigit() and len(version) <= VERSION_DIGITS_MAX
    view = subject_view(machine, subject, int(version) if is_number else LATEST)
    if view is None:
        raise RefusedError(404, f'there is no such version of "{subject[:NAME_SHOWN_MAX]}"')
    return await page(request, "schema", {"schema": view})


async def _access(request: web.Request) -> web.StreamResponse:
    machine = await current_machine(request)
    return await page(request, "access", {"access": access_view(machine)})


async def _error(request: web.Request, sentence: str, status: int) -> web.StreamResponse:
    renderer = request.app[RENDERER]
    await renderer.ready()
    # Whoever is refused is not told whom they asked.
    values = _NO_FRAME | {"sentence": sentence, "code": status}
    return renderer.page("error", values, status=status)


async def _file(request: web.Request) -> web.StreamResponse:
    renderer = request.app[RENDERER]
    await renderer.ready()
    found = renderer.file(request.match_info["name"])
    if found is None:
        raise RefusedError(404, "there is no such file")
    return found


async def page(
    request: web.Request, template: str, values: dict[str, Any], *, status: int = 200
) -> web.Response:
    """A page with what stands on every page."""
    renderer = request.app[RENDERER]
    await renderer.ready()
    return renderer.page(template, _frame(request) | values, status=status)


def _frame(request: web.Request) -> dict[str, Any]:
    """What stands on every page."""
    view = request.app[VIEW]
    name = _node_name(view.log_client) or view.settings.node_name or "without a name yet"
    return {
        "cluster_id": view.settings.cluster_id,
        "node_name": name,
        "here": request.path,
        "may_act": may(request, Role.OPERATOR),
        "done": _done(request),
    }


def _done(request: web.Request) -> str:
    """What was done by the form that led here. A link of another site leads here with nothing."""
    if request.headers.get("Sec-Fetch-Site", "") in ("cross-site", "same-site"):
        return ""
    return done_sentence(request.query.get("done", ""), request.query.get("of", ""))


def _node_name(log_client: LogClient | None) -> str:
    """Of this agent; "": it is not live."""
    node_id = None if log_client is None else log_client.node_id()
    if log_client is None or node_id is None:
        return ""
    row = log_client.machine.incarnations.by_node_id(node_id)
    return "" if row is None else row.node_name


async def current_machine(request: web.Request) -> Machine:
    """Behind a barrier."""
    return (await current(request)).machine


def asked(request: web.Request) -> Asked:
    """What of a list somebody wants to see."""
    return asked_of(request.query.get("search", ""), request.query.get("page", ""))


ROUTES: Final[tuple[Route[Role], ...]] = (
    Route("GET", "/", Role.VIEWER, _cluster),
    Route("GET", "/console/topics", Role.VIEWER, _topics),
    Route("GET", "/console/topic", Role.VIEWER, _topic),
    Route("GET", "/console/groups", Role.VIEWER, _groups),
    Route("GET", "/console/group", Role.VIEWER, _group),
    Route("GET", "/console/transactions", Role.VIEWER, _transactions),
    Route("GET", "/console/tables", Role.VIEWER, _tables),
    Route("GET", "/console/jobs", Role.VIEWER, _jobs),
    Route("GET", "/console/schemas", Role.VIEWER, _schemas),
    Route("GET", "/console/schema", Role.VIEWER, _schema),
    Route("GET", "/console/access", Role.OPERATOR, _access),
    Route("GET", "/console/static/{name}", Role.ANYBODY, _file),
)
