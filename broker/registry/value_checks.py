"""Whether values decode by their schemas, as `frazil.schema.validate=full` asks. Pure.

A schema of any kind becomes a function from the bytes behind a value's frame (Confluent's: a zero byte, the
schema's id in four) to why they are no value of it, a sentence; "": they are one. Avro and Protobuf ask
whether a consumer can read the bytes, JSON whether a text is valid by its JSON Schema.

What a hostile schema or value costs has no bound here, as in `checks`.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, assert_never

from google.protobuf import message_factory
from google.protobuf.message import DecodeError

from coordinator.commands.table_commands import SchemaKind
from protocol.errors import ProtocolError
from protocol.schemas import SchemaError
from protocol.schemas.avro import Check, parse_avro
from protocol.schemas.avro_values import value_check
from protocol.schemas.frames import message_path
from protocol.schemas.json_readers import refuse_constant
from protocol.schemas.json_values import json_check
from protocol.schemas.protobuf import parse_protobuf
from protocol.schemas.protobuf_values import message_at, methods_of

WhyNot = Callable[[bytes], str]
REASON_CHARACTERS_MAX: Final = 300
"""It may quote the value."""


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
    check = json_check(text, references)

    def why_not_json(data: bytes) -> str:
        try:
            return _cut(check(json.loads(data.decode(), parse_constant=refuse_constant)))
        except RecursionError:
            return "it is nested too deeply"
        except ValueError as error:
            return _cut(f"it is no JSON: {error}")

    return why_not_json


def _protobuf(text: str, references: Mapping[str, str]) -> WhyNot:
    file = parse_protobuf(text, references).descriptor
    messages: dict[tuple[int, ...], Any] = {}

    def why_not_protobuf(data: bytes) -> str:
        try:
            path, at = message_path(data, 0)
            if path not in messages:
                messages[path] = message_factory.GetMessageClass(message_at(file, path))
        except (ProtocolError, IndexError):
            return "it does not begin with the path of a message of its file"
        try:
            methods = methods_of(messages[path])
            message = messages[path]()
            methods.MergeFromString(message, data[at:])
        except DecodeError as error:
            return _cut(f"it is no {message_at(file, path).full_name}: {error}")
        missing = methods.FindInitializationErrors(message)
        return _cut(f"it lacks {', '.join(missing)}") if missing else ""

    return why_not_protobuf


def _cut(text: str) -> str:
    return text if len(text) <= REASON_CHARACTERS_MAX else f"{text[:REASON_CHARACTERS_MAX]}..."
