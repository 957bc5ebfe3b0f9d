"""OffsetDelete: what a group subscribes to stays; the rest is forgotten."""

import asyncio

import pytest

from coordinator.commands.group_commands import DeleteOffsets
from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.broker.groups.members import (
    classic_group,
    codes,
    consumer_group,
    fetched,
    join_request,
    put,
)
from tests.broker.groups.world import (
    agents,
    answer_of_the_lagging,
    commands_of,
    group_of,
    until_held,
)
from tests.broker.transactions.world import producing


def delete(group_id: str, topics: dict) -> OffsetDeleteRequest:
    """Of {topic: [partitions]}."""
    return OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=name,
                partitions=[OffsetDeleteRequestPartition(partition_index=each) for each in wanted],
            )
            for name, wanted in topics.items()
        ],
    )


async def deleted(agent, group_id: str, topics: dict):
    """The error code of it all, or the codes by (topic, partition)."""
    answer = await agent.call(apis.OFFSET_DELETE, delete(group_id, topics), version=0)
    return answer.error_code or codes(answer)


async def test_offsets_of_an_empty_group_are_forgotten_and_the_others_stay():
    async with agents() as (one,):
        await put(one, "g", {"logs": {0: 1, 1: 2, 2: 3}})
        assert await deleted(one, "g", {"logs": [0, 2, 3]}) == {
            ("logs", 0): 0,
            ("logs", 2): 0,
            ("logs", 3): 0,
        }
        assert await fetched(one, "g", None) == {("logs", 1): 2}


async def test_a_group_that_is_not_there_is_not_found():
    async with agents() as (one,):
        assert await deleted(one, "g", {"logs": [0]}) == ErrorCode.GROUP_ID_NOT_FOUND
        assert await deleted(one, "", {"logs": [0]}) == ErrorCode.INVALID_GROUP_ID


async def test_another_agents_group_is_not_touched_here():
    async with agents("one", "two") as (one, two):
        group_id = group_of(two)
        assert await deleted(one, group_id, {"logs": [0]}) == ErrorCode.NOT_COORDINATOR


async def test_partitions_that_are_not_there_are_unknown():
    async with agents() as (one,):
        await put(one, "g", {"logs": {0: 1}})
        assert await deleted(one, "g", {"gone": [0], "logs": [0, 4, -1]}) == {
            ("gone", 0): 3,
            ("logs", 0): 0,
            ("logs", 4): 3,
            ("logs", -1): 3,
        }


async def test_a_topic_is_unknown_only_behind_a_barrier():
    """P8."""
    async with agents("one", "two") as (one, two):
        group_id = group_of(two)
        await put(two, group_id, {"logs": {0: 1}})
        two.lag()
        await one.create_topic("new")
        asking = deleted(two, group_id, {"new": [0]})
        assert await answer_of_the_lagging(two, asking) == {("new", 0): 0}


async def classic(one, **more):
    (member,) = await classic_group(one, "g", {"logs": [0]}, **more)
    return member


async def consumer(one):
    (member,) = await consumer_group(one, "g")
    return member


@pytest.mark.parametrize("make", [classic, consumer])
async def test_what_a_group_of_consumers_subscribes_to_stays(make):
    async with agents() as (one,):
        await one.create_topic("more")
        member = await make(one)
        await member.commit({"logs": {0: 1}, "more": {0: 2}})
        assert await deleted(one, "g", {"logs": [0, 3], "more": [0]}) == {
            ("logs", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            ("logs", 3): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            ("more", 0): 0,
        }
        assert await fetched(one, "g", None) == {("logs", 0): 1}


async def test_a_group_with_members_that_are_no_consumers_keeps_its_offsets():
    async with agents() as (one,):
        member = await classic(one, protocol_type="connect")
        await member.commit({"logs": {0: 1}})
        assert await deleted(one, "g", {"logs": [0]}) == ErrorCode.NON_EMPTY_GROUP
        await member.leave()
        assert await deleted(one, "g", {"logs": [0]}) == {("logs", 0): 0}


async def test_a_member_that_is_about_to_join_for_the_first_time_holds_offsets_back():
    """Its subscription is not known before the group is stable."""
    async with agents() as (one,):
        await put(one, "g", {"logs": {0: 1}})
        joining = one.connect()
        joining.send(apis.JOIN_GROUP, 3, join_request("g", protocol_type="connect"))
        await asyncio.sleep(0.1)
        assert await deleted(one, "g", {"logs": [0]}) == ErrorCode.NON_EMPTY_GROUP


async def test_who_was_told_an_id_and_has_not_joined_holds_no_offsets_back():
    """KIP-394: a pending member is no member."""
    async with agents() as (one,):
        await put(one, "g", {"logs": {0: 1}})
        request = join_request("g", protocol_type="connect")
        asked = await one.call(apis.JOIN_GROUP, request, version=4)
        assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert await deleted(one, "g", {"logs": [0]}) == {("logs", 0): 0}


async def test_what_is_not_there_is_no_error_and_writes_nothing():
    async with agents() as (one,):
        await put(one, "g", {"logs": {0: 1}})
        position = one.machine.position
        assert await deleted(one, "g", {"logs": [1, 2]}) == {("logs", 1): 0, ("logs", 2): 0}
        assert await deleted(one, "g", {}) == {}
        assert one.machine.position == position


@pytest.mark.parametrize("committed", [{}, {0: 1}])
async def test_an_offset_that_waits_for_the_end_of_a_transaction_is_forgotten_with_its_place(
    committed,
):
    """Its transaction is committed, and does not bring it back."""
    async with producing() as (producer, one):
        await put(one, "g", {"logs": {3: 4, **committed}})
        assert await producer.add_offsets("g") == 0
        wanted = {("logs", 0): 10, ("logs", 1): 11}
        assert set((await producer.commit_offsets(one, "g", wanted)).values()) == {0}
        assert await deleted(one, "g", {"logs": [0]}) == {("logs", 0): 0}
        assert await producer.end() == 0
        assert await fetched(one, "g", None) == {("logs", 1): 11, ("logs", 3): 4}


async def test_more_than_a_command_may_name_goes_as_several(world):
    async with world.agents("one") as (one,):
        await one.create_topic("wide", 2100)
        await until_held(one)
        await put(one, "g", {"wide": dict.fromkeys(range(2100), 1)})
        seen = commands_of(one, DeleteOffsets)
        answer = await deleted(one, "g", {"wide": list(range(2100))})
        assert set(answer.values()) == {0}
        assert sorted(len(command.partitions) for command in seen) == [100, 1000, 1000]
        assert await fetched(one, "g", None) == {}


async def test_a_deletion_whose_fate_is_open_is_said_to_have_timed_out():
    """P4."""
    async with agents(offsets_commit_timeout_ms="500") as (one,):
        await put(one, "g", {"logs": {0: 1}})
        one.lag()
        assert await deleted(one, "g", {"logs": [0]}) == ErrorCode.REQUEST_TIMED_OUT
        one.catch_up()
