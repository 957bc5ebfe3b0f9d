"""What makes JSON of a value's bytes by its schema, of whatever language. Pure.

What is JSON here and what bytes, `avro_plain` and `protobuf_values` say; of JSON Schema the text is the value. Parsers
are imported when they are needed first: Protobuf's takes long.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from protocol.schemas.frames import MessagePath

Read = Callable[[bytes], bytes]
"""JSON text, on one line, of what a schema describes. Raises ValueError with a sentence, RecursionError."""


def json_reader(kind: str, text: str, references: Mapping[str, str], path: MessagePath) -> Read:
    """`kind`: AVRO, JSON or PROTOBUF. `references`: texts by name, each after those that it needs itself. `path`: of
    Protobuf's message. Raises ValueError, which SchemaError is."""
    if kind == "JSON":
        return _json_line
    if kind == "AVRO":
        from protocol.schemas.avro import Check, parse_avro
        from protocol.schemas.avro_read import value_reader

        read = value_reader(parse_avro(text, tuple(references.values()), check=Check.SHAPE))
    else:
        from protocol.schemas.protobuf import parse_protobuf
        from protocol.schemas.protobuf_values import message_at, message_reader

        file = parse_protobuf(text, references).descriptor
        try:
            read = message_reader(message_at(file, path))
        except IndexError as error:
            raise ValueError(f"its schema has no message at {list(path)}") from error
    return lambda data: json_bytes(read(data))


def json_bytes(value: Any) -> bytes:
    """A JSON value on one line. Raises ValueError."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _json_line(data: bytes) -> bytes:
    """A JSON text as it is, on one line: a line feed in it is white space, since strings have none."""
    try:
        text = data.decode()
        json.loads(text, parse_constant=refuse_constant)
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from error
    return text.replace("\r", " ").replace("\n", " ").encode()


def refuse_constant(constant: str) -> NoReturn:
    """For Python's json, which takes NaN and Infinity: JSON has neither."""
    raise ValueError(f"{constant} is not JSON")
