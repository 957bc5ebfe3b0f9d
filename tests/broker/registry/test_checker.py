"""The process that reads schemas: started when it is needed, bounded, and never left behind."""

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import socket
import zlib
from collections.abc import AsyncIterator, Callable

import pytest

from broker.registry import checker as checker_module
from broker.registry.check_frames import LENGTH, decode_question, encode_answer
from broker.registry.checker import (
    TOO_LONG,
    CheckerBusyError,
    CheckerProcess,
    CheckerUnavailableError,
    TwoCheckers,
)
from broker.registry.checks import (
    TOO_MUCH,
    Answer,
    CheckValues,
    CompareSchemas,
    Question,
    ReadSchema,
    SchemaChecks,
    StoredSchema,
)
from coordinator.commands.table_commands import SchemaKind
from tests.broker.registry.client import RECORD, WIDER

pytestmark = pytest.mark.real_loop


def read(text: str, kind: SchemaKind = SchemaKind.AVRO) -> ReadSchema:
    return ReadSchema(kind, text, (), (), True, False)


async def ask(checker: CheckerProcess, question: Question, client: str = "one") -> Answer:
    return await checker.ask(question, client=client, is_wanted=lambda: True)


class Started:
    """Processes that were started, by number."""

    def __init__(self) -> None:
        self.processes: list[asyncio.subprocess.Process] = []

    async def spawn(self, stdin: int) -> asyncio.subprocess.Process:
        process = await checker_module._spawn(stdin)
        self.processes.append(process)
        return process


@contextlib.asynccontextmanager
async def checking(started: Started, **more: float) -> AsyncIterator[CheckerProcess]:
    checker = CheckerProcess(spawn=started.spawn, **more)
    try:
        yield checker
    finally:
        await checker.aclose()
        # All have ended, and nobody has to collect them any more.
        assert all(process.returncode is not None for process in started.processes)


async def test_a_process_answers_as_the_loop_would_and_begins_with_the_first_question() -> None:
    started, here = Started(), SchemaChecks()
    async with checking(started) as checker:
        assert not started.processes
        questions: list[Question] = [read(RECORD), read(WIDER), read("no schema")]
        answers = [await ask(checker, question) for question in questions]
        assert answers == [here.answer(question) for question in questions]
        one, other = (
            StoredSchema(SchemaKind.AVRO, each.fingerprint, each.body, ()) for each in answers[:2]
        )
        compared = CompareSchemas("FULL", other, ((1, one),))
        assert await ask(checker, compared) == here.answer(compared) == Answer()
        assert len(started.processes) == 1


def doubling(times: int) -> StoredSchema:
    """A schema by which a value is looked at 2 ** times times."""
    definitions = {
        f"n{number}": {"allOf": [{"$ref": f"#/definitions/n{number + 1}"}] * 2}
        for number in range(times)
    } | {f"n{times}": {"type": "integer"}}
    text = json.dumps({"$ref": "#/definitions/n0", "definitions": definitions}).encode()
    return StoredSchema(SchemaKind.JSON, hashlib.sha256(text).digest(), zlib.compress(text), ())


async def test_values_are_held_to_their_schemas_in_the_process() -> None:
    question = CheckValues((doubling(2),), ((0, b"1"), (0, b'"1"')))
    async with checking(Started(), answer_s_max=120.0) as checker:
        answer = await ask(checker, question)
        assert answer.refused == ((1, '"1" is not of type "integer"'),)
        assert answer == SchemaChecks().answer(question)


async def test_a_value_that_takes_too_long_by_its_schema_is_refused_and_the_process_killed() -> (
    None
):
    started = Started()
    async with checking(started, answer_s_max=0.2) as checker:
        question = CheckValues((doubling(60),), ((0, b"1"),))
        assert (await ask(checker, question)).error == TOO_LONG
    assert [process.returncode for process in started.processes] == [-signal.SIGKILL]


async def test_a_process_that_was_killed_is_followed_by_another() -> None:
    started = Started()
    async with checking(started) as checker:
        for number in range(3):
            assert (await ask(checker, read(RECORD))).error == ""
            assert len(started.processes) == number + 1
            started.processes[-1].kill()


async def test_a_schema_that_takes_all_memory_is_refused_and_the_process_goes_on() -> None:
    started = Started()
    # However busy the machine: it is not time that ends it.
    async with checking(started, answer_s_max=120.0) as checker:
        # Each of 40,000 aliases is told with its namespace of 80,000 characters.
        aliases = ",".join('"a"' for _ in range(40_000))
        text = (
            f'{{"type":"record","name":"R","namespace":"{"n" * 80_000}","fields":[],'
            f'"aliases":[{aliases}]}}'
        )
        assert (await ask(checker, read(text))).error == TOO_MUCH
        assert (await ask(checker, read(RECORD))).error == ""
        assert len(started.processes) == 1


async def test_a_process_ends_when_its_agent_is_gone() -> None:
    ours, theirs = socket.socketpair()
    process = await checker_module._spawn(theirs.fileno())
    theirs.close()
    ours.close()
    async with asyncio.timeout(60):
        assert await process.wait() == 0


class Pretended:
    """A process that does what a test says. `work` gets its end of the socket."""

    def __init__(self, work: Callable[[socket.socket], asyncio.Task[None]]) -> None:
        self.pid = 0
        self.returncode: int | None = None
        self.killed = 0
        self._work = work
        self._ended = asyncio.Event()
        self.starts = 0

    async def spawn(self, stdin: int) -> "Pretended":
        self.starts += 1
        self.returncode = None
        self._ended.clear()
        connection = socket.socket(fileno=os.dup(stdin))
        connection.setblocking(False)
        self._work(connection).add_done_callback(lambda _: self._end(0, connection))
        return self

    def _end(self, code: int, connection: socket.socket | None = None) -> None:
        if connection is not None:
            connection.close()
        self.returncode = code
        self._ended.set()

    def kill(self) -> None:
        self.killed += 1
        self._end(-signal.SIGKILL)

    async def wait(self) -> int:
        await self._ended.wait()
        return 0


def working(*answers: Answer | None) -> tuple[Pretended, list[Question]]:
    """A process that gives these answers, one for each question; None: it ends instead."""
    asked: list[Question] = []
    left = iter(answers)

    async def work(connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(connection, encode_answer(Answer()))
        while head := await loop.sock_recv(connection, LENGTH.size):
            (length,) = LENGTH.unpack(head)
            asked.append(decode_question(await loop.sock_recv(connection, length)))
            answer = next(left)
            if answer is None:
                return
            await loop.sock_sendall(connection, encode_answer(answer))

    return Pretended(lambda connection: asyncio.ensure_future(work(connection))), asked


def silent() -> Pretended:
    """A process that begins, and answers nothing."""

    async def work(connection: socket.socket) -> None:
        await asyncio.get_running_loop().sock_sendall(connection, encode_answer(Answer()))
        await asyncio.Event().wait()

    return Pretended(lambda connection: asyncio.ensure_future(work(connection)))


def silent_but(text: str) -> Pretended:
    """A process that answers no question but that one."""

    async def work(connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(connection, encode_answer(Answer()))
        while True:
            (length,) = LENGTH.unpack(await loop.sock_recv(connection, LENGTH.size))
            question = decode_question(await loop.sock_recv(connection, length))
            if not isinstance(question, ReadSchema) or question.text != text:
                await asyncio.Event().wait()
            await loop.sock_sendall(connection, encode_answer(Answer()))

    return Pretended(lambda connection: asyncio.ensure_future(work(connection)))


async def test_what_takes_too_long_is_refused_and_its_process_killed() -> None:
    process = silent()
    checker = CheckerProcess(spawn=process.spawn, answer_s_max=0.05)
    for number in (1, 2):
        assert (await ask(checker, read(RECORD))).error == TOO_LONG
        assert (process.killed, process.starts) == (number, number)
    await checker.aclose()


async def test_what_takes_long_is_asked_of_the_patient_process_and_keeps_nobody_of_its_address_waiting() -> (
    None
):
    slow, quick = silent(), silent_but("small")
    patient = CheckerProcess(spawn=slow.spawn, is_kept=False)
    checkers = TwoCheckers(CheckerProcess(spawn=quick.spawn, answer_s_max=0.05), patient)
    hostile = [
        asyncio.ensure_future(
            checkers.ask(read(f"hostile {n}"), client="a", is_wanted=lambda: True)
        )
        for n in range(2)
    ]
    while not slow.starts:
        await asyncio.sleep(0.01)
    answer = await checkers.ask(read("small"), client="a", is_wanted=lambda: True)
    assert answer == Answer()
    assert not any(each.done() for each in hostile)
    await checkers.aclose()
    await asyncio.wait(hostile)


async def test_a_process_that_is_not_kept_ends_when_nobody_waits_for_it() -> None:
    started = Started()
    checker = CheckerProcess(spawn=started.spawn, is_kept=False)
    for number in range(2):
        assert (await ask(checker, read(RECORD))).error == ""
        async with asyncio.timeout(60):
            assert await started.processes[number].wait() == 0
    await checker.aclose()


async def test_a_question_that_ends_its_process_twice_is_refused() -> None:
    process, asked = working(None, None)
    checker = CheckerProcess(spawn=process.spawn)
    assert (await ask(checker, read(RECORD))).error == TOO_MUCH
    assert (process.starts, len(asked)) == (2, 2)
    await checker.aclose()


async def test_a_process_that_cannot_be_started_is_told_of() -> None:
    async def spawn(_stdin: int) -> asyncio.subprocess.Process:
        raise OSError("no room")

    checker = CheckerProcess(spawn=spawn)
    for _ in range(2):
        with pytest.raises(CheckerUnavailableError, match="no room"):
            await ask(checker, read(RECORD))
    await checker.aclose()


async def test_clients_are_answered_in_turn_and_those_that_left_not_at_all() -> None:
    process, asked = working(*[Answer()] * 10)
    checker = CheckerProcess(spawn=process.spawn)
    gone = asyncio.ensure_future(checker.ask(read("gone"), client="gone", is_wanted=lambda: False))
    questions = [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("c", "c1")]
    waiting = [asyncio.ensure_future(ask(checker, read(text), who)) for who, text in questions]
    await asyncio.gather(*waiting)
    assert [each.text for each in asked if isinstance(each, ReadSchema)] == [
        *("a1", "b1", "c1", "a2", "a3")
    ]
    assert gone.cancelled()
    await checker.aclose()


async def test_when_too_many_wait_who_has_most_is_told_so() -> None:
    process = silent()
    checker = CheckerProcess(spawn=process.spawn, waiting_max=3)
    hostile = [asyncio.ensure_future(ask(checker, read(str(n)), "hostile")) for n in range(6)]
    await asyncio.sleep(0)
    honest = asyncio.ensure_future(ask(checker, read(RECORD), "honest"))
    await asyncio.wait([*hostile, honest], return_when=asyncio.FIRST_EXCEPTION)
    refused = [each for each in hostile if each.done()]
    assert len(refused) >= 3
    assert all(isinstance(each.exception(), CheckerBusyError) for each in refused)
    assert not honest.done()
    await checker.aclose()
    await asyncio.wait([*hostile, honest])
    assert honest.cancelled()
