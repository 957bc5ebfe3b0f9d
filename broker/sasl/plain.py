"""PLAIN (RFC 4616): one message with name and password, held against the users of a listener. Pure.

Users stand in `sasl.jaas.config`. Of their passwords only digests are kept, so comparing takes the
same time wherever two passwords begin to differ, and nothing that shows users shows passwords. Names
and passwords are UTF-8 as they are, without SASLprep, as in Kafka.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from broker.sasl.exchange import Authenticated, Refused, Step

PLAIN: Final = "PLAIN"
PARTS: Final = 3
_NOBODY: Final = bytes(32)
"""No password has this digest."""


@dataclass(frozen=True, slots=True)
class PlainUsers:
    """Who may log in."""

    digests: Mapping[str, bytes] = field(repr=False)
    """Of passwords, by user."""

    @classmethod
    def of(cls, passwords: Mapping[str, str]) -> "PlainUsers":
        return cls({user: _digest(password) for user, password in passwords.items()})

    def knows(self, user: str, password: str) -> bool:
        """Whether this is the user's password."""
        expected = self.digests.get(user, _NOBODY)
        return hmac.compare_digest(expected, _digest(password))


class PlainExchange:
    """One attempt."""

    def __init__(self, users: PlainUsers) -> None:
        self._users = users

    def respond(self, message: bytes) -> Step:
        """Kafka's PlainSaslServer, with its sentences."""
        try:
            parts = message.decode().split("\0")
        except UnicodeDecodeError:
            return Refused("a message that is not UTF-8")
        if len(parts) != PARTS:
            return Refused(f"a message of {len(parts)} parts, not {PARTS}")
        authorization_id, user, password = parts
        if not user:
            return _refused("username not specified")
        if not password:
            return _refused("password not specified")
        if not self._users.knows(user, password):
            return _refused("Invalid username or password")
        if authorization_id not in {"", user}:
            return _refused("Client requested an authorization id that is different from username")
        return Authenticated(user)


def _refused(reason: str) -> Refused:
    return Refused(reason, f"Authentication failed: {reason}")


def _digest(password: str) -> bytes:
    return sha256(password.encode("utf-8", "surrogatepass")).digest()
