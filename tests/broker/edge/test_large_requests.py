"""What honest clients with ten thousand partitions send is served, by its budget and in its order."""

import asyncio

import pytest

from broker.calls.slices import SLICE_ELEMENTS
from protocol import apis, messages
from protocol.messages.budgets import ELEMENTS_MAX
from tests.broker.edge.test_long_requests import counted
from tests.kit import requests
from tests.kit.batches import batch

MANY = 10_000


async def test_ten_thousand_partitions_are_listed(world):
    async with world.agents("one") as (one,):
        await one.create_topic("t", MANY)
        topic = messages.ListOffsetsTopic(
            name="t",
            partitions=[
                messages.ListOffsetsPartition(partition_index=index, timestamp=-1)
                for index in range(MANY)
            ],
        )
        request = messages.ListOffsetsRequest(replica_id=-1, topics=[topic])
        answer = await one.call(apis.LIST_OFFSETS, request, version=9)
        rows = answer.topics[0].partitions
        assert len(rows) == MANY
        assert not any(row.error_code for row in rows)


async def test_offsets_of_ten_thousand_partitions_are_committed_and_fetched(world, monkeypatch):
    async with world.agents("one") as (one,):
        await one.create_topic("t", MANY)
        turns = counted(monkeypatch)
        committed = messages.OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=-1,
            topics=[
                messages.OffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        messages.OffsetCommitRequestPartition(
                            partition_index=index, committed_offset=index, committed_leader_epoch=-1
                        )
                        for index in range(MANY)
                    ],
                )
            ],
        )
        answer = await one.call(apis.OFFSET_COMMIT, committed, version=8)
        assert {row.error_code for row in answer.topics[0].partitions} == {0}
        assert len(answer.topics[0].partitions) == MANY
        for partitions in (list(range(MANY)), None):
            turns.clear()
            topics = None
            if partitions is not None:
                topics = [messages.OffsetFetchRequestTopic(name="t", partition_indexes=partitions)]
            group = messages.OffsetFetchRequestGroup(group_id="g", topics=topics)
            fetched = await one.call(
                apis.OFFSET_FETCH, messages.OffsetFetchRequest(groups=[group]), version=8
            )
            (told,) = fetched.groups[0].topics
            assert {row.partition_index: row.committed_offset for row in told.partitions} == {
                index: index for index in range(MANY)
            }
            assert len(turns) >= MANY // SLICE_ELEMENTS


async def test_ten_thousand_topics_are_described(world):
    async with world.agents("one") as (one,):
        for index in range(20):
            await one.create_topic(f"topic-{index}", 500)
        names = [f"topic-{index}" for index in range(MANY)]
        asked = messages.MetadataRequest(
            topics=[messages.MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=False,
        )
        answer = await one.call(apis.METADATA, asked, version=12)
        assert [topic.name for topic in answer.topics] == names
        assert sum(len(topic.partitions) for topic in answer.topics) == MANY


async def test_ten_thousand_partitions_are_produced_to(world):
    async with world.agents("one") as (one,):
        await one.create_topic("t", MANY)
        one_batch = batch()
        request = requests.produce(
            {("t", index): one_batch for index in range(MANY)}, timeout_ms=30_000
        )
        answer = await one.call(apis.PRODUCE, request, version=9)
        rows = requests.rows_of(answer)
        assert len(rows) == MANY
        assert {row.error_code for row in rows.values()} == {0}


async def test_a_produce_over_its_budget_ends_its_connection(world):
    async with world.agents("one") as (one,):
        count = ELEMENTS_MAX[apis.PRODUCE]
        request = requests.produce({("t", index): b"" for index in range(count)}, timeout_ms=1)
        client = one.connect()
        client.send(apis.PRODUCE, 9, request)
        assert client.closed


@pytest.mark.parametrize(
    ("key", "version", "request_of", "rows_of"),
    [
        pytest.param(
            apis.DESCRIBE_GROUPS,
            5,
            lambda: messages.DescribeGroupsRequest(groups=["g"] * 100),
            lambda answer: answer.groups,
            id="DescribeGroups",
        ),
        pytest.param(
            apis.DESCRIBE_CONFIGS,
            4,
            lambda: messages.DescribeConfigsRequest(
                resources=[
                    messages.DescribeConfigsResource(
                        resource_type=2, resource_name="t", configuration_keys=None
                    )
                ]
                * 100
            ),
            lambda answer: answer.results,
            id="DescribeConfigs",
        ),
        pytest.param(
            apis.DESCRIBE_PRODUCERS,
            0,
            lambda: messages.DescribeProducersRequest(
                topics=[messages.DescribeProducersTopic(name="t", partition_indexes=[0] * 100)]
            ),
            lambda answer: answer.topics[0].partitions,
            id="DescribeProducers",
        ),
        pytest.param(
            apis.OFFSET_FETCH,
            8,
            lambda: messages.OffsetFetchRequest(
                groups=[messages.OffsetFetchRequestGroup(group_id="g", topics=None)] * 100
            ),
            lambda answer: answer.groups,
            id="OffsetFetch",
        ),
    ],
)
async def test_what_is_asked_for_many_times_is_told_once(key, version, request_of, rows_of, world):
    async with world.agents("one") as (one,):
        await one.create_topic("t")
        answer = await one.call(key, request_of(), version=version)
        assert len(rows_of(answer)) == 1


async def test_answers_that_nobody_reads_are_not_made_one_after_the_other(world):
    """64 pipelined requests for all topics: at most one answer waits beside a full buffer."""
    async with world.agents("one") as (one,):
        for index in range(20):
            await one.create_topic(f"topic-{index}", 1_000)
        client = one.connect()
        client.transport.stuck = True
        for _ in range(64):
            client.send(apis.METADATA, 12, messages.MetadataRequest(topics=None))
        await asyncio.sleep(5)
        waiting = client.transport.get_write_buffer_size()
        whole = len(max(client.transport.writes, key=len))
        assert waiting <= 2 * whole
