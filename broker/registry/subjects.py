"""The registry's decisions: requests in; answers and commands for the log out.

Everything is a function of the table of schemas as one replica holds it; refusals are
`RegistryError`s with Confluent's codes. Waiting, proposing and HTTP are `rest`'s.

Left out: contexts, data contracts (metadata, rule sets), and modes for single versions.
"""

import base64
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from broker.registry.canonical import canonical_avro
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
from broker.registry.parsed_schema import (
    ParsedSchema,
    PreviousVersion,
    fingerprint,
    incompatibilities,
    parse,
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
from protocol.schemas import SchemaError
from protocol.schemas.avro import AvroSchema
from protocol.types import Position

DEFAULT_LEVEL: Final = "BACKWARD"
DEFAULT_MODE: Final = "READWRITE"
VERSION_MAX: Final = (1 << 31) - 1
REFERENCE_NAME_MAX: Final = 1_000
"""Bytes."""
RESOLVED_MAX: Final = 1_000
"""Schemas that one schema may need, through whatever number of others."""
PARSED_CHARACTERS_MAX: Final = 4 << 20
"""Of the texts of schemas that are kept parsed: mostly those that new ones are compared with."""


class SubmittedSchema(NamedTuple):
    """A schema as a client sends it, understood."""

    parsed: ParsedSchema
    references: tuple[Reference, ...]
    fingerprint: bytes
    schema_id: int
    """That it is to have (mode IMPORT); 0: a free one."""
    version: int


class SchemaLibrary:
    """Schemas of one table, parsed as they are needed and kept for a while."""

    def __init__(self, schemas: Callable[[], Schemas]) -> None:
        self._schemas = schemas
        self._parsed: dict[bytes, ParsedSchema] = {}
        self._parsed_characters = 0

    @property
    def schemas(self) -> Schemas:
        """The table as it is; a replica that loads a snapshot gets another one."""
        return self._schemas()

    def parsed(self, row: SchemaRow | SchemaVersion) -> ParsedSchema:
        """What a schema of the table says. Raises SchemaError."""
        known = self._parsed.pop(row.fingerprint, None)
        if known is None:
            known = parse(row.kind, text_of(row), self._texts(row.references))
            self._parsed_characters += len(known.canonical)
            while self._parsed and self._parsed_characters > PARSED_CHARACTERS_MAX:
                oldest = self._parsed.pop(next(iter(self._parsed)))
                self._parsed_characters -= len(oldest.canonical)
        self._parsed[row.fingerprint] = known
        return known

    def offered(self, body: Mapping[str, Any], *, normalize: bool, is_new: bool) -> SubmittedSchema:
        """Understand the body of a request. Raises RegistryError."""
        text, kind = body.get("schema"), _kind(body.get("schemaType"))
        if not isinstance(text, str) or not text.strip():
            raise RegistryError(INVALID_SCHEMA, "Empty schema")
        if len(_utf8(text)) > SCHEMA_TEXT_MAX:
            raise RegistryError(SCHEMA_TOO_LARGE, f"A schema has at most {SCHEMA_TEXT_MAX} bytes")
        for name in ("metadata", "ruleSet"):
            if body.get(name):
                raise RegistryError(INVALID_REQUEST, f"{name}: data contracts are not kept here")
        references = self._references(body.get("references"))
        try:
            parsed = parse(kind, text, self._texts(references), is_new=is_new, normalize=normalize)
        except SchemaError as error:
            raise RegistryError(INVALID_SCHEMA, f"Invalid schema: {error}") from error
        _utf8(parsed.canonical)  # What escapes stood for may not be text either.
        return SubmittedSchema(
            parsed,
            references,
            fingerprint(kind, parsed.canonical, references),
            _number(body, "id"),
            _number(body, "version"),
        )

    def _references(self, said: Any) -> tuple[Reference, ...]:
        if said is None:
            return ()
        if not isinstance(said, list) or len(said) > REFERENCES_MAX:
            raise RegistryError(INVALID_SCHEMA, f"references: a list of at most {REFERENCES_MAX}")
        return tuple(self._reference(each) for each in said)

    def _reference(self, said: Any) -> Reference:
        match said:
            case {"name": str(name), "subject": str(subject), "version": int(number)} if (
                0 < len(_utf8(name)) <= REFERENCE_NAME_MAX
            ):
                subject = subject_name(subject)
                # "Latest" of now: what a schema means must not change later.
                found = self.schemas.version(subject, number)
                if found is None:
                    raise RegistryError(
                        INVALID_SCHEMA,
                        f"Invalid schema: no schema reference found for subject {subject!r} and"
                        f" version {number}",
                    )
                return Reference(name, subject, found.version)
        raise RegistryError(INVALID_SCHEMA, "a reference has a name, a subject and a version")

    def _texts(self, references: Iterable[Reference]) -> dict[str, str]:
        """Texts by name, each after what it needs itself. Raises RegistryError."""
        texts: dict[str, str] = {}
        self._collect(references, texts, ())
        return texts

    def _collect(
        self, references: Iterable[Reference], texts: dict[str, str], above: tuple[str, ...]
    ) -> None:
        for name, subject, version in references:
            if name in texts or name in above:
                continue
            found = self.schemas.version(subject, version, deleted=True)
            if found is None or len(texts) >= RESOLVED_MAX:
                raise RegistryError(INVALID_SCHEMA, f"the reference {name!r} leads nowhere")
            self._collect(found.references, texts, (*above, name))
            texts[name] = text_of(found)

    # Registering and comparing.

    def registration(
        self, subject: str, offered: SubmittedSchema, *, seen: Position
    ) -> RegisterSchema | SchemaVersion:
        """The command that registers, or the version that it is already. Raises RegistryError."""
        level, mode = self.rules(subject)
        known = self.find(subject, offered)
        if known is not None and offered.schema_id in (0, known.schema_id):
            return known
        self.check_writable(subject)
        if mode == "IMPORT" and not offered.schema_id:
            raise RegistryError(NOT_PERMITTED, f"Subject {subject} is in import mode: give an id")
        if mode != "IMPORT":
            self._check_numbers(subject, offered)
            try:
                reasons = incompatibilities(level, offered.parsed, self._earlier(subject))
            except SchemaError as error:
                raise RegistryError(INVALID_SCHEMA, f"Invalid schema: {error}") from error
            if reasons:
                raise RegistryError(
                    INCOMPATIBLE,
                    f"Schema being registered is incompatible with an earlier schema for subject"
                    f" {_quoted(subject)}, details: [{', '.join(reasons)}]",
                )
        body = zlib.compress(_utf8(offered.parsed.canonical), 9)
        if len(body) > SCHEMA_BODY_MAX:
            raise RegistryError(
                SCHEMA_TOO_LARGE, f"A schema has at most {SCHEMA_BODY_MAX} bytes when compressed"
            )
        importing = mode == "IMPORT"
        return RegisterSchema(
            subject=subject,
            kind=offered.parsed.kind,
            body=body,
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

    def reasons_against(
        self, subject: str, offered: SubmittedSchema, *, version: int | None
    ) -> list[str]:
        """Why a schema could not follow a version; None: those that the level asks for."""
        level, _ = self.rules(subject)
        if version is None:
            return incompatibilities(level, offered.parsed, self._earlier(subject))
        found = self.version(subject, version)
        return incompatibilities(level, offered.parsed, [self._as_earlier(found)])

    def _earlier(self, subject: str) -> list[PreviousVersion]:
        level, _ = self.rules(subject)
        if level == "NONE":
            return []
        numbers = self.schemas.versions(subject)
        wanted = numbers if level.endswith("_TRANSITIVE") else numbers[-1:]
        return [self._as_earlier(self.version(subject, number)) for number in wanted]

    def _as_earlier(self, version: SchemaVersion) -> PreviousVersion:
        try:
            return PreviousVersion(version.version, self.parsed(version))
        except SchemaError as error:
            said = f"version {version.version} of {version.subject}: {error}"
            raise RegistryError(INVALID_SCHEMA, said) from error

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
        for row in self.schemas.rows():
            if guid_of(row.fingerprint) == guid.lower():
                return row
        raise RegistryError(SCHEMA_NOT_FOUND, f"Schema {guid} not found")

    def formatted(self, row: SchemaRow | SchemaVersion, wanted: str) -> str:
        """A schema's text in the format that `?format=` asks for; unknown ones mean the text."""
        if wanted == "serialized" and row.kind == SchemaKind.PROTOBUF:
            return base64.b64encode(self.parsed(row).serialized).decode()
        if wanted == "resolved" and row.kind == SchemaKind.AVRO:
            avro = self.parsed(row).schema
            assert isinstance(avro, AvroSchema)
            return canonical_avro(AvroSchema(avro.root, ()))
        return text_of(row)


def text_of(row: SchemaRow | SchemaVersion) -> str:
    return zlib.decompress(row.body).decode()


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
    if said in SchemaKind.__members__:
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


def _quoted(text: str) -> str:
    return f'"{text}"'
