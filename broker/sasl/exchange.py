"""What a mechanism says to the messages of a client. Pure.

An *exchange* is one attempt of one client. It is given the client's messages one by one, and each is
answered by a step: a challenge, which wants another message, or the end. A step that takes long to
find is *undecided* at first: a thread decides it (`broker.sasl.decisions`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Challenge:
    """Goes on with the client's next message."""

    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The client is who it says."""

    user: str
    """A name, without the type of the principal."""
    data: bytes = field(default=b"", repr=False)
    """For the client; mechanisms in which the server proves itself, too, need it."""
    ends_ms: int | None = None
    """When what it has shown ends, ms since the epoch; None: never."""
    by_token: bool = False
    """It has shown a delegation token (KIP-48)."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The client is not who it says, or says nothing that can be understood."""

    reason: str
    """For the log: never anything that the client has sent."""
    message: str | None = None
    """For the client; None: what Kafka says of invalid credentials."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """Not yet known: to be found in a thread."""

    decide: "Callable[[], Step]" = field(repr=False)
    """Never raises. Another undecided step is to be decided in turn."""
    keys_at: str = ""
    """Before that the keys of this JWKS endpoint are to be fetched, unless they just were."""


Step = Challenge | Authenticated | Refused | Undecided


class Exchange(Protocol):
    """One attempt."""

    def respond(self, message: bytes) -> Step:
        """Judge the client's next message. Never raises, whatever the message is; not to be called
        again after the end."""
        ...
