"""An agent in this process over memory adapters that can be sent away, and a bare Kafka client."""

import asyncio
import json
import random
import struct
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import aiohttp

from broker.agent import Agent, Parts
from broker.config.settings import Settings, load
from coordinator.log.memory import MemoryLog, MemoryLogCluster
from coordinator.log.metadata_log import LogUnavailableError
from protocol import apis, messages
from protocol.messages import CreatableTopic, CreateTopicsRequest, hot
from protocol.records import Record, build_batch
from storage.stores.memory import MemoryStore
from storage.stores.object_store import StoreUnavailableError


class Away:
    """Calls of a port that fail as long as `away` is set."""

    def __init__(self, inner: object, error: Exception) -> None:
        self.inner = inner
        self.error = error
        self.away = False
        self.failing: set[str] = set()
        """Calls that fail although the rest is there."""
        self.calls: list[str] = []

    def __getattr__(self, name: str):
        method = getattr(self.inner, name)
        if name == "tail":
            return self._tail

        async def call(*args, **kwargs):
            self.calls.append(name)
            if self.away or name in self.failing:
                await asyncio.sleep(0.01)
                raise self.error
            return await method(*args, **kwargs)

        return call

    async def _tail(self, after):
        async for batch in self.inner.tail(after):
            if self.away:
                raise self.error
            yield batch


class Place:
    """A cluster's store and log, in memory."""

    def __init__(self) -> None:
        self.cluster = MemoryLogCluster()
        self.objects = MemoryStore(lambda: time.time_ns() // 1_000_000)

    def store(self) -> Away:
        return Away(self.objects, StoreUnavailableError("the store is away"))

    def log(self) -> Away:
        return Away(MemoryLog(self.cluster), LogUnavailableError("the log is away"))


def settings_of(*flags: str) -> Settings:
    """Settings of a quick agent on free ports."""
    defaults = {
        "listen": "127.0.0.1:0",
        "http": "127.0.0.1:0",
        "store": "memory://",
        "log": "memory://",
        "node.name": "one",
        "lease.ttl.ms": "1500",
        "session.deadline.ms": "900",
        "session.read.ms": "300",
        "puts.per.second": "1000",
        "drain.ms": "2000",
    }
    return load(defaults=defaults, toml=None, environ={}, flags=flags).settings


class Running:
    """An agent that runs, its parts, and its admin endpoints."""

    def __init__(self, agent: Agent, store: Away, log: Away, task: asyncio.Task) -> None:
        self.agent = agent
        self.store = store
        self.log = log
        self.task = task
        self.clients: list[Client] = []

    async def connect(self) -> "Client":
        """A connection that is closed with the agent, if not before."""
        client = await Client.connect(self.port)
        client.refused_stale = lambda: self.agent.node.stats.refused_stale
        self.clients.append(client)
        return client

    @property
    def port(self) -> int:
        return self.agent.listening()["PLAINTEXT"][1]

    async def http(self, method: str, path: str, **kwargs) -> tuple[int, object]:
        """Status and JSON (or text) of the answer."""
        url = f"http://127.0.0.1:{self.agent.listening()['http'][1]}{path}"
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, **kwargs) as response,
        ):
            text = await response.text()
            is_json = response.content_type == "application/json"
            return response.status, json.loads(text) if is_json else text

    async def ready(self) -> bool:
        status, _ = await self.http("GET", "/health/ready")
        return status == 200

    async def until(self, *, ready: bool, seconds: float = 30.0) -> None:
        async with asyncio.timeout(seconds):
            while await self.ready() is not ready:
                assert not self.task.done(), self.task
                await asyncio.sleep(0.02)


@asynccontextmanager
async def agent_of(
    place: Place, *flags: str, store: Away | None = None, log: Away | None = None
) -> AsyncIterator[Running]:
    """An agent with open doors; killed at the end if it still runs."""
    store, log = store or place.store(), log or place.log()
    parts = Parts(
        store=store,
        log=log,
        now_ms=lambda: time.time_ns() // 1_000_000,
        boot_ms=lambda: time.monotonic_ns() // 1_000_000,
        rng=random.Random(7),
    )
    agent = Agent(settings_of(*flags), parts)
    task = asyncio.get_running_loop().create_task(agent.run())
    await agent.opened()
    running = Running(agent, store, log, task)
    try:
        yield running
    finally:
        for client in running.clients:
            await client.close()
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task


class Client:
    """One connection; neutral shapes in and out."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0
        self.refused_stale: Callable[[], int] = lambda: 0
        """How many requests the agent has refused because its loop had stood still (P17)."""

    @classmethod
    async def connect(cls, port: int) -> "Client":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, api_key: int, version: int, request: object, *, seconds: float = 10.0):
        """The response. Raises asyncio.IncompleteReadError when the agent closes instead.

        What is refused because the loop stood still is sent again, as clients do: on a busy machine
        that may happen at any time.
        """
        while True:
            refused = self.refused_stale()
            response = await self._ask(api_key, version, request, seconds=seconds)
            if self.refused_stale() == refused:
                return response

    async def _ask(self, api_key: int, version: int, request: object, *, seconds: float):
        self._correlation_id += 1
        body = messages.encode_request(api_key, version, request)
        head = struct.pack(">hhih", api_key, version, self._correlation_id, -1)
        if apis.request_header_version(api_key, version) >= 2:
            head += b"\0"
        self._writer.write(struct.pack(">i", len(head) + len(body)) + head + body)
        async with asyncio.timeout(seconds):
            (length,) = struct.unpack(">i", await self._reader.readexactly(4))
            frame = await self._reader.readexactly(length)
        assert struct.unpack(">i", frame[:4])[0] == self._correlation_id
        skip = 4 + (apis.response_header_version(api_key, version) >= 1)
        return messages.decode_response(api_key, version, memoryview(frame)[skip:])

    async def create(self, topic: str, *, seconds: float = 10.0) -> int:
        """The error code of creating a topic of one partition."""
        asked = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
        request = CreateTopicsRequest(topics=[asked], timeout_ms=5000)
        response = await self.ask(apis.CREATE_TOPICS, 5, request, seconds=seconds)
        return response.topics[0].error_code

    async def produce(
        self, topic: str, values: Sequence[bytes], *, timeout_ms: int = 5000
    ) -> tuple[int, int]:
        """Error code and base offset of one batch written to partition 0."""
        batch = build_batch([Record(value=value, timestamp=1) for value in values])
        partition = hot.PartitionProduceData(index=0, records=batch)
        data = hot.TopicProduceData(name=topic, partition_data=[partition])
        request = hot.ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=[data])
        response = await self.ask(apis.PRODUCE, 9, request)
        answer = response.responses[0].partition_responses[0]
        return answer.error_code, answer.base_offset

    async def fetch(self, topic: str, offset: int, *, max_wait_ms: int = 100) -> tuple[int, int]:
        """Error code and bytes of records of one fetch from partition 0."""
        partition = hot.FetchPartition(
            partition=0, fetch_offset=offset, partition_max_bytes=1 << 20
        )
        request = hot.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            topics=[hot.FetchTopic(topic=topic, partitions=[partition])],
        )
        response = await self.ask(apis.FETCH, 11, request)
        answer = response.responses[0].partitions[0]
        return answer.error_code, len(answer.records or b"")

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()
