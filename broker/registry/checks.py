"""All that is done with the texts of schemas: read, compared, written in another format, values held to them and read
by them.
Pure.

A hostile schema can cost seconds and gigabytes here, so nothing of it is called in an agent's loop:
`checker` has it done in a process of its own. A question holds all that its answer follows from.
What was read is kept for a while, by fingerprint: new schemas are compared with the same ones.
"""

import base64
import zlib
from typing import Final, NamedTuple, assert_never

from broker.registry.canonical import canonical_avro
from broker.registry.parsed_schema import (
    ParsedSchema,
    PreviousVersion,
    fingerprint,
    incompatibilities,
    parse,
)
from broker.registry.value_checks import WhyNot, why_not
from coordinator.commands.table_commands import Reference, SchemaKind
from protocol.schemas import SchemaError
from protocol.schemas.avro import AvroSchema
from protocol.schemas.frames import MessagePath
from protocol.schemas.json_readers import Read, json_reader

KEPT_CHARACTERS_MAX: Final = 1 << 20
"""Of the texts of schemas that are kept read; as trees they take fifty times as much."""
REASONS_MAX: Final = 100
REASON_CHARACTERS_MAX: Final = 4_000
"""A path through a schema can be as long as the schema."""
ERROR_CHARACTERS_MAX: Final = 1_000
REFUSED_MAX: Final = 1_000
VALUE_CHECKS_MAX: Final = 256
"""Schemas that values are held to, and as many that they are read by; the least used is forgotten."""
TOO_MUCH: Final = "it takes too much memory to be read and compared"

NamedBodies = tuple[tuple[str, bytes], ...]
"""Texts in UTF-8, by zlib, by the names that a schema calls them; each after those it needs."""


class StoredSchema(NamedTuple):
    """A schema as the table keeps it, and all that it needs."""

    kind: SchemaKind
    fingerprint: bytes
    body: bytes
    bodies: NamedBodies


class ReadSchema(NamedTuple):
    """What does a text say? Answered with `fingerprint` and `body`."""

    kind: SchemaKind
    text: str
    bodies: NamedBodies
    references: tuple[Reference, ...]
    is_new: bool
    """It is held to more than one that was taken before."""
    normalize: bool


class CompareSchemas(NamedTuple):
    """Why may one not follow others? Answered with `lines`, none: it may."""

    level: str
    new: StoredSchema
    earlier: tuple[tuple[int, StoredSchema], ...]
    """By version, ascending."""


class FormatSchema(NamedTuple):
    """A schema's text in the format that `?format=` asks for; answered with one of `lines`."""

    schema: StoredSchema
    wanted: str


class CheckValues(NamedTuple):
    """Which are no values of their schemas? Answered with `refused`."""

    schemas: tuple[StoredSchema, ...]
    values: tuple[tuple[int, bytes], ...]
    """Which of the schemas it names, and the bytes behind its frame."""


class ReadValues(NamedTuple):
    """What do values say, as JSON? Answered with a line for each, "" for those that are `refused`."""

    schemas: tuple[StoredSchema, ...]
    values: tuple[tuple[int, MessagePath, bytes], ...]
    """Which of the schemas it names, the path of Protobuf's message, and the bytes behind both."""
    characters_max: int
    """Of a line; a longer one is cut."""


Question = ReadSchema | CompareSchemas | FormatSchema | CheckValues | ReadValues


def size_of(question: Question) -> int:
    """Bytes of all that is to be read: what it costs at least, and the bound of that grows with it."""
    match question:
        case ReadSchema():
            return len(question.text) + _bytes_of(question.bodies)
        case CompareSchemas():
            earlier = sum(_stored_bytes(each) for _, each in question.earlier)
            return _stored_bytes(question.new) + earlier
        case FormatSchema():
            return _stored_bytes(question.schema)
        case CheckValues():
            schemas = sum(map(_stored_bytes, question.schemas))
            return schemas + sum(len(value) for _, value in question.values)
        case ReadValues():
            schemas = sum(map(_stored_bytes, question.schemas))
            return schemas + sum(len(value) for _, _, value in question.values)
        case _:
            assert_never(question)


def _stored_bytes(stored: StoredSchema) -> int:
    return len(stored.body) + _bytes_of(stored.bodies)


def _bytes_of(bodies: NamedBodies) -> int:
    return sum(len(body) for _, body in bodies)


class Answer(NamedTuple):
    error: str = ""
    """A sentence: it is no schema, or one that cannot be worked with. "": all is well."""
    fingerprint: bytes = b""
    body: bytes = b""
    """Of the canonical text."""
    lines: tuple[str, ...] = ()
    refused: tuple[tuple[int, str], ...] = ()
    """Which values, and why; of REFUSED_MAX at most."""
    refused_count: int = 0
    """Of all."""


class SchemaChecks:
    """Answers, one at a time."""

    def __init__(self) -> None:
        self._kept: dict[bytes, ParsedSchema] = {}
        self._kept_characters = 0
        self._values: dict[bytes, WhyNot] = {}
        """What says why bytes are no value, by the schema's fingerprint."""
        self._readers: dict[tuple[bytes, MessagePath], Read] = {}
        """What makes JSON of values, by the schema's fingerprint and the message in it."""

    def answer(self, question: Question) -> Answer:
        try:
            match question:
                case ReadSchema():
                    return self._read(question)
                case CompareSchemas():
                    return self._compare(question)
                case FormatSchema():
                    return Answer(lines=(self._format(question),))
                case CheckValues():
                    return self._check(question)
                case ReadValues():
                    return self._read_values(question)
                case _:
                    assert_never(question)
        except SchemaError as error:
            return Answer(error=_cut(str(error), ERROR_CHARACTERS_MAX))

    def forget(self) -> None:
        """Keep nothing of what was read."""
        self._kept.clear()
        self._values.clear()
        self._readers.clear()
        self._kept_characters = 0

    def _read(self, question: ReadSchema) -> Answer:
        parsed = parse(
            question.kind,
            question.text,
            _texts(question.bodies),
            is_new=question.is_new,
            normalize=question.normalize,
        )
        try:
            body = zlib.compress(parsed.canonical.encode(), 9)
        except UnicodeEncodeError as error:  # What escapes stood for may not be text.
            raise SchemaError("half a character (surrogate)") from error
        found = fingerprint(question.kind, parsed.canonical, question.references)
        self._keep(found, parsed)
        return Answer(fingerprint=found, body=body)

    def _compare(self, question: CompareSchemas) -> Answer:
        new = self._parsed(question.new)
        earlier = []
        for version, stored in question.earlier:
            try:
                earlier.append(PreviousVersion(version, self._parsed(stored)))
            except SchemaError as error:
                raise SchemaError(f"version {version}: {error}") from error
        *reasons, version_line, level_line = incompatibilities(question.level, new, earlier) or (
            "",
            "",
        )
        if not version_line:
            return Answer()
        shown = [_cut(reason, REASON_CHARACTERS_MAX) for reason in reasons[:REASONS_MAX]]
        return Answer(lines=(*shown, version_line, level_line))

    def _format(self, question: FormatSchema) -> str:
        schema = question.schema
        if question.wanted == "serialized" and schema.kind == SchemaKind.PROTOBUF:
            return base64.b64encode(self._parsed(schema).serialized).decode()
        if question.wanted == "resolved" and schema.kind == SchemaKind.AVRO:
            avro = self._parsed(schema).schema
            assert isinstance(avro, AvroSchema)
            return canonical_avro(AvroSchema(avro.root, ()))
        return text_of(schema.body)

    def _check(self, question: CheckValues) -> Answer:
        checks = [self._why_not(schema) for schema in question.schemas]
        refused: list[tuple[int, str]] = []
        count = 0
        for index, (number, data) in enumerate(question.values):
            if reason := checks[number](data):
                count += 1
                if count <= REFUSED_MAX:
                    refused.append((index, reason))
        return Answer(refused=tuple(refused), refused_count=count)

    def _read_values(self, question: ReadValues) -> Answer:
        lines: list[str] = []
        refused: list[tuple[int, str]] = []
        for index, (number, path, data) in enumerate(question.values):
            line = ""
            try:
                line = self._reader(question.schemas[number], path)(data).decode(errors="replace")
            except RecursionError:
                refused.append((index, "it is nested too deeply"))
            except ValueError as error:
                refused.append((index, _cut(str(error), REASON_CHARACTERS_MAX)))
            lines.append(line[: question.characters_max])
        return Answer(lines=(*lines,), refused=(*refused,), refused_count=len(refused))

    def _reader(self, stored: StoredSchema, path: MessagePath) -> Read:
        """Raises ValueError."""
        key = (stored.fingerprint, path)
        found = self._readers.pop(key, None)
        if found is None:
            text, references = text_of(stored.body), _texts(stored.bodies)
            found = json_reader(stored.kind.name, text, references, path)
        self._readers[key] = found
        if len(self._readers) > VALUE_CHECKS_MAX:
            del self._readers[next(iter(self._readers))]
        return found

    def _why_not(self, stored: StoredSchema) -> WhyNot:
        found = self._values.pop(stored.fingerprint, None)
        if found is None:
            text, references = text_of(stored.body), _texts(stored.bodies)
            try:
                found = why_not(stored.kind, text, references)
            except SchemaError as error:
                found = _refusal(_cut(f"the schema cannot be worked with: {error}", 300))
        self._values[stored.fingerprint] = found
        if len(self._values) > VALUE_CHECKS_MAX:
            del self._values[next(iter(self._values))]
        return found

    def _parsed(self, stored: StoredSchema) -> ParsedSchema:
        known = self._kept.get(stored.fingerprint)
        if known is None:
            known = parse(stored.kind, text_of(stored.body), _texts(stored.bodies))
        self._keep(stored.fingerprint, known)
        return known

    def _keep(self, key: bytes, parsed: ParsedSchema) -> None:
        """As the newest; the oldest are forgotten."""
        before = self._kept.pop(key, None)
        if before is not None:
            self._kept_characters -= len(before.canonical)
        self._kept[key] = parsed
        self._kept_characters += len(parsed.canonical)
        while self._kept_characters > KEPT_CHARACTERS_MAX and len(self._kept) > 1:
            oldest = self._kept.pop(next(iter(self._kept)))
            self._kept_characters -= len(oldest.canonical)


def _refusal(reason: str) -> WhyNot:
    return lambda _data: reason


def text_of(body: bytes) -> str:
    """The text of a schema as the table keeps it."""
    return zlib.decompress(body).decode()


def _texts(bodies: NamedBodies) -> dict[str, str]:
    return {name: text_of(body) for name, body in bodies}


def _cut(text: str, characters_max: int) -> str:
    return text if len(text) <= characters_max else f"{text[:characters_max]}..."
