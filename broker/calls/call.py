"""A call: one request on one connection, until it is answered.

It is answered, or its connection closed, exactly once. Left out: order of answers, back-pressure,
bytes (`broker.edge`); what a request means (`broker.handlers`).
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from typing_extensions import override

from broker.calls.challenges import Challenge
from broker.calls.requester import Requester
from broker.calls.software import Software
from broker.quotas.quotas import Usage
from broker.sasl.authentication import Authentication
from protocol import apis
from protocol.framing import response_head
from protocol.types import POSITION_ZERO, Buffer, Position

_RELEASED: Final = memoryview(b"")


class Connection(Protocol):
    """What handlers know of a connection; `broker.edge.server` implements it."""

    number: int
    """Unique in this process, from 1."""
    listener: str
    """Name of the listener it came in by: which addresses the client is told."""
    peer: str
    """The client's address, for logs."""
    requester: Requester
    """Who it is; another one once it has authenticated itself (again)."""
    software: Software
    """What the client says it is made of."""
    authentication: Authentication | None
    """How far it is with SASL; None on a listener without."""
    closed: bool
    """Gone: nothing that is answered now reaches anybody."""

    def call_answered(self, call: "Call") -> None:
        """Called by `Call.answer`, once."""
        ...

    def close(self, reason: str) -> None:
        """Close without answering what is open. `reason` is for the log."""
        ...

    def refuse(self, call: "Call", body: Sequence[Buffer] | None, reason: str) -> None:
        """Answer the call a while later, and close: the client is not who it says (SASL)."""
        ...

    def replied(self, call: "Call", challenge: Challenge) -> bool:
        """Whether the call was read in reply to this challenge (`broker.calls.challenges`)."""
        ...


class Call:
    """One request: header, body and where the answer goes."""

    __slots__ = (
        "answered",
        "api_key",
        "body",
        "challenge",
        "client_id",
        "clock",
        "connection",
        "correlation_id",
        "elements",
        "first_byte",
        "frame_bytes",
        "on_drop",
        "parts",
        "received_ms",
        "refused_stale",
        "stale",
        "throttle_ms",
        "usage",
        "version",
    )

    def __init__(
        self,
        *,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
        body: memoryview,
        connection: Connection,
        received_ms: int,
        frame_bytes: int = 0,
        stale: bool = False,
        clock: Position = POSITION_ZERO,
        first_byte: int = 0,
    ) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body = body
        """What follows the request header; owns its memory, read-only. Empty once answered."""
        self.connection = connection
        self.received_ms = received_ms
        """Boot-time clock when the frame was complete."""
        self.frame_bytes = frame_bytes
        self.stale = stale
        """Its client may have given up during a stall: it must not change anything (P17)."""
        self.refused_stale = False
        """The answer is a refusal because of `stale`; once written, it is a challenge."""
        self.clock = clock
        """The position applied when the first byte of its frame was read."""
        self.first_byte = first_byte
        """Number of that byte among all that came on the connection."""
        self.challenge: Challenge | None = None
        """The answer asks the client to confirm that it means this transaction."""
        self.elements = 0
        """Of a long request, once it was decoded (`broker.calls.slices`)."""
        self.usage: Usage | None = None
        """What it uses up of its client's quotas; None: it has none."""
        self.throttle_ms = 0
        """For so long its client is not heard once it is answered (`broker.edge.muting`)."""
        self.on_drop: Callable[[], object] | None = None
        """Called when its connection is gone before it is answered: what waits need not go on."""
        self.answered = False
        self.parts: list[Buffer] | None = None
        """The framed answer, for the connection; None before, and when there is none to send."""

    def throttle(self) -> int:
        """For how many ms its client is to wait, which the answer tells. For all but Produce and
        Fetch, which say what they carry."""
        if self.usage is not None:
            self.throttle_ms = self.usage.answered()
        return self.throttle_ms

    def answer(self, body: Sequence[Buffer] | None) -> None:
        """Answer with the parts of a response body, without header (which is added here).

        None: there is no response (Produce with acks=0). The parts are not copied and must not
        change until they are sent. Answers leave in the order of requests, whenever they come.
        """
        assert not self.answered
        self.answered = True
        self.body = _RELEASED
        self.on_drop = None
        if body is not None:
            size = sum(map(len, body))
            head = response_head(self.api_key, self.version, self.correlation_id, size)
            self.parts = [head, *body]
        self.connection.call_answered(self)

    def drop(self) -> None:
        """Its connection is gone: whoever has not begun to read it has nothing to read."""
        self.body = _RELEASED
        if self.on_drop is not None:
            self.on_drop()
            self.on_drop = None

    def close(self, reason: str) -> None:
        """Close the connection: the answer to what Kafka does not answer, or cannot (P4)."""
        self.connection.close(reason)

    @property
    def abandoned(self) -> bool:
        """Nobody waits for the answer any more; long polls may look and give up."""
        return self.connection.closed

    @override
    def __repr__(self) -> str:
        return f"<{api_name(self.api_key)} v{self.version} #{self.correlation_id}>"


def api_name(api_key: int) -> str:
    api = apis.APIS.get(api_key)
    return f"API {api_key}" if api is None else api.name
