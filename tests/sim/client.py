"""A small Kafka client for simulated worlds: connections, requests in flight, time-outs.

It speaks the wire format through `protocol`, as real clients do, and knows nothing of agents.
Losing a connection fails everything in flight on it, a time-out closes it, as in Kafka's clients.
"""

import asyncio
import contextlib
import struct
from collections import deque

from protocol import framing, messages

REQUEST_TIMEOUT_S = 20.0


class LostError(Exception):
    """No answer: the connection broke, or the time was up. What was asked may have happened."""


class _Answers(asyncio.Protocol):
    def __init__(self) -> None:
        self.buffer = bytearray()
        self.waiting: deque[tuple[int, int, int, asyncio.Future]] = deque()
        self.lost = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while len(self.buffer) >= 4:
            (length,) = struct.unpack_from(">i", self.buffer)
            if len(self.buffer) < 4 + length:
                return
            frame = bytes(self.buffer[4 : 4 + length])
            del self.buffer[: 4 + length]
            key, version, correlation_id, future = self.waiting.popleft()
            answered, body = framing.parse_response_header(key, version, frame)
            assert answered == correlation_id, "answers came out of order (P10)"
            if not future.done():
                future.set_result(messages.decode_response(key, version, body))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        for _, _, _, future in self.waiting:
            if not future.done():
                future.set_exception(LostError("the connection was lost"))
        self.waiting.clear()


class Client:
    """One client process; a connection per address, made when needed."""

    def __init__(self, loop, name: str, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self._loop = loop
        self.name = name
        self._timeout_s = timeout_s
        self._connections: dict[tuple[str, int], _Answers] = {}
        self._correlation = 0

    async def connect(self, address: tuple[str, int]) -> _Answers:
        connection = self._connections.get(address)
        if connection is None or connection.lost:
            try:
                _, connection = await self._loop.create_connection(_Answers, *address)
            except OSError as error:
                raise LostError(str(error)) from error
            self._connections[address] = connection
        return connection

    async def ask(self, address: tuple[str, int], key: int, version: int, request):
        """Send and wait for the answer. Raises LostError."""
        return await self.asked(await self.connect(address), key, version, request)

    def send(self, connection: _Answers, key: int, version: int, request) -> asyncio.Future:
        """Send now; the future has the answer or LostError. Order of calls = order of frames."""
        future = self._loop.create_future()
        if connection.lost:
            future.set_exception(LostError("the connection was lost"))
            return future
        # Who sent it may be gone when it fails.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._correlation += 1
        body = messages.encode_request(key, version, request)
        frame = framing.request_frame(key, version, self._correlation, self.name, body)
        connection.waiting.append((key, version, self._correlation, future))
        connection.transport.write(frame)
        return future

    async def asked(self, connection: _Answers, key: int, version: int, request):
        return await self.answer(connection, self.send(connection, key, version, request))

    async def answer(self, connection: _Answers, future: asyncio.Future):
        """Wait for a sent request's answer; after the time-out the connection is closed."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await future
        except TimeoutError:
            connection.transport.close()
            raise LostError("the request timed out") from None

    def close(self) -> None:
        for connection in self._connections.values():
            with contextlib.suppress(AttributeError):
                connection.transport.close()
