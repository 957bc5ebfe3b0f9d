"""Old offsets expire, deleted topics' go at once, groups that are nothing any more are deleted."""

import asyncio

import pytest

from broker.upkeep import offset_expiration
from coordinator.commands.group_commands import (
    GROUP_NEW,
    GROUP_SHARDS,
    ChangeGroup,
    CommittedOffset,
    DeleteGroup,
    ExpireOffsets,
    GroupKind,
    OffsetsCommitted,
)
from coordinator.commands.transaction_commands import (
    CommitTransactionOffsets,
    EndTransaction,
    InitProducer,
)
from protocol import apis
from protocol.messages import DeleteTopicsRequest, DeleteTopicState
from tests.broker.groups.members import (
    Consumer,
    classic_group,
    consumer_group,
    fetched,
    join_request,
    put,
)
from tests.broker.groups.world import agents, commands_of, group_of, until_held
from txn.transactions import OF_EPOCH

MINUTE = {"offsets_retention_minutes": "1"}
PAST_S = 200.0
"""Over the retention, however seldom an idle agent writes its clock."""


async def test_old_offsets_expire_and_their_group_with_them():
    async with agents(**MINUTE) as (one,):
        await put(one, "g", {"logs": {0: 1}})
        await offset_expiration.sweep(one.node)
        assert await fetched(one, "g", None) == {("logs", 0): 1}
        await asyncio.sleep(PAST_S)
        await offset_expiration.sweep(one.node)
        assert await fetched(one, "g", None) == {}
        assert one.machine.groups.get("g") is None


async def test_young_offsets_keep_themselves_and_their_group():
    async with agents(**MINUTE) as (one,):
        await put(one, "g", {"logs": {0: 1, 1: 2}})
        await asyncio.sleep(PAST_S)
        await put(one, "g", {"logs": {1: 3}})
        await offset_expiration.sweep(one.node)
        assert await fetched(one, "g", None) == {("logs", 1): 3}


async def test_offsets_of_a_group_age_from_when_its_last_member_left():
    async with agents(**MINUTE) as (one,):
        (member,) = await classic_group(one, "g", {"logs": [0]})
        await member.commit({"logs": {0: 1}})
        for _ in range(10):
            await asyncio.sleep(20)
            await member.heartbeat()
        await member.leave()
        await offset_expiration.sweep(one.node)
        assert await fetched(one, "g", None) == {("logs", 0): 1}
        await asyncio.sleep(PAST_S)
        await offset_expiration.sweep(one.node)
        assert await fetched(one, "g", None) == {}


@pytest.mark.parametrize("kind", ["classic", "consumer"])
async def test_while_a_group_has_members_what_they_subscribe_to_stays_and_the_rest_expires(kind):
    async with agents(**MINUTE) as (one,):
        await one.create_topic("more")
        if kind == "classic":
            (member,) = await classic_group(one, "g", {"logs": [0]})
            beat = member.heartbeat
        else:
            (member,) = await consumer_group(one, "g")
            beat = member.beat
        await member.commit({"logs": {0: 1}, "more": {0: 2}})
        for _ in range(10):
            await asyncio.sleep(20)
            assert await beat() == 0
        await offset_expiration.sweep(one.node)
        assert await fetched(one, "g", None) == {("logs", 0): 1}
        assert one.machine.groups.get("g").members


async def test_while_a_group_rebalances_nothing_expires():
    async with agents(**MINUTE) as (one,):
        await put(one, "g", {"logs": {0: 1}})
        await asyncio.sleep(PAST_S)
        one.connect().send(apis.JOIN_GROUP, 3, join_request("g"))
        await asyncio.sleep(0.1)
        await offset_expiration.sweep(one.node)
        assert await fetched(one, "g", None) == {("logs", 0): 1}


async def test_rows_of_a_deleted_topic_are_dropped_also_from_a_group_at_work():
    async with agents() as (one,):
        (member,) = await classic_group(one, "g", {"logs": [0]})
        await member.commit({"logs": {0: 1, 1: 2}})
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="logs")], timeout_ms=1000)
        await one.call(apis.DELETE_TOPICS, request)
        assert len(one.machine.groups.get("g").offsets) == 2
        await offset_expiration.sweep(one.node)
        assert len(one.machine.groups.get("g").offsets) == 0


async def test_a_group_without_offsets_is_deleted_not_before_it_has_been_empty_for_a_while():
    async with agents() as (one,):
        (member,) = await classic_group(one, "g", {"logs": [0]})
        await offset_expiration.sweep(one.node)
        await member.leave()
        await offset_expiration.sweep(one.node)
        assert one.machine.groups.get("g") is not None
        await asyncio.sleep(PAST_S)
        await offset_expiration.sweep(one.node)
        assert one.machine.groups.get("g") is None


async def test_what_waits_for_the_end_of_a_transaction_keeps_its_place_and_its_group():
    async with agents(**MINUTE) as (one,):
        await put(one, "g", {"logs": {0: 1, 1: 1}})
        topic = one.machine.topics.by_name("logs")
        log_client = one.log_client
        begun = await log_client.propose(InitProducer("orders", 900_000, -1, -1))
        producer = (begun.producer_id, begun.producer_epoch)
        for group_id, partition in (("g", 0), ("fresh", 1)):
            offsets = (CommittedOffset(topic.topic_id, partition, 7, -1, ""),)
            command = CommitTransactionOffsets(group_id, "", -1, *producer, OF_EPOCH, offsets)
            assert isinstance(await log_client.propose(command), OffsetsCommitted)
        await asyncio.sleep(PAST_S)
        seen = commands_of(one, ExpireOffsets, DeleteGroup)
        await offset_expiration.sweep(one.node)
        assert seen == [ExpireOffsets("g", 60_000, ((topic.topic_id, 1),))]
        await log_client.propose(EndTransaction("orders", *producer, False, None))
        await offset_expiration.sweep(one.node)
        assert [one.machine.groups.get(group_id) for group_id in ("g", "fresh")] == [None, None]


async def test_a_group_that_somebody_is_about_to_join_is_not_deleted():
    async with agents() as (one,):
        (member,) = await classic_group(one, "g", {"logs": [0]})
        await member.leave()
        await asyncio.sleep(PAST_S)
        asked = await one.call(apis.JOIN_GROUP, join_request("g"), version=4)
        await offset_expiration.sweep(one.node)
        assert one.machine.groups.get("g") is not None
        joined = await one.call(
            apis.JOIN_GROUP, join_request("g", member_id=asked.member_id), version=4
        )
        assert joined.error_code == 0


async def test_an_agent_sweeps_the_groups_that_it_coordinates_and_no_others():
    async with agents("one", "two", **MINUTE) as (one, two):
        mine, other = group_of(one), group_of(two)
        await put(one, mine, {"logs": {0: 1}})
        await put(two, other, {"logs": {0: 1}})
        await asyncio.sleep(PAST_S)
        seen = commands_of(one, ExpireOffsets, DeleteGroup)
        await offset_expiration.sweep(one.node)
        await one.log_client.barrier()
        assert {command.group_id for command in seen} == {mine}


@pytest.mark.promise("P6")
async def test_the_machines_time_decides_and_not_the_clock_of_one_agent(world):
    """P6: an agent whose clock is far ahead expires nothing."""
    async with world.agents("one", "two", **MINUTE) as (one, two):
        await one.create_topic("logs", 4)
        await until_held(one)
        await put(one, "g", {"logs": {0: 1}})
        (member,) = await classic_group(one, "without-offsets", {})
        await member.leave()
        one.node.now_ms = lambda: world.now_ms() + 10**12
        one.log_client._proposer._now_ms = one.node.now_ms
        await one.create_topic("written-by-a-wild-clock")
        seen = commands_of(one, ExpireOffsets, DeleteGroup)
        await offset_expiration.sweep(one.node)
        assert seen == []
        # Also when a sweep believed it: apply looks at its own time.
        topic_id = one.machine.topics.by_name("logs").topic_id
        command = ExpireOffsets("g", 60_000, ((topic_id, 0),))
        await one.node.groups.propose(command)
        assert len(one.machine.groups.get("g").offsets) == 1
        assert two.log_client.incarnation() is not None


async def test_expirations_are_proposed_in_slices(world):
    async with world.agents("one", **MINUTE) as (one,):
        await one.create_topic("wide", 2500)
        await one.create_topic("narrow", 3)
        await until_held(one)
        await put(one, "g", {"wide": dict.fromkeys(range(2500), 1), "narrow": {0: 1}})
        await asyncio.sleep(PAST_S)
        seen = commands_of(one, ExpireOffsets, DeleteGroup)
        await offset_expiration.sweep(one.node)
        sizes = [len(each.partitions) for each in seen if isinstance(each, ExpireOffsets)]
        assert sizes == [1000, 1000, 501]
        assert isinstance(seen[-1], DeleteGroup)
        assert seen[-1].only_without_offsets
        assert one.machine.groups.get("g") is None


@pytest.mark.parametrize("joins", ["consumer", "classic"])
async def test_when_somebody_joins_in_the_middle_of_a_sweep_what_is_left_stays(world, joins):
    """A member that has read its offsets would begin anew where they went after it had joined."""
    async with world.agents("one", **MINUTE) as (one,):
        await one.create_topic("wide", 2500)
        await until_held(one)
        await put(one, "g", {"wide": dict.fromkeys(range(2500), 1)})
        await asyncio.sleep(PAST_S)
        seen = commands_of(one, ExpireOffsets)
        sweeping = asyncio.get_running_loop().create_task(offset_expiration.sweep(one.node))
        while not seen:
            await asyncio.sleep(0)
        if joins == "consumer":
            member = Consumer(one, one.connect(), "g", "member", 0, topics=["wide"])
            assert await member.beat() == 0
        else:
            one.connect().send(apis.JOIN_GROUP, 3, join_request("g", ("wide",)))
            await asyncio.sleep(0.1)
        joined = len(one.machine.groups.get("g").offsets)
        await sweeping
        assert len(one.machine.groups.get("g").offsets) == joined == 1500
        assert len(seen) == 1


async def test_a_sweep_without_a_log_ends_and_the_next_one_goes_on():
    async with agents(**MINUTE, offsets_commit_timeout_ms="500") as (one,):
        for number in range(3):
            await put(one, f"g{number}", {"logs": {0: 1}})
        await asyncio.sleep(PAST_S)
        one.lag()
        seen = commands_of(one, ExpireOffsets, DeleteGroup)
        await offset_expiration.sweep(one.node)
        one.catch_up()
        await one.log_client.barrier()
        await offset_expiration.sweep(one.node)
        assert len(one.machine.groups) == 0
        assert {command.group_id for command in seen} == {"g0", "g1", "g2"}


async def test_a_group_that_cannot_be_read_keeps_no_other_from_being_swept():
    async with agents(**MINUTE) as (one,):
        newer = ChangeGroup("newer", GroupKind.CLASSIC, GROUP_NEW, 1, b"\xff", (), ())
        await one.log_client.propose(newer, one.log_client.incarnation())
        for number in range(100):
            await put(one, f"g{number}", {"logs": {0: 1}})
        await asyncio.sleep(PAST_S)
        await offset_expiration.sweep(one.node)
        shards = range(GROUP_SHARDS)
        left = [row.group_id for each in shards for row in one.machine.groups.of_shard(each)]
        assert left == ["newer"]


async def test_a_sweep_without_a_session_does_nothing():
    """P5."""
    async with agents(**MINUTE) as (one,):
        await put(one, "g", {"logs": {0: 1}})
        await asyncio.sleep(PAST_S)
        await one.lose_session()
        await offset_expiration.sweep(one.node)
        assert len(one.machine.groups.get("g").offsets) == 1


async def test_agents_sweep_by_themselves_as_often_as_they_are_told():
    async with agents(**MINUTE, offsets_retention_check_interval_ms="30000") as (one,):
        await put(one, "g", {"logs": {0: 1}})
        job = asyncio.get_running_loop().create_task(offset_expiration.run(one.node))
        await asyncio.sleep(50)
        assert one.machine.groups.get("g") is not None
        await asyncio.sleep(PAST_S)
        job.cancel()
        assert one.machine.groups.get("g") is None
