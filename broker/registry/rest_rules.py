"""Routes of the registry for rules: compatibility levels and modes, and trying a schema.

GET PUT DELETE /config[/{subject}]                      compatibility level
GET PUT DELETE /mode[/{subject}]                        READWRITE, READONLY, IMPORT
POST /compatibility/subjects/{subject}/versions[/{version}]   could this schema follow?
"""

from functools import partial
from typing import Final, NamedTuple

from aiohttp import web

from broker.http.routes import Handler, Route
from broker.registry.errors import (
    INVALID_LEVEL,
    INVALID_MODE,
    INVALID_SCHEMA,
    NO_LEVEL_OF_ITS_OWN,
    NO_MODE_OF_ITS_OWN,
    NOT_PERMITTED,
    RegistryError,
)
from broker.registry.parsed_schema import LEVELS
from broker.registry.rest_support import (
    answer,
    ask,
    body_of,
    current,
    flag,
    propose,
    refused,
    subject_of,
    submitted,
)
from broker.registry.subject_rights import Need, of_cluster, of_subject
from broker.registry.subjects import subject_not_found, version_number
from coordinator.commands.entries import Rejected
from coordinator.commands.table_commands import SetSubjectRules
from coordinator.tables.schemas import GLOBAL
from protocol.acls import Operation

MODES: Final = ("READWRITE", "READONLY", "IMPORT")


class _Rule(NamedTuple):
    """A level, or a mode: they are read and unset alike."""

    place: int
    """In the rules of a subject."""
    key: str
    """In answers."""
    what: str
    none: int
    """The code when a subject has none of its own."""


_LEVEL: Final = _Rule(0, "compatibilityLevel", "compatibility", NO_LEVEL_OF_ITS_OWN)
_MODE: Final = _Rule(1, "mode", "mode", NO_MODE_OF_ITS_OWN)


def _whose(request: web.Request) -> str:
    """The subject, or GLOBAL."""
    return subject_of(request) if "subject" in request.match_info else GLOBAL


async def _rules(request: web.Request) -> tuple[str, str]:
    """Level and mode as they were set for this subject itself; for all, those that hold."""
    subject, library = _whose(request), await current(request)
    if subject == GLOBAL or flag(request, "defaultToGlobal"):
        return library.rules(subject)
    return library.schemas.rules(subject)


async def _get(request: web.Request, rule: _Rule) -> web.StreamResponse:
    value = (await _rules(request))[rule.place]
    if not value:
        said = f"Subject '{_whose(request)}' does not have subject-level {rule.what} configured"
        raise RegistryError(rule.none, said)
    return answer({rule.key: value})


async def _unset(request: web.Request, rule: _Rule) -> web.StreamResponse:
    subject, library = _whose(request), await current(request)
    value = library.schemas.rules(subject)[rule.place]
    if not value and subject != GLOBAL:
        raise subject_not_found(subject)
    level, mode = ("" if place == rule.place else None for place in (0, 1))
    await _set(request, SetSubjectRules(subject, level, mode))
    return answer({rule.key: value or library.rules(GLOBAL)[rule.place]})


async def _set_level(request: web.Request) -> web.StreamResponse:
    subject, body = _whose(request), await body_of(request)
    level = body.get("compatibility")
    if not isinstance(level, str) or level.upper() not in LEVELS:
        said = f"Invalid compatibility level. Valid values are {', '.join(LEVELS)}"
        raise RegistryError(INVALID_LEVEL, said)
    unknown = sorted(name for name, value in body.items() if value and name != "compatibility")
    if unknown:
        raise RegistryError(INVALID_LEVEL, f"{', '.join(unknown)}: not kept here")
    await _set(request, SetSubjectRules(subject, level.upper(), None))
    return answer({"compatibility": level.upper()})


async def _set_mode(request: web.Request) -> web.StreamResponse:
    subject, body = _whose(request), await body_of(request)
    mode = body.get("mode")
    if not isinstance(mode, str) or mode.upper() not in MODES:
        raise RegistryError(INVALID_MODE, f"Invalid mode. Valid values are {', '.join(MODES)}")
    schemas = (await current(request)).schemas
    taken = schemas.versions(subject) if subject != GLOBAL else schemas.subjects()
    if mode.upper() == "IMPORT" and taken and not flag(request, "force"):
        said = "Cannot import since found existing subjects; ?force=true does it all the same"
        raise RegistryError(NOT_PERMITTED, said)
    await _set(request, SetSubjectRules(subject, None, mode.upper()))
    return answer({"mode": mode.upper()})


async def _set(request: web.Request, command: SetSubjectRules) -> None:
    outcome = await propose(request, command)
    if isinstance(outcome, Rejected):
        raise refused(outcome)


async def _try(request: web.Request) -> web.StreamResponse:
    subject, body = subject_of(request), await body_of(request)
    said = request.match_info.get("version")
    version = None if said is None else version_number(said)
    library = await current(request)
    library.check_trial(subject, version)
    try:
        offered = await submitted(request, library, body, is_new=False)
        question = library.comparison(subject, offered, version=version)
        reasons = [] if question is None else list((await ask(request, question)).lines)
    except RegistryError as error:
        if error.code != INVALID_SCHEMA or not flag(request, "verbose"):
            raise
        reasons = [str(error)]
    view: dict[str, object] = {"is_compatible": not reasons}
    if flag(request, "verbose"):
        view["messages"] = reasons
    return answer(view)


def _of_rules(path: str, rule: _Rule, change: Handler) -> tuple[Route[Need], ...]:
    """Routes of a level or a mode: of all subjects, and of one."""
    read, unset = partial(_get, rule=rule), partial(_unset, rule=rule)
    of_one = f"{path}/{{subject}}"
    return (
        Route("GET", path, of_cluster(Operation.DESCRIBE_CONFIGS), read),
        Route("PUT", path, of_cluster(Operation.ALTER_CONFIGS), change),
        Route("DELETE", path, of_cluster(Operation.ALTER_CONFIGS), unset),
        Route("GET", of_one, of_subject(Operation.DESCRIBE_CONFIGS), read),
        Route("PUT", of_one, of_subject(Operation.ALTER_CONFIGS), change),
        Route("DELETE", of_one, of_subject(Operation.ALTER_CONFIGS), unset),
    )


_TRY: Final = "/compatibility/subjects/{subject}/versions"
ROUTES: Final[tuple[Route[Need], ...]] = (
    *_of_rules("/config", _LEVEL, _set_level),
    *_of_rules("/mode", _MODE, _set_mode),
    Route("POST", _TRY, of_subject(Operation.DESCRIBE), _try),
    Route("POST", f"{_TRY}/{{version}}", of_subject(Operation.DESCRIBE), _try),
)
