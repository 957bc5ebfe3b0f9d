"""The worker's end of the connection to its agent: the `Link` of a process of its own.

Entries that were received and not taken yet are bounded: beyond ENTRIES_BYTES_MAX nothing is read
any more, so that the agent does not read on in the log either. When the connection ends, the
agent is gone, and so is this process a moment later.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Any, Final

from broker.jobs.worker.context import JobStoppedError
from broker.jobs.worker.orders import LastArchive
from broker.jobs.worker.pipe_frames import (
    Frame,
    FrameReader,
    FrameType,
    entries_of,
    error_of,
    frame,
    json_frame,
    json_of,
    outcome_of,
    propose_frame,
    ticket_of,
)
from coordinator.commands.codec import CodecError
from coordinator.commands.entries import Command, Outcome
from coordinator.log.metadata_log import LogEntry, LogError, VoidedEntry
from coordinator.log.voided import decode_void
from protocol.types import Position

READ_BYTES: Final = 256 << 10
ENTRIES_BYTES_MAX: Final = 2 << 20


class AgentGoneError(Exception):
    """The connection to the agent has ended."""


class _Tail:
    """A tail that the worker follows; what of it has come."""

    def __init__(self, number: int, after: Position) -> None:
        self.number = number
        self.after = after
        self.batches: deque[list[LogEntry]] = deque()
        self.bytes = 0
        self.error: LogError | None = None
        self.news = asyncio.Event()


class Channel:
    """`run` must be going; it ends by AgentGoneError or FrameError."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = FrameReader()
        self._tickets = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._proposals: dict[int, asyncio.Future[tuple[Position, Outcome]]] = {}
        self._tails: dict[int, _Tail] = {}
        self._room = asyncio.Event()
        self._room.set()
        self._hello: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.last_archive = LastArchive()
        """That the agent asks for."""

    async def hello(self) -> dict[str, Any]:
        """What the agent tells first of all."""
        return await self._hello

    async def run(self) -> None:
        """Receive, until the agent is gone."""
        while True:
            await self._room.wait()
            try:
                data = await self._reader.read(READ_BYTES)
            except ConnectionError:
                data = b""
            if not data:
                raise AgentGoneError
            for received in self._frames.feed(data):
                self._take(received)

    def status(self, numbers: dict[str, Any]) -> None:
        """Tell the agent how the worker is."""
        self._send(json_frame(FrameType.STATUS, numbers))

    def last_archive_made(self) -> None:
        """Tell the agent that what it asked for is in the store."""
        self._send(frame(FrameType.LAST_ARCHIVE_MADE))

    async def give_up(self, reason: str) -> None:
        """Tell the agent that the worker has not the memory for what there is to do; the last that is told."""
        self._send(json_frame(FrameType.GAVE_UP, {"reason": reason}))
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()

    # The link.

    async def snapshots(self) -> bytes:
        return str((await self._ask("snapshots"))["snapshots"]).encode()

    async def voids(self) -> Sequence[VoidedEntry]:
        return [decode_void(str(each).encode()) for each in (await self._ask("voids"))["voids"]]

    async def head(self) -> Position:
        return Position(int((await self._ask("head"))["head"]))

    async def tail(self, after: Position) -> AsyncGenerator[Sequence[LogEntry], None]:
        tail = _Tail(next(self._tickets), after)
        self._tails[tail.number] = tail
        self._send(json_frame(FrameType.TAIL, {"ticket": tail.number, "after": after}))
        try:
            while True:
                while tail.batches:
                    batch = tail.batches.popleft()
                    tail.bytes -= _size(batch)
                    self._look_for_room()
                    yield batch
                if tail.error is not None:
                    raise tail.error
                tail.news.clear()
                await tail.news.wait()
        finally:
            # What still comes of it is thrown away.
            del self._tails[tail.number]
            self._look_for_room()
            self._send(json_frame(FrameType.TAIL_END, {"ticket": tail.number}))

    def _look_for_room(self) -> None:
        if all(tail.bytes < ENTRIES_BYTES_MAX for tail in self._tails.values()):
            self._room.set()

    async def propose(self, command: Command) -> tuple[Position, Outcome]:
        ticket = next(self._tickets)
        try:
            data = propose_frame(ticket, command)
        except CodecError as error:
            raise JobStoppedError(f"the command cannot be written: {error}") from error
        future: asyncio.Future[tuple[Position, Outcome]]
        future = self._proposals[ticket] = asyncio.get_running_loop().create_future()
        self._send(data)
        try:
            await self._writer.drain()
            return await future
        except ConnectionError as error:
            raise JobStoppedError("the agent is gone") from error
        finally:
            del self._proposals[ticket]

    async def _ask(self, what: str) -> dict[str, Any]:
        ticket = next(self._tickets)
        future: asyncio.Future[dict[str, Any]]
        future = self._answers[ticket] = asyncio.get_running_loop().create_future()
        self._send(json_frame(FrameType.ASK, {"ticket": ticket, "what": what}))
        try:
            fields = await future
        finally:
            del self._answers[ticket]
        if (error := error_of(fields)) is not None:
            raise error
        return fields

    def _send(self, data: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(data)

    # What comes.

    def _take(self, received: Frame) -> None:
        match received.type:
            case FrameType.HELLO:
                self._hello.set_result(json_of(received.body))
            case FrameType.ENTRIES:
                number, entries = entries_of(received.body)
                self._take_entries(number, entries)
            case FrameType.TAIL_BROKEN:
                fields = json_of(received.body)
                if (tail := self._tails.get(ticket_of(fields))) is not None:
                    tail.error = error_of(fields, tail.after)
                    tail.news.set()
            case FrameType.OUTCOME:
                ticket, position, outcome = outcome_of(received.body)
                _settle(self._proposals.get(ticket), (position, outcome))
            case FrameType.NOT_DONE:
                fields = json_of(received.body)
                waiting = self._proposals.get(ticket_of(fields))
                if waiting is not None and not waiting.done():
                    waiting.set_exception(JobStoppedError(str(fields.get("reason"))))
            case FrameType.ANSWER:
                fields = json_of(received.body)
                _settle(self._answers.get(ticket_of(fields)), fields)
            case FrameType.PING:
                self._send(frame(FrameType.PONG))
            case FrameType.LAST_ARCHIVE:
                self.last_archive.ask(Position(int(json_of(received.body)["through"])))
            case _:
                raise AssertionError(f"an agent does not send {received.type.name}")

    def _take_entries(self, number: int, entries: list[LogEntry]) -> None:
        if (tail := self._tails.get(number)) is None:
            return
        tail.batches.append(entries)
        tail.after = entries[-1].position
        tail.bytes += _size(entries)
        tail.news.set()
        if tail.bytes >= ENTRIES_BYTES_MAX:
            self._room.clear()


def _settle(future: "asyncio.Future[Any] | None", value: Any) -> None:
    if future is not None and not future.done():
        future.set_result(value)


def _size(entries: Sequence[LogEntry]) -> int:
    return sum([len(entry.payload) for entry in entries])
