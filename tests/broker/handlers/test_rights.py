"""What a right that is missing looks like, API by API, and that changes count at once."""

import asyncio
import contextlib
import json
import logging

import pytest

from broker.calls.slices import SLICE_ELEMENTS
from broker.rights.authorizer import Authorizer
from protocol import apis, messages
from protocol.acls import Operation, ResourceType
from protocol.errors import ErrorCode
from protocol.records import TRANSACTIONAL
from tests.broker.handlers.test_every_api import errors
from tests.broker.rights.acls import (
    ADMIN,
    AUTHORIZED,
    BOB,
    acl,
    allow,
    ask,
    connect,
    withdraw,
)
from tests.kit import requests
from tests.kit.batches import batch
from tests.kit.client import settle

READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
GROUP, CLUSTER = ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NONE = ErrorCode.NONE


@contextlib.asynccontextmanager
async def guarded(world):
    """An agent with an authorizer and the topics "mine", which Bob may use, and "theirs"."""
    async with world.agents("one", **AUTHORIZED) as (agent,):
        await agent.create_topic("mine")
        await agent.create_topic("theirs")
        await allow(agent, acl(READ, name="mine"), acl(WRITE, name="mine"))
        yield agent


def codes(response, field: str = "topics") -> dict[str, int]:
    return {row.name: row.error_code for row in getattr(response, field)}


# Metadata.


def metadata(*names: str, create: bool = False, operations: bool = False):
    return messages.MetadataRequest(
        topics=[messages.MetadataRequestTopic(name=name) for name in names] or None,
        allow_auto_topic_creation=create,
        include_topic_authorized_operations=operations,
        include_cluster_authorized_operations=operations,
    )


async def test_topics_that_may_not_be_described_are_refused_by_name_and_left_out_of_all(world):
    async with guarded(world) as one:
        by_name = await ask(one, apis.METADATA, metadata("mine", "theirs", "nowhere"), version=12)
        assert codes(by_name) == {"mine": NONE, "theirs": REFUSED, "nowhere": REFUSED}
        refused = [topic for topic in by_name.topics if topic.error_code]
        assert {topic.topic_id for topic in refused} == {bytes(16)}
        assert codes(await ask(one, apis.METADATA, metadata())) == {"mine": NONE}


async def test_a_topic_that_is_named_by_its_id_is_refused_without_its_name(world):
    async with guarded(world) as one:
        theirs = one.machine.topics.by_name("theirs").topic_id
        wanted = [
            messages.MetadataRequestTopic(topic_id=each) for each in (theirs, bytes(15) + b"x")
        ]
        response = await ask(one, apis.METADATA, messages.MetadataRequest(topics=wanted))
        told = [(topic.error_code, topic.name) for topic in response.topics]
        assert told == [(REFUSED, None), (ErrorCode.UNKNOWN_TOPIC_ID, None)]


async def test_a_topic_is_created_by_asking_for_it_only_with_the_right_to_create(world):
    async with guarded(world) as one:
        await allow(one, acl(DESCRIBE))
        assert codes(await ask(one, apis.METADATA, metadata("new", create=True))) == {
            "new": REFUSED
        }
        assert one.machine.topics.by_name("new") is None
        await allow(one, acl(Operation.CREATE, name="ne", prefix=True))
        assert codes(await ask(one, apis.METADATA, metadata("new", create=True))) == {"new": NONE}


async def test_operations_are_those_that_the_requester_may_do(world):
    async with guarded(world) as one:
        response = await ask(one, apis.METADATA, metadata("mine", operations=True), version=10)
        (topic,) = response.topics
        assert topic.topic_authorized_operations == 1 << READ | 1 << WRITE | 1 << DESCRIBE
        assert response.cluster_authorized_operations == 0
        await allow(one, acl(Operation.ALTER, CLUSTER))
        response = await ask(one, apis.METADATA, metadata("mine", operations=True), version=10)
        assert response.cluster_authorized_operations == 1 << Operation.ALTER | 1 << DESCRIBE
        answer = await ask(
            one,
            apis.DESCRIBE_CLUSTER,
            messages.DescribeClusterRequest(include_cluster_authorized_operations=True),
            who=ADMIN,
        )
        assert answer.cluster_authorized_operations == 0b1_1111_1010_0000


async def test_pages_of_all_topics_leave_out_what_may_not_be_described(world):
    async with guarded(world) as one:
        request = messages.DescribeTopicPartitionsRequest(response_partition_limit=1)
        response = await ask(one, apis.DESCRIBE_TOPIC_PARTITIONS, request)
        assert codes(response) == {"mine": NONE}
        assert response.next_cursor is None
        request.topics = [messages.TopicRequest(name=name) for name in ("mine", "theirs")]
        request.response_partition_limit = 10
        response = await ask(one, apis.DESCRIBE_TOPIC_PARTITIONS, request)
        assert codes(response) == {"mine": NONE, "theirs": REFUSED}


# Produce and Fetch.


async def write(agent, topic: str, value: bytes) -> None:
    """A record that the administrator writes."""
    request = requests.produce({(topic, 0): batch(value)})
    response = await ask(agent, apis.PRODUCE, request, version=9, who=ADMIN)
    assert produced(response) == {topic: NONE}


def produced(response) -> dict[str, int]:
    return {place[0]: row.error_code for place, row in requests.rows_of(response).items()}


async def test_batches_for_a_topic_that_may_be_written_to_go_on_beside_those_that_may_not(world):
    async with guarded(world) as one:
        request = requests.produce({("mine", 0): batch(b"a"), ("theirs", 0): batch(b"b")})
        response = await ask(one, apis.PRODUCE, request, version=9)
        assert produced(response) == {"mine": NONE, "theirs": REFUSED}
        assert one.row("mine").end_offset == 1
        assert one.row("theirs").end_offset == 0


async def test_a_transactional_id_that_may_not_be_used_refuses_all_batches(world):
    async with guarded(world) as one:
        sent = batch(b"a", attributes=TRANSACTIONAL, producer_id=7, epoch=0, sequence=0)
        request = requests.produce({("mine", 0): sent}, transactional_id="pay")
        response = await ask(one, apis.PRODUCE, request, version=9)
        assert produced(response) == {"mine": ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
        assert one.row("mine").end_offset == 0


async def test_a_batch_without_an_answer_that_is_refused_closes_the_connection(world):
    async with guarded(world) as one:
        client = connect(one)
        request = requests.produce({("theirs", 0): batch(b"a")})
        request.acks = 0
        client.send(apis.PRODUCE, 9, request)
        await settle()
        assert client.closed
        assert one.row("theirs").end_offset == 0


async def test_records_of_a_topic_that_may_not_be_read_are_refused_beside_others(world):
    async with guarded(world) as one:
        await write(one, "mine", b"a")
        await write(one, "theirs", b"b")
        request = requests.fetch({("mine", 0): 0, ("theirs", 0): 0})
        response = await ask(one, apis.FETCH, request, version=12)
        assert produced(response) == {"mine": NONE, "theirs": REFUSED}
        theirs = one.machine.topics.by_name("theirs").topic_id
        by_id = requests.fetch({("theirs", 0): 0}, topic_id=theirs)
        response = await ask(one, apis.FETCH, by_id, version=13)
        assert errors(response)[-1] == REFUSED


async def test_a_parked_fetch_hears_at_once_that_the_right_was_withdrawn(world):
    async with guarded(world) as one:
        client = connect(one)
        client.send(apis.FETCH, 12, requests.fetch({("mine", 0): 0}, max_wait_ms=30_000))
        await settle()
        assert client.frames() == []
        began = one.world.boot_ms()
        await withdraw(one, acl(READ, name="mine"))
        assert produced(await client.answer()) == {"mine": REFUSED}
        assert one.world.boot_ms() - began < 1_000


async def test_a_parked_fetch_waits_on_when_the_rights_of_others_change(world):
    async with guarded(world) as one:
        client = connect(one)
        client.send(apis.FETCH, 12, requests.fetch({("mine", 0): 0}, max_wait_ms=5_000))
        await settle()
        await allow(one, acl(READ, name="theirs", principal="User:carol"))
        await asyncio.sleep(1)
        assert client.frames() == []
        await write(one, "mine", b"a")
        assert produced(await client.answer()) == {"mine": NONE}


async def test_a_fetch_session_goes_on_without_a_topic_that_may_not_be_read_any_more(world):
    async with guarded(world) as one:
        await allow(one, acl(READ, name="theirs"))
        client = connect(one)
        first = requests.fetch({("mine", 0): 0, ("theirs", 0): 0})
        first.session_epoch = 0
        session_id = (await client.call(apis.FETCH, 12, first)).session_id
        assert session_id
        await withdraw(one, acl(READ, name="theirs"))
        more = requests.fetch({})
        more.session_id, more.session_epoch = session_id, 1
        assert produced(await client.call(apis.FETCH, 12, more)) == {"theirs": REFUSED}


# Topics.


async def test_topics_are_created_one_by_one_with_the_right_to_them(world):
    async with guarded(world) as one:
        await allow(one, acl(Operation.CREATE, name="new", prefix=True))
        request = requests.create_topics({"new1": 1, "other": 1})
        response = await ask(one, apis.CREATE_TOPICS, request)
        assert codes(response) == {"new1": NONE, "other": REFUSED}
        (made,) = [topic for topic in response.topics if topic.name == "new1"]
        assert made.topic_config_error_code == REFUSED
        assert (made.num_partitions, made.replication_factor, made.configs) == (-1, -1, [])
        assert one.machine.topics.by_name("other") is None
        await allow(one, acl(Operation.DESCRIBE_CONFIGS, name="new2"))
        (made,) = (await ask(one, apis.CREATE_TOPICS, requests.create_topics({"new2": 3}))).topics
        assert (made.topic_config_error_code, made.num_partitions) == (NONE, 3)


async def test_a_topic_to_delete_by_id_is_named_only_to_whom_may_describe_it(world):
    async with guarded(world) as one:
        ids = [one.machine.topics.by_name(name).topic_id for name in ("mine", "theirs")]
        states = [messages.DeleteTopicState(topic_id=each) for each in ids]
        states += [
            messages.DeleteTopicState(name="theirs"),
            messages.DeleteTopicState(name="nowhere"),
        ]
        request = messages.DeleteTopicsRequest(topics=states, timeout_ms=1_000)
        response = await ask(one, apis.DELETE_TOPICS, request)
        told = [(row.name, row.error_code) for row in response.responses]
        assert told == [
            ("mine", REFUSED),
            (None, REFUSED),
            ("theirs", REFUSED),
            ("nowhere", REFUSED),
        ]
        assert len(one.machine.topics) == 2
        await allow(one, acl(Operation.DELETE, name="theirs"))
        response = await ask(one, apis.DELETE_TOPICS, request)
        assert one.machine.topics.by_name("mine") is not None


async def test_configs_are_refused_by_the_kind_of_their_resource(world):
    async with guarded(world) as one:
        request = messages.DescribeConfigsRequest(
            resources=[
                messages.DescribeConfigsResource(resource_type=kind, resource_name=name)
                for kind, name in ((2, "mine"), (4, "0"), (32, "g"))
            ]
        )
        response = await ask(one, apis.DESCRIBE_CONFIGS, request)
        assert {row.resource_type: row.error_code for row in response.results} == {
            2: REFUSED,
            4: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            32: ErrorCode.GROUP_AUTHORIZATION_FAILED,
        }
        await allow(one, acl(Operation.ALTER_CONFIGS, name="mine"))
        response = await ask(one, apis.DESCRIBE_CONFIGS, request)
        assert {row.resource_type: row.error_code for row in response.results}[2] == NONE


# Groups and transactions.


async def test_offsets_of_topics_that_may_not_be_described_are_left_out_of_all(world):
    async with guarded(world) as one:
        await allow(one, acl(READ, GROUP, "g"))
        commit = messages.OffsetCommitRequest(
            group_id="g",
            topics=[
                messages.OffsetCommitRequestTopic(
                    name=name,
                    partitions=[
                        messages.OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
                    ],
                )
                for name in ("mine", "theirs")
            ],
        )
        refused = await ask(one, apis.OFFSET_COMMIT, commit, version=9)
        assert {topic.name: errors(topic) for topic in refused.topics} == {
            "mine": [NONE],
            "theirs": [REFUSED],
        }
        await ask(one, apis.OFFSET_COMMIT, commit, version=9, who=ADMIN)
        of_all = messages.OffsetFetchRequest(
            groups=[messages.OffsetFetchRequestGroup(group_id=each, topics=None) for each in "gh"]
        )
        response = await ask(one, apis.OFFSET_FETCH, of_all, version=9)
        told = {group.group_id: group for group in response.groups}
        assert [topic.name for topic in told["g"].topics] == ["mine"]
        assert told["h"].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        everything = await ask(one, apis.OFFSET_FETCH, of_all, version=9, who=ADMIN)
        assert len(everything.groups[0].topics) == 2


@pytest.mark.parametrize("version", [7, 9])
async def test_offsets_that_are_asked_for_by_name_are_refused_for_each_partition(world, version):
    async with guarded(world) as one:
        await allow(one, acl(READ, GROUP, "g"))
        topics = [
            messages.OffsetFetchRequestTopic(name=name, partition_indexes=[0, 1])
            for name in ("mine", "theirs")
        ]
        request = messages.OffsetFetchRequest(group_id="g", topics=topics)
        if version > 7:
            group = messages.OffsetFetchRequestGroup(group_id="g", topics=topics)
            request = messages.OffsetFetchRequest(groups=[group])
        response = await ask(one, apis.OFFSET_FETCH, request, version=version)
        told = response.topics if version == 7 else response.groups[0].topics
        assert {topic.name: errors(topic) for topic in told} == {
            "mine": [NONE, NONE],
            "theirs": [REFUSED, REFUSED],
        }


async def test_listings_leave_out_groups_that_may_not_be_described(world):
    async with guarded(world) as one:
        commit = messages.OffsetCommitRequest(
            topics=[
                messages.OffsetCommitRequestTopic(
                    name="mine",
                    partitions=[
                        messages.OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
                    ],
                )
            ]
        )
        for commit.group_id in ("g1", "h1"):
            await ask(one, apis.OFFSET_COMMIT, commit, version=9, who=ADMIN)

        async def listed():
            response = await ask(one, apis.LIST_GROUPS, messages.ListGroupsRequest())
            return [group.group_id for group in response.groups]

        assert await listed() == []
        await allow(one, acl(DESCRIBE, GROUP, "g", prefix=True))
        assert await listed() == ["g1"]
        await allow(one, acl(DESCRIBE, CLUSTER))
        assert sorted(await listed()) == ["g1", "h1"]


async def test_partitions_of_a_transaction_are_added_all_or_none(world):
    async with guarded(world) as one:
        await allow(one, acl(WRITE, TRANSACTIONAL_ID, "pay"))
        request = messages.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="pay",
            v3_and_below_topics=[
                messages.AddPartitionsToTxnTopic(name=name, partitions=[0])
                for name in ("mine", "theirs", "nowhere")
            ],
        )
        response = await ask(one, apis.ADD_PARTITIONS_TO_TXN, request)
        told = {row.name: errors(row) for row in response.results_by_topic_v3_and_below}
        assert told == {
            "mine": [ErrorCode.OPERATION_NOT_ATTEMPTED],
            "theirs": [REFUSED],
            "nowhere": [REFUSED],
        }


async def test_transactional_ids_and_their_topics_are_told_to_whom_may_describe_them(world):
    async with guarded(world) as one:
        client = connect(one, ADMIN)
        begun = await client.call(
            apis.INIT_PRODUCER_ID,
            4,
            messages.InitProducerIdRequest(
                transactional_id="pay",
                transaction_timeout_ms=60_000,
                producer_id=-1,
                producer_epoch=-1,
            ),
        )
        added = messages.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="pay",
            v3_and_below_producer_id=begun.producer_id,
            v3_and_below_producer_epoch=begun.producer_epoch,
            v3_and_below_topics=[
                messages.AddPartitionsToTxnTopic(name=name, partitions=[0])
                for name in ("mine", "theirs")
            ],
        )
        await client.call(apis.ADD_PARTITIONS_TO_TXN, 3, added)

        async def told():
            listed = await ask(one, apis.LIST_TRANSACTIONS, messages.ListTransactionsRequest())
            asked = messages.DescribeTransactionsRequest(transactional_ids=["pay"])
            (state,) = (await ask(one, apis.DESCRIBE_TRANSACTIONS, asked)).transaction_states
            ids = [each.transactional_id for each in listed.transaction_states]
            return ids, state.error_code, [topic.topic for topic in state.topics]

        assert await told() == ([], ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, [])
        await allow(one, acl(DESCRIBE, TRANSACTIONAL_ID, "pay"))
        assert await told() == (["pay"], NONE, ["mine"])


async def test_who_may_write_to_some_topic_may_be_an_idempotent_producer(world):
    async with guarded(world) as one:
        request = messages.InitProducerIdRequest(producer_id=-1, producer_epoch=-1)
        request.transactional_id = None
        assert (await ask(one, apis.INIT_PRODUCER_ID, request)).error_code == NONE
        await withdraw(one, acl(WRITE, name="mine"))
        refused = await ask(one, apis.INIT_PRODUCER_ID, request)
        assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        await allow(one, acl(Operation.IDEMPOTENT_WRITE, CLUSTER))
        assert (await ask(one, apis.INIT_PRODUCER_ID, request)).error_code == NONE


def heartbeat(**fields) -> messages.ConsumerGroupHeartbeatRequest:
    given = {"group_id": "g", "member_id": "m", "member_epoch": 0, "rebalance_timeout_ms": 60_000}
    return messages.ConsumerGroupHeartbeatRequest(**(given | {"topic_partitions": []} | fields))


async def test_a_member_subscribes_by_name_only_to_what_it_may_describe(world):
    async with guarded(world) as one:
        request = heartbeat(subscribed_topic_names=["mine", "theirs"])
        response = await ask(one, apis.CONSUMER_GROUP_HEARTBEAT, request)
        assert response.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        await allow(one, acl(READ, GROUP, "g"))
        assert (await ask(one, apis.CONSUMER_GROUP_HEARTBEAT, request)).error_code == REFUSED
        request.subscribed_topic_names = ["mine"]
        assert (await ask(one, apis.CONSUMER_GROUP_HEARTBEAT, request)).error_code == NONE


async def test_an_expression_matches_what_may_be_described_and_sees_a_change(world):
    async with guarded(world) as one:
        await allow(one, acl(READ, GROUP, "g"))
        mine, theirs = (one.machine.topics.by_name(name).topic_id for name in ("mine", "theirs"))
        client = connect(one)

        async def assigned(request) -> set:
            response = await client.call(apis.CONSUMER_GROUP_HEARTBEAT, 1, request)
            assert response.error_code == NONE
            request.member_epoch = response.member_epoch
            request.subscribed_topic_regex = request.topic_partitions = None
            request.rebalance_timeout_ms = -1
            partitions = response.assignment and response.assignment.topic_partitions
            return {row.topic_id for row in partitions or []}

        request = heartbeat(subscribed_topic_regex=".*", subscribed_topic_names=None)
        assert await assigned(request) == {mine}
        await allow(one, acl(DESCRIBE, name="theirs"))
        await asyncio.sleep(2)
        assert await assigned(request) == {mine, theirs}


async def test_when_rights_change_those_to_many_topics_are_decided_in_slices(world, monkeypatch):
    decided: list[str] = []
    most = 0
    decide = Authorizer._decide

    def counted(self, requester, operation, resource_type, name):
        decided.append(name)
        return decide(self, requester, operation, resource_type, name)

    async def look():
        nonlocal most
        while True:
            most = max(most, len(decided))
            decided.clear()
            await asyncio.sleep(0.0005)

    async with guarded(world) as one:
        names = [f"topic-{number}" for number in range(3 * SLICE_ELEMENTS)]
        await ask(
            one, apis.CREATE_TOPICS, requests.create_topics(dict.fromkeys(names, 1)), who=ADMIN
        )
        await allow(one, acl(READ, GROUP, "g"))
        client = connect(one)
        request = heartbeat(subscribed_topic_regex="topic.*", subscribed_topic_names=None)
        response = await client.call(apis.CONSUMER_GROUP_HEARTBEAT, 1, request)
        steady = heartbeat(
            member_epoch=response.member_epoch, rebalance_timeout_ms=-1, topic_partitions=None
        )
        await allow(one, acl(DESCRIBE, name="topic", prefix=True))
        monkeypatch.setattr(Authorizer, "_decide", counted)
        looks = asyncio.create_task(look())
        response = await client.call(apis.CONSUMER_GROUP_HEARTBEAT, 1, steady)
        looks.cancel()
        assert response.error_code == NONE
        assert 0 < most <= SLICE_ELEMENTS + 10


async def test_a_group_with_topics_that_may_not_be_described_is_not_described(world):
    async with guarded(world) as one:
        await allow(one, acl(DESCRIBE, GROUP, "g"))
        client = connect(one, ADMIN)
        request = heartbeat(subscribed_topic_names=["mine", "theirs"])
        await client.call(apis.CONSUMER_GROUP_HEARTBEAT, 1, request)
        asked = messages.ConsumerGroupDescribeRequest(
            group_ids=["g", "h"], include_authorized_operations=True
        )
        response = await ask(one, apis.CONSUMER_GROUP_DESCRIBE, asked)
        told = {group.group_id: group for group in response.groups}
        assert (told["g"].error_code, told["g"].members) == (REFUSED, [])
        assert told["h"].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        await allow(one, acl(DESCRIBE, name="theirs"))
        (group,) = [
            each
            for each in (await ask(one, apis.CONSUMER_GROUP_DESCRIBE, asked)).groups
            if each.group_id == "g"
        ]
        assert (group.error_code, len(group.members)) == (NONE, 1)
        assert group.authorized_operations == 1 << DESCRIBE


async def test_a_member_hears_with_its_next_heartbeat_that_the_right_was_withdrawn(world):
    async with guarded(world) as one:
        await allow(one, acl(READ, GROUP, "g"))
        beat = messages.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        client = connect(one)
        before = (await client.call(apis.HEARTBEAT, 4, beat)).error_code
        assert before == ErrorCode.UNKNOWN_MEMBER_ID
        await withdraw(one, acl(READ, GROUP, "g"))
        after = (await client.call(apis.HEARTBEAT, 4, beat)).error_code
        assert after == ErrorCode.GROUP_AUTHORIZATION_FAILED


async def test_rights_are_those_of_the_host_that_asks(world):
    async with guarded(world) as one:
        await allow(one, acl(READ, name="mine", host=BOB.host, deny=True))
        request = requests.fetch({("mine", 0): 0})
        assert produced(await ask(one, apis.FETCH, request, version=12)) == {"mine": REFUSED}


async def test_the_audit_tells_of_refusals_and_of_what_an_administrator_changes(world, caplog):
    caplog.set_level(logging.INFO, logger="frazil.audit")
    async with guarded(world) as one:
        await ask(one, apis.CREATE_TOPICS, requests.create_topics({"new": 1}))
        await ask(one, apis.CREATE_TOPICS, requests.create_topics({"new": 1}), who=ADMIN)
        await ask(one, apis.CREATE_TOPICS, requests.create_topics({"new": 1}), who=ADMIN)
        await ask(one, apis.METADATA, metadata("theirs", "nowhere"))
    lines = [json.loads(each.message) for each in caplog.records if each.name == "frazil.audit"]
    told = [(line["event"], line["principal"], line["host"], line["api"]) for line in lines]
    assert told == [
        ("refused", "User:bob", "10.0.0.2", "CreateTopics"),
        ("change", "User:bob", "10.0.0.2", "CreateTopics"),
        ("change", "User:admin", "10.0.0.1", "CreateTopics"),
        ("change", "User:admin", "10.0.0.1", "CreateTopics"),
        ("refused", "User:bob", "10.0.0.2", "Metadata"),
        ("refused", "User:bob", "10.0.0.2", "Metadata"),
    ]
    assert [line.get("errors") for line in lines[1:4]] == [
        ["TOPIC_AUTHORIZATION_FAILED"],
        [],
        ["TOPIC_ALREADY_EXISTS"],
    ]
    assert lines[1]["names"] == ["new"]
    assert (lines[4]["operation"], lines[4]["resource"]) == ("DESCRIBE", "TOPIC")


async def test_without_an_authorizer_everybody_may_do_everything(world):
    async with world.agents("one") as (one,):
        await one.create_topic("theirs")
        response = await ask(one, apis.METADATA, metadata("theirs", operations=True), version=10)
        assert codes(response) == {"theirs": NONE}
        assert response.topics[0].topic_authorized_operations == 0b1101_1111_1000
