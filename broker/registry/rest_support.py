"""Functions that all routes of the registry share: barriers, proposals, flags, errors, rights.

Reads that must not be older than their question wait for a barrier first (P8), so agents answer
alike whichever a client asks. A schema that is known under its id is given out without: it is the
same for ever, and consumers go on reading while the log is away.
"""

import asyncio
import functools
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

from broker.calls.requester import Requester
from broker.calls.shares import Owner, owner_of
from broker.http.listener import TURNS, requester_of
from broker.http.logins import LoginError, Logins
from broker.http.passwords import BusyError
from broker.registry.checker import CheckerBusyError, CheckerUnavailableError, SchemaChecker
from broker.registry.checks import Answer, Question
from broker.registry.errors import (
    ID_TAKEN,
    INVALID_REQUEST,
    INVALID_SCHEMA,
    NOT_PERMITTED,
    REFERENCE_EXISTS,
    STORE_ERROR,
    SUBJECT_NOT_SOFT_DELETED,
    TIMED_OUT,
    TOO_MANY,
    UNAUTHORIZED,
    VERSION_NOT_FOUND,
    RegistryError,
)
from broker.registry.registry_shares import Growth, RegistryShares
from broker.registry.request_body import read_object
from broker.registry.subject_rights import NOTHING, Asker, Need, Scope, of_subject
from broker.registry.subjects import (
    SchemaLibrary,
    SubmittedSchema,
    subject_name,
    subjects_referred_to,
)
from broker.rights.audit import told
from broker.rights.rights import Rights
from coordinator.commands.entries import Outcome, Rejected
from coordinator.commands.table_commands import (
    TABLES_LEVEL,
    DeleteSubject,
    RegisterSchema,
    SetSubjectRules,
)
from coordinator.log.metadata_log import LogError
from coordinator.log_client import LogClient, NotDoneError
from protocol.acls import Operation
from protocol.errors import ErrorCode

PROPOSAL_SECONDS_MAX: Final = 10.0
BODY_BYTES_MAX: Final = 4 << 20
"""Of a request: a schema's text as JSON text, twice escaped at worst."""
CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(slots=True, kw_only=True)
class RegistryView:
    """The parts that routes use."""

    log_client: LogClient
    checker: SchemaChecker
    cluster_id: str
    logins: Logins
    rights: Rights | None
    """None: whoever is let in may do everything."""
    ready: Callable[[], bool]
    """The replica has been at the log's end."""
    library: SchemaLibrary = field(init=False)
    shares: RegistryShares = field(init=False)

    def __post_init__(self) -> None:
        machine = self.log_client.machine
        self.library = SchemaLibrary(lambda: machine.schemas)
        self.shares = RegistryShares(machine.schemas)


VIEW: web.AppKey[RegistryView] = web.AppKey("registry", RegistryView)
NEEDS: web.AppKey[dict[web.AbstractRoute, Need]] = web.AppKey("needs")
_ASKER: web.RequestKey[Asker] = web.RequestKey("asker", Asker)

_CODES: Final = {
    ErrorCode.INVALID_REQUEST: INVALID_REQUEST,
    ErrorCode.RESOURCE_NOT_FOUND: INVALID_SCHEMA,
    ErrorCode.DUPLICATE_RESOURCE: ID_TAKEN,
    ErrorCode.OPERATION_NOT_ATTEMPTED: REFERENCE_EXISTS,
    ErrorCode.INVALID_RECORD_STATE: SUBJECT_NOT_SOFT_DELETED,
    ErrorCode.POLICY_VIOLATION: NOT_PERMITTED,
}
"""Refusals of `apply`, for what was right when it was looked at."""


@web.middleware
async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every error as JSON with a code that clients know."""
    try:
        return await _admitted(request, handler)
    except RegistryError as error:
        told = answer(error.view, status=error.status)
        if error.code == UNAUTHORIZED:
            told.headers.extend(request.app[VIEW].logins.challenges)
        return told
    except LogError as error:
        refused = RegistryError(STORE_ERROR, f"Error in the backend: the metadata log: {error}")
        return answer(refused.view, status=refused.status)
    except web.HTTPException as error:
        view = {"error_code": error.status, "message": f"HTTP {error.status} {error.reason}"}
        return answer(view, status=error.status)


async def _admitted(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The handler's answer, if it is known who asks and the right is there. Raises RegistryError."""
    view = request.app[VIEW]
    requester = await _requester(request, view.logins)
    api = f"Registry {request.method} {request.path}"
    asker = Asker(view.rights, lambda: view.log_client.machine.acls, requester, told(api))
    request[_ASKER] = asker
    need = request.app[NEEDS].get(request.match_info.route, NOTHING)
    subject = subject_of(request) if need.scope is Scope.SUBJECT else ""
    asker.require(need, subject)
    status = 500
    try:
        response = await handler(request)
        status = response.status
        return response
    except (RegistryError, web.HTTPException) as error:
        status = error.status
        raise
    finally:
        asker.changed(need, subject, status)


async def _requester(request: web.Request, logins: Logins) -> Requester:
    """Who asks; nobody in particular where the registry has no users. Raises RegistryError."""
    seen = requester_of(request)
    if not logins.any_way:
        return seen
    try:
        said = request.headers.get("Authorization", "")
        requester = await logins.requester(said, seen)
    except BusyError as error:
        raise RegistryError(TOO_MANY, f"Too many requests: {error}") from error
    except LoginError as error:
        raise RegistryError(UNAUTHORIZED, "Unauthorized") from error
    if requester.is_anonymous:
        raise RegistryError(UNAUTHORIZED, "Unauthorized")
    return requester


def asker_of(request: web.Request) -> Asker:
    """Who asks, and what for."""
    return request[_ASKER]


def answer(value: Any, *, status: int = 200) -> web.Response:
    # A message may repeat half a character that somebody sent.
    body = json.dumps(value, ensure_ascii=False).encode(errors="replace")
    return web.Response(body=body, status=status, content_type=CONTENT_TYPE, charset="utf-8")


async def current(request: web.Request) -> SchemaLibrary:
    """The table of schemas, not older than the request."""
    library = at_hand(request)
    await request.app[VIEW].log_client.barrier()
    await request.app[TURNS].take()  # All who waited go on together.
    return library


def at_hand(request: web.Request) -> SchemaLibrary:
    """The table as this agent has it."""
    view = request.app[VIEW]
    if not view.ready():
        raise RegistryError(STORE_ERROR, "Error in the backend: the agent is starting")
    return view.library


async def propose(
    request: web.Request, command: RegisterSchema | DeleteSubject | SetSubjectRules
) -> Outcome:
    """Put a command into the log; what became of it. Raises RegistryError but for Rejected."""
    log_client = request.app[VIEW].log_client
    if not log_client.machine.incarnations.all_support(TABLES_LEVEL):
        raise RegistryError(NOT_PERMITTED, "An agent of an older release is running; upgrade it")
    shares = request.app[VIEW].shares
    growth = shares.require(_owner_of(request), command)
    future = log_client.propose(command)
    shares.begin(growth)
    # Whether anybody waits that long or not.
    future.add_done_callback(functools.partial(_settle, shares, growth))
    done, _ = await asyncio.wait([future], timeout=PROPOSAL_SECONDS_MAX)
    if not done:
        raise RegistryError(TIMED_OUT, "Operation timed out; it may still take effect")
    try:
        return future.result()
    except NotDoneError as error:
        raise RegistryError(STORE_ERROR, f"Error in the backend: not done: {error}") from error


def _settle(shares: RegistryShares, growth: Growth, done: asyncio.Future[Outcome]) -> None:
    failed = done.cancelled() or done.exception() is not None
    shares.settle(growth, None if failed else done.result())


def _owner_of(request: web.Request) -> Owner:
    return owner_of(f"{request.remote}:0")


def refused(rejected: Rejected) -> RegistryError:
    code = _CODES.get(rejected.error, STORE_ERROR)
    return RegistryError(code, rejected.message or rejected.error.name)


def not_found(rejected: Rejected) -> RegistryError:
    """For commands that name a version themselves."""
    if rejected.error == ErrorCode.RESOURCE_NOT_FOUND:
        return RegistryError(VERSION_NOT_FOUND, rejected.message)
    return refused(rejected)


async def body_of(request: web.Request) -> dict[str, Any]:
    try:
        return read_object((await request.read()).decode())
    except ValueError as error:
        said = f"The body is not a JSON object: {error}"
        raise RegistryError(INVALID_REQUEST, said) from error


async def ask(request: web.Request, question: Question) -> Answer:
    """Has a question about schemas answered. Raises RegistryError."""
    try:
        answer = await request.app[VIEW].checker.ask(
            question, client=_owner_of(request), is_wanted=lambda: request.transport is not None
        )
    except CheckerBusyError as error:
        raise RegistryError(TOO_MANY, f"Too many requests: {error}; try again") from error
    except CheckerUnavailableError as error:
        raise RegistryError(STORE_ERROR, f"Error in the backend: {error}") from error
    if answer.error:
        raise RegistryError(INVALID_SCHEMA, f"Invalid schema: {answer.error}")
    return answer


async def submitted(
    request: web.Request, library: SchemaLibrary, body: Mapping[str, Any], *, is_new: bool
) -> SubmittedSchema:
    """The schema that a request's body has. Raises RegistryError."""
    # What another subject has may be told by the refusal of a schema that refers to it.
    for subject in subjects_referred_to(body):
        asker_of(request).require(of_subject(Operation.DESCRIBE), subject)
    submission = library.submission(body, normalize=flag(request, "normalize"), is_new=is_new)
    known = library.recognized(submission)
    return known or library.submitted(submission, await ask(request, submission.question))


def flag(request: web.Request, name: str) -> bool:
    return request.query.get(name, "").lower() == "true"


def subject_of(request: web.Request) -> str:
    return subject_name(request.match_info["subject"])
