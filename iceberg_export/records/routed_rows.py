"""The rows of a route (`routes`): a mask over rows as they were read, before anything is decoded.

A compiled loop walks over the bytes of JSON values once, along the path of the field. It does not judge JSON: of
text that is none it tells a value or none, always the same, and what becomes of the record is decided where it is
decoded. For JSON it tells what a parser would: the last of equal names counts. Pure.
"""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_export.names import HEADERS, KEY, VALUE
from iceberg_export.records.decode import Bytes, Ints, compiled, gather
from iceberg_export.records.rows import SpanRows, header_places, single_array
from iceberg_export.routes import Route

_QUOTE, _BACKSLASH, _COLON, _COMMA, _NULL = ord('"'), ord("\\"), ord(":"), ord(","), ord("n")
_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = ord("{"), ord("}"), ord("["), ord("]")
_SPACE, _UNICODE = ord(" "), ord("u")
_ESCAPES = np.full(256, -1, np.int64)
_ESCAPES[list(b'"\\/bfnrt')] = list(b'"\\/\b\f\n\r\t')
"""What stands for what behind a backslash."""
_FRAME_BYTES = 5
"""A zero and a schema's id; no JSON begins with a zero."""
_NONE, _PLAIN, _ESCAPED = range(3)
"""What a value has at the path: nothing that could be listed, bytes, text with escapes."""
_ESCAPE_BYTES_MAX = 6
"""That escapes take for a byte."""


def piece_of_route(route: Route | None, piece: SpanRows) -> pa.Table:
    """Returns the rows of the piece that are of the route: what cannot be read is the topic's own table's."""
    if route is None or piece.rows.num_rows == 0:
        return piece.rows
    if piece.reasons:
        return piece.rows if route.takes_others else piece.rows.slice(0, 0)
    mask = rows_of_route(route, piece.rows)
    # A record may be large: it is not copied only to be all that there was.
    if pc.all(mask).as_py():
        return piece.rows
    return piece.rows.filter(mask) if pc.any(mask).as_py() else piece.rows.slice(0, 0)


def rows_of_route(route: Route, rows: pa.Table) -> pa.Array:
    """Returns which rows of `ROW_SCHEMA` are of the route."""
    if route.path:
        longest = max((len(value.encode()) for value in route.values), default=0)
        values = _fields(single_array(rows.column(VALUE)), route.path, longest)
    elif route.header is not None:
        values = _header(single_array(rows.column(HEADERS)), route.header)
    else:
        values = single_array(rows.column(KEY))
    wanted = pa.array([value.encode() for value in route.values], pa.large_binary())
    among = pc.is_in(values, wanted)
    return pc.invert(among) if route.takes_others else among


def _header(headers: pa.Array, name: str) -> pa.Array:
    """Returns the values of the headers of that name; of several in a row the last."""
    places = header_places(headers, name)
    return headers.values.field("value").take(pa.array(places, mask=places < 0))


def _fields(values: pa.Array, path: tuple[str, ...], longest: int) -> pa.Array:
    """Returns text, numbers, true and false at the path of JSON values, as bytes; null for all others, and for
    what is longer than so many bytes."""
    count = len(values)
    _, offset_buffer, data_buffer = values.buffers()
    if count == 0 or data_buffer is None or data_buffer.size == 0:
        return pa.nulls(count, pa.large_binary())
    offsets = np.frombuffer(offset_buffer, np.int64)[values.offset :][: count + 1]
    data = np.frombuffer(data_buffer, np.uint8)
    names = [name.encode() for name in path]
    ends = np.cumsum([len(name) for name in names])
    starts, lengths = np.zeros(count, np.int64), np.full(count, -1, np.int64)
    kinds = np.zeros(count, np.uint8)
    wanted = np.frombuffer(b"".join(names), np.uint8)
    _find(data, offsets, (wanted, ends), (starts, lengths, kinds))
    longest_of_kind = np.array([0, longest, longest * _ESCAPE_BYTES_MAX])
    too_long = lengths > longest_of_kind[kinds]
    kinds[too_long], lengths[too_long] = _NONE, -1
    places, found = gather(data, starts, lengths)
    buffers = [
        pa.py_buffer(np.packbits(kinds != _NONE, bitorder="little")),
        pa.py_buffer(places),
        pa.py_buffer(found),
    ]
    column = pa.Array.from_buffers(pa.large_binary(), count, buffers)
    escaped = kinds == _ESCAPED
    if not escaped.any():
        return column
    texts = [_unescaped(text) for text in column.filter(pa.array(escaped)).to_pylist()]
    return pc.replace_with_mask(column, pa.array(escaped), pa.array(texts, pa.large_binary()))


def _unescaped(text: bytes) -> bytes | None:
    try:
        found: str = json.loads(f'"{text.decode()}"')
    except ValueError:
        return None
    return found.encode("utf-8", "surrogatepass")


@compiled
def _find(data: Bytes, offsets: Ints, path: Any, out: Any) -> None:
    """Where each value has what is at the path."""
    starts, lengths, kinds = out
    for row in range(len(starts)):
        at, end = offsets[row], offsets[row + 1]
        if at < end and data[at] == 0:
            at += _FRAME_BYTES
        at = _after_blanks(data, at, end)
        if at >= end or data[at] != _OPEN:
            continue
        kind, start, after = _walk(data, at + 1, end, path)
        kinds[row] = kind
        if kind != _NONE:
            starts[row], lengths[row] = start, after - start


@compiled
def _walk(data: Bytes, at: int, end: int, path: Any) -> tuple[int, int, int]:
    """(what an object has at the path, from, to); `at`: behind its bracket. `depth` counts open brackets,
    `inside` how many objects along the path are open: names count in the innermost of them alone, which is at
    that depth."""
    steps = len(path[1])
    kind, start, after = _NONE, 0, 0
    depth, inside = 1, 1
    while at < end and depth:
        byte = data[at]
        if byte == _QUOTE:
            close, _ = _string_end(data, at + 1, end)
            if close < 0:
                return _NONE, 0, 0
            name, at = at + 1, close + 1
            value = _after_colon(data, at, end) if depth == inside else -1
            if value < 0 or not _is_named(data, name, close, (path, inside)):
                continue
            at = value
            # The last of equal names counts.
            kind, start, after = _NONE, 0, 0
            if inside == steps:
                kind, start, after = _scalar(data, at, end)
            elif at < end and data[at] == _OPEN:
                depth += 1
                inside += 1
                at += 1
            continue
        if byte in (_OPEN, _OPEN_LIST):
            depth += 1
        elif byte in (_CLOSE, _CLOSE_LIST):
            depth -= 1
            inside = min(inside, depth)
        at += 1
    if depth or _after_blanks(data, at, end) != end:
        return _NONE, 0, 0
    return kind, start, after


@compiled
def _scalar(data: Bytes, at: int, end: int) -> tuple[int, int, int]:
    """(what a text, a number, true or false is, from, to); objects, arrays and null are none."""
    if at >= end or data[at] in (_OPEN, _OPEN_LIST, _NULL):
        return _NONE, 0, 0
    if data[at] == _QUOTE:
        close, has_escapes = _string_end(data, at + 1, end)
        if close < 0:
            return _NONE, 0, 0
        return (_ESCAPED if has_escapes else _PLAIN), at + 1, close
    after = at
    while after < end and data[after] > _SPACE and data[after] not in (_COMMA, _CLOSE, _CLOSE_LIST):
        after += 1
    return _PLAIN, at, after


@compiled
def _string_end(data: Bytes, at: int, end: int) -> tuple[int, bool]:
    """(the place of the quote that ends a text, -1 without one; whether the text has escapes)."""
    has_escapes = False
    while at < end:
        if data[at] == _QUOTE:
            return at, has_escapes
        if data[at] == _BACKSLASH:
            has_escapes = True
            at += 1
        at += 1
    return -1, has_escapes


@compiled
def _after_blanks(data: Bytes, at: int, end: int) -> int:
    while at < end and data[at] in (32, 9, 10, 13):
        at += 1
    return at


@compiled
def _after_colon(data: Bytes, at: int, end: int) -> int:
    """The place of the value after a name that ends at `at`; -1 when no colon follows: it is no name."""
    at = _after_blanks(data, at, end)
    return _after_blanks(data, at + 1, end) if at < end and data[at] == _COLON else -1


@compiled
def _is_named(data: Bytes, at: int, end: int, path: Any) -> bool:
    """Whether this text, as JSON has it, is the name at that step of the path, counted from 1."""
    (names, name_ends), step = path
    place = name_ends[step - 2] if step > 1 else 0
    stop = name_ends[step - 1]
    while at < end and 0 <= place < stop:
        if data[at] != _BACKSLASH:
            place = place + 1 if names[place] == data[at] else -1
            at += 1
            continue
        code, at = _escape(data, at + 1, end)
        place = _after_code(names, place, stop, code)
    return bool(at == end and place == stop)


@compiled
def _escape(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """(the code point of what is behind a backslash, -1 when that is none; where it ends)."""
    if data[at] != _UNICODE:
        return _ESCAPES[data[at]], at + 1
    code, at = _four_digits(data, at + 1, end), at + 5
    if (
        0xD800 <= code < 0xDC00
        and at + 1 < end
        and data[at] == _BACKSLASH
        and data[at + 1] == _UNICODE
    ):
        low = _four_digits(data, at + 2, end)
        if 0xDC00 <= low < 0xE000:
            return 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00), at + 6
    return code, at


@compiled
def _four_digits(data: Bytes, at: int, end: int) -> int:
    """The number that four hexadecimal digits say; -1 when they are none."""
    if at + 4 > end:
        return -1
    code: Any = np.int64(0)
    for place in range(at, at + 4):
        digit = np.int64(data[place]) | 32
        if 48 <= digit <= 57 and data[place] >= 48:
            digit -= 48
        elif 97 <= digit <= 102:
            digit -= 87
        else:
            return -1
        code = code * 16 + digit
    return int(code)


@compiled
def _after_code(names: Bytes, at: int, stop: int, code: int) -> int:
    """The place behind a code point that a name has at `at`, in UTF-8; -1 when it has another there."""
    if code < 0:
        return -1
    count = 1 + (code > 0x7F) + (code > 0x7FF) + (code > 0xFFFF)
    if at + count > stop:
        return -1
    for step in range(count):
        shift = 6 * (count - 1 - step)
        if step:
            byte = 0x80 | ((code >> shift) & 0x3F)
        else:
            byte = code if count == 1 else (0xF00 >> count & 0xFF) | (code >> shift)
        if names[at + step] != byte:
            return -1
    return at + count
