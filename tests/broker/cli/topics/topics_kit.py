"""Agents with a topic, and clients of theirs, for tests of `frazil topic` and of project files."""

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Self

from broker.cli.kafka_client import Address, KafkaClient, PassingError
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


class Losing(KafkaClient):
    """Loses the first answer to requests of one API, or the first request itself."""

    _key = -1
    _is_sent = True
    _meanwhile: Callable[[], Awaitable[None]] | None = None

    @classmethod
    def answers_of(cls, running: Running, key: int) -> Self:
        """The request is carried out, and nobody hears of it."""
        client = cls([Address("127.0.0.1", running.port)], timeout_ms=10_000)
        client._key = key
        return client

    @classmethod
    def requests_of(
        cls, running: Running, key: int, meanwhile: Callable[[], Awaitable[None]]
    ) -> Self:
        """The request gets lost, and something happens instead."""
        client = cls.answers_of(running, key)
        client._is_sent, client._meanwhile = False, meanwhile
        return client

    async def ask(self, key, request, **how):
        if key != self._key:
            return await super().ask(key, request, **how)
        self._key = -1
        if self._is_sent:
            await super().ask(key, request, **how)
        if self._meanwhile is not None:
            await self._meanwhile()
        raise PassingError("the answer was lost")
