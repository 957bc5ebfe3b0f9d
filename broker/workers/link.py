"""The supervisor, as a worker sees it: it asks how the worker is, and tells what all workers say.

When the supervisor is gone, the worker leaves as after SIGTERM: nobody would start it again.
"""

import asyncio
import logging
import socket
from collections.abc import Mapping
from typing import Any, Final

from broker.admin.admin_view import AdminView
from broker.agent import Agent
from broker.environment import boot_ms
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
from coordinator.log.metadata_log import LogError

logger = logging.getLogger(__name__)

ASK_S: Final = 3.0
"""More than a worker has for its answer to the supervisor."""
SEND_S: Final = 5.0
FRESH_MS: Final = 500
"""After that the one who died may have been started again, and have another session."""


class Link:
    """The worker's end of the socket pair. `hello` is called first, then `run` within an agent."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._last_word = connection.dup()
        """Outlives the loop."""
        self._writer: asyncio.StreamWriter | None = None
        self._tickets = 0
        self._asked: dict[int, asyncio.Future[Any]] = {}

    def hello(self) -> Mapping[str, Any]:
        """The first message. Raises MessageError, OSError."""
        head = self._exactly(HEAD.size)
        message = decode(self._exactly(length_of(head)))
        if message.what is not What.HELLO:
            raise MessageError(f"{message.what.name} before HELLO")
        return message.fields

    async def run(self, agent: Agent) -> None:
        """Answer until the agent has ended."""
        reader, self._writer = await asyncio.open_unix_connection(sock=self._connection)
        agent.admin.joined = _Joined(self, agent.admin)
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._receive(reader, agent, tasks)
                await agent.stop()
        finally:
            self._writer.close()

    async def _receive(
        self, reader: asyncio.StreamReader, agent: Agent, tasks: asyncio.TaskGroup
    ) -> None:
        """Until the other end is closed, or says something wrong."""
        try:
            while True:
                head = await reader.readexactly(HEAD.size)
                body = await reader.readexactly(length_of(head))
                self._take(decode(body), agent, tasks)
        except (asyncio.IncompleteReadError, ConnectionError):
            logger.warning("the supervisor is gone: leaving")
        except MessageError as error:
            logger.warning("the supervisor says something wrong: %s; leaving", error)

    def close(self) -> None:
        self._last_word.close()
        self._connection.close()

    def serving(self, listening: Mapping[str, tuple[str, int]]) -> None:
        """Clients are served."""
        self._send(What.SERVING, listening=dict(listening))

    def refused(self, sentence: str) -> None:
        """The last word: why this worker cannot go on. The loop has ended."""
        self._last_word.settimeout(SEND_S)
        try:
            self._last_word.sendall(encode(What.REFUSED, sentence=sentence))
        except OSError:
            logger.error("%s", sentence)  # noqa: TRY400 - Nobody else tells it.

    async def ask(self, subject: Subject) -> Any:
        """What all workers say. Raises TimeoutError when the supervisor does not answer, or cannot say it."""
        self._tickets += 1
        ticket = self._tickets
        future = self._asked[ticket] = asyncio.get_running_loop().create_future()
        self._send(What.ASK, ticket=ticket, subject=subject.value)
        try:
            async with asyncio.timeout(ASK_S):
                value = await future
            if value is None:
                raise TimeoutError
            return value
        finally:
            del self._asked[ticket]

    def _take(self, message: Message, agent: Agent, tasks: asyncio.TaskGroup) -> None:
        match message.what:
            case What.PING:
                self._send(What.PONG)
            case What.TELL:
                tasks.create_task(self._tell(message.ticket, message.subject, agent.admin))
            case What.TOLD:
                future = self._asked.get(message.ticket)
                if future is not None and not future.done():
                    future.set_result(message.fields.get("value"))
            case What.LEAVE:
                tasks.create_task(agent.stop())
            case What.DIED:
                tasks.create_task(_end_session(message.fields, agent.admin))
            case what:
                raise MessageError(f"a supervisor does not send {what.name} now")

    async def _tell(self, ticket: int, subject: Subject, view: AdminView) -> None:
        value: Any
        match subject:
            case Subject.METRICS:
                value = (await view.own_metrics()).decode()
            case Subject.READINESS:
                value = view.readiness()
        self._write(encode_told(What.ANSWER, ticket, value))

    def _send(self, what: What, **fields: Any) -> None:
        self._write(encode(what, **fields))

    def _write(self, data: bytes) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(data)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self._connection.recv(count - len(data))
            if not piece:
                raise MessageError("the supervisor is gone")
            data += piece
        return data


async def _end_session(fields: Mapping[str, Any], view: AdminView) -> None:
    """Of a worker whose process has ended: nobody can renew it, so nobody need wait for its lease.

    Whoever reads next that it is gone closes the incarnation, as ever.
    """
    if view.log_client is None or boot_ms() - fields["died_ms"] > FRESH_MS:
        return
    rows = view.log_client.machine.incarnations
    row = next((row for row in rows if row.node_name == fields["node_name"]), None)
    if row is None:
        return
    try:
        await view.log.revoke(row.session)
    except LogError as error:
        logger.info("the session of %s ends with its lease: %s", row.node_name, error)
    else:
        logger.info("the session of %s, which has died, is ended", row.node_name)


class _Joined:
    """What the admin listener tells; where the supervisor is silent, of this worker alone."""

    def __init__(self, link: Link, view: AdminView) -> None:
        self._link = link
        self._view = view

    async def metrics(self) -> bytes:
        try:
            return str(await self._link.ask(Subject.METRICS)).encode()
        except TimeoutError:
            return await self._view.own_metrics()

    async def readiness(self) -> dict[str, Any]:
        try:
            return dict(await self._link.ask(Subject.READINESS))
        except TimeoutError:
            return self._view.readiness()
