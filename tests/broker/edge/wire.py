"""A client's end of a connection, without sockets: bytes in through the protocol, answers out.

`Peer` drives a `KafkaServerProtocol` as a loop would: it hands over what lies in the "kernel"
(`kernel`) while the protocol reads, and takes what the protocol writes.
"""

import asyncio
import contextlib
import struct
from dataclasses import replace
from types import SimpleNamespace

from broker.api import Cold, Hot
from broker.edge.server import KafkaServer
from broker.handlers import SERVED
from broker.node import EdgeStats
from protocol import apis, messages
from protocol.framing import parse_response_header, request_frame
from protocol.types import POSITION_ZERO
from tests.broker.produce.world import settings
from tests.sim import loop as sim_loop


class PeerTransport(asyncio.Transport):
    """Takes what is written; `stuck` makes it pile up, as for a client that does not read."""

    def __init__(self, peer: "Peer") -> None:
        super().__init__()
        self.peer = peer
        self.writes: list[bytes] = []
        self.read_paused = False
        self.closing = False
        self.aborted = False
        self.stuck = False
        self.high = 64 * 1024

    def get_extra_info(self, name, default=None):
        if name == "unread_bytes":
            return len(self.peer.kernel)
        return ("127.0.0.1", 5000) if name == "peername" else default

    def get_write_buffer_size(self):
        return sum(map(len, self.writes)) if self.stuck else 0

    def write(self, data):
        assert not self.closing
        self.writes.append(bytes(data))
        if self.stuck and sum(map(len, self.writes)) > self.high:
            self.peer.protocol.pause_writing()

    def writelines(self, parts):
        self.write(b"".join(bytes(part) for part in parts))

    def set_write_buffer_limits(self, high=None, low=None):
        self.high = high

    def pause_reading(self):
        assert not self.read_paused
        self.read_paused = True

    def resume_reading(self):
        assert self.read_paused
        self.read_paused = False
        self.peer.pump_soon()

    def close(self):
        if not self.closing:
            self.closing = True
            asyncio.get_running_loop().call_soon(self.peer.lost)

    def abort(self):
        self.aborted = True
        self.close()

    def is_closing(self):
        return self.closing


class Peer:
    """One connection, seen from the client."""

    def __init__(self, server: KafkaServer, listener: str = "PLAINTEXT") -> None:
        self.protocol = server.factory(listener)()
        self.transport = PeerTransport(self)
        self.kernel = bytearray()
        self.was_lost = False
        self.reads = 0
        self._sent: list[tuple[int, int]] = []
        self._read_answers = 0
        self.protocol.connection_made(self.transport)

    @property
    def closed(self) -> bool:
        return self.transport.closing

    def lost(self) -> None:
        if not self.was_lost:
            self.was_lost = True
            self.protocol.connection_lost(None)

    def hang_up(self) -> None:
        """The client closes its end."""
        self.transport.closing = True
        self.lost()

    def pump_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self.pump)

    def pump(self) -> None:
        """Read from the kernel while the protocol wants to; one read, one loop turn."""
        if self.kernel and not self.transport.read_paused and not self.closed:
            room = self.protocol.get_buffer(-1)
            count = min(len(room), len(self.kernel))
            room[:count] = self.kernel[:count]
            del self.kernel[:count]
            del room
            self.reads += 1
            self.protocol.buffer_updated(count)
            if self.kernel:
                self.pump_soon()

    def put(self, data: bytes) -> None:
        """Bytes arrive in the kernel; the loop has not looked yet."""
        self.kernel += data

    def feed(self, data: bytes) -> None:
        self.put(data)
        self.pump()

    def frame(self, key: int, version: int, request=None, *, client_id="test", body=None) -> bytes:
        """A request's bytes; the answer to it is expected next."""
        if body is None:
            body = messages.encode_request(key, version, request) if request else bytes(4)
        self._sent.append((key, version))
        return request_frame(key, version, len(self._sent), client_id, body)

    def send(self, key: int, version: int, request=None, **more) -> None:
        self.feed(self.frame(key, version, request, **more))

    def frames(self) -> list[bytes]:
        """Everything that was answered, cut into frames."""
        data = b"".join(self.transport.writes)
        frames = []
        while data:
            (length,) = struct.unpack_from(">i", data)
            frames.append(data[4 : 4 + length])
            data = data[4 + length :]
        return frames

    def correlation_ids(self) -> list[int]:
        return [struct.unpack_from(">i", frame)[0] for frame in self.frames()]

    async def answer(self, seconds: float = 120.0):
        """The next answer, decoded; virtual time passes meanwhile."""
        index = self._read_answers
        for _ in range(int(seconds * 100)):
            frames = self.frames()
            if len(frames) > index:
                self._read_answers += 1
                correlation_id = struct.unpack_from(">i", frames[index])[0]
                key, version = self._sent[correlation_id - 1]
                got, body = parse_response_header(key, version, frames[index])
                assert got == correlation_id
                return messages.decode_response(key, version, body)
            assert not self.closed, "closed instead of an answer"
            await asyncio.sleep(0.01)
        raise AssertionError("not answered")

    async def ask(self, key: int, version: int, request=None, **more):
        self.send(key, version, request, **more)
        return await self.answer()


async def settle(turns: int = 40) -> None:
    """Let everything that is ready run."""
    for _ in range(turns):
        await asyncio.sleep(0)


class Gate:
    """A ProducePath as far as the server looks at it."""

    def __init__(self) -> None:
        self.full = False
        self.callbacks = []

    def on_room(self, callback) -> None:
        self.callbacks.append(callback)

    def make_room(self) -> None:
        self.full = False
        for callback in self.callbacks:
            callback()


class Stage:
    """A server whose handlers do nothing by themselves: the test answers the calls."""

    def __init__(self, loop, *, limits=None, handlers=None, **changes: str) -> None:
        self.loop = loop
        self.skew_ms = 0
        self.started = []
        self.refused = []
        self.cold = []
        self.node = SimpleNamespace(
            settings=settings(**changes),
            producing=Gate(),
            stats=EdgeStats(),
            coordinator=SimpleNamespace(machine=SimpleNamespace(position=POSITION_ZERO)),
            boot_ms=lambda: int(loop.time() * 1000) + self.skew_ms,
        )
        table = {
            key: replace(api, handler=Hot(self._start), changes=False)
            for key, api in SERVED.items()
        }
        changed = {
            apis.PRODUCE: Hot(self._start, self._refuse),
            apis.CREATE_TOPICS: Cold(self._handle, self._refusal),
        }
        for key, handler in (changed | (handlers or {})).items():
            table[key] = replace(SERVED[key], handler=handler)
        self.server = KafkaServer(self.node, table, limits=limits)

    def peer(self) -> Peer:
        return Peer(self.server)

    def stall(self, ms: int = 1_500) -> None:
        """The loop stood still; nobody has looked at the clock since."""
        self.skew_ms += ms

    def _start(self, node, call) -> None:
        self.started.append(call)

    def _refuse(self, node, call, error) -> None:
        self.refused.append((call.correlation_id, error.code))
        call.answer([b"refused"])

    async def _handle(self, node, call, request):
        self.cold.append(call)
        return messages.CreateTopicsResponse()

    def _refusal(self, call, request, error):
        self.refused.append((call.correlation_id, error.code))
        return messages.CreateTopicsResponse()


def perform(play, *, seed: int = 1, **more) -> None:
    """Run `play(stage)` in virtual time, with the server running."""

    async def main(loop, rng) -> None:
        stage = Stage(loop, **more)
        server = asyncio.get_running_loop().create_task(stage.server.run())
        await settle()
        try:
            await play(stage)
        finally:
            server.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await server
        assert stage.node.stats.held_bytes == 0
        assert not loop.failures or getattr(stage, "bugs_expected", False), loop.failures

    sim_loop.run(main, seed=seed)
