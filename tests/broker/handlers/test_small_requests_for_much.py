"""Small requests whose answers, or whose work, would be thousands of times larger."""

import pytest

from broker.calls import slices
from broker.calls.outcomes import RequestedChange
from broker.handlers import write_txn_markers
from broker.handlers.alter_configs import Alteration
from broker.handlers.delete_topics import _TopicDeletion
from broker.transactions import views
from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterPartitionReassignmentsRequest,
    ConsumerGroupHeartbeatRequest,
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeProducersRequest,
    DescribeProducersTopic,
    DescribeTransactionsRequest,
    ElectLeadersRequest,
    ElectLeadersTopicPartitions,
    ListTransactionsRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    ReassignablePartition,
    ReassignableTopic,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from protocol.records import Record, build_batch
from tests.broker.groups.members import put
from tests.broker.groups.world import agents
from tests.broker.transactions.by_log import add, init

LONG = "x" * 30_000
"""A group id."""
SLOW = "(.?){300}x"
"""An expression that takes long."""


@pytest.fixture
def turns(monkeypatch) -> list:
    """The calls whose turns there were."""
    seen = []
    turn = slices.Slices.turn

    async def noted(self, call) -> None:
        seen.append(call)
        await turn(self, call)

    monkeypatch.setattr(slices.Slices, "turn", noted)
    return seen


@pytest.mark.promise("P15")
async def test_an_offset_is_told_once_however_often_it_is_asked_for():
    async with agents() as (one,):
        await put(one, "g", {"logs": {0: (7, 3, "m" * 4_000), 1: 9}})
        twice = OffsetFetchRequestTopic(name="logs", partition_indexes=[0, 0, 1])
        group = OffsetFetchRequestGroup(group_id="g", topics=[twice, twice])
        request = OffsetFetchRequest(groups=[group, group])
        told = (await one.call(apis.OFFSET_FETCH, request, version=8)).groups
        rows = [row for each in told for topic in each.topics for row in topic.partitions]
        assert [(row.partition_index, row.committed_offset) for row in rows] == [(0, 7), (1, 9)]


@pytest.mark.promise("P15")
async def test_a_partitions_producers_are_told_once_however_often_it_is_named(world):
    async with world.agents("one") as (one,):
        await one.create_topic("logs", 2)
        batch = build_batch([Record(timestamp=1)], producer_id=1, producer_epoch=0, base_sequence=0)
        await one.produce("logs", batch)
        topic = DescribeProducersTopic(name="logs", partition_indexes=[0, 0])
        request = DescribeProducersRequest(topics=[topic, topic])
        told = (await one.call(apis.DESCRIBE_PRODUCERS, request)).topics
        assert [len(topic.partitions) for topic in told] == [1, 0]
        assert len(told[0].partitions[0].active_producers) == 1


@pytest.mark.promise("P15")
async def test_a_resource_is_described_once_with_all_that_is_asked_of_it(world):
    async with world.with_topic() as (one,):

        def asked(*keys: str) -> DescribeConfigsResource:
            return DescribeConfigsResource(
                resource_type=2, resource_name="logs", configuration_keys=list(keys)
            )

        some = [asked("retention.ms"), asked("segment.ms"), asked("retention.ms")]
        (told,) = (
            await one.call(apis.DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=some))
        ).results
        assert [row.name for row in told.configs] == ["retention.ms", "segment.ms"]
        request = DescribeConfigsRequest(resources=[*some, asked()])
        (told,) = (await one.call(apis.DESCRIBE_CONFIGS, request)).results
        assert len(told.configs) > 30, "no keys mean all"


@pytest.mark.promise("P15")
async def test_group_ids_of_a_transaction_are_hashed_once_for_all_partitions_of_a_request(
    world, monkeypatch, turns
):
    hashed = []
    known = views.offsets_partition

    def counted(group_id: str) -> int:
        hashed.append(group_id)
        return known(group_id)

    monkeypatch.setattr(views, "offsets_partition", counted)
    monkeypatch.setattr(write_txn_markers, "offsets_partition", counted)
    group_ids = [f"{LONG}{number}" for number in range(5)]
    async with world.agents("one") as (one,):
        producer = await init(one, "pay")
        for group_id in group_ids:
            await add(one, "pay", producer, group_ids=[group_id])
        there = {known(group_id) for group_id in group_ids}
        elsewhere = next(number for number in range(50) if number not in there)
        topic = WritableTxnMarkerTopic(
            name=views.OFFSETS_TOPIC, partition_indexes=[elsewhere] * 300
        )
        marker = WritableTxnMarker(
            producer_id=producer[0], producer_epoch=producer[1], topics=[topic]
        )
        request = WriteTxnMarkersRequest(markers=[marker, marker])
        told = await one.call(apis.WRITE_TXN_MARKERS, request)
        codes = {row.error_code for each in told.markers for row in each.topics[0].partitions}
        assert codes == {ErrorCode.NONE}
        assert sorted(hashed) == sorted(group_ids)
        assert len(turns) >= len(group_ids), "each is as long as a slice"


@pytest.mark.promise("P15")
async def test_a_transaction_of_long_group_ids_is_described_in_slices(world, turns):
    async with world.agents("one") as (one,):
        producer = await init(one, "pay")
        for number in range(5):
            await add(one, "pay", producer, group_ids=[f"{LONG}{number}"])
        request = DescribeTransactionsRequest(transactional_ids=["pay"])
        (told,) = (await one.call(apis.DESCRIBE_TRANSACTIONS, request)).transaction_states
        assert told.topics[0].topic == views.OFFSETS_TOPIC
        assert len(turns) >= 5


@pytest.mark.promise("P15")
async def test_long_ids_are_matched_with_an_expression_in_slices(world, turns):
    async with world.agents("one") as (one,):
        for number in range(5):
            await init(one, f"{'x' * 8_000}{number}")
        request = ListTransactionsRequest(transactional_id_pattern=SLOW)
        told = await one.call(apis.LIST_TRANSACTIONS, request, version=2)
        assert told.error_code == ErrorCode.NONE
        assert len(turns) >= 5


def joins(group_id: str, member_id: str, **subscription) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        topic_partitions=[],
        **subscription,
    )


@pytest.mark.promise("P15")
async def test_an_expression_is_matched_with_many_topics_in_slices(turns):
    async with agents() as (one,):
        for number in range(120):
            await one.create_topic("t".ljust(245, "-") + f"{number:04}")
        request = joins("g", "m", subscribed_topic_regex="(.?){300}x|logs")
        told = await one.call(apis.CONSUMER_GROUP_HEARTBEAT, request, version=1)
        assert told.error_code == ErrorCode.NONE
        assert [len(each.partitions) for each in told.assignment.topic_partitions] == [4]
        assert len(turns) >= 20


async def test_what_is_no_expression_is_refused_by_the_group_however_many_topics_there_are():
    async with agents() as (one,):
        for number in range(120):
            await one.create_topic(f"t{number}")
        request = joins("g", "m", subscribed_topic_regex="(")
        told = await one.call(apis.CONSUMER_GROUP_HEARTBEAT, request, version=1)
        assert told.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.promise("P15")
async def test_a_member_that_names_more_topics_than_fit_into_the_log_is_refused_at_once():
    async with agents() as (one,):
        request = joins("g", "m", subscribed_topic_names=[f"t{n}" for n in range(25_001)])
        told = await one.call(apis.CONSUMER_GROUP_HEARTBEAT, request, version=1)
        assert told.error_code == ErrorCode.INVALID_REQUEST
        assert "at most 25000" in told.error_message


@pytest.mark.promise("P15")
async def test_a_long_name_that_no_topic_has_is_not_told_again_for_each_partition():
    """Nor is the sentence longer than what old clients can be told."""
    name = "x" * 32_767
    elected = ElectLeadersTopicPartitions(topic=name, partitions=[0, 1])
    moved = [ReassignablePartition(partition_index=each) for each in (0, 1)]
    async with agents() as (one,):
        request = ElectLeadersRequest(topic_partitions=[elected])
        (row,) = (await one.call(apis.ELECT_LEADERS, request, version=1)).replica_election_results
        told = [each.error_message for each in row.partition_result]
        reassigned = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=name, partitions=moved)]
        )
        answer = await one.call(apis.ALTER_PARTITION_REASSIGNMENTS, reassigned, version=1)
        told += [each.error_message for each in answer.responses[0].partitions]
        made = CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)]
        )
        told += [(await one.call(apis.CREATE_TOPICS, made, version=4)).topics[0].error_message]
        assert len(told) == 5
        assert all(each and len(each) < 200 for each in told)


MANY = [f"topic-{number}" for number in range(5_000)]
CHANGES = [
    pytest.param(
        apis.ALTER_CONFIGS,
        Alteration,
        AlterConfigsRequest(
            resources=[AlterConfigsResource(resource_type=2, resource_name=name) for name in MANY]
        ),
        id="AlterConfigs",
    ),
    pytest.param(
        apis.CREATE_PARTITIONS,
        RequestedChange,
        CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=2, assignments=None) for name in MANY],
            timeout_ms=1_000,
        ),
        id="CreatePartitions",
    ),
    pytest.param(
        apis.DELETE_TOPICS,
        _TopicDeletion,
        DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name) for name in MANY], timeout_ms=1_000
        ),
        id="DeleteTopics",
    ),
]


@pytest.mark.parametrize(("key", "change", "request_"), CHANGES)
async def test_changes_of_very_many_topics_are_taken_apart_in_slices(
    world, monkeypatch, key, change, request_
):
    """From the first step on: an object of each before the first pause held the loop up for long."""
    in_slices = [0]
    make, turn = change.__init__, slices.Slices.turn

    def counted(self, **fields):
        in_slices[-1] += 1
        make(self, **fields)

    async def noted(self, call) -> None:
        await turn(self, call)
        in_slices.append(0)

    async with world.agents("one") as (one,):
        monkeypatch.setattr(change, "__init__", counted)
        monkeypatch.setattr(slices.Slices, "turn", noted)
        told = await one.call(key, request_)
    rows = getattr(told, "results", None) or told.responses
    assert {row.error_code for row in rows} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert len(rows) == sum(in_slices) == len(MANY)
    assert max(in_slices) <= slices.SLICE_ELEMENTS
