"""What passes between the supervisor and a worker: JSON, each with its length before it. Pure.

Both ends are the same program (HELLO says its version). `settings` go as the texts they were written
as, not as values, so a worker reads them as a single agent does, and no secret is on a command line.
"""

import json
from collections.abc import Mapping
from enum import Enum
from struct import Struct
from typing import Any, Final, NamedTuple

HEAD: Final = Struct("<I")
BYTES_MAX: Final = 64 << 20
"""A page of metrics with all that clients pushed is a tenth of it."""


class MessageError(Exception):
    """What came is not what the other end should send."""


class What(Enum):
    # From the supervisor.
    HELLO = "hello"
    """version, seat, texts."""
    PING = "ping"
    TELL = "tell"
    """ticket, subject: what this worker says of it."""
    TOLD = "told"
    """ticket, value: what all say, to an ASK."""
    LEAVE = "leave"
    DIED = "died"
    """node_name, died_ms: another worker's process has ended, at that boot time."""
    # From the worker.
    PONG = "pong"
    SERVING = "serving"
    """listening."""
    REFUSED = "refused"
    """sentence."""
    ASK = "ask"
    """ticket, subject."""
    ANSWER = "answer"
    """ticket, value: to a TELL."""


class Subject(Enum):
    METRICS = "metrics"
    READINESS = "readiness"


class Message(NamedTuple):
    what: What
    fields: Mapping[str, Any]

    @property
    def ticket(self) -> int:
        """Raises MessageError."""
        ticket = self.fields.get("ticket")
        if not isinstance(ticket, int):
            raise MessageError(f"{self.what.name} without a ticket")
        return ticket

    @property
    def subject(self) -> Subject:
        """Raises MessageError."""
        try:
            return Subject(self.fields.get("subject"))
        except ValueError as error:
            raise MessageError(f"{self.what.name} of nothing known") from error


def encode(what: What, **fields: Any) -> bytes:
    """Raises MessageError when it is too long."""
    body = json.dumps({"what": what.value, **fields}).encode()
    if len(body) > BYTES_MAX:
        raise MessageError(f"a message of {len(body)} bytes")
    return HEAD.pack(len(body)) + body


def encode_told(what: What, ticket: int, value: Any) -> bytes:
    """Without the value when that is too long: whoever asked goes on as if nobody had answered. Many clients
    that push metrics (`telemetry.metrics.bytes`) make a page as long as that."""
    try:
        return encode(what, ticket=ticket, value=value)
    except MessageError:
        return encode(what, ticket=ticket, value=None)


def length_of(head: bytes) -> int:
    """Of the body that follows. Raises MessageError."""
    (length,) = HEAD.unpack(head)
    if length > BYTES_MAX:
        raise MessageError(f"a message of {length} bytes")
    return int(length)


def decode(body: bytes) -> Message:
    """Raises MessageError."""
    try:
        fields = json.loads(body)
        return Message(What(fields["what"]), fields)
    except (ValueError, LookupError, TypeError) as error:
        raise MessageError("a message that cannot be read") from error
