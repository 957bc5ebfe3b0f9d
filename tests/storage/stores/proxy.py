"""A TCP proxy in front of a real server, which damages requests or loses answers as told."""

import asyncio
from collections.abc import Callable
from typing import Self


class Proxy:
    """Set `damage` to rewrite what clients send, `lose_answers` to hang up instead of answering."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.damage: Callable[[bytes], bytes] | None = None
        self.lose_answers = False

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.__aexit__()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._port)
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._requests(reader, up_writer))
                    tasks.create_task(self._answers(up_reader, writer))
            finally:
                up_writer.close()
        except* ConnectionError:
            pass
        finally:
            writer.close()

    async def _requests(self, reader: asyncio.StreamReader, up: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            up.write(self.damage(data) if self.damage else data)
            await up.drain()
        up.write_eof()

    async def _answers(self, up: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await up.read(65536):
            if self.lose_answers:
                writer.close()
                raise ConnectionError("the answer is lost")
            writer.write(data)
            await writer.drain()
        writer.close()
