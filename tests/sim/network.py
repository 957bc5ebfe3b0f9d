"""A network in memory: servers by address, connections with delays, cuts and resets.

Bytes of one direction arrive in order, in pieces of seeded size after seeded delays; what was
sent may be lost only by losing the connection. A direction can be held back (`hold`): what is sent
on it meanwhile, the end of the connection included, arrives at once when the time is over, however
long its sender has been gone. Callbacks run in the context of the side that they belong to, so that
pausing or killing an owner stops its sockets too.
"""

import asyncio
import contextlib
import contextvars
import random
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from typing_extensions import override

from protocol.types import Buffer
from tests.kit.loop import OWNER, SimLoop

LATENCY_S = (0.0001, 0.002)
PIECE_BYTES = (1, 4000, 65536, 1 << 20)
Address = tuple[str, int]
Factory = Callable[[], Any]
"""Of protocols: plain or buffered ones."""


class _FakeSocket:
    def __init__(self, address: Address) -> None:
        self._address = address

    def getsockname(self) -> Address:
        return self._address

    def dup(self) -> AbstractContextManager["_FakeSocket"]:
        return contextlib.nullcontext(self)

    def listen(self, _backlog: int) -> None:
        """Only `SimServer.start_serving` lets anybody in."""

    def shutdown(self, _how: int) -> None:
        """So nobody waits to be turned away."""


class SimServer:
    """What `loop.create_server` returns: an address of its own, at which it may serve."""

    def __init__(self, network: "Network", address: Address, factory: Factory) -> None:
        self.address = address
        self.factory = factory
        self.context = contextvars.copy_context()
        self.owner = OWNER.get()
        self.serving = False
        self._network = network

    @property
    def sockets(self) -> Sequence[_FakeSocket]:
        return [_FakeSocket(self.address)]

    def close(self) -> None:
        self.serving = False
        self._network.servers.pop(self.address, None)

    async def wait_closed(self) -> None:
        return None

    async def start_serving(self) -> None:
        self.serving = True


class SimTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self,
        network: "Network",
        context: contextvars.Context,
        *,
        local: Address,
        remote: Address,
    ) -> None:
        super().__init__({"peername": remote, "sockname": local})
        self._network = network
        self._loop = network.loop
        self.context = context
        self.owner = context.get(OWNER, "")
        self.peer: Any = None
        """The other end."""
        self.protocol: Any = None
        self._incoming: deque[bytes] = deque()
        self._wire: deque[bytes | None] = deque()
        """What is under way to this end; timers say when each piece arrives."""
        self._reading = True
        self._closing = False
        self._lost = False
        self._eof = False
        self.held: list[bytes | None] | None = None
        """What would have arrived here by now; None: nothing is held back."""

    # What the protocol of this end calls.

    @override
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "unread_bytes":
            return sum(map(len, self._incoming))
        return super().get_extra_info(name, default)

    @override
    def write(self, data: Buffer) -> None:
        if not self._closing and data:
            self._network.send(self, bytes(data))

    @override
    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._network.finish(self)

    @override
    def abort(self) -> None:
        self.close()

    @override
    def is_closing(self) -> bool:
        return self._closing

    @override
    def pause_reading(self) -> None:
        self._reading = False

    @override
    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self._soon(self._deliver)

    @override
    def is_reading(self) -> bool:
        return self._reading

    @override
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return None

    @override
    def get_write_buffer_size(self) -> int:
        return 0

    def hold_back(self, seconds: float) -> None:
        """The network keeps what this end sends from now on for so long (`Network.hold`)."""
        if self.peer is not None:
            self._network.hold(self.peer, seconds)

    # What the network calls, always in this end's context.

    def _soon(self, callback: Callable[..., object], *args: object) -> None:
        self._loop.call_soon(callback, *args, context=self.context)

    def arrive(self, data: bytes | None) -> None:
        """Bytes, or None: the other end is gone."""
        if data is None:
            self._eof = True
        else:
            self._incoming.append(data)
        self._deliver()

    def _deliver(self) -> None:
        while self._reading and self._incoming and not self._lost:
            self._feed(self._incoming.popleft())
        if self._eof and not self._incoming and not self._lost:
            self.lose(None)

    def _feed(self, data: bytes) -> None:
        if not isinstance(self.protocol, asyncio.BufferedProtocol):
            self.protocol.data_received(data)
            return
        while data and not self._lost:
            buffer = memoryview(self.protocol.get_buffer(len(data))).cast("B")
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            data = data[count:]
            self.protocol.buffer_updated(count)
            if not self._reading and data:
                self._incoming.appendleft(data)
                return

    def lose(self, error: Exception | None) -> None:
        self._closing = True
        if not self._lost:
            self._lost = True
            self.protocol.connection_lost(error)


class Network:
    """All addresses and connections of one simulated world. Installs itself on the loop."""

    def __init__(
        self, loop: SimLoop, rng: random.Random, piece_bytes: Sequence[int] = PIECE_BYTES
    ) -> None:
        self.loop = loop
        self._rng = rng
        self._piece_bytes = piece_bytes
        self.servers: dict[Address, SimServer] = {}
        self._connections: list[SimTransport] = []
        self._ports = iter(range(20_000, 65_000))
        self._arrivals: dict[SimTransport, float] = {}
        self._holding: dict[SimTransport, asyncio.TimerHandle] = {}
        loop.__dict__.update(
            create_server=self._create_server, create_connection=self._create_connection
        )

    async def _create_server(
        self,
        factory: Factory,
        host: str | None = None,
        port: int = 0,
        *,
        start_serving: bool = True,
        **_more: object,
    ) -> SimServer:
        address = (host or "sim", port or next(self._ports))
        if address in self.servers:
            raise OSError(98, f"address {address} is in use")
        server = self.servers[address] = SimServer(self, address, factory)
        server.serving = start_serving
        return server

    async def _create_connection(
        self, factory: Factory, host: str, port: int, **_more: object
    ) -> tuple[SimTransport, Any]:
        await asyncio.sleep(self._delay())
        server = self.servers.get((host, port))
        if server is None or not server.serving:
            raise ConnectionRefusedError(111, f"nothing listens on {host}:{port}")
        here = (f"client-{OWNER.get()}", next(self._ports))
        client = SimTransport(self, contextvars.copy_context(), local=here, remote=(host, port))
        accepted = SimTransport(self, server.context.copy(), local=(host, port), remote=here)
        client.peer, accepted.peer = accepted, client
        client.protocol, accepted.protocol = factory(), None
        self._connections += [client, accepted]

        def accept() -> None:
            accepted.protocol = server.factory()
            accepted.protocol.connection_made(accepted)

        accepted._soon(accept)
        client.protocol.connection_made(client)
        return client, client.protocol

    def send(self, sender: SimTransport, data: bytes) -> None:
        size = self._rng.choice(self._piece_bytes)
        if len(data) // size > 64:
            size = len(data)
        for start in range(0, len(data), size):
            self._later(sender.peer, data[start : start + size])

    def finish(self, sender: SimTransport) -> None:
        """`sender` was closed: both ends learn it, the other after what is still under way."""
        self._later(sender.peer, None)
        sender._soon(sender.lose, None)

    def _later(self, receiver: SimTransport, data: bytes | None) -> None:
        # A stream keeps its order: nothing arrives before what was sent before it. The order of
        # equal timers is the loop's to draw, so the pieces wait in a queue and timers only say when.
        if receiver.held is not None:
            receiver.held.append(data)
            return
        at = max(self.loop.time() + self._delay(), self._arrivals.get(receiver, 0.0)) + 1e-9
        self._arrivals[receiver] = at
        receiver._wire.append(data)
        self.loop.call_at(at, self._arrive, receiver, context=receiver.context)

    @staticmethod
    def _arrive(receiver: SimTransport) -> None:
        if receiver.protocol is None:
            receiver._loop.call_later(1e-4, Network._arrive, receiver, context=receiver.context)
            return
        receiver.arrive(receiver._wire.popleft())

    def hold(self, receiver: SimTransport, seconds: float) -> None:
        """What is sent to this end from now on arrives when the time is over, all at once."""
        if receiver.held is None and not receiver._lost:
            receiver.held = []
            self._holding[receiver] = self.loop.call_later(seconds, self._let_go, receiver)

    @staticmethod
    def has_read(sender: SimTransport) -> bool:
        """The other end has read all that this one has sent."""
        peer: SimTransport = sender.peer
        return not (peer.held or peer._wire or peer._incoming)

    def let_all_go(self) -> None:
        """Nothing is held back any more."""
        for receiver, timer in list(self._holding.items()):
            timer.cancel()
            self._let_go(receiver)

    def _let_go(self, receiver: SimTransport) -> None:
        del self._holding[receiver]
        held, receiver.held = receiver.held or [], None
        # In one piece: two frames that waited together are read together, as from a kernel's buffer.
        if data := b"".join(piece for piece in held if piece is not None):
            self._later(receiver, data)
        if None in held:
            self.loop.call_later(self._rng.uniform(0.0, 1.0), self._later, receiver, None)

    def reset(self, owner: str) -> None:
        """Every connection of `owner` breaks, as when its process is killed."""
        for end in self._connections:
            if end.owner == owner and not end._lost:
                end._lost = end._closing = True
                peer = end.peer
                self.loop.call_later(
                    self._delay(),
                    peer.lose,
                    ConnectionResetError(104, "reset"),
                    context=peer.context,
                )
        self._connections = [end for end in self._connections if not end._lost]
        for address in [a for a, server in self.servers.items() if server.owner == owner]:
            del self.servers[address]

    def break_some(self, probability: float, rng: random.Random) -> None:
        """Each connection breaks with a probability."""
        for end in list(self._connections):
            if not end._lost and rng.random() < probability:
                for side in (end, end.peer):
                    side._soon(side.lose, ConnectionResetError(104, "reset"))

    def _delay(self) -> float:
        low, high = LATENCY_S
        return self._rng.uniform(low, high)
