"""Java's `.properties` files: names and values, as `java.util.Properties.load` reads them. Pure."""

import re
from collections.abc import Iterator
from typing import Final

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.|$)", re.DOTALL)
_NAME: Final = re.compile(r"(?:\\.|[^\\=:\s])*", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")


def parse(file_name: str, text: str) -> list[tuple[str, str]]:
    """Names and values in their order; a name may be there twice. Raises ValueError."""
    found = []
    for number, line in _lines(text):
        name = _NAME.match(line)
        assert name is not None
        separator = _SEPARATOR.match(line, name.end())
        assert separator is not None
        try:
            found.append((_unescaped(name[0]), _unescaped(line[separator.end() :])))
        except ValueError as error:
            raise ValueError(f"{file_name}, line {number}: {error}") from error
    return found


def escaped(text: str) -> str:
    """A value as it stands in a file; what is not ASCII in hexadecimal, since Java reads Latin-1."""
    units = text.encode("utf-16-be")
    codes = [int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2)]
    return "".join(_escaped(code, first=at == 0) for at, code in enumerate(codes))


def _escaped(code: int, *, first: bool) -> str:
    if code == ord("\\"):
        return "\\\\"
    # A blank is one of the value's only behind another character.
    plain = 0x20 < code < 0x7F or (code == 0x20 and not first)
    return chr(code) if plain else f"\\u{code:04x}"


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with something on them, continued ones joined, with the number of the first."""
    begun, parts = 0, ""
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = raw.lstrip(" \t\f")
        if not parts:
            if not line or line[0] in "#!":
                continue
            begun = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            parts += line[:-1]
            continue
        yield begun, parts + line
        parts = ""
    if parts:
        yield begun, parts


def _unescaped(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        escape = match[1]
        if len(escape) == 5:
            return chr(int(escape[1:], 16))
        if escape == "u":
            raise ValueError("a \\u is followed by four hexadecimal digits")
        return _ESCAPES.get(escape, escape)

    return _ESCAPE.sub(one, text)
