"""What both sides of SCRAM compute (RFC 5802, RFC 7677): keys, proofs, names as they are sent. Pure.

Apart from the server's side (`broker.sasl.scram`), since a tool that logs in should not wait for tables.
"""

import hashlib
import hmac
from typing import Final

from coordinator.commands.credential_commands import (
    SALT_BYTES,
    ScramMechanism,
    UpsertScramCredential,
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


def salted_password(
    mechanism: ScramMechanism, password: str, *, salt: bytes, iterations: int
) -> bytes:
    """RFC 5802's Hi(): takes ms, for which it lets other threads run."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def credential_of(
    user: str, mechanism: ScramMechanism, salted: bytes, *, salt: bytes, iterations: int
) -> UpsertScramCredential:
    """The command that gives a user this credential; `salted`: the salted password."""
    client_key = hmac_of(mechanism, salted, b"Client Key")
    return UpsertScramCredential(
        user=user,
        mechanism=mechanism,
        iterations=iterations,
        salt=salt,
        stored_key=hash_of(mechanism, client_key),
        server_key=hmac_of(mechanism, salted, b"Server Key"),
    )


def proof_of(mechanism: ScramMechanism, salted: bytes, said: bytes) -> bytes:
    """What shows that a client has the salted password, for what was said on both sides."""
    client_key = hmac_of(mechanism, salted, b"Client Key")
    return xor(client_key, hmac_of(mechanism, hash_of(mechanism, client_key), said))


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


def xor(one: bytes, other: bytes) -> bytes:
    return bytes([left ^ right for left, right in zip(one, other, strict=True)])


def hmac_of(mechanism: ScramMechanism, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, HASHES[mechanism])


def hash_of(mechanism: ScramMechanism, data: bytes) -> bytes:
    return hashlib.new(HASHES[mechanism], data).digest()
