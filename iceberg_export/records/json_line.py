"""A JSON object as a line: judged byte by byte by the grammar of RFC 8259, copied, and fields left out on the way.

The grammar is a table: what state a byte leads to from a state. A few bytes are steps besides (brackets, commas,
names, nulls), for which the loop has more to do. Whether bytes are UTF-8 is not judged here. Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from iceberg_export.records.decode import Bytes, Ints, compiled

DEPTH_MAX = 100
DIGITS_MAX = 4000
"""Python reads no integer of more than 4,300."""

_BLANKS, _DIGITS, _DIGITS_1, _HEX = (
    b" \t\r\n",
    b"0123456789",
    b"123456789",
    b"0123456789abcdefABCDEF",
)
_CHARACTERS = bytes(byte for byte in range(32, 256) if byte not in b'"\\')
_WORDS = ("true", "false", "null")

_VALUE_BEGINS = {
    _BLANKS: "value",
    b"{": "OPEN OBJECT",
    b"[": "OPEN LIST",
    b'"': "text",
    b"-": "minus",
    b"0": "zero",
    _DIGITS_1: "whole",
    b"t": "t",
    b"f": "f",
    b"n": "NULL",
}
_VALUE_ENDS = {_BLANKS: "after", b",": "COMMA", b"}": "CLOSE OBJECT", b"]": "CLOSE LIST"}


def _string(state: str, after: str) -> dict[str, dict[bytes, str]]:
    """The states of a string's characters."""
    digits = [f"{state} u{count}" for count in range(1, 5)]
    following = [*digits[1:], state]
    return {
        state: {_CHARACTERS: state, b'"': after, b"\\": f"{state} escape"},
        f"{state} escape": {b'"\\/bfnrt': state, b"u": digits[0]},
        **{one: {_HEX: then} for one, then in zip(digits, following, strict=True)},
    }


_GRAMMAR: Mapping[str, Mapping[bytes, str]] = {
    "begin": {_BLANKS: "begin", b"{": "OPEN OBJECT"},
    "first name": {_BLANKS: "first name", b'"': "NAME BEGINS", b"}": "CLOSE OBJECT"},
    "name": {_BLANKS: "name", b'"': "NAME BEGINS"},
    **_string("in name", "NAME ENDS"),
    "colon": {_BLANKS: "colon", b":": "value"},
    "first value": _VALUE_BEGINS | {_BLANKS: "first value", b"]": "CLOSE LIST"},
    "value": _VALUE_BEGINS,
    **_string("text", "after"),
    "minus": {b"0": "zero", _DIGITS_1: "whole"},
    "zero": _VALUE_ENDS | {b".": "point", b"eE": "exponent"},
    "whole": _VALUE_ENDS | {_DIGITS: "whole", b".": "point", b"eE": "exponent"},
    "point": {_DIGITS: "fraction"},
    "fraction": _VALUE_ENDS | {_DIGITS: "fraction", b"eE": "exponent"},
    "exponent": {b"+-": "signed", _DIGITS: "power"},
    "signed": {_DIGITS: "power"},
    "power": _VALUE_ENDS | {_DIGITS: "power"},
    **{
        word[:count]: {word[count].encode(): "after" if word[: count + 1] == word else word[: count + 1]}
        for word in _WORDS
        for count in range(1, len(word))
    },
    "after": _VALUE_ENDS,
    "done": {_BLANKS: "done"},
}  # fmt: skip
"""By state, what a byte leads to; a byte that is not listed is refused. Steps are in capitals."""
_STEPS = (
    *("REFUSED", "OPEN OBJECT", "OPEN LIST", "CLOSE OBJECT", "CLOSE LIST", "COMMA"),
    *("NAME BEGINS", "NAME ENDS", "NULL"),
)
_NUMBERS = {name: number for number, name in enumerate((*_GRAMMAR, *_STEPS))}


def _table() -> Bytes:
    table = np.full((len(_GRAMMAR), 256), _NUMBERS["REFUSED"], np.uint8)
    for state, rules in _GRAMMAR.items():
        for characters, then in rules.items():
            table[_NUMBERS[state], list(characters)] = _NUMBERS[then]
    return table


_NEXT = _table()
_BEGIN, _FIRST_NAME, _NAME, _IN_NAME, _COLON, _FIRST_VALUE, _VALUE, _IN_NULL, _AFTER, _DONE = (
    _NUMBERS[name]
    for name in ("begin", "first name", "name", "in name", "colon", "first value", "value", "n", "after", "done")
)  # fmt: skip
_REFUSED, _OPEN_OBJECT, _OPEN_LIST, _CLOSE_OBJECT, _CLOSE_LIST, _COMMA, _NAME_BEGINS, _NAME_ENDS, _NULL = (
    _NUMBERS[name] for name in _STEPS
)  # fmt: skip
_SPACE, _BACKSLASH, _LIST = ord(" "), ord("\\"), ord("[")
_BRACKET, _SEPARATOR = ord("}"), ord(",")


Names = tuple[Bytes, Ints]
"""Names one behind the other, and where each ends."""


def names_of(names: Iterable[str]) -> Names:
    """Returns names as `copy_object` has them."""
    texts = [name.encode() for name in names]
    ends = np.cumsum([len(text) for text in texts]).astype(np.int64)
    return np.frombuffer(b"".join(texts), np.uint8), ends


@compiled
def copy_object(  # noqa: C901 - one pass over the bytes.
    data: Bytes, span: Any, out: Any, above: Bytes, wanted: Any
) -> tuple[int, int, bool]:
    """Copy one object to a line, with spaces for the blanks between its tokens.

    `wanted` has names, and a mark for each of them that is met. Of the object's own fields those are copied, and
    such as have an escape in their name; without names all. `above`: for open brackets, of `DEPTH_MAX` + 2. Returns
    (where the copy ends, how many objects and nulls in it are elements of lists, whether all is ASCII); -1: it is no
    object, nests deeper than `DEPTH_MAX`, or may have a number that Python does not read.
    """
    at, end = span
    lines, place = out
    state, depth, listed, seen = _BEGIN, 0, 0, 0
    name, is_kept, kept_place, kept_listed = at, True, place, 0
    for source in range(at, end):
        byte = data[source]
        seen |= byte
        # Below a space are blanks alone: in strings they are refused.
        lines[place] = max(byte, _SPACE)
        place += 1
        state = _NEXT[state, byte]
        if state < _REFUSED:
            continue
        if state == _REFUSED:
            return -1, 0, False
        if state == _NAME_BEGINS:
            name, state = source + 1, _IN_NAME
        elif state == _NAME_ENDS:
            state = _COLON
            if depth == 1 and len(wanted[1]):
                is_kept = _is_kept(data, name, source, wanted)
        elif state == _NULL:
            listed += above[depth] == _LIST
            state = _IN_NULL
        elif state in (_OPEN_OBJECT, _OPEN_LIST):
            listed += above[depth] == _LIST and state == _OPEN_OBJECT
            depth += 1
            if depth > DEPTH_MAX:
                return -1, 0, False
            above[depth] = byte
            state = _FIRST_NAME if state == _OPEN_OBJECT else _FIRST_VALUE
            if depth == 1:
                kept_place = place
        else:
            if depth == 1:
                if not is_kept:
                    place, listed = kept_place, kept_listed
                kept_place, kept_listed = place, listed
            if state == _COMMA:
                state = _VALUE if above[depth] == _LIST else _NAME
                continue
            if (state == _CLOSE_LIST) != (above[depth] == _LIST):
                return -1, 0, False
            depth -= 1
            state = _AFTER if depth else _DONE
            if depth == 0 and not is_kept:
                place = _close(lines, place)
    if state != _DONE or (end - at > DIGITS_MAX and _has_long_number(data, at, end)):
        return -1, 0, False
    return place, listed, seen < 0x80


@compiled
def _close(lines: Bytes, place: int) -> int:
    """Close an object behind its bracket or a comma, which goes. Returns where it ends."""
    if lines[place - 1] == _SEPARATOR:
        place -= 1
    lines[place] = _BRACKET
    return place + 1


@compiled
def _is_kept(data: Bytes, at: int, end: int, wanted: Any) -> bool:
    """Whether a field of this name is copied, with the names marked that it may be."""
    names, met = wanted
    found = find_name(data, at, end, names, 0)
    if found >= 0:
        met[found] = True
        return True
    is_escaped = False
    for place in range(at, end):
        is_escaped |= data[place] == _BACKSLASH
    if is_escaped:
        met[:] = True
    return is_escaped


@compiled
def find_name(data: Bytes, at: int, end: int, names: Any, hint: int) -> int:
    """Which of the names this is, looked for from `hint` on: most records have them in the same order. -1: none."""
    text, ends = names
    count = len(ends)
    for step in range(count):
        field = (hint + step) % count
        first = ends[field - 1] if field > 0 else 0
        if ends[field] - first != end - at:
            continue
        same = True
        for offset in range(end - at):
            if text[first + offset] != data[at + offset]:
                same = False
                break
        if same:
            return field
    return -1


@compiled
def _has_long_number(data: Bytes, at: int, end: int) -> bool:
    """More digits in a row than `DIGITS_MAX`, wherever."""
    count = 0
    for place in range(at, end):
        count = count + 1 if 48 <= data[place] <= 57 else 0
        if count > DIGITS_MAX:
            return True
    return False
