"""How every request of the admin listener is let in, and what its errors look like.

A request's role is looked at before its handler (`broker.admin.access`); an error is `{"error": sentence}` with the
`code` where there is one (`protocol.fault_codes`), and a page for browsers where there are pages (`broker.console`).
What reads the machine goes through `current`, which waits at a barrier first, so no answer is older than its question
(P8).
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from aiohttp import web

from broker.admin.access import UNTOLD, Role
from broker.admin.admin_view import AdminView
from broker.calls.requester import Requester
from broker.http.admission import SAFE_METHODS
from broker.http.listener import TURNS, requester_of
from broker.http.logins import LoginError, Logins
from broker.http.passwords import BusyError
from broker.rights.audit import told
from coordinator.log.metadata_log import LogError
from coordinator.log_client import LogClient
from protocol.fault_codes import FaultCode, FaultError, coded

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
ErrorPage = Callable[[web.Request, str, int], Awaitable[web.StreamResponse]]
"""An error's sentence and status, for people."""


class RefusedError(FaultError):
    """The answer is an error."""

    def __init__(self, status: int, sentence: str, fault: FaultCode | None = None) -> None:
        super().__init__(sentence, fault=fault)
        self.status = status


VIEW: web.AppKey[AdminView] = web.AppKey("view", AdminView)
ROLES: web.AppKey[dict[web.AbstractRoute, Role]] = web.AppKey("roles")
ERROR_PAGE: web.AppKey[ErrorPage] = web.AppKey("error_page")
_REQUESTER: web.RequestKey[Requester] = web.RequestKey("requester", Requester)


@web.middleware
async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every error as JSON, with the status that says whose it is."""
    try:
        await _admit(request)
        return await handler(request)
    except RefusedError as refused:
        headers = _logins(request).challenges if refused.status == 401 else ()
        said = {"error": str(refused)} | coded(refused)
        return await _said(request, said, refused.status, headers)
    except LogError as error:
        return await _said(request, {"error": f"the metadata log: {error}"} | coded(error), 503)
    except web.HTTPException as error:
        return await _said(request, {"error": error.reason}, error.status)


async def _said(
    request: web.Request,
    said: dict[str, str],
    status: int,
    headers: Iterable[tuple[str, str]] = (),
) -> web.StreamResponse:
    """An error; browsers get a page where there are pages."""
    page = request.app.get(ERROR_PAGE)
    if page is None or "text/html" not in request.headers.get("Accept", ""):
        answer: web.StreamResponse = json_answer(said, status=status)
    else:
        answer = await page(request, said["error"], status)
    answer.headers.extend(headers)
    return answer


async def _admit(request: web.Request) -> None:
    """Raises RefusedError. Who asks is looked at only where it matters: probes never fail for it."""
    view = request.app[VIEW]
    request[_REQUESTER] = requester_of(request)
    # What is not there is told to those who may ask something: any of them.
    role = request.app[ROLES].get(request.match_info.route, Role.EXPORTER)
    if view.access.is_open(role):
        return
    requester = request[_REQUESTER]
    if not view.access.is_shut:
        try:
            said = request.headers.get("Authorization", "")
            requester = request[_REQUESTER] = await _logins(request).requester(said, requester)
        except BusyError as error:
            raise RefusedError(503, str(error)) from error
        except LoginError as error:
            said = f"{error}; {UNTOLD.format(role=role.value)}"
            raise RefusedError(401, said, FaultCode.LOGIN_FAILED) from error
    objection = view.access.objection(role, requester.principal)
    if objection is not None:
        if objection[0] == 403 and not view.access.is_shut:
            fields = {"api": _told_api(request), "role": role.value}
            view.audit("refused", requester, fields)
        raise RefusedError(*objection, FaultCode.LOGIN_FAILED if objection[0] == 401 else None)
    if role is Role.OPERATOR and request.method not in SAFE_METHODS:
        view.audit("change", requester, {"api": _told_api(request)})


def requester_in(request: web.Request) -> Requester:
    """Who asks, once they are let in; where nobody is asked who they are, by the connection alone."""
    return request[_REQUESTER]


def may(request: web.Request, role: Role) -> bool:
    """Whether whoever was let in might ask for what needs this role, too."""
    return request.app[VIEW].access.objection(role, requester_in(request).principal) is None


def _logins(request: web.Request) -> Logins:
    logins = request.app[VIEW].logins
    assert logins is not None
    return logins


def _told_api(request: web.Request) -> str:
    return told(f"HTTP {request.method} {request.path}")


def json_answer(value: Mapping[str, Any], *, status: int = 200) -> web.Response:
    return web.json_response(value, status=status)


async def current(request: web.Request) -> LogClient:
    """Waits at a barrier; returns the log client."""
    log_client = log_client_of(request)
    await log_client.barrier()
    await request.app[TURNS].take()  # All who waited go on together.
    return log_client


def log_client_of(request: web.Request) -> LogClient:
    log_client = request.app[VIEW].log_client
    if log_client is None:
        raise RefusedError(503, "the agent is starting")
    return log_client
