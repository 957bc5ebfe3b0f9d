"""TxnOffsetCommit: who may, for which transaction, and what becomes of the offsets."""

import asyncio
from dataclasses import replace

import pytest

from coordinator.commands.group_commands import SetGroupConfigs
from coordinator.commands.transaction_commands import CommitTransactionOffsets
from protocol import apis
from protocol.errors import ErrorCode
from tests.broker.groups.members import classic_group, consumer_group, join_request, rows
from tests.broker.groups.world import agents, group_of
from tests.broker.transactions.world import (
    COMMITTED,
    OPEN,
    Producer,
    commands_of,
    of_member,
    offset_codes,
    producing,
    txn_metadata,
)
from tests.kit.client import caught_up
from tests.kit.faults import held, lost

LOGS0, LOGS1 = ("logs", 0), ("logs", 1)
VERSIONS = range(6)
PATIENT = {"lease_ttl_ms": "60000", "session_deadline_ms": "50000"}


async def in_group(agent, group_id="g", **more) -> Producer:
    """A producer in whose open transaction the group takes part (TV1)."""
    producer = await Producer.begin(agent, **more)
    assert await producer.add_offsets(group_id) == 0
    return producer


def offsets_of(agent, group_id="g") -> dict:
    return {index: row.offset for index, row in rows(agent, group_id).items()}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("commit", [True, False])
async def test_offsets_are_the_groups_when_the_transaction_is_committed_and_only_then(
    version, commit
):
    async with producing(begin=in_group) as (producer, one):
        wanted = {LOGS0: (7, "mine"), LOGS1: 8}
        answer = await producer.commit_offsets(one, "g", wanted, version=version)
        assert answer == {LOGS0: 0, LOGS1: 0}
        assert offsets_of(one) == {}
        assert one.machine.groups.get("g").offsets.pending_count == 2
        assert await producer.end(commit=commit, version=5 if version >= 5 else 3) == 0
        assert offsets_of(one) == ({0: 7, 1: 8} if commit else {})
        assert one.machine.groups.get("g").offsets.pending_count == 0
        if commit:
            assert rows(one, "g")[0].metadata == "mine"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("wrong", ["the group takes no part", "nothing is open"])
async def test_the_group_has_to_take_part_in_an_open_transaction_unless_the_client_is_new(
    version, wrong
):
    """Kafka's verification says TRANSACTION_ABORTABLE to those who know it."""
    async with producing() as (producer, one):
        assert await producer.add_offsets("h" if wrong == "the group takes no part" else "g") == 0
        if wrong == "nothing is open":
            assert await producer.end() == 0
        answer = await producer.commit_offsets(one, "g", {LOGS0: 7}, version=version)
        assert answer == {LOGS0: [48, 48, 48, 48, 120, 0][version]}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"epoch": -1}, 47),
        ({"epoch": 1}, 47),
        ({"producer_id": 12_345}, 49),
        ({"transactional_id": "other"}, 49),
        ({"transactional_id": "nobody"}, 49),
        ({"transactional_id": ""}, 42),
    ],
)
async def test_which_transaction_it_is_comes_before_everything_about_members(version, fields, code):
    async with producing(begin=in_group) as (producer, one):
        await Producer.begin(one, "other")
        wrong = replace(producer, **fields)
        assert await wrong.commit_offsets(one, "g", {LOGS0: 7}, version=version) == {LOGS0: code}


@pytest.mark.parametrize("version", [3, 4, 5])
async def test_that_the_group_takes_part_comes_before_everything_about_members(version):
    """As in Kafka. A new client's offsets add their group, and are then judged by their member."""
    async with producing(begin=in_group) as (producer, one):
        member = {"member_id": "somebody", "generation_id": 3}
        answer = await producer.commit_offsets(one, "h", {LOGS0: 7}, version=version, **member)
        assert answer == {LOGS0: {3: 48, 4: 120, 5: 22}[version]}


async def test_offsets_of_a_new_client_begin_the_transaction_of_their_epoch():
    """KIP-890: no AddOffsetsToTxn at all."""
    async with producing() as (producer, one):
        assert await producer.commit_offsets(one, "g", {LOGS0: 7}, version=5) == {LOGS0: 0}
        assert (txn_metadata(one).state, txn_metadata(one).instance) == (OPEN, 1)
        assert await producer.end(version=5) == 0
        assert offsets_of(one) == {0: 7}


@pytest.mark.promise("P8")
async def test_the_group_takes_part_as_the_agent_finds_behind_a_barrier():
    """The add went to another agent; this one, the group's coordinator, lags."""
    async with agents("one", "two") as (one, two):
        group_id = group_of(two)
        producer = await Producer.begin(one)
        await two.log_client.barrier()
        two.lag()
        assert await producer.add_offsets(group_id) == 0
        answer = await caught_up(two, producer.commit_offsets(two, group_id, {LOGS0: 7}))
        assert answer == {LOGS0: 0}
        assert await producer.end() == 0
        await two.log_client.barrier()
        assert offsets_of(two, group_id) == {0: 7}


async def test_offsets_go_to_the_groups_coordinator_and_to_no_other_agent():
    async with agents("one", "two") as (one, two):
        group_id = group_of(two)
        producer = await in_group(one, group_id)
        answer = await producer.commit_offsets(one, group_id, {LOGS0: 7})
        assert answer == {LOGS0: ErrorCode.NOT_COORDINATOR}
        assert await producer.commit_offsets(two, group_id, {LOGS0: 7}) == {LOGS0: 0}


async def test_offsets_that_come_late_into_the_log_do_not_slide_into_the_next_transaction():
    """The command names the instance; clients are told to find the coordinator and ask again."""
    async with agents("one", "two", **PATIENT) as (one, two):
        group_id = group_of(two)
        producer = await in_group(one, group_id)
        await two.log_client.barrier()
        seen = commands_of(one, CommitTransactionOffsets)
        gate = asyncio.Event()
        two.log.before["append"] = held(gate)
        asked = asyncio.create_task(producer.commit_offsets(two, group_id, {LOGS0: 7}))
        await asyncio.sleep(0.5)
        assert await producer.end(commit=False) == 0
        assert await producer.add_offsets(group_id) == 0
        gate.set()
        assert await asked == {LOGS0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert [command.instance for command in seen] == [1]
        assert await producer.end() == 0
        await two.log_client.barrier()
        assert one.machine.groups.get(group_id) is None or offsets_of(one, group_id) == {}


async def test_offsets_whose_frame_was_begun_before_the_transaction_before_ended_are_sent_back():
    """They may be meant for that one. A client that lives sends them again."""
    async with producing(begin=in_group) as (producer, one):
        request = producer.offsets_request("g", {LOGS0: 7})
        late = one.connect()
        frame = late.frame(apis.TXN_OFFSET_COMMIT, 3, request)
        late.feed(frame[:5])
        assert await producer.end(commit=False) == 0
        assert await producer.add_offsets("g") == 0
        late.feed(frame[5:])
        assert offset_codes(await late.answer()) == {LOGS0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
        late.send(apis.TXN_OFFSET_COMMIT, 3, request)
        assert offset_codes(await late.answer()) == {LOGS0: 0}


async def test_unknown_partitions_and_long_metadata_are_told_one_by_one():
    async with producing(offset_metadata_max_bytes="10", begin=in_group) as (producer, one):
        wanted = {LOGS0: (1, "x" * 11), LOGS1: (2, "x" * 10), ("logs", 4): 3, ("gone", 0): 4}
        assert await producer.commit_offsets(one, "g", wanted) == {
            LOGS0: 12,
            LOGS1: 0,
            ("logs", 4): 3,
            ("gone", 0): 3,
        }
        assert await producer.end() == 0
        assert offsets_of(one) == {1: 2}


async def test_a_group_without_a_name_has_no_offsets():
    async with agents() as (one,):
        producer = await in_group(one, "")
        assert await producer.commit_offsets(one, "", {LOGS0: 7}) == {LOGS0: 24}


async def test_more_offsets_than_fit_one_command_go_as_several_of_one_transaction():
    async with agents() as (one,):
        await one.create_topic("wide", 2_500)
        producer = await Producer.begin(one)
        seen = commands_of(one, CommitTransactionOffsets)
        wanted = {("wide", index): (index, "m" * 30) for index in range(2_500)}
        answer = await producer.commit_offsets(one, "g", wanted, version=5)
        assert set(answer.values()) == {0}
        assert len(seen) > 2
        assert max(len(command.offsets) for command in seen) <= 1_000
        assert txn_metadata(one).instance == 1
        assert one.machine.groups.get("g").offsets.pending_count == 2_500
        assert await producer.end(version=5) == 0
        topic = one.machine.topics.by_name("wide")
        kept = one.machine.groups.get("g").offsets.of_topic(topic.topic_id)
        assert [row.offset for _, row in kept] == list(range(2_500))


# KIP-447: members and generations, in groups that have members.


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize(
    ("who", "code"),
    [
        ({}, 0),
        (None, 0),  # A producer of its own for each partition, as before KIP-447.
        ({"by": -1}, 22),
        ({"by": 1}, 22),
        ({"member_id": "stranger"}, 25),
        ({"member_id": ""}, 25),
        ({"generation_id": -1}, 22),
    ],
    ids=str,
)
async def test_offsets_of_a_classic_group_are_fenced_by_member_and_generation(version, who, code):
    async with producing(begin=in_group) as (producer, one):
        (member,) = await classic_group(one, "g", {"logs": [0, 1, 2, 3]})
        fields = {} if who is None else of_member(member, **who)
        answer = await producer.commit_offsets(one, "g", {LOGS0: 7}, version=version, **fields)
        assert answer == {LOGS0: code}
        assert await producer.end(version=5 if version >= 5 else 3) == 0
        assert offsets_of(one) == ({0: 7} if code == 0 else {})


@pytest.mark.parametrize(
    ("who", "code"),
    [
        ({"group_instance_id": "static"}, 0),
        ({"group_instance_id": "other"}, 25),
        ({"group_instance_id": "static", "member_id": "stranger"}, 82),
    ],
    ids=str,
)
async def test_a_static_members_offsets_name_its_instance(who, code):
    async with producing(begin=in_group) as (producer, one):
        (member,) = await classic_group(one, "g", {"logs": [0]}, instance_ids=["static"])
        fields = of_member(member, **who)
        assert await producer.commit_offsets(one, "g", {LOGS0: 7}, **fields) == {LOGS0: code}


@pytest.mark.parametrize(
    ("who", "code"),
    [({}, 0), ({"by": -1}, 22), ({"member_id": "stranger"}, 25), (None, 0)],
    ids=str,
)
@pytest.mark.parametrize("version", [3, 5])
async def test_offsets_of_a_group_of_kip_848_are_fenced_by_the_members_epoch(version, who, code):
    async with producing(begin=in_group) as (producer, one):
        (member,) = await consumer_group(one, "g")
        fields = {} if who is None else of_member(member, **who)
        answer = await producer.commit_offsets(one, "g", {LOGS0: 7}, version=version, **fields)
        assert answer == {LOGS0: code}


async def test_a_generation_of_a_group_that_is_not_there_is_illegal():
    async with producing(begin=in_group) as (producer, one):
        answer = await producer.commit_offsets(
            one, "g", {LOGS0: 7}, generation_id=3, member_id="member"
        )
        assert answer == {LOGS0: ErrorCode.ILLEGAL_GENERATION}


async def test_offsets_of_a_generation_that_waits_for_its_assignment_are_sent_again():
    """27 would end the producer; Kafka takes them, the log knows that generation soon."""
    async with agents() as (one,):
        (member,) = await classic_group(one, "g", {"logs": [0]})
        producer = await in_group(one)
        one.connect().send(apis.JOIN_GROUP, 3, join_request("g"))
        await asyncio.sleep(0.1)
        rejoin = join_request("g", member_id=member.member_id)
        rejoined = await member.peer.call(apis.JOIN_GROUP, 3, rejoin)
        fields = of_member(member, generation_id=rejoined.generation_id)
        answer = await producer.commit_offsets(one, "g", {LOGS0: 7}, **fields)
        assert answer == {LOGS0: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


async def test_offsets_of_anothers_partition_abort_the_transaction_where_only_owners_may_commit():
    async with agents() as (one,):
        configs = (("frazil.commit.owner.only", "true"),)
        await one.log_client.propose(SetGroupConfigs("g", configs))
        first, _ = await classic_group(one, "g", {"logs": [0]}, {"logs": [1]})
        producer = await in_group(one)
        answer = await producer.commit_offsets(one, "g", {LOGS0: 7, LOGS1: 8}, **of_member(first))
        assert answer == {LOGS0: 0, LOGS1: ErrorCode.ILLEGAL_GENERATION}


# Without the log.


@pytest.mark.promise("P4")
async def test_offsets_whose_fate_is_open_are_said_to_have_timed_out_and_may_be_sent_again():
    async with producing(begin=in_group, **PATIENT) as (producer, one):
        one.lag()
        one.log.after["append"] = lost()
        assert await producer.commit_offsets(one, "g", {LOGS0: 7}) == {LOGS0: 7}
        one.log.after.clear()
        one.catch_up()
        await one.log_client.barrier()
        assert await producer.commit_offsets(one, "g", {LOGS0: 8}) == {LOGS0: 0}
        assert await producer.end() == 0
        assert offsets_of(one) == {0: 8}
        assert txn_metadata(one).state is COMMITTED
