"""OffsetCommit: who may commit what, and what becomes of each partition."""

import asyncio

import pytest

from coordinator.commands.entries import DeleteTopic, Rejected
from coordinator.commands.group_commands import CommitOffsets
from protocol import apis
from protocol.consumer_protocol import write_assignment
from protocol.errors import ErrorCode
from protocol.messages import OffsetCommitRequestPartition
from tests.broker.groups import requests
from tests.broker.groups.members import (
    classic_group,
    codes,
    commit,
    consumer_group,
    fetched,
    join_request,
    put,
    rows,
)
from tests.broker.groups.world import (
    agents,
    answer_of_the_lagging,
    commands_of,
    group_of,
    until_held,
    until_served,
)

LOGS0 = ("logs", 0)


@pytest.mark.parametrize("version", range(2, 11))
async def test_a_commit_by_no_member_is_kept_in_every_version(version):
    async with agents() as (one,):
        topic = one.machine.topics.by_name("logs")
        name = topic.topic_id if version >= 10 else "logs"
        offsets = {name: {0: (7, 3, "mine"), 2: 9}}
        assert await put(one, "g", offsets, version=version) == {(name, 0): 0, (name, 2): 0}
        kept = rows(one, "g")
        assert [(index, row.offset) for index, row in kept.items()] == [(0, 7), (2, 9)]
        assert kept[0].metadata == "mine"
        assert kept[0].leader_epoch == (3 if version >= 6 else -1)


@pytest.mark.parametrize(
    ("version", "member", "epoch", "code"),
    [
        (8, "m", 1, ErrorCode.ILLEGAL_GENERATION),
        (9, "m", 1, ErrorCode.GROUP_ID_NOT_FOUND),
        (10, "m", 0, ErrorCode.GROUP_ID_NOT_FOUND),
        (9, "m", -1, ErrorCode.NONE),  # Kafka looks at the epoch alone.
    ],
)
async def test_a_commit_to_a_group_that_is_not_there(version, member, epoch, code):
    async with agents() as (one,):
        topic = one.machine.topics.by_name("logs")
        offsets = {topic.topic_id if version >= 10 else "logs": {0: 7}}
        answer = await put(one, "g", offsets, version=version, member_id=member, epoch=epoch)
        assert [*answer.values()] == [code]
        assert (one.machine.groups.get("g") is not None) == (code == 0)


async def test_a_group_without_a_name_has_no_offsets():
    async with agents() as (one,):
        answer = await put(one, "", {"logs": {0: 7, 1: 8}})
        assert [*answer.values()] == [ErrorCode.INVALID_GROUP_ID] * 2


async def test_another_agents_group_is_not_committed_here():
    async with agents("one", "two") as (one, two):
        group_id = group_of(two)
        assert await put(one, group_id, {"logs": {0: 7}}) == {LOGS0: ErrorCode.NOT_COORDINATOR}
        assert await put(two, group_id, {"logs": {0: 7}}) == {LOGS0: ErrorCode.NONE}


@pytest.mark.parametrize("version", [9, 10])
async def test_partitions_that_are_not_there_are_unknown_and_the_others_are_committed(version):
    async with agents() as (one,):
        topic = one.machine.topics.by_name("logs")
        logs, gone = (topic.topic_id, bytes([9] * 16)) if version >= 10 else ("logs", "gone")
        offsets = {gone: {0: 1}, logs: {0: 7, 4: 8, -1: 9}}
        assert await put(one, "g", offsets, version=version) == {
            (gone, 0): 100 if version >= 10 else 3,
            (logs, 0): 0,
            (logs, 4): 3,
            (logs, -1): 3,
        }
        assert [*rows(one, "g")] == [0]


@pytest.mark.promise("P8")
async def test_a_topic_is_unknown_only_behind_a_barrier():
    """P8."""
    async with agents("one", "two") as (one, two):
        group_id = group_of(two)
        two.lag()
        await one.create_topic("new")
        asking = put(two, group_id, {"new": {0: 7}})
        assert await answer_of_the_lagging(two, asking) == {("new", 0): ErrorCode.NONE}


async def test_whose_group_it_is_comes_before_topics_that_only_a_barrier_can_tell_of():
    async with agents("one", "two") as (one, two):
        one.log.down = True
        answer = await put(one, group_of(two), {"gone": {0: 7}})
        assert answer == {("gone", 0): ErrorCode.NOT_COORDINATOR}


async def test_unknown_partitions_are_told_whoever_asks():
    """As Kafka, which looks at topics before it looks at the group."""
    async with agents() as (one,):
        answer = await put(one, "g", {"gone": {0: 7}}, member_id="m", epoch=3)
        assert answer == {("gone", 0): 3}
        answer = await put(one, "g", {"gone": {0: 7}, "logs": {0: 7}}, member_id="m", epoch=3)
        assert answer == {("gone", 0): 3, LOGS0: ErrorCode.GROUP_ID_NOT_FOUND}


async def test_metadata_that_are_too_long_are_refused_for_their_partition():
    async with agents(offset_metadata_max_bytes="10") as (one,):
        offsets = {
            "logs": {
                0: (1, -1, "x" * 10),
                1: (2, -1, "x" * 11),
                2: (3, -1, "\U0001f600" * 5),
                3: (4, -1, "\U0001f600" * 6),  # Twelve UTF-16 code units, as Kafka counts.
            }
        }
        assert [*(await put(one, "g", offsets)).values()] == [0, 12, 0, 12]
        assert [*rows(one, "g")] == [0, 2]


async def test_metadata_that_no_string_of_the_log_can_hold_are_too_long_whatever_the_setting():
    async with agents(offset_metadata_max_bytes="100000") as (one,):
        answer = await put(one, "g", {"logs": {0: (1, -1, "\u20ac" * 10_930)}})
        assert answer == {LOGS0: ErrorCode.OFFSET_METADATA_TOO_LARGE}


async def test_metadata_may_be_null():
    async with agents() as (one,):
        assert await put(one, "g", {"logs": {0: (1, -1, None)}}) == {LOGS0: 0}
        assert rows(one, "g")[0].metadata == ""


@pytest.mark.parametrize("offset", [-1, -5, (1 << 63) - 1])
async def test_any_number_may_be_committed(offset):
    """As in Kafka, where the clients are the ones who refuse negative offsets."""
    async with agents() as (one,):
        assert await put(one, "g", {"logs": {0: offset}}) == {LOGS0: 0}
        assert await fetched(one, "g", {"logs": [0]}) == {LOGS0: offset}


async def test_of_a_partition_that_is_named_twice_the_last_offset_holds():
    async with agents() as (one,):
        request = commit("g", {"logs": {0: 5, 1: 6}})
        request.topics[0].partitions.append(
            OffsetCommitRequestPartition(partition_index=0, committed_offset=8)
        )
        answer = await one.call(apis.OFFSET_COMMIT, request, version=9)
        told = [(row.partition_index, row.error_code) for row in answer.topics[0].partitions]
        assert told == [(0, 0), (1, 0), (0, 0)]
        assert rows(one, "g")[0].offset == 8


async def test_an_empty_commit_is_answered_and_writes_nothing():
    async with agents() as (one,):
        assert await put(one, "g", {}) == {}
        assert await put(one, "g", {"logs": {}}) == {}
        assert one.machine.groups.get("g") is None


async def test_more_offsets_than_fit_one_command_go_as_several_and_all_are_answered(world):
    async with world.agents("one") as (one,):
        await one.create_topic("wide", 2500)
        await until_held(one)
        seen = commands_of(one, CommitOffsets)
        offsets = {index: (index * 2, -1, "m" * 30) for index in range(2600)}
        answer = await put(one, "g", {"wide": offsets})
        assert [*answer.values()] == [0] * 2500 + [3] * 100
        assert len(seen) > 2
        assert sum(len(command.offsets) for command in seen) == 2500
        assert max(len(command.offsets) for command in seen) <= 1000
        topic = one.machine.topics.by_name("wide")
        kept = one.machine.groups.get("g").offsets.of_topic(topic.topic_id)
        assert [(index, row.offset) for index, row in kept] == [
            (index, index * 2) for index in range(2500)
        ]


async def test_long_metadata_are_cut_into_entries_by_their_bytes(world):
    async with world.agents("one") as (one,):
        await one.create_topic("wide", 40)
        await until_held(one)
        seen = commands_of(one, CommitOffsets)
        offsets = {index: (index, -1, f"{index:04d}" * 1000) for index in range(40)}
        assert set((await put(one, "g", {"wide": offsets})).values()) == {0}
        assert 2 < len(seen) < 10
        assert (await fetched(one, "g", None))["wide", 39] == 39


async def test_commits_of_many_connections_do_not_wait_for_each_other():
    """They are in as few entries as the log's pace gives."""
    async with agents() as (one,):
        await put(one, "g", {"logs": {0: 0}})
        entries = one.log_client.stats.entries_appended
        commits = [put(one, "g", {"logs": {0: number}}) for number in range(100)]
        assert all(answer == {LOGS0: 0} for answer in await asyncio.gather(*commits))
        assert one.log_client.stats.entries_appended - entries < 10


# Members.


@pytest.mark.parametrize(
    ("member", "generation", "code"),
    [
        ("self", 0, ErrorCode.NONE),
        ("self", 1, ErrorCode.ILLEGAL_GENERATION),
        ("self", -1, ErrorCode.ILLEGAL_GENERATION),
        ("nobody", 0, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", None, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
async def test_a_classic_group_with_members_takes_only_theirs(member, generation, code):
    """`generation` is told as a difference to the right one; None: -1, by no member."""
    async with agents() as (one,):
        (joined,) = await classic_group(one, "g", {"logs": [0, 1]})
        answer = await put(
            one,
            "g",
            {"logs": {0: 7}},
            member_id=joined.member_id if member == "self" else member,
            epoch=-1 if generation is None else joined.epoch + generation,
        )
        assert answer == {LOGS0: code}
        assert bool(rows(one, "g")) == (code == 0)


async def test_a_static_member_that_was_replaced_is_fenced():
    """KIP-345."""
    async with agents() as (one,):
        (joined,) = await classic_group(one, "g", {"logs": [0]}, instance_ids=["i"])
        answer = await put(
            one, "g", {"logs": {0: 7}}, member_id="other", epoch=joined.epoch, instance_id="i"
        )
        assert answer == {LOGS0: ErrorCode.FENCED_INSTANCE_ID}
        assert await joined.commit({"logs": {0: 7}}) == {LOGS0: 0}


async def test_a_commit_is_taken_before_others_have_rejoined_and_refused_until_all_have_synced():
    async with agents() as (one,):
        (joined,) = await classic_group(one, "g", {"logs": [0]})
        other = one.connect()
        other.send(apis.JOIN_GROUP, 3, join_request("g"))
        await asyncio.sleep(0.1)
        assert await joined.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        assert await joined.commit({"logs": {0: 7}}) == {LOGS0: 0}
        rejoined = await joined.peer.call(
            apis.JOIN_GROUP, 3, join_request("g", member_id=joined.member_id)
        )
        assert rejoined.error_code == 0
        epoch = rejoined.generation_id
        answer = await joined.commit({"logs": {0: 8}}, epoch=epoch)
        assert answer == {LOGS0: ErrorCode.REBALANCE_IN_PROGRESS}


async def test_a_commit_shows_that_its_member_lives():
    async with agents() as (one,):
        (joined,) = await classic_group(one, "g", {"logs": [0]})
        for number in range(5):
            await asyncio.sleep(20)
            assert await joined.commit({"logs": {0: number}}) == {LOGS0: 0}
        assert await joined.heartbeat() == 0


async def test_offsets_may_be_reset_when_the_last_member_has_left():
    async with agents() as (one,):
        (joined,) = await classic_group(one, "g", {"logs": [0]})
        assert await joined.commit({"logs": {0: 7}}) == {LOGS0: 0}
        assert await put(one, "g", {"logs": {0: 1}}) == {LOGS0: ErrorCode.UNKNOWN_MEMBER_ID}
        await joined.leave()
        assert await put(one, "g", {"logs": {0: 1}}) == {LOGS0: 0}
        assert rows(one, "g")[0].offset == 1


@pytest.mark.parametrize(
    ("version", "difference", "code"),
    [
        (9, 0, ErrorCode.NONE),
        (9, -1, ErrorCode.STALE_MEMBER_EPOCH),
        (9, 1, ErrorCode.STALE_MEMBER_EPOCH),
        (8, 0, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
async def test_a_member_of_kip_848_commits_with_its_epoch(version, difference, code):
    async with agents() as (one,):
        (joined,) = await consumer_group(one, "g")
        answer = await joined.commit(
            {"logs": {0: 7}}, version=version, epoch=joined.epoch + difference
        )
        assert answer == {LOGS0: code}


async def test_a_member_of_kip_848_that_is_not_there_is_unknown():
    async with agents() as (one,):
        (joined,) = await consumer_group(one, "g")
        answer = await put(one, "g", {"logs": {0: 7}}, member_id="nobody", epoch=joined.epoch)
        assert answer == {LOGS0: ErrorCode.UNKNOWN_MEMBER_ID}
        await joined.go()
        assert await put(one, "g", {"logs": {0: 7}}) == {LOGS0: 0}


# What the log says.


@pytest.mark.parametrize("version", [9, 10])
async def test_a_topic_that_is_deleted_while_its_offset_is_on_the_way_is_unknown(
    version, monkeypatch
):
    async with agents() as (one,):
        topic = one.machine.topics.by_name("logs")
        more = await one.create_topic("more")
        settled = one.node.groups.settled

        async def settled_before_a_deletion(group_id: str) -> None:
            await settled(group_id)
            one.log_client.propose(DeleteTopic(topic.topic_id))

        monkeypatch.setattr(one.node.groups, "settled", settled_before_a_deletion)
        logs, other = (topic.topic_id, more.topic_id) if version >= 10 else ("logs", "more")
        answer = await put(one, "g", {logs: {0: 7, 1: 8}, other: {0: 9, 5: 1}}, version=version)
        gone = 100 if version >= 10 else 3
        assert answer == {(logs, 0): gone, (logs, 1): gone, (other, 0): 0, (other, 5): 3}


async def test_without_a_session_nothing_is_committed():
    """P5."""
    async with agents() as (one,):
        await one.lose_session()
        assert await put(one, "g", {"logs": {0: 7}}) == {LOGS0: ErrorCode.NOT_COORDINATOR}


@pytest.mark.promise("P4")
async def test_a_commit_whose_fate_is_open_is_said_to_have_timed_out():
    """P4."""
    async with agents(offsets_commit_timeout_ms="500") as (one,):
        one.lag()
        assert await put(one, "g", {"logs": {0: 7}}) == {LOGS0: ErrorCode.REQUEST_TIMED_OUT}
        one.catch_up()
        await one.log_client.barrier()
        assert rows(one, "g")[0].offset == 7


async def test_a_commit_outlives_its_coordinator():
    async with agents("one", "two") as (one, two):
        group_id = group_of(one)
        (joined,) = await classic_group(one, group_id, {"logs": [0]})
        assert await joined.commit({"logs": {0: 7}}) == {LOGS0: 0}
        await one.lose_session()
        await until_served(group_id, two)
        assert await fetched(two, group_id, {"logs": [0]}) == {LOGS0: 7}
        joined.peer = two.connect()
        assert await joined.commit({"logs": {0: 8}}) == {LOGS0: 0}


async def test_the_answer_names_topics_as_the_request_did():
    async with agents() as (one,):
        topic_id = one.machine.topics.by_name("logs").topic_id
        by_id = await one.call(
            apis.OFFSET_COMMIT, commit("g", {topic_id: {0: 7, 9: 8}}), version=10
        )
        assert [topic.topic_id for topic in by_id.topics] == [topic_id]
        assert codes(by_id) == {(topic_id, 0): 0, (topic_id, 9): 3}


async def test_a_commit_waits_while_its_group_is_written():
    async with agents() as (one,):
        member = one.connect()
        joined = await member.call(apis.JOIN_GROUP, 3, join_request("g"))
        one.lag()
        who, epoch = joined.member_id, joined.generation_id
        share = {who: write_assignment({"logs": [0]})}
        member.send(apis.SYNC_GROUP, 4, requests.sync("g", who, epoch, assignments=share))
        await asyncio.sleep(0.1)
        asking = put(one, "g", {"logs": {0: 7}}, member_id=who, epoch=epoch)
        assert await answer_of_the_lagging(one, asking) == {LOGS0: 0}


@pytest.mark.parametrize(
    ("refusal", "version", "code"),
    [
        (ErrorCode.GROUP_ID_NOT_FOUND, 8, ErrorCode.ILLEGAL_GENERATION),
        (ErrorCode.GROUP_ID_NOT_FOUND, 9, ErrorCode.GROUP_ID_NOT_FOUND),
        (ErrorCode.STALE_MEMBER_EPOCH, 9, ErrorCode.ILLEGAL_GENERATION),
        (ErrorCode.ILLEGAL_GENERATION, 9, ErrorCode.ILLEGAL_GENERATION),
        (ErrorCode.UNKNOWN_MEMBER_ID, 9, ErrorCode.UNKNOWN_MEMBER_ID),
        (ErrorCode.POLICY_VIOLATION, 9, ErrorCode.POLICY_VIOLATION),
    ],
)
async def test_what_the_log_refuses_a_classic_member_is_said_in_its_words(
    refusal, version, code, monkeypatch
):
    async with agents() as (one,):
        (joined,) = await classic_group(one, "g", {"logs": [0]})

        async def refuse(command):
            return Rejected(refusal)

        monkeypatch.setattr(one.node.groups, "propose", refuse)
        assert await joined.commit({"logs": {0: 7}}, version=version) == {LOGS0: code}
