"""FindCoordinator: whom to ask about a group or a transactional id, at a reachable address."""

import asyncio

import pytest

from coordinator.tables.groups import shard_of
from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import FindCoordinatorRequest
from tests.broker.groups.world import Agent, World, until_held

GROUP, TRANSACTION, SHARE = 0, 1, 2


async def find(agent: Agent, *keys: str, version: int = 6, key_type: int = GROUP, listener=None):
    """(error, node id, host, port) of every key."""
    request = FindCoordinatorRequest(key_type=key_type, key=keys[0], coordinator_keys=[*keys])
    peer = agent.connect(listener or "PLAINTEXT")
    answer = await peer.call(apis.FIND_COORDINATOR, version, request)
    rows = answer.coordinators if version >= 4 else [answer]
    if version >= 4:
        assert [row.key for row in rows] == [*keys]
    return [(row.error_code, row.node_id, row.host, row.port) for row in rows]


@pytest.mark.parametrize("version", range(7))
async def test_an_agent_alone_coordinates_every_group_moments_after_it_serves(
    version, world: World
) -> None:
    async with world.agents("one") as (one,):
        begun_s = world.loop.time()
        await until_held(one)
        assert world.loop.time() - begun_s < 0.1
        found = await find(one, "g", "h", version=version)
        assert found == [(0, one.node_id, "one", 9092)] * (2 if version >= 4 else 1)


async def test_every_agent_names_the_same_coordinator_and_each_coordinates_some_groups(
    world: World,
) -> None:
    async with world.agents("one", "two") as (one, two):
        await asyncio.sleep(10)
        keys = [f"group-{number}" for number in range(30)]
        found = await find(one, *keys)
        assert found == await find(two, *keys)
        assert {row[1] for row in found} == {one.node_id, two.node_id}
        assert {row[0] for row in found} == {0}


async def test_the_address_is_the_one_on_the_callers_listener(world: World) -> None:
    async with world.agents("one") as (one,):
        await until_held(one)
        assert await find(one, "g", listener="OUTSIDE") == [(0, one.node_id, "one.example", 19092)]


@pytest.mark.parametrize("version", range(7))
async def test_while_a_shard_is_free_clients_are_told_to_ask_again(version, world: World) -> None:
    async with world.agents("one", "two") as (one, two):
        await asyncio.sleep(10)
        groups, session = one.machine.groups, two.log_client.incarnation()
        theirs = next(f"g{n}" for n in range(99) if groups.holder(shard_of(f"g{n}")) == session)
        ours = next(f"g{n}" for n in range(99) if groups.holder(shard_of(f"g{n}")) != session)
        one.node.groups.claims._claim = lambda me, shards: None  # As if the log were slow.
        await two.lose_session()
        while groups.holder(shard_of(theirs)) is not None:
            await asyncio.sleep(0.01)
        unknown = (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1)
        assert (await find(one, theirs, ours, version=version))[0] == unknown
        assert (await find(one, ours, theirs, version=6))[0][0] == 0


async def test_a_coordinator_without_the_callers_listener_is_not_available(world: World) -> None:
    async with world.agents("one") as (one,):
        await until_held(one)
        assert await find(one, "g", listener="ELSEWHERE") == [
            (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1)
        ]


@pytest.mark.parametrize("version", range(1, 7))
async def test_every_transactional_id_has_a_coordinator_from_the_first_moment(
    version, world: World
) -> None:
    async with world.agents("one") as (one,):
        found = await find(one, "id", "", version=version, key_type=TRANSACTION)
        assert found == [(0, one.node_id, "one", 9092)] * (2 if version >= 4 else 1)


async def test_agents_agree_about_the_coordinators_of_transactional_ids_and_share_them(
    world: World,
) -> None:
    async with world.agents("one", "two") as agents:
        keys = [f"id-{number}" for number in range(30)]
        one, two = [await find(agent, *keys, key_type=TRANSACTION) for agent in agents]
        assert one == two
        assert {row[1] for row in one} == {agent.node_id for agent in agents}
        for agent in agents:
            own = [key for key in keys if agent.node.transactions.coordinates(key)]
            assert own == [
                key for key, row in zip(keys, one, strict=True) if row[1] == agent.node_id
            ]


async def test_an_agent_that_goes_leaves_its_transactional_ids_to_the_others(world: World) -> None:
    async with world.agents("one", "two") as (one, two):
        keys = [f"id-{number}" for number in range(30)]
        before = await find(one, *keys, key_type=TRANSACTION)
        two.node.leaving = True
        assert {row[1] for row in await find(two, *keys, key_type=TRANSACTION)} == {one.node_id}
        assert await find(one, *keys, key_type=TRANSACTION) == before
        await two.lose_session()
        while len(one.machine.incarnations) > 1:
            await asyncio.sleep(0.01)
        assert {row[1] for row in await find(one, *keys, key_type=TRANSACTION)} == {one.node_id}


async def test_the_address_of_an_ids_coordinator_is_the_one_on_the_callers_listener(
    world: World,
) -> None:
    async with world.agents("one") as (one,):
        found = await find(one, "id", listener="OUTSIDE", key_type=TRANSACTION)
        assert found == [(0, one.node_id, "one.example", 19092)]
        nobody = await find(one, "id", listener="ELSEWHERE", key_type=TRANSACTION)
        assert nobody == [(ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1)]


@pytest.mark.parametrize(
    ("key_type", "version", "code"),
    [
        (SHARE, 6, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (SHARE, 5, ErrorCode.INVALID_REQUEST),
        (9, 1, ErrorCode.INVALID_REQUEST),
        (9, 6, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_coordinators_of_other_kinds_are_refused(
    key_type, version, code, world: World
) -> None:
    async with world.agents("one") as (one,):
        await until_held(one)
        found = await find(one, "g:t:0", version=version, key_type=key_type)
        assert found == [(code, -1, "", -1)]
