"""Agents' hot paths without sockets: real coordinator, reader and writer over memory adapters.

`run(scenario)` runs a scenario on the simulator's virtual-time loop, so that waiting costs nothing.
`FaultyStore` and `FaultyLog` misbehave on command.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace

from broker.calls.call import Call
from broker.cluster.placement import Placements
from broker.config import settings as config
from broker.fetch.fetching import FetchPath
from broker.handlers import fetch as fetch_handler
from broker.handlers import produce as produce_handler
from broker.produce.producing import ProducePath
from coordinator.commands.entries import CreateTopic, Listener
from coordinator.coordinator import AgentIdentity, Coordinator, CoordinatorSettings
from coordinator.log.memory import MemoryLog, MemoryLogCluster
from coordinator.log.metadata_log import LogUnavailableError
from protocol import apis, messages
from protocol.messages import hot
from protocol.records import Record, build_batch
from protocol.types import TOPIC_ID_ZERO
from storage.reader import Reader
from storage.stores.memory import MemoryStore
from storage.stores.object_store import ObjectNotFoundError, StoreUnavailableError
from storage.writer import Writer
from tests.sim import loop as sim_loop

NOW_MS = 1_700_000_000_000


def settings(**changes: str) -> config.Settings:
    given = {"store": "memory://", "log": "memory://", "http": "off", "puts.per.second": "10000"}
    return config.load(
        defaults=given | {name.replace("_", "."): text for name, text in changes.items()},
        toml=None,
        environ={},
        flags=[],
    ).settings


class FaultyStore:
    """A memory store whose calls can be held up, refused, or find nothing."""

    def __init__(self) -> None:
        self.inner = MemoryStore()
        self.put_gate: Callable[[str], Awaitable[None]] | None = None
        self.down = False
        self.gone: list[str] = []
        self.gone_once: list[str] = []
        self.puts: list[str] = []
        self.reads: list[str] = []

    async def put_new(self, key, parts):
        self.puts.append(key)
        if self.put_gate is not None:
            await self.put_gate(key)
        if self.down:
            raise StoreUnavailableError("down")
        await self.inner.put_new(key, parts)

    async def _read(self, key):
        self.reads.append(key)
        await asyncio.sleep(0.01)
        if self.down:
            raise StoreUnavailableError("down")
        if key in self.gone:
            raise ObjectNotFoundError(key)
        if key in self.gone_once:
            self.gone_once.remove(key)
            raise ObjectNotFoundError(key)

    async def get(self, key):
        await self._read(key)
        return await self.inner.get(key)

    async def get_range(self, key, start, length):
        await self._read(key)
        return await self.inner.get_range(key, start, length)


class FaultyLog(MemoryLog):
    """A memory log that can be cut off, or whose tail can be held up (a lagging agent)."""

    def __init__(self, cluster: MemoryLogCluster) -> None:
        super().__init__(cluster)
        self.down = False
        self.swallow_answers = False
        self.no_sessions = False
        self.tail_gate = asyncio.Event()
        self.tail_gate.set()
        self.appends = 0

    async def _arrive(self):
        if self.down:
            raise LogUnavailableError("down")
        return await super()._arrive()

    async def grant(self, ttl_ms):
        if self.no_sessions:
            raise LogUnavailableError("no sessions")
        return await super().grant(ttl_ms)

    async def append(self, session, n, payload):
        self.appends += 1
        place = await super().append(session, n, payload)
        if self.swallow_answers:
            raise LogUnavailableError("the answer was lost")
        return place

    async def tail(self, after):
        async for batch in super().tail(after):
            await self.tail_gate.wait()
            yield batch


class FakeConnection:
    """A client's end: what was answered, and whether it was closed."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.listener = "PLAINTEXT"
        self.peer = "test"
        self.closed = False
        self.close_reason = ""
        self.answered: list[Call] = []

    def call_answered(self, call: Call) -> None:
        self.answered.append(call)

    def close(self, reason: str) -> None:
        self.closed = True
        self.close_reason = reason


class Agent:
    """One agent's hot paths."""

    def __init__(self, world: "World", name: str, tasks: asyncio.TaskGroup, told: config.Settings):
        self.world = world
        self.name, _, zone = name.partition("@")
        told = replace(told, zone=zone)
        self.log = FaultyLog(world.cluster)
        self.coordinator = Coordinator(
            self.log,
            identity=AgentIdentity(self.name, -1, zone, (Listener("PLAINTEXT", "x", 1),), "0"),
            settings=CoordinatorSettings(),
            now_ms=world.now_ms,
            boot_ms=world.boot_ms,
        )
        self.rng = random.Random(name)
        self.reader = Reader(world.store, told.cache_bytes, tasks)
        self.writer = Writer(world.store, cluster_id="test", rng=self.rng)
        self.producing = ProducePath(
            told,
            coordinator=self.coordinator,
            writer=self.writer,
            reader=self.reader,
            tasks=tasks,
        )
        placements = Placements()
        self.fetching = FetchPath(
            told,
            coordinator=self.coordinator,
            reader=self.reader,
            placement=lambda listener: placements.current(
                self.coordinator.machine.incarnations, listener=listener
            ),
            tasks=tasks,
            rng=self.rng,
        )
        self.node = SimpleNamespace(
            settings=told,
            coordinator=self.coordinator,
            producing=self.producing,
            fetching=self.fetching,
            now_ms=world.now_ms,
        )
        tasks.create_task(self.coordinator.run())
        tasks.create_task(self.producing.run())
        self.connection = self.connect()

    def connect(self) -> FakeConnection:
        self.world.connections += 1
        return FakeConnection(self.world.connections)

    async def ready(self) -> "Agent":
        while self.coordinator.incarnation() is None:
            await asyncio.sleep(0.01)
        return self

    async def create_topic(self, name: str, partitions: int = 1, **configs: str):
        pairs = tuple(sorted((key.replace("_", "."), value) for key, value in configs.items()))
        await self.coordinator.propose(CreateTopic(name, partitions, pairs))
        topic = self.coordinator.machine.topics.by_name(name)
        assert topic is not None
        return topic

    def row(self, name: str, partition: int = 0):
        topic = self.coordinator.machine.topics.by_name(name)
        assert topic is not None
        return self.coordinator.machine.partitions.get(topic.topic_id, partition)

    def send(self, key: int, version: int, request, connection=None, clock=None) -> "Answer":
        """Start a call as the server would; the answer may come later.

        `clock`: the position applied when the request was read, if that is not the one of now.
        """
        body = messages.encode_request(key, version, request)
        call = Call(
            api_key=key,
            version=version,
            correlation_id=1,
            client_id="test",
            body=memoryview(bytes(body)),
            connection=connection or self.connection,
            received_ms=0,
            clock=self.coordinator.machine.position if clock is None else clock,
        )
        handler = produce_handler if key == apis.PRODUCE else fetch_handler
        handler.start(self.node, call)
        return Answer(call)

    def produce(
        self,
        topic: str,
        *batches: bytes,
        partition: int = 0,
        version: int = 9,
        acks: int = -1,
        timeout_ms: int = 30_000,
        transactional_id: str | None = None,
        connection=None,
        clock=None,
    ) -> "Answer":
        """One request with one batch for each of the partitions from `partition` on."""
        data = [
            hot.PartitionProduceData(index=partition + index, records=batch)
            for index, batch in enumerate(batches)
        ]
        rows = hot.TopicProduceData(name=topic, partition_data=data)
        if version >= 13:
            known = self.coordinator.machine.topics.by_name(topic)
            rows.topic_id = TOPIC_ID_ZERO if known is None else known.topic_id
        request = hot.ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[rows],
        )
        return self.send(apis.PRODUCE, version, request, connection, clock)

    def fetch(
        self,
        topic: str,
        *offsets: int,
        version: int = 11,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 30,
        partition_max_bytes: int = 1 << 20,
        isolation: int = 0,
        leader_epoch: int = -1,
        connection=None,
        **fields,
    ) -> "Answer":
        """One request for the partitions from 0 on, at these offsets."""
        partitions = [
            hot.FetchPartition(
                partition=index,
                fetch_offset=offset,
                partition_max_bytes=partition_max_bytes,
                current_leader_epoch=leader_epoch,
            )
            for index, offset in enumerate(offsets)
        ]
        request = hot.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation,
            topics=[hot.FetchTopic(topic=topic, partitions=partitions)],
            **fields,
        )
        return self.send(apis.FETCH, version, request, connection)


class Answer:
    """What a call was answered, once it is."""

    def __init__(self, call: Call) -> None:
        self.call = call

    @property
    def there(self) -> bool:
        return self.call.answered

    async def wait(self, seconds: float = 120.0):
        """The decoded response; virtual time passes meanwhile."""
        for _ in range(int(seconds * 100)):
            if self.there:
                return self.now()
            await asyncio.sleep(0.01)
        raise AssertionError("not answered")

    def now(self):
        assert self.there
        assert self.call.parts is not None
        head, *body = self.call.parts
        joined = b"".join(bytes(part) for part in body)
        assert len(head) in {8, 9}
        return messages.decode_response(self.call.api_key, self.call.version, joined)

    async def partition(self, index: int = 0):
        """The partition of that index in the answer."""
        return _partitions(await self.wait())[index]


def _partitions(response):
    rows = []
    for topic in response.responses:
        rows += getattr(topic, "partition_responses", None) or getattr(topic, "partitions", [])
    return rows


class World:
    """Agents that share a log and a store."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.cluster = MemoryLogCluster()
        self.store = FaultyStore()
        self.connections = 0

    def now_ms(self) -> int:
        return NOW_MS + self.boot_ms()

    def boot_ms(self) -> int:
        return int(self.loop.time() * 1000)

    def add(self, name: str) -> Agent:
        """One more agent, which may not be ready yet; "name@zone" puts it into a zone."""
        return self._add(name)

    @contextlib.asynccontextmanager
    async def agents(self, *names: str, **changes: str) -> AsyncIterator[Sequence[Agent]]:
        told = settings(**changes)
        async with asyncio.TaskGroup() as tasks:
            self._add = lambda name: Agent(self, name, tasks, told)
            everybody = [self.add(name) for name in names]
            for agent in everybody:
                await agent.ready()
            yield everybody
            raise _Over


class _Over(Exception):
    """Ends the tasks of a scenario."""


def run(scenario: Callable[[World], Awaitable[None]], *, seed: int = 1) -> None:
    """Run `scenario` to its end in virtual time."""

    async def main(loop, rng) -> None:
        del rng
        try:
            await scenario(World(loop))
        except* _Over:
            pass

    sim_loop.run(main, seed=seed)


def batch(
    *values: bytes, producer_id: int = -1, epoch: int = -1, sequence: int = -1, **fields
) -> bytes:
    """A record batch of these values (one record of 100 bytes when none are given)."""
    rows = [
        Record(timestamp=fields.get("timestamp", NOW_MS), key=fields.get("key"), value=value)
        for value in values or (bytes(100),)
    ]
    return build_batch(
        rows,
        codec=fields.get("codec", 0),
        attributes=fields.get("attributes", 0),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
