"""Several agents: takeovers, lapses, leaving, balance; groups are fakes."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from broker.groups.shards import BUSY_MS_MAX, MISPLACED_MS_MIN, LiveAgent, preferred
from coordinator.commands.entries import Close
from coordinator.commands.group_commands import GROUP_SHARDS, ClaimShards, ReleaseShards
from coordinator.log.metadata_log import LogUnavailableError
from coordinator.tables.groups import shard_of
from protocol import apis
from protocol.errors import ErrorCode
from tests.broker.groups.fake import FakeGroup
from tests.broker.groups.world import (
    Agent,
    Member,
    World,
    alone,
    group_of,
    holder_of,
    join_request,
    until_held,
    until_served,
    world_of_fakes,
)
from tests.kit.client import settle


@pytest.fixture
def world() -> World:
    return world_of_fakes()


NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR


def shares(*agents: Agent) -> list[int]:
    """How many shards each of them holds, as each of them sees it; all must see the same."""
    seen = [
        [len(agent.machine.groups.held_by(each.log_client.incarnation())) for each in agents]
        for agent in agents
    ]
    assert all(each == seen[0] for each in seen)
    return seen[0]


async def balanced(world: World, *agents: Agent) -> None:
    await until_held(*agents)
    await asyncio.sleep(MISPLACED_MS_MIN / 1000 + 3)
    assert min(shares(*agents)) >= GROUP_SHARDS // len(agents) // 3
    assert sum(shares(*agents)) == GROUP_SHARDS


@asynccontextmanager
async def two_agents() -> AsyncGenerator[tuple[Agent, Agent], None]:
    """Each of which has its share of the shards; groups are fakes."""
    world = world_of_fakes()
    async with world.agents("one", "two") as (one, two):
        await balanced(world, one, two)
        yield one, two


async def lost(_session):
    raise LogUnavailableError("lost on the way")


async def lapse(agent: Agent):
    """Renewals are lost, all else gets through; call what it returns to end that."""
    keep_alive = agent.log.keep_alive
    agent.log.keep_alive = lost
    while agent.log_client.incarnation() is not None:
        await asyncio.sleep(0.05)

    def end() -> None:
        agent.log.keep_alive = keep_alive

    return end


def refuse(agent: Agent, kind: type, *, times: int = 1 << 30) -> list:
    """The next commands of this kind are proposed by nobody who lives; returns them."""
    propose, refused = agent.log_client.propose, []

    def proposed(command, incarnation=None):
        if isinstance(command, kind) and len(refused) < times:
            refused.append(command)
            return propose(command, 12345)
        return propose(command, incarnation)

    agent.log_client.propose = proposed
    return refused


@pytest.mark.parametrize("seed", range(3))
async def test_a_second_agent_is_given_its_share(seed: int, world: World) -> None:
    async with world.agents("one", "two") as (one, two):
        assert shares(one, two) == [GROUP_SHARDS, 0]
        await balanced(world, one, two)
        entries = len(world.cluster.entries)
        await asyncio.sleep(30)
        assert len(world.cluster.entries) == entries


async def test_groups_go_with_their_shard_and_their_members_go_on(world: World) -> None:
    async with world.agents("one", "two") as (one, two):
        members = [Member(one, f"g{number}") for number in range(20)]
        for member in members:
            assert await member.join() == 0
        await balanced(world, one, two)
        moved = [each for each in members if holder_of(each.group_id, one, two) is two]
        assert 0 < len(moved) < 20
        for member in moved:
            assert await member.heartbeat() == NOT_COORDINATOR
            assert await member.at(two).heartbeat() == 0
        assert two.node.groups.stats.takeovers == len(moved)
        kept = {each.group_id for each in members} - {each.group_id for each in moved}
        assert {context.group_id for context in one.node.groups.runtime} == kept


@pytest.mark.parametrize("seed", range(3))
async def test_after_a_crash_another_agent_goes_on_with_the_same_members_and_generation(
    seed: int,
) -> None:
    async with two_agents() as (one, two):
        member = Member(two, group_of(two))
        assert await member.join() == 0
        two.log.down = True
        begun_s = one.world.loop.time()
        assert await until_served(member.group_id, one) is one
        assert one.world.loop.time() - begun_s < 5
        after = member.at(one)
        assert await after.heartbeat() == 0
        assert await after.sync() == 0
        row = one.machine.groups.get(member.group_id)
        assert (row.epoch, list(row.members)) == (member.generation, [member.member_id])


async def test_members_that_a_dead_agent_had_expire_though_nobody_asks_for_their_group() -> None:
    async with two_agents() as (one, two):
        member = Member(two, group_of(two))
        assert await member.join(session_ms=10_000) == 0
        two.log.down = True
        await until_served(member.group_id, one)
        taken_s = one.world.loop.time()
        while one.machine.groups.get(member.group_id).members:
            await asyncio.sleep(0.05)
        # A whole session timeout, from the takeover on.
        assert 9.9 < one.world.loop.time() - taken_s < 10.3


async def test_many_groups_are_loaded_in_slices() -> None:
    async with two_agents() as (one, two):
        ids = [group_of(two, prefix=f"{number}-") for number in range(300)]
        writing = [
            two.connect().call(apis.JOIN_GROUP, 5, join_request(each, "write")) for each in ids
        ]
        assert {answer.error_code for answer in await asyncio.gather(*writing)} == {0}
        FakeGroup.made.clear()
        two.log.down = True
        await until_served(ids[0], one)
        while len(FakeGroup.made) < len(ids):
            await asyncio.sleep(0)
        slices = Counter(group.made_in for group in FakeGroup.made)
        assert len(slices) >= 3
        assert max(slices.values()) <= 100


@pytest.mark.promise("P5")
async def test_an_agent_whose_session_is_not_proven_does_not_coordinate() -> None:
    async with alone() as one:
        member, parked = Member(one, "g"), Member(one, "g", "parked")
        assert await member.join() == 0
        parked.send_join("park")
        await settle()
        await lapse(one)
        assert await parked.joined() == NOT_COORDINATOR
        assert await member.heartbeat() == NOT_COORDINATOR
        assert await member.sync() == NOT_COORDINATOR
        assert await member.leave() == NOT_COORDINATOR
        assert await Member(one, "h").join() == NOT_COORDINATOR
        assert FakeGroup.made[0].dead
        assert list(one.node.groups.runtime) == []


async def test_at_the_very_deadline_nothing_is_answered_any_more_though_nobody_has_noticed_yet() -> (
    None
):
    async with alone() as one:
        member = Member(one, "g")
        assert await member.join() == 0
        one.log_client.incarnation = lambda: None
        assert await member.heartbeat() == NOT_COORDINATOR
        assert await member.sync() == NOT_COORDINATOR
        assert await Member(one, "g").join() == NOT_COORDINATOR
        del one.log_client.incarnation
        assert await member.heartbeat() == 0


async def test_at_the_very_deadline_nothing_is_written_or_told_by_itself() -> None:
    async with alone() as one:
        member, joining = Member(one, "g"), Member(one, "h")
        assert await member.join(session_ms=6_000) == 0
        await asyncio.sleep(5.5)
        one.lag()
        joining.send_join("write")
        await settle()
        claims = one.node.groups.claims
        one.log_client.incarnation, claims._update = lambda: None, lambda: None
        one.catch_up()
        entries = len(one.world.cluster.entries)
        await asyncio.sleep(1)
        assert one.machine.groups.get("h").members
        assert joining.peer.frames() == []
        assert len(one.world.cluster.entries) == entries
        del one.log_client.incarnation, claims._update
        await lapse(one)
        assert await joining.joined() == NOT_COORDINATOR


async def test_after_a_lapse_under_the_same_incarnation_members_have_a_whole_session_timeout() -> (
    None
):
    async with alone(lease_ttl_ms="60000", session_deadline_ms="30000") as one:
        member = Member(one, "g")
        assert await member.join(session_ms=45_000) == 0
        before = one.log_client.incarnation()
        end = await lapse(one)
        await asyncio.sleep(8)
        end()
        await until_served("g", one)
        await settle()
        assert one.log_client.incarnation() == before
        proven_s = one.world.loop.time()
        assert len(FakeGroup.made) == 2
        assert await member.heartbeat() == 0
        while one.machine.groups.get("g").members:
            await asyncio.sleep(0.05)
        assert 44.9 < one.world.loop.time() - proven_s < 45.3


@pytest.mark.promise("P3")
@pytest.mark.parametrize("arrives", [True, False])
@pytest.mark.parametrize("seed", range(3))
async def test_what_was_in_doubt_before_a_lapse_is_settled_before_the_group_is_served_again(
    arrives, seed: int
) -> None:
    async with alone(lease_ttl_ms="14000", session_deadline_ms="5000") as one:
        member, doubtful = Member(one, "g"), Member(one, "g")
        assert await member.join(session_ms=60_000) == 0
        append = one.log.append
        before = one.log_client.incarnation()

        async def in_doubt(session, n, payload):
            if arrives:
                await append(session, n, payload)
            raise LogUnavailableError("the answer was lost")

        one.log.append = in_doubt
        if arrives:  # Else the replica would see that it is in.
            one.lag()
        doubtful.send_join("write")
        await settle()
        end = await lapse(one)
        assert await doubtful.joined() == NOT_COORDINATOR
        end()
        for _ in range(100):
            await asyncio.sleep(0.1)
            assert await member.heartbeat() == NOT_COORDINATOR
        assert arrives or one.log_client.incarnation() == before
        one.log.append = append
        one.catch_up()
        await until_served("g", one)
        assert one.log_client.incarnation() == before
        row = one.machine.groups.get("g")
        assert (row.epoch, len(row.members)) == (2, 2)
        assert FakeGroup.made[-1].epoch == 2
        assert await Member(one, "g").join() == 0
        assert one.node.groups.stats.writes_fenced == 0


@pytest.mark.parametrize("seed", range(3))
async def test_a_leaving_agent_gives_its_shards_to_the_others_and_refuses_who_waits(
    seed: int,
) -> None:
    async with two_agents() as (one, two):
        member, parked = (Member(two, group_of(two)) for _ in range(2))
        assert await member.join(session_ms=120_000) == 0
        parked.send_join("park")
        await settle()
        await two.node.groups.depart(2.0)
        assert await parked.joined() == NOT_COORDINATOR
        assert await member.heartbeat() == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await until_served(member.group_id, one, seconds=0.5) is one
        assert await member.at(one).heartbeat() == 0
        assert shares(one, two) == [GROUP_SHARDS, 0]
        # It lives on for a while, and is given nothing back.
        entries = len(one.world.cluster.entries)
        await asyncio.sleep(30)
        assert len(one.world.cluster.entries) == entries


async def test_a_leaving_agent_that_is_given_a_shard_gives_it_away_at_once(world: World) -> None:
    async with world.agents("one", "two") as (one, two):
        two.node.groups.claims.leaving = True
        theirs = two.log_client.incarnation()
        await one.log_client.propose(ReleaseShards((3, 5), theirs))
        async with asyncio.timeout(1):
            while one.machine.groups.held_by(theirs):
                await asyncio.sleep(0.01)
        assert shares(one, two) == [GROUP_SHARDS, 0]


async def test_an_agent_that_seemed_to_leave_and_claims_again_gets_its_share() -> None:
    async with two_agents() as (one, two):
        theirs = two.machine.groups.held_by(two.log_client.incarnation())
        ours = one.log_client.incarnation()
        await two.log_client.propose(ReleaseShards(theirs, ours))
        await asyncio.sleep(20)
        assert shares(one, two) == [GROUP_SHARDS, 0]
        await one.log_client.propose(ReleaseShards(theirs[:3], 0))
        await balanced(one.world, one, two)


async def test_the_last_agent_leaves_without_waiting_for_anybody() -> None:
    async with alone() as one:
        await one.node.groups.depart(2.0)
        assert one.machine.groups.holder(0) is None


async def test_leaving_ends_in_time_though_the_log_does_not_answer(world: World) -> None:
    async with world.agents("one", "two") as (one, _two):
        one.lag()
        async with asyncio.timeout(2.5):
            await one.node.groups.depart(2.0)


@pytest.mark.promise("P5")
async def test_a_shard_that_is_being_given_away_is_served_no_more_though_the_replica_lags(
    world: World,
) -> None:
    """Its next holder may have read in the log that it is, and go on with its groups."""
    async with world.agents("one", "two", session_deadline_ms="20000", lease_ttl_ms="40000") as (
        one,
        two,
    ):
        await until_held(one)
        agents = [LiveAgent(row.incarnation, row.node_id) for row in one.machine.incarnations]
        theirs = two.log_client.incarnation()
        group_id = next(
            f"h{n}" for n in range(99) if preferred(shard_of(f"h{n}"), agents) == theirs
        )
        member = Member(one, group_id)
        assert await member.join(session_ms=60_000) == 0
        await asyncio.sleep(MISPLACED_MS_MIN / 1000 - 1)
        one.lag()
        assert await until_served(group_id, two) is two
        for _ in range(20):
            assert await member.heartbeat() == NOT_COORDINATOR
            await asyncio.sleep(0.1)


async def test_a_release_that_was_not_done_leaves_the_shard_where_it_is(world: World) -> None:
    async with world.agents("one", "two") as (one, two):
        await until_held(one)
        refused = refuse(one, ReleaseShards)
        member = Member(one, "g")
        assert await member.join(session_ms=60_000) == 0
        while len(refused) < 3:
            await asyncio.sleep(0.05)
        assert await until_served("g", one, two, seconds=2) is one
        assert await member.heartbeat() == 0


async def test_a_shard_in_a_rebalance_stays_until_that_is_over(world: World) -> None:
    async with world.agents("one", "two") as (one, two):
        # All are one's, and some of the groups are in a rebalance.
        ids = [f"g{number}" for number in range(16)]
        for group_id in ids:
            Member(one, group_id, "parked").send_join("park")
        await asyncio.sleep((MISPLACED_MS_MIN + 5_000) / 1000)
        assert {holder_of(each, one, two) for each in ids} == {one}
        assert shares(one, two)[1] > 0
        await asyncio.sleep((BUSY_MS_MAX - MISPLACED_MS_MIN) / 1000)
        assert {holder_of(each, one, two) for each in ids} == {one, two}


async def test_a_claim_that_was_not_done_is_made_again() -> None:
    async with alone() as one:
        refused = refuse(one, ClaimShards, times=3)
        await one.log_client.propose(ReleaseShards(tuple(range(64)), 0))
        await until_served("g", one, seconds=10)
        assert len(refused) == 3


async def test_what_became_free_during_a_claim_is_claimed_right_after_it() -> None:
    async with alone() as one:
        claims = one.node.groups.claims
        under_way = one.world.loop.create_future()
        under_way.add_done_callback(claims._settled)
        claims._under_way[under_way] = frozenset()
        await one.log_client.propose(ReleaseShards(tuple(range(64)), 0))
        await asyncio.sleep(2)
        assert one.machine.groups.holder(0) is None
        under_way.set_result(None)
        await until_served("g", one, seconds=0.2)


async def test_an_agent_that_is_closed_under_its_feet_takes_its_groups_up_as_another() -> None:
    async with two_agents() as (one, two):
        member = Member(one, group_of(one))
        assert await member.join() == 0
        old = one.log_client.incarnation()
        row = two.machine.incarnations.get(old)
        one.lag()  # It does not see that it is dead, and its session still looks proven.
        await two.log_client.propose(Close(old, row.last_n))
        assert await until_served(member.group_id, two) is two
        assert await member.at(two).heartbeat() == 0
        one.catch_up()
        while one.log_client.incarnation() in (None, old):
            await asyncio.sleep(0.05)
        await balanced(one.world, one, two)


@pytest.mark.promise("P5")
@pytest.mark.parametrize("seed", range(2))
async def test_two_agents_never_serve_one_group_while_sessions_come_and_go(
    seed: int, world: World
) -> None:
    async with world.agents("one", "two", "three") as agents:
        ids = [f"g{number}" for number in range(40)]
        for turn in range(12):
            victim = agents[turn % 3]
            victim.log.down = True
            for _ in range(60):
                await asyncio.sleep(0.1)
                for group_id in ids:
                    holder_of(group_id, *agents)
            victim.log.down = False
        for group_id in ids:
            await until_served(group_id, *agents)
        assert {shard_of(each) for each in ids} <= set(range(GROUP_SHARDS))
