"""Routes of the registry for schemas and subjects, and the application.

    POST   /subjects/{subject}/versions          register: {"schema", "schemaType", "references"}
    POST   /subjects/{subject}                   is it there already?
    GET    /subjects, /subjects/{subject}/versions[/{version}[/schema|/referencedby]]
    DELETE /subjects/{subject}[/versions/{version}]   hide; with ?permanent=true forget
    GET    /schemas/ids/{id}[/schema|/subjects|/versions], /schemas/guids/{guid}[/ids]
    GET    /schemas, /schemas/types, /contexts, /v1/metadata/id, /v1/metadata/version
    ...and those of `rest_rules`

A registration is judged by what this replica holds, and judged again when the log says that the
subject has changed meanwhile.
"""

import asyncio
import json
from typing import Any, Final

from aiohttp import web

from broker.http.routes import Route, add_routes
from broker.registry import rest_rules
from broker.registry.checks import text_of
from broker.registry.errors import (
    SCHEMA_NOT_FOUND,
    STORE_ERROR,
    SUBJECT_NOT_SOFT_DELETED,
    VERSION_NOT_SOFT_DELETED,
    VERSION_SOFT_DELETED,
    RegistryError,
)
from broker.registry.rest_support import (
    BODY_BYTES_MAX,
    CONTENT_TYPE,
    NEEDS,
    VIEW,
    RegistryView,
    answer,
    ask,
    asker_of,
    at_hand,
    body_of,
    current,
    errors,
    flag,
    not_found,
    propose,
    refused,
    subject_of,
    submitted,
)
from broker.registry.subject_rights import LEFT_OUT, NOTHING, Need, of_subject
from broker.registry.subjects import (
    SchemaLibrary,
    guid_of,
    incompatible,
    page,
    schema_view,
    subject_not_found,
    version_number,
    version_view,
)
from coordinator.commands.entries import Rejected
from coordinator.commands.table_commands import DeleteSubject, SchemaRegistered, SubjectDeleted
from coordinator.tables.schemas import ALL, LATEST, SchemaRow, SchemaVersion
from protocol.acls import Operation
from protocol.errors import ErrorCode

LISTED_MAX: Final = 1_000
"""Schemas in one answer, as in Confluent's; `offset` leads to the others."""
ATTEMPTS_MAX: Final = 8
"""Registrations of one request, when others change the subject at the same time."""


def make_app(view: RegistryView) -> web.Application:
    """The application; the composition root opens its sockets."""
    app = web.Application(middlewares=[errors], client_max_size=BODY_BYTES_MAX)
    app[VIEW] = view
    app[NEEDS] = add_routes(app, (*ROUTES, *rest_rules.ROUTES))
    return app


# The server.


async def _root(_request: web.Request) -> web.StreamResponse:
    return answer({})


async def _contexts(_request: web.Request) -> web.StreamResponse:
    return answer(["."])


async def _cluster(request: web.Request) -> web.StreamResponse:
    name = request.app[VIEW].cluster_id
    return answer({"id": name, "scope": {"path": [], "clusters": {"kafka-cluster": name}}})


async def _version_of_server(_request: web.Request) -> web.StreamResponse:
    return answer({"version": "frazil", "commitId": ""})


async def _types(_request: web.Request) -> web.StreamResponse:
    return answer(["AVRO", "JSON", "PROTOBUF"])


# Schemas.


async def _row(request: web.Request) -> SchemaRow:
    schema_id = int(request.match_info["id"])
    library = at_hand(request)
    # Of a use that is new this agent may not know yet.
    if library.schemas.by_id(schema_id) is None or not _sees(request, library, schema_id):
        library = await current(request)
    return _shown(request, library, library.row(schema_id))


def _sees(request: web.Request, library: SchemaLibrary, schema_id: int) -> bool:
    """Whether who asks may describe a subject that has the schema."""
    uses = library.schemas.uses(schema_id, deleted=True)
    return asker_of(request).sees_one(subject for subject, _ in uses)


def _shown(request: web.Request, library: SchemaLibrary, row: SchemaRow) -> SchemaRow:
    """The row. Raises RegistryError when it is not for who asks."""
    if not _sees(request, library, row.schema_id):
        raise asker_of(request).refuse_schema(row.schema_id)
    return row


async def _by_id(request: web.Request) -> web.StreamResponse:
    row = await _row(request)
    view = schema_view(row, await _formatted(request, row))
    if flag(request, "fetchMaxId"):
        view["maxId"] = at_hand(request).schemas.max_id()
    return answer(view)


async def _text_by_id(request: web.Request) -> web.StreamResponse:
    row = await _row(request)
    return _text(await _formatted(request, row))


async def _by_guid(request: web.Request) -> web.StreamResponse:
    library = await current(request)
    row = _shown(request, library, library.row_by_guid(request.match_info["guid"]))
    view = schema_view(row, await _formatted(request, row))
    return answer(view | {"id": row.schema_id})


async def _ids_of_guid(request: web.Request) -> web.StreamResponse:
    library = await current(request)
    row = _shown(request, library, library.row_by_guid(request.match_info["guid"]))
    return answer([{"context": ".", "id": row.schema_id}])


async def _uses(request: web.Request) -> list[tuple[str, int]]:
    library = await current(request)
    schema_id = int(request.match_info["id"])
    _shown(request, library, library.row(schema_id))
    uses = library.schemas.uses(schema_id, deleted=flag(request, "deleted"))
    only = request.query.get("subject")
    sees = asker_of(request).sees
    return [use for use in uses if only in (None, "", use[0]) and sees(use[0])]


async def _subjects_of_id(request: web.Request) -> web.StreamResponse:
    names = dict.fromkeys(subject for subject, _ in await _uses(request))
    return answer(page(list(names), request.query))


async def _versions_of_id(request: web.Request) -> web.StreamResponse:
    uses = [{"subject": subject, "version": version} for subject, version in await _uses(request)]
    return answer(page(uses, request.query))


async def _schemas(request: web.Request) -> web.StreamResponse:
    library = await current(request)
    deleted, latest_only = flag(request, "deleted"), flag(request, "latestOnly")
    found: list[tuple[str, int]] = []
    for subject in _with_prefix(library.schemas.subjects(deleted=deleted), request):
        numbers = library.schemas.versions(subject, deleted=deleted)
        found += [(subject, number) for number in (numbers[-1:] if latest_only else numbers)]
    return await _listed(request, page(found, request.query)[:LISTED_MAX])


async def _listed(request: web.Request, wanted: list[tuple[str, int]]) -> web.StreamResponse:
    """Versions with their texts, one after the other as the client takes them: they may be many."""
    response = web.StreamResponse(headers={"Content-Type": f"{CONTENT_TYPE}; charset=utf-8"})
    await response.prepare(request)
    before = b"["
    for subject, number in wanted:
        version = at_hand(request).schemas.version(subject, number, deleted=True)
        if version is not None:  # Else it was forgotten meanwhile.
            try:
                view = await _view(request, version)
            except RegistryError:
                view = version_view(version, text_of(version.body))  # In no other format, then.
            text = json.dumps(view, ensure_ascii=False)
            await response.write(before + text.encode())
            before = b","
            await asyncio.sleep(0)  # Others have their turn.
    await response.write(b"[]" if before == b"[" else b"]")
    await response.write_eof()
    return response


# Subjects.


async def _subjects(request: web.Request) -> web.StreamResponse:
    schemas = (await current(request)).schemas
    deleted_only = flag(request, "deletedOnly")
    names = schemas.subjects(deleted=deleted_only or flag(request, "deleted"))
    if deleted_only:
        shown = set(schemas.subjects())
        names = [name for name in names if name not in shown]
    return answer(page(_with_prefix(names, request), request.query))


def _with_prefix(names: list[str], request: web.Request) -> list[str]:
    """Those that the request wants and may see."""
    sees = asker_of(request).sees
    prefix = request.query.get("subjectPrefix", "")
    # Ways to say "all contexts" and "the default context"; there is one.
    prefix = prefix.removeprefix(":*:").removeprefix(":.:")
    return [name for name in names if name.startswith(prefix) and sees(name)]


async def _register(request: web.Request) -> web.StreamResponse:
    subject, body = subject_of(request), await body_of(request)
    log_client = request.app[VIEW].log_client
    for _ in range(ATTEMPTS_MAX):
        library = await current(request)
        # Whatever changes while the schema is read and compared, apply notices by this.
        seen = log_client.machine.position
        offered = await submitted(request, library, body, is_new=True)
        known = library.known(subject, offered)
        if known is not None:
            return answer(_registered(known.schema_id, known.version, known.fingerprint))
        question = library.comparison(subject, offered) if library.must_follow(subject) else None
        if question is not None and (reasons := (await ask(request, question)).lines):
            raise incompatible(subject, reasons)
        command = library.registration(subject, offered, seen=seen)
        outcome = await propose(request, command)
        match outcome:
            case SchemaRegistered(schema_id, version):
                # It may be gone again by now, and was there all the same.
                return answer(_registered(schema_id, version, command.fingerprint))
            case Rejected(ErrorCode.INVALID_UPDATE_VERSION):
                continue
            case Rejected():
                raise refused(outcome)
            case _:
                raise AssertionError(f"RegisterSchema cannot come to {outcome}")
    raise RegistryError(STORE_ERROR, f"Subject {subject} keeps changing; register it again")


def _registered(schema_id: int, version: int, fingerprint: bytes) -> dict[str, Any]:
    """Not the text: clients would keep it for what they sent, which may be in another format."""
    return {"id": schema_id, "version": version, "guid": guid_of(fingerprint)}


async def _look_up(request: web.Request) -> web.StreamResponse:
    subject, body = subject_of(request), await body_of(request)
    library = await current(request)
    deleted = flag(request, "deleted")
    if not library.schemas.versions(subject, deleted=deleted):
        raise subject_not_found(subject)
    offered = await submitted(request, library, body, is_new=False)
    found = library.find(subject, offered, deleted=deleted)
    if found is None:
        raise RegistryError(SCHEMA_NOT_FOUND, "Schema not found")
    return answer(await _view(request, found))


async def _versions(request: web.Request) -> web.StreamResponse:
    subject, library = subject_of(request), await current(request)
    deleted_only = flag(request, "deletedOnly")
    deleted = deleted_only or flag(request, "deleted")
    numbers = library.schemas.versions(subject, deleted=deleted)
    if not numbers:
        raise subject_not_found(subject)
    if deleted_only:
        shown = set(library.schemas.versions(subject))
        numbers = [number for number in numbers if number not in shown]
    return answer(page(numbers, request.query))


async def _found(request: web.Request) -> tuple[SchemaLibrary, SchemaVersion]:
    subject, number = subject_of(request), version_number(request.match_info["version"])
    library = await current(request)
    return library, library.version(subject, number, deleted=flag(request, "deleted"))


async def _version(request: web.Request) -> web.StreamResponse:
    _, version = await _found(request)
    return answer(await _view(request, version))


async def _text_of_version(request: web.Request) -> web.StreamResponse:
    _, version = await _found(request)
    return _text(await _formatted(request, version))


async def _referenced_by(request: web.Request) -> web.StreamResponse:
    library, version = await _found(request)
    return answer(library.schemas.referenced_by(version.subject, version.version))


async def _view(request: web.Request, version: SchemaVersion) -> dict[str, Any]:
    view = version_view(version, await _formatted(request, version))
    return view | {"deleted": True} if version.deleted else view


async def _formatted(request: web.Request, row: SchemaRow | SchemaVersion) -> str:
    """The schema's text in the format that `?format=` asks for; unknown ones mean the text."""
    question = at_hand(request).formatting(row, request.query.get("format", ""))
    return text_of(row.body) if question is None else (await ask(request, question)).lines[0]


def _text(text: str) -> web.Response:
    return web.Response(text=text, content_type="application/json")


# Deleting.


async def _delete_subject(request: web.Request) -> web.StreamResponse:
    subject, permanent = subject_of(request), flag(request, "permanent")
    library = await current(request)
    library.check_subject(subject, deleted=permanent)
    if permanent and library.schemas.versions(subject):
        said = f"Subject '{subject}' was not deleted first before being permanently deleted"
        raise RegistryError(SUBJECT_NOT_SOFT_DELETED, said)
    return answer(list((await _delete(request, subject, ALL)).versions))


async def _delete_version(request: web.Request) -> web.StreamResponse:
    subject, number = subject_of(request), version_number(request.match_info["version"])
    permanent = flag(request, "permanent")
    library = await current(request)
    if number == LATEST:
        number = library.version(subject, LATEST, deleted=permanent).version
    found = library.version(subject, number, deleted=True)
    if not permanent and found.deleted:
        said = f"Subject '{subject}' Version {number} was soft deleted. Set permanent=true"
        raise RegistryError(VERSION_SOFT_DELETED, f"{said} to delete permanently")
    if permanent and not found.deleted:
        said = f"Subject '{subject}' Version {number} was not deleted first"
        raise RegistryError(VERSION_NOT_SOFT_DELETED, f"{said} before being permanently deleted")
    await _delete(request, subject, number)
    return answer(number)


async def _delete(request: web.Request, subject: str, number: int) -> SubjectDeleted:
    library = at_hand(request)
    library.check_writable(subject)
    outcome = await propose(request, DeleteSubject(subject, number, flag(request, "permanent")))
    if isinstance(outcome, Rejected):
        raise not_found(outcome)
    assert isinstance(outcome, SubjectDeleted)
    return outcome


_ID: Final = "/schemas/ids/{id:[0-9]{1,10}}"
_VERSIONS: Final = "/subjects/{subject}/versions"
_DESCRIBE: Final = of_subject(Operation.DESCRIBE)
ROUTES: Final[tuple[Route[Need], ...]] = (
    Route("GET", "/", NOTHING, _root),
    Route("GET", "/contexts", NOTHING, _contexts),
    Route("GET", "/v1/metadata/id", NOTHING, _cluster),
    Route("GET", "/v1/metadata/version", NOTHING, _version_of_server),
    Route("GET", "/schemas", LEFT_OUT, _schemas, has_head=False),  # What streams has a body.
    Route("GET", "/schemas/types", NOTHING, _types),
    Route("GET", _ID, LEFT_OUT, _by_id),
    Route("GET", f"{_ID}/schema", LEFT_OUT, _text_by_id),
    Route("GET", f"{_ID}/subjects", LEFT_OUT, _subjects_of_id),
    Route("GET", f"{_ID}/versions", LEFT_OUT, _versions_of_id),
    Route("GET", "/schemas/guids/{guid}", LEFT_OUT, _by_guid),
    Route("GET", "/schemas/guids/{guid}/ids", LEFT_OUT, _ids_of_guid),
    Route("GET", "/subjects", LEFT_OUT, _subjects),
    Route("POST", "/subjects/{subject}", _DESCRIBE, _look_up),
    Route("DELETE", "/subjects/{subject}", of_subject(Operation.DELETE), _delete_subject),
    Route("GET", _VERSIONS, _DESCRIBE, _versions),
    Route("POST", _VERSIONS, of_subject(Operation.WRITE), _register),
    Route("GET", f"{_VERSIONS}/{{version}}", _DESCRIBE, _version),
    Route("DELETE", f"{_VERSIONS}/{{version}}", of_subject(Operation.DELETE), _delete_version),
    Route("GET", f"{_VERSIONS}/{{version}}/schema", _DESCRIBE, _text_of_version),
    Route("GET", f"{_VERSIONS}/{{version}}/referencedby", _DESCRIBE, _referenced_by),
)
"""Those for schemas and subjects, with what each needs."""
