"""Metadata: who is there, which agent to use, names that are not found (P8), auto-creation."""

import asyncio

import pytest

from coordinator.commands.entries import DeleteTopic
from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import MetadataRequest, MetadataRequestTopic
from tests.kit.client import caught_up


def wanted(*names: str, create: bool = False, **more) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=create,
        **more,
    )


async def test_all_live_agents_are_named_with_the_addresses_of_the_clients_listener(world):
    async with world.agents("one@a", "two@b") as (one, two):
        answer = await one.connect("OUTSIDE").call(apis.METADATA, 13, wanted())
        rows = {row.node_id: (row.host, row.port, row.rack) for row in answer.brokers}
        assert rows == {
            one.node_id: ("one.example", 19092, "a"),
            two.node_id: ("two.example", 19092, "b"),
        }
        assert answer.cluster_id == one.node.settings.cluster_id
        assert answer.controller_id == one.node_id


@pytest.mark.parametrize("version", range(14))
async def test_a_topic_is_described_in_every_version(version, world):
    async with world.agents("one") as (one,):
        topic = await one.create_topic("logs", 3)
        answer = await one.call(apis.METADATA, wanted("logs"), version=version)
        (row,) = answer.topics
        assert (row.error_code, row.name) == (0, "logs")
        assert [each.partition_index for each in row.partitions] == [0, 1, 2]
        assert {each.leader_id for each in row.partitions} == {one.node_id}
        if version >= 7:
            assert {each.leader_epoch for each in row.partitions} == {0}
        if version >= 10:
            assert row.topic_id == topic.topic_id


@pytest.mark.parametrize(("version", "topics"), [(0, []), (1, None), (13, None)])
async def test_all_topics_are_listed_when_none_is_named(version, topics, world):
    async with world.agents("one") as (one,):
        await one.create_topic("a")
        await one.create_topic("b")
        answer = await one.call(apis.METADATA, MetadataRequest(topics=topics), version=version)
        assert [row.name for row in answer.topics] == ["a", "b"]


async def test_no_topics_are_listed_when_an_empty_list_is_named(world):
    async with world.agents("one") as (one,):
        await one.create_topic("a")
        assert (await one.call(apis.METADATA, wanted(), version=1)).topics == []


async def test_a_topic_that_a_lagging_agent_does_not_know_yet_is_waited_for(world):
    """P8: another agent says that it is there."""
    async with world.agents("one", "lagging") as (one, lagging):
        lagging.lag()
        topic = await one.create_topic("fresh")
        by_id = MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic.topic_id)])
        asked = [lagging.call(apis.METADATA, each) for each in (wanted("fresh"), by_id)]
        for answer in await caught_up(lagging, asyncio.gather(*asked)):
            (row,) = answer.topics
            assert (row.error_code, row.name) == (0, "fresh")


async def test_a_topic_in_the_list_of_a_lagging_agent_is_waited_for(world):
    async with world.agents("one", "lagging") as (one, lagging):
        lagging.lag()
        await one.create_topic("fresh")
        asked = lagging.call(apis.METADATA, MetadataRequest(topics=None))
        answer = await caught_up(lagging, asked)
        assert [row.name for row in answer.topics] == ["fresh"]


@pytest.mark.promise("P8")
async def test_a_name_that_nobody_knows_is_unknown_only_behind_a_barrier(world):
    async with world.agents("one") as (one,):
        before = one.log_client.stats.barriers
        (row,) = (await one.call(apis.METADATA, wanted("nothing"))).topics
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert one.log_client.stats.barriers == before + 1


async def test_an_unknown_id_is_unknown(world):
    async with world.agents("one") as (one,):
        asked = MetadataRequest(topics=[MetadataRequestTopic(topic_id=bytes(15) + b"x")])
        (row,) = (await one.call(apis.METADATA, asked)).topics
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert row.topic_id == bytes(15) + b"x"


async def test_without_the_log_an_unknown_name_is_answered_with_a_retriable_error(world):
    async with world.agents("one") as (one,):
        await one.create_topic("known")
        await one.lose_session()
        answer = await one.call(apis.METADATA, wanted("nothing", "known", create=True))
        assert [row.error_code for row in answer.topics] == [ErrorCode.LEADER_NOT_AVAILABLE, 0]
        assert not one.machine.topics.by_name("nothing")


async def test_without_the_log_the_topics_that_are_known_are_still_listed(world):
    """P16."""
    async with world.agents("one") as (one,):
        await one.create_topic("known")
        await one.lose_session()
        answer = await one.call(apis.METADATA, MetadataRequest(topics=None))
        assert [row.name for row in answer.topics] == ["known"]


async def test_a_topic_that_may_be_created_is_created_and_described_at_once(world):
    async with world.agents("one", num_partitions="4") as (one,):
        (row,) = (await one.call(apis.METADATA, wanted("new", create=True))).topics
        assert (row.error_code, len(row.partitions)) == (0, 4)
        assert one.machine.topics.by_name("new").topic_id == row.topic_id


async def test_clients_that_ask_for_a_new_topic_at_once_create_it_once(world):
    async with world.agents("one", "two") as (one, two):
        peers = [agent.connect() for agent in (one, two) for _ in range(5)]
        for peer in peers:
            peer.send(apis.METADATA, 13, wanted("new", create=True))
        rows = [(await peer.answer()).topics[0] for peer in peers]
        assert {row.error_code for row in rows} == {0}
        assert len({row.topic_id for row in rows}) == 1
        for agent in (one, two):
            assert agent.node.stats.topics_auto_created <= 1, "one proposal for all who wait"
            assert not agent.node.creations


@pytest.mark.parametrize("changes", [{"auto_create_topics_enable": "false"}, {}])
async def test_a_topic_is_not_created_unless_client_and_agent_allow_it(changes, world):
    async with world.agents("one", **changes) as (one,):
        asked = wanted("new", create=bool(changes))
        (row,) = (await one.call(apis.METADATA, asked)).topics
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", ["", ".", "a b", "x" * 250])
async def test_a_name_that_no_topic_can_have_is_refused_without_a_barrier(name, world):
    async with world.agents("one") as (one,):
        before = one.log_client.stats.barriers
        (row,) = (await one.call(apis.METADATA, wanted(name, create=True))).topics
        assert row.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert one.log_client.stats.barriers == before


async def test_the_one_name_that_kafka_keeps_for_itself_is_not_created(world):
    async with world.agents("one") as (one,):
        (row,) = (await one.call(apis.METADATA, wanted("__cluster_metadata", create=True))).topics
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert one.machine.topics.by_name("__cluster_metadata") is None


async def test_a_name_that_collides_with_another_is_not_created(world):
    async with world.agents("one") as (one,):
        await one.create_topic("a.b")
        (row,) = (await one.call(apis.METADATA, wanted("a_b", create=True))).topics
        assert row.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.promise("P17")
async def test_a_request_from_before_a_stall_creates_no_topic(world):
    """P17."""
    async with world.agents("one") as (one,):
        peer = one.connect()
        one.node.boot_ms = lambda: world.boot_ms() + 5_000
        peer.send(apis.METADATA, 13, wanted("new", create=True))
        (row,) = (await peer.answer()).topics
        assert row.error_code == ErrorCode.LEADER_NOT_AVAILABLE
        peer.send(apis.METADATA, 13, wanted("new", create=True))
        (row,) = (await peer.answer()).topics
        assert row.error_code == 0


async def test_the_leader_is_an_agent_of_the_zone_that_the_client_id_names(world):
    async with world.with_topic("one@a", "two@a", "three@b", partitions=20) as (one, two, three):
        for client_id, zone in (("app,ws_az=b", [three]), ("app,zone=a", [one, two])):
            answer = await two.call(apis.METADATA, wanted("logs"), client_id=client_id)
            leaders = {row.leader_id for row in answer.topics[0].partitions}
            assert leaders == {agent.node_id for agent in zone}


async def test_all_agents_name_the_same_leaders(world):
    async with world.agents("one@a", "two@a", "three@b") as agents:
        await agents[0].create_topic("logs", 50)
        for agent in agents:
            await agent.log_client.barrier()
        answers = [await agent.call(apis.METADATA, wanted("logs")) for agent in agents]
        leaders = [[row.leader_id for row in each.topics[0].partitions] for each in answers]
        assert leaders[0] == leaders[1] == leaders[2]
        assert len(set(leaders[0])) == 3


async def test_an_agent_that_leaves_names_the_others_as_leaders(world):
    async with world.with_topic("one", "two", partitions=20) as (one, two):
        await one.call(apis.METADATA, wanted("logs"))
        one.node.leaving = True
        answer = await one.call(apis.METADATA, wanted("logs"))
        assert {row.leader_id for row in answer.topics[0].partitions} == {two.node_id}
        assert [row.node_id for row in answer.brokers] == [two.node_id]


async def test_a_deleted_topic_is_not_described_any_more(world):
    async with world.agents("one") as (one,):
        topic = await one.create_topic("logs")
        await one.call(apis.METADATA, wanted("logs"))
        await one.log_client.propose(DeleteTopic(topic.topic_id))
        (row,) = (await one.call(apis.METADATA, wanted("logs"))).topics
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        again = await one.create_topic("logs", 2)
        (row,) = (await one.call(apis.METADATA, wanted("logs"))).topics
        assert (row.topic_id, len(row.partitions)) == (again.topic_id, 2)


async def test_operations_are_told_only_when_asked_for(world):
    async with world.with_topic() as (one,):
        asked = wanted(
            "logs",
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=True,
        )
        told = await one.call(apis.METADATA, asked, version=10)
        silent = await one.call(apis.METADATA, wanted("logs"), version=10)
        assert told.topics[0].topic_authorized_operations == 3576
        assert told.cluster_authorized_operations == 8096
        assert silent.topics[0].topic_authorized_operations == -(1 << 31)
        assert silent.cluster_authorized_operations == -(1 << 31)
