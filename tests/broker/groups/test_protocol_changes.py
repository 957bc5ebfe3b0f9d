"""Whole agents: a group changes its protocol while requests of its members are parked."""

import asyncio

from coordinator.commands.group_commands import GroupKind
from protocol import apis
from protocol.errors import ErrorCode
from tests.broker.groups.members import (
    SESSION_MS,
    Consumer,
    classic_group,
    consumer_group,
    join_request,
)
from tests.broker.groups.world import agents

GROUP = "g"


def kind(agent) -> GroupKind:
    """Of the live group and of the row alike."""
    live = agent.node.groups.runtime.live(GROUP)
    assert live.kind is agent.machine.groups.get(GROUP).kind
    return live.kind


async def test_who_is_parked_is_told_to_join_again_when_the_group_is_upgraded() -> None:
    async with agents() as (agent,):
        first, second = await classic_group(agent, GROUP, {"logs": [0, 1]}, {"logs": [2, 3]})
        request = join_request(GROUP, member_id=first.member_id)
        parked = asyncio.get_running_loop().create_task(
            first.peer.call(apis.JOIN_GROUP, 5, request)
        )
        await asyncio.sleep(0.1)
        assert not parked.done()
        consumer = Consumer(agent, agent.connect(), GROUP, "m", 0)
        assert await consumer.beat() == 0
        assert (await parked).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert kind(agent) is GroupKind.CONSUMER
        assert await second.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        assert await second.commit({"logs": {2: 7}}) == {("logs", 2): 0}
        told = await first.peer.call(apis.JOIN_GROUP, 5, request)
        assert (told.error_code, told.generation_id) == (0, consumer.epoch)
        assert told.member_id == first.member_id


async def test_the_group_goes_on_as_a_classic_one_when_its_last_member_of_kip_848_is_given_up() -> (
    None
):
    async with agents() as (agent,):
        (consumer,) = await consumer_group(agent, GROUP)
        peer = agent.connect()
        joined = await peer.call(apis.JOIN_GROUP, 5, join_request(GROUP, member_id="c"))
        assert joined.error_code == 0
        await consumer.beat()
        epoch = joined.generation_id
        for _ in range(3):
            await asyncio.sleep(SESSION_MS / 1000 / 2)
            again = await peer.call(apis.JOIN_GROUP, 5, join_request(GROUP, member_id="c"))
            if again.error_code or again.leader:
                break
        # Nobody hears of the consumer any more: in time the classic member leads.
        assert kind(agent) is GroupKind.CLASSIC
        assert again.error_code == 0
        assert again.leader == "c"
        assert again.generation_id > epoch
        assert [*agent.machine.groups.get(GROUP).members] == ["c"]


async def test_a_group_without_members_takes_either_protocol_after_a_takeover_too() -> None:
    async with agents() as (agent,):
        (consumer,) = await consumer_group(agent, GROUP)
        await consumer.go()
        (member,) = await classic_group(agent, GROUP, {"logs": [0, 1, 2, 3]})
        assert kind(agent) is GroupKind.CLASSIC
        await member.leave()
        await consumer_group(agent, GROUP)
        assert kind(agent) is GroupKind.CONSUMER
