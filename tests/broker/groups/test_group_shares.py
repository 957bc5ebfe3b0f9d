"""Shares of groups: one address gets nearly all of what is bounded, and another still gets one."""

import asyncio

import pytest

from broker.groups import coordinator, group_shares
from protocol import apis
from protocol.errors import ErrorCode
from tests.broker.groups import requests
from tests.broker.groups.members import codes, commit, fetch, join_request
from tests.broker.groups.world import agents
from tests.kit.agents import Agent
from tests.kit.client import Client
from tests.kit.faults import held

GREEDY, OTHER = "10.0.0.1", "10.0.0.2"
FULL, WAIT = ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
REFUSED = ErrorCode.POLICY_VIOLATION


async def _join(agent: Agent, address: str, group_id: str, *, member_id: str = "") -> int:
    client = agent.connect(address=address)
    request = join_request(group_id, member_id=member_id)
    return (await client.call(apis.JOIN_GROUP, 9, request)).error_code


async def _commit(agent: Agent, address: str, group_id: str, offsets: dict) -> int:
    client = agent.connect(address=address)
    answer = await client.call(apis.OFFSET_COMMIT, 9, commit(group_id, {"logs": offsets}))
    (code,) = set(codes(answer).values())
    return code


async def _join_consumer(client: Client, group_id: str, member_id: str) -> int:
    request = requests.consumer_heartbeat(
        group_id, member_id, 0, owned={}, rebalance_timeout_ms=60_000, subscribed_topic_names=["t"]
    )
    return (await client.call(apis.CONSUMER_GROUP_HEARTBEAT, 1, request)).error_code


@pytest.mark.promise("P15")
async def test_member_ids_given_out_and_never_used_are_shared(monkeypatch):
    monkeypatch.setattr(group_shares, "JOINING_BYTES_MAX", 20_000)
    async with agents() as (one,):
        told = [await _join(one, GREEDY, f"g{at % 3}") for at in range(20)]
        assert set(told) == {ErrorCode.MEMBER_ID_REQUIRED, WAIT}
        many = told.count(ErrorCode.MEMBER_ID_REQUIRED)
        assert told == [ErrorCode.MEMBER_ID_REQUIRED] * many + [WAIT] * (20 - many)
        assert many > 10
        assert await _join(one, OTHER, "other") == ErrorCode.MEMBER_ID_REQUIRED


async def test_member_ids_that_have_expired_count_no_more(monkeypatch):
    monkeypatch.setattr(group_shares, "JOINING_BYTES_MAX", 20_000)
    async with agents() as (one,):
        for _ in range(20):
            await _join(one, GREEDY, "g")
        assert await _join(one, GREEDY, "g") == WAIT
        await asyncio.sleep(60)
        assert await _join(one, GREEDY, "g") == ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.promise("P15")
async def test_joins_count_while_they_wait_though_their_connections_are_gone(monkeypatch):
    monkeypatch.setattr(group_shares, "JOINING_BYTES_MAX", 20_000)
    async with agents() as (one,):
        for _ in range(20):
            client = one.connect(address=GREEDY)
            client.send(apis.JOIN_GROUP, 3, join_request("g"))
            await asyncio.sleep(0.01)
            client.hang_up()
        assert await _join(one, GREEDY, "g") == WAIT
        assert await _join(one, OTHER, "g") == ErrorCode.MEMBER_ID_REQUIRED


async def test_groups_that_nothing_is_written_of_are_shared(monkeypatch):
    monkeypatch.setattr(coordinator, "SOFT_GROUPS_MAX", 20)
    async with agents() as (one,):
        told = [await _join(one, GREEDY, f"g{at}") for at in range(20)]
        assert told == [ErrorCode.MEMBER_ID_REQUIRED] * 18 + [WAIT] * 2
        assert await _join(one, OTHER, "other") == ErrorCode.MEMBER_ID_REQUIRED


async def test_groups_made_by_commits_are_shared(monkeypatch):
    monkeypatch.setattr(group_shares, "GROUPS_MAX", 20)
    async with agents() as (one,):
        told = [await _commit(one, GREEDY, f"g{at}", {0: 1}) for at in range(20)]
        assert told == [0] * 18 + [REFUSED] * 2
        assert await _join(one, GREEDY, "joined") == FULL
        assert await _commit(one, GREEDY, "g0", {0: 2}) == 0
        assert await _commit(one, OTHER, "other", {0: 1}) == 0


async def test_groups_made_by_members_are_shared(monkeypatch):
    monkeypatch.setattr(group_shares, "GROUPS_MAX", 20)
    async with agents() as (one,):
        client = one.connect(address=GREEDY)
        told = [await _join_consumer(client, f"g{at}", f"m{at}") for at in range(20)]
        assert told == [0] * 18 + [FULL] * 2
        assert await _join_consumer(one.connect(address=OTHER), "other", "m") == 0


async def test_committed_offsets_are_shared_and_known_ones_go_on(monkeypatch):
    monkeypatch.setattr(group_shares, "OFFSET_ROWS_MAX", 20)
    async with agents() as (one,):
        three = {0: 1, 1: 1, 2: 1}
        for at in range(6):
            assert await _commit(one, GREEDY, f"g{at}", three) == 0
        assert await _commit(one, GREEDY, "g6", {0: 1}) == REFUSED
        assert await _commit(one, GREEDY, "g5", three) == 0
        assert await _commit(one, OTHER, "other", {0: 1}) == 0


@pytest.mark.promise("P15")
async def test_offsets_that_are_being_committed_count_though_none_is_there_yet(monkeypatch):
    monkeypatch.setattr(group_shares, "OFFSET_ROWS_MAX", 20)
    async with agents() as (one,):
        answered = asyncio.Event()
        one.log.before["append"] = held(answered)
        clients = [one.connect(address=GREEDY) for _ in range(8)]
        for at, client in enumerate(clients):
            offsets = {"logs": {0: 1, 1: 1, 2: 1}}
            client.send(apis.OFFSET_COMMIT, 9, commit(f"g{at}", offsets))
        await asyncio.sleep(0.1)
        answered.set()
        told = [set(codes(await client.answer()).values()) for client in clients]
        assert [told.count({code}) for code in (0, REFUSED)] == [6, 2]
        assert await _commit(one, OTHER, "other", {0: 1}) == 0


async def test_bytes_of_groups_are_shared(monkeypatch):
    monkeypatch.setattr(group_shares, "GROUPS_SIZE_MAX", 2_000)
    async with agents() as (one,):
        assert await _commit(one, GREEDY, "g", {0: (1, -1, "x" * 1_800)}) == 0
        assert await _commit(one, GREEDY, "g", {1: (1, -1, "x" * 100)}) == REFUSED
        assert await _commit(one, GREEDY, "g", {0: (2, -1, "y" * 1_800)}) == 0
        assert await _commit(one, OTHER, "other", {0: (1, -1, "x" * 50)}) == 0


@pytest.mark.parametrize("api", ["heartbeat", "fetch"])
async def test_asking_about_groups_that_are_not_there_makes_none(api):
    async with agents() as (one,):
        for at in range(50):
            if api == "heartbeat":
                request = requests.heartbeat(f"g{at}", "m", 1)
                await one.call(apis.HEARTBEAT, request)
            else:
                await one.call(apis.OFFSET_FETCH, fetch(f"g{at}", {"logs": [0]}), version=7)
        assert not [*one.node.groups.runtime]
        assert len(one.machine.groups) == 0
