"""What must hold among agents is seen to be broken where it is, and nowhere else."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from coordinator.commands.entries import DONE, Close, Entry, Tick
from coordinator.commands.group_commands import GROUP_SHARDS, ClaimShards, ShardsClaimed
from coordinator.log.metadata_log import LAST_UNKNOWN, Session
from coordinator.log_client import Applied
from coordinator.proposer import NotDoneError
from protocol.records import Record, build_batch
from protocol.types import Incarnation, Position
from tests.kit.agents import Agent, World
from tests.kit.faults import held, slow
from tests.kit.loop import current
from tests.sim.agent_account import AgentAccount

LATER = Position(1 << 62)


class Watched:
    """Two agents and their account."""

    def __init__(self, world: World, one: Agent, two: Agent) -> None:
        self.cluster = world.cluster
        self.one, self.two = one, two
        self.revoked: set[int] = set()
        self.violations: list[str] = []
        self.account = AgentAccount(
            current(),
            world.cluster,
            self.violations,
            acting=lambda: ("one", "two"),
            revoked=self.revoked,
        )
        for agent in (one, two):
            agent.log.before["append"] = agent.log.before["open"] = slow(0.0)
            self.account.watch_log(agent.name, agent.log)
            self.account.begins(agent.name, agent.node)

    def watch(self) -> None:
        """From now on, what they apply."""
        self.one.log_client.on_applied(lambda each: self.account.applied(self.one.node, each))
        self.two.log_client.on_applied(lambda each: self.account.applied(self.two.node, each))

    @property
    def session(self) -> Session:
        """That of the first."""
        incarnation = self.incarnation
        for session, each in self.cluster._sessions.items():
            if each == incarnation:
                return Session(session, each)
        raise AssertionError(incarnation)

    @property
    def incarnation(self) -> Incarnation:
        incarnation = self.one.log_client.incarnation()
        assert incarnation is not None
        return incarnation


@asynccontextmanager
async def watched() -> AsyncGenerator[Watched, None]:
    world = World()
    async with world.agents("one", "two") as (one, two):
        both = Watched(world, one, two)
        both.watch()
        yield both


async def test_of_agents_that_do_as_they_should_nothing_is_said() -> None:
    async with watched() as both:
        await both.one.create_topic("t")
        await both.two.log_client.barrier()
        await both.one.lose_session()
        both.one.log.down = False
        await both.one.ready()
        await both.one.log_client.propose(Tick())
        assert both.violations == []


async def test_who_acts_under_a_lease_that_is_over_is_seen_but_not_where_it_was_revoked() -> None:
    async with watched() as both:
        session = both.session.id
        both.cluster.expire(session)
        await both.two.log_client.propose(Tick())
        assert set(both.violations) == {
            "one acts under a lease that is over (P5)",
            "one answers for groups under a lease that is over (P5)",
        }
        both.violations.clear()
        both.revoked.add(session)
        await both.two.log_client.propose(Tick())
        assert both.violations == []


async def test_who_answers_for_groups_when_its_lease_is_over_is_seen_when_a_member_asks() -> None:
    async with watched() as both:
        group_id = next(
            each for each in map(str, range(1000)) if both.one.node.groups.runtime.serves(each)
        )
        assert both.violations == []
        both.cluster.expire(both.session.id)
        both.one.node.groups.coordinates(group_id)
        assert both.violations == ["one answers for groups under a lease that is over (P5)"]


async def test_who_believes_in_its_lease_for_longer_than_it_lasts_is_seen() -> None:
    async with watched() as both:
        both.cluster._leases[both.session.id].expires_s = current().time() + 0.5
        await both.two.log_client.propose(Tick())
        assert both.violations
        assert all("one believes in its lease for " in each for each in both.violations)


async def test_who_begins_to_act_and_believes_in_its_lease_for_too_long_is_seen() -> None:
    async with watched() as both:
        begins = both.account._incarnation_watch("one", both.one.node)
        begins(both.incarnation)
        assert both.violations == []
        both.cluster._leases[both.session.id].expires_s = current().time() + 0.5
        begins(both.incarnation)
        (told,) = both.violations
        assert told.startswith("one believes in its lease for ")


async def test_two_that_coordinate_one_shard_are_seen() -> None:
    async with watched() as both:
        incarnation = both.two.log_client.incarnation()
        assert incarnation is not None
        both.two.node.groups.runtime.serve(incarnation, frozenset(range(GROUP_SHARDS)))
        await both.one.log_client.propose(Tick())
        assert "one and two coordinate shard" in both.violations[0]


async def test_what_is_said_not_to_be_done_and_is_in_the_log_is_seen() -> None:
    async with watched() as both:
        both.one.lag()
        sent = both.one.log_client._proposer._sent
        _ = both.one.log_client.propose(Tick())
        while not sent:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        (future,) = sent.pop(next(iter(sent)))
        future.set_exception(NotDoneError("it was lost"))
        both.one.catch_up()
        await both.two.log_client.barrier()
        assert "was said not to be done, and is in the log (P4)" in both.violations[0]


async def test_a_barrier_that_ends_before_the_logs_end_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def at_once(_since_ms: int | None) -> None:
        """Tell that the end is reached."""

    world = World()
    async with world.agents("one", "two") as (one, two):
        monkeypatch.setattr(one.log_client, "barrier", at_once)
        both = Watched(world, one, two)
        one.lag()
        await two.log_client.propose(Tick())
        await one.log_client.barrier()
        await two.log_client.barrier()
        (told,) = both.violations
        assert told.startswith("a barrier of one ended at ")


async def test_a_barrier_leads_to_the_logs_end_at_the_reading_of_the_clock_that_it_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def at_once(_since_ms: int | None) -> None:
        """Tell that the end is reached."""

    world = World()
    async with world.agents("one", "two") as (one, two):
        monkeypatch.setattr(one.log_client, "barrier", at_once)
        both = Watched(world, one, two)
        one.lag()
        read = both.account.clock(world.boot_ms)
        before = read()
        await two.log_client.propose(Tick())
        await one.log_client.barrier(before)
        assert both.violations == []
        await one.log_client.barrier(read())
        (told,) = both.violations
        assert told.startswith("a barrier of one ended at ")


async def test_what_is_sent_first_without_a_proven_session_is_seen_and_what_is_sent_again_is_not() -> (
    None
):
    async with watched() as both:
        session = both.session
        await both.one.log.before["append"](session, 1000, b"")
        await both.one.lose_session()
        await both.one.log.before["append"](session, 1000, b"")
        assert both.violations == []
        await both.one.log.before["append"](session, 1001, b"")
        assert both.violations == ["one sends its entry 1001, and its session is not proven (P5)"]


async def test_who_acts_again_behind_the_end_that_it_lapsed_at_is_seen() -> None:
    async with watched() as both:
        watch = both.account._incarnation_watch("one", both.one.node)
        both.one.lag()
        await both.two.log_client.propose(Tick())
        watch(None)
        watch(both.incarnation)
        (told,) = both.violations
        assert told.startswith("one acts again at ")


async def test_who_joins_before_it_has_caught_up_is_seen() -> None:
    async with watched() as both:
        await both.one.log.before["open"](1, b"")
        assert both.violations == []
        both.one.lag()
        await both.two.log_client.propose(Tick())
        both.account.begins("one", both.one.node)
        await both.one.log.before["open"](1, b"")
        (told,) = both.violations
        assert told.startswith("one joins at ")


async def test_what_follows_the_close_of_its_own_incarnation_must_be_refused() -> None:
    async with watched() as both:
        writer = both.incarnation
        entry = Entry(writer, 5, 0, (Close(writer, 4), Tick()))
        both.account.applied(both.one.node, Applied(LATER, writer, entry, (DONE, DONE)))
        assert both.violations == [f"Tick of incarnation {writer} was done when that was over (P5)"]


async def test_a_shard_that_is_taken_from_who_holds_it_is_seen() -> None:
    async with watched() as both:
        await both.one.log_client.propose(Tick())
        writer = Incarnation(LATER)
        entry = Entry(writer, 1, 0, (ClaimShards((0, 1)),))
        claimed = ShardsClaimed((0, 1))
        both.account.applied(both.one.node, Applied(LATER, writer, entry, (claimed,)))
        assert both.violations == [
            f"ClaimShards of {writer} took the shards [0, 1] of groups from others (P5)"
        ]


async def test_records_that_are_kept_when_the_session_is_lost_are_seen() -> None:
    async with watched() as both:
        await both.one.create_topic("t")
        put = asyncio.Event()
        both.one.world.store.before["put_new"] = held(put)
        writing = asyncio.create_task(both.one.produce("t", build_batch([Record(value=b"1")])))
        await asyncio.sleep(0.5)
        both.account._look_at_what_was_taken("one", both.one.node)
        assert both.violations == [
            "one has lost its session, and keeps records that it took under it (P3)"
        ]
        put.set()
        await writing


async def test_what_is_said_not_to_be_done_when_the_log_does_not_know_is_seen() -> None:
    async with watched() as both:
        both.one.lag()
        proposer, session = both.one.log_client._proposer, both.session
        for last in (0, LAST_UNKNOWN):
            future = current().create_future()
            future.set_exception(NotDoneError("the session was lost"))
            proposer._sent[session.incarnation, 1000] = [future]
            proposer._sent.pop((session.incarnation, 1000))
            proposer._on_lost(session, last)
            both.account._look_at_undone()
            assert len(both.violations) == (last == LAST_UNKNOWN)
        assert both.violations == [
            "one says that entry 1000 was not done, and the log does not know (P4)"
        ]


async def test_a_chunk_that_was_given_up_and_is_in_the_log_is_seen() -> None:
    async with watched() as both:
        await both.one.create_topic("t")
        both.account._given_up.add((both.incarnation, 0))
        await both.one.produce("t", build_batch([Record(value=b"1")]))
        assert "was said to have failed, and is in the log (P4)" in both.violations[0]


async def test_who_takes_what_was_to_be_done_under_an_incarnation_that_is_over_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with watched() as both:
        both.account._owners[Incarnation(1)] = "one"
        both.account._look_at_incarnation("one", both.one.node, both.incarnation)
        assert both.violations == []
        taken = current().create_future()
        monkeypatch.setattr(both.one.log_client, "propose", lambda *_arguments: taken)
        both.account._look_at_incarnation("one", both.one.node, both.incarnation)
        (told,) = both.violations
        assert told.startswith("one takes what was to be done under 1")
