"""Protobuf messages as trees of types, each with the Arrow type of its column.

Scalars are themselves: unsigned 32 bits a long, unsigned 64 bits a decimal of 20 digits. Enums are
strings (a number without a name stays a number, in digits), fields with presence are null where
they are not set, others zero. Timestamps are Iceberg's (nanoseconds below a microsecond are cut
off), wrappers optional scalars, Struct, Value and ListValue their JSON text; other well-known types
are the messages they are. A message that contains itself is refused.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor

from iceberg_export.typed import types
from iceberg_export.typed.framing import FIRST_MESSAGE
from iceberg_export.typed.types import Schema
from protocol.schemas import SchemaError
from protocol.schemas.protobuf import parse_protobuf

UINT64 = pa.decimal128(20, 0)

_KINDS: dict[int, tuple[str, pa.DataType]] = {
    FieldDescriptor.TYPE_DOUBLE: ("double", types.DOUBLE),
    FieldDescriptor.TYPE_FLOAT: ("float", types.FLOAT),
    FieldDescriptor.TYPE_INT64: ("int64", types.LONG),
    FieldDescriptor.TYPE_UINT64: ("uint64", UINT64),
    FieldDescriptor.TYPE_INT32: ("int32", types.INT),
    FieldDescriptor.TYPE_FIXED64: ("fixed64", UINT64),
    FieldDescriptor.TYPE_FIXED32: ("fixed32", types.LONG),
    FieldDescriptor.TYPE_BOOL: ("bool", types.BOOL),
    FieldDescriptor.TYPE_STRING: ("string", types.TEXT),
    FieldDescriptor.TYPE_BYTES: ("bytes", types.BYTES),
    FieldDescriptor.TYPE_UINT32: ("uint32", types.LONG),
    FieldDescriptor.TYPE_ENUM: ("enum", types.TEXT),
    FieldDescriptor.TYPE_SFIXED32: ("sfixed32", types.INT),
    FieldDescriptor.TYPE_SFIXED64: ("sfixed64", types.LONG),
    FieldDescriptor.TYPE_SINT32: ("sint32", types.INT),
    FieldDescriptor.TYPE_SINT64: ("sint64", types.LONG),
}
_JSON_TYPES = {f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue")}
_WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in (
        *("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes"),
    )
}


class ProtoType(NamedTuple):
    kind: str
    """A scalar's name in the language, enum, message, timestamp, wrapper, json, map."""
    arrow: pa.DataType
    """Of one value, also where the field is repeated."""
    fields: "tuple[ProtoField, ...]" = ()
    """Of a message; value of a wrapper; key and value of a map."""
    symbols: tuple[tuple[int, str], ...] = ()
    is_closed: bool = False
    """Of an enum of proto2: numbers without a name are unknown fields."""
    nodes: int = 1

    def has(self, *kinds: str) -> bool:
        """A type of one of these kinds is somewhere in it."""
        return self.kind in kinds or any(field.type.has(*kinds) for field in self.fields)


class ProtoField(NamedTuple):
    name: str
    number: int
    type: ProtoType
    is_list: bool
    has_presence: bool
    is_required: bool
    oneof: str
    """Name of the oneof it is one of, or nothing."""

    @property
    def arrow(self) -> pa.DataType:
        return types.list_of(self.type.arrow) if self.is_list else self.type.arrow


class ProtoMessage(NamedTuple):
    type: ProtoType
    descriptor: Any


def read_protobuf(schema: Schema, indexes: tuple[int, ...] = FIRST_MESSAGE) -> ProtoMessage:
    """Returns the message that these indexes name in the schema's file. Raises SchemaError."""
    descriptor = _find(_file(schema), indexes)
    return ProtoMessage(_message(descriptor, ()), descriptor)


def message_paths(schema: Schema) -> list[tuple[int, ...]]:
    """The indexes of all messages of a schema's file. Raises SchemaError."""
    file = _file(schema)
    paths: list[tuple[int, ...]] = []
    todo: list[tuple[tuple[int, ...], list[Any]]] = [
        ((), list(file.message_types_by_name.values()))
    ]
    while todo:
        above, messages = todo.pop()
        for index, message in enumerate(messages):
            paths.append((*above, index))
            todo.append((paths[-1], _inner(message)))
    return paths


def _file(schema: Schema) -> Any:
    return _parsed(schema.text, tuple(schema.references.items()))


@lru_cache(maxsize=64)
def _parsed(text: str, references: tuple[tuple[str, str], ...]) -> Any:
    """Records may name messages that a file does not have, each another one: it is read once."""
    return parse_protobuf(text, dict(references)).descriptor


def _find(file: Any, indexes: tuple[int, ...]) -> Any:
    inner = list(file.message_types_by_name.values())
    found = None
    for index in indexes:
        if index >= len(inner):
            raise SchemaError(f"the Protobuf schema has no message {list(indexes)}")
        found = inner[index]
        inner = _inner(found)
    return found


def _inner(descriptor: Any) -> list[Any]:
    """Java's serializer counts the messages that are written; those of maps are made up."""
    return [one for one in descriptor.nested_types if not one.GetOptions().map_entry]


def _message(descriptor: Any, above: tuple[str, ...]) -> ProtoType:
    name = descriptor.full_name
    if name == "google.protobuf.Timestamp":
        return ProtoType("timestamp", types.TIMESTAMP, _fields(descriptor, above))
    if name in _JSON_TYPES:
        return ProtoType("json", types.TEXT)
    if name in above:
        raise SchemaError(f"the Protobuf message {name} contains itself: no table can")
    if len(above) > types.DEPTH_MAX:
        raise SchemaError(f"the Protobuf schema is over {types.DEPTH_MAX} messages deep")
    fields = _fields(descriptor, (*above, name))
    nodes = types.count_nodes(field.type.nodes for field in fields)
    if name in _WRAPPERS:
        return ProtoType("wrapper", fields[0].type.arrow, fields)
    if descriptor.GetOptions().map_entry:
        arrow = types.map_of(fields[1].type.arrow, fields[0].type.arrow)
        return ProtoType("map", arrow, fields, nodes=nodes)
    arrow = types.struct_of([(field.name, field.arrow) for field in fields])
    return ProtoType("message", arrow, fields, nodes=nodes)


def _fields(descriptor: Any, above: tuple[str, ...]) -> tuple[ProtoField, ...]:
    return tuple(_field(one, above) for one in descriptor.fields)


def _field(field: Any, above: tuple[str, ...]) -> ProtoField:
    if field.type == FieldDescriptor.TYPE_ENUM:
        names: dict[int, str] = {}
        for value in field.enum_type.values:
            # Of several names of a number (`allow_alias`) the first counts, as in Protobuf's own JSON.
            names.setdefault(value.number, value.name)
        symbols = tuple(sorted(names.items()))
        closed = bool(field.enum_type.is_closed)
        kind = ProtoType("enum", types.TEXT, symbols=symbols, is_closed=closed)
    elif field.message_type is not None:
        kind = _message(field.message_type, above)
    else:
        kind = ProtoType(*_KINDS[field.type])
    oneof = field.containing_oneof
    return ProtoField(
        field.name,
        field.number,
        kind,
        is_list=bool(field.is_repeated) and kind.kind != "map",
        has_presence=bool(field.has_presence),
        is_required=bool(field.is_required),
        oneof=oneof.name if oneof is not None and len(oneof.fields) > 1 else "",
    )
