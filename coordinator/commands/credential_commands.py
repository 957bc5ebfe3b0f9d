"""Commands for credentials: what users of SCRAM prove that they know their passwords with (KIP-554).

A credential is what a server has to keep (RFC 5802, section 3): salt, stored key, server key and the number of
iterations. Neither the password nor the salted password is among them, so none can be had from the
log. With the stored key somebody can try passwords, and with the server key pretend to be the cluster:
so both are left out wherever commands are shown.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from coordinator.commands.declaration import command
from coordinator.commands.layout import UInt31

USER_NAME_MAX: Final = 255
"""Characters."""
SALT_BYTES: Final = 26
"""Of credentials that Kafka's tools make."""
SALT_BYTES_MAX: Final = 1024
ITERATIONS_MIN: Final = 4096
"""RFC 7677, section 4, and Kafka's ScramMechanism."""
ITERATIONS_MAX: Final = 16384
"""Kafka's ScramMechanism: clients work for a login in proportion to it."""
CREDENTIALS_MAX: Final = 100_000
"""Of the whole cluster: they are in every agent's memory."""


class ScramMechanism(IntEnum):
    """A mechanism, with Kafka's number for it."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


KEY_BYTES: Final = {ScramMechanism.SCRAM_SHA_256: 32, ScramMechanism.SCRAM_SHA_512: 64}
"""Of a stored key and a server key: what the mechanism's hash gives."""


@command(75)
@dataclass(frozen=True, slots=True)
class UpsertScramCredential:
    """The user has this credential for the mechanism, instead of the one before."""

    user: str
    mechanism: ScramMechanism
    iterations: UInt31
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


@command(76)
@dataclass(frozen=True, slots=True)
class DeleteScramCredential:
    """The user has no credential for the mechanism any more."""

    user: str
    mechanism: ScramMechanism


CredentialCommand = UpsertScramCredential | DeleteScramCredential
