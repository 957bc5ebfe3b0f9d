"""Coordinator: the facade that the broker uses."""

import asyncio

import pytest

from coordinator.commands.entries import CreateTopic, Tick
from coordinator.log.memory import MemoryLog, MemoryLogCluster
from coordinator.log.metadata_log import LogUnavailableError
from coordinator.log_client import Applied, NotDoneError, ReplicaStoppedError
from coordinator.proposer import COMMANDS_WAITING_MAX
from tests.coordinator.support import Agent, now_s, running, serving, writer_of
from tests.kit.faults import lost

pytestmark = pytest.mark.schedules(5)


async def test_agents_get_node_ids_and_incarnations_of_their_own() -> None:
    cluster = MemoryLogCluster()
    agents = [Agent(cluster, name) for name in ("a", "b", "c")]
    async with running(*agents):
        incarnations = [await agent.ready() for agent in agents]
        assert len(set(incarnations)) == 3
        assert sorted(agent.log_client.node_id() for agent in agents) == [0, 1, 2]


async def test_callbacks_see_an_entry_before_its_proposer_is_woken() -> None:
    agent = Agent(MemoryLogCluster())
    seen: list[Applied] = []
    agent.log_client.on_applied(seen.append)
    async with running(agent):
        incarnation = await agent.ready()
        future = agent.log_client.propose(CreateTopic("t", 1, ()))
        future.add_done_callback(lambda _: seen.append(None))
        outcome = await future
        await asyncio.sleep(0.01)
        assert seen[-1] is None
        assert seen[-2].incarnation == incarnation
        assert seen[-2].outcomes == (outcome,)
        assert seen[-2].position == agent.machine.position


async def test_barrier_shows_what_another_agent_was_told_is_done() -> None:
    cluster = MemoryLogCluster()
    writer, reader = Agent(cluster, "writer"), Agent(cluster, "reader")
    async with running(writer, reader):
        await writer.ready()
        await reader.ready()
        for number in range(20):
            await writer.log_client.propose(CreateTopic(f"t{number}", 1, ()))
            await reader.log_client.barrier()
            assert reader.machine.topics.by_name(f"t{number}") is not None


async def test_replicas_at_the_same_position_are_equal() -> None:
    cluster = MemoryLogCluster()
    agents = [Agent(cluster, name) for name in ("a", "b")]
    digests: list[dict[int, bytes]] = [{}, {}]
    for agent, digest in zip(agents, digests, strict=True):
        agent.log_client.on_applied(
            lambda applied, agent=agent, digest=digest: digest.update(
                {applied.position: agent.machine.digest()}
            )
        )
    async with running(*agents):
        for agent in agents:
            await agent.ready()
        proposals = [
            agent.log_client.propose(CreateTopic(f"t{number % 7}", 1, ()))
            for number in range(30)
            for agent in agents
        ]
        await asyncio.gather(*proposals)
        for agent in agents:
            await agent.log_client.barrier()
        assert digests[0] == digests[1]
        assert len(digests[0]) > 3


async def test_leaving_closes_the_incarnation_at_once() -> None:
    cluster = MemoryLogCluster()
    leaving, other = Agent(cluster, "leaving"), Agent(cluster, "other")
    async with running(leaving, other) as (ended, _):
        incarnation = await leaving.ready()
        await other.ready()
        before = leaving.log_client.propose(CreateTopic("t", 1, ()))
        started_s = now_s()
        await leaving.log_client.leave()
        await ended
        await other.log_client.barrier()
        assert now_s() - started_s < 1
        assert before.done()
        assert other.machine.incarnations.get(incarnation) is None
        assert other.machine.topics.by_name("t") is not None
        assert leaving.incarnation() is None
        with pytest.raises(NotDoneError):
            await leaving.log_client.propose(Tick())
        await asyncio.sleep(30)
        assert len(leaving.log.called("open")) == 1
        assert other.log_client.stats.others_closed == 0


@pytest.mark.promise("P5")
async def test_who_leaves_does_not_act_while_its_session_is_being_ended() -> None:
    """Also where its Close was not taken, and nobody has told it yet that the session is gone."""
    cluster = MemoryLogCluster()
    leaving = Agent(cluster, "leaving")
    ending = asyncio.Event()

    async def hold(*_arguments: object) -> None:
        ending.set()
        await asyncio.sleep(1)

    leaving.log.after["revoke"] = hold
    async with running(leaving) as (ended,):
        await leaving.ready()
        for _ in range(COMMANDS_WAITING_MAX):
            leaving.log_client.propose(Tick())
        left = asyncio.get_running_loop().create_task(leaving.log_client.leave())
        await ending.wait()
        assert leaving.incarnation() is None
        await left
        await ended
        assert len(leaving.log.called("open")) == 1


async def test_leaving_ends_at_its_deadline_when_the_log_is_away() -> None:
    agent = Agent(MemoryLogCluster())
    async with running(agent) as (ended,):
        await agent.ready()
        agent.log.before["*"] = lost()
        started_s = now_s()
        await agent.log_client.leave()
        await ended
        assert now_s() - started_s < 5.1


async def test_leaving_before_there_is_a_session_ends() -> None:
    agent = Agent(MemoryLogCluster())
    agent.log.before["*"] = lost()
    async with running(agent) as (ended,):
        await asyncio.sleep(1)
        await agent.log_client.leave()
        await ended


@pytest.mark.promise("P13")
async def test_run_ends_when_the_log_cannot_be_followed() -> None:
    writer = await writer_of()
    agent = Agent(writer.cluster)
    async with running(agent) as (ended,):
        await agent.ready()
        await writer.write_bytes(b"?")
        with pytest.raises(ReplicaStoppedError):
            await ended
        assert agent.incarnation() is None
        assert agent.incarnations[-1] is None
        with pytest.raises(NotDoneError):
            await agent.log_client.propose(Tick())


async def test_barrier_fails_at_its_deadline_when_the_log_is_away() -> None:
    async with serving() as agent:
        agent.log.before["head"] = lost()
        started_s = now_s()
        with pytest.raises(LogUnavailableError):
            await agent.log_client.barrier()
        assert 5 <= now_s() - started_s < 5.1


async def test_stats_tell_what_happened() -> None:
    async with serving() as agent:
        await agent.log_client.propose(Tick())
        await agent.log_client.barrier()
        stats = agent.log_client.stats
        assert (stats.entries_appended, stats.entries_applied) == (1, 2)
        assert stats.sessions_opened == 1
        assert stats.barriers == 2
        assert stats.lag == 0
        assert stats.applied_position == agent.machine.position


async def test_part_that_a_library_ended_ends_the_agent_instead_of_leaving_it_half_alive() -> None:
    class Cancelling(MemoryLog):
        async def tail(self, after):
            raise asyncio.CancelledError
            yield after

    agent = Agent(MemoryLogCluster())
    agent.log_client._replica._log = Cancelling(agent.cluster)
    with pytest.raises(AssertionError, match="ended by nobody"):
        async with asyncio.timeout(5):
            await agent.log_client.run()
