"""Has questions about schemas answered: in processes of their own, within bounds of time and memory.

What holds: a process answers one question at a time, clients in turn (`waiting`). One that takes too
long is killed, and so is one whose agent ends; the next question starts another. The process bounds
its own memory (`__main__`), and ends when its socket does, so it outlives no agent. Whatever becomes
of it, a question has an answer: a schema that cannot be worked with within the bounds is refused.

An agent has at most two (`TwoCheckers`). The quick one, started by the first question and kept, is
asked everything, and has little time for it; what takes longer is asked again of the patient one,
which ends when nobody waits for it. So whoever sends schemas that take long keeps others waiting who
do, too, even of the same address, and hardly those with small ones.

`InLoopChecker` answers in the loop: for simulations, and agents that live in memory.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from typing import Final, NamedTuple, Protocol

from broker.environment import spawn_module
from broker.registry.check_frames import (
    ANSWER_BYTES_MAX,
    LENGTH,
    FrameError,
    decode_answer,
    encode_question,
)
from broker.registry.checks import TOO_MUCH, Answer, Question, SchemaChecks, size_of
from broker.registry.waiting import FairQueue

logger = logging.getLogger(__name__)

ANSWER_S_MAX: Final = 5.0
QUICK_S_MAX: Final = 0.5
"""A hundred times what schemas take that people write."""
START_S_MAX: Final = 60.0
"""For a process to begin, on a machine that has other things to do."""
END_S: Final = 1.0
WAITING_MAX: Final = 256
ATTEMPTS_MAX: Final = 2
"""A process may have been killed by somebody before it was asked."""


TOO_LONG: Final = f"it takes more than {ANSWER_S_MAX:.0f} s to be read and compared"

Spawn = Callable[[int], Awaitable[asyncio.subprocess.Process]]
"""Starts the process, with one end of a socket as its standard input."""


class CheckerBusyError(Exception):
    """Too many wait already."""


class CheckerUnavailableError(Exception):
    """The process cannot be started; the sentence says why."""


class SchemaChecker(Protocol):
    """The port through which the registry asks."""

    async def ask(
        self, question: Question, *, client: str, is_wanted: Callable[[], bool]
    ) -> Answer:
        """`is_wanted`: whether `client` still waits when it is its turn.

        Raises CheckerBusyError, CheckerUnavailableError.
        """
        ...

    async def aclose(self) -> None: ...


class InLoopChecker:
    """Answers at once, without bounds."""

    def __init__(self) -> None:
        self._checks = SchemaChecks()

    async def ask(
        self, question: Question, *, client: str, is_wanted: Callable[[], bool]
    ) -> Answer:
        return self._checks.answer(question)

    async def aclose(self) -> None:
        pass


class _Waiting(NamedTuple):
    question: Question
    answer: asyncio.Future[Answer]
    is_wanted: Callable[[], bool]


class CheckerProcess:
    """Asks one process. `is_kept`: also while nobody waits for it."""

    def __init__(
        self,
        *,
        spawn: Spawn | None = None,
        answer_s_max: float = ANSWER_S_MAX,
        waiting_max: int = WAITING_MAX,
        is_kept: bool = True,
    ) -> None:
        self._spawn = spawn or _spawn
        self._answer_s_max = answer_s_max
        self._is_kept = is_kept
        self._queue: FairQueue[_Waiting] = FairQueue(waiting_max)
        self._answering: asyncio.Task[None] | None = None
        """While anybody waits."""
        self._process: _Process | None = None

    async def ask(
        self, question: Question, *, client: str, is_wanted: Callable[[], bool]
    ) -> Answer:
        loop = asyncio.get_running_loop()
        waiting = _Waiting(question, loop.create_future(), is_wanted)
        gone = self._queue.put(client, waiting, size_of(question))
        if gone is not None and not gone.answer.done():
            gone.answer.set_exception(CheckerBusyError("too many schemas wait to be read"))
        if self._answering is None or self._answering.done():
            self._answering = loop.create_task(self._answer_all(), name="schemas to be checked")
        return await waiting.answer

    async def aclose(self) -> None:
        """End the process; whoever waits is told."""
        answering, self._answering = self._answering, None
        if answering is not None:
            answering.cancel()
            await asyncio.wait([answering])
        while self._queue:
            self._queue.take().answer.cancel()
        await self._end()

    async def _answer_all(self) -> None:
        while self._queue:
            await self._answer_waiting()
            if not self._is_kept:
                await self._end()  # Meanwhile somebody may have come.

    async def _answer_waiting(self) -> None:
        while self._queue:
            waiting = self._queue.take()
            if waiting.answer.done() or not waiting.is_wanted():
                waiting.answer.cancel()
                continue
            try:
                answer = await self._answer(waiting.question)
            except CheckerUnavailableError as error:
                if not waiting.answer.done():
                    waiting.answer.set_exception(error)
            else:
                if not waiting.answer.done():
                    waiting.answer.set_result(answer)
            finally:
                # Whatever ended this task: nobody waits for ever.
                waiting.answer.cancel()

    async def _answer(self, question: Question) -> Answer:
        for _ in range(ATTEMPTS_MAX):
            process = await self._started()
            try:
                async with asyncio.timeout(self._answer_s_max):
                    return await process.ask(question)
            except TimeoutError:
                logger.debug("a schema took too long; the process that read it is ended")
                process.kill()
                await self._end()
                return Answer(error=TOO_LONG)
            except (OSError, EOFError, FrameError) as error:
                logger.warning("the process that reads schemas ended: %r", error)
                await self._end()
        return Answer(error=TOO_MUCH)

    async def _started(self) -> "_Process":
        """The process; another one where it has ended since the last question."""
        if self._process is not None and self._process.has_ended:
            await self._end()
        if self._process is None:
            try:
                self._process = await _Process.start(self._spawn)
                async with asyncio.timeout(START_S_MAX):
                    await self._process.receive()
            except (OSError, EOFError, FrameError, TimeoutError) as error:
                await self._end()
                said = f"the process that reads schemas cannot be started: {error!r}"
                raise CheckerUnavailableError(said) from error
        return self._process

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await process.end()


class TwoCheckers:
    """Asks the quick one first, and the patient one what that has no time for."""

    def __init__(self, quick: CheckerProcess, patient: CheckerProcess) -> None:
        self._quick = quick
        self._patient = patient

    async def ask(
        self, question: Question, *, client: str, is_wanted: Callable[[], bool]
    ) -> Answer:
        answer = await self._quick.ask(question, client=client, is_wanted=is_wanted)
        if answer.error != TOO_LONG:
            return answer
        return await self._patient.ask(question, client=client, is_wanted=is_wanted)

    async def aclose(self) -> None:
        await self._quick.aclose()
        await self._patient.aclose()


def two_checkers() -> TwoCheckers:
    """Those of an agent."""
    quick = CheckerProcess(answer_s_max=QUICK_S_MAX)
    return TwoCheckers(quick, CheckerProcess(is_kept=False))


class _Process:
    """One process, and its socket."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer

    @classmethod
    async def start(cls, spawn: Spawn) -> "_Process":
        """Raises OSError."""
        ours, theirs = socket.socketpair()
        with ExitStack() as unused, theirs:
            unused.enter_context(ours)
            process = await spawn(theirs.fileno())
            unused.pop_all()
        logger.debug("a process that reads schemas was started", extra={"pid": process.pid})
        return cls(process, *await asyncio.open_unix_connection(sock=ours))

    @property
    def has_ended(self) -> bool:
        return self._process.returncode is not None or self._reader.at_eof()

    async def ask(self, question: Question) -> Answer:
        """Raises OSError, EOFError, FrameError."""
        self._writer.write(encode_question(question))
        await self._writer.drain()
        return await self.receive()

    async def receive(self) -> Answer:
        (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
        if length > ANSWER_BYTES_MAX:
            raise FrameError(f"an answer of {length} bytes")
        return decode_answer(await self._reader.readexactly(length))

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()

    async def end(self) -> None:
        """It ends by itself when its socket does and it has nothing to do; else it is killed."""
        self._writer.transport.abort()
        try:
            async with asyncio.timeout(END_S):
                await self._process.wait()
        except TimeoutError:
            self.kill()
            await self._process.wait()


async def _spawn(stdin: int) -> asyncio.subprocess.Process:
    return await spawn_module("broker.registry", stdin=stdin)
