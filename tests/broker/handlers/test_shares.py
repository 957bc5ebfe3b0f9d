"""What is bounded for the cluster: one client address gets nearly all, and another still gets one."""

import asyncio

import pytest

from broker import node
from broker.transactions import coordinator
from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    MetadataRequest,
    MetadataRequestTopic,
)
from tests.broker.groups.members import commit
from tests.broker.groups.world import until_served
from tests.broker.handlers.test_topics import create, delete, new
from tests.kit import requests
from tests.kit.agents import Agent
from tests.kit.client import Client
from tests.kit.faults import held

NEWEST = apis.APIS[apis.CREATE_TOPICS].max_version
GREEDY, OTHER = "10.0.0.1", "10.0.0.2"
REFUSED = ErrorCode.POLICY_VIOLATION


async def _create(agent: Agent, address: str, *topics, version: int = NEWEST) -> list[int]:
    client = agent.connect(address=address)
    answer = await client.call(apis.CREATE_TOPICS, version, create(*topics))
    return [row.error_code for row in answer.topics]


async def _grow(agent: Agent, address: str, name: str, count: int) -> int:
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count)], timeout_ms=10_000
    )
    answer = await agent.connect(address=address).call(apis.CREATE_PARTITIONS, 3, request)
    return answer.results[0].error_code


async def _look_up(agent: Agent, address: str, *names: str) -> list[int]:
    topics = [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=True)
    answer = await agent.connect(address=address).call(apis.METADATA, 9, request)
    return [row.error_code for row in answer.topics]


@pytest.fixture(autouse=True)
def _few_partitions(monkeypatch) -> None:
    monkeypatch.setattr(node, "PARTITIONS_MAX", 40)
    monkeypatch.setattr("coordinator.tables.topics.PARTITIONS_MAX", 40)


@pytest.mark.promise("P15")
async def test_one_client_with_nearly_all_partitions_gets_no_more_and_another_does(world):
    async with world.agents("one") as (one,):
        many = [new(f"t{at}", 2) for at in range(20)]
        assert await _create(one, GREEDY, *many) == [0] * 18 + [REFUSED] * 2
        assert await _create(one, GREEDY, new("more")) == [REFUSED]
        assert await _create(one, OTHER, new("other", 2)) == [0]


async def test_a_share_holds_for_topics_that_grow_and_those_made_by_asking(world):
    async with world.agents("one") as (one,):
        assert await _create(one, GREEDY, new("t", 30)) == [0]
        assert await _grow(one, GREEDY, "t", 37) == REFUSED
        assert await _grow(one, GREEDY, "t", 36) == 0
        assert await _look_up(one, GREEDY, "asked") == [ErrorCode.INVALID_PARTITIONS]
        assert await _look_up(one, OTHER, "asked", "also") == [0, 0]
        assert await _grow(one, OTHER, "t", 37) == 0


async def test_partitions_of_deleted_topics_count_no_more(world):
    async with world.agents("one") as (one,):
        assert await _create(one, GREEDY, new("t", 36)) == [0]
        assert await _create(one, GREEDY, new("more")) == [REFUSED]
        client = one.connect(address=GREEDY)
        await client.call(apis.DELETE_TOPICS, 6, delete("t"))
        assert await _create(one, GREEDY, new("more", 30)) == [0]


async def test_who_asks_for_topics_that_others_made_holds_none_of_them(world):
    async with world.agents("one") as (one,):
        assert await _create(one, OTHER, new("t", 36)) == [0]
        assert await _create(one, GREEDY, new("t", 36)) != [0]
        assert await _create(one, GREEDY, new("mine", 2)) == [0]


async def _init(agent: Agent, address: str, transactional_id: str) -> int:
    request = requests.init_producer_id(transactional_id)
    answer = await agent.connect(address=address).call(apis.INIT_PRODUCER_ID, 4, request)
    return answer.error_code


async def test_one_client_with_nearly_all_transactional_ids_gets_no_more_and_another_does(
    world, monkeypatch
):
    monkeypatch.setattr(coordinator, "TRANSACTIONAL_IDS_MAX", 20)
    async with world.agents("one") as (one,):
        codes = [await _init(one, GREEDY, f"id-{at}") for at in range(20)]
        assert codes == [0] * 18 + [REFUSED] * 2
        assert await _init(one, GREEDY, "id-0") == 0
        assert await _init(one, OTHER, "other") == 0


async def test_one_client_with_nearly_all_characters_of_ids_gets_no_more_and_another_does(
    world, monkeypatch
):
    monkeypatch.setattr(coordinator, "ID_SIZE_MAX", 200)
    async with world.agents("one") as (one,):
        assert await _init(one, GREEDY, "x" * 180) == 0
        assert await _init(one, GREEDY, "id") == REFUSED
        assert await _init(one, OTHER, "other") == 0


async def test_one_client_with_nearly_all_that_may_take_part_adds_no_more_and_another_does(
    world, monkeypatch
):
    monkeypatch.setattr(coordinator, "ALL_PARTICIPANTS_MAX", 20)
    async with world.with_topic("one", partitions=20) as (one,):
        greedy, producer = await _producer(one, GREEDY, "greedy")
        codes = [await _add(greedy, "greedy", producer, partition) for partition in range(20)]
        assert codes == [0] * 18 + [REFUSED] * 2
        other, producer = await _producer(one, OTHER, "other")
        assert await _add(other, "other", producer, 0) == 0


async def test_partitions_that_are_being_added_count_though_none_takes_part_yet(world, monkeypatch):
    monkeypatch.setattr(coordinator, "ALL_PARTICIPANTS_MAX", 20)
    async with world.with_topic("one", partitions=5) as (one,):
        producers = [await _producer(one, GREEDY, f"id-{at}") for at in range(4)]
        answered = asyncio.Event()
        one.log.before["append"] = held(answered)
        for at, (client, producer) in enumerate(producers):
            places = [("logs", partition) for partition in range(5)]
            client.send(
                apis.ADD_PARTITIONS_TO_TXN, 3, requests.add_partitions(f"id-{at}", producer, places)
            )
        await asyncio.sleep(0.1)
        answered.set()
        told = [requests.error_of(await client.answer()) for client, _ in producers]
        assert sorted(told) == [0, 0, 0, REFUSED]
        other, producer = await _producer(one, OTHER, "other")
        assert await _add(other, "other", producer, 0) == 0


async def _producer(
    agent: Agent, address: str, transactional_id: str
) -> tuple[Client, tuple[int, int]]:
    client = agent.connect(address=address)
    request = requests.init_producer_id(transactional_id, timeout_ms=60_000)
    answer = await client.call(apis.INIT_PRODUCER_ID, 4, request)
    return client, (answer.producer_id, answer.producer_epoch)


async def _add(
    client: Client, transactional_id: str, producer: tuple[int, int], partition: int
) -> int:
    request = requests.add_partitions(transactional_id, producer, [("logs", partition)])
    answer = await client.call(apis.ADD_PARTITIONS_TO_TXN, 3, request)
    return requests.error_of(answer)


@pytest.mark.promise("P15")
async def test_who_filled_the_log_is_told_to_come_again_and_another_is_served(world):
    async with world.with_topic("one", log_bytes_max="1MiB") as (one,):
        await until_served("g", one)

        async def put(address: str) -> int:
            request = commit("g", {"logs": {0: (1, -1, "x" * 2_000)}})
            answer = await one.connect(address=address).call(apis.OFFSET_COMMIT, 8, request)
            return requests.error_of(answer)

        codes = [await put(GREEDY) for _ in range(520)]
        filled = codes.count(0)
        again = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert codes == [0] * filled + [again] * (520 - filled)
        assert 0.85 < one.log_client.log_bytes / (1 << 20) < 0.95
        assert await put(OTHER) == 0


async def test_bytes_of_configs_are_shared_and_count_no_more_when_they_are_less(world, monkeypatch):
    monkeypatch.setattr(node, "CONFIG_BYTES_MAX", 2_000)
    name = "leader.replication.throttled.replicas"

    def replicas(count: int) -> str:
        return ",".join(["100:100"] * count)

    async def alter(address: str, topic: str, count: int) -> int:
        request = requests.alter_configs(topic, {name: replicas(count)})
        client = one.connect(address=address)
        return requests.error_of(await client.call(apis.INCREMENTAL_ALTER_CONFIGS, 1, request))

    async with world.agents("one") as (one,):
        configured = new("a", leader_replication_throttled_replicas=replicas(110))
        assert await _create(one, GREEDY, configured, new("b"), new("c")) == [0] * 3
        assert await alter(GREEDY, "b", 90) == 0
        assert await alter(GREEDY, "c", 20) == REFUSED
        assert await alter(OTHER, "c", 20) == 0
        assert await alter(GREEDY, "a", 1) == 0
        assert await alter(GREEDY, "c", 40) == 0
