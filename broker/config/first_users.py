"""Reads `first.users`: users of SCRAM for a cluster that never had any, as Kafka's tool takes them. Pure.

    SCRAM-SHA-512=[name=alice,password=secret,iterations=8192]

That is `kafka-storage.sh format --add-scram`, several separated by commas. Instead of `password` there
may be `saltedpassword` with its `salt`, both in base64. No sentence repeats a value.
"""

import binascii
import re
from base64 import b64decode
from dataclasses import dataclass, field
from typing import Final

from broker.config import values

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384
MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")

_USER: Final = re.compile(r"\s*(?P<mechanism>[A-Za-z0-9-]+)=\[(?P<options>[^\]]*)\]\s*(?:,|$)")
_OPTIONS: Final = ("name", "password", "iterations", "salt", "saltedpassword")


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstUser:
    """One of them."""

    name: str
    mechanism: str
    iterations: int
    password: str | None = field(repr=False)
    """None: the salted one is there, and the salt."""
    salt: bytes | None = field(repr=False)
    """None: to be drawn."""
    salted_password: bytes | None = field(repr=False)


def first_users(text: str) -> tuple[FirstUser, ...]:
    """The users that `text` names. Raises ValueError with the end of a sentence."""
    found: list[FirstUser] = []
    at = 0
    while at < len(text.rstrip()):
        match = _USER.match(text, at)
        if match is None or match["mechanism"].upper() not in MECHANISMS:
            raise ValueError("write it as SCRAM-SHA-512=[name=…,password=…], several with commas")
        found.append(_user(match["mechanism"].upper(), match["options"]))
        at = match.end()
    if len({(user.name, user.mechanism) for user in found}) < len(found):
        raise ValueError("it names a user twice")
    return tuple(found)


def _user(mechanism: str, text: str) -> FirstUser:
    options: dict[str, str] = {}
    for item in text.split(","):
        name, equals, value = item.strip().partition("=")
        if not equals or name not in _OPTIONS or name in options:
            raise ValueError(f"a user has each of {', '.join(_OPTIONS)} once at most")
        options[name] = value.strip('"')
    if not options.get("name"):
        raise ValueError("a user has no name")
    if bool(options.get("password")) == bool(options.get("saltedpassword")):
        raise ValueError("a user has a password or a saltedpassword, and not both")
    if "saltedpassword" in options and "salt" not in options:
        raise ValueError("a saltedpassword comes with its salt")
    return FirstUser(
        name=options["name"],
        mechanism=mechanism,
        iterations=values.whole_number(
            options.get("iterations", str(ITERATIONS_MIN)),
            minimum=ITERATIONS_MIN,
            maximum=ITERATIONS_MAX,
        ),
        password=options.get("password"),
        salt=_base64(options.get("salt")),
        salted_password=_base64(options.get("saltedpassword")),
    )


def _base64(text: str | None) -> bytes | None:
    try:
        return None if text is None else b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("salt and saltedpassword are base64") from None
