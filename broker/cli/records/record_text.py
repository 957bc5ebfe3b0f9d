"""Records as text, and text as records: JSON objects, templates, and bytes in hexadecimal or base64. Pure.

A record as JSON is one object a line (`json_line`, `record_of_json`): topic, partition, offset, timestamp in ms, key,
value, and headers in their order. Bytes are a string when they are UTF-8, else `{"base64": "…"}`, so nothing is lost,
and what `frazil consume --json` writes is what `frazil produce --json` reads. Templates are those of kcat (`-f`).
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping, Sequence
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


def json_line(record: ConsumedRecord) -> bytes:
    """Returns a record as one line of JSON."""
    # A third of the time of json.dumps, which makes an encoder for each object.
    headers = ",".join(
        [
            f'{{"name":{_quoted(name)},"value":{_json_bytes(value)}}}'
            for name, value in record.headers
        ]
    )
    return (
        f'{{"topic":{_quoted(record.topic)},"partition":{record.partition},"offset":{record.offset},'
        f'"timestamp":{record.timestamp_ms},"key":{_json_bytes(record.key)},'
        f'"value":{_json_bytes(record.value)},"headers":[{headers}]}}\n'
    ).encode()


_quoted = json.encoder.encode_basestring_ascii


def _json_bytes(data: bytes | None) -> str:
    if data is None:
        return "null"
    try:
        return _quoted(data.decode())
    except UnicodeDecodeError:
        return f'{{"base64":"{base64.b64encode(data).decode()}"}}'


def record_of_json(line: bytes, *, keeps_place: bool = False) -> NewRecord:
    """The inverse of `json_line`. `keeps_place`: also the partition. Raises RecordError."""
    found = _object_of(line)
    headers = found.get("headers") or ()
    if not isinstance(headers, list | tuple):
        raise RecordError(_WRONG_HEADERS)
    return NewRecord(
        key=_bytes_of(found.get("key"), "key"),
        value=_bytes_of(found.get("value"), "value"),
        headers=[_header_of(one) for one in headers],
        partition=_whole(found, "partition", -1) if keeps_place else -1,
        timestamp_ms=_whole(found, "timestamp", None),
    )


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

    key: Encode
    value: Encode
    null: bytes


def template_of(text: str, *, key: str = "raw", value: str = "raw", null: str = "") -> Template:
    """Reads a template: kcat's letters behind %, and escapes. `key` and `value`: of `ENCODINGS`; `null`: what is
    written for no key and no value. Raises RecordError."""
    fields = _Fields(ENCODINGS[key][0], ENCODINGS[value][0], null.encode())
    plain, *others = re.split(r"%(.?)", text, flags=re.DOTALL)
    pieces = [_constant(unescaped(plain))]
    for letter, after in zip(others[::2], others[1::2], strict=True):
        pieces += [_piece(letter, fields), _constant(unescaped(after))]
    return Template(pieces)


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
            return lambda record: null if record.value is None else value(record.value)
        case "k":
            return lambda record: null if record.key is None else key(record.key)
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
    key: str = "raw"
    value: str = "raw"
    """Of `ENCODINGS`."""
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
    read_key, read_value = ENCODINGS[how.key][1], ENCODINGS[how.value][1]
    return NewRecord(
        None if key is None or key == how.null else read_key(key),
        None if value == how.null else read_value(value),
    )
