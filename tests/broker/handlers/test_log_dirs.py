"""DescribeLogDirs: every partition's bytes, told by one agent."""

import pytest

from broker.handlers import describe_log_dirs
from broker.handlers.describe_log_dirs import log_dir
from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from tests.kit.batches import batch
from tests.kit.client import caught_up

ALL = DescribeLogDirsRequest(topics=None)


def some(name: str, *partitions: int) -> DescribeLogDirsRequest:
    topic = DescribableLogDirTopic(topic=name, partitions=list(partitions))
    return DescribeLogDirsRequest(topics=[topic])


async def sizes(agent, request=ALL, **more) -> dict[tuple[str, int], int]:
    """By topic and partition, as one agent tells."""
    (result,) = (await agent.call(apis.DESCRIBE_LOG_DIRS, request, **more)).results
    assert result.error_code == 0
    assert all(topic.partitions for topic in result.topics)
    rows = [
        ((topic.name, row.partition_index), row.partition_size)
        for topic in result.topics
        for row in topic.partitions
    ]
    assert len(rows) == len(dict(rows)), "each once"
    return dict(rows)


@pytest.mark.parametrize("version", range(1, 6))
async def test_bytes_are_those_of_the_batches_in_every_version(version, world):
    async with world.with_topic(partitions=2) as (one,):
        first, second = batch(b"a" * 100), batch(b"b")
        await one.produce("logs", first)
        await one.produce("logs", second)
        answer = await one.call(apis.DESCRIBE_LOG_DIRS, ALL, version=version)
        (result,) = answer.results
        assert (answer.error_code, result.error_code) == (0, 0)
        assert result.log_dir == one.node.settings.store_url
        (topic,) = result.topics
        rows = [(row.partition_index, row.partition_size) for row in topic.partitions]
        assert rows == [(0, len(first) + len(second)), (1, 0)]
        assert {(row.offset_lag, row.is_future_key) for row in topic.partitions} == {(0, False)}
        assert (result.total_bytes, result.usable_bytes) == (-1, -1)
        assert not result.is_cordoned


async def test_only_what_is_asked_for_and_is_there_is_told(world):
    async with world.with_topic(partitions=3) as (one,):
        await one.create_topic("more")
        assert set(await sizes(one, some("logs", 2, 0, 2, 9))) == {("logs", 0), ("logs", 2)}
        assert await sizes(one, some("nothing", 0)) == {}
        assert set(await sizes(one)) == {("logs", 0), ("logs", 1), ("logs", 2), ("more", 0)}


@pytest.mark.parametrize("client_id", ["tool", "tool,zone=a", "tool,zone=b"])
async def test_every_partition_is_told_by_the_agent_that_its_client_is_named_as_leader(
    client_id, world
):
    async with world.agents("one@a", "two@b", "three@a") as agents:
        one = agents[0]
        await one.create_topic("logs", 40)
        await one.produce("logs", batch(b"x"), partition=3)
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="logs")])
        metadata = await one.call(apis.METADATA, asked, client_id=client_id)
        leaders = {
            ("logs", row.partition_index): row.leader_id for row in metadata.topics[0].partitions
        }
        told = {
            place: agent.node_id
            for agent in agents
            for place in await sizes(agent, client_id=client_id)
        }
        assert told == leaders
        assert sum([len(await sizes(agent, client_id=client_id)) for agent in agents]) == 40


async def test_many_partitions_take_several_turns_of_the_loop(monkeypatch, world):
    monkeypatch.setattr(describe_log_dirs, "PARTITIONS_PER_TURN_MAX", 4)

    async with world.agents("one") as (one,):
        for name, partitions in (("a", 3), ("b", 9), ("c", 1)):
            await one.create_topic(name, partitions)
        assert len(await sizes(one)) == 13


@pytest.mark.promise("P8")
async def test_a_lagging_agent_tells_of_what_another_agent_has_acknowledged(world):
    async with world.agents("one", "lagging") as (one, lagging):
        lagging.lag()
        topic = await one.create_topic("logs", 8)
        for partition in range(topic.partition_count):
            await one.produce("logs", batch(b"x"), partition=partition)
        told = await caught_up(lagging, sizes(lagging))
        assert set(told.values()) == {len(batch(b"x"))}


@pytest.mark.parametrize("version", [1, 2, 3, 5])
async def test_without_the_log_the_error_is_told_where_the_version_has_a_place_for_it(
    version, world
):
    async with world.agents("one") as (one,):
        await one.lose_session()
        answer = await one.call(apis.DESCRIBE_LOG_DIRS, ALL, version=version)
        codes = [answer.error_code, *(result.error_code for result in answer.results)]
        timed_out = ErrorCode.REQUEST_TIMED_OUT
        assert codes == ([timed_out] if version >= 3 else [0, timed_out])


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("s3://bucket/prefix", "s3://bucket/prefix"),
        ("s3://key:secret@bucket/prefix?token=x#y", "s3://bucket/prefix"),
        ("file:///var/lib/frazil", "file:///var/lib/frazil"),
        ("memory://", "memory://"),
    ],
)
def test_the_dir_is_named_after_the_store_without_its_secrets(url, name):
    assert log_dir(url) == name
