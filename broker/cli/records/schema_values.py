"""Keys and values of records as JSON, by the schemas of a registry.

Reading, each names its own schema, in a frame or a header (`protocol.schemas.frames`). Writing, one schema is chosen
beforehand: of a file, of an id, or the newest of the subject, which is TOPIC-key or TOPIC-value (Confluent's
TopicNameStrategy, and no other). What is JSON here and what bytes, `protocol.schemas` says: `avro_plain`,
`protobuf_values`; of JSON Schema the text is the value.

What cannot be read or written is a `RecordError`. Called only where a format wants a registry.
"""

import json
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from broker.cli.arguments import FailedError
from broker.cli.command_result import ToolError
from broker.cli.records.record_text import BY_SCHEMA, ConsumedRecord, JsonText, RecordError, Taken
from broker.cli.schemas.arguments import KINDS, new_schema
from broker.cli.schemas.registry import RefusedError, registry_of
from broker.cli.schemas.schemas import Schema, Schemas
from protocol.schemas import SchemaError
from protocol.schemas.frames import (
    KEY_HEADER,
    VALUE_HEADER,
    MessagePath,
    frame_head,
    last_header,
    unframed,
)
from protocol.schemas.json_readers import Read, json_bytes, json_reader, refuse_constant

PARTS: Final = ("key", "value")
NOT_FOUND: Final = 404
_HEADERS: Final = {"key": KEY_HEADER, "value": VALUE_HEADER}


def parts_by_schema(options: Namespace) -> list[str]:
    """Returns which of key and value have a format that wants a registry."""
    return [part for part in PARTS if vars(options)[f"{part}_format"] in BY_SCHEMA]


def readers_of(options: Namespace) -> dict[str, JsonText]:
    """Returns what makes JSON of keys and values, where their format wants a registry. Raises FailedError,
    SettingsError."""
    wanted = parts_by_schema(options)
    if not wanted:
        return {}
    schemas = Schemas(registry_of(options))
    return {part: _Reader(part, vars(options)[f"{part}_format"], schemas).text for part in wanted}


class _Reader:
    """Of keys, or of values."""

    def __init__(self, part: str, form: str, schemas: Schemas) -> None:
        self._part = part
        self._form = form
        self._schemas = schemas
        self._made: dict[tuple[int | str, MessagePath], Read] = {}

    def text(self, record: ConsumedRecord) -> bytes | None:
        """Raises RecordError that names the record."""
        data = record.key if self._part == "key" else record.value
        if data is None:
            return None
        header = last_header(record.headers, _HEADERS[self._part]) if record.headers else None
        where = f"topic {record.topic}, partition {record.partition}, offset {record.offset}"
        try:
            found = unframed(data, header, has_path=self._form == "protobuf")
            how = self._made.get((found.schema, found.path))
            if how is None:
                how = self._reader(found.schema, found.path)
                self._made[found.schema, found.path] = how
            return how(found.payload)
        except ToolError as error:
            raise RecordError(f"{where}: {error}") from error
        except (ValueError, RecursionError) as error:
            raise RecordError(
                f"{where}: the {self._part} is no {self._form}: {_reason(error)} (--{self._part}-format raw writes it as"
                " it is)"
            ) from error

    def _reader(self, name: int | str, path: MessagePath) -> Read:
        """Raises ValueError, ToolError."""
        try:
            schema = self._schemas.named(name)
        except RefusedError as error:
            raise ValueError(f"its schema is {name}, and the registry says: {error}") from error
        if schema.kind != KINDS[self._form]:
            raise ValueError(f"its schema, {name}, is of type {schema.kind}")
        return json_reader(schema.kind, schema.text, schema.references, path)


class _Chosen(NamedTuple):
    """How what is sent is written."""

    head: bytes
    encode: Callable[[Any], bytes]
    """Of a JSON value. Raises ValueError."""
    encode_text: Callable[[bytes], bytes]
    """Of JSON text."""


def writers_of(options: Namespace) -> dict[str, Taken]:
    """Returns what makes bytes of the JSON of keys and values, where their format wants a registry. Raises
    FailedError, SettingsError."""
    given = vars(options)
    for part in PARTS:
        strangers = [
            f"--{part}-{name.replace('_', '-')}"
            for name in ("schema_file", "schema_id", "message")
            if given[f"{part}_{name}"] is not None
        ]
        form = given[f"{part}_format"]
        if strangers and form not in BY_SCHEMA:
            raise FailedError(f"{strangers[0]} wants --{part}-format {', '.join(BY_SCHEMA)}")
        if given[f"{part}_message"] is not None and form != "protobuf":
            raise FailedError(f"--{part}-message wants --{part}-format protobuf")
    wanted = parts_by_schema(options)
    if not wanted:
        return {}
    schemas = Schemas(registry_of(options))
    return {part: _writer(part, options, schemas) for part in wanted}


def _writer(part: str, options: Namespace, schemas: Schemas) -> Taken:
    """Raises FailedError."""
    form, subject = vars(options)[f"{part}_format"], f"{options.topic}-{part}"
    try:
        schema = _schema_to_write(part, options, schemas, subject)
        if schema.kind != KINDS[form]:
            raise FailedError(
                f"the schema of the {part} is of type {schema.kind}: --{part}-format {schema.kind.lower()}"
            )
        chosen = _writer_of(schema, vars(options)[f"{part}_message"])
    except ToolError as error:
        raise FailedError(str(error)) from error
    except (SchemaError, LookupError) as error:
        raise FailedError(f"the schema of the {part}: {error.args[0]}") from error

    def of_json(value: Any) -> bytes:
        try:
            return chosen.head + chosen.encode(value)
        except (ValueError, RecursionError) as error:
            raise RecordError(f"the {part} is no {form}: {_reason(error)}") from error

    def of_text(text: bytes) -> bytes:
        try:
            return chosen.head + chosen.encode_text(text)
        except (ValueError, RecursionError) as error:
            raise RecordError(f"the {part} is no {form}: {_reason(error)}") from error

    return Taken(of_text, of_json)


def _reason(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def _schema_to_write(part: str, options: Namespace, schemas: Schemas, subject: str) -> Schema:
    """The one that the arguments choose. Raises FailedError, ToolError."""
    file: Path | None = vars(options)[f"{part}_schema_file"]
    schema_id: int | None = vars(options)[f"{part}_schema_id"]
    try:
        if file is not None:
            form: str = vars(options)[f"{part}_format"]
            return schemas.registered(subject, new_schema(file, form, []).body)
        return schemas.latest(subject) if schema_id is None else schemas.named(schema_id)
    except RefusedError as error:
        if file is not None:
            raise FailedError(
                f'{file} is not registered as subject "{subject}": {error.message}'
            ) from error
        if schema_id is not None:
            raise FailedError(f"schema {schema_id} cannot be had: {error.message}") from error
        if error.status != NOT_FOUND:
            raise FailedError(f'subject "{subject}" cannot be had: {error.message}') from error
        raise FailedError(
            f'there is no subject "{subject}": frazil schema create makes one, --{part}-schema-file does it at'
            f" once, --{part}-schema-id takes a schema that is there"
        ) from error


def _writer_of(schema: Schema, message: str | None) -> _Chosen:
    """Raises SchemaError, LookupError."""
    assert schema.schema_id is not None
    if schema.kind == "JSON":
        return _json_writer(schema.schema_id, schema.text, schema.references)
    if schema.kind == "AVRO":
        from protocol.schemas.avro import Check, parse_avro
        from protocol.schemas.avro_write import value_writer

        references = tuple(schema.references.values())
        encode = value_writer(parse_avro(schema.text, references, check=Check.SHAPE))
        head = frame_head(schema.schema_id)
    else:
        from protocol.schemas.protobuf import parse_protobuf
        from protocol.schemas.protobuf_values import message_at, message_writer, path_of

        file = parse_protobuf(schema.text, schema.references).descriptor
        if not file.message_types_by_name:
            raise LookupError("it has no message")
        path = (0,) if message is None else path_of(file, message)
        encode = message_writer(message_at(file, path))
        head = frame_head(schema.schema_id, path)
    return _Chosen(head, encode, lambda text: encode(_loaded(text)))


def _json_writer(schema_id: int, text: str, references: Mapping[str, str]) -> _Chosen:
    """Of JSON Schema: what is written as text stays as it is. Raises SchemaError."""
    from protocol.schemas.json_values import json_check

    check = json_check(text, references)

    def encode(value: Any) -> bytes:
        if reason := check(value):
            raise ValueError(reason)
        return json_bytes(value)

    def encode_text(text: bytes) -> bytes:
        if reason := check(_loaded(text)):
            raise ValueError(reason)
        return text

    return _Chosen(frame_head(schema_id), encode, encode_text)


def _loaded(text: bytes) -> Any:
    """Raises ValueError."""
    try:
        return json.loads(text.decode(), parse_constant=refuse_constant)
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from error
