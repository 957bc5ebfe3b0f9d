"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), the server's side. Pure.

What it costs: an HMAC and a hash for each attempt. The many iterations are the client's, and whoever
makes a credential does them once (`salted_password`).

For a user that does not exist the exchange goes on with a salt that is made up, of the name and a seed
that all agents have, and fails at the proof like a wrong password: who is there cannot be found out
here. Channel binding is not offered, and not taken. Names and passwords are UTF-8 as they are, without
SASLprep, as in Kafka.

A client that says `tokenauth=true` shows a delegation token (KIP-48): its id is the user, and whose it
is becomes the user of the connection, for as long as the token lives. Its keys take ms to make
(`broker.sasl.delegation`), so its proof is decided in a thread.
"""

import binascii
import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from broker.sasl.exchange import Authenticated, Challenge, Refused, Step, Undecided
from broker.sasl.scram_keys import HASHES, NAMES, SALT_LETTERS, hash_of, hmac_of, xor
from coordinator.commands.credential_commands import ITERATIONS_MIN, KEY_BYTES, ScramMechanism
from coordinator.tables.administration.credentials import (
    NO_CREDENTIAL,
    Credentials,
    ScramCredential,
)
from coordinator.tables.administration.delegation_tokens import DelegationToken

# RFC 5802, section 7. A value has no comma; a name has "=2C" and "=3D" for comma and equals sign.
# Bounds and possessive quantifiers: as long as frames may be, none keeps the loop busy.
_CLIENT_FIRST: Final = re.compile(
    r"(?P<header>[ny],(?:a=(?P<authorization_id>(?:[^,=]++|=2C|=3D){1,2000}+))?,)"
    r"(?P<bare>n=(?P<user>(?:[^,=]++|=2C|=3D){1,2000}+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]++)"
    r"(?P<extensions>(?:,[A-Za-z]++=[^,]*+){0,100}+))"
)
_CLIENT_FINAL: Final = re.compile(
    r"(?P<without_proof>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    r"(?:,[A-Za-z]++=[^,]*+){0,100})"
    r",p=(?P<proof>[A-Za-z0-9+/=]+)"
)


class TokenLogins(Protocol):
    """What is known of delegation tokens (`broker.sasl.delegation`)."""

    def token(self, token_id: str) -> DelegationToken | None: ...

    def salt(self, token_id: str, mechanism: ScramMechanism) -> bytes:
        """Of any id."""
        ...

    def credential(self, token_id: str, mechanism: ScramMechanism) -> ScramCredential:
        """Takes ms."""
        ...


@dataclass(frozen=True, slots=True)
class _First:
    """What the first message has left for the second."""

    user: str
    header: str
    nonce: str
    """The client's and ours."""
    said: str
    """By both, up to here."""
    credential: ScramCredential
    """Of a token without its keys."""
    is_made_up: bool
    by_token: bool


class ScramExchange:
    """One attempt."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        credentials: Credentials,
        *,
        nonce: str,
        tokens: TokenLogins | None = None,
        now_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        """`nonce`: of printable characters without a comma; nobody can foresee it. `tokens`: None
        where delegation tokens are not served."""
        self._tokens = tokens
        self._now_ms = now_ms
        self._mechanism = mechanism
        self._credentials = credentials
        self._nonce = nonce
        self._first: _First | None = None

    def respond(self, message: bytes) -> Step:
        """Judge the next message of the client."""
        try:
            text = message.decode()
        except UnicodeDecodeError:
            return Refused("a message that is not UTF-8")
        if self._first is None:
            return self._begin(text)
        return self._end(self._first, text)

    def _begin(self, text: str) -> Step:
        found = _CLIENT_FIRST.fullmatch(text)
        if found is None:
            return Refused("a first message that is none")
        by_token = ",tokenauth=true," in f"{found['extensions']},"
        if by_token and self._tokens is None:
            return Refused("a delegation token, which is not served")
        user = _unescaped(found["user"])
        if found["authorization_id"] and _unescaped(found["authorization_id"]) != user:
            reason = "Client requested an authorization id that is different from username"
            return Refused(reason, f"Authentication failed: {reason}")
        if by_token:
            assert self._tokens is not None
            salt_of_token = self._tokens.salt(user, self._mechanism)
            credential = ScramCredential(ITERATIONS_MIN, salt_of_token, b"", b"")
            is_made_up = False
        else:
            known = self._credentials.get(user, self._mechanism)
            is_made_up = known is None
            credential = known or made_up(self._credentials, self._mechanism, user)
        nonce = found["nonce"] + self._nonce
        salt = b64encode(credential.salt).decode()
        answer = f"r={nonce},s={salt},i={credential.iterations}"
        said = f"{found['bare']},{answer}"
        self._first = _First(user, found["header"], nonce, said, credential, is_made_up, by_token)
        return Challenge(answer.encode())

    def _end(self, first: _First, text: str) -> Step:
        found = _CLIENT_FINAL.fullmatch(text)
        if found is None:
            return Refused("a final message that is none")
        if found["binding"] != b64encode(first.header.encode()).decode():
            return Refused("a final message of another channel binding")
        if not hmac.compare_digest(found["nonce"], first.nonce):
            return Refused("a final message with another nonce")
        said = f"{first.said},{found['without_proof']}".encode()
        if first.by_token:
            return self._end_by_token(first.user, said, found["proof"])
        proven = self._is_proven(first.credential, said, found["proof"])
        if first.is_made_up or not proven:
            return Refused("no such user, or another password")
        return Authenticated(first.user, self._signature(first.credential, said))

    def _end_by_token(self, token_id: str, said: bytes, proof: str) -> Step:
        assert self._tokens is not None
        token = self._tokens.token(token_id)
        if token is None or token.has_ended(self._now_ms()):
            return Refused("no such delegation token, or one that has ended")
        return Undecided(partial(self._decide, self._tokens, token, said, proof))

    def _decide(self, tokens: TokenLogins, token: DelegationToken, said: bytes, proof: str) -> Step:
        credential = tokens.credential(token.token_id, self._mechanism)
        if not self._is_proven(credential, said, proof):
            return Refused("a delegation token with another HMAC")
        _, _, owner = token.owner.partition(":")
        signature = self._signature(credential, said)
        return Authenticated(owner, signature, ends_ms=token.expires_ms, by_token=True)

    def _signature(self, credential: ScramCredential, said: bytes) -> bytes:
        return b"v=" + b64encode(hmac_of(self._mechanism, credential.server_key, said))

    def _is_proven(self, credential: ScramCredential, said: bytes, encoded: str) -> bool:
        """Whether the client has the key whose hash is the stored key."""
        try:
            proof = b64decode(encoded, validate=True)
        except binascii.Error:
            return False
        signature = hmac_of(self._mechanism, credential.stored_key, said)
        if len(proof) != len(signature):
            return False
        client_key = xor(proof, signature)
        return hmac.compare_digest(hash_of(self._mechanism, client_key), credential.stored_key)


def made_up(credentials: Credentials, mechanism: ScramMechanism, user: str) -> ScramCredential:
    """What is told of a user that does not exist: the same whenever and of whatever agent it is
    asked, and shaped like the first credential that there was. Nobody has a proof for it."""
    first = credentials.first or NO_CREDENTIAL
    told = f"{NAMES[mechanism]} {user}".encode()
    drawn = hmac_of(ScramMechanism.SCRAM_SHA_512, first.seed, told)
    salt = hashlib.shake_256(drawn).digest(len(first.salt))
    if {*first.salt} <= {*SALT_LETTERS}:
        salt = bytes([SALT_LETTERS[byte % len(SALT_LETTERS)] for byte in salt])
    nothing = bytes(KEY_BYTES[mechanism])
    return ScramCredential(first.iterations, salt, nothing, nothing)


def proves(mechanism: ScramMechanism, password: str, credential: ScramCredential) -> bool:
    """Whether this is the password of the credential: where a client says it as it is. Takes ms, as
    `salted_password`."""
    salted = hashlib.pbkdf2_hmac(
        HASHES[mechanism],
        password.encode("utf-8", "surrogatepass"),
        credential.salt,
        credential.iterations,
    )
    stored_key = hash_of(mechanism, hmac_of(mechanism, salted, b"Client Key"))
    return hmac.compare_digest(stored_key, credential.stored_key)


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
