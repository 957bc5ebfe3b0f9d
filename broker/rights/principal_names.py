"""From the subject of a client's certificate to its principal (`ssl.principal.mapping.rules`). Pure.

Two steps, both as in Kafka, whose names stand in everybody's ACLs:

* `rfc2253` spells a subject as Java's `X500Principal.getName()` does: most specific first, attributes
  by the keywords of RFC 2253, all others by number with their bytes (`1.2.840.113549.1.9.1=#16…`).
* `PrincipalRules` are the rules of KIP-371: the first one whose pattern matches the whole name wins.

Patterns are Java's in Kafka and RE2's here, which has no look-around, no back references inside a
pattern and no possessive quantifiers: such rules are refused.
"""

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import re2

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_STRINGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""Tags of what Java takes for text: UTF8, Printable, T61, IA5, General, BMP. It reads all of them as
UTF-8, also those that are not; so do we, since the names have to be the same."""
_SEQUENCE, _OBJECT_IDENTIFIER = 0x30, 0x06
_ESCAPED: Final = frozenset(',=+<>#;"\\')

# Kafka's SslPrincipalMapper.
_RULE: Final = r"(DEFAULT)|RULE:((\\.|[^\\/])*)\/((\\.|[^\\/])*)\/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(,\s*|$)", re.DOTALL)
_PARSER: Final = re.compile(_RULE, re.DOTALL)
_REPLACEMENT: Final = re.compile(r"\\(.)|\$(\d+)", re.DOTALL)


class NoRuleError(Exception):
    """No rule applies to a name: its owner is not let in."""


def rfc2253(subject: bytes) -> str:
    """The subject of a certificate, a Name in DER, in words. Raises ValueError."""
    tag, body, _ = _element(subject, 0)
    if tag != _SEQUENCE:
        raise ValueError("a subject that is no sequence")
    names = ["+".join(map(_attribute, _elements(_element(part, 0)[1]))) for part in _elements(body)]
    return ",".join(reversed(names))


def _attribute(data: bytes) -> str:
    _, body, _ = _element(data, 0)
    kind, identifier, end = _element(body, 0)
    if kind != _OBJECT_IDENTIFIER:
        raise ValueError("an attribute without a type")
    number = _dotted(identifier)
    value = body[end:]
    tag, content, _ = _element(value, 0)
    if number not in _KEYWORDS or tag not in _STRINGS:
        return f"{_KEYWORDS.get(number, number)}=#{value.hex()}"
    return f"{_KEYWORDS[number]}={_escaped(content.decode(errors='replace'))}"


def _escaped(text: str) -> str:
    before = len(text) - len(text.lstrip(" "))
    behind = len(text.rstrip(" "))
    parts = []
    for index, character in enumerate(text):
        if character in _ESCAPED or (character == " " and (index < before or index >= behind)):
            parts.append("\\")
        parts.append("\\00" if character == "\0" else character)
    return "".join(parts)


def _element(data: bytes, start: int) -> tuple[int, bytes, int]:
    """Tag, content, and where the next element begins."""
    if len(data) < start + 2:
        raise ValueError("a subject that is cut off")
    tag, length, at = data[start], data[start + 1], start + 2
    if length & 0x80:
        size = length & 0x7F
        length = int.from_bytes(data[at : at + size])
        at += size
    if len(data) < at + length:
        raise ValueError("a subject that is cut off")
    return tag, data[at : at + length], at + length


def _elements(content: bytes) -> Iterator[bytes]:
    """Each whole, with its tag and length."""
    at = 0
    while at < len(content):
        _, _, end = _element(content, at)
        yield content[at:end]
        at = end


def _dotted(identifier: bytes) -> str:
    numbers, value = [], 0
    for byte in identifier:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    first = numbers[0] if numbers else 0
    top = min(first // 40, 2)
    return ".".join(map(str, [top, first - 40 * top, *numbers[1:]]))


class _Rule(NamedTuple):
    pattern: Any
    """None: the name as it is (DEFAULT)."""
    replacement: str
    case: str
    """L, U or ""."""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        parts, at = [], 0
        for match in self.pattern.finditer(name):
            parts += [name[at : match.start()], self._filled(match)]
            at = match.end()
        result = "".join(parts) + name[at:]
        return {"L": result.lower(), "U": result.upper()}.get(self.case, result)

    def _filled(self, match: Any) -> str:
        """The replacement with the match's groups, as Java's `replaceAll` fills it."""

        def one(part: re.Match[str]) -> str:
            if part[1] is not None:
                return part[1]
            digits: str = part[2]
            if int(digits[0]) > self.pattern.groups:
                return f"${digits}"
            length = 1
            while length < len(digits) and int(digits[: length + 1]) <= self.pattern.groups:
                length += 1
            return (match.group(int(digits[:length])) or "") + digits[length:]

        return _REPLACEMENT.sub(one, self.replacement)


class PrincipalRules:
    """The rules of one listener."""

    def __init__(self, text: str) -> None:
        """Raises ValueError with the end of a sentence."""
        self._rules = tuple(_rules(text))

    def principal(self, name: str) -> str:
        """The name that the first rule makes of it. Raises NoRuleError."""
        for rule in self._rules:
            result = rule.apply(name)
            if result is not None:
                return result
        raise NoRuleError(f'no rule of ssl.principal.mapping.rules applies to "{name}"')


def _rules(text: str) -> Iterator[_Rule]:
    for split in _SPLITTER.finditer(text.strip()):
        rule = split[1]
        parsed = _PARSER.match(rule)
        if parsed is None or parsed.end() != len(rule):
            if rule == "":
                continue
            raise ValueError(f'"{rule}" is neither DEFAULT nor RULE:pattern/replacement/[LU]')
        if parsed[1] is not None:
            yield _Rule(None, "", "")
        elif parsed[2] is not None:
            yield _Rule(_compiled(parsed[2]), parsed[4], parsed[6])


def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")
        raise ValueError(
            f"the pattern {pattern} is not one that is taken here: {reason}"
        ) from error
