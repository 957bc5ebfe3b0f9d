"""The routes of actions, all of operators.

    GET  /console/topic/create                              asks, and does nothing
    POST /console/topic/create                              name, partitions
    …    /console/topic/delete?name=                        typed, topic_id
    …    /console/topic/partitions?name=                    partitions, topic_id
    …    /console/topic/config?name=[&config=]              value, then=set|unset, topic_id
    …    /console/group/delete?id=                          typed
    …    /console/group/remove?id=&member=
    …    /console/group/reset?id=[&to=&time=&topic=]        typed; to=earliest|latest|time
    …    /console/transaction/abort?id=                     typed, of

What was done is on the page that a POST leads to (303); what was refused comes back with the form (409), as does what
was said wrongly (400). A form comes from a page of this agent or is not let in (`broker.http.admission`).
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlencode

from aiohttp import web

from broker.admin.access import Role
from broker.admin.requests import RefusedError, requester_in
from broker.calls.local_calls import LocalCalls
from broker.console import pages
from broker.console.actions import groups, topics, transactions
from broker.console.actions.asking import Operator
from broker.console.actions.parameters import Parameters
from broker.console.confirming import (
    TYPED,
    Confirmation,
    Done,
    RefusalError,
    check_typed,
    refusal_of,
)
from broker.http.routes import Route
from broker.node import Node
from protocol.errors import KafkaError

FORM_BYTES_MAX: Final = 64 << 10
FORM_FIELDS_MAX: Final = 20
NODE: web.AppKey[Node] = web.AppKey("node", Node)
CALLS: web.AppKey[LocalCalls] = web.AppKey("calls")


class Action(NamedTuple):
    """What operators may do."""

    path: str
    plan: Callable[[Operator, Parameters], Awaitable[Confirmation]]
    """Raises RefusalError, KafkaError."""
    do: Callable[[Operator, Parameters], Awaitable[Done]]
    """Likewise."""


ACTIONS: Final = (
    Action("/console/topic/create", topics.plan_creation, topics.create),
    Action("/console/topic/delete", topics.plan_deletion, topics.delete),
    Action("/console/topic/partitions", topics.plan_growth, topics.grow),
    Action("/console/topic/config", topics.plan_config, topics.change_config),
    Action("/console/group/delete", groups.plan_deletion, groups.delete),
    Action("/console/group/remove", groups.plan_removal, groups.remove),
    Action("/console/group/reset", groups.plan_reset, groups.reset),
    Action("/console/transaction/abort", transactions.plan_abort, transactions.abort),
)


def install(app: web.Application, node: Node, calls: LocalCalls) -> None:
    """Have the console's application act. Called after `pages.install`."""
    app[NODE] = node
    app[CALLS] = calls


async def _ask(action: Action, request: web.Request) -> web.StreamResponse:
    by = await _operator(request)
    return await _confirm(request, action, by, Parameters(dict(request.query)))


async def _do(action: Action, request: web.Request) -> web.StreamResponse:
    said = Parameters(dict(request.query) | await _form(request))
    by = await _operator(request)
    try:
        confirmation = await action.plan(by, said)
        if confirmation.is_question:
            return await _page(request, confirmation)
        try:
            check_typed(confirmation, said.text(TYPED))
        except RefusalError as refused:
            return await _page(request, confirmation, str(refused), 400)
        done = await action.do(by, said)
    except KafkaError as error:
        return await _confirm(request, action, by, said, str(refusal_of(error)))
    except RefusalError as refused:
        return await _confirm(request, action, by, said, str(refused))
    mark = "&" if "?" in done.path else "?"
    told = urlencode({"done": done.key, "of": done.of})
    return web.Response(status=303, headers={"Location": f"{done.path}{mark}{told}"})


async def _confirm(
    request: web.Request, action: Action, by: Operator, said: Parameters, refusal: str = ""
) -> web.StreamResponse:
    """The confirmation, again where something was refused; or why there can be none."""
    try:
        confirmation = await action.plan(by, said)
    except KafkaError as error:
        raise RefusedError(409, refusal or str(refusal_of(error))) from error
    except RefusalError as error:
        raise RefusedError(409, refusal or str(error)) from error
    return await _page(request, confirmation, refusal, 409 if refusal else 200)


async def _page(
    request: web.Request, confirmation: Confirmation, refusal: str = "", status: int = 200
) -> web.StreamResponse:
    values = {"confirmation": confirmation, "refusal": refusal}
    return await pages.page(request, "confirm", values, status=status)


async def _operator(request: web.Request) -> Operator:
    await pages.current_machine(request)
    return Operator(request.app[NODE], request.app[CALLS], requester_in(request))


async def _form(request: web.Request) -> dict[str, str]:
    """Raises RefusedError."""
    body = await request.read()
    if len(body) > FORM_BYTES_MAX:
        raise RefusedError(413, "the form is too long")
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX, errors="strict"
        )
    except ValueError as error:
        raise RefusedError(400, "this is no form of the console") from error
    return dict(pairs)


ROUTES: Final[tuple[Route[Role], ...]] = tuple(
    Route(method, action.path, Role.OPERATOR, partial(handler, action))
    for action in ACTIONS
    for method, handler in (("GET", _ask), ("POST", _do))
)
