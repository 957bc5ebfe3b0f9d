"""Whether values decode by their schemas, as `frazil.schema.validate=full` asks. Pure.

A schema of any kind becomes a function from the bytes behind a value's frame (Confluent's: a zero byte, the
schema's id in four) to why they are no value of it, a sentence; "": they are one. Avro and Protobuf ask
whether a consumer can read the bytes, JSON whether a text is valid by its JSON Schema: of draft 7, unless
`$schema` says another. Nothing is fetched: a `$ref` leads into the schema or its references.

What a hostile schema or value costs has no bound here, as in `checks`.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn, assert_never

import jsonschema_rs
from google.protobuf import message_factory
from google.protobuf.message import DecodeError

from coordinator.commands.table_commands import SchemaKind
from protocol.errors import ProtocolError
from protocol.primitives import read_uvarint
from protocol.schemas import SchemaError
from protocol.schemas.avro import Check, parse_avro
from protocol.schemas.avro_values import value_check
from protocol.schemas.json_schema import load
from protocol.schemas.protobuf import parse_protobuf

WhyNot = Callable[[bytes], str]
REASON_CHARACTERS_MAX: Final = 300
"""It may quote the value."""
INDEXES_MAX: Final = 16
"""Protobuf's messages lie in each other at most this deep."""
_BASE: Final = "http://schema.invalid/"
"""Where a schema without `$id` lies, and its references beside it."""
_FIRST_MESSAGE: Final = (0,)


def why_not(kind: SchemaKind, text: str, references: Mapping[str, str]) -> WhyNot:
    """Returns what says of bytes why they are no value of the schema.

    `references`: texts by name, each after those that it needs itself. Raises SchemaError.
    """
    try:
        match kind:
            case SchemaKind.AVRO:
                return value_check(parse_avro(text, (*references.values(),), check=Check.SHAPE))
            case SchemaKind.JSON:
                return _json(text, references)
            case SchemaKind.PROTOBUF:
                return _protobuf(text, references)
            case _:
                assert_never(kind)
    except RecursionError as error:
        raise SchemaError("nested too deeply") from error


def _json(text: str, references: Mapping[str, str]) -> WhyNot:
    validator = _validator(load(text), {name: load(other) for name, other in references.items()})

    def why_not_json(data: bytes) -> str:
        try:
            value = json.loads(data.decode(), parse_constant=_no_json)
            if validator.is_valid(value):
                return ""
            wrong = next(validator.iter_errors(value))
        except RecursionError:
            return "it is nested too deeply"
        except ValueError as error:
            return _cut(f"it is no JSON: {error}")
        at = "/".join(map(str, wrong.instance_path))
        return _cut(f"{at}: {wrong.message}" if at else wrong.message)

    return why_not_json


def _validator(schema: Any, references: Mapping[str, Any]) -> Any:
    """Raises SchemaError."""
    kind: Any = jsonschema_rs.Draft7Validator
    base = _BASE
    if isinstance(schema, dict):
        base = _beside(_BASE, str(schema.get("$id", schema.get("id", "")) or ""))
        if "$schema" in schema:
            kind = jsonschema_rs.validator_cls_for(schema)
    resources = {}
    for name, other in references.items():
        resources[_beside(base, name)] = resources[_beside(_BASE, name)] = other
        if isinstance(other, dict) and isinstance(found := other.get("$id"), str):
            resources[found.partition("#")[0]] = other
    try:
        registry = jsonschema_rs.Registry(
            list(resources.items()), draft=jsonschema_rs.Draft7, retriever=_fetch_nothing
        )
        return kind(schema, base_uri=base, registry=registry, retriever=_fetch_nothing)
    except ValueError as error:
        raise SchemaError(str(error).partition("\n")[0]) from error


def _beside(base: str, name: str) -> str:
    """The URI that a name means in the document of another."""
    return name if "://" in name else f"{base.rpartition('/')[0]}/{name}"


def _fetch_nothing(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is not among the references")


def _no_json(constant: str) -> NoReturn:
    raise ValueError(constant)


def _protobuf(text: str, references: Mapping[str, str]) -> WhyNot:
    file = parse_protobuf(text, references).descriptor
    messages: dict[tuple[int, ...], Any] = {}

    def why_not_protobuf(data: bytes) -> str:
        try:
            path, at = _message_path(memoryview(data))
            if path not in messages:
                messages[path] = message_factory.GetMessageClass(_message(file, path))
        except (ProtocolError, IndexError):
            return "it does not begin with the path of a message of its file"
        try:
            message = messages[path].FromString(data[at:])
        except DecodeError as error:
            return _cut(f"it is no {messages[path].DESCRIPTOR.full_name}: {error}")
        missing = message.FindInitializationErrors()
        return _cut(f"it lacks {', '.join(missing)}") if missing else ""

    return why_not_protobuf


def _message_path(data: memoryview) -> tuple[tuple[int, ...], int]:
    """Which message of the file the value is of, and where that begins: a count and so many indexes, each a
    zigzag varint, the path (0) as the byte 0. Raises IndexError, ProtocolError."""
    count, at = _zigzag(data, 0)
    if count == 0:
        return _FIRST_MESSAGE, at
    if not 0 < count <= INDEXES_MAX:
        raise IndexError
    path = []
    for _ in range(count):
        index, at = _zigzag(data, at)
        if index < 0:
            raise IndexError
        path.append(index)
    return tuple(path), at


def _zigzag(data: memoryview, at: int) -> tuple[int, int]:
    value, at = read_uvarint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _message(file: Any, path: tuple[int, ...]) -> Any:
    """The descriptor of a message. Raises IndexError."""
    found = list(file.message_types_by_name.values())[path[0]]
    for index in path[1:]:
        # Java's serializer counts the messages that are written; those of maps are made up.
        written = [one for one in found.nested_types if not one.GetOptions().map_entry]
        found = written[index]
    return found


def _cut(text: str) -> str:
    return text if len(text) <= REASON_CHARACTERS_MAX else f"{text[:REASON_CHARACTERS_MAX]}..."
