"""Who asks: the principal of a connection and the address it comes from. Pure.

A connection has one requester at a time; authentication replaces it, and nothing else does. What a
requester may do is another matter (`broker.rights`).
"""

from dataclasses import dataclass
from typing import Final

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a connection without authentication, as in Kafka (KafkaPrincipal.ANONYMOUS)."""


@dataclass(frozen=True, slots=True)
class Requester:
    """Who is behind a request."""

    principal: str = ANONYMOUS
    """As in Kafka's ACLs: `User:alice`."""
    host: str = ""
    """Its address, as text, without a port."""
    by_token: bool = False
    """It came by a delegation token (KIP-48), so it may not ask for others."""

    @property
    def is_anonymous(self) -> bool:
        return self.principal == ANONYMOUS
