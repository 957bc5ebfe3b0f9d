"""What a connection on a SASL listener may send before it has authenticated itself, and how refusals leave.

What holds:

* Its frames are at most `sasl.server.max.receive.size` bytes until it has authenticated itself. One
  that sends anything but what its state admits is disconnected without an answer, as in Kafka; in
  the middle of a mechanism's messages the answer is ILLEGAL_SASL_STATE (`broker.edge.dispatch`). So is
  one that does not wait for an answer in the middle of it, which no client does.
* A refusal leaves `connection.failed.authentication.delay.ms` after it was decided, and its
  connection is closed behind it; nothing is read from it meanwhile. All that wait are in one queue
  with one timer, at most one for each connection.

The states are `broker.sasl.authentication`'s. Left out: what handlers say (`broker.handlers`).
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from broker.calls.call import Call, api_name
from broker.edge.limits import ConnectionLimits
from broker.node import Node
from broker.sasl.authentication import Authentication
from broker.sasl.exchange import Exchange
from broker.sasl.rules import SaslRules
from protocol import apis
from protocol.errors import ProtocolError
from protocol.framing import (
    BARE,
    FRAME_BYTES_MIN,
    BufferGrowth,
    FrameSplitter,
    RequestHeader,
    parse_header,
)
from protocol.types import Buffer

NONCE_BITS: Final = 192
"""Of a server's part of a nonce: nobody foresees it, and none comes twice."""


class ExpiredError(ProtocolError):
    """The client has let the lifetime of its session pass (KIP-368)."""


class Authenticator:
    """Makes the authentications of an agent's connections."""

    def __init__(self, node: Node, rules: Mapping[str, SaslRules]) -> None:
        """`rules`: by listener, of those that have SASL."""
        self._node = node
        self._rules = rules

    def begin(self, listener: str) -> Authentication | None:
        """For a new connection; None when the listener has no SASL."""
        rules = self._rules.get(listener)
        if rules is None:
            return None

        node = self._node

        def exchange(mechanism: str) -> Exchange:
            nonce = f"{node.rng.getrandbits(NONCE_BITS):x}"
            credentials = node.log_client.machine.credentials
            return rules.exchange(
                mechanism,
                credentials,
                nonce=nonce,
                keys=node.decisions.key_sets.keys,
                delegation=node.delegation,
                now_ms=node.now_ms,
            )

        return Authentication(rules, exchange)


def splitter_of(
    authentication: Authentication | None, limits: ConnectionLimits, growth: BufferGrowth
) -> FrameSplitter:
    """Cuts the stream of a new connection."""
    if authentication is None:
        return FrameSplitter(limits.first_frame_bytes_max, growth)
    most = max(FRAME_BYTES_MIN, authentication.frame_bytes_max)
    # A message of a mechanism that comes without a header may be empty.
    return FrameSplitter(min(limits.first_frame_bytes_max, most), growth, frame_bytes_min=0)


def admitted(
    authentication: Authentication | None, frame: Buffer, *, asks: bool, boot_ms: int
) -> RequestHeader:
    """The header of the next request. `asks`: one before it has no answer yet.

    Raises ProtocolError when the connection is to be closed instead of an answer.
    """
    if authentication is None:
        return parse_header(frame)
    if not authentication.is_complete and asks:
        raise ProtocolError("it does not wait for answers while it authenticates itself")
    if authentication.bare:
        return RequestHeader(apis.SASL_AUTHENTICATE, BARE, 0, None, memoryview(frame).toreadonly())
    header = parse_header(frame)
    if not (authentication.admits(header.api_key) or authentication.answers_others):
        raise ProtocolError(f"{api_name(header.api_key)} before it has authenticated itself")
    if authentication.has_expired(boot_ms) and header.api_key != apis.SASL_HANDSHAKE:
        raise ExpiredError("its session has expired, and it did not authenticate itself again")
    return header


class Refusals:
    """Answers that wait before they leave, the oldest first."""

    def __init__(
        self,
        delay_ms: int,
        *,
        boot_ms: Callable[[], int],
        call_later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        """`call_later`: as the loop's, in seconds."""
        self._delay_ms = delay_ms
        self._boot_ms = boot_ms
        self._call_later = call_later
        self._waiting: deque[tuple[int, Call, Sequence[Buffer] | None]] = deque()
        """When each is due, its call, and the body of its answer."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, call: Call, body: Sequence[Buffer] | None) -> None:
        """Have the call answered in a while. None: there is nothing to say."""
        self._waiting.append((self._boot_ms() + self._delay_ms, call, body))
        if len(self._waiting) == 1:
            self._call_later(self._delay_ms / 1000, self._answer)

    def _answer(self) -> None:
        now_ms = self._boot_ms()
        while self._waiting and self._waiting[0][0] <= now_ms:
            _, call, body = self._waiting.popleft()
            if not call.abandoned:
                call.answer(body)
        if self._waiting:
            self._call_later(max(1, self._waiting[0][0] - now_ms) / 1000, self._answer)
