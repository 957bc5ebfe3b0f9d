"""Kafka's message schemas, as kio's generated classes have them, in our terms.

A field has Kafka's name in snake case, with "_ms" where kio has a duration or a time.
`tests/protocol/generate_shapes.py` writes the shapes and `schemas.json` by these.
"""

import dataclasses
import importlib
import re
import types
import typing
from typing import Any, Final, NamedTuple

NO_DEFAULT: Final = dataclasses.MISSING
"""Kafka's schema names none."""


class Field(NamedTuple):
    name: str
    kafka_type: str | None
    """None for structs."""
    struct: type | None
    """kio's class of a struct."""
    is_array: bool
    is_nullable: bool
    tag: int | None
    default: Any
    """kio's value, or NO_DEFAULT."""


def message_class(api_name: str, version: int, kind: str) -> type:
    """Returns kio's class of a message; `kind` is "Request" or "Response"."""
    folder = re.sub(r"(?<!^)(?=[A-Z])", "_", api_name).lower()
    module = importlib.import_module(f"kio.schema.{folder}.v{version}.{kind.lower()}")
    found: type = getattr(module, api_name + kind)
    return found


def fields(schema: type) -> list[Field]:
    """Returns the fields of one of kio's classes, in the order of the wire."""
    hints = typing.get_type_hints(schema)
    return [_field(field, hints[field.name]) for field in dataclasses.fields(schema)]


def _field(field: dataclasses.Field[Any], hint: Any) -> Field:
    is_nullable = isinstance(hint, types.UnionType)
    if is_nullable:
        hint = next(arg for arg in typing.get_args(hint) if arg is not types.NoneType)
    is_array = typing.get_origin(hint) is tuple
    if is_array:
        hint = typing.get_args(hint)[0]
    kafka_type: str | None = field.metadata.get("kafka_type")
    is_time = kafka_type is not None and kafka_type.startswith(("timedelta", "datetime"))
    is_struct = dataclasses.is_dataclass(hint)
    assert is_struct == (kafka_type is None)
    return Field(
        name=field.name + "_ms" if is_time else field.name,
        kafka_type=kafka_type,
        struct=hint if is_struct else None,
        is_array=is_array,
        is_nullable=is_nullable,
        tag=field.metadata.get("tag"),
        default=field.default,
    )
