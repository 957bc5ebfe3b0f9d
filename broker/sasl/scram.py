"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), the server's side. Pure.

What it costs: an HMAC and a hash for each attempt. The many iterations are the client's, and whoever
makes a credential does them once (`salted_password`).

For a user that does not exist the exchange goes on with a salt that is made up, of the name and a seed
that all agents have, and fails at the proof like a wrong password: who is there cannot be found out
here. Channel binding is not offered, and not taken. Names and passwords are UTF-8 as they are, without
SASLprep, as in Kafka.

Left out: delegation tokens (`tokenauth`): such a client is refused.
"""

import binascii
import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Final

from broker.sasl.exchange import Authenticated, Challenge, Refused, Step
from coordinator.commands.credential_commands import (
    KEY_BYTES,
    ScramMechanism,
    UpsertScramCredential,
)
from coordinator.tables.credentials import (
    NO_CREDENTIAL,
    SALT_BYTES,
    Credentials,
    ScramCredential,
)

NAMES: Final = {
    ScramMechanism.SCRAM_SHA_256: "SCRAM-SHA-256",
    ScramMechanism.SCRAM_SHA_512: "SCRAM-SHA-512",
}
"""As clients name them."""
BY_NAME: Final = {name: mechanism for mechanism, name in NAMES.items()}
HASHES: Final = {
    ScramMechanism.SCRAM_SHA_256: "sha256",
    ScramMechanism.SCRAM_SHA_512: "sha512",
}
SALT_BITS: Final = 130
"""What is drawn for a salt."""
SALT_LETTERS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"
"""Of which Kafka's tools make salts (ScramFormatter.secureRandomString)."""

# RFC 5802, section 7. A value has no comma; a name has "=2C" and "=3D" for comma and equals sign.
_CLIENT_FIRST: Final = re.compile(
    r"(?P<header>[ny],(?:a=(?P<authorization_id>(?:[^,=]|=2C|=3D)+))?,)"
    r"(?P<bare>n=(?P<user>(?:[^,=]|=2C|=3D)+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    r"(?P<extensions>(?:,[A-Za-z]+=[^,]*)*))"
)
_CLIENT_FINAL: Final = re.compile(
    r"(?P<without_proof>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    r"(?:,[A-Za-z]+=[^,]*)*)"
    r",p=(?P<proof>[A-Za-z0-9+/=]+)"
)


def salted_password(
    mechanism: ScramMechanism, password: str, *, salt: bytes, iterations: int
) -> bytes:
    """RFC 5802's Hi(): takes ms, for which it lets other threads run."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def credential_of(
    user: str, mechanism: ScramMechanism, salted: bytes, *, salt: bytes, iterations: int
) -> UpsertScramCredential:
    """The command that gives a user this credential; `salted`: the salted password."""
    client_key = _hmac(mechanism, salted, b"Client Key")
    return UpsertScramCredential(
        user=user,
        mechanism=mechanism,
        iterations=iterations,
        salt=salt,
        stored_key=_hash(mechanism, client_key),
        server_key=_hmac(mechanism, salted, b"Server Key"),
    )


def proof_of(mechanism: ScramMechanism, salted: bytes, said: bytes) -> bytes:
    """What shows that a client has the salted password, for what was said on both sides."""
    client_key = _hmac(mechanism, salted, b"Client Key")
    return _xor(client_key, _hmac(mechanism, _hash(mechanism, client_key), said))


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
    is_made_up: bool


class ScramExchange:
    """One attempt."""

    def __init__(self, mechanism: ScramMechanism, credentials: Credentials, *, nonce: str) -> None:
        """`nonce`: of printable characters without a comma; nobody can foresee it."""
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
        if ",tokenauth=true" in f"{found['extensions']},":
            return Refused("a delegation token, which is not served")
        user = _unescaped(found["user"])
        if found["authorization_id"] and _unescaped(found["authorization_id"]) != user:
            reason = "Client requested an authorization id that is different from username"
            return Refused(reason, f"Authentication failed: {reason}")
        credential = self._credentials.get(user, self._mechanism)
        is_made_up = credential is None
        if credential is None:
            credential = made_up(self._credentials, self._mechanism, user)
        nonce = found["nonce"] + self._nonce
        salt = b64encode(credential.salt).decode()
        answer = f"r={nonce},s={salt},i={credential.iterations}"
        said = f"{found['bare']},{answer}"
        self._first = _First(user, found["header"], nonce, said, credential, is_made_up)
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
        proven = self._is_proven(first.credential, said, found["proof"])
        if first.is_made_up or not proven:
            return Refused("no such user, or another password")
        signature = _hmac(self._mechanism, first.credential.server_key, said)
        return Authenticated(first.user, b"v=" + b64encode(signature))

    def _is_proven(self, credential: ScramCredential, said: bytes, encoded: str) -> bool:
        """Whether the client has the key whose hash is the stored key."""
        try:
            proof = b64decode(encoded, validate=True)
        except binascii.Error:
            return False
        signature = _hmac(self._mechanism, credential.stored_key, said)
        if len(proof) != len(signature):
            return False
        client_key = _xor(proof, signature)
        return hmac.compare_digest(_hash(self._mechanism, client_key), credential.stored_key)


def made_up(credentials: Credentials, mechanism: ScramMechanism, user: str) -> ScramCredential:
    """What is told of a user that does not exist: the same whenever and of whatever agent it is
    asked, and shaped like the first credential that there was. Nobody has a proof for it."""
    first = credentials.first or NO_CREDENTIAL
    told = f"{NAMES[mechanism]} {user}".encode()
    drawn = _hmac(ScramMechanism.SCRAM_SHA_512, first.seed, told)
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
    stored_key = _hash(mechanism, _hmac(mechanism, salted, b"Client Key"))
    return hmac.compare_digest(stored_key, credential.stored_key)


def salt_of(number: int) -> bytes:
    """A salt like those of Kafka's tools, of a number of SALT_BITS bits that nobody can foresee."""
    letters = bytearray()
    for _ in range(SALT_BYTES):
        number, digit = divmod(number, len(SALT_LETTERS))
        letters.append(SALT_LETTERS[digit])
    return bytes(letters)


def escaped(name: str) -> str:
    """A name as it stands in a message."""
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes([left ^ right for left, right in zip(one, other, strict=True)])


def _hmac(mechanism: ScramMechanism, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, HASHES[mechanism])


def _hash(mechanism: ScramMechanism, data: bytes) -> bytes:
    return hashlib.new(HASHES[mechanism], data).digest()
