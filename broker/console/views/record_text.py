"""Keys, values and headers as text: what is text as it is, JSON indented where there is room, else hexadecimal. Pure.

What holds: what is shown is not longer than was asked for, and nothing of it was changed: JSON is laid out by its own
characters, numbers and names as they were written.
"""

import json
import re
from typing import Final, NamedTuple

BEFORE_HEX: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Characters that no text has, though UTF-8 has them."""
JSON_BYTES_MAX: Final = 256 << 10
"""A longer text is not looked into."""
_TOKENS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_INDENT: Final = "  "
HEX_BYTES_A_GROUP: Final = 4


class ShownBytes(NamedTuple):
    """A key, a value, or what a header says."""

    form: str
    """null, text, JSON, hex, or the language of the schema that it was read by."""
    text: str
    size: int
    """Bytes of all of it."""
    is_cut: bool = False
    note: str = ""
    """Why it is not shown as its schema says."""
    schema_id: int | None = None


NULL: Final = ShownBytes("null", "", 0)


def shown_bytes(data: bytes | None, *, characters_max: int, is_whole: bool = False) -> ShownBytes:
    """`is_whole`: on a page of its own, where JSON is laid out."""
    if data is None:
        return NULL
    # A character has four bytes at most.
    text = _text(data[: 4 * characters_max], is_cut=len(data) > 4 * characters_max)
    if text is None:
        digits = data[: characters_max // 2].hex(" ", -HEX_BYTES_A_GROUP)
        return ShownBytes("hex", digits, len(data), len(data) > characters_max // 2)
    if is_whole and len(data) <= JSON_BYTES_MAX and (laid_out := indented(text)) is not None:
        return _cut(ShownBytes("JSON", laid_out, len(data)), characters_max)
    shown = ShownBytes("text", text, len(data), 4 * characters_max < len(data))
    return _cut(shown, characters_max)


def shown_json(
    text: str, form: str, schema_id: int, size: int, *, characters_max: int, is_whole: bool = False
) -> ShownBytes:
    """What was read by a schema of the language `form`; `text` may have been cut already."""
    laid_out = indented(text) if is_whole else None
    shown = ShownBytes(form, laid_out or text, size, schema_id=schema_id)
    return _cut(shown, characters_max)


def _cut(shown: ShownBytes, characters_max: int) -> ShownBytes:
    if len(shown.text) <= characters_max:
        return shown
    return shown._replace(text=shown.text[:characters_max], is_cut=True)


def _text(data: bytes, *, is_cut: bool) -> str | None:
    """None: it is none."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        # The last character may have been cut.
        if not is_cut or error.start < len(data) - 3:
            return None
        text = data[: error.start].decode()
    return None if BEFORE_HEX.search(text) else text


def indented(text: str) -> str | None:
    """A JSON object or list, laid out; None: it is none."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    parts: list[str] = []
    depth = 0
    before = ""
    for part in _TOKENS.findall(text):
        if part in "}]":
            depth -= 1
            parts.append(part if before in ("{", "[") else f"\n{_INDENT * depth}{part}")
        else:
            if before in ("{", "[", ","):
                parts.append(f"\n{_INDENT * depth}")
            parts.append(": " if part == ":" else part)
            depth += part in "{["
        before = part
    return "".join(parts)
