"""A worker at the other end of a socket: what is relayed, what is bounded, and how it ends."""

import asyncio
import contextlib
import errno
import itertools
import os
import signal
import socket
from collections.abc import Awaitable, Callable

import pytest

from broker.jobs import worker_process as module
from broker.jobs.worker.budget import Budget
from broker.jobs.worker.channel import ENTRIES_BYTES_MAX, AgentGoneError, Channel
from broker.jobs.worker.context import JobStoppedError
from broker.jobs.worker.memory import EXIT_CODE, WorkerMemoryError
from broker.jobs.worker.orders import Orders
from broker.jobs.worker.pipe_frames import FrameType, frame, json_frame
from broker.jobs.worker.worker import WorkerStats
from broker.jobs.worker_process import TAILS_MAX, WorkerEndedError, WorkerProcess
from coordinator.commands.entries import DONE, Command
from coordinator.commands.job_commands import DropRows, JobKind
from coordinator.log.metadata_log import (
    LogCutError,
    LogEntry,
    LogUnavailableError,
    VoidedEntry,
)
from protocol.types import Incarnation, Position
from tests.kit.sockets import settings_of

pytestmark = pytest.mark.real_loop

VOIDED = VoidedEntry(Position(5), 7, 3, bytes(range(16)), 1_700_000_000_000, "a bug; Fehler ü")

Work = Callable[[Channel, asyncio.StreamWriter], Awaitable[None]]


class EndlessLog:
    """Entries without end, counted as they are read."""

    def __init__(self, payload: bytes = bytes(10_000)) -> None:
        self.payload = payload
        self.read_bytes = 0
        self.tails: list[Position] = []
        self.broken: list[Exception] = []

    async def tail(self, after: Position):
        self.tails.append(after)
        if self.broken:
            raise self.broken.pop()
        for number in itertools.count(after + 1):
            await asyncio.sleep(0)
            self.read_bytes += len(self.payload)
            yield [LogEntry(Position(number), 1, number, self.payload)]

    async def snapshots(self) -> bytes:
        if self.broken:
            raise self.broken.pop()
        return b'{"snapshots": []}'

    async def voids(self) -> list[VoidedEntry]:
        return [VOIDED]

    async def head(self) -> Position:
        return Position(77)


class Pretended:
    """A process that is a task of this loop."""

    pid = 4711

    def __init__(self, work: Awaitable[None]) -> None:
        self.returncode: int | None = None
        self.killed = False
        self._task = asyncio.ensure_future(work)
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task) -> None:
        if self.returncode is None:
            failed = task.cancelled() or task.exception() is not None
            self.returncode = -signal.SIGKILL if self.killed else int(failed)

    def kill(self) -> None:
        self.killed = True
        self._task.cancel()

    async def wait(self) -> int:
        await asyncio.wait([self._task])
        await asyncio.sleep(0)
        assert self.returncode is not None
        return self.returncode


class Ends:
    """An agent's end, and a worker that does `work` at the other."""

    def __init__(
        self,
        work: Work,
        *,
        log: EndlessLog | None = None,
        propose=None,
        budget: Budget | None = None,
        orders: Orders | None = None,
    ) -> None:
        self.log = log or EndlessLog()
        self.stats = WorkerStats()
        self.process: Pretended | None = None
        self._work = work
        self.agent = WorkerProcess(
            log=self.log,
            settings=settings_of(),
            incarnation=Incarnation(9),
            software_version="1",
            propose=propose or self._done,
            stats=self.stats,
            budget=budget,
            orders=orders,
            spawn=self._spawn,
        )

    async def _done(self, _command: Command):
        return Position(5), DONE

    async def _spawn(self, stdin: int) -> Pretended:
        self.process = Pretended(self._live(socket.socket(fileno=os.dup(stdin))))
        return self.process

    async def _live(self, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=connection)
        channel = Channel(reader, writer)
        receiving = asyncio.ensure_future(channel.run())
        try:
            await self._work(channel, writer)
        finally:
            receiving.cancel()
            with contextlib.suppress(asyncio.CancelledError, AgentGoneError):
                await receiving
            writer.close()


async def play(work: Work, **more: object) -> Ends:
    """Until the worker has done its work, which ends it."""
    ends = Ends(work, **more)
    async with asyncio.timeout(20):
        with pytest.raises(WorkerEndedError, match="exit code 0"):
            await ends.agent.run()
    return ends


async def test_a_worker_is_told_who_it_is_and_gets_the_log_as_it_is() -> None:
    received: list[LogEntry] = []

    async def work(channel: Channel, _writer: object) -> None:
        hello = await channel.hello()
        assert (hello["incarnation"], hello["version"]) == (9, "1")
        assert await channel.snapshots() == b'{"snapshots": []}'
        assert await channel.voids() == [VOIDED._replace(reason="")]
        assert await channel.head() == 77
        async for batch in channel.tail(Position(3)):
            received.extend(batch)
            if len(received) > 500:
                return

    await play(work)
    assert [entry.position for entry in received] == list(range(4, 4 + len(received)))


@pytest.mark.promise("P15")
async def test_a_worker_that_takes_nothing_makes_the_agent_read_nothing_on() -> None:
    async def work(channel: Channel, _writer: object) -> None:
        tail = channel.tail(Position(0))
        first = await anext(tail)
        assert first[0].position == 1
        before = -1
        while before != log.read_bytes:
            before = log.read_bytes
            await asyncio.sleep(0.2)
        # What lies in the worker, in the socket and in the buffers at both its ends.
        assert log.read_bytes < ENTRIES_BYTES_MAX + (4 << 20)
        # And it goes on when the worker does.
        count = log.read_bytes // len(log.payload)
        async for batch in tail:
            if batch[-1].position > 2 * count:
                return

    log = EndlessLog()
    await play(work, log=log)


async def test_a_new_tail_gets_nothing_of_the_one_before() -> None:
    async def work(channel: Channel, _writer: object) -> None:
        first = channel.tail(Position(0))
        await anext(first)
        await first.aclose()
        batch = await anext(channel.tail(Position(1_000_000)))
        assert batch[0].position == 1_000_001

    log = EndlessLog()
    await play(work, log=log)
    assert log.tails == [0, 1_000_000]


async def test_two_tails_are_followed_beside_each_other_each_from_where_it_was_asked() -> None:
    async def work(channel: Channel, _writer: object) -> None:
        first, second = channel.tail(Position(0)), channel.tail(Position(1_000_000))
        at = [(await anext(first))[0].position, (await anext(second))[0].position]
        assert at == [1, 1_000_001]
        await second.aclose()
        for _ in range(20):
            after = await anext(first)
        assert after[0].position > 1

    await play(work)


async def test_a_worker_that_follows_more_tails_than_it_may_is_ended() -> None:
    async def work(channel: Channel, _writer: object) -> None:
        tails = [channel.tail(Position(number)) for number in range(TAILS_MAX + 1)]
        await asyncio.gather(*[anext(tail) for tail in tails])

    with pytest.raises(WorkerEndedError, match=f"more than {TAILS_MAX} tails"):
        await Ends(work).agent.run()


async def test_a_tail_that_breaks_off_says_why() -> None:
    log = EndlessLog()
    log.broken = [LogUnavailableError("away"), LogCutError(Position(0), Position(8))]

    async def work(channel: Channel, _writer: object) -> None:
        with pytest.raises(LogCutError, match="through position 8"):
            await anext(channel.tail(Position(0)))
        with pytest.raises(LogUnavailableError, match="away"):
            await channel.snapshots()

    await play(work, log=log)


async def test_outcomes_reach_whoever_proposed() -> None:
    async def propose(command: Command):
        assert isinstance(command, DropRows)
        number = command.partitions[0][1]
        await asyncio.sleep(0.01 * (5 - number))
        if number == 3:
            raise JobStoppedError("the session was lost")
        return Position(number), DONE

    async def work(channel: Channel, _writer: object) -> None:
        commands = [DropRows(((bytes(16), number),)) for number in range(5)]
        results = await asyncio.gather(
            *[channel.propose(command) for command in commands], return_exceptions=True
        )
        assert isinstance(results[3], JobStoppedError)
        assert str(results[3]) == "the session was lost"
        assert [each[0] for each in results if isinstance(each, tuple)] == [0, 1, 2, 4]

    await play(work, propose=propose)


async def test_the_workers_numbers_reach_the_agent() -> None:
    async def work(channel: Channel, writer: asyncio.StreamWriter) -> None:
        jobs = {
            "MERGE": {
                "runs": 3,
                "failures": 1,
                "seconds": 2.5,
                "bytes_read": 4,
                "bytes_written": 5,
                "commands": 6,
            }
        }
        archive = {"position": 7, "behind_s": 1.5, "objects": 3, "puts": 4}
        channel.status({"jobs": jobs, "archive": archive, "memory_bytes": 1000, "position": 8})
        await writer.drain()

    ends = await play(work)
    assert ends.stats.jobs[JobKind.MERGE].runs == 3
    assert ends.stats.memory_bytes == 1000
    assert (ends.stats.archive.behind_s, ends.stats.archive.puts) == (1.5, 4)


async def test_a_worker_is_told_when_rounds_begin_and_asked_for_the_last_archive() -> None:
    orders = Orders(rounds_in_ms=1234)

    async def work(channel: Channel, writer: asyncio.StreamWriter) -> None:
        assert (await channel.hello())["rounds_in_ms"] == 1234
        orders.last_archive.ask(Position(77))
        assert await channel.last_archive.asked() == 77
        channel.last_archive_made()
        await writer.drain()

    await play(work, orders=orders)
    await asyncio.wait_for(orders.last_archive.until_made(), 1)


async def test_a_worker_that_gives_up_for_want_of_memory_is_told_apart_and_its_sentence_arrives() -> (
    None
):
    async def work(channel: Channel, _writer: object) -> None:
        await channel.give_up("it takes too much")
        ends.process.returncode = EXIT_CODE

    ends = Ends(work)
    with pytest.raises(WorkerMemoryError, match="it takes too much"):
        await ends.agent.run()


async def test_a_worker_that_gives_up_without_a_word_has_done_so_for_want_of_memory_too() -> None:
    async def work(_channel: Channel, _writer: object) -> None:
        ends.process.returncode = EXIT_CODE

    ends = Ends(work)
    with pytest.raises(WorkerMemoryError, match="gave up for want of memory"):
        await ends.agent.run()


async def test_a_worker_is_told_its_budget_and_the_agents_numbers_have_it() -> None:
    hello: list[dict[str, object]] = []

    async def work(channel: Channel, _writer: object) -> None:
        hello.append(await channel.hello())

    ends = await play(work, budget=Budget(1000, "by jobs.memory.bytes"))
    assert hello[0]["memory"] == [1000, "by jobs.memory.bytes"]
    assert ends.stats.memory_bytes_max == 1000
    await play(work)
    assert hello[1]["memory"] is None


@pytest.mark.parametrize(
    "sent",
    [
        b"Traceback (most recent call last):",
        frame(FrameType.HELLO),
        frame(FrameType.PROPOSE, b"12345678", b"no command"),
        json_frame(FrameType.TAIL, {"ticket": 1}),
        json_frame(FrameType.ASK, {"ticket": 1, "what": "secrets"}),
        json_frame(FrameType.STATUS, {"jobs": {"BREWING": {}}}),
    ],
)
async def test_a_worker_that_sends_something_else_is_ended(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "END_S", 0.05)

    async def work(_channel: Channel, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        await asyncio.sleep(60)

    ends = Ends(work)
    with pytest.raises(WorkerEndedError, match="something wrong"):
        await ends.agent.run()
    assert ends.process.killed


async def test_a_worker_that_does_not_answer_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PING_S", 0.01)
    monkeypatch.setattr(module, "UNANSWERED_MAX", 3)
    monkeypatch.setattr(module, "END_S", 0.05)

    ends = Ends(lambda _channel, _writer: asyncio.sleep(60))

    async def deaf(_self: Channel) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(Channel, "run", deaf)
    with pytest.raises(WorkerEndedError, match="has not answered"):
        await ends.agent.run()
    assert ends.process.killed


async def test_a_worker_that_answers_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PING_S", 0.01)
    monkeypatch.setattr(module, "UNANSWERED_MAX", 10)
    await play(lambda _channel, _writer: asyncio.sleep(0.5))


async def test_a_worker_is_told_by_the_end_of_the_socket_that_its_agent_has_no_use_for_it() -> None:
    gone = asyncio.Event()

    async def live(connection: socket.socket) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=connection)
        with pytest.raises(AgentGoneError):
            await Channel(reader, writer).run()
        writer.close()
        gone.set()

    ends = Ends(lambda _channel, _writer: asyncio.sleep(0))
    ends._live = live
    running = asyncio.ensure_future(ends.agent.run())
    await asyncio.sleep(0.1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert gone.is_set()
    assert not ends.process.killed


async def test_a_worker_that_must_not_go_on_is_ended_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "END_S", 0.05)

    async def propose(_command: Command):
        raise WorkerEndedError("its machine is another")

    async def work(channel: Channel, _writer: object) -> None:
        await channel.propose(DropRows(()))

    ends = Ends(work, propose=propose)
    with pytest.raises(WorkerEndedError, match="its machine is another"):
        await ends.agent.run()
    assert ends.process.returncode is not None


async def test_a_worker_that_cannot_be_started_is_told_in_a_sentence() -> None:
    async def spawn(_stdin: int):
        raise OSError("no memory")

    ends = Ends(lambda _channel, _writer: asyncio.sleep(0))
    ends.agent._spawn = spawn
    with pytest.raises(WorkerEndedError, match="cannot be started: no memory"):
        await ends.agent.run()


async def test_a_worker_for_which_there_is_no_descriptor_is_told_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def exhausted() -> None:
        raise OSError(errno.EMFILE, "too many open files")

    ends = Ends(lambda _channel, _writer: asyncio.sleep(0))
    monkeypatch.setattr(module.socket, "socketpair", exhausted)
    with pytest.raises(WorkerEndedError, match=r"cannot be started: .*too many open files"):
        await ends.agent.run()
