"""One process of a worker, from its start to its end, as the supervisor sees it.

It is connected by a socket pair, as the worker of the jobs is, and ends when that does. What does not
answer for long is killed: its clients wait at its port, and nothing but its end sends them elsewhere.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from broker.workers.messages import (
    HEAD,
    Message,
    MessageError,
    Subject,
    What,
    decode,
    encode,
    encode_told,
    length_of,
)
from broker.workers.supervision import Ended

logger = logging.getLogger(__name__)

PING_S: Final = 10.0
UNANSWERED_MAX: Final = 6
"""Pings. Counted in pings, not in time, so that a machine that was suspended does not blame anybody."""
TELL_S: Final = 1.0
"""For a worker to say something."""
END_S: Final = 5.0
"""For a process to end whose socket is closed."""
CANNOT_START: Final = 127


class Spawn(Protocol):
    """How a worker's process is started, with one end of the socket as its standard input."""

    async def __call__(self, stdin: int) -> asyncio.subprocess.Process: ...


class Life:
    """`run` is called once."""

    def __init__(
        self,
        name: str,
        hello: Mapping[str, Any],
        *,
        spawn: Spawn,
        serving: Callable[[Mapping[str, Any]], None],
        joined: Callable[[Subject], Awaitable[Any]],
    ) -> None:
        """`hello`: the first message; `serving` is told where the worker listens; `joined`: what all
        workers say together."""
        self.name = name
        self._hello = hello
        self._spawn = spawn
        self._serving = serving
        self._joined = joined
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._is_to_leave = False
        self._unanswered = 0
        self._tickets = 0
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._sentence: str | None = None
        self._served_s: float | None = None
        """When it began to serve, by the loop's clock."""

    async def run(self) -> Ended:
        """Start the process, and serve it until it has ended; when cancelled, kill it."""
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            return self._not_started(error)
        try:
            self._process = process = await self._spawn(theirs.fileno())
        except OSError as error:
            ours.close()
            return self._not_started(error)
        finally:
            theirs.close()
        logger.info("a worker was started", extra={"worker": self.name, "pid": process.pid})
        try:
            reader, self._writer = await asyncio.open_unix_connection(sock=ours)
            self._send(What.HELLO, **self._hello)
            if self._is_to_leave:
                self._send(What.LEAVE)
            await self._serve(reader)
            code = await self._wait(process)
        finally:
            self.kill()
            await process.wait()
            if self._writer is not None:
                self._writer.close()
            for future in self._asked.values():
                future.cancel()
        served_ms = None
        if self._served_s is not None:
            served_ms = int((asyncio.get_running_loop().time() - self._served_s) * 1000)
        return Ended(code, self._sentence, served_ms)

    def _not_started(self, error: OSError) -> Ended:
        logger.warning("worker %s cannot be started: %s", self.name, error)
        return Ended(CANNOT_START)

    @property
    def pid(self) -> int | None:
        """None: not started yet."""
        return None if self._process is None else self._process.pid

    async def tell(self, subject: Subject) -> Any:
        """What the worker says of it; None when it does not answer."""
        self._tickets += 1
        ticket = self._tickets
        future = self._asked[ticket] = asyncio.get_running_loop().create_future()
        self._send(What.TELL, ticket=ticket, subject=subject.value)
        try:
            done, _ = await asyncio.wait([future], timeout=TELL_S)
            return future.result() if done and not future.cancelled() else None
        finally:
            del self._asked[ticket]

    def leave(self) -> None:
        """Ask it to drain and to end."""
        self._is_to_leave = True
        self._send(What.LEAVE)

    def tell_of_death(self, node_name: str, died_ms: int) -> None:
        """Another worker's process has ended."""
        self._send(What.DIED, node_name=node_name, died_ms=died_ms)

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def _serve(self, reader: asyncio.StreamReader) -> None:
        """Until the worker's end is closed, or it says something wrong."""
        async with asyncio.TaskGroup() as tasks:
            pings = tasks.create_task(self._ping())
            try:
                while True:
                    head = await reader.readexactly(HEAD.size)
                    body = await reader.readexactly(length_of(head))
                    self._take(decode(body), tasks)
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            except MessageError as error:
                logger.warning("worker %s is killed: %s", self.name, error)
                self.kill()
            pings.cancel()

    async def _wait(self, process: asyncio.subprocess.Process) -> int:
        try:
            async with asyncio.timeout(END_S):
                return await process.wait()
        except TimeoutError:
            logger.warning("worker %s closed its socket and does not end: it is killed", self.name)
            self.kill()
            return await process.wait()

    def _take(self, message: Message, tasks: asyncio.TaskGroup) -> None:
        match message.what:
            case What.PONG:
                self._unanswered = 0
            case What.SERVING:
                self._served_s = asyncio.get_running_loop().time()
                self._serving(message.fields.get("listening", {}))
            case What.REFUSED:
                self._sentence = str(message.fields.get("sentence"))
            case What.ASK:
                tasks.create_task(self._answer(message.ticket, message.subject))
            case What.ANSWER:
                future = self._asked.get(message.ticket)
                if future is not None and not future.done():
                    future.set_result(message.fields.get("value"))
            case what:
                raise MessageError(f"a worker does not send {what.name}")

    async def _answer(self, ticket: int, subject: Subject) -> None:
        self._write(encode_told(What.TOLD, ticket, await self._joined(subject)))

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(PING_S)
            if self._unanswered >= UNANSWERED_MAX:
                silent_s = self._unanswered * PING_S
                logger.warning("worker %s is killed: no answer for %.0f s", self.name, silent_s)
                self.kill()
                return
            self._unanswered += 1
            self._send(What.PING)

    def _send(self, what: What, **fields: Any) -> None:
        self._write(encode(what, **fields))

    def _write(self, data: bytes) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(data)
