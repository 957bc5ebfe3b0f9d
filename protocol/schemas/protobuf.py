"""Protobuf schemas: .proto text, or a descriptor in base64, to descriptors.

Some clients register text, others (Python's, Go's) a serialized FileDescriptorProto in base64. The
second becomes text first, without services, extensions and custom options, so whoever asks for the
schema can read it; from there on there is one way.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError

from protocol.schemas import SchemaError
from protocol.schemas.proto_text import SCALARS, load_files, parse_proto

FILE_NAME: Final = "schema.proto"
_FieldProto = descriptor_pb2.FieldDescriptorProto
_SCALAR_NAMES: Final = {number: name for name, number in SCALARS.items()}
_LABELS: Final = {2: "required ", 3: "repeated "}


class ProtoFile(NamedTuple):
    text: str
    """As it was given, or as it is written from the descriptor that was given."""
    descriptor: Any
    """A `google.protobuf.descriptor.FileDescriptor`: all names are resolved."""


def parse_protobuf(text: str, references: Mapping[str, str]) -> ProtoFile:
    """Returns the file of a text; `references` are texts by the names that imports use.

    Raises SchemaError.
    """
    try:
        parse_proto(text, FILE_NAME)
    except SchemaError:
        file = _of_base64(text)
        if file is None:
            raise
        text = render(file)
    return ProtoFile(text, load_files(text, references, FILE_NAME)[1])


def _of_base64(text: str) -> descriptor_pb2.FileDescriptorProto | None:
    try:
        data = base64.b64decode(text.strip(), validate=True)
        file = descriptor_pb2.FileDescriptorProto.FromString(data)
    except (binascii.Error, ValueError, DecodeError):
        return None
    return file if file.message_type or file.enum_type or file.dependency else None


# Descriptors as text.


def render(file: descriptor_pb2.FileDescriptorProto) -> str:
    """A .proto file that says what the descriptor does. Raises SchemaError."""
    syntax = file.syntax or "proto2"
    if syntax not in ("proto2", "proto3"):
        raise SchemaError(f"only the syntaxes proto2 and proto3 are read, not {syntax}")
    lines = [f'syntax = "{syntax}";']
    if file.package:
        lines.append(f"package {file.package};")
    for index, name in enumerate(file.dependency):
        public = "public " if index in file.public_dependency else ""
        lines.append(f"import {public}{_quoted(name)};")
    lines += [f"option {name} = {value};" for name, value in _options(file.options)]
    is_proto2 = syntax == "proto2"
    for message in file.message_type:
        lines += _message(message, is_proto2=is_proto2)
    for enum in file.enum_type:
        lines += _enum(enum)
    return "\n".join(lines) + "\n"


def _message(message: Any, *, is_proto2: bool) -> list[str]:
    entries = {each.name: each for each in message.nested_type if each.options.map_entry}
    lines = [f"option {name} = {value};" for name, value in _options(message.options)]
    lines += _reserved(message.reserved_range, message.reserved_name, ends_after=1)
    lines += [
        f"extensions {each.start} to {'max' if each.end >= 1 << 29 else each.end - 1};"
        for each in message.extension_range
    ]
    written: set[int] = set()
    for field in message.field:
        if not field.HasField("oneof_index") or field.proto3_optional:
            lines.append(_field(field, entries, is_proto2=is_proto2))
        elif field.oneof_index not in written:
            written.add(field.oneof_index)
            members = [
                _field(each, entries, is_proto2=False)
                for each in message.field
                if each.HasField("oneof_index") and each.oneof_index == field.oneof_index
            ]
            lines += _block(f"oneof {message.oneof_decl[field.oneof_index].name}", members)
    for nested in message.nested_type:
        if not nested.options.map_entry:
            lines += _message(nested, is_proto2=is_proto2)
    for enum in message.enum_type:
        lines += _enum(enum)
    return _block(f"message {message.name}", lines)


def _field(field: Any, entries: Mapping[str, Any], *, is_proto2: bool) -> str:
    if field.type == _FieldProto.TYPE_GROUP:
        raise SchemaError(f"the field {field.name} is a group; those are not read")
    options = _options(field.options)
    if field.HasField("default_value"):
        text = field.type in (_FieldProto.TYPE_STRING, _FieldProto.TYPE_BYTES)
        default = _quoted(field.default_value) if text else field.default_value
        options = [("default", default), *options]
    if field.json_name and field.json_name != _json_name(field.name):
        options = [("json_name", _quoted(field.json_name)), *options]
    written = ", ".join(f"{name} = {value}" for name, value in options)
    tail = f"{field.name} = {field.number}{f' [{written}]' if written else ''};"
    entry = entries.get(field.type_name.rpartition(".")[2])
    if entry is not None and field.label == _FieldProto.LABEL_REPEATED:
        return f"map<{_type(entry.field[0])}, {_type(entry.field[1])}> {tail}"
    optional = is_proto2 or field.proto3_optional
    return f"{_LABELS.get(field.label, 'optional ' if optional else '')}{_type(field)} {tail}"


def _type(field: Any) -> str:
    return field.type_name or _SCALAR_NAMES[field.type]


def _enum(enum: Any) -> list[str]:
    lines = [f"option {name} = {value};" for name, value in _options(enum.options)]
    lines += _reserved(enum.reserved_range, enum.reserved_name, ends_after=0)
    return _block(
        f"enum {enum.name}", lines + [f"{each.name} = {each.number};" for each in enum.value]
    )


def _reserved(ranges: Any, names: Any, *, ends_after: int) -> Iterator[str]:
    """`ends_after`: ranges of messages end before their end, those of enums with it."""
    for each in ranges:
        last = each.end - ends_after
        yield f"reserved {each.start}{f' to {last}' if last > each.start else ''};"
    for name in names:
        yield f"reserved {_quoted(name)};"


def _options(options: Any) -> list[tuple[str, str]]:
    """Those that descriptor.proto knows, as they are written."""
    written = []
    for field, value in options.ListFields():
        if field.is_extension or field.name == "map_entry" or field.message_type is not None:
            continue
        if isinstance(value, bool):
            written.append((field.name, "true" if value else "false"))
        elif isinstance(value, str):
            written.append((field.name, _quoted(value)))
        elif field.enum_type is not None and isinstance(value, int):
            written.append((field.name, field.enum_type.values_by_number[value].name))
    return written


def _block(head: str, lines: list[str]) -> list[str]:
    return [f"{head} {{", *(f"  {line}" for line in lines), "}"]


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _json_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)
