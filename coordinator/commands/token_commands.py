"""Commands for delegation tokens: who may be whom for a while, without a password (KIP-48, KIP-373).

A token is an id and an HMAC over it, by a secret that all agents are set to and no log ever has
(`broker.sasl.delegation`). So whoever can read the log can use no token. What the log says is whose
a token is, who asked for it, who may renew it, and when it ends.
"""

from dataclasses import dataclass
from typing import Annotated, Final

from coordinator.commands.declaration import command
from coordinator.commands.layout import Int64, at_most

TOKENS_MAX: Final = 10_000
"""Of the whole cluster, those that have ended but were not swept included."""
RENEWERS_MAX: Final = 100
"""Of a token."""
PRINCIPAL_MAX: Final = 1_024
"""Characters."""
TOKEN_ID_MAX: Final = 64
TOKENS_PER_COMMAND_MAX: Final = 1_000


@command(77)
@dataclass(frozen=True, slots=True)
class CreateDelegationToken:
    """This token is there from now on. Principals are as in ACLs (`User:alice`)."""

    token_id: str
    owner: str
    """Whose rights it gives."""
    requester: str
    renewers: Annotated[tuple[str, ...], at_most(RENEWERS_MAX)]
    """Beside the owner."""
    issued_ms: Int64
    """ms since the epoch, as the next two."""
    expires_ms: Int64
    max_ms: Int64
    """It cannot be renewed beyond."""


@command(78)
@dataclass(frozen=True, slots=True)
class ExtendDelegationToken:
    """The token ends then, later or sooner than before."""

    token_id: str
    expires_ms: Int64


@command(79)
@dataclass(frozen=True, slots=True)
class RemoveDelegationTokens:
    """Those of these tokens are there no more that end at `ended_ms` or before it."""

    token_ids: Annotated[tuple[str, ...], at_most(TOKENS_PER_COMMAND_MAX)]
    ended_ms: Int64
    """A token that was renewed meanwhile ends later, and stays."""


TokenCommand = CreateDelegationToken | ExtendDelegationToken | RemoveDelegationTokens
