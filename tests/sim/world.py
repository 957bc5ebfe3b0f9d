"""A cluster in one process: agents over one memory log and one memory store, each in weather of
its own, and a run: faults while clients work, then fine weather until everything is settled.

The agents are the real ones (`broker.agent.Agent`); only clocks, chance, store, log and network
are given to them. Each life of an agent has an owner name of its own, so that it can be killed
as a process is.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from broker.agent import Agent, AgentError
from broker.composition import Parts
from broker.config import settings as config
from broker.node import Node
from coordinator.log.memory import MemoryLog, MemoryLogCluster
from coordinator.log.metadata_log import MetadataLog
from storage.stores.memory import MemoryStore
from tests.kit.faults import FaultyLog, FaultyStore, Weather
from tests.kit.loop import SimLoop
from tests.sim.checkers import Account, verdict
from tests.sim.client import Client, LostError
from tests.sim.network import Network
from tests.sim.workload import (
    ZONES,
    Addresses,
    Producer,
    Reader,
    ask_ends,
    end_offsets,
    until_topic,
)

START_MS = 1_700_000_000_000
FAULTS_S = 40.0
JOBS = {
    "jobs.start.delay.ms": "500",
    "snapshot.interval.ms": "4000",
    "merge.interval.ms": "1000",
    "merge.age.ms": "500",
    "spill.interval.ms": "1500",
    "spill.age.ms": "500",
    "collect.interval.ms": "1500",
    "log.segment.delete.delay.ms": "1000",
    "log.retention.check.interval.ms": "1500",
    "log.cleaner.backoff.ms": "1500",
}
SPILL_ROWS = 8
FALLEN_BEHIND = "fallen behind the log, start it again"
"""What an agent says that stood still while the log was cut."""
SETTLE_S = 240.0
"""How long the cluster and its clients may take, in fine weather, until all is settled."""


@dataclass
class Shape:
    """What a run is made of; drawn from the seed."""

    agents: int
    partitions: int
    producers: int
    readers: int
    kinds: frozenset[str]
    """Of faults, besides weather: kill, pause, expire, away, break, skew."""
    settings: dict[str, str] = field(default_factory=dict)
    """Of the agents, besides those of every run."""
    zones: tuple[str, ...] = ()
    """Of the agents, in order; none when empty."""
    jobs: bool = False
    """Rows and objects are rearranged all the time, and the log is cut."""

    @classmethod
    def drawn(cls, rng: random.Random) -> "Shape":
        kinds = ("kill", "pause", "expire", "away", "break", "skew")
        return cls(
            agents=rng.choice((1, 2, 3, 3)),
            partitions=rng.choice((1, 2, 4)),
            producers=rng.choice((2, 4)),
            readers=rng.choice((1, 2)),
            kinds=frozenset(kind for kind in kinds if rng.random() < 0.5),
            jobs=rng.random() < 0.5,
        )


@dataclass
class Life:
    """One agent's place in the cluster, and its present process."""

    index: int
    address: tuple[str, int]
    store_weather: Weather
    log_weather: Weather
    number: int = 0
    agent: Agent | None = None
    task: asyncio.Task | None = None
    skew_ms: int = 0

    @property
    def owner(self) -> str:
        return f"agent{self.index}.{self.number}"


@dataclass
class World:
    loop: SimLoop
    rng: random.Random
    shape: Shape
    account: Account = field(default_factory=Account)
    watch: Callable[[Node], None] = lambda _node: None
    """Called with every agent that begins."""

    def __post_init__(self) -> None:
        self.nodes: list[tuple[str, Node]] = []
        self.network = Network(self.loop, random.Random(self.rng.getrandbits(64)))
        self.log = MemoryLogCluster()
        self.store = MemoryStore(lambda: START_MS + int(self.loop.time() * 1000))
        self.lives = [
            Life(index, (f"agent{index}", 9092), Weather(), Weather())
            for index in range(self.shape.agents)
        ]
        addresses = [life.address for life in self.lives]
        self.addresses = Addresses(addresses, random.Random(self.rng.getrandbits(64)))
        self.addresses.zones = dict(zip(addresses, self.shape.zones, strict=False))

    def log_of(self, life: Life) -> MetadataLog:
        """As the present process of this agent sees it, in fine weather."""
        return MemoryLog(self.log)

    def client(self, name: str) -> Client:
        return Client(self.loop, name)

    def start(self, life: Life) -> None:
        """A new process of the agent: a new life, nothing kept but its name."""
        life.number += 1
        rng = random.Random(self.rng.getrandbits(64))
        loop = self.loop
        store = FaultyStore(self.store, recording=False)
        log = FaultyLog(self.log_of(life), recording=False)
        life.store_weather.befall(store, rng)
        life.log_weather.befall(log, rng)
        parts = Parts(
            store=store,
            log=log,
            now_ms=lambda: START_MS + life.skew_ms + int(loop.time() * 1000),
            boot_ms=lambda: 1_000_000 + int(loop.time() * 1000),
            rng=rng,
        )
        with loop.owned(life.owner):
            life.agent = Agent(self._settings(life), parts)
            life.task = loop.create_task(self._live(life, life.agent, life.owner))

    async def _live(self, life: Life, agent: Agent, owner: str) -> None:
        def watch(node: Node) -> None:
            self.nodes.append((owner, node))
            self.watch(node)
            machine = node.log_client.machine
            node.log_client.on_applied(
                lambda applied: self.account.digest(owner, applied.position, machine.digest())
            )

        agent.on_node(watch)
        try:
            await agent.run()
        except AgentError as error:
            if not self.may_end(life, error):
                raise
            # As whoever supervises processes would.
            with self.loop.owned("supervisor"):
                self.loop.call_soon(self._start_again, life)

    def may_end(self, life: Life, error: AgentError) -> bool:
        """Whether this is no bug."""
        return FALLEN_BEHIND in str(error)

    def _start_again(self, life: Life) -> None:
        self.kill(life)
        self.start(life)

    def _settings(self, life: Life) -> config.Settings:
        given = {
            "listen": f"{life.address[0]}:{life.address[1]}",
            "http": "off",
            "cluster.id": "sim",
            "node.name": f"agent{life.index}",
            "zone": self.addresses.zones.get(life.address, ""),
            "store": "memory://",
            "log": "memory://",
            "cache.bytes": "1MiB",
            "chunk.bytes": "64KiB",
            "puts.per.second": "100",
            "lease.ttl.ms": "5000",
            "session.deadline.ms": "3500",
            # Records are of 2020.
            "log.retention.ms": "-1",
            # Without jobs nothing is rearranged, however late a run settles.
            **(JOBS if self.shape.jobs else {"jobs.start.delay.ms": "86400000"}),
            **self.shape.settings,
        }
        flags = [f"{name}={value}" for name, value in given.items()]
        settings = config.load(defaults={}, toml=None, environ={}, flags=flags).settings
        # No operator may have so few rows in memory; here there are no more.
        return replace(settings, spill_rows=SPILL_ROWS) if self.shape.jobs else settings

    def kill(self, life: Life) -> None:
        self.loop.kill(life.owner)
        self.network.reset(life.owner)
        life.agent = None

    def failures(self) -> list[str]:
        """Agents that ended by themselves, and errors that nobody caught: both are bugs."""
        found = list(self.loop.failures)
        for life in self.lives:
            if life.agent is not None and life.task is not None and life.task.done():
                found.append(f"{life.owner} ended: {life.task.exception()!r}")
        found += [f"a handler of {owner} failed" for owner, node in self.nodes if _failed(node)]
        return found


def _failed(node: Node) -> bool:
    """A handler ended in an error that nobody foresaw."""
    return node.stats.failed_handlers > 0


class Nemesis:
    """Does harm of the drawn kinds until it is stopped, then takes it all back."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = random.Random(world.rng.getrandbits(64))

    async def run(self) -> None:
        kinds = sorted(self._world.shape.kinds)
        while True:
            await asyncio.sleep(self._rng.uniform(0.5, 8.0))
            life = self._rng.choice(self._world.lives)
            if kinds and life.agent is not None:
                await self._harm(self._rng.choice(kinds), life)

    async def _harm(self, kind: str, life: Life) -> None:
        world, rng = self._world, self._rng
        match kind:
            case "kill":
                world.kill(life)
                await asyncio.sleep(rng.choice((0.1, 2.0, 12.0)))
                world.start(life)
            case "pause":
                world.loop.pause(life.owner)
                await asyncio.sleep(rng.choice((0.3, 3.0, 12.0)))
                world.loop.resume(life.owner)
            case "expire":
                for session in list(world.log._leases):
                    if rng.random() < 0.5:
                        world.log.expire(session)
            case "away":
                weather = rng.choice((life.store_weather, life.log_weather))
                weather.away = True
                await asyncio.sleep(rng.choice((1.0, 5.0, 15.0)))
                weather.away = False
            case "break":
                world.network.break_some(rng.choice((0.2, 1.0)))
            case "skew":
                life.skew_ms = rng.choice((-86_400_000, -1000, 0, 1000, 86_400_000))

    def take_back(self) -> None:
        world = self._world
        for life in world.lives:
            world.loop.resume(life.owner)
            life.store_weather.clear()
            life.log_weather.clear()
            if life.agent is None:
                world.start(life)


async def simulate(loop: SimLoop, rng: random.Random) -> list[str]:
    """One run. The violations found; none is a pass."""
    logging.getLogger().setLevel(logging.CRITICAL)
    shape = Shape.drawn(rng)
    if rng.random() < 0.5:
        shape.zones = tuple(rng.choice(ZONES) for _ in range(shape.agents))
    world = World(loop, rng, shape)
    for life in world.lives:
        world.start(life)
    try:
        async with asyncio.timeout(SETTLE_S):
            await until_topic(world.client("setup"), world.addresses, world.shape.partitions)
    except TimeoutError:
        return [*world.failures(), "no topic could be created in fine weather"]
    producers = _producers(world)
    background = [loop.create_task(coroutine) for coroutine in _watchers(world)]
    working = [
        loop.create_task(producer.run(), name=f"producer{index}")
        for index, producer in enumerate(producers)
    ]
    for life in world.lives:
        life.store_weather.__dict__.update(Weather.drawn(rng).__dict__)
        life.log_weather.__dict__.update(Weather.drawn(rng).__dict__)
    nemesis = Nemesis(world)
    harm = loop.create_task(nemesis.run())
    await asyncio.sleep(FAULTS_S)
    harm.cancel()
    nemesis.take_back()
    for producer in producers:
        producer.stopping = True
    found = await _settle(world, working)
    for task in background:
        task.cancel()
    return found


def _producers(world: World) -> list[Producer]:
    return [
        Producer(
            world.client(f"producer{index}"),
            world.addresses,
            world.account,
            random.Random(world.rng.getrandbits(64)),
            partition=index % world.shape.partitions,
            idempotent=index % 4 != 3,
        )
        for index in range(world.shape.producers)
    ]


def _reader(world: World, name: str, rack: str = "") -> Reader:
    rng = random.Random(world.rng.getrandbits(64))
    reader = Reader(world.client(name), world.addresses, world.account, rng, rack=rack)
    reader.follow(world.shape.partitions)
    return reader


def _watchers(world: World):
    for index in range(world.shape.readers):
        yield _reader(world, f"reader{index}", world.rng.choice(("", *ZONES))).run()
    yield ask_ends(world.client("asker"), world.addresses, world.account, world.shape.partitions)


async def _settle(world: World, working: list[asyncio.Task]) -> list[str]:
    """Liveness: in fine weather the producers finish and every agent shows the whole log."""
    found = world.failures()
    _, stuck = await asyncio.wait(working, timeout=SETTLE_S)
    found += [f"{task.get_name()} did not finish {SETTLE_S:g} s after the faults" for task in stuck]
    if not stuck:
        found += [repr(error) for task in working if (error := task.exception()) is not None]
    if not world.account.acks:
        found.append("nothing was acknowledged in the whole run")
    final = {}
    for life in world.lives:
        try:
            async with asyncio.timeout(SETTLE_S):
                final[f"agent{life.index}"] = await _read_all(world, life)
        except TimeoutError:
            found.append(f"agent{life.index} did not show the whole log in {SETTLE_S:g} s")
    return [*found, *world.failures(), *verdict(world.account, final)]


async def _read_all(world: World, life: Life) -> dict[tuple[int, int], bytes]:
    """Everything from offset 0 to the end, from one agent."""
    reader = _reader(world, f"final{life.index}")
    ends: dict[int, int] = {}
    while len(ends) < world.shape.partitions:
        try:
            ends = await end_offsets(reader._client, life.address, world.shape.partitions)
        except LostError:
            await asyncio.sleep(0.5)
    while any(reader.offsets[partition] < end for partition, end in ends.items()):
        await reader.poll(life.address, max_wait_ms=100)
    return reader.log
