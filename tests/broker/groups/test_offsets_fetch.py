"""OffsetFetch: what is told to whom, in every version; never what another agent contradicts."""

import pytest

from coordinator.commands.entries import Close
from coordinator.commands.group_commands import ReleaseShards
from coordinator.tables.groups import shard_of
from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import (
    DeleteTopicsRequest,
    DeleteTopicState,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from tests.broker.groups.members import classic_group, consumer_group, fetch, fetched, put
from tests.broker.groups.world import agents, answer_of_the_lagging, group_of, until_served

LOGS = {"logs": {0: (7, 3, "mine"), 2: 9}}


async def delete_topic(agent, name: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=10_000)
    answer = await agent.call(apis.DELETE_TOPICS, request)
    assert answer.responses[0].error_code == 0


def rows_of(topics) -> list[tuple]:
    return [
        (
            topic.name or topic.topic_id,
            row.partition_index,
            row.committed_offset,
            row.committed_leader_epoch,
            row.metadata,
            row.error_code,
        )
        for topic in topics
        for row in topic.partitions
    ]


@pytest.mark.parametrize("version", range(1, 11))
async def test_offsets_are_told_in_every_version(version):
    async with agents() as (one,):
        await put(one, "g", LOGS)
        topic_id = one.machine.topics.by_name("logs").topic_id
        name = topic_id if version >= 10 else "logs"
        request = fetch("g", {name: [0, 1, 2, 99]})
        answer = await one.call(apis.OFFSET_FETCH, request, version=version)
        group = answer.groups[0] if version >= 8 else answer
        assert group.error_code == 0
        assert rows_of(group.topics) == [
            (name, 0, 7, 3 if version >= 5 else -1, "mine", 0),
            (name, 1, -1, -1, "", 0),
            (name, 2, 9, -1, "", 0),
            (name, 99, -1, -1, "", 0),
        ]


@pytest.mark.parametrize("version", range(2, 11))
async def test_no_topics_mean_all_that_the_group_has(version):
    async with agents() as (one,):
        await one.create_topic("more", 2)
        await put(one, "g", {**LOGS, "more": {1: 5}})
        told = await fetched(one, "g", None, version=version)
        ids = {name: one.machine.topics.by_name(name).topic_id for name in ("logs", "more")}
        names = ids if version >= 10 else {"logs": "logs", "more": "more"}
        assert told == {(names["logs"], 0): 7, (names["logs"], 2): 9, (names["more"], 1): 5}


@pytest.mark.parametrize("version", [1, 5, 9])
async def test_a_group_that_nobody_knows_has_no_offsets_and_that_is_no_error(version):
    async with agents() as (one,):
        assert await fetched(one, "g", {"logs": [0], "gone": [3]}, version=version) == {
            ("logs", 0): -1,
            ("gone", 3): -1,
        }
        if version >= 2:
            assert await fetched(one, "g", None, version=version) == {}


async def test_a_topic_that_was_asked_for_by_an_id_that_is_not_there_is_unknown():
    async with agents() as (one,):
        await put(one, "g", LOGS)
        gone = bytes([9] * 16)
        answer = await one.call(apis.OFFSET_FETCH, fetch("g", {gone: [0, 1]}), version=10)
        assert [row.error_code for row in answer.groups[0].topics[0].partitions] == [100, 100]
        assert answer.groups[0].error_code == 0


async def test_offsets_of_a_deleted_topic_are_gone_at_once_also_when_its_name_comes_back():
    async with agents() as (one,):
        await put(one, "g", LOGS)
        await delete_topic(one, "logs")
        assert await fetched(one, "g", None) == {}
        assert await fetched(one, "g", {"logs": [0]}) == {("logs", 0): -1}
        await one.create_topic("logs", 4)
        assert await fetched(one, "g", {"logs": [0]}) == {("logs", 0): -1}
        assert await fetched(one, "g", None) == {}


@pytest.mark.parametrize("version", range(1, 11))
async def test_a_refusal_is_told_where_the_version_has_a_place_for_it(version):
    async with agents() as (one,):
        answer = await one.call(apis.OFFSET_FETCH, fetch("", {"logs": [0, 1]}), version=version)
        if version >= 8:
            assert answer.groups[0].error_code == ErrorCode.INVALID_GROUP_ID
            assert answer.groups[0].topics == []
        elif version >= 2:
            assert answer.error_code == ErrorCode.INVALID_GROUP_ID
            assert answer.topics == []
        else:
            assert rows_of(answer.topics) == [
                ("logs", 0, -1, -1, "", ErrorCode.INVALID_GROUP_ID),
                ("logs", 1, -1, -1, "", ErrorCode.INVALID_GROUP_ID),
            ]


async def test_several_groups_are_answered_each_with_its_own_error():
    """KIP-709."""
    async with agents("one", "two") as (one, two):
        mine, other = group_of(one), group_of(two)
        await put(one, mine, LOGS)
        groups = [OffsetFetchRequestGroup(group_id=each) for each in (mine, "")]
        groups.append(OffsetFetchRequestGroup(group_id=other, member_id="m", member_epoch=1))
        request = OffsetFetchRequest(groups=groups)
        answer = await one.call(apis.OFFSET_FETCH, request, version=9)
        assert [(group.group_id, group.error_code) for group in answer.groups] == [
            (mine, 0),
            ("", ErrorCode.INVALID_GROUP_ID),
            (other, ErrorCode.NOT_COORDINATOR),
        ]
        assert len(rows_of(answer.groups[0].topics)) == 2


@pytest.mark.parametrize("version", [1, 7, 8, 9, 10])
async def test_any_agent_tells_offsets_also_one_that_does_not_coordinate_the_group(version):
    """librdkafka never asks again after NOT_COORDINATOR, and reads nothing until it rejoins."""
    async with agents("one", "two") as (one, two):
        group_id = group_of(two)
        await put(two, group_id, LOGS)
        topic_id = one.machine.topics.by_name("logs").topic_id
        name = topic_id if version >= 10 else "logs"
        told = await fetched(one, group_id, {name: [0, 1]}, version=version)
        assert told == {(name, 0): 7, (name, 1): -1}


async def test_an_agent_that_gives_its_shards_away_while_a_member_asks_tells_offsets():
    """Shards move when a rebalance has ended: that is when members ask where they are."""
    async with agents("one", "two") as (one, two):
        group_id = group_of(one)
        (joined,) = await classic_group(one, group_id, {"logs": [0]})
        await joined.commit({"logs": {0: 7}})
        one.lag()
        asking = one.call(apis.OFFSET_FETCH, fetch(group_id, {"logs": [0]}), version=9)
        release = ReleaseShards((shard_of(group_id),), two.log_client.incarnation())
        released = one.log_client.propose(release, one.log_client.incarnation())
        (group,) = (await answer_of_the_lagging(one, asking)).groups
        await released
        assert await until_served(group_id, two) is two
        assert (group.error_code, rows_of(group.topics)) == (0, [("logs", 0, 7, -1, "", 0)])


async def test_an_agent_that_leaves_tells_offsets():
    async with agents("one", "two") as (one, _):
        group_id = group_of(one)
        await put(one, group_id, {"logs": {0: 7}})
        await one.node.groups.depart(10)
        assert await fetched(one, group_id, {"logs": [0]}) == {("logs", 0): 7}


@pytest.mark.parametrize(
    ("member", "difference", "code"),
    [
        ("self", 0, ErrorCode.NONE),
        ("self", -1, ErrorCode.STALE_MEMBER_EPOCH),
        ("self", 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("nobody", 0, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, None, ErrorCode.NONE),
    ],
)
async def test_a_member_of_kip_848_that_was_fenced_is_told_no_offsets(member, difference, code):
    async with agents() as (one,):
        (joined,) = await consumer_group(one, "g")
        await joined.commit({"logs": {0: 7}})
        request = fetch(
            "g",
            {"logs": [0]},
            member_id=joined.member_id if member == "self" else member,
            epoch=-1 if difference is None else joined.epoch + difference,
        )
        (group,) = (await one.call(apis.OFFSET_FETCH, request, version=9)).groups
        assert group.error_code == code
        assert len(group.topics) == (code == 0)


async def test_offsets_of_a_classic_group_are_told_to_anyone():
    async with agents() as (one,):
        (joined,) = await classic_group(one, "g", {"logs": [0]})
        await joined.commit({"logs": {0: 7}})
        request = fetch("g", {"logs": [0]}, member_id="nobody", epoch=99)
        (group,) = (await one.call(apis.OFFSET_FETCH, request, version=9)).groups
        assert (group.error_code, rows_of(group.topics)[0][2]) == (0, 7)


async def test_stable_offsets_are_told_since_none_is_pending():
    async with agents() as (one,):
        await put(one, "g", LOGS)
        request = fetch("g", {"logs": [0]}, require_stable=True)
        (group,) = (await one.call(apis.OFFSET_FETCH, request, version=9)).groups
        assert (group.error_code, rows_of(group.topics)[0][2]) == (0, 7)


@pytest.mark.promise("P8")
async def test_an_agent_that_lags_behind_the_loss_of_its_shards_tells_the_newest_offsets():
    """P8: its session looks proven, and another agent has taken commits meanwhile."""
    async with agents("one", "two") as (one, two):
        group_id = group_of(one)
        await put(one, group_id, {"logs": {0: 7}})
        one.lag()
        gone = one.log_client.incarnation()
        await two.log_client.propose(Close(gone, one.machine.incarnations.get(gone).last_n))
        await until_served(group_id, two)
        await put(two, group_id, {"logs": {0: 8}})
        assert one.node.groups.runtime.serves(group_id)
        request = fetch(group_id, {"logs": [0]})
        asking = one.call(apis.OFFSET_FETCH, request, version=9)
        (group,) = (await answer_of_the_lagging(one, asking)).groups
        assert (group.error_code, rows_of(group.topics)) == (0, [("logs", 0, 8, -1, "", 0)])


async def test_without_a_log_no_offset_is_told():
    async with agents() as (one,):
        await put(one, "g", LOGS)
        one.log.down = True
        answer = await one.call(apis.OFFSET_FETCH, fetch("g", {"logs": [0]}), version=9)
        assert answer.groups[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        old = await one.call(apis.OFFSET_FETCH, fetch("g", {"logs": [0]}), version=1)
        assert rows_of(old.topics)[0][5] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
