"""Records of inferred types by Arrow's reader: what is beside a field is put there before it reads.

A compiled loop copies each record as a line, key by key. A number, text or boolean that does not fit its
field is written as text under the name of the column beside it, one of a field of JSON text as text; so
Arrow's reader, which knows one type a name, has only values that fit. What the loop does not tell for
certain is odd and left to the reference: keys that are no field, keys that come twice, escapes in what
would be text, objects and arrays where there is no column for them, numbers near the end of 64 bits.
"""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from iceberg_export.records.cells import Cells
from iceberg_export.records.decode import Bytes, Ints, compiled
from iceberg_export.records.json_line import DEPTH_MAX, Names, find_name, names_of
from iceberg_export.typed import arrays, types
from iceberg_export.typed.arrays import Bools, conform
from iceberg_export.typed.inferred import ANY, BOOLEAN, INTEGER, NUMBER, TEXT, beside, field_name
from iceberg_export.typed.inferred_rows import Inferred, plain_type
from iceberg_export.typed.json_columns import columns_of_lines
from iceberg_export.typed.json_schema import JsonType

_TEXT, _BOOLEAN, _INTEGER, _NUMBER, _PARTS, _ANY, _ABSENT = range(7)
_CODES = {TEXT: _TEXT, BOOLEAN: _BOOLEAN, INTEGER: _INTEGER, NUMBER: _NUMBER, ANY: _ANY}
_BESIDE, _LATE = 1, 2
_ENDING = np.frombuffer(b"__json", np.uint8)
_DIGITS_SAFE = 18
_MORE_MAX = 12
"""Bytes that a value takes more as text beside its field: the ending, and four quotes with escapes."""

_QUOTE, _BACKSLASH, _SPACE, _COLON, _COMMA = ord('"'), ord("\\"), ord(" "), ord(":"), ord(",")
_OPEN, _CLOSE, _LIST, _NULL, _LINE_FEED = ord("{"), ord("}"), ord("["), ord("n"), ord("\n")
_IS_STRING, _IS_INT, _IS_FRACTION, _IS_BOOLEAN, _IS_NULL, _IS_PARTS, _IS_NONE = range(7)
_PLAIN, _BLANK, _OPENS, _CLOSES, _REFUSED = range(5)
_KINDS = np.zeros(256, np.uint8)
"""What a byte outside strings is. No N and I: Arrow's reader takes NaN and Infinity."""
_KINDS[[*range(32), *b"NI"]] = _REFUSED
_KINDS[list(b" \t\r\n")] = _BLANK
_KINDS[list(b"{[")] = _OPENS
_KINDS[list(b"}]")] = _CLOSES
_WORDS = (b"true", b"false", b"null")
_TRUE, _FALSE, _NO_VALUE = (np.frombuffer(word, np.uint8) for word in _WORDS)


class Routes(NamedTuple):
    """What the loop knows of the fields of a record."""

    names: Names
    codes: Bytes
    flags: Bytes
    shape: JsonType
    """The columns that Arrow's reader makes."""


def _routes_of(inferred: Inferred) -> Routes:
    names: list[str] = []
    codes: list[int] = []
    flags: list[int] = []
    shapes: list[tuple[str, JsonType]] = []
    string = JsonType("string", types.TEXT)
    for name, field in inferred.type.fields.items():
        if field_name(name) != name or '"' in name or "\\" in name:
            continue
        code = _ABSENT
        if field.type is not None:
            code = _CODES.get(field.type.kind, _PARTS)
            plain = string if code == _ANY else plain_type(field.type)
            if code == _PARTS and (field.late or plain.has(ANY)):
                code = _ABSENT
            else:
                shapes.append((name, plain))
        if field.json:
            shapes.append((beside(name), string))
        names.append(name)
        codes.append(code)
        flags.append(_BESIDE * field.json + _LATE * field.late)
    shape = JsonType(
        "object",
        types.struct_of([(name, one.arrow) for name, one in shapes]),
        tuple(shapes),
        1 + sum(one.nodes for _, one in shapes),
    )
    return Routes(names_of(names), np.array(codes, np.uint8), np.array(flags, np.uint8), shape)


def inferred_columns(
    inferred: Inferred, data: Bytes, starts: Ints, lengths: Ints, cells: Cells
) -> tuple[list[pa.Array], Bools] | None:
    """(columns, which rows are odd); None when no field is anything for Arrow's reader. Raises
    TooManyCellsError."""
    routes = _routes_of(inferred)
    if not routes.shape.fields:
        return None
    odd = np.zeros(len(starts), np.bool_)
    more = 3 + _MORE_MAX * len(routes.codes)
    lines = np.empty(int(lengths.sum()) + more * len(starts), np.uint8)
    ends = np.zeros(len(starts) + 1, np.int64)
    table = (routes.names, routes.codes, routes.flags)
    listed = _route_lines(data, (starts, lengths), lines, (ends[1:], odd), table)
    found = columns_of_lines(routes.shape, (lines, ends), (odd, int(listed)), cells, only=True)
    by_name = {name: one for (name, _), one in zip(routes.shape.fields, found, strict=True)}
    columns = [
        conform(by_name[field.name], field.type)
        if field.name in by_name
        else pa.nulls(len(odd), field.type)
        for field in inferred.arrow
    ]
    return columns, odd


@compiled
def _route_lines(data: Bytes, values: Any, lines: Bytes, out: Any, table: Any) -> int:
    """Each value as a line, `{}` for those that are odd. Returns how many objects and nulls are elements
    of lists."""
    starts, lengths = values
    ends, odd = out
    place = 0
    listed = 0
    above = np.zeros(DEPTH_MAX + 2, np.uint8)
    met = np.zeros(len(table[1]), np.int64)
    for row in range(len(starts)):
        at = starts[row]
        end = at + lengths[row]
        after, objects = _route_object(
            data, (at, end), (lines, place), (above, met, row + 1), table
        )
        if after >= 0 and arrays.is_utf8(data, at, end):
            place = after
            listed += objects
        else:
            odd[row] = True
            lines[place] = _OPEN
            lines[place + 1] = _CLOSE
            place += 2
        lines[place] = _LINE_FEED
        place += 1
        ends[row] = place
    return listed


@compiled
def _route_object(  # noqa: C901 - one walk over the fields.
    data: Bytes, span: Any, out: Any, state: Any, table: Any
) -> tuple[int, int]:
    """(where the line ends, how many objects and nulls are elements of lists); -1: it is odd."""
    at, end = span
    lines, place = out
    above, met, mark = state
    listed = 0
    hint = 0
    at = _blanks(data, at, end)
    if at >= end or data[at] != _OPEN:
        return -1, 0
    lines[place] = _OPEN
    place += 1
    at = _blanks(data, at + 1, end)
    is_first = True
    while at < end and data[at] != _CLOSE:
        if not is_first:
            if data[at] != _COMMA:
                return -1, 0
            lines[place] = _COMMA
            place += 1
            at = _blanks(data, at + 1, end)
        is_first = False
        name_end = _string_end(data, at, end)
        if name_end < 0:
            return -1, 0
        field = find_name(data, at + 1, name_end - 1, table[0], hint)
        if field < 0 or met[field] == mark:
            return -1, 0
        met[field] = mark
        hint = field + 1
        value = _blanks(data, name_end, end)
        if value >= end or data[value] != _COLON:
            return -1, 0
        value = _blanks(data, value + 1, end)
        kind, after = _scalar(data, value, end)
        if kind == _IS_NONE:
            return -1, 0
        is_zero = after - value == 2 and data[value] == 45 and data[value + 1] == 48
        where = _where(table[1][field], table[2][field], kind, after - value, is_zero)
        if where < 0:
            return -1, 0
        place = _copy(data, at, name_end - 1, lines, place)
        if where == _BESIDE + 1:
            place = _copy(_ENDING, 0, len(_ENDING), lines, place)
        lines[place] = _QUOTE
        lines[place + 1] = _COLON
        place += 2
        if kind == _IS_PARTS:
            after, place, objects = _copy_parts(data, (value, end), (lines, place), above)
            if after < 0:
                return -1, 0
            listed += objects
        elif where == 0:
            place = _copy(data, value, after, lines, place)
        else:
            place = _copy_as_text(data, (value, after), (lines, place), kind == _IS_STRING)
        at = _blanks(data, after, end)
    if at >= end or _blanks(data, at + 1, end) != end:
        return -1, 0
    lines[place] = _CLOSE
    return place + 1, listed


@compiled
def _where(code: int, flags: int, kind: int, length: int, is_zero: bool) -> int:  # noqa: FBT001
    """0: the field itself; 1: the field, as text; 2: beside it, as text; -1: not for certain."""
    if kind == _IS_NULL:
        return 0 if code != _ABSENT else -1
    if kind == _IS_PARTS:
        return 0 if code == _PARTS else -1
    # -0 is none of Python's integers.
    if kind == _IS_INT and (length > _DIGITS_SAFE or is_zero):
        return -1
    if code == _ANY:
        return -1 if kind == _IS_FRACTION and flags & _LATE else 1
    fits = (
        (code == _TEXT and kind == _IS_STRING)
        or (code == _BOOLEAN and kind == _IS_BOOLEAN)
        or (code == _INTEGER and kind == _IS_INT)
        or (code == _NUMBER and kind in (_IS_INT, _IS_FRACTION))
    )
    if fits:
        return 0
    # A field without a type has none for this one either, unless its values have parts.
    return 2 if flags & _BESIDE and code != _ABSENT else -1


@compiled
def _blanks(data: Bytes, at: int, end: int) -> int:
    while at < end and _KINDS[data[at]] == _BLANK:
        at += 1
    return at


@compiled
def _string_end(data: Bytes, at: int, end: int) -> int:
    """Behind the string that begins here, when there is no escape in it; -1."""
    if at >= end or data[at] != _QUOTE:
        return -1
    at += 1
    while at < end and data[at] != _QUOTE:
        if data[at] < _SPACE or data[at] == _BACKSLASH:
            return -1
        at += 1
    return at + 1 if at < end else -1


@compiled
def _scalar(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """(what kind of value begins here, where it ends)."""
    if at >= end:
        return _IS_NONE, at
    byte = data[at]
    if byte == _QUOTE:
        after = _string_end(data, at, end)
        return (_IS_STRING, after) if after > 0 else (_IS_NONE, at)
    if byte in (_OPEN, _LIST):
        return _IS_PARTS, at
    if byte == 45 or 48 <= byte <= 57:
        return _number(data, at, end)
    if _is_word(data, at, end, _TRUE):
        return _IS_BOOLEAN, at + 4
    if _is_word(data, at, end, _FALSE):
        return _IS_BOOLEAN, at + 5
    if _is_word(data, at, end, _NO_VALUE):
        return _IS_NULL, at + 4
    return _IS_NONE, at


@compiled
def _is_word(data: Bytes, at: int, end: int, word: Bytes) -> bool:
    if end - at < len(word):
        return False
    same = True
    for offset in range(len(word)):
        same = same and data[at + offset] == word[offset]
    return same


@compiled
def _number(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """A number by JSON's grammar (RFC 8259, section 6)."""
    kind = _IS_INT
    if data[at] == 45:
        at += 1
    digits = _digits_end(data, at, end)
    if digits == at or (data[at] == 48 and digits > at + 1):
        return _IS_NONE, at
    at = digits
    if at < end and data[at] == 46:
        kind = _IS_FRACTION
        digits = _digits_end(data, at + 1, end)
        if digits == at + 1:
            return _IS_NONE, at
        at = digits
    if at < end and data[at] | 32 == 101:
        kind = _IS_FRACTION
        at += 1
        if at < end and data[at] in (43, 45):
            at += 1
        digits = _digits_end(data, at, end)
        if digits == at:
            return _IS_NONE, at
        at = digits
    return kind, at


@compiled
def _digits_end(data: Bytes, at: int, end: int) -> int:
    while at < end and 48 <= data[at] <= 57:
        at += 1
    return at


@compiled
def _copy(data: Bytes, at: int, end: int, lines: Bytes, place: int) -> int:
    for source in range(at, end):
        lines[place] = data[source]
        place += 1
    return place


@compiled
def _copy_as_text(data: Bytes, span: Any, out: Any, is_string: bool) -> int:  # noqa: FBT001
    """Copies a number, word, or string without escapes as a string of JSON text. Where the copy ends."""
    at, end = span
    lines, place = out
    lines[place] = _QUOTE
    place += 1
    if is_string:
        lines[place] = _BACKSLASH
        lines[place + 1] = _QUOTE
        place = _copy(data, at + 1, end - 1, lines, place + 2)
        lines[place] = _BACKSLASH
        lines[place + 1] = _QUOTE
        place += 2
    else:
        place = _copy(data, at, end, lines, place)
    lines[place] = _QUOTE
    return place + 1


@compiled
def _text_end(data: Bytes, at: int, end: int) -> int:
    """Behind the string that begins here, escapes and all; -1."""
    at += 1
    while at < end and data[at] != _QUOTE:
        if data[at] < _SPACE:
            return -1
        at += 2 if data[at] == _BACKSLASH else 1
    return at + 1 if at < end else -1


@compiled
def _copy_parts(data: Bytes, span: Any, out: Any, above: Bytes) -> tuple[int, int, int]:
    """Copies an object or array, line breaks between its tokens as spaces. (where it ends, where its copy
    ends, how many objects and nulls in it are elements of lists); -1: it is none."""
    at, end = span
    lines, place = out
    listed = 0
    depth = 0
    while at < end:
        byte = data[at]
        if byte == _QUOTE:
            after = _text_end(data, at, end)
            if after < 0:
                break
            place = _copy(data, at, after, lines, place)
            at = after
            continue
        kind = _KINDS[byte]
        if byte in (_OPEN, _NULL) and depth > 0 and above[depth] == _LIST:
            listed += 1
        if kind == _OPENS and depth < DEPTH_MAX:
            depth += 1
            above[depth] = byte
        elif kind in (_OPENS, _REFUSED):
            break
        if kind == _CLOSES:
            depth -= 1
        lines[place] = _SPACE if kind == _BLANK else byte
        place += 1
        at += 1
        if depth == 0:
            return at, place, listed
    return -1, place, 0
