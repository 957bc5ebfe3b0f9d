"""The table of schemas: subjects, their versions, the schemas under ids, and rules.

It is the state of the embedded schema registry, which has Confluent's REST API: a *subject* has
numbered versions, each of a schema; schemas that are the same (by fingerprint) share an id. What
is deleted is hidden first, and forgotten when it is deleted for good: then its number may be given
out again, its id never.

Invariants: an id names the same schema for as long as any version has it, and no other ever after;
what a schema that is there refers to is there, too; ids are given out upwards.

Left out: whether a schema is one, and whether it is compatible: apply has no parser. Whoever
registers one has looked at the subject at a position, and is refused when it has changed since.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, assert_never

from coordinator.commands.entries import DONE, Done, Rejected
from coordinator.commands.layout import UInt63
from coordinator.commands.table_commands import (
    COMPATIBILITIES,
    MODES,
    REFERENCES_MAX,
    SCHEMA_BODIES_MAX,
    SCHEMA_BODY_MAX,
    SCHEMA_ID_MAX,
    SCHEMAS_MAX,
    SUBJECT_MAX,
    DeleteSubject,
    Reference,
    References,
    RegisterSchema,
    SchemaKind,
    SchemaRegistered,
    SetSubjectRules,
    SubjectDeleted,
)
from protocol.errors import ErrorCode
from protocol.types import POSITION_ZERO, Position

GLOBAL: Final = ""
"""The subject whose rules hold for all that have none of their own. It has no versions."""
LATEST: Final = -1
ALL: Final = -1


class SchemaRow(NamedTuple):
    """A schema under its id."""

    schema_id: UInt63
    kind: SchemaKind
    body: bytes
    """Its text in UTF-8, by zlib."""
    fingerprint: bytes
    references: References


class SchemaVersion(NamedTuple):
    """One version of a subject, and its schema."""

    subject: str
    version: int
    schema_id: int
    kind: SchemaKind
    body: bytes
    fingerprint: bytes
    references: tuple[Reference, ...]
    deleted: bool
    """It is hidden."""


class VersionRow(NamedTuple):
    schema_id: UInt63
    deleted: bool


@dataclass(slots=True, eq=False)
class SubjectRow:
    """A subject that has versions, or rules of its own."""

    compatibility: str = ""
    mode: str = ""
    changed: Position = POSITION_ZERO
    versions: dict[UInt63, VersionRow] = field(default_factory=dict)
    """By number, ascending; hidden ones too."""

    def shown(self, *, deleted: bool = False) -> list[int]:
        """Numbers of its versions, ascending."""
        return [number for number, row in self.versions.items() if deleted or not row.deleted]


class Schemas:
    """All subjects and schemas. To be read only, but by `apply`."""

    def __init__(self) -> None:
        self._subjects: dict[str, SubjectRow] = {}
        self._rows: dict[int, SchemaRow] = {}
        self._uses: dict[int, dict[tuple[str, int], None]] = {}
        """By id: versions that have it, hidden ones too."""
        self._referrers: dict[tuple[str, int], dict[int, None]] = {}
        """By version: ids of schemas that refer to it."""
        self._by_fingerprint: dict[bytes, int] = {}
        self._next_id = 1
        self._forgotten: Position = POSITION_ZERO
        """When a subject of which nothing is left last went."""
        self._version_count = 0
        self._body_bytes = 0

    @property
    def is_untouched(self) -> bool:
        """Nothing was ever put in here."""
        return self._next_id == 1 and not self._subjects and self._forgotten == POSITION_ZERO

    def __len__(self) -> int:
        """Schemas, each once."""
        return len(self._rows)

    @property
    def body_bytes(self) -> int:
        """Of all schemas together, as they are kept."""
        return self._body_bytes

    @property
    def version_count(self) -> int:
        """Of all subjects, hidden ones too."""
        return self._version_count

    @property
    def subject_count(self) -> int:
        """Those with hidden versions, or with rules alone, too."""
        return len(self._subjects)

    def has_subject(self, subject: str) -> bool:
        """Whether it is one of `subject_count`."""
        return subject in self._subjects

    def subjects(self, *, deleted: bool = False) -> list[str]:
        """Names of subjects that have versions, in order; `deleted`: hidden versions count."""
        return sorted([name for name, row in self._subjects.items() if row.shown(deleted=deleted)])

    def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """Numbers of its versions, ascending; empty when it has none."""
        row = self._subjects.get(subject)
        return [] if row is None else row.shown(deleted=deleted)

    def version(self, subject: str, number: int, *, deleted: bool = False) -> SchemaVersion | None:
        """One version; LATEST: the newest. `deleted`: also if it is hidden."""
        if number == LATEST:
            number = max(self.versions(subject, deleted=deleted), default=0)
        row = self._subjects.get(subject)
        found = None if row is None else row.versions.get(number)
        if found is None or (found.deleted and not deleted):
            return None
        schema = self._rows[found.schema_id]
        return SchemaVersion(subject, number, *schema, found.deleted)

    def by_id(self, schema_id: int) -> SchemaRow | None:
        return self._rows.get(schema_id)

    def by_fingerprint(self, fingerprint: bytes) -> SchemaRow | None:
        schema_id = self._by_fingerprint.get(fingerprint)
        return None if schema_id is None else self._rows[schema_id]

    def uses(self, schema_id: int, *, deleted: bool = False) -> list[tuple[str, int]]:
        """Versions that have this schema, in order; `deleted`: hidden ones too."""
        return sorted(
            [
                (subject, number)
                for subject, number in self._uses.get(schema_id, ())
                if deleted or not self._subjects[subject].versions[number].deleted
            ]
        )

    def referenced_by(self, subject: str, version: int, *, deleted: bool = False) -> list[int]:
        """Ids of schemas that refer to this version and have versions themselves, ascending."""
        referrers = self._referrers.get((subject, version), ())
        return sorted([each for each in referrers if self.uses(each, deleted=deleted)])

    def rules(self, subject: str) -> tuple[str, str]:
        """Compatibility and mode, as they were set for this subject itself; "": not set."""
        row = self._subjects.get(subject)
        return ("", "") if row is None else (row.compatibility, row.mode)

    def changed(self, subject: str) -> Position:
        """Of the newest change of the subject, or of what holds for all."""
        of_all = self._subjects.get(GLOBAL)
        row = self._subjects.get(subject)
        return max(
            POSITION_ZERO if of_all is None else of_all.changed,
            self._forgotten if row is None else row.changed,
        )

    def max_id(self) -> int:
        """The highest id that is known; 0: there is none."""
        return max(self._rows, default=0)

    def rows(self) -> Iterator[SchemaRow]:
        """All schemas, in the order in which they came."""
        return iter(self._rows.values())

    # For `apply`.

    def apply(
        self, command: RegisterSchema | DeleteSubject | SetSubjectRules, position: Position
    ) -> SchemaRegistered | SubjectDeleted | Done | Rejected:
        match command:
            case RegisterSchema():
                return self.register(command, position)
            case DeleteSubject():
                return self.delete(command, position)
            case SetSubjectRules():
                return self.set_rules(command, position)
            case _:
                assert_never(command)

    def register(self, command: RegisterSchema, position: Position) -> SchemaRegistered | Rejected:
        """Codes of a refusal: INVALID_REQUEST it makes no sense, RESOURCE_NOT_FOUND a reference
        leads nowhere, INVALID_UPDATE_VERSION look again, DUPLICATE_RESOURCE the id or version it
        asks for is another's, POLICY_VIOLATION there is no room."""
        known = self._by_fingerprint.get(command.fingerprint)
        row = self._subjects.get(command.subject)
        if known is not None and row is not None:
            for number, version in row.versions.items():
                if version.schema_id == known and not version.deleted:
                    return self._repeated(command, known, number)
        if (rejected := self._validate_register(command, known)) is not None:
            return rejected
        if known is None:
            schema_id = command.schema_id or self._next_id
            self._next_id = max(self._next_id, schema_id + 1)
            self._add(
                SchemaRow(
                    schema_id, command.kind, command.body, command.fingerprint, command.references
                )
            )
        else:
            schema_id = known
        row = self._subjects.setdefault(command.subject, SubjectRow())
        number = command.version or max(row.versions, default=0) + 1
        row.versions[number] = VersionRow(schema_id, deleted=False)
        if number < max(row.versions):
            row.versions = dict(sorted(row.versions.items()))
        row.changed = position
        self._uses[schema_id][command.subject, number] = None
        self._version_count += 1
        return SchemaRegistered(schema_id, number)

    def delete(self, command: DeleteSubject, position: Position) -> SubjectDeleted | Rejected:
        """Codes of a refusal: RESOURCE_NOT_FOUND there is no such version, or not in that state;
        OPERATION_NOT_ATTEMPTED a schema refers to it; INVALID_RECORD_STATE it is to be hidden
        before it is forgotten."""
        subject, permanent = command.subject, command.permanent
        row = self._subjects.get(subject)
        if row is None or not row.versions:
            return Rejected(ErrorCode.RESOURCE_NOT_FOUND, f"subject '{subject}' has no versions")
        if command.version == ALL:
            numbers = row.shown(deleted=permanent)
        elif (found := row.versions.get(command.version)) is not None and (
            permanent or not found.deleted
        ):
            numbers = [command.version]
        else:
            numbers = []
        if not numbers:
            reason = f"subject '{subject}' has no such version {command.version}"
            return Rejected(ErrorCode.RESOURCE_NOT_FOUND, reason)
        if permanent and not all(row.versions[number].deleted for number in numbers):
            reason = f"a version of '{subject}' was not deleted before"
            return Rejected(ErrorCode.INVALID_RECORD_STATE, reason)
        if (rejected := self._validate_unreferenced(command, numbers)) is not None:
            return rejected
        for number in numbers:
            if permanent:
                self._forget(subject, row, number)
            else:
                row.versions[number] = row.versions[number]._replace(deleted=True)
        if command.version == ALL and not permanent:  # As Confluent's does.
            row.compatibility = row.mode = ""
        row.changed = position
        self._drop_if_empty(subject, position)
        return SubjectDeleted(tuple(numbers))

    def set_rules(self, command: SetSubjectRules, position: Position) -> Done | Rejected:
        subject = command.subject
        if command.compatibility not in (None, *COMPATIBILITIES):
            reason = f"no level of compatibility {command.compatibility!r}"
            return Rejected(ErrorCode.INVALID_REQUEST, reason)
        if command.mode not in (None, *MODES):
            return Rejected(ErrorCode.INVALID_REQUEST, f"no mode {command.mode!r}")
        if subject != GLOBAL and (error := subject_error(subject)) is not None:
            return Rejected(ErrorCode.INVALID_REQUEST, error)
        if subject not in self._subjects and len(self._subjects) >= SCHEMAS_MAX:
            return Rejected(ErrorCode.POLICY_VIOLATION, f"there are {SCHEMAS_MAX} subjects")
        row = self._subjects.setdefault(subject, SubjectRow())
        if command.compatibility is not None:
            row.compatibility = command.compatibility
        if command.mode is not None:
            row.mode = command.mode
        row.changed = position
        self._drop_if_empty(subject, position)
        return DONE

    def _repeated(
        self, command: RegisterSchema, known: int, number: int
    ) -> SchemaRegistered | Rejected:
        """The subject has this schema already."""
        if command.schema_id not in (0, known) or command.version not in (0, number):
            reason = f"it is version {number} already, with id {known}"
            return Rejected(ErrorCode.DUPLICATE_RESOURCE, reason)
        return SchemaRegistered(known, number)

    def _validate_register(self, command: RegisterSchema, known: int | None) -> Rejected | None:
        if (reason := subject_error(command.subject)) is not None:
            return Rejected(ErrorCode.INVALID_REQUEST, reason)
        if len(command.references) > REFERENCES_MAX:
            reason = f"a schema refers to at most {REFERENCES_MAX} others"
            return Rejected(ErrorCode.INVALID_REQUEST, reason)
        for name, subject, version in command.references:
            if self.version(subject, version) is None or version < 1:
                reason = f"{name!r} is to be version {version} of '{subject}', which there is not"
                return Rejected(ErrorCode.RESOURCE_NOT_FOUND, reason)
        if command.seen != POSITION_ZERO and self.changed(command.subject) > command.seen:
            reason = f"subject '{command.subject}' has changed since it was looked at"
            return Rejected(ErrorCode.INVALID_UPDATE_VERSION, reason)
        if (reason := self._taken(command, known)) is not None:
            return Rejected(ErrorCode.DUPLICATE_RESOURCE, reason)
        return self._validate_room(command, known)

    def _taken(self, command: RegisterSchema, known: int | None) -> str | None:
        """Why it cannot have the id or the version that it asks for."""
        wanted = command.schema_id
        if wanted and known is not None and wanted != known:
            return f"this schema has id {known}"
        if wanted and known is None and wanted in self._rows:
            return f"id {wanted} is that of another schema"
        row = self._subjects.get(command.subject)
        if row is not None and command.version in row.versions:
            return f"'{command.subject}' has another version {command.version}"
        return None

    def _validate_room(self, command: RegisterSchema, known: int | None) -> Rejected | None:
        if len(command.body) > SCHEMA_BODY_MAX:
            reason = f"a schema has at most {SCHEMA_BODY_MAX} bytes when it is compressed"
            return Rejected(ErrorCode.POLICY_VIOLATION, reason)
        is_new = command.subject not in self._subjects
        if self._version_count >= SCHEMAS_MAX or (is_new and len(self._subjects) >= SCHEMAS_MAX):
            reason = f"there are {SCHEMAS_MAX} versions of schemas already"
            return Rejected(ErrorCode.POLICY_VIOLATION, reason)
        if known is None:
            if self._body_bytes + len(command.body) > SCHEMA_BODIES_MAX:
                reason = f"all schemas together have at most {SCHEMA_BODIES_MAX} bytes, compressed"
                return Rejected(ErrorCode.POLICY_VIOLATION, reason)
            if not command.schema_id and self._next_id > SCHEMA_ID_MAX:
                return Rejected(ErrorCode.POLICY_VIOLATION, "there are no more ids")
        return None

    def _validate_unreferenced(self, command: DeleteSubject, numbers: list[int]) -> Rejected | None:
        going = {(command.subject, number) for number in numbers}
        going_too: set[int] = set()
        """Schemas that refer to it and have no other versions: each is looked at once, although all
        of a subject may refer to a hundred versions of it."""
        for number in numbers:
            referrers = self._referrers.get((command.subject, number), {}).keys() - going_too
            for schema_id in sorted(referrers):
                if not going.issuperset(self.uses(schema_id, deleted=command.permanent)):
                    reason = f"the schema with id {schema_id} refers to '{command.subject}'"
                    return Rejected(ErrorCode.OPERATION_NOT_ATTEMPTED, reason)
                going_too.add(schema_id)
        return None

    def _add(self, row: SchemaRow) -> None:
        """A schema that was not there; it has no versions yet."""
        self._rows[row.schema_id] = row
        self._uses[row.schema_id] = {}
        self._by_fingerprint[row.fingerprint] = row.schema_id
        self._body_bytes += len(row.body)
        for _, subject, version in row.references:
            self._referrers.setdefault((subject, version), {})[row.schema_id] = None

    def _forget(self, subject: str, row: SubjectRow, number: int) -> None:
        """A version goes, and the schema that no other has."""
        schema_id = row.versions.pop(number).schema_id
        self._version_count -= 1
        uses = self._uses[schema_id]
        del uses[subject, number]
        if not uses:
            del self._uses[schema_id]
            schema = self._rows.pop(schema_id)
            del self._by_fingerprint[schema.fingerprint]
            self._body_bytes -= len(schema.body)
            for _, to_subject, to_version in schema.references:
                referrers = self._referrers.get((to_subject, to_version), {})
                referrers.pop(schema_id, None)  # One that names it twice is in there once.
                if not referrers:
                    self._referrers.pop((to_subject, to_version), None)

    def _drop_if_empty(self, subject: str, position: Position) -> None:
        row = self._subjects[subject]
        # What holds for all keeps its position: `changed` of every subject rests on it.
        if subject != GLOBAL and not (row.versions or row.compatibility or row.mode):
            del self._subjects[subject]
            self._forgotten = position


def subject_error(subject: str) -> str | None:
    """Why this is no subject's name; None when it may be."""
    if not 0 < len(subject) <= SUBJECT_MAX:
        return f"a subject's name has 1 to {SUBJECT_MAX} characters"
    if any(character < " " or character == "\x7f" for character in subject):
        return "a subject's name has no control characters"
    return None
