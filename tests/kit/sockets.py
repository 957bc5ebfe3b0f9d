"""The whole of an agent, on sockets and the real loop, over memory adapters; and a bare Kafka client.

    async with agent_of(Place()) as running:
        client = await running.connect()
        response = await client.call(apis.METADATA, 9, MetadataRequest())

For the life of an agent, admin HTTP, tools and jobs; what handlers do is tested without sockets
(`tests.kit.agents`), in a tenth of the time.
"""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp

from broker.agent import Agent
from broker.composition import Parts
from broker.config.settings import Settings, load
from coordinator.log.memory import MemoryLog, MemoryLogCluster
from protocol import apis
from protocol.records import Record, build_batch
from storage.stores.memory import MemoryStore
from tests.kit import requests
from tests.kit.faults import FaultyLog, FaultyStore

TURNS_OF_AN_ACCEPT = 10
"""Of the loop, at most: from accepting a connection to the end of one that is refused."""


class Place:
    """A cluster's store and log, in memory."""

    def __init__(self) -> None:
        self.cluster = MemoryLogCluster()
        self.objects = MemoryStore(lambda: time.time_ns() // 1_000_000)

    def store(self) -> FaultyStore:
        return FaultyStore(self.objects)

    def log(self) -> FaultyLog:
        return FaultyLog(MemoryLog(self.cluster))


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

    def __init__(
        self, agent: Agent, store: FaultyStore, log: FaultyLog, task: asyncio.Task[None]
    ) -> None:
        self.agent = agent
        self.store = store
        self.log = log
        self.task = task
        self.clients: list[SocketClient] = []

    async def connect(self) -> "SocketClient":
        """A connection that is closed with the agent, if not before."""
        client = await SocketClient.connect(self.port)
        client.refused_stale = lambda: self.agent.node.stats.refused_stale
        self.clients.append(client)
        return client

    @property
    def port(self) -> int:
        return self.agent.listening()["PLAINTEXT"][1]

    async def http(self, method: str, path: str, **kwargs: Any) -> tuple[int, Any]:
        """Status and JSON (or text) of the answer. A text that is sent is said to be JSON."""
        if isinstance(kwargs.get("data"), str):
            kwargs["headers"] = {"Content-Type": "application/json"} | kwargs.get("headers", {})
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
    place: Place,
    *flags: str,
    store: FaultyStore | None = None,
    log: FaultyLog | None = None,
    own_ports: Mapping[str, int] | None = None,
) -> AsyncIterator[Running]:
    """An agent with open doors; killed at the end if it still runs. `own_ports`: the agent's."""
    store, log = store or place.store(), log or place.log()
    parts = Parts(
        store=store,
        log=log,
        now_ms=lambda: time.time_ns() // 1_000_000,
        boot_ms=lambda: time.monotonic_ns() // 1_000_000,
        rng=random.Random(7),
    )
    agent = Agent(settings_of(*flags), parts, own_ports=own_ports)
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
        # What was accepted in the last turn is made, refused and closed in the next ones.
        for _ in range(TURNS_OF_AN_ACCEPT):
            await asyncio.sleep(0)


class SocketClient:
    """One connection; neutral shapes in and out."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._exchange = requests.Exchange()
        self.refused_stale: Callable[[], int] = lambda: 0
        """How many requests the agent has refused because its loop had stood still (P17)."""

    @classmethod
    async def connect(cls, port: int) -> "SocketClient":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def call(
        self, api_key: int, version: int, request: object, *, seconds: float = 10.0
    ) -> Any:
        """The response. Raises asyncio.IncompleteReadError when the agent closes instead.

        What is refused because the loop stood still is sent again, as clients do: on a busy machine
        that may happen at any time.
        """
        while True:
            refused = self.refused_stale()
            response = await self._call(api_key, version, request, seconds=seconds)
            if self.refused_stale() == refused:
                return response

    async def _call(self, api_key: int, version: int, request: object, *, seconds: float) -> Any:
        self._writer.write(self._exchange.request(api_key, version, request))
        async with asyncio.timeout(seconds):
            length = int.from_bytes(await self._reader.readexactly(4))
            frame = await self._reader.readexactly(length)
        number, response = self._exchange.response(frame)
        assert number == self._exchange.sent
        return response

    async def create(self, topic: str, *, seconds: float = 10.0) -> int:
        """The error code of creating a topic of one partition."""
        request = requests.create_topics({topic: 1})
        response = await self.call(apis.CREATE_TOPICS, 5, request, seconds=seconds)
        error_code: int = response.topics[0].error_code
        return error_code

    async def produce(
        self, topic: str, values: Sequence[bytes], *, timeout_ms: int = 5000
    ) -> tuple[int, int]:
        """Error code and base offset of one batch written to partition 0."""
        batch = build_batch([Record(value=value, timestamp=1) for value in values])
        request = requests.produce({(topic, 0): batch}, timeout_ms=timeout_ms)
        row = requests.rows_of(await self.call(apis.PRODUCE, 9, request))[topic, 0]
        return row.error_code, row.base_offset

    async def fetch(self, topic: str, offset: int, *, max_wait_ms: int = 100) -> tuple[int, int]:
        """Error code and bytes of records of one fetch from partition 0."""
        request = requests.fetch({(topic, 0): offset}, max_wait_ms=max_wait_ms)
        row = requests.rows_of(await self.call(apis.FETCH, 11, request))[topic, 0]
        return row.error_code, len(row.records or b"")

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()
