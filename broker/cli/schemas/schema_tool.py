"""The commands of `frazil schema`.

Each asks the registry, and says in one sentence what it refuses. Raises ToolError, as `Registry.ask` does.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from broker.cli.command_result import CommandResult, ToolError
from broker.cli.schemas.registry import (
    RefusedError,
    Registry,
    references_of,
    type_of,
    versions_path,
)
from broker.reports.tables import Cell, table

SUBJECT_UNKNOWN: Final = 40401
VERSION_UNKNOWN: Final = 40402
SCHEMA_UNKNOWN: Final = 40403
SUBJECT_DELETED: Final = 40404
VERSION_DELETED: Final = 40406
NO_LEVEL_OF_ITS_OWN: Final = 40408
NO_MODE_OF_ITS_OWN: Final = 40409
INVALID_SCHEMA: Final = 42201
INVALID: Final = "Invalid schema: "
"""So its message begins; a trial has it among its reasons."""
INCOMPATIBLE: Final = 409
PAGE: Final = 1000


class NewSchema(NamedTuple):
    """A schema that a command was given."""

    file: str
    kind: str
    """AVRO, JSON or PROTOBUF."""
    text: str
    references: Sequence[Mapping[str, Any]] = ()

    @property
    def body(self) -> dict[str, Any]:
        return {"schema": self.text, "schemaType": self.kind, "references": list(self.references)}


@contextmanager
def _refusals(**about: Any) -> Iterator[None]:
    """What the registry refuses becomes a sentence. `about`: subject, version, schema_id and schema, as far as
    they were asked for. Raises ToolError."""
    try:
        yield
    except RefusedError as error:
        raise ToolError(_sentence(error, about)) from error


def _sentence(error: RefusedError, about: Mapping[str, Any]) -> str:
    subject, schema = about.get("subject"), about.get("schema")
    if error.code == SUBJECT_UNKNOWN:
        return f'there is no subject "{subject}" (frazil schema list shows all, --deleted the deleted ones)'
    if error.code == VERSION_UNKNOWN:
        return f'subject "{subject}" has no version {about.get("version")} (frazil schema describe {subject} shows all)'
    if error.code == SCHEMA_UNKNOWN:
        return f"there is no schema of id {about.get('schema_id')}"
    if error.status == INCOMPATIBLE and schema is not None:
        return f'{schema.file} may not follow what subject "{subject}" has: {error.message} (frazil schema check says why)'
    if error.code == INVALID_SCHEMA and schema is not None:
        return _no_schema(schema, error.message)
    what = "it" if subject is None else f'subject "{subject}"'
    return f"{what}: the registry refuses: {error.message or error.code}"


def _no_schema(schema: NewSchema, message: str) -> str:
    return f"{schema.file} is no schema of type {schema.kind}: {message.removeprefix(INVALID)}"


def list_subjects(registry: Registry, *, deleted: bool, as_json: bool) -> CommandResult:
    """All subjects with versions and type; `deleted`: also what is deleted and not forgotten."""
    found = _schemas(registry, deleted=False)
    shown = {(one["subject"], one["version"]) for one in found}
    if deleted:
        found = _schemas(registry, deleted=True)
    subjects: dict[str, dict[str, Any]] = {}
    for one in sorted(found, key=lambda one: (one["subject"], one["version"])):
        subject = one["subject"]
        row = subjects.setdefault(subject, {"subject": subject, "versions": [], "deleted": []})
        is_shown = (subject, one["version"]) in shown
        row["versions" if is_shown else "deleted"].append(one["version"])
        row["type"] = type_of(one)
    if as_json:
        return CommandResult([json.dumps(list(subjects.values()))])
    if not subjects:
        return CommandResult(["there are no subjects"])
    columns = ["SUBJECT", "TYPE", "VERSIONS", *(["DELETED"] if deleted else [])]
    rows: list[list[Cell]] = [
        [
            row["subject"],
            row["type"],
            _numbers(row["versions"]),
            *([_numbers(row["deleted"])] if deleted else []),
        ]
        for row in subjects.values()
    ]
    return CommandResult(table(columns, rows))


def _schemas(registry: Registry, *, deleted: bool) -> list[dict[str, Any]]:
    """All versions of all subjects."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    while True:
        path = f"/schemas?deleted={str(deleted).lower()}&offset={len(found)}&limit={PAGE}"
        with _refusals():
            page = registry.objects(path, "subject", "version")
        before = len(found)
        for one in page:
            # Their texts may be long, and nobody asks for them.
            kept = {name: value for name, value in one.items() if name != "schema"}
            found[one["subject"], one["version"]] = kept
        if len(page) < PAGE or len(found) == before:
            return list(found.values())


def _numbers(numbers: Sequence[int]) -> str:
    """Versions as text: 1-3,5."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs) or "-"


def describe(
    registry: Registry, subject: str, *, version: int | str, as_json: bool
) -> CommandResult:
    """One version of a subject; which others there are."""
    with _refusals(subject=subject, version=version):
        versions = registry.items(versions_path(subject))
        found = registry.object(versions_path(subject, version), *_OF_VERSION)
    view = {
        "subject": subject,
        "version": found["version"],
        "versions": versions,
        "id": found["id"],
        "type": type_of(found),
        "references": references_of(found),
        "schema": found["schema"],
    }
    if as_json:
        return CommandResult([json.dumps(view)])
    lines = [
        f"subject     {subject}",
        f"version     {view['version']} (of {_numbers(versions)})",
        f"id          {view['id']}",
        f"type        {view['type']}",
        *[f"reference   {_reference(one)}" for one in view["references"]],
        *_lines(view["schema"]),
    ]
    return CommandResult(lines)


def _lines(text: str) -> list[str]:
    """Of a schema. A line says tabs as escapes otherwise, as all that a terminal obeys."""
    return [line.removesuffix("\r").expandtabs(4) for line in text.rstrip("\n").split("\n")]


_OF_VERSION: Final = ("version", "id", "schema")


def _reference(one: Mapping[str, Any]) -> str:
    return f"{one['name']}={one['subject']}:{one['version']}"


def get(registry: Registry, schema_id: int, *, as_json: bool) -> CommandResult:
    """The text of a schema by its id; in JSON also where it is used."""
    with _refusals(schema_id=schema_id):
        found = registry.object(f"/schemas/ids/{schema_id}", "schema")
        if not as_json:
            return CommandResult(_lines(found["schema"]))
        uses = registry.objects(f"/schemas/ids/{schema_id}/versions", "subject", "version")
    view = {
        "id": schema_id,
        "type": type_of(found),
        "references": references_of(found),
        "subjects": [{"subject": one["subject"], "version": one["version"]} for one in uses],
        "schema": found["schema"],
    }
    return CommandResult([json.dumps(view)])


def create(registry: Registry, subject: str, schema: NewSchema, *, as_json: bool) -> CommandResult:
    """Registers a schema as the subject's next version, unless the subject has it."""
    with _refusals(subject=subject, schema=schema):
        found = _known(registry, subject, schema)
        is_new = found is None
        if found is None:
            path = versions_path(subject)
            answer = registry.object(path, "id", method="POST", body=schema.body)
            # Older registries tell the id alone.
            found = answer if "version" in answer else _known(registry, subject, schema)
    if found is None:
        raise ToolError(f'subject "{subject}" has lost {schema.file} at once: somebody deletes it')
    view = {
        "subject": subject,
        "id": found["id"],
        "version": found["version"],
        "is_new": is_new,
    }
    if as_json:
        return CommandResult([json.dumps(view)])
    done = "registered" if is_new else "there already"
    return CommandResult(
        [f"subject {subject}: version {view['version']}, id {view['id']}, is {done}"]
    )


def _known(registry: Registry, subject: str, schema: NewSchema) -> dict[str, Any] | None:
    """The subject's version with this schema. Raises RefusedError."""
    try:
        path = f"/subjects/{quote(subject, safe='')}"
        return registry.object(path, "id", "version", method="POST", body=schema.body)
    except RefusedError as error:
        if error.code in (SUBJECT_UNKNOWN, SCHEMA_UNKNOWN):
            return None
        raise


def check(
    registry: Registry, subject: str, schema: NewSchema, *, version: int | str | None, as_json: bool
) -> CommandResult:
    """Whether the subject would take a schema, and why not. `version`: beside that one alone."""
    path = f"/compatibility{versions_path(subject, version)}?verbose=true"
    with _refusals(subject=subject, version=version, schema=schema):
        registry.items(versions_path(subject))  # Of no subject everything would be compatible.
        answer = registry.object(path, "is_compatible", method="POST", body=schema.body)
    is_compatible = bool(answer["is_compatible"])
    reasons = [str(one) for one in answer.get("messages") or ()]
    if reasons and reasons[0].startswith(INVALID):
        raise ToolError(_no_schema(schema, reasons[0]))
    failure = f'{schema.file} is not compatible with subject "{subject}"'
    if as_json:
        view = {"subject": subject, "is_compatible": is_compatible, "reasons": reasons}
        return CommandResult([json.dumps(view)], failures=() if is_compatible else [failure])
    if is_compatible:
        return CommandResult([f'{schema.file} is compatible with subject "{subject}"'])
    told = "; ".join(reasons)
    return CommandResult([], failures=[f"{failure}: {told}" if told else failure])


def delete(
    registry: Registry, subject: str, *, version: int | str | None, permanent: bool
) -> CommandResult:
    """Deletes a subject, or one of its versions. `permanent`: its schemas are forgotten, too."""
    with _refusals(subject=subject, version=version):
        if version == "latest":
            found = registry.object(versions_path(subject, version), "version")
            version = int(found["version"])
        of_all = f"/subjects/{quote(subject, safe='')}"
        path = of_all if version is None else versions_path(subject, version)
        gone: Any = None
        try:
            gone = registry.ask(path, method="DELETE")
        except RefusedError as error:
            # It is deleted already, which the permanent one asks for.
            if not permanent or error.status != 404:
                raise
        if permanent:
            gone = registry.ask(f"{path}?permanent=true", method="DELETE")
    numbers = _numbers(gone if isinstance(gone, list) else [gone])
    what = "forgotten for ever" if permanent else "deleted (delete --permanent forgets it)"
    return CommandResult([f"subject {subject}, version {numbers}: {what}"])


class Rule(NamedTuple):
    """A compatibility level or a mode: registries have one each for all subjects, and for one."""

    path: str
    key: str
    """In answers to GET."""
    word: str
    """In what PUT is sent, in our JSON, and in sentences."""
    none: int
    """The code when a subject has none of its own."""


LEVEL: Final = Rule("/config", "compatibilityLevel", "compatibility", NO_LEVEL_OF_ITS_OWN)
MODE: Final = Rule("/mode", "mode", "mode", NO_MODE_OF_ITS_OWN)


def _path(rule: Rule, subject: str | None) -> str:
    return rule.path if subject is None else f"{rule.path}/{quote(subject, safe='')}"


def get_rule(
    registry: Registry, rule: Rule, subject: str | None, *, as_json: bool
) -> CommandResult:
    """What holds for a subject, or for all that have nothing of their own."""
    is_own = True
    with _refusals(subject=subject):
        try:
            answer = registry.object(_path(rule, subject), rule.key)
        except RefusedError as error:
            # Of a subject that there is not, too: it may be made.
            if subject is None or error.code not in (rule.none, SUBJECT_UNKNOWN):
                raise
            is_own = False
            answer = registry.object(rule.path, rule.key)
    value = str(answer[rule.key])
    if as_json:
        view = {"subject": subject, rule.word: value, "is_own": is_own}
        return CommandResult([json.dumps(view)])
    whose = "all subjects" if subject is None else f"subject {subject}"
    source = "" if is_own else " (as for all subjects)"
    return CommandResult([f"{rule.word} of {whose}: {value}{source}"])


def set_rule(
    registry: Registry, rule: Rule, subject: str | None, value: str, *, force: bool = False
) -> CommandResult:
    """`force`: also when there are schemas already, which a registry otherwise refuses for some modes."""
    path = _path(rule, subject) + ("?force=true" if force else "")
    with _refusals(subject=subject):
        registry.ask(path, method="PUT", body={rule.word: value})
    whose = "all subjects" if subject is None else f"subject {subject}"
    return CommandResult([f"{rule.word} of {whose} is {value}"])


def delete_rule(registry: Registry, rule: Rule, subject: str | None) -> CommandResult:
    """A subject has that of all again; all have the registry's default."""
    with _refusals(subject=subject):
        try:
            registry.ask(_path(rule, subject), method="DELETE")
        except RefusedError as error:
            if error.code not in (rule.none, SUBJECT_UNKNOWN):
                raise
            raise ToolError(f'subject "{subject}" has no {rule.word} of its own') from error
    if subject is None:
        return CommandResult([f"{rule.word} of all subjects is the registry's default again"])
    return CommandResult([f"subject {subject} has no {rule.word} of its own any more"])
