"""What both sides of OAUTHBEARER say (RFC 7628). Pure, and without what checks tokens.

n,a=alice,^Aauth=Bearer eyJhbGciOi…^A^A        the client's only message, if all is well
{"status":"invalid_token"}                      of a token that is not taken, as no error
^A                                              the client has read it; now it is refused
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from typing_extensions import override

OAUTHBEARER: Final = "OAUTHBEARER"
ACKNOWLEDGED: Final = b"\x01"
"""What a client says to the reason of a refusal."""
AUTH: Final = "auth"
"""The key of the token; that of an extension is another one."""

# RFC 7628, section 3.1, and RFC 6750, section 2.1 for the token; Kafka's OAuthBearerClientInitialResponse.
# Bounds and possessive quantifiers: as long as frames may be, none keeps the loop busy.
_CLIENT_FIRST: Final = re.compile(
    r"n,(?:a=(?P<authorization_id>(?:[^\x00,=]++|=2C|=3D){1,2000}+))?,\x01"
    r"(?P<pairs>(?:[A-Za-z]++=[\x21-\x7e \t\r\n]++\x01){0,100}+)\x01"
)
_BEARER: Final = re.compile(r"(?i:bearer) +(?P<token>[A-Za-z0-9._~+/=-]+)\s*")
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]+")
_EXTENSION: Final = re.compile(r"(?P<key>[A-Za-z]+)=[\x21-\x7e \t\r\n]+")


class ClientFirst(NamedTuple):
    """A client's first message."""

    token: str
    authorization_id: str

    @override
    def __repr__(self) -> str:
        return "ClientFirst(…)"


def client_first_of(message: bytes) -> ClientFirst | None:
    """What a first message says; None: it is none. Extensions are read over, as by Kafka's handlers."""
    try:
        found = _CLIENT_FIRST.fullmatch(message.decode())
    except UnicodeDecodeError:
        return None
    if found is None:
        return None
    pairs = [pair.partition("=") for pair in found["pairs"].split("\x01")]
    said = {key: value for key, _, value in pairs}
    bearer = _BEARER.fullmatch(said.get(AUTH, ""))
    if bearer is None:
        return None
    named = (found["authorization_id"] or "").replace("=2C", ",").replace("=3D", "=")
    return ClientFirst(bearer["token"], named)


def client_first(token: str, extensions: Mapping[str, str]) -> bytes:
    """The first message of a client, of what `is_token` and `is_extension` take."""
    assert is_token(token)
    pairs = {AUTH: f"Bearer {token}", **extensions}
    said = "".join(f"{key}={value}\x01" for key, value in pairs.items())
    return f"n,,\x01{said}\x01".encode()


def is_token(text: str) -> bool:
    """Whether it is made of what tokens are made of (RFC 6750)."""
    return _TOKEN.fullmatch(text) is not None


def is_extension(key: str, value: str) -> bool:
    """Whether a client's message can have it."""
    found = _EXTENSION.fullmatch(f"{key}={value}")
    return found is not None and found["key"] == key and key != AUTH
