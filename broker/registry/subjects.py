"""The registry's decisions: requests in; answers and commands for the log out.

Everything is a function of the table of schemas as one replica holds it; refusals are
`RegistryError`s with Confluent's codes. Waiting, proposing and HTTP are `rest`'s.

Left out: contexts, data contracts (metadata, rule sets), and modes for single versions.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from broker.registry.checks import (
    Answer,
    CompareSchemas,
    FormatSchema,
    NamedBodies,
    ReadSchema,
    StoredSchema,
)
from broker.registry.errors import (
    INCOMPATIBLE,
    INVALID_REQUEST,
    INVALID_SCHEMA,
    INVALID_SUBJECT,
    INVALID_VERSION,
    NOT_PERMITTED,
    SCHEMA_NOT_FOUND,
    SCHEMA_TOO_LARGE,
    SUBJECT_NOT_FOUND,
    SUBJECT_SOFT_DELETED,
    VERSION_NOT_FOUND,
    RegistryError,
)
from coordinator.commands.table_commands import (
    REFERENCES_MAX,
    SCHEMA_BODY_MAX,
    SCHEMA_TEXT_MAX,
    Reference,
    RegisterSchema,
    SchemaKind,
)
from coordinator.tables.schemas import (
    GLOBAL,
    LATEST,
    SchemaRow,
    Schemas,
    SchemaVersion,
    subject_error,
)
from protocol.types import Position

DEFAULT_LEVEL: Final = "BACKWARD"
DEFAULT_MODE: Final = "READWRITE"
VERSION_MAX: Final = (1 << 31) - 1
REFERENCE_NAME_MAX: Final = 1_000
"""Bytes."""
RESOLVED_MAX: Final = 1_000
"""Schemas that one schema may need, through whatever number of others."""
READ_MAX: Final = 2_000
"""Texts that are recognized when they are submitted again."""
NESTED_MAX: Final = 100
"""References of references."""
LOOKS_MAX: Final = 5_000
NEEDED_BYTES_MAX: Final = 16 << 20
"""Of all schemas, and of their texts as they are kept, that one question is about."""

_GUID: Final = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Submission(NamedTuple):
    """A schema as a client sends it, not read yet."""

    question: ReadSchema
    schema_id: int
    """That it is to have (mode IMPORT); 0: a free one."""
    version: int


class SubmittedSchema(NamedTuple):
    """A schema as a client sends it, understood."""

    stored: StoredSchema
    """As it would be kept."""
    references: tuple[Reference, ...]
    schema_id: int
    version: int

    @property
    def fingerprint(self) -> bytes:
        return self.stored.fingerprint


class SchemaLibrary:
    """The table of schemas, as the registry asks and changes it."""

    def __init__(self, schemas: Callable[[], Schemas]) -> None:
        self._schemas = schemas
        self._read: dict[bytes, bytes] = {}
        """Fingerprints by what was submitted."""

    @property
    def schemas(self) -> Schemas:
        """The table as it is; a replica that loads a snapshot gets another one."""
        return self._schemas()

    # What is asked of the checker.

    def submission(self, body: Mapping[str, Any], *, normalize: bool, is_new: bool) -> Submission:
        """What the body of a request asks for. Raises RegistryError."""
        text, kind = body.get("schema"), _kind(body.get("schemaType"))
        if not isinstance(text, str) or not text.strip():
            raise RegistryError(INVALID_SCHEMA, "Empty schema")
        if len(_utf8(text)) > SCHEMA_TEXT_MAX:
            raise RegistryError(SCHEMA_TOO_LARGE, f"A schema has at most {SCHEMA_TEXT_MAX} bytes")
        for name in ("metadata", "ruleSet"):
            if body.get(name):
                raise RegistryError(INVALID_REQUEST, f"{name}: data contracts are not kept here")
        references = self._references(body.get("references"))
        bodies = _Needed(self.schemas).of(references)
        question = ReadSchema(kind, text, bodies, references, is_new, normalize)
        return Submission(question, _number(body, "id"), _number(body, "version"))

    def submitted(self, submission: Submission, answer: Answer) -> SubmittedSchema:
        """The schema, when the checker has answered the submission's question."""
        self._read[_digest(submission.question)] = answer.fingerprint
        if len(self._read) > READ_MAX:
            del self._read[next(iter(self._read))]
        return _understood(submission, answer.fingerprint, answer.body)

    def recognized(self, submission: Submission) -> SubmittedSchema | None:
        """The schema, if the same was read before and is in the table: clients submit what they
        write with whenever they start, and that takes no turn from anybody."""
        fingerprint = self._read.get(_digest(submission.question))
        row = None if fingerprint is None else self.schemas.by_fingerprint(fingerprint)
        return None if row is None else _understood(submission, row.fingerprint, row.body)

    def comparison(
        self, subject: str, offered: SubmittedSchema, *, version: int | None = None
    ) -> CompareSchemas | None:
        """Asks why a schema could not follow a version (None: those that the level asks for).

        None: nothing forbids it. Raises RegistryError.
        """
        level, _ = self.rules(subject)
        if version is not None:
            found = self.schemas.version(subject, version)
            numbers = [] if found is None else [found.version]
        else:
            shown = self.schemas.versions(subject)
            numbers = shown if level.endswith("_TRANSITIVE") else shown[-1:]
        if level == "NONE":
            return None
        needed = _Needed(self.schemas)
        earlier = []
        for number in numbers:
            found = self.schemas.version(subject, number)
            assert found is not None
            earlier.append((number, needed.stored(found)))
        return CompareSchemas(level, offered.stored, tuple(earlier)) if earlier else None

    def check_trial(self, subject: str, version: int | None) -> None:
        """Raises RegistryError for a version that there is not; whatever is first in a subject may be
        its latest."""
        if version not in (None, LATEST) and self.schemas.version(subject, version) is None:
            raise RegistryError(VERSION_NOT_FOUND, f"Version {version} not found.")

    def formatting(self, row: SchemaRow | SchemaVersion, wanted: str) -> FormatSchema | None:
        """Asks for the text in the format of `?format=`; None: it is the text itself."""
        other = {SchemaKind.PROTOBUF: "serialized", SchemaKind.AVRO: "resolved"}
        if wanted != other.get(row.kind):
            return None
        return FormatSchema(_Needed(self.schemas).stored(row), wanted)

    def _references(self, said: Any) -> tuple[Reference, ...]:
        if said is None:
            return ()
        if not isinstance(said, list) or len(said) > REFERENCES_MAX:
            raise RegistryError(INVALID_SCHEMA, f"references: a list of at most {REFERENCES_MAX}")
        latest: dict[str, SchemaVersion | None] = {}
        return tuple(self._reference(each, latest) for each in said)

    def _reference(self, said: Any, latest: dict[str, SchemaVersion | None]) -> Reference:
        """`latest`: versions that were looked for; to find one takes as long as the list is."""
        match said:
            case {"name": str(name), "subject": str(subject), "version": int(number)} if 0 < len(
                _utf8(name)
            ) <= REFERENCE_NAME_MAX and not isinstance(number, bool):
                subject = subject_name(subject)
                # "Latest" of now: what a schema means must not change later.
                if number != LATEST:
                    found = self.schemas.version(subject, number)
                elif subject in latest:
                    found = latest[subject]
                else:
                    found = latest[subject] = self.schemas.version(subject, LATEST)
                if found is None:
                    raise RegistryError(
                        INVALID_SCHEMA,
                        f"Invalid schema: no schema reference found for subject {subject!r} and"
                        f" version {number}",
                    )
                return Reference(name, subject, found.version)
        raise RegistryError(INVALID_SCHEMA, "a reference has a name, a subject and a version")

    # Registering.

    def known(self, subject: str, offered: SubmittedSchema) -> SchemaVersion | None:
        """The version of the subject that it is already; None: it is to be registered.

        Raises RegistryError when it may not be.
        """
        _, mode = self.rules(subject)
        known = self.find(subject, offered)
        if known is not None and offered.schema_id in (0, known.schema_id):
            return known
        self.check_writable(subject)
        if mode == "IMPORT" and not offered.schema_id:
            raise RegistryError(NOT_PERMITTED, f"Subject {subject} is in import mode: give an id")
        if mode != "IMPORT":
            self._check_numbers(subject, offered)
        if len(offered.stored.body) > SCHEMA_BODY_MAX:
            raise RegistryError(
                SCHEMA_TOO_LARGE, f"A schema has at most {SCHEMA_BODY_MAX} bytes when compressed"
            )
        return None

    def must_follow(self, subject: str) -> bool:
        """Whether new versions are compared with earlier ones; in mode IMPORT they are not."""
        return self.rules(subject)[1] != "IMPORT"

    def registration(
        self, subject: str, offered: SubmittedSchema, *, seen: Position
    ) -> RegisterSchema:
        """The command that registers what was compared."""
        importing = not self.must_follow(subject)
        return RegisterSchema(
            subject=subject,
            kind=offered.stored.kind,
            body=offered.stored.body,
            fingerprint=offered.fingerprint,
            references=offered.references,
            seen=seen,
            schema_id=offered.schema_id if importing else 0,
            version=offered.version if importing else 0,
        )

    def _check_numbers(self, subject: str, offered: SubmittedSchema) -> None:
        """Numbers that a client asks for are right or refused, but in mode IMPORT."""
        known = self.schemas.by_fingerprint(offered.fingerprint)
        if offered.schema_id and (known is None or known.schema_id != offered.schema_id):
            raise RegistryError(NOT_PERMITTED, f"Subject {subject} is not in import mode")
        following = max(self.schemas.versions(subject, deleted=True), default=0) + 1
        if offered.version not in (0, following):
            raise RegistryError(
                INVALID_SCHEMA, f"Version is not one more than previous version: {following}"
            )

    def find(
        self, subject: str, offered: SubmittedSchema, *, deleted: bool = False
    ) -> SchemaVersion | None:
        """The version of the subject that is this very schema, the newest of them."""
        known = self.schemas.by_fingerprint(offered.fingerprint)
        if known is None:
            return None
        numbers = [
            number
            for name, number in self.schemas.uses(known.schema_id, deleted=deleted)
            if name == subject
        ]
        return self.schemas.version(subject, max(numbers), deleted=deleted) if numbers else None

    # Looking up.

    def rules(self, subject: str) -> tuple[str, str]:
        """Compatibility and mode that hold for a subject."""
        level, mode = self.schemas.rules(subject)
        level_of_all, mode_of_all = self.schemas.rules(GLOBAL)
        return level or level_of_all or DEFAULT_LEVEL, mode or mode_of_all or DEFAULT_MODE

    def check_subject(self, subject: str, *, deleted: bool = False) -> None:
        """Raises RegistryError when it has no versions."""
        if self.schemas.versions(subject, deleted=deleted):
            return
        if not deleted and self.schemas.versions(subject, deleted=True):
            said = f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently"
            raise RegistryError(SUBJECT_SOFT_DELETED, said)
        raise subject_not_found(subject)

    def check_writable(self, subject: str) -> None:
        """Raises RegistryError for a subject in mode READONLY."""
        if self.rules(subject)[1] == "READONLY":
            raise RegistryError(NOT_PERMITTED, f"Subject {subject} is in read-only mode")

    def version(self, subject: str, number: int, *, deleted: bool = False) -> SchemaVersion:
        """A version of a subject. Raises RegistryError."""
        if not self.schemas.versions(subject, deleted=deleted):
            raise subject_not_found(subject)
        found = self.schemas.version(subject, number, deleted=deleted)
        if found is None:
            raise RegistryError(VERSION_NOT_FOUND, f"Version {number} not found.")
        return found

    def row(self, schema_id: int) -> SchemaRow:
        found = self.schemas.by_id(schema_id)
        if found is None:
            raise RegistryError(SCHEMA_NOT_FOUND, f"Schema {schema_id} not found")
        return found

    def row_by_guid(self, guid: str) -> SchemaRow:
        if _GUID.fullmatch(guid.lower()) is not None:
            beginning = bytes.fromhex(guid.replace("-", ""))
            for row in self.schemas.rows():
                if row.fingerprint.startswith(beginning):
                    return row
        raise RegistryError(SCHEMA_NOT_FOUND, f"Schema {guid} not found")


class _Needed:
    """Gathers all that schemas need, for one question: in all only so much."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self._looks = 0
        self._byte_count = 0

    def stored(self, row: SchemaRow | SchemaVersion) -> StoredSchema:
        self._count(row.body)
        return StoredSchema(row.kind, row.fingerprint, row.body, self.of(row.references))

    def of(self, references: Iterable[Reference]) -> NamedBodies:
        """Raises RegistryError."""
        bodies: dict[str, bytes] = {}
        self._collect(references, bodies, ())
        return tuple(bodies.items())

    def _collect(
        self, references: Iterable[Reference], bodies: dict[str, bytes], above: tuple[str, ...]
    ) -> None:
        for name, subject, version in references:
            if name in bodies or name in above:
                continue
            found = self._schemas.version(subject, version, deleted=True)
            if found is None or len(bodies) >= RESOLVED_MAX or len(above) >= NESTED_MAX:
                raise RegistryError(INVALID_SCHEMA, f"the reference {name!r} leads nowhere")
            self._count(found.body)
            self._collect(found.references, bodies, (*above, name))
            bodies[name] = found.body

    def _count(self, body: bytes) -> None:
        self._looks += 1
        self._byte_count += len(body)
        if self._looks > LOOKS_MAX or self._byte_count > NEEDED_BYTES_MAX:
            raise RegistryError(
                INVALID_SCHEMA,
                f"Invalid schema: what it needs and is compared with is more than {LOOKS_MAX}"
                f" schemas or {NEEDED_BYTES_MAX} bytes, compressed",
            )


def stored_schema(schemas: Schemas, row: SchemaRow) -> StoredSchema:
    """A schema with all that it needs. Raises RegistryError."""
    return _Needed(schemas).stored(row)


def incompatible(subject: str, reasons: Sequence[str]) -> RegistryError:
    return RegistryError(
        INCOMPATIBLE,
        f"Schema being registered is incompatible with an earlier schema for subject"
        f' "{subject}", details: [{", ".join(reasons)}]',
    )


def _understood(submission: Submission, fingerprint: bytes, body: bytes) -> SubmittedSchema:
    question = submission.question
    stored = StoredSchema(question.kind, fingerprint, body, question.bodies)
    return SubmittedSchema(stored, question.references, submission.schema_id, submission.version)


def _digest(question: ReadSchema) -> bytes:
    """Of all that a schema's fingerprint follows from."""
    said = [question.kind.name, question.references, question.is_new, question.normalize]
    return hashlib.sha256(f"{json.dumps(said)}\n{question.text}".encode()).digest()


def guid_of(digest: bytes) -> str:
    """The name that serializers put into headers instead of an id."""
    digits = digest[:16].hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def schema_view(row: SchemaRow | SchemaVersion, text: str) -> dict[str, Any]:
    """What is said of a schema wherever one is given out."""
    view: dict[str, Any] = {"schema": text, "guid": guid_of(row.fingerprint)}
    if row.kind != SchemaKind.AVRO:
        view["schemaType"] = row.kind.name
    if row.references:
        view["references"] = [each._asdict() for each in row.references]
    return view


def version_view(version: SchemaVersion, text: str) -> dict[str, Any]:
    numbers = {
        "subject": version.subject,
        "version": version.version,
        "id": version.schema_id,
    }
    return numbers | schema_view(version, text)


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")


def subject_name(text: str) -> str:
    """A subject as it is written in a path or a reference. Raises RegistryError."""
    name = text.removeprefix(":.:")
    if name.startswith(":."):
        raise RegistryError(INVALID_SUBJECT, f"{text}: there is only the default context here")
    if (reason := subject_error(name)) is not None:
        raise RegistryError(
            INVALID_SUBJECT, f"The specified subject {text!r} is not valid: {reason}"
        )
    return name


def subjects_referred_to(body: Mapping[str, Any]) -> list[str]:
    """Those that a request's schema refers to, each once; none where references are none."""
    said = body.get("references")
    if not isinstance(said, list) or len(said) > REFERENCES_MAX:
        return []
    named = [each.get("subject") for each in said if isinstance(each, dict)]
    return list(dict.fromkeys(subject_name(each) for each in named if isinstance(each, str)))


def version_number(text: str) -> int:
    """A version as it is written in a path. Raises RegistryError."""
    if text in ("latest", "-1"):
        return LATEST
    if re.fullmatch("[0-9]{1,10}", text) and 1 <= int(text) <= VERSION_MAX:
        return int(text)
    raise RegistryError(
        INVALID_VERSION,
        f"The specified version '{text}' is not a valid version id. Allowed values are between"
        f' [1, 2^31-1] and the string "latest"',
    )


def page(items: Sequence[Any], query: Mapping[str, str]) -> list[Any]:
    """`?offset=` and `?limit=` of a list."""
    offset, limit = _whole(query, "offset", 0), _whole(query, "limit", -1)
    rest = items[max(offset, 0) :]
    return list(rest if limit < 1 else rest[:limit])


def _whole(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, str(default))
    if not re.fullmatch("-?[0-9]{1,10}", text):
        raise RegistryError(INVALID_REQUEST, f"{name}: {text!r} is not a number")
    return int(text)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise RegistryError(
            INVALID_SCHEMA, "Invalid schema: half a character (surrogate)"
        ) from error


def _kind(said: Any) -> SchemaKind:
    if said is None:
        return SchemaKind.AVRO
    if isinstance(said, str) and said in SchemaKind.__members__:
        return SchemaKind[said]
    raise RegistryError(INVALID_SCHEMA, f"Invalid schema type {said}")


def _number(body: Mapping[str, Any], name: str) -> int:
    """An id or version that is asked for; -1 and 0 ask for none."""
    said = body.get(name)
    if said is None or (isinstance(said, int) and not isinstance(said, bool) and said in (-1, 0)):
        return 0
    if not isinstance(said, int) or isinstance(said, bool) or not 0 < said <= VERSION_MAX:
        raise RegistryError(INVALID_REQUEST, f"{name}: a number from 1 to {VERSION_MAX}")
    return said
