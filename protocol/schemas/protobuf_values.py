"""Protobuf messages in binary and as JSON, by the descriptor of their file. Pure.

JSON is Protobuf's own (ProtoJSON): 64-bit numbers are strings, bytes base64, timestamps ISO 8601. Fields have the
names that the schema has, and those without presence are there with their defaults. Fields that the schema does
not know are left out, so what is written of the JSON again lacks them.
"""

import json
from collections.abc import Callable
from typing import Any

from google.protobuf import json_format, message_factory
from google.protobuf.message import DecodeError, Message

from protocol.schemas.frames import MessagePath


def message_at(file: Any, path: MessagePath) -> Any:
    """Returns the descriptor of a message. `file`: a FileDescriptor. Raises IndexError."""
    found = list(file.message_types_by_name.values())[path[0]]
    for index in path[1:]:
        found = _written(found)[index]
    return found


def path_of(file: Any, name: str) -> MessagePath:
    """Returns the path of the message of a name, with or without the package. Raises LookupError with a sentence."""
    paths: dict[str, MessagePath] = {}
    waiting: list[tuple[MessagePath, Any]] = [
        ((place,), message) for place, message in enumerate(file.message_types_by_name.values())
    ]
    for path, message in waiting:
        paths[message.full_name] = path
        waiting += [((*path, place), one) for place, one in enumerate(_written(message))]
    for said in (name, f"{file.package}.{name}"):
        if said in paths:
            return paths[said]
    raise LookupError(f'its schema has no message "{name}" ({", ".join(paths) or "none at all"})')


def _written(message: Any) -> list[Any]:
    """Java's serializer counts the messages that are written; those of maps are made up."""
    return [one for one in message.nested_types if not one.GetOptions().map_entry]


def methods_of(message_class: Any) -> Any:
    """Returns the class whose methods a message has, to be called as `methods.IsInitialized(message)`: a field
    or a type of a message may have the name of a method, and stands before it."""
    below = message_class.__mro__[1]
    # The runtime in Python has the methods in each message's own class.
    return message_class if below is Message else below


def message_reader(descriptor: Any) -> Callable[[bytes], Any]:
    """Returns what makes JSON of a message's bytes; it raises ValueError with a sentence."""
    made = message_factory.GetMessageClass(descriptor)
    pool = descriptor.file.pool

    def reader(data: bytes) -> Any:
        try:
            return json_format.MessageToDict(
                made.FromString(data),
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
                descriptor_pool=pool,
            )
        except (DecodeError, json_format.Error, TypeError, ValueError) as error:
            raise ValueError(f"it is no {descriptor.full_name}: {error}") from error

    return reader


def message_writer(descriptor: Any) -> Callable[[Any], bytes]:
    """Returns what makes a message's bytes of its JSON; it raises ValueError with a sentence."""
    made = message_factory.GetMessageClass(descriptor)
    pool = descriptor.file.pool

    def writer(value: Any) -> bytes:
        if not isinstance(value, dict) and not descriptor.full_name.startswith("google.protobuf."):
            raise ValueError(f"{json.dumps(value)[:60]} is no {descriptor.full_name}")
        try:
            message: Any = json_format.ParseDict(value, made(), descriptor_pool=pool)
        except (json_format.Error, TypeError, ValueError) as error:
            raise ValueError(f"it is no {descriptor.full_name}: {_line(error)}") from error
        if missing := message.FindInitializationErrors():
            raise ValueError(f"it lacks {', '.join(missing)}")
        return bytes(message.SerializeToString(deterministic=True))

    return writer


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
