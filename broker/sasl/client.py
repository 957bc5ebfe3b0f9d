"""The client's side of logins, for Frazil's own tools. Pure.

A login comes from a file as Kafka's tools take it (`--command-config`): `sasl.mechanism`, and user and
password, or a delegation token, in `sasl.jaas.config`. Where tokens of OAUTHBEARER come from, `broker.client` says.
"""

import binascii
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from broker.sasl import jaas
from broker.sasl.bearer_messages import ACKNOWLEDGED, OAUTHBEARER, client_first
from broker.sasl.login_failures import LoginError
from broker.sasl.plain import PLAIN
from broker.sasl.scram_keys import (
    BY_NAME,
    HASHES,
    credential_of,
    escaped,
    proof_of,
    salted_password,
)
from coordinator.commands.credential_commands import ITERATIONS_MAX, ITERATIONS_MIN

PROTOCOL: Final = "security.protocol"
MECHANISM: Final = "sasl.mechanism"
JAAS_CONFIG: Final = "sasl.jaas.config"
MECHANISMS: Final = (PLAIN, *BY_NAME, OAUTHBEARER)
DELEGATED: Final = "tokenauth"
"""Of the login module, and of SCRAM's first message."""
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_SERVER_FIRST: Final = re.compile(
    r"r=(?P<nonce>[^,]+),s=(?P<salt>[^,]+),i=(?P<iterations>[0-9]{1,7})"
)


@dataclass(frozen=True, slots=True)
class Login:
    """Who a tool is, and how it shows it."""

    mechanism: str
    user: str
    password: str = field(repr=False)
    by_token: bool = False
    """User and password are a delegation token's id and HMAC (KIP-48)."""


def needs_login(properties: Mapping[str, str]) -> bool:
    """Whether the protocol of a file of a client's settings has SASL. Raises ValueError."""
    protocol = properties.get(PROTOCOL, "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        raise ValueError(f"{PROTOCOL} is none of {', '.join(PROTOCOLS)}")
    return protocol.startswith("SASL_")


def jaas_options(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Those of the login module. Raises ValueError."""
    try:
        return jaas.parse(properties.get(JAAS_CONFIG, "")).options
    except ValueError as error:
        raise ValueError(f"{JAAS_CONFIG}: {error}") from error


def login_of(properties: Mapping[str, str]) -> Login | None:
    """The login by a password that a file of a client's settings has; None: none is needed.

    Raises ValueError with a sentence that repeats no secret.
    """
    if not needs_login(properties):
        return None
    mechanism = properties.get(MECHANISM, "").strip().upper()
    if mechanism not in (PLAIN, *BY_NAME):
        raise ValueError(f"{MECHANISM} is none of {', '.join(MECHANISMS)}")
    options = jaas_options(properties)
    if not options.get("username") or not options.get("password"):
        raise ValueError(f"{JAAS_CONFIG} has no username and password")
    by_token = mechanism in BY_NAME and options.get(DELEGATED, "").lower() == "true"
    return Login(mechanism, options["username"], options["password"], by_token)


class ClientExchange(Protocol):
    """One attempt to log in."""

    def begin(self) -> bytes:
        """The first message."""
        ...

    def respond(self, answer: bytes) -> bytes | None:
        """The message after this answer; None: all is done. Raises LoginError."""
        ...


def exchange_of(login: Login, *, nonce: str) -> ClientExchange:
    """`nonce`: of printable characters without a comma; nobody can foresee it."""
    return _PlainClient(login) if login.mechanism == PLAIN else _ScramClient(login, nonce)


class _PlainClient:
    def __init__(self, login: Login) -> None:
        self._login = login

    def begin(self) -> bytes:
        return f"\0{self._login.user}\0{self._login.password}".encode()

    def respond(self, answer: bytes) -> bytes | None:
        return None


class BearerClient:
    """RFC 7628, section 3: of a client with a token."""

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        self._message = client_first(token, extensions)

    def begin(self) -> bytes:
        return self._message

    def respond(self, answer: bytes) -> bytes | None:
        """An answer that says something is a refusal, which comes as an error when it was read."""
        return ACKNOWLEDGED if answer else None


class _ScramClient:
    """RFC 5802, section 3."""

    def __init__(self, login: Login, nonce: str) -> None:
        self._login = login
        self._nonce = nonce
        extension = f",{DELEGATED}=true" if login.by_token else ""
        self._bare = f"n={escaped(login.user)},r={nonce}{extension}"
        self._expected = b""
        """The server's last message."""

    def begin(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def respond(self, answer: bytes) -> bytes | None:
        if self._expected:
            if not hmac.compare_digest(answer, self._expected):
                raise LoginError("the cluster does not know the user whose password it took")
            return None
        found = _SERVER_FIRST.fullmatch(answer.decode("utf-8", "replace"))
        if found is None or not found["nonce"].startswith(self._nonce):
            raise LoginError("the cluster says nothing that SCRAM has")
        kind = BY_NAME[self._login.mechanism]
        try:
            salt, iterations = b64decode(found["salt"]), int(found["iterations"])
        except binascii.Error:
            raise LoginError("the cluster's salt is not base64") from None
        # Fewer would let whoever pretends to be the cluster guess the password from the proof, as in
        # Kafka's clients; more keep the tool busy.
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise LoginError(f"the cluster asks for {iterations} iterations of SCRAM")
        salted = salted_password(kind, self._login.password, salt=salt, iterations=iterations)
        key = credential_of(self._login.user, kind, salted, salt=salt, iterations=iterations)
        without_proof = f"c=biws,r={found['nonce']}"
        said = f"{self._bare},{found[0]},{without_proof}".encode()
        signature = hmac.digest(key.server_key, said, HASHES[kind])
        self._expected = b"v=" + b64encode(signature)
        proof = b64encode(proof_of(kind, salted, said)).decode()
        return f"{without_proof},p={proof}".encode()
