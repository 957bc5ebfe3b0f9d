"""A TCP proxy in front of a real server, on the test's own loop."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Self

TURNS_OF_AN_ACCEPT = 10
"""Of the loop, at most: from accepting a connection to the task that serves it."""


async def _turns() -> None:
    for _ in range(TURNS_OF_AN_ACCEPT):
        await asyncio.sleep(0)


class Proxy:
    """Set `damage` to rewrite what clients send, `lose_answers` to hang up instead of answering;
    frozen, it takes bytes and gives none."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open = asyncio.Event()
        self._open.set()
        self._pumps: list[asyncio.Task[None]] = []
        self._writers: list[asyncio.StreamWriter] = []
        self.damage: Callable[[bytes], bytes] | None = None
        self.lose_answers = False

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self.url = f"http://{self.address}"
        return self

    async def __aexit__(self, *_: object) -> None:
        # A server that is closed in the middle of an accept leaves the connection open.
        await _turns()
        self._server.close()
        await _turns()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        for writer in self._writers:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
        await _turns()

    def freeze(self) -> None:
        self._open.clear()

    def thaw(self) -> None:
        self._open.set()

    async def _serve(self, reader, writer) -> None:
        self._pumps.append(asyncio.current_task())
        self._writers.append(writer)
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers.append(other_writer)
        back = asyncio.ensure_future(self._pump(other_reader, writer, self._answer))
        self._pumps.append(back)
        await self._pump(reader, other_writer, self._request)

    async def _pump(self, reader, writer, change: Callable[[bytes], bytes]) -> None:
        try:
            while data := await reader.read(65536):
                await self._open.wait()
                writer.write(change(data))
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    def _request(self, data: bytes) -> bytes:
        return self.damage(data) if self.damage else data

    def _answer(self, data: bytes) -> bytes:
        if self.lose_answers:
            raise ConnectionError("the answer is lost")
        return data
