"""The JSON object of a request's body, read at a bounded cost. Pure.

One long text (the schema) is read as fast as it is copied; but a megabyte of brackets takes tens of
milliseconds, and deep ones more stack than there is. So of all that is no text only so much is read.
"""

import json
import re
from typing import Any, Final

MEMBERS_MAX: Final = 50
VALUE_CHARACTERS_MAX: Final = 256 << 10
"""Of a member that is no text: a hundred references with long names."""

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_DECODER: Final = json.JSONDecoder()


def read_object(text: str) -> dict[str, Any]:
    """Raises ValueError with a sentence."""
    try:
        return _read(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _read(text: str) -> dict[str, Any]:
    members: dict[str, Any] = {}
    at = _expect(text, _skip(text, 0), "{")
    at = _skip(text, at)
    if text.startswith("}", at):
        return _ended(text, at, members)
    while True:
        if not text.startswith('"', at):
            raise ValueError(f"a member has a name in quotes (character {at})")
        name, at = _DECODER.raw_decode(text, at)
        at = _skip(text, _expect(text, _skip(text, at), ":"))
        members[name], at = _value(text, at)
        if len(members) > MEMBERS_MAX:
            raise ValueError(f"it has more than {MEMBERS_MAX} members")
        at = _skip(text, at)
        if text.startswith("}", at):
            return _ended(text, at, members)
        at = _skip(text, _expect(text, at, ","))


def _value(text: str, at: int) -> tuple[Any, int]:
    if text.startswith('"', at):
        return _DECODER.raw_decode(text, at)
    value, length = _DECODER.raw_decode(text[at : at + VALUE_CHARACTERS_MAX])
    return value, at + length


def _ended(text: str, at: int, members: dict[str, Any]) -> dict[str, Any]:
    if _skip(text, at + 1) != len(text):
        raise ValueError("something comes after the object")
    return members


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _expect(text: str, at: int, character: str) -> int:
    if not text.startswith(character, at):
        raise ValueError(f'"{character}" is missing (character {at})')
    return at + 1
