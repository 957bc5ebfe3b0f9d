"""The connections of one HTTP listener: how many, how long they may take, how much they may hold.

A connection is between requests, sending one, or *busy*: its request is there and being served.
Whoever is not busy is closed when its time is over, and makes room when the listener is full: of the
address that has most connections, the one that has waited longest. So a client that opens many and
sends nothing, or a byte now and then, pushes out its own. Where all are busy, an address with more of
them than the newcomer's gives up the one it took last.
What was received counts until it is answered; over the bound, the connection that holds most is
closed. An answer that nobody takes ends its connection, too.

This stands between the transport and aiohttp's protocol, which it wraps. With TLS it stands above
`broker.edge.tls_transport`, and counts from the accept on, not from the end of the handshake. Left out:
what is in the requests (`listener` says when one has come and when it is answered).
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from typing_extensions import override

from broker.calls.requester import Requester

logger = logging.getLogger(__name__)

_BODY: Final = b'{"error_code":503,"message":"too many requests at once; try again"}'
FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)
"""The answer to a connection for which there is no room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """Bounds of one listener."""

    connections_max: int
    head_s_max: float = 10.0
    """From the first byte of a request (or from the accept) to the end of its head."""
    body_s_max: float = 30.0
    """For all of a request's body."""
    idle_s_max: float = 75.0
    """Between two requests."""
    unread_s_max: float = 30.0
    """While the client takes nothing of an answer that waits."""
    held_bytes_max: int = 32 << 20
    """Of all requests that are not answered yet."""


class HttpConnections:
    """All connections of a listener. `protocol` makes aiohttp's for one more."""

    def __init__(self, limits: HttpLimits, protocol: Callable[[], asyncio.Protocol]) -> None:
        self.limits = limits
        self.held_bytes = 0
        self._protocol = protocol
        self._open: dict[asyncio.BaseTransport, HttpConnection] = {}
        self._by_address: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def factory(self) -> "HttpConnection":
        return HttpConnection(self, self._protocol())

    def of(self, transport: asyncio.BaseTransport | None) -> "HttpConnection | None":
        """The connection of a transport; None: it is closed."""
        return None if transport is None else self._open.get(transport)

    def admit(self, connection: "HttpConnection", transport: asyncio.Transport) -> bool:
        """Is there room for one more, or does somebody make some?"""
        if len(self._open) >= self.limits.connections_max:
            in_the_way = self._in_the_way_of(connection.address)
            if in_the_way is None:
                return False
            in_the_way.abort()
        self._open[transport] = connection
        self._by_address[connection.address] += 1
        return True

    def _in_the_way_of(self, newcomer: str) -> "HttpConnection | None":
        waiting = [each for each in self._open.values() if not each.is_busy]
        if waiting:
            return min(
                waiting, key=lambda each: (-self._by_address[each.address], each.waits_since)
            )
        address, most = self._by_address.most_common(1)[0]
        if most <= self._by_address[newcomer] + 1:
            return None
        return [each for each in self._open.values() if each.address == address][-1]

    def leave(self, connection: "HttpConnection", transport: asyncio.BaseTransport) -> None:
        if self._open.pop(transport, None) is not None:
            self._by_address[connection.address] -= 1
            if not self._by_address[connection.address]:
                del self._by_address[connection.address]

    def hold(self, connection: "HttpConnection", received: int) -> None:
        connection.held_bytes += received
        self.held_bytes += received
        while self.held_bytes > self.limits.held_bytes_max:
            max(self._open.values(), key=lambda each: each.held_bytes).abort()

    def release(self, connection: "HttpConnection") -> None:
        self.held_bytes -= connection.held_bytes
        connection.held_bytes = 0


class HttpConnection(asyncio.Protocol):
    """One connection; passes on what comes to aiohttp's protocol."""

    def __init__(self, connections: HttpConnections, inner: asyncio.Protocol) -> None:
        self.address = ""
        self.requester = Requester()
        """As far as the connection tells: by its certificate, or nobody."""
        self.held_bytes = 0
        self.is_busy = False
        self.waits_since = 0.0
        self._connections = connections
        self._inner = inner
        self._transport: asyncio.Transport | None = None
        """None: it was not admitted."""
        self._is_open = False
        self._is_idle = False
        self._loop = asyncio.get_running_loop()
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    # What the application tells.

    def begin(self) -> None:
        """The head of a request has come; the time for its body is another one."""
        self._wait(None)

    def serve(self) -> None:
        """All of it has."""
        self.is_busy = True

    def end(self) -> None:
        """The answer is ready."""
        self.is_busy, self._is_idle = False, True
        self._connections.release(self)
        self._wait(self._connections.limits.idle_s_max)

    # What the transport tells.

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are of no class of asyncio's.
        made = cast(asyncio.Transport, transport)
        peer = made.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) else ""
        self.requester = Requester(host=self.address)
        if not self._connections.admit(self, made):
            made.write(FULL)
            made.close()
            return
        self._transport, self._is_open = made, True
        self._wait(self._connections.limits.head_s_max)
        self._inner.connection_made(transport)

    @override
    def data_received(self, data: bytes) -> None:
        if not self._is_open:
            return
        if self._is_idle:
            self._is_idle = False
            self._wait(self._connections.limits.head_s_max)
        self._connections.hold(self, len(data))
        self._inner.data_received(data)

    @override
    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._transport is not None else None

    @override
    def pause_writing(self) -> None:
        self._unread = self._loop.call_later(self._connections.limits.unread_s_max, self.abort)
        self._inner.pause_writing()

    @override
    def resume_writing(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
        self._inner.resume_writing()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._forget(self._transport)
            self._inner.connection_lost(exc)

    def abort(self) -> None:
        """Close it at once; nobody counts it any more."""
        if self._transport is not None and self._is_open:
            self._forget(self._transport)
            self._transport.abort()

    def _forget(self, transport: asyncio.Transport) -> None:
        self._is_open = False
        self._connections.release(self)
        self._connections.leave(self, transport)
        for timer in (self._deadline, self._unread):
            if timer is not None:
                timer.cancel()

    def _wait(self, seconds: float | None) -> None:
        """Be closed after `seconds`; None: when it pleases."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None
        if seconds is not None and self._is_open:
            self.waits_since = self._loop.time()
            self._deadline = self._loop.call_later(seconds, self.abort)


class SecuredConnection:
    """One below which TLS is spoken: what `broker.edge.tls_transport` wants to have above it."""

    def __init__(self, connection: HttpConnection, scratch: memoryview) -> None:
        """`scratch`: what was decrypted comes into it; emptied before anybody else uses it."""
        self._connection = connection
        self._scratch = scratch

    @property
    def address(self) -> str:
        return self._connection.address

    @property
    def requester(self) -> Requester:
        return self._connection.requester

    @requester.setter
    def requester(self, requester: Requester) -> None:
        """The handshake tells."""
        self._connection.requester = requester

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connection.connection_made(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        self._connection.data_received(bytes(self._scratch[:nbytes]))

    def eof_received(self) -> bool:
        return bool(self._connection.eof_received())

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def abort(self, kind: str, reason: str) -> None:
        """TLS cannot go on."""
        logger.debug("%s %s: %s", kind, self.address, reason)
        self._connection.abort()
