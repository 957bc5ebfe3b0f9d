"""What a mechanism says to the messages of a client. Pure.

An *exchange* is one attempt of one client. It is given the client's messages one by one, and each is
answered by a step: a challenge, which wants another message, or the end.
"""

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


@dataclass(frozen=True, slots=True)
class Refused:
    """The client is not who it says, or says nothing that can be understood."""

    reason: str
    """For the log: never anything that the client has sent."""
    message: str | None = None
    """For the client; None: what Kafka says of invalid credentials."""


Step = Challenge | Authenticated | Refused


class Exchange(Protocol):
    """One attempt."""

    def respond(self, message: bytes) -> Step:
        """Judge the client's next message. Never raises, whatever the message is; not to be called
        again after the end."""
        ...
