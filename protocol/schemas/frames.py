"""Which schema a key or value is of, as Confluent's serializers say it: in a frame, or in a record's header. Pure.

A frame is a zero byte, the schema's id in four, and what the schema describes. Newer serializers may write the header
`__key_schema_id` or `__value_schema_id` instead: a byte of version, then the id in four bytes (0) or the schema's GUID
in sixteen (1); the value is bare then. The last header of the name counts, and before what the value
begins with; one that is null says nothing. For Protobuf the message's path in its file follows id or GUID.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from protocol.errors import ProtocolError
from protocol.primitives import read_uvarint

KEY_HEADER: Final = "__key_schema_id"
VALUE_HEADER: Final = "__value_schema_id"
HEAD_BYTES: Final = 5
ID_MAX: Final = (1 << 31) - 1
INDEXES_MAX: Final = 16
"""Protobuf's messages lie in each other at most this deep."""
FIRST_MESSAGE: Final = (0,)

_ID_BYTES: Final = 4
_GUID_BYTES: Final = 16

MessagePath = tuple[int, ...]
"""Of a message in its file: which of the file's, which of that one's, and so on."""


class Framed(NamedTuple):
    """A key or value, and what names its schema."""

    schema: int | str
    """An id, or a GUID as registries write it."""
    path: MessagePath
    """Of Protobuf's message."""
    payload: bytes


def unframed(data: bytes, header: bytes | None, *, has_path: bool) -> Framed:
    """Returns what a key or value has in it. `header`: what the record's header says; `has_path`: it is Protobuf's.
    Raises ValueError with a sentence."""
    if header is not None:
        schema, at = _named_by(header)
        path = _path_in(header, at) if has_path else (FIRST_MESSAGE, at)
        return Framed(schema, path[0], data)
    if len(data) < HEAD_BYTES or data[0] != 0:
        raise ValueError("it does not begin with a zero byte and the id of a schema")
    schema = _id_in(data)
    path = _path_in(data, HEAD_BYTES) if has_path else (FIRST_MESSAGE, HEAD_BYTES)
    return Framed(schema, path[0], data[path[1] :])


def last_header(headers: Sequence[tuple[str, bytes | None]], name: str) -> bytes | None:
    """Returns the header of a record that counts; None: nothing is said."""
    found = [value for said, value in headers if said == name]
    return found[-1] if found else None


def frame_head(schema_id: int, path: MessagePath | None = None) -> bytes:
    """Returns what a framed key or value begins with. `path`: of Protobuf's message."""
    head = b"\0" + schema_id.to_bytes(_ID_BYTES, "big")
    if path is None:
        return head
    if path == FIRST_MESSAGE:
        return head + b"\0"
    return head + b"".join(_varint(2 * number) for number in (len(path), *path))


def message_path(data: bytes, at: int) -> tuple[MessagePath, int]:
    """Returns the message's path that is written at a place, and the place behind it: a count and so many indexes,
    each a zigzag varint, the path (0) as the byte 0. Raises IndexError, ProtocolError."""
    view = memoryview(data)
    count, at = _zigzag(view, at)
    if count == 0:
        return FIRST_MESSAGE, at
    if not 0 < count <= INDEXES_MAX:
        raise IndexError
    path = []
    for _ in range(count):
        index, at = _zigzag(view, at)
        if index < 0:
            raise IndexError
        path.append(index)
    return tuple(path), at


def _named_by(header: bytes) -> tuple[int | str, int]:
    """The schema that a header names, and the place behind its name. Raises ValueError."""
    if len(header) > _ID_BYTES and header[0] == 0:
        return _id_in(header), 1 + _ID_BYTES
    if len(header) > _GUID_BYTES and header[0] == 1:
        digits = header[1 : 1 + _GUID_BYTES].hex()
        parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
        return "-".join(parts), 1 + _GUID_BYTES
    raise ValueError("its header names no schema")


def _id_in(data: bytes) -> int:
    found = int.from_bytes(data[1 : 1 + _ID_BYTES], "big")
    if found > ID_MAX:
        raise ValueError(f"{found} is no id of a schema")
    return found


def _path_in(data: bytes, at: int) -> tuple[MessagePath, int]:
    try:
        return message_path(data, at)
    except (IndexError, ProtocolError) as error:
        raise ValueError("the path of a message does not follow the id of its schema") from error


def _zigzag(data: memoryview, at: int) -> tuple[int, int]:
    value, at = read_uvarint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
