"""Schemas named in record headers, as Confluent's newer serializers name them instead of in frames.

`__key_schema_id` and `__value_schema_id` hold one byte of version, then the schema's id (version
0, four bytes) or its GUID (version 1, sixteen); for Protobuf the message's path follows, as in a
frame. The value is then all payload. As Confluent's DualSchemaIdDeserializer has it, the last
header of the name counts, and before what the value begins with; one that is null says nothing.

A GUID is a number beyond all ids here (`GUID` and its 128 bits), so that one kind of name goes
wherever ids go; which id it is, only a registry knows. Pure.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from iceberg_export.records.decode import Ints
from iceberg_export.records.rows import header_places
from iceberg_export.typed.framing import FIRST_MESSAGE, message_indexes, skip_indexes

KEY_HEADER = "__key_schema_id"
VALUE_HEADER = "__value_schema_id"
GUID = 1 << 128
NO_SCHEMA = -3
"""In the place of an id: there is a header, which names no schema."""

_BYTES = {0: 4, 1: 16}
"""Of what names the schema, by version."""
_ID_MAX = 0x7FFFFFFF


class SchemaHeaders(NamedTuple):
    """The headers that name schemas, for some rows."""

    codes: Ints
    """Of each row: where in `contents`; -1: nothing."""
    contents: Sequence[bytes]


class SchemaHeader(NamedTuple):
    """One header, parsed."""

    number: int
    """An id, or `GUID` and more."""
    indexes: tuple[int, ...]


def find_schema_headers(headers: pa.Array, name: str) -> SchemaHeaders | None:
    """Returns headers of that name in a column of lists of (key, value); None when no row has one."""
    places = header_places(headers, name)
    rows = np.flatnonzero(places >= 0)
    if not len(rows):
        return None
    found = headers.values.field("value").take(pa.array(places[rows])).dictionary_encode()
    codes = np.full(len(headers), -1, np.int64)
    codes[rows] = found.indices.fill_null(-1).to_numpy()
    return SchemaHeaders(codes, found.dictionary.to_pylist())


def parse_schema_header(raw: bytes, *, indexes: bool) -> SchemaHeader | None:
    """Parses a header, with the message's path (`indexes`) for Protobuf; None: it names no schema."""
    size = _BYTES.get(raw[0], len(raw)) if raw else 0
    if not raw or len(raw) <= size:
        return None
    number = int.from_bytes(raw[1 : 1 + size], "big")
    if raw[0] == 0 and number > _ID_MAX:
        return None
    number |= GUID if raw[0] == 1 else 0
    if not indexes:
        return SchemaHeader(number, FIRST_MESSAGE)
    # The path is written as in a frame, and so it is checked as one.
    end = int(skip_indexes(np.frombuffer(raw, np.uint8), 1 + size, len(raw)))
    return None if end < 0 else SchemaHeader(number, message_indexes(raw[1 + size : end]))


def guid_text(number: int) -> str:
    """A GUID as registries write it."""
    digits = f"{number - GUID:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def guid_number(text: str) -> int:
    """The number of a GUID. Raises ValueError for a text that is none."""
    digits = text.replace("-", "")
    if len(digits) != 32:
        raise ValueError(f"{text!r} is no GUID")
    return GUID | int.from_bytes(bytes.fromhex(digits), "big")
