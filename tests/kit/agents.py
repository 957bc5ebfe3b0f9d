"""Whole agents without sockets and admin HTTP: the real parts over one memory log and store.

    async def test_…(world):
        async with world.agents("one", "two@zone", log_retention_ms="1000") as (one, two):
            await one.create_topic("t")
            response = await two.call(apis.METADATA, MetadataRequest())
            client = two.connect()                    # a connection, for more than one request
            one.log.before["append"] = lost()         # faults: tests.kit.faults

The agents are put together by the product (`broker.composition`). They have no jobs, measure no
clock of the store and start from no snapshot: `tests.kit.sockets` has the whole of an agent.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import Any, Self

from broker.cluster.nodes import with_node_counts
from broker.composition import Parts, compose
from broker.config import settings as config
from broker.edge.server import KafkaServer
from broker.edge.tls_listener import TlsListener
from broker.groups.group.live import GroupFactory
from broker.groups.group_factory import GROUP_FACTORY
from broker.handlers import SERVED
from broker.sasl.rules import SaslRules
from coordinator.commands.entries import CreateTopic, Listener
from coordinator.log.memory import LocalMemoryLog, MemoryLog, MemoryLogCluster
from coordinator.log_client import AgentIdentity, LogClient
from coordinator.machine.machine import Machine
from coordinator.tables.partition import Partition
from coordinator.tables.topics import Topic
from protocol import apis
from storage.stores.memory import MemoryStore
from storage.writer import Writer
from tests.kit import log_levels, requests
from tests.kit import loop as virtual
from tests.kit.client import Client
from tests.kit.faults import FaultyLocalLog, FaultyLog, FaultyStore, slow

NOW_MS = 1_700_000_000_000
"""The wall clock when a test begins."""
READ_S = 0.01
"""What a read of an object takes."""


def settings(**changes: str) -> config.Settings:
    """Those of an agent in memory; `linger_ms="5"` is the setting linger.ms."""
    given = {"store": "memory://", "log": "memory://", "http": "off", "puts.per.second": "10000"}
    return config.load(
        defaults=given | {name.replace("_", "."): text for name, text in changes.items()},
        toml=None,
        environ={},
        flags=[],
    ).settings


class Agent:
    """One agent of a world."""

    def __init__(
        self, world: "World", name: str, told: config.Settings, tasks: asyncio.TaskGroup
    ) -> None:
        self.world = world
        self.name = name
        self.log = world.log()
        rng = random.Random(name)
        addresses = (
            Listener("PLAINTEXT", name, 9092),
            Listener("OUTSIDE", f"{name}.example", 19092),
        )
        listeners = with_node_counts(addresses, told.nodes_per_agent, {})
        self.node = compose(
            told,
            Parts(
                store=world.store, log=self.log, now_ms=world.now_ms, boot_ms=world.boot_ms, rng=rng
            ),
            AgentIdentity(name, -1, told.zone, listeners, "0"),
            writer=Writer(world.store, cluster_id=told.cluster_id, rng=rng),
            tasks=tasks,
            entry_ms=world.now_ms,
            factory=world.factory,
        )
        self.server = KafkaServer(self.node, SERVED, sasl=world.sasl, tls=world.tls)

    def start(self, tasks: asyncio.TaskGroup) -> None:
        tasks.create_task(self.log_client.run())
        tasks.create_task(self.node.producing.run())
        tasks.create_task(self.node.groups.run())
        tasks.create_task(self.node.transactions.run())
        tasks.create_task(self.server.run())

    @property
    def log_client(self) -> LogClient:
        return self.node.log_client

    @property
    def machine(self) -> Machine:
        return self.log_client.machine

    @property
    def node_id(self) -> int:
        node_id = self.log_client.node_id()
        assert node_id is not None
        return node_id

    # Its life.

    async def ready(self) -> Self:
        while self.log_client.incarnation() is None or not self.is_serving():
            await asyncio.sleep(0.01)
        return self

    def is_serving(self) -> bool:
        return self.server.serving

    async def lose_session(self) -> None:
        """Cut the agent off from the log until it can no longer prove its session."""
        self.log.down = True
        while self.log_client.incarnation() is not None:
            await asyncio.sleep(0.5)

    def lag(self) -> None:
        """From now on this agent's replica gets nothing new."""
        self.log.tail_gate.clear()

    def catch_up(self) -> None:
        self.log.tail_gate.set()

    # Clients.

    def connect(self, listener: str = "PLAINTEXT", *, address: str = "127.0.0.1") -> Client:
        return Client(self.server, listener, address=address)

    async def call(
        self, api_key: int, request: Any, *, version: int | None = None, **more: Any
    ) -> Any:
        """One request on a connection of its own, by default of the newest version."""
        if version is None:
            version = apis.APIS[api_key].max_version
        return await self.connect().call(api_key, version, request, **more)

    async def produce(self, topic: str, batch: bytes, *, partition: int = 0) -> int:
        """The base offset that the batch got."""
        request = requests.produce({(topic, partition): batch}, timeout_ms=30_000)
        answer = await self.call(apis.PRODUCE, request, version=9)
        row = requests.rows_of(answer)[topic, partition]
        assert row.error_code == 0
        base_offset: int = row.base_offset
        return base_offset

    # Topics.

    async def create_topic(self, name: str, partitions: int = 1, **configs: str) -> Topic:
        pairs = tuple(sorted((key.replace("_", "."), value) for key, value in configs.items()))
        await self.log_client.propose(CreateTopic(name, partitions, pairs))
        topic = self.machine.topics.by_name(name)
        assert topic is not None
        return topic

    def row(self, name: str, partition: int = 0) -> Partition | None:
        """The partition, as this agent's machine has it."""
        topic = self.machine.topics.by_name(name)
        assert topic is not None
        return self.machine.partitions.get(topic.topic_id, partition)


class World:
    """Agents that share a log and a store."""

    def __init__(self, agent: type[Agent] = Agent, *, embedded: bool = False) -> None:
        """`embedded`: the log does something else first, as that of `frazil dev`."""
        self.embedded = embedded
        self.cluster = MemoryLogCluster()
        self.store = FaultyStore(MemoryStore())
        self.store.after["get"] = self.store.after["get_range"] = slow(READ_S)
        self.factory: GroupFactory = GROUP_FACTORY
        """How live groups are made."""
        self.sasl: Mapping[str, SaslRules] = {}
        """By listener, of those that have it."""
        self.tls: Mapping[str, TlsListener] = {}
        """Likewise."""
        self._agent = agent
        self._told: config.Settings | None = None
        self._tasks: asyncio.TaskGroup | None = None

    @property
    def loop(self) -> virtual.SimLoop:
        return virtual.current()

    def log(self) -> FaultyLog:
        """One agent's way to the log."""
        if self.embedded:
            return FaultyLocalLog(LocalMemoryLog(self.cluster))
        return FaultyLog(MemoryLog(self.cluster))

    def now_ms(self) -> int:
        return NOW_MS + self.boot_ms()

    def boot_ms(self) -> int:
        return int(self.loop.time() * 1000)

    @contextlib.asynccontextmanager
    async def agents(self, *names: str, **changes: str) -> AsyncGenerator[list[Any], None]:
        """Agents that serve, with these settings; "name@zone" puts one into a zone."""
        self._told = settings(**changes)
        try:
            with log_levels.kept():
                async with asyncio.TaskGroup() as self._tasks:
                    everybody = []
                    for name in names:
                        everybody.append(self.add(name))
                        await everybody[-1].ready()
                    for agent in everybody:
                        await agent.log_client.barrier()
                    yield everybody
                    for agent in everybody:
                        assert agent.node.stats.failed_handlers == 0
                        agent.catch_up()
                    raise _OverError
        except* _OverError:
            pass

    def add(self, text: str) -> Agent:
        """One more agent, which may not be ready yet; only while there are others."""
        assert self._told is not None
        assert self._tasks is not None
        name, _, zone = text.partition("@")
        agent = self._agent(self, name, replace(self._told, zone=zone), self._tasks)
        agent.start(self._tasks)
        return agent


class _OverError(Exception):
    """Ends the tasks of a test."""
