"""Records as text, and text as records: JSON objects, templates, and bytes in hexadecimal or base64. Pure.

A record as JSON is one object a line (`json_line`, `record_of_json`): topic, partition, offset, timestamp in ms, key,
value, and headers in their order. Bytes are a string when they are UTF-8, else `{"base64": "…"}`, so nothing is lost,
and what `frazil consume --json` writes is what `frazil produce --json` reads. A key or value that is read by a schema
is a JSON value there. Templates are those of kcat (`-f`).

Left out: schemas (`schema_values`), which come here as functions.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

Headers = Sequence[tuple[str, bytes | None]]


class ConsumedRecord(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class NewRecord(NamedTuple):
    """What is sent; None and -1 leave the choice to the client."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int = -1
    timestamp_ms: int | None = None


class RecordError(ValueError):
    """Text is no record; the sentence says why."""


Encode = Callable[[bytes], bytes]
Decode = Callable[[bytes], bytes]


def _from_hex(text: bytes) -> bytes:
    try:
        return bytes.fromhex(text.decode("ascii"))
    except ValueError as error:
        raise RecordError(f"{_shown(text)} is not hexadecimal") from error


def _from_base64(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise RecordError(f"{_shown(text)} is not base64") from error


def _shown(text: bytes) -> str:
    return repr(text[:40].decode(errors="replace"))


ENCODINGS: Final[Mapping[str, tuple[Encode, Decode]]] = {
    "raw": (bytes, bytes),
    "hex": (lambda data: data.hex().encode(), _from_hex),
    "base64": (base64.b64encode, _from_base64),
}
"""How keys and values are written and read, by the name for it."""
BY_SCHEMA: Final = ("avro", "protobuf", "json")
"""Further names: a schema of a registry says it."""

JsonText = Callable[[ConsumedRecord], bytes | None]
"""The key or value of a record as JSON text on one line; None: it is null. Raises RecordError."""


class Taken(NamedTuple):
    """How a key or value is taken from input. Both raise RecordError."""

    of_text: Decode
    of_json: Callable[[Any], bytes]
    """Of what `--json` has in its place; null is no key or value at all."""


def json_line(
    record: ConsumedRecord, texts: Mapping[str, JsonText] = MappingProxyType({})
) -> bytes:
    """Returns a record as one line of JSON. `texts`: of `key` and `value`, where they are read by a schema. Raises
    RecordError as these."""
    # A third of the time of json.dumps, which makes an encoder for each object.
    headers = ",".join(
        [
            f'{{"name":{_quoted(name)},"value":{_json_bytes(value)}}}'
            for name, value in record.headers
        ]
    )
    key = _json_text(texts["key"](record)) if "key" in texts else _json_bytes(record.key)
    value = _json_text(texts["value"](record)) if "value" in texts else _json_bytes(record.value)
    return (
        f'{{"topic":{_quoted(record.topic)},"partition":{record.partition},"offset":{record.offset},'
        f'"timestamp":{record.timestamp_ms},"key":{key},"value":{value},"headers":[{headers}]}}\n'
    ).encode()


def _json_text(text: bytes | None) -> str:
    return "null" if text is None else text.decode()


_quoted = json.encoder.encode_basestring_ascii


def _json_bytes(data: bytes | None) -> str:
    if data is None:
        return "null"
    try:
        return _quoted(data.decode())
    except UnicodeDecodeError:
        return f'{{"base64":"{base64.b64encode(data).decode()}"}}'


def record_of_json(
    line: bytes,
    *,
    keeps_place: bool = False,
    takes: Mapping[str, Taken] = MappingProxyType({}),
) -> NewRecord:
    """The inverse of `json_line`. `keeps_place`: also the partition; `takes`: of `key` and `value`, where they are
    written by a schema. Raises RecordError."""
    found = _object_of(line)
    headers = found.get("headers") or ()
    if not isinstance(headers, list | tuple):
        raise RecordError(_WRONG_HEADERS)
    return NewRecord(
        key=_taken(found, "key", takes),
        value=_taken(found, "value", takes),
        headers=[_header_of(one) for one in headers],
        partition=_whole(found, "partition", -1) if keeps_place else -1,
        timestamp_ms=_whole(found, "timestamp", None),
    )


def _taken(found: Mapping[str, Any], part: str, takes: Mapping[str, Taken]) -> bytes | None:
    said = found.get(part)
    return _bytes_of(said, part) if said is None or part not in takes else takes[part].of_json(said)


_FIELDS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
_KNOWN: Final = frozenset(_FIELDS)
_DECODER: Final = json.JSONDecoder()
_WRONG_HEADERS: Final = 'headers are a list of {"name": "…", "value": "…"}'


def _object_of(line: bytes) -> dict[str, Any]:
    """Raises RecordError."""
    try:
        # Less than half of the time of json.loads, which guesses at the encoding.
        found, end = _DECODER.raw_decode(text := line.decode().strip())
    except ValueError as error:
        raise RecordError(f"it is not JSON: {error}") from error
    if end != len(text) or not isinstance(found, dict):
        raise RecordError(
            "it is no JSON object" if end == len(text) else "it is more than one JSON object"
        )
    if not _KNOWN.issuperset(found):
        stranger = min(found.keys() - _KNOWN)
        raise RecordError(f"a record has no field {stranger!r} ({', '.join(_FIELDS)})")
    return found


def _header_of(one: Any) -> tuple[str, bytes | None]:
    if not isinstance(one, dict) or not isinstance(one.get("name"), str) or one.keys() - _OF_HEADER:
        raise RecordError(_WRONG_HEADERS)
    return one["name"], _bytes_of(one.get("value"), "a header's value")


_OF_HEADER: Final = frozenset({"name", "value"})


def _bytes_of(said: Any, what: str) -> bytes | None:
    if isinstance(said, str):
        try:
            return said.encode()
        except UnicodeEncodeError as error:
            raise RecordError(f"{what} has half of a surrogate pair, which is no text") from error
    if said is None:
        return None
    if isinstance(said, dict) and said.keys() == {"base64"} and isinstance(said["base64"], str):
        return _from_base64(said["base64"].encode())
    raise RecordError(f'{what} is neither a string nor null nor {{"base64": "…"}}')


def _whole(found: Mapping[str, Any], name: str, default: Any) -> Any:
    value = found.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value < 1 << 63:
        raise RecordError(f"{name} is {json.dumps(value)}, no whole number")
    return value


Piece = Callable[[ConsumedRecord], bytes]
"""What a part of a template writes of a record."""


class Template(NamedTuple):
    """A template that was read."""

    pieces: Sequence[Piece]

    def text(self, record: ConsumedRecord) -> bytes:
        return b"".join([piece(record) for piece in self.pieces])


class _Fields(NamedTuple):
    """How keys and values are written, and what stands for null."""

    key: Piece
    value: Piece
    null: bytes


def template_of(
    text: str,
    *,
    key: str = "raw",
    value: str = "raw",
    null: str = "",
    texts: Mapping[str, JsonText] = MappingProxyType({}),
) -> Template:
    """Reads a template: kcat's letters behind %, and escapes. `key` and `value`: of `ENCODINGS`, or of `BY_SCHEMA`, and
    then `texts` has it; `null`: what is written for no key and no value. Raises RecordError; so does what is
    read, as its `texts`."""
    none = null.encode()
    fields = _Fields(
        _or_null(texts["key"], none) if "key" in texts else _key_piece(ENCODINGS[key][0], none),
        _or_null(texts["value"], none)
        if "value" in texts
        else _value_piece(ENCODINGS[value][0], none),
        none,
    )
    plain, *others = re.split(r"%(.?)", text, flags=re.DOTALL)
    pieces = [_constant(unescaped(plain))]
    for letter, after in zip(others[::2], others[1::2], strict=True):
        pieces += [_piece(letter, fields), _constant(unescaped(after))]
    return Template(pieces)


def _key_piece(encode: Encode, null: bytes) -> Piece:
    return lambda record: null if record.key is None else encode(record.key)


def _value_piece(encode: Encode, null: bytes) -> Piece:
    return lambda record: null if record.value is None else encode(record.value)


def _or_null(text_of: JsonText, null: bytes) -> Piece:
    def piece(record: ConsumedRecord) -> bytes:
        text = text_of(record)
        return null if text is None else text

    return piece


def unescaped(text: str) -> bytes:
    """Returns the bytes of text with the escapes \\n, \\t, \\r, \\0, \\\\ and \\xHH. Raises RecordError."""
    plain, *others = re.split(r"\\(x[0-9A-Fa-f]{2}|.?)", text, flags=re.DOTALL)
    found = plain.encode()
    for escape, after in zip(others[::2], others[1::2], strict=True):
        if len(escape) == 3:
            found += bytes([int(escape[1:], 16)])
        elif escape in _ESCAPES:
            found += _ESCAPES[escape]
        else:
            raise RecordError(f"there is no escape \\{escape} (\\n, \\t, \\r, \\0, \\\\, \\xHH)")
        found += after.encode()
    return found


_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def _constant(data: bytes) -> Piece:
    return lambda _record: data


def _piece(letter: str, fields: _Fields) -> Piece:
    """Raises RecordError."""
    key, value, null = fields
    match letter:
        case "s":
            return value
        case "k":
            return key
        case "S":
            return lambda record: _size(record.value)
        case "K":
            return lambda record: _size(record.key)
        case "t":
            return lambda record: record.topic.encode()
        case "p":
            return lambda record: b"%d" % record.partition
        case "o":
            return lambda record: b"%d" % record.offset
        case "T":
            return lambda record: b"%d" % record.timestamp_ms
        case "h":
            return lambda record: b",".join(
                name.encode() + b"=" + (null if one is None else one)
                for name, one in record.headers
            )
        case "%":
            return _constant(b"%")
        case _:
            raise RecordError(f"a template has no %{letter} ({_LETTERS})")


_LETTERS: Final = "%s value, %k key, %S and %K their bytes, %t topic, %p partition, %o offset, %T timestamp, %h headers"


def _size(data: bytes | None) -> bytes:
    return b"-1" if data is None else b"%d" % len(data)


class LineFormat(NamedTuple):
    """How a line of input is a record."""

    key_separator: bytes | None = None
    """Between key and value; None: a line is a value."""
    key: Decode = bytes
    value: Decode = bytes
    """As those of `ENCODINGS`. Raise RecordError."""
    null: bytes | None = None
    """A key or value that is this is null."""


def record_of_line(line: bytes, how: LineFormat) -> NewRecord:
    """Returns the record of a line, without its end. Raises RecordError."""
    key: bytes | None = None
    value = line
    if how.key_separator is not None:
        key, separator, value = line.partition(how.key_separator)
        if not separator:
            raise RecordError(
                f"there is no {how.key_separator.decode(errors='replace')!r} between key and value"
            )
    return NewRecord(
        None if key is None or key == how.null else how.key(key),
        None if value == how.null else how.value(value),
    )
