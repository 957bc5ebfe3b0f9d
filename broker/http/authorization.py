"""What a request says of who asks: the header Authorization. Pure.

Two schemes are understood: `Basic` (RFC 7617, user and password in UTF-8) and `Bearer` (RFC 6750). What
is malformed is as wrong as a wrong password, and no sentence repeats any of it.
"""

import base64
import binascii
from typing import NamedTuple

from typing_extensions import override


class Password(NamedTuple):
    """`Authorization: Basic …`"""

    user: str
    password: str

    @override
    def __repr__(self) -> str:
        return "Password(…)"


class Token(NamedTuple):
    """`Authorization: Bearer …`"""

    text: str

    @override
    def __repr__(self) -> str:
        return "Token(…)"


class Malformed(NamedTuple):
    """Another scheme, or what cannot be read."""


def said_in(header: str) -> Password | Token | Malformed | None:
    """None: nothing is said."""
    if not header.strip():
        return None
    scheme, _, rest = header.strip().partition(" ")
    match scheme.lower():
        case "bearer" if rest.strip():
            return Token(rest.strip())
        case "basic":
            try:
                user, colon, password = (
                    base64.b64decode(rest.strip(), validate=True).decode().partition(":")
                )
            except (binascii.Error, ValueError):
                return Malformed()
            return Password(user, password) if colon and user else Malformed()
        case _:
            return Malformed()
