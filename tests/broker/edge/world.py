"""Whole agents without sockets and admin HTTP: the real server, handlers and log, in virtual time.

`run(scenario)` runs a scenario; `Agent.peer()` is a client's connection to one of the agents.
`agent.log` can be cut off (`down`) or its tail held up (`tail_gate`): a lagging agent.
"""

import asyncio
import contextlib
import random
from dataclasses import replace

from broker.edge.server import KafkaServer
from broker.fetch.fetching import FetchPath
from broker.groups.coordinator import GroupCoordinator
from broker.groups.kinds import KINDS
from broker.handlers import SERVED
from broker.node import Node
from broker.produce.producing import ProducePath
from broker.transactions.producer_ids import ProducerIds
from broker.transactions.service import TransactionService
from coordinator.commands.entries import CreateTopic, Listener
from coordinator.coordinator import AgentIdentity, Coordinator, CoordinatorSettings
from coordinator.log.memory import MemoryLogCluster
from protocol import apis
from protocol.messages import hot
from storage.reader import Reader
from storage.writer import Writer
from tests.broker.edge.wire import Peer
from tests.broker.produce.world import NOW_MS, FaultyLog, FaultyStore, settings
from tests.sim import loop as sim_loop

__all__ = ["NOW_MS", "Agent", "World", "run"]


class Agent:
    """One agent of a world."""

    def __init__(self, world: "World", name: str, zone: str, tasks, told) -> None:
        self.world = world
        told = replace(told, zone=zone)
        self.log = FaultyLog(world.cluster)
        self.coordinator = Coordinator(
            self.log,
            identity=AgentIdentity(
                name,
                -1,
                zone,
                (Listener("PLAINTEXT", name, 9092), Listener("OUTSIDE", f"{name}.example", 19092)),
                "0",
            ),
            settings=CoordinatorSettings(
                lease_ttl_ms=told.lease_ttl_ms,
                session_deadline_ms=told.session_deadline_ms,
                session_read_ms=told.session_read_ms,
            ),
            now_ms=world.now_ms,
            boot_ms=world.boot_ms,
        )
        rng = random.Random(name)
        self.reader = Reader(world.store, told.cache_bytes, tasks)
        writer = Writer(world.store, cluster_id="test", rng=rng)
        self.node = Node(
            settings=told,
            coordinator=self.coordinator,
            producing=ProducePath(
                told,
                coordinator=self.coordinator,
                writer=writer,
                reader=self.reader,
                tasks=tasks,
            ),
            fetching=FetchPath(
                told,
                coordinator=self.coordinator,
                reader=self.reader,
                placement=self._placement,
                tasks=tasks,
                rng=rng,
            ),
            reader=self.reader,
            producer_ids=ProducerIds(self.coordinator, block=10),
            groups=GroupCoordinator(
                self.coordinator,
                settings=told,
                kinds=world.kinds,
                boot_ms=world.boot_ms,
                rng=rng,
            ),
            transactions=TransactionService(self.coordinator, settings=told, boot_ms=world.boot_ms),
            now_ms=world.now_ms,
            boot_ms=world.boot_ms,
            rng=rng,
        )
        self.server = KafkaServer(self.node, SERVED)
        tasks.create_task(self.coordinator.run())
        tasks.create_task(self.node.producing.run())
        tasks.create_task(self.node.groups.run())
        tasks.create_task(self.node.transactions.run())
        tasks.create_task(self.server.run())

    def _placement(self, listener: str):
        return self.node.placement(listener)

    @property
    def machine(self):
        return self.coordinator.machine

    @property
    def node_id(self) -> int:
        node_id = self.coordinator.node_id()
        assert node_id is not None
        return node_id

    async def ready(self) -> None:
        while self.coordinator.incarnation() is None or not self.server.serving:
            await asyncio.sleep(0.01)

    async def lose_session(self) -> None:
        """Cut the agent off from the log until it can no longer prove its session."""
        self.log.down = True
        while self.coordinator.incarnation() is not None:
            await asyncio.sleep(0.5)

    def lag(self) -> None:
        """From now on this agent's replica gets nothing new."""
        self.log.tail_gate.clear()

    def catch_up(self) -> None:
        self.log.tail_gate.set()

    def peer(self, listener: str = "PLAINTEXT") -> Peer:
        return Peer(self.server, listener)

    async def ask(self, key: int, request, *, version: int | None = None, **more):
        """One request on a connection of its own."""
        if version is None:
            version = apis.APIS[key].max_version
        return await self.peer().ask(key, version, request, **more)

    async def create_topic(self, name: str, partitions: int = 1, **configs: str):
        pairs = tuple(sorted((key.replace("_", "."), value) for key, value in configs.items()))
        await self.coordinator.propose(CreateTopic(name, partitions, pairs))
        topic = self.machine.topics.by_name(name)
        assert topic is not None
        return topic

    def row(self, name: str, partition: int = 0):
        """The partition, as this agent's machine has it."""
        topic = self.machine.topics.by_name(name)
        assert topic is not None
        return self.machine.partitions.get(topic.topic_id, partition)

    async def produce(self, topic: str, batch: bytes, *, partition: int = 0) -> int:
        """The base offset that the batch got."""
        data = hot.PartitionProduceData(index=partition, records=batch)
        request = hot.ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            topic_data=[hot.TopicProduceData(name=topic, partition_data=[data])],
        )
        answer = await self.ask(apis.PRODUCE, request, version=9)
        (row,) = answer.responses[0].partition_responses
        assert row.error_code == 0
        return row.base_offset


class World:
    """Agents that share a log and a store."""

    def __init__(self, loop) -> None:
        self.loop = loop
        self.cluster = MemoryLogCluster()
        self.store = FaultyStore()
        self.kinds = KINDS
        """How live groups are made."""

    def now_ms(self) -> int:
        return NOW_MS + self.boot_ms()

    def boot_ms(self) -> int:
        return int(self.loop.time() * 1000)

    @contextlib.asynccontextmanager
    async def agents(self, *names: str, **changes: str):
        """Agents that serve; "name@zone" puts one into a zone."""
        told = settings(**changes)
        async with asyncio.TaskGroup() as tasks:
            everybody = []
            for text in names:
                name, _, zone = text.partition("@")
                everybody.append(Agent(self, name, zone, tasks, told))
                await everybody[-1].ready()
            for agent in everybody:
                await agent.coordinator.barrier()
            yield everybody
            for agent in everybody:
                assert agent.node.stats.failed_handlers == 0
                agent.catch_up()
            raise _Over


class _Over(Exception):
    """Ends the tasks of a scenario."""


def run(scenario, *, seed: int = 1) -> None:
    """Run `scenario(world)` to its end in virtual time."""

    async def main(loop, rng) -> None:
        try:
            await scenario(World(loop))
        except* _Over:
            pass

    sim_loop.run(main, seed=seed)
