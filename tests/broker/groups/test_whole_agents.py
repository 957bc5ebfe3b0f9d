"""Whole agents and the real groups; through sockets and in real time where no version is in question."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from broker.groups.shards import LiveAgent, preferred
from coordinator.tables.groups import shard_of
from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import FindCoordinatorRequest, JoinGroupRequest
from protocol.types import Incarnation
from tests.broker.groups import requests
from tests.broker.groups.members import classic_group, codes, commit
from tests.broker.groups.world import agents
from tests.kit.sockets import Place, Running, SocketClient, agent_of

FIRST, SECOND = LiveAgent(Incarnation(1), 0), LiveAgent(Incarnation(2), 1)
"""Node ids as the log gives them to two agents, one after the other."""
STAYS = next(
    name
    for name in (f"g{number}" for number in range(100))
    if preferred(shard_of(name), (FIRST, SECOND)) == FIRST.incarnation
)
"""A group that stays with the first agent when the second one comes."""


class Consumer:
    """A member of the classic protocol, as a client library would be one."""

    def __init__(self, client: SocketClient, group_id: str) -> None:
        self.client = client
        self.group_id = group_id
        self.member_id = ""
        self.generation = -1
        self.leader = ""
        self.others: list[str] = []

    async def join(self) -> int:
        request = requests.join(self.group_id, self.member_id, rebalance_ms=10_000)
        answer = await self.client.call(apis.JOIN_GROUP, 9, request)
        if answer.error_code in (0, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self.leader = answer.leader
            self.others = [member.member_id for member in answer.members]
        # After a stall of a busy machine agents ask for what they cannot be sure of once more.
        if answer.error_code in (
            ErrorCode.MEMBER_ID_REQUIRED,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ):
            return await self.join()
        return answer.error_code

    async def sync(self) -> bytes:
        """The assignment: the member's id, which the leader gave to each."""
        request = requests.sync(
            self.group_id,
            self.member_id,
            self.generation,
            protocol_type="consumer",
            protocol_name=requests.RANGE,
            assignments={each: each.encode() for each in self.others},
        )
        answer = await self.client.call(apis.SYNC_GROUP, 5, request)
        assert answer.error_code == 0
        return answer.assignment

    async def heartbeat(self) -> int:
        request = requests.heartbeat(self.group_id, self.member_id, self.generation)
        return (await self.client.call(apis.HEARTBEAT, 4, request)).error_code

    async def commit(self, topic: str, offset: int) -> int:
        offsets = {topic: {0: offset}}
        request = commit(self.group_id, offsets, member_id=self.member_id, epoch=self.generation)
        return codes(await self.client.call(apis.OFFSET_COMMIT, 8, request))[topic, 0]

    async def leave(self) -> int:
        request = requests.leave(self.group_id, self.member_id)
        answer = await self.client.call(apis.LEAVE_GROUP, 5, request)
        return answer.error_code or answer.members[0].error_code

    async def until_in(self, generation: int) -> None:
        """Heartbeat until told to join again; be a member of that generation then."""
        async with asyncio.timeout(10):
            while await self.heartbeat() == 0:
                await asyncio.sleep(0.02)
        assert await self.join() == 0
        assert self.generation == generation


async def coordinator_port(running: Running, group_id: str) -> int:
    """As a client finds it: again and again, while there is none."""
    client = await running.connect()
    request = FindCoordinatorRequest(coordinator_keys=[group_id])
    async with asyncio.timeout(20):
        while True:
            answer = await client.call(apis.FIND_COORDINATOR, 6, request)
            (found,) = answer.coordinators
            if found.error_code == 0:
                return found.port
            await asyncio.sleep(0.05)


@asynccontextmanager
async def serving(place: Place, *flags: str):
    """An agent that serves; its session outlasts a slow machine."""
    quick = ("lease.ttl.ms=3000", "session.deadline.ms=2000")
    async with agent_of(place, "group.initial.rebalance.delay.ms=50", *quick, *flags) as running:
        await running.until(ready=True)
        yield running


@asynccontextmanager
async def connected(running: Running, group_id: str, count: int):
    """Consumers at the group's coordinator, as this agent says."""
    port = await coordinator_port(running, group_id)
    clients = [await SocketClient.connect(port) for _ in range(count)]
    try:
        yield [Consumer(client, group_id) for client in clients]
    finally:
        for client in clients:
            await client.close()


async def metric(running: Running, name: str) -> float:
    _, page = await running.http("GET", "/metrics")
    return next(float(line.split()[-1]) for line in page.splitlines() if line.startswith(name))


async def both_joined(*consumers: Consumer) -> None:
    assert await asyncio.gather(*(each.join() for each in consumers)) == [0] * len(consumers)
    ids = {each.member_id for each in consumers}
    assert len({(each.generation, each.leader) for each in consumers}) == 1
    (leader,) = [each for each in consumers if each.others]
    assert (leader.member_id, set(leader.others)) == (leader.leader, ids)
    given = await asyncio.gather(*(each.sync() for each in consumers))
    assert given == [each.member_id.encode() for each in consumers]


@pytest.mark.real_loop
async def test_two_members_share_a_group_rebalance_when_one_leaves_and_are_seen_in_the_metrics() -> (
    None
):
    async with serving(Place()) as one, connected(one, "g", 2) as (first, second):
        await both_joined(first, second)
        assert [await first.heartbeat(), await second.heartbeat()] == [0, 0]
        assert await metric(one, "frazil_group_members ") == 2
        assert await metric(one, 'frazil_groups{protocol="classic",state="Stable"}') == 1
        assert await metric(one, "frazil_group_rebalances_total") == 1
        assert await second.leave() == 0
        await first.until_in(2)
        assert first.others == [first.member_id]
        assert await first.sync() == first.member_id.encode()
        assert await metric(one, "frazil_group_rebalances_total") == 2
        assert await second.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.real_loop
async def test_a_member_of_the_consumer_protocol_joins_is_assigned_and_leaves() -> None:
    async with serving(Place()) as one:
        await coordinator_port(one, "g")
        client = await one.connect()
        assert await client.create("t") == 0

        async def ask(epoch, **fields):
            request = requests.consumer_heartbeat("g", "m", epoch, **fields)
            return await client.call(apis.CONSUMER_GROUP_HEARTBEAT, 1, request)

        answer = await ask(0, rebalance_timeout_ms=5_000, subscribed_topic_names=["t"], owned={})
        assert (answer.error_code, answer.error_message) == (0, None)
        (given,) = answer.assignment.topic_partitions
        assert given.partitions == [0]
        again = await ask(answer.member_epoch)
        assert (again.error_code, again.assignment) == (0, None)
        assert await metric(one, 'frazil_groups{protocol="consumer",state="Stable"}') == 1
        assert (await ask(-1)).member_epoch == -1
        assert (await ask(3)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.real_loop
async def test_when_the_coordinator_dies_its_members_go_on_elsewhere_in_the_same_generation() -> (
    None
):
    place = Place()
    async with serving(place) as one:
        await coordinator_port(one, STAYS)
        client = await one.connect()
        assert await client.create("t") == 0
        async with (
            serving(place, "node.name=two") as two,
            connected(one, STAYS, 2) as (first, second),
        ):
            assert await coordinator_port(two, STAYS) == one.port
            await both_joined(first, second)
            before = [(each.member_id, each.generation) for each in (first, second)]
            one.log.down = True
            async with asyncio.timeout(10):
                while await coordinator_port(two, STAYS) != two.port:
                    await asyncio.sleep(0.05)
            assert await first.heartbeat() == ErrorCode.NOT_COORDINATOR
            for each in (first, second):
                each.client = await two.connect()
                assert await each.heartbeat() == 0
            assert await first.commit("t", 7) == 0
            assert await second.sync() == second.member_id.encode()
            assert [(each.member_id, each.generation) for each in (first, second)] == before
            assert await metric(two, "frazil_group_takeovers_total") == 1
            assert await metric(two, "frazil_group_rebalances_total") == 0


@pytest.mark.real_loop
async def test_a_leaving_agent_sends_its_members_to_the_next_one_at_once() -> None:
    place = Place()
    async with serving(place) as one:
        await coordinator_port(one, STAYS)
        async with (
            serving(place, "node.name=two") as two,
            connected(one, STAYS, 2) as (first, second),
        ):
            await both_joined(first)
            joining = asyncio.create_task(second.join())
            while await metric(one, "frazil_group_requests_parked") == 0:
                await asyncio.sleep(0.02)
            leaving = asyncio.create_task(one.agent.stop())
            assert await joining == ErrorCode.NOT_COORDINATOR
            async with asyncio.timeout(1):
                assert await coordinator_port(two, STAYS) == two.port
            await leaving
            first.client = await two.connect()
            # The join that was parked was soft state: nobody rebalances for it.
            assert await first.heartbeat() == 0
            holder = two.agent.node.log_client.machine.groups.holder(shard_of(STAYS))
            assert holder == two.agent.node.log_client.incarnation()


@pytest.mark.parametrize("version", range(10))
async def test_a_refused_join_can_be_read_in_every_version(version: int) -> None:
    async with agents() as (one,):
        nameless = JoinGroupRequest(group_id="")
        answer = await one.call(apis.JOIN_GROUP, nameless, version=version)
        assert answer.error_code == ErrorCode.INVALID_GROUP_ID
        request = JoinGroupRequest(group_id="g", member_id="who?", session_timeout_ms=10_000)
        answer = await one.call(apis.JOIN_GROUP, request, version=version)
        assert answer.error_code != 0
        assert answer.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize("version", range(6))
async def test_members_that_leave_a_group_that_is_not_there_are_unknown_one_by_one(
    version: int,
) -> None:
    """As Kafka: from v3 on there is an error for each member, and none of the request."""
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    async with agents() as (one,):
        request = requests.leave("g", "somebody", *([("", "static")] if version >= 3 else []))
        answer = await one.call(apis.LEAVE_GROUP, request, version=version)
        told = [(row.member_id, row.group_instance_id, row.error_code) for row in answer.members]
        if version < 3:
            assert (answer.error_code, told) == (unknown, [])
        else:
            assert answer.error_code == 0
            assert told == [("somebody", None, unknown), ("", "static", unknown)]
        nameless = await one.call(apis.LEAVE_GROUP, requests.leave("", "m"), version=version)
        assert (nameless.error_code, nameless.members) == (ErrorCode.INVALID_GROUP_ID, [])


@pytest.mark.parametrize("version", range(2))
async def test_a_heartbeat_of_kip_848_without_a_group_id_is_an_invalid_request(
    version: int,
) -> None:
    async with agents() as (one,):
        request = requests.consumer_heartbeat("", "m", 1)
        answer = await one.call(apis.CONSUMER_GROUP_HEARTBEAT, request, version=version)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert answer.error_message == "GroupId can't be empty."


@pytest.mark.parametrize("version", range(6))
async def test_from_version_5_on_who_asks_for_an_assignment_names_the_protocol(
    version: int,
) -> None:
    """KIP-559. As Kafka, whatever else is wrong with the request."""
    async with agents() as (one,):
        (member,) = await classic_group(one, "g", {"logs": [0]})
        told = []
        for names in ({}, {"protocol_type": "consumer"}, {"protocol_name": requests.RANGE}):
            request = requests.sync("g", member.member_id, member.epoch, **names)
            told.append((await one.call(apis.SYNC_GROUP, request, version=version)).error_code)
        assert told == [ErrorCode.INCONSISTENT_GROUP_PROTOCOL if version >= 5 else 0] * 3
        whole = requests.sync(
            "g",
            member.member_id,
            member.epoch,
            protocol_type="consumer",
            protocol_name=requests.RANGE,
        )
        answer = await one.call(apis.SYNC_GROUP, whole, version=version)
        assert (answer.error_code, bool(answer.assignment)) == (0, True)
