"""Subjects in a list, and one subject with its versions and what changed between two of them. Pure.

Texts are shown as they were registered, JSON with line breaks. No schema is read as one (docs/design/http.md §3): a text is
taken apart by lines only, and compared only where both texts are short.
"""

import json
from collections.abc import Sequence
from difflib import unified_diff
from typing import Final, NamedTuple

from broker.console.views.page_of_rows import Asked, PageOfRows, page_of
from broker.registry.checks import text_of
from coordinator.commands.table_commands import SchemaKind
from coordinator.machine.machine import Machine
from coordinator.tables.schemas import GLOBAL, LATEST, SchemaVersion

SHOWN_MAX: Final = 64 * 1024
"""Characters of a text."""
COMPARED_LINES_MAX: Final = 1_000
CONTEXT_LINES: Final = 3


class SubjectRow(NamedTuple):
    """A subject in the list."""

    subject: str
    kind: str
    versions: int
    latest: int
    schema_id: int
    compatibility: str
    """Its own; "": what holds for all."""


class SubjectView(NamedTuple):
    """A subject, and one of its versions."""

    subject: str
    compatibility: str
    mode: str
    """Both as they were set for the subject; "": not set."""
    versions: Sequence[int]
    """Ascending."""
    version: int
    kind: str
    schema_id: int
    references: tuple[str, ...]
    """`name = subject version 3`."""
    text: str
    is_cut: bool
    changes: tuple[str, ...] | None
    """Lines of a unified diff to the version before; None: there is none, or the texts are too long."""


def subjects_view(machine: Machine, asked: Asked) -> PageOfRows[SubjectRow]:
    """A page of the list, by name."""
    page = page_of(machine.schemas.subjects(), asked)
    found = [(name, machine.schemas.version(name, LATEST)) for name in page.rows]
    rows = [_row(machine, name, latest) for name, latest in found if latest is not None]
    return PageOfRows(rows, page.asked, page.found, page.total)


def subject_view(machine: Machine, subject: str, number: int) -> SubjectView | None:
    """`number`: of the version, or LATEST. None: there is no such version."""
    found = None if subject == GLOBAL else machine.schemas.version(subject, number)
    if found is None:
        return None
    versions = machine.schemas.versions(subject)
    before = max((each for each in versions if each < found.version), default=None)
    older = None if before is None else machine.schemas.version(subject, before)
    compatibility, mode = machine.schemas.rules(subject)
    text = _text(found)
    return SubjectView(
        subject=subject,
        compatibility=compatibility,
        mode=mode,
        versions=versions,
        version=found.version,
        kind=found.kind.name,
        schema_id=found.schema_id,
        references=tuple(
            f"{each.name} = {each.subject} version {each.version}" for each in found.references
        ),
        text=text[:SHOWN_MAX],
        is_cut=len(text) > SHOWN_MAX,
        changes=None if older is None else _changes(_text(older), text),
    )


def _row(machine: Machine, subject: str, latest: SchemaVersion) -> SubjectRow:
    return SubjectRow(
        subject=subject,
        kind=latest.kind.name,
        versions=len(machine.schemas.versions(subject)),
        latest=latest.version,
        schema_id=latest.schema_id,
        compatibility=machine.schemas.rules(subject)[0],
    )


def _text(version: SchemaVersion) -> str:
    text = text_of(version.body)
    if version.kind is SchemaKind.PROTOBUF or len(text) > SHOWN_MAX:
        return text
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def _changes(before: str, after: str) -> tuple[str, ...] | None:
    older, newer = before.splitlines(), after.splitlines()
    if max(len(older), len(newer)) > COMPARED_LINES_MAX:
        return None
    lines = unified_diff(older, newer, lineterm="", n=CONTEXT_LINES)
    return tuple(lines)[2:]
