"""Reads `sasl.jaas.config`, the line by which Kafka configures a login module. Pure.

    org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";

One module: its class, a flag, options as `key="value"`, a semicolon (Kafka's JaasConfig, which
reads by Java's StreamTokenizer). No sentence about a mistake repeats what stands there, since that
may be a password.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
BEARER_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
FLAGS: Final = ("required", "requisite", "sufficient", "optional")
USER_PREFIX: Final = "user_"
"""An option of PlainLoginModule that begins so is a user, and its value the password."""

_TOKEN: Final = re.compile(
    r"""
      (?P<blank>\s+|//[^\n]*|/\*.*?\*/)
    | "(?P<double>(?:[^"\\\n]|\\.)*)"
    | '(?P<single>(?:[^'\\\n]|\\.)*)'
    | (?P<mark>[=;])
    | (?P<word>[^\s=;"']+)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPES: Final = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A module with its options."""

    name: str
    """Its class in Java."""
    options: Mapping[str, str] = field(repr=False)

    def users(self) -> dict[str, str]:
        """Passwords by user, of PlainLoginModule."""
        return {
            name.removeprefix(USER_PREFIX): value
            for name, value in self.options.items()
            if name.startswith(USER_PREFIX)
        }


class _Mark(Enum):
    """A sign that stands outside of quotes."""

    EQUALS = "="
    END = ";"


def parse(text: str) -> LoginModule:
    """The module that a line configures. Raises ValueError with the end of a sentence."""
    tokens = _tokens(text)
    match tokens[:2]:
        case [str(name), str(flag)] if flag.lower() in FLAGS:
            pass
        case []:
            raise ValueError("it names no login module")
        case _:
            raise ValueError(f"it does not begin with a class and one of {', '.join(FLAGS)}")
    options: dict[str, str] = {}
    at = 2
    while at < len(tokens) and tokens[at] is not _Mark.END:
        match tokens[at : at + 3]:
            case [str(key), _Mark.EQUALS, str(value)]:
                options[key] = value
            case _:
                raise ValueError(f'its option {len(options) + 1} is not like key="value"')
        at += 3
    if at >= len(tokens):
        raise ValueError("there is no semicolon at its end")
    if at + 1 < len(tokens):
        raise ValueError("it names more than one login module; a mechanism has one")
    return LoginModule(name, options)


def _tokens(text: str) -> list[str | _Mark]:
    tokens: list[str | _Mark] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError("a quotation mark in it has no partner")
        at = found.end()
        match found.lastgroup:
            case "double" | "single":
                tokens.append(_ESCAPE.sub(_unescaped, found[found.lastgroup]))
            case "mark":
                tokens.append(_Mark(found["mark"]))
            case "word":
                tokens.append(found["word"])
            case _:  # Blanks and comments.
                pass
    return tokens


def _unescaped(found: re.Match[str]) -> str:
    code = found[1]
    return chr(int(code, 8)) if code[0] in "01234567" else _ESCAPES.get(code, code)
