"""Agents with a topic, and clients of theirs, for tests of `frazil topic` and of project files."""

import contextlib
from collections.abc import AsyncGenerator

from broker.cli.kafka_client import Address, KafkaClient
from protocol import apis
from protocol.messages import CreatableTopic, CreateTopicsRequest
from tests.broker.agents import serving
from tests.kit.sockets import Running, SocketClient


@contextlib.asynccontextmanager
async def with_topic(partitions: int = 1) -> AsyncGenerator[tuple[Running, int], None]:
    """An agent with a topic, which has three records in its first partition; their bytes."""
    async with serving() as running:
        client = await running.connect()
        await create(client, "t", partitions)
        await client.produce("t", [b"a", b"b"])
        await client.produce("t", [b"c"])
        _, plan = await running.http("GET", "/export/plan?topic=t")
        yield running, sum([span[2] for span in plan["partitions"][0]["spans"]])


async def create(client: SocketClient, name: str, partitions: int = 1) -> None:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=5000)
    (row,) = (await client.call(apis.CREATE_TOPICS, 5, request)).topics
    assert row.error_code == 0


@contextlib.asynccontextmanager
async def client_of(running: Running) -> AsyncGenerator[KafkaClient, None]:
    async with KafkaClient([Address("127.0.0.1", running.port)], timeout_ms=10_000) as client:
        yield client
