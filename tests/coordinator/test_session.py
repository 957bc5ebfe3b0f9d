"""Membership: a session is proven or not used, and three ways of losing it are noticed (P5, P6)."""

import asyncio

import pytest

from coordinator.commands.entries import CreateTopic, Tick
from coordinator.log.memory import MemoryLogCluster
from coordinator.log.metadata_log import LAST_UNKNOWN
from coordinator.log_client import LogClientSettings, NotDoneError, ReplacedError
from tests.coordinator.support import Agent, Writer, now_s, running, serving, writer_of
from tests.kit.faults import lost, slow

pytestmark = pytest.mark.schedules(5)


@pytest.mark.promise("P5")
async def test_session_is_proven_from_the_sending_of_the_renewal_not_its_answer() -> None:
    async with serving() as agent:
        agent.log.after["keep_alive"] = slow(1.5)
        while not agent.log.called("keep_alive"):
            await asyncio.sleep(0.001)
        sent_s = now_s()
        await asyncio.sleep(1.6)  # It is answered, and the next one is not sent yet.
        agent.log.before["keep_alive"] = lost()
        await asyncio.sleep(sent_s + 6.9 - now_s())
        assert agent.incarnation() is not None
        await asyncio.sleep(sent_s + 7.01 - now_s())
        assert agent.incarnation() is None


@pytest.mark.promise("P5")
async def test_session_is_proven_from_the_sending_of_its_request_not_the_grant() -> None:
    agent = Agent(MemoryLogCluster())
    agent.log.after["grant"] = slow(3)
    agent.log.before["keep_alive"] = lost()
    async with running(agent):
        while not agent.log.called("grant"):
            await asyncio.sleep(0.001)
        sent_s = now_s()
        await agent.ready()
        assert now_s() > sent_s + 2.9
        await asyncio.sleep(sent_s + 6.9 - now_s())
        assert agent.incarnation() is not None
        await asyncio.sleep(sent_s + 7.01 - now_s())
        assert agent.incarnation() is None


async def test_no_agent_can_be_declared_dead_while_it_believes_to_live() -> None:
    cluster = MemoryLogCluster()
    cut, other = Agent(cluster, "cut"), Agent(cluster, "other")
    async with running(cut, other):
        incarnation = await cut.ready()
        await other.ready()
        await asyncio.sleep(20)
        cut.log.before["*"] = lost()
        while cut.incarnation() is not None:
            assert other.machine.incarnations.get(incarnation) is not None
            await asyncio.sleep(0.01)
        lost_s = now_s()
        while other.machine.incarnations.get(incarnation) is not None:
            await asyncio.sleep(0.01)
        assert now_s() - lost_s > 1
        assert other.log_client.stats.others_closed == 1


async def test_lapse_is_told_at_the_deadline() -> None:
    async with serving() as agent:
        first = agent.incarnation()
        agent.log.before["keep_alive"] = lost()
        await asyncio.sleep(7)
        assert agent.incarnations == [first, None]


async def test_lapsed_session_that_still_lives_goes_on_after_a_barrier() -> None:
    async with serving() as agent:
        first = agent.incarnation()
        agent.clocks.boot_skew_ms += 8_000  # As after a suspension that the lease survived.
        assert agent.incarnation() is None
        heads = len(agent.log.called("head"))
        assert await agent.ready() == first
        assert len(agent.log.called("head")) > heads
        assert agent.incarnations == [first, None, first]


@pytest.mark.promise("P5")
async def test_a_leader_that_renews_and_answers_no_linearizable_read_proves_no_session() -> None:
    async with serving() as agent:
        first = agent.incarnation()
        await asyncio.sleep(20)
        agent.log.before["read_session"] = lost()
        await asyncio.sleep(7)
        assert agent.log.called("keep_alive")
        assert agent.incarnation() is None
        await asyncio.sleep(60)
        assert agent.incarnations == [first, None]
        heads = len(agent.log.called("head"))
        agent.log.before.clear()
        assert await agent.ready() == first
        assert len(agent.log.called("head")) > heads


@pytest.mark.promise("P5")
async def test_loss_is_noticed_by_the_compare_of_an_append() -> None:
    async with serving() as agent:
        first = agent.incarnation()
        agent.log.before = {"keep_alive": lost(1), "read_session": lost(1)}
        agent.expire()
        with pytest.raises(NotDoneError):
            await agent.log_client.propose(Tick())
        assert agent.incarnation() is None
        second = await agent.ready(besides=first)
        assert agent.incarnations == [first, None, second]


@pytest.mark.promise("P5")
async def test_loss_is_noticed_by_the_periodic_read() -> None:
    async with serving() as agent:
        first = agent.incarnation()
        agent.log.before["keep_alive"] = lost()
        expired_s = now_s()
        agent.expire()
        while agent.incarnation() == first:
            await asyncio.sleep(0.01)
        assert now_s() - expired_s < 2.1


async def test_loss_is_noticed_by_the_renewal() -> None:
    async with serving() as agent:
        first = agent.incarnation()
        agent.log.before["read_session"] = lost()
        agent.expire()
        await asyncio.sleep(4)
        assert agent.incarnation() not in (None, first)


@pytest.mark.promise("P6")
async def test_wall_clock_that_jumps_ends_nothing() -> None:
    cluster = MemoryLogCluster()
    agents = [Agent(cluster, name) for name in ("a", "b")]
    async with running(*agents):
        before = [await agent.ready() for agent in agents]
        for day in (1, -2, 365, -3650):
            agents[0].clocks.wall_skew_ms += day * 86_400_000
            await agents[0].log_client.propose(Tick())
            await asyncio.sleep(30)
        assert [agent.incarnation() for agent in agents] == before
        assert all(len(agent.incarnations) == 1 for agent in agents)


@pytest.mark.promise("P12")
async def test_agent_does_not_serve_before_a_barrier_taken_after_it_got_its_session() -> None:
    writer = await writer_of()
    agent = Agent(writer.cluster)
    agent.log.after["open"] = slow(1)
    async with running(agent):
        while not agent.log.called("open"):
            await asyncio.sleep(0.001)
        agent.log.before["head"] = lost()
        await asyncio.sleep(4)
        assert agent.machine.position == agent.cluster.head()
        assert agent.incarnation() is None
        agent.log.before.clear()
        await agent.ready()


@pytest.mark.promise("P12")
async def test_agent_does_not_serve_before_it_has_applied_what_the_barrier_found() -> None:
    writer = await writer_of()
    agent = Agent(writer.cluster)
    agent.log.before["head"] = lost()
    released = agent.lag(lambda entry: entry.session == writer.session.id and entry.n > 0)
    async with running(agent):
        while len(agent.cluster.entries) < 2:
            await asyncio.sleep(0.001)
        await writer.write(CreateTopic("t", 1, ()))
        agent.log.before.clear()
        await asyncio.sleep(3)
        assert agent.log_client.node_id() is not None
        assert agent.incarnation() is None
        released.set()
        await agent.ready()
        assert agent.machine.topics.by_name("t") is not None


async def test_agent_recovers_by_itself_when_the_log_was_away() -> None:
    async with serving() as agent:
        first = agent.incarnation()
        agent.log.before["*"] = lost()
        await asyncio.sleep(60)
        assert agent.incarnation() is None
        assert 50_000 < agent.log_client.session_lost_ms() < 60_000
        agent.log.before.clear()
        second = await agent.ready(besides=first)
        assert second > first
        assert agent.log_client.session_lost_ms() == 0
        assert agent.log_client.node_id() == 0


async def test_agent_starts_when_the_log_comes() -> None:
    agent = Agent(MemoryLogCluster())
    agent.log.before["*"] = lost()
    async with running(agent):
        await asyncio.sleep(100)
        assert agent.log_client.session_lost_ms() >= 100_000
        agent.log.before.clear()
        await agent.ready()


async def test_answers_of_grant_and_open_that_were_lost_do_no_harm() -> None:
    cluster = MemoryLogCluster()
    agent = Agent(cluster)
    agent.log.after = {"grant": lost(2), "open": lost(2)}
    async with running(agent):
        await agent.ready()
        assert len(agent.machine.incarnations) == 1
        assert len(cluster.entries) == 1


async def test_dead_agents_are_closed_by_the_others() -> None:
    cluster = MemoryLogCluster()
    dead = [Writer(cluster) for _ in range(3)]
    for number, writer in enumerate(dead):
        await writer.open(f"dead{number}", ttl_ms=10_000)
        await writer.write(Tick())
    agent = Agent(cluster)
    async with running(agent):
        await agent.ready()
        await asyncio.sleep(9)
        assert len(agent.machine.incarnations) == 4
        await asyncio.sleep(4)
        assert [row.node_name for row in agent.machine.incarnations] == ["a"]


async def test_dead_agent_whose_number_nobody_keeps_is_closed_all_the_same() -> None:
    cluster = MemoryLogCluster(sessions_kept=0)
    agent, dead, cutter = Agent(cluster), Writer(cluster), Writer(cluster)
    await dead.open("dead")
    await dead.write(Tick())
    await cutter.open("cutter")
    async with running(agent):
        await agent.ready()
        agent.log.before["read_session"] = lost()
        cluster.expire(dead.session.id)
        await cutter.log.publish(cutter.session, b"", older=cutter.session.incarnation)
        await cutter.log.cut(cutter.session, cutter.session.incarnation)
        assert cluster.last(dead.session.id) == LAST_UNKNOWN
        agent.log.before.clear()
        await asyncio.sleep(20)
        assert agent.machine.incarnations.by_node_name("dead") is None


async def test_restarted_process_takes_over_its_name_and_the_old_one_ends() -> None:
    cluster = MemoryLogCluster()
    old, new = Agent(cluster), Agent(cluster)
    async with running(old) as (ended,):
        await old.ready()
        async with running(new):
            await new.ready()
            with pytest.raises(ReplacedError):
                await ended
            assert old.incarnation() is None
            assert old.incarnations[-1] is None
            assert new.log_client.node_id() == old.log_client.node_id() == 0
            await asyncio.sleep(60)
            assert new.incarnations == [new.incarnation()]


async def test_process_that_was_replaced_while_cut_off_does_not_come_back() -> None:
    cluster = MemoryLogCluster()
    old, new = Agent(cluster), Agent(cluster)
    async with running(old) as (ended,):
        await old.ready()
        old.log.before["*"] = lost()
        old.log.tail_gate.clear()
        async with running(new):
            await new.ready()
            await asyncio.sleep(30)
            old.log.before.clear()
            old.log.tail_gate.set()
            with pytest.raises(ReplacedError):
                await ended
            assert len(old.log.called("open")) == 1
            assert new.incarnations == [new.incarnation()]


async def test_agent_that_the_cluster_does_not_accept_tries_again() -> None:
    cluster = MemoryLogCluster()
    agents = [Agent(cluster, name) for name in ("a", "b")]
    for agent in agents:
        lifecycle = agent.log_client._lifecycle
        fields = {name: getattr(lifecycle._identity, name) for name in IDENTITY}
        lifecycle._identity = type(lifecycle._identity)(**fields | {"node_id_wanted": 7})
    async with running(agents[0]):
        await agents[0].ready()
        async with running(agents[1]):
            await asyncio.sleep(20)
            assert agents[1].incarnation() is None
            assert len(agents[1].log.called("open")) > 1
            await agents[0].log_client.leave()
            await agents[1].ready()
            assert agents[1].log_client.node_id() == 7


IDENTITY = ("node_name", "node_id_wanted", "zone", "listeners", "software_version")


def test_deadline_must_be_earlier_than_the_leases_end() -> None:
    with pytest.raises(ValueError, match="deadline"):
        LogClientSettings(lease_ttl_ms=10_000, session_deadline_ms=10_000)
    with pytest.raises(ValueError, match="deadline"):
        LogClientSettings(lease_ttl_ms=10_000, session_deadline_ms=3_000)
    with pytest.raises(ValueError, match="positive"):
        LogClientSettings(session_read_ms=0)
