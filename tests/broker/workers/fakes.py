"""Workers without processes: a test speaks for each through its end of the socket pair."""

import asyncio
import os
import socket
from typing import Any, Self

from broker.workers.messages import HEAD, Message, What, decode, encode, length_of


class FakeWorker:
    """One process of a worker, as a supervisor has it from asyncio; and the test's end."""

    def __init__(self, stdin: int, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.was_killed = False
        self.seat: dict[str, Any] = {}
        """As it was told."""
        self._ended = asyncio.Event()
        self._socket = socket.socket(fileno=os.dup(stdin))
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def open(self) -> Self:
        self._reader, self._writer = await asyncio.open_unix_connection(sock=self._socket)
        return self

    # As a process.

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        self.was_killed = True
        self.end(-9)

    # As a worker.

    async def receive(self) -> Message:
        async with asyncio.timeout(10):
            head = await self._reader.readexactly(HEAD.size)
            return decode(await self._reader.readexactly(length_of(head)))

    async def expect(self, what: What) -> Message:
        """The next message; what it is told of others' deaths is skipped unless it is expected."""
        message = await self.receive()
        while message.what is What.DIED is not what:
            message = await self.receive()
        assert message.what is what, message
        return message

    def send(self, what: What, **fields: Any) -> None:
        self._writer.write(encode(what, **fields))

    def serve(self) -> None:
        self.send(What.SERVING, listening={"PLAINTEXT": ["127.0.0.1", 9092]})

    async def answer(self, value: Any) -> None:
        """What is asked next."""
        asked = await self.expect(What.TELL)
        self.send(What.ANSWER, ticket=asked.ticket, value=value)

    def end(self, code: int) -> None:
        if self.returncode is None:
            self.returncode = code
            self._writer.close()
            self._ended.set()


class FakeWorkers:
    """What a supervisor starts."""

    def __init__(self) -> None:
        self._started: asyncio.Queue[FakeWorker] = asyncio.Queue()
        self.count = 0
        self.may_start = asyncio.Event()
        self.may_start.set()

    async def spawn(self, stdin: int) -> Any:
        self.count += 1
        await self.may_start.wait()
        worker = await FakeWorker(stdin, self.count).open()
        self._started.put_nowait(worker)
        return worker

    async def next(self) -> FakeWorker:
        """The one that is started next, once it has been greeted."""
        async with asyncio.timeout(10):
            worker = await self._started.get()
        worker.seat = (await worker.expect(What.HELLO)).fields["seat"]
        return worker
