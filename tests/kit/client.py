"""A Kafka client's end of a connection, without sockets: bytes in through the protocol, answers out.

`Client` drives a `KafkaServerProtocol` as a loop would: it hands over what lies in the "kernel"
(`kernel`) while the protocol reads, and takes what the protocol writes. `call` sends a request, as
its neutral shape (`protocol.messages`), and waits for the response; `send` and `answer` are its
halves. `frame`, `feed` and `put` are for tests that look at bytes and reads.
"""

import asyncio
import struct
from collections.abc import Awaitable, Iterable
from typing import Any, cast

from typing_extensions import override

from broker.edge.connection import KafkaServerProtocol
from broker.edge.server import KafkaServer
from protocol.types import Buffer
from tests.kit.requests import Exchange

ANSWER_S = 120.0
"""Longer than any deadline of a request."""


class ClientTransport(asyncio.Transport):
    """Takes what is written; `stuck` makes it pile up, as for a client that does not read."""

    def __init__(self, client: "Client") -> None:
        super().__init__()
        self.client = client
        self.writes: list[bytes] = []
        self.read_paused = False
        self.closing = False
        self.aborted = False
        self.stuck = False
        self.high = 64 * 1024

    @override
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "unread_bytes":
            return len(self.client.kernel)
        return (self.client.address, 5000) if name == "peername" else default

    @override
    def get_write_buffer_size(self) -> int:
        return sum(map(len, self.writes)) if self.stuck else 0

    @override
    def write(self, data: Buffer) -> None:
        assert not self.closing
        self.writes.append(bytes(data))
        if self.stuck and sum(map(len, self.writes)) > self.high:
            self.client.protocol.pause_writing()

    @override
    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        self.write(b"".join(bytes(part) for part in list_of_data))

    @override
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        self.high = high

    @override
    def pause_reading(self) -> None:
        assert not self.read_paused
        self.read_paused = True

    @override
    def resume_reading(self) -> None:
        assert self.read_paused
        self.read_paused = False
        self.client.pump_soon()

    @override
    def is_reading(self) -> bool:
        return not self.read_paused

    @override
    def close(self) -> None:
        if not self.closing:
            self.closing = True
            asyncio.get_running_loop().call_soon(self.client.lost)

    @override
    def abort(self) -> None:
        self.aborted = True
        self.close()

    @override
    def is_closing(self) -> bool:
        return self.closing


class Client:
    """One connection, seen from the client."""

    def __init__(
        self, server: KafkaServer, listener: str = "PLAINTEXT", *, address: str = "127.0.0.1"
    ) -> None:
        self.address = address
        self.protocol = cast("KafkaServerProtocol", server.factory(listener)())
        self.transport = ClientTransport(self)
        self.kernel = bytearray()
        self.was_lost = False
        self.reads = 0
        self._exchange = Exchange()
        self._read_answers = 0
        self._frames: list[bytes] = []
        self._cut_writes = 0
        """How many of the transport's writes are in the frames, but for what is left over."""
        self._left_over = b""
        self.protocol.connection_made(self.transport)

    # Requests and responses.

    async def call(self, api_key: int, version: int, request: Any = None, **more: Any) -> Any:
        """The response, as its neutral shape; virtual time passes meanwhile."""
        self.send(api_key, version, request, **more)
        return await self.answer()

    def send(self, api_key: int, version: int, request: Any = None, **more: Any) -> None:
        self.feed(self.frame(api_key, version, request, **more))

    async def answer(self, seconds: float = ANSWER_S) -> Any:
        """The next answer, decoded."""
        index = self._read_answers
        for _ in range(int(seconds * 100)):
            frames = self.frames()
            if len(frames) > index:
                self._read_answers += 1
                return self._exchange.response(frames[index])[1]
            assert not self.closed, "closed instead of an answer"
            await asyncio.sleep(0.01)
        raise AssertionError("not answered")

    @property
    def awaits(self) -> int:
        """How many answers have not been read yet."""
        return self._exchange.sent - self._read_answers

    @property
    def closed(self) -> bool:
        return self.transport.closing

    def hang_up(self) -> None:
        """The client closes its end."""
        self.transport.closing = True
        self.lost()

    # Bytes.

    def frame(
        self,
        api_key: int,
        version: int,
        request: Any = None,
        *,
        client_id: str = "test",
        body: bytes | None = None,
    ) -> bytes:
        """A request's bytes; the answer to it is expected next."""
        if body is None and request is None:
            body = bytes(4)
        return self._exchange.request(api_key, version, request, client_id=client_id, body=body)

    def put(self, data: bytes) -> None:
        """Bytes arrive in the kernel; the loop has not looked yet."""
        self.kernel += data

    def feed(self, data: bytes) -> None:
        self.put(data)
        self.pump()

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

    def pump_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self.pump)

    def lost(self) -> None:
        if not self.was_lost:
            self.was_lost = True
            self.protocol.connection_lost(None)

    def frames(self) -> list[bytes]:
        """Everything that was answered, cut into frames."""
        writes = self.transport.writes
        data = b"".join([self._left_over, *writes[self._cut_writes :]])
        self._cut_writes = len(writes)
        begin = 0
        while len(data) - begin >= 4:
            (length,) = struct.unpack_from(">i", data, begin)
            end = begin + 4 + length
            if end > len(data):
                break
            self._frames.append(data[begin + 4 : end])
            begin = end
        self._left_over = data[begin:]
        return [*self._frames]

    def forget(self) -> None:
        """As if nothing had been answered so far."""
        self.transport.writes.clear()
        self._frames.clear()
        self._cut_writes, self._left_over = 0, b""

    def correlation_ids(self) -> list[int]:
        return [struct.unpack_from(">i", frame)[0] for frame in self.frames()]


async def settle(turns: int = 40) -> None:
    """Let everything that is ready run."""
    for _ in range(turns):
        await asyncio.sleep(0)


async def caught_up(agent: Any, asked: Awaitable[Any]) -> Any:
    """What comes of a request to an agent that lags; nothing may, before it has caught up."""
    task = asyncio.ensure_future(asked)
    await asyncio.sleep(1)
    assert not task.done()
    agent.catch_up()
    return await task
