"""Proposer: one append in doubt at most, and the truth about every command (P3, P4)."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from coordinator.commands.codec import ENTRY_BYTES_MAX, decode_entry
from coordinator.commands.declaration import DECLARATIONS
from coordinator.commands.entries import CreateTopic, Done, Pin, Rejected, Tick, TopicCreated
from coordinator.commands.job_commands import (
    BeginSnapshot,
    ClaimJobs,
    JobKind,
    JobsClaimed,
    PublishSnapshot,
    TrimLogs,
)
from coordinator.log.memory import MemoryLogCluster
from coordinator.log.metadata_log import LogRefusedError
from coordinator.log_client import FirstNotDoneError, LogUnavailableError, NotDoneError
from tests.coordinator.support import SETTINGS, Agent, Writer, now_s, running, serving
from tests.kit.faults import lost

pytestmark = pytest.mark.schedules(5)


async def test_outcome_is_that_of_the_command() -> None:
    async with serving() as agent:
        created = agent.log_client.propose(CreateTopic("t", 1, ()))
        again = agent.log_client.propose(CreateTopic("t", 1, ()))
        assert isinstance(await created, TopicCreated)
        assert isinstance(await again, Rejected)


async def test_commands_that_wait_share_an_entry_in_the_order_of_the_calls() -> None:
    async with serving() as agent:
        names = [f"t{number}" for number in range(100)]
        futures = [agent.log_client.propose(CreateTopic(name, 1, ())) for name in names]
        await asyncio.gather(*futures)
        assert [topic.name for topic in agent.machine.topics] == names
        assert len(agent.cluster.entries) <= 1 + 2


async def test_entries_are_never_larger_than_an_entry_may_be() -> None:
    async with serving() as agent:
        configs = tuple((f"config.{number:02}", "x" * 1000) for number in range(20))
        futures = [
            agent.log_client.propose(CreateTopic(f"t{number}", 1, configs)) for number in range(20)
        ]
        await asyncio.gather(*futures)
        assert max(len(entry.payload) for entry in agent.cluster.entries) <= ENTRY_BYTES_MAX
        assert len(agent.cluster.entries) < 12


async def test_command_that_fits_no_entry_is_not_done() -> None:
    async with serving() as agent:
        configs = tuple((f"config.{number:02}", "x" * 1000) for number in range(80))
        with pytest.raises(NotDoneError, match="does not fit"):
            await agent.log_client.propose(CreateTopic("t", 1, configs))


async def test_command_that_the_codec_cannot_write_is_not_done() -> None:
    async with serving() as agent:
        configs = (("config", "x" * 40_000),)
        with pytest.raises(NotDoneError, match="cannot be written"):
            await agent.log_client.propose(CreateTopic("t", 1, configs))


async def test_a_command_is_encoded_once() -> None:
    encoded: list[str] = []
    declared = DECLARATIONS[CreateTopic]

    def put(out: bytearray, command: CreateTopic) -> None:
        encoded.append(command.name)
        declared.layout.put(out, command)

    counting = declared._replace(layout=declared.layout._replace(put=put))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(DECLARATIONS, CreateTopic, counting)
        async with serving() as agent:
            agent.log.before["append"] = lost(2)
            futures = [agent.log_client.propose(CreateTopic(name, 1, ())) for name in "ab"]
            await asyncio.gather(*futures)
            assert [topic.name for topic in agent.machine.topics] == ["a", "b"]
            assert encoded == ["a", "b"]


@pytest.mark.promise("P3")
async def test_append_without_answer_is_repeated_unchanged_before_anything_else() -> None:
    async with serving() as agent:
        agent.log.before["append"] = lost(2)
        first = agent.log_client.propose(CreateTopic("one", 1, ()))
        await asyncio.sleep(0.05)
        second = agent.log_client.propose(CreateTopic("two", 1, ()))
        await asyncio.gather(first, second)
        sent = [(n, payload) for _, n, payload in agent.log.called("append")]
        assert [n for n, _ in sent] == [1, 1, 1, 2]
        assert sent[0] == sent[1] == sent[2]


@pytest.mark.promise("P3")
async def test_append_that_the_log_refuses_is_repeated_unchanged_before_anything_else() -> None:
    """A full database, say: somebody may make room, and only a lost session is final."""
    agent = Agent(MemoryLogCluster())
    append, refusals = agent.log.append, [LogRefusedError("the database is full")] * 2

    async def refusing(session, n, payload):
        if refusals:
            agent.log.calls.append(("append", (session, n, payload)))
            raise refusals.pop()
        return await append(session, n, payload)

    async with running(agent):
        await agent.ready()
        agent.log.append = refusing
        first = agent.log_client.propose(CreateTopic("one", 1, ()))
        await asyncio.sleep(0.05)
        second = agent.log_client.propose(CreateTopic("two", 1, ()))
        assert isinstance(await first, TopicCreated)
        assert isinstance(await second, TopicCreated)
        sent = [(n, payload) for _, n, payload in agent.log.called("append")]
        assert [n for n, _ in sent] == [1, 1, 1, 2]
        assert sent[0] == sent[1] == sent[2]


async def test_append_whose_answer_was_lost_happens_once() -> None:
    async with serving() as agent:
        agent.log.after["append"] = lost(3)
        outcome = await agent.log_client.propose(CreateTopic("one", 1, ()))
        assert isinstance(outcome, TopicCreated)
        assert isinstance(await agent.log_client.propose(Tick()), Done)
        assert [entry.n for entry in agent.cluster.entries] == [0, 1, 2]


async def test_entry_that_was_in_when_the_session_was_lost_has_its_outcome() -> None:
    async with serving() as agent:
        first = agent.incarnation()
        agent.log.after["append"] = lost(1)
        future = agent.log_client.propose(CreateTopic("one", 1, ()))
        while len(agent.cluster.entries) < 2:
            await asyncio.sleep(0)
        agent.expire()
        assert isinstance(await future, TopicCreated)
        assert await agent.ready(besides=first) > first


async def test_entry_that_was_not_in_when_the_session_was_lost_never_will_be() -> None:
    async with serving() as agent:
        first = agent.incarnation()
        agent.log.before["append"] = lost(1)
        future = agent.log_client.propose(CreateTopic("one", 1, ()))
        await asyncio.sleep(0.05)
        waiting = agent.log_client.propose(CreateTopic("two", 1, ()))
        agent.expire()
        for not_done in (future, waiting):
            with pytest.raises(NotDoneError):
                await not_done
        await agent.ready(besides=first)
        await agent.log_client.propose(CreateTopic("three", 1, ()))
        await asyncio.sleep(30)
        assert [topic.name for topic in agent.machine.topics] == ["three"]


@pytest.mark.promise("P3")
async def test_new_incarnation_waits_until_the_old_one_is_settled() -> None:
    async with serving() as agent:
        first = agent.incarnation()
        agent.log.before["append"] = lost()
        future = agent.log_client.propose(CreateTopic("one", 1, ()))
        await asyncio.sleep(0.05)
        agent.expire()
        await asyncio.sleep(30)
        # Reads say that the session is gone, but what became of the append is not known.
        assert agent.incarnation() is None
        assert not future.done()
        assert len(agent.log.called("open")) == 1
        agent.log.before.clear()
        with pytest.raises(NotDoneError):
            await future
        assert await agent.ready(besides=first) > first


@pytest.mark.promise("P3")
async def test_command_for_another_incarnation_is_not_done() -> None:
    async with serving() as agent:
        first = agent.incarnation()
        agent.expire()
        second = await agent.ready(besides=first)
        with pytest.raises(NotDoneError, match="is over"):
            await agent.log_client.propose(Tick(), first)
        assert isinstance(await agent.log_client.propose(Tick(), second), Done)


async def test_command_without_a_session_is_not_done() -> None:
    agent = Agent(MemoryLogCluster())
    with pytest.raises(NotDoneError, match="no proven session"):
        await agent.log_client.propose(Tick())
    async with running(agent):
        await agent.ready()
        agent.clocks.boot_skew_ms += 7_000
        with pytest.raises(NotDoneError, match="no proven session"):
            await agent.log_client.propose(Tick())


async def test_command_that_waits_when_the_session_lapses_is_not_done() -> None:
    async with serving() as agent:
        agent.log.before["append"] = lost(1)
        sent = agent.log_client.propose(CreateTopic("sent", 1, ()))
        await asyncio.sleep(0.05)
        waiting = agent.log_client.propose(CreateTopic("waiting", 1, ()))
        agent.clocks.boot_skew_ms += 7_000
        with pytest.raises(NotDoneError):
            await waiting
        # What was sent once is settled nevertheless.
        assert isinstance(await sent, TopicCreated)
        assert agent.machine.topics.by_name("waiting") is None


async def test_abandoned_command_is_carried_out() -> None:
    async with serving() as agent:
        agent.log_client.propose(CreateTopic("t", 1, ())).cancel()
        await agent.log_client.propose(Tick())
        assert agent.machine.topics.by_name("t") is not None


async def test_command_in_doubt_when_the_agent_ends_is_told_as_unknown() -> None:
    async with serving() as agent:
        agent.log.before["append"] = lost()
        sent = agent.log_client.propose(Tick())
        await asyncio.sleep(0.05)
        waiting = agent.log_client.propose(Tick())
    with pytest.raises(LogUnavailableError):
        await sent
    with pytest.raises(NotDoneError):
        await waiting


async def test_idle_agent_writes_its_clock_every_minute() -> None:
    async with serving() as agent:
        await asyncio.sleep(181)
        entries = [decode_entry(entry.payload) for entry in agent.cluster.entries[1:]]
        assert [entry.commands for entry in entries] == [(Tick(),)] * 3
        assert [entry.clock_ms for entry in entries] == sorted({e.clock_ms for e in entries})


async def test_commands_beyond_the_bound_are_not_done_and_there_is_room_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coordinator.proposer.COMMANDS_WAITING_MAX", 3)

    async with serving() as agent:
        futures = [agent.log_client.propose(Tick()) for _ in range(5)]
        results = await asyncio.gather(*futures, return_exceptions=True)
        assert results[:3] == [Done()] * 3
        assert [type(result) for result in results[3:]] == [NotDoneError] * 2
        assert await agent.log_client.propose(Tick()) == Done()


async def test_agents_share_the_pace_of_the_log() -> None:
    cluster = MemoryLogCluster()
    agents = [Agent(cluster, name) for name in ("a", "b", "c", "d")]
    async with running(*agents):
        for agent in agents:
            await agent.ready()
        busy = agents[0]
        end_s = now_s() + 1
        before = len(cluster.entries)
        while now_s() < end_s:
            await busy.log_client.propose(Pin("p", 1000))
        assert len(cluster.entries) - before <= 800 / 4 + 2


@pytest.mark.promise("P4")
async def test_entry_that_was_in_is_not_called_undone_while_the_replica_lags() -> None:
    cluster = MemoryLogCluster()
    agent = Agent(cluster)
    released = agent.lag(lambda entry: entry.n > 0)
    async with running(agent):
        await agent.ready()
        agent.log.after["append"] = lost(1)
        future = agent.log_client.propose(CreateTopic("one", 1, ()))
        while len(cluster.entries) < 2:
            await asyncio.sleep(0)
        agent.expire()
        await asyncio.sleep(3)
        assert agent.incarnation() is None
        assert not future.done()
        released.set()
        assert isinstance(await future, TopicCreated)


async def test_command_that_waits_behind_one_in_doubt_is_refused_at_the_deadline() -> None:
    async with serving() as agent:
        agent.log.before["*"] = lost()
        sent = agent.log_client.propose(CreateTopic("sent", 1, ()))
        await asyncio.sleep(0.05)
        waiting = agent.log_client.propose(CreateTopic("waiting", 1, ()))
        await asyncio.sleep(7)
        assert not sent.done()
        assert isinstance(waiting.exception(), NotDoneError)


@pytest.mark.promise("P4")
async def test_entry_in_doubt_stays_unknown_when_nobody_knows_how_far_its_session_had_got() -> None:
    cluster = MemoryLogCluster(sessions_kept=0)
    agent, cutter = Agent(cluster), Writer(cluster)
    async with running(agent):
        first = await agent.ready()
        agent.log.before["append"] = lost()
        in_doubt = agent.log_client.propose(CreateTopic("one", 1, ()))
        await asyncio.sleep(0.05)
        waiting = agent.log_client.propose(CreateTopic("two", 1, ()))
        agent.expire()
        await cutter.open()
        await asyncio.sleep(0.05)
        await cutter.log.publish(cutter.session, b"", older=cutter.session.incarnation)
        await cutter.log.cut(cutter.session, cutter.session.incarnation)
        agent.log.before.clear()
        with pytest.raises(LogUnavailableError):
            await in_doubt
        with pytest.raises(NotDoneError):
            await waiting
        assert await agent.ready(besides=first) > first


async def test_entry_that_was_answered_is_not_called_undone_though_nobody_knows_the_newest() -> (
    None
):
    cluster = MemoryLogCluster(sessions_kept=0)
    agent, cutter = Agent(cluster), Writer(cluster)
    await cutter.open()
    released = agent.lag(lambda entry: entry.n > 0)
    async with running(agent):
        await agent.ready()
        answered = agent.log_client.propose(CreateTopic("one", 1, ()))
        await asyncio.sleep(0.05)
        agent.log.before["append"] = lost()
        in_doubt = agent.log_client.propose(CreateTopic("two", 1, ()))
        await asyncio.sleep(0.05)
        cluster.expire(cluster.entries[-1].session)
        await cutter.log.publish(cutter.session, b"", older=cluster.head())
        await cutter.log.cut(cutter.session, cluster.head())
        agent.log.before.clear()
        with pytest.raises(LogUnavailableError):
            await in_doubt
        assert not answered.done()
        released.set()
        assert isinstance(await answered, TopicCreated)


@pytest.mark.promise("P15")
async def test_over_its_budget_the_log_takes_only_what_bounds_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="coordinator.proposer")
    agent = Agent(MemoryLogCluster(), settings=replace(SETTINGS, log_bytes_max=600))
    log_client = agent.log_client
    async with running(agent):
        await agent.ready()
        while not log_client.over_budget:
            await log_client.propose(Pin("an export", 1))
        with pytest.raises(NotDoneError, match="over its budget"):
            await log_client.propose(Pin("an export", 1))
        with pytest.raises(NotDoneError, match="over its budget"):
            await log_client.propose(TrimLogs(()))
        assert log_client.stats.commands_over_budget == 2
        assert isinstance(await log_client.propose(Tick()), Done)
        claim = ClaimJobs((JobKind.SNAPSHOT,))
        assert await log_client.propose(claim) == JobsClaimed((JobKind.SNAPSHOT,))
        for _ in range(2):
            await log_client.propose(BeginSnapshot())
            begun = agent.machine.snapshots.begun
            publish = PublishSnapshot(begun.position, begun.digest, "snapshots/a")
            assert isinstance(await log_client.propose(publish), Done)
        while log_client.over_budget:
            await log_client.propose(BeginSnapshot())
            begun = agent.machine.snapshots.begun
            await log_client.propose(PublishSnapshot(begun.position, begun.digest, "snapshots/a"))
        await log_client.propose(Pin("an export", 1))
    told = [record.message for record in caplog.records if "its budget" in record.message]
    over, within = told[-2:]
    assert "over its budget" in over
    assert "within its budget again" in within


def refusing(times: int = 1) -> Callable[[], None]:
    """Something to do first that cannot be done, so many times."""
    left = times

    def first() -> None:
        nonlocal left
        if left:
            left -= 1
            raise OSError("the disk is full")

    return first


@asynccontextmanager
async def embedded() -> AsyncIterator[Agent]:
    agent = Agent(MemoryLogCluster(), embedded=True)
    async with running(agent):
        await agent.ready()
        yield agent


async def test_what_is_to_be_done_first_is_done_before_the_entry_is_in() -> None:
    async with embedded() as agent:
        seen: list[int] = []
        first = lambda: seen.append(len(agent.cluster.entries))  # noqa: E731
        before = len(agent.cluster.entries)
        await agent.log_client.propose(CreateTopic("t", 1, ()), first=first)
        assert seen == [before]


@pytest.mark.promise("P4")
async def test_a_command_whose_first_fails_is_not_done_and_those_beside_it_are() -> None:
    async with embedded() as agent:
        before = [agent.log_client.propose(CreateTopic(name, 1, ())) for name in "ab"]
        failing = agent.log_client.propose(CreateTopic("f", 1, ()), first=refusing())
        after = [agent.log_client.propose(CreateTopic(name, 1, ())) for name in "cd"]
        with pytest.raises(FirstNotDoneError, match="the disk is full"):
            await failing
        await asyncio.gather(*before, *after)
        assert [topic.name for topic in agent.machine.topics] == ["a", "b", "c", "d"]


async def test_each_entry_has_one_thing_that_is_done_first() -> None:
    async with embedded() as agent:
        done: list[str] = []
        before = len(agent.cluster.entries)
        futures = [
            agent.log_client.propose(CreateTopic("a", 1, ()), first=lambda: done.append("a")),
            agent.log_client.propose(CreateTopic("b", 1, ())),
            agent.log_client.propose(CreateTopic("c", 1, ()), first=lambda: done.append("c")),
        ]
        await asyncio.gather(*futures)
        assert done == ["a", "c"]
        assert len(agent.cluster.entries) == before + 2


@pytest.mark.promise("P3")
async def test_a_number_that_was_not_used_is_the_next_entrys() -> None:
    async with embedded() as agent:
        with pytest.raises(FirstNotDoneError):
            await agent.log_client.propose(Tick(), first=refusing())
        await agent.log_client.propose(Tick())
        entries = agent.cluster.entries
        assert [entry.n for entry in entries] == list(range(len(entries)))


@pytest.mark.promise("P3")
async def test_what_is_put_back_when_the_session_is_gone_is_not_done() -> None:
    async with embedded() as agent:
        arrived, go_on = asyncio.Event(), asyncio.Event()

        async def gate(*_arguments: object) -> None:
            arrived.set()
            await go_on.wait()

        agent.log.before["append"] = gate
        failing = agent.log_client.propose(Tick(), first=refusing())
        beside = agent.log_client.propose(CreateTopic("t", 1, ()))
        await arrived.wait()
        agent.expire()
        while agent.incarnation() is not None:
            await asyncio.sleep(0.1)
        go_on.set()
        for future in (failing, beside):
            with pytest.raises(NotDoneError):
                await future
        del agent.log.before["append"]
        await agent.ready()
        assert len(agent.machine.topics) == 0
