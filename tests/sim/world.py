"""A cluster in one process: agents over one memory log and one memory store, each in weather of
its own.

The agents are the real ones (`broker.agent.Agent`); only clocks, chance, store, log and network
are given to them. Each life of an agent has an owner name of its own, so that it can be killed
as a process is. A kind of `World` says what a run is about: topics, who works, what else does harm,
and what must hold in the end; what befalls it is in `nemesis`, and `simulation` runs it.
"""

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from broker.agent import Agent, AgentError
from broker.calls.pauses import PauseClock
from broker.cluster.agreed_clock import TOLERANCE_MS
from broker.composition import Parts
from broker.config import settings as config
from broker.node import Node
from broker.recovery.rebuilding import Rebuilt, RecoveryError, Until, rebuild
from coordinator.log.memory import LocalMemoryLog, MemoryLog, MemoryLogCluster
from coordinator.log.metadata_log import SESSIONS_KEPT_MAX
from coordinator.log_client import Applied
from coordinator.machine.machine import Machine
from coordinator.snapshot.manifest import manifest_key
from coordinator.snapshot.snapshot import dump, is_dump_of, restore
from protocol.types import ERA, POSITION_ZERO, first_position
from storage.formats.cluster_identity import ClusterIdentity
from storage.stores.memory import MemoryStore
from tests.kit import own_entries
from tests.kit.agents import NOW_MS, settings
from tests.kit.archives import reached
from tests.kit.chances import Chances
from tests.kit.faults import FaultyLocalLog, FaultyLog, FaultyStore, Weather
from tests.kit.loop import SimLoop
from tests.kit.requests import Partition
from tests.sim.agent_account import AgentAccount
from tests.sim.batch_account import BatchAccount
from tests.sim.client import REQUEST_TIMEOUT_S, Address, Addresses, Client
from tests.sim.cut import WHOLE, Cut
from tests.sim.network import PIECE_BYTES, Network

own_entries.watch()

JOBS = {
    "jobs.start.delay.ms": "500",
    "snapshot.interval.ms": "4000",
    "snapshot.retention.ms": "10000",
    "merge.interval.ms": "1000",
    "merge.age.ms": "500",
    "spill.interval.ms": "1500",
    "spill.age.ms": "500",
    "collect.interval.ms": "1500",
    "log.archive.ms": "500",
    "log.segment.delete.delay.ms": "1000",
    "log.retention.check.interval.ms": "1500",
    "log.cleaner.backoff.ms": "1500",
}
NO_JOBS = {"jobs.enabled": "false"}
"""Nothing is rearranged, however late a run settles."""
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
    store_weather: Weather = field(default_factory=Weather)
    log_weather: Weather = field(default_factory=Weather)
    number: int = 0
    agent: Agent | None = None
    task: asyncio.Task[None] | None = None
    skew_ms: int = 0
    stood_still_ms: int = 0
    """While its machine was paused."""

    @property
    def name(self) -> str:
        return f"agent{self.index}"

    @property
    def address(self) -> Address:
        return self.name, 9092

    @property
    def owner(self) -> str:
        return f"{self.name}.{self.number}"


class World:
    """A cluster, and what a run of it is about."""

    cluster_id: ClassVar[str] = "sim"
    faults_s: ClassVar[float] = 40.0
    leaves: ClassVar[bool] = False
    """Agents also leave in peace and come back."""
    piece_bytes: ClassVar[Sequence[int]] = PIECE_BYTES
    """In which what is sent arrives."""

    def __init__(self, loop: SimLoop, rng: random.Random, cut: Cut = WHOLE) -> None:
        self.loop = loop
        self.rng = rng
        self.cut = cut
        self.chances = Chances(rng.getrandbits(63), loop.time, cut.only)
        self.shape = self.drawn_shape()
        self.violations: list[str] = []
        self.counts: Counter[str] = Counter()
        self.clients: list[str] = []
        """Those that can be left out."""
        self.told: dict[str, str] = {}
        """Faults in words, by name, of those that have more to them."""
        self.nodes: list[tuple[str, Node]] = []
        self.network = Network(loop, self.draw("network"), self.piece_bytes)
        # Of a session whose entries are cut the log then says only that it is gone.
        few = self.draw("sessions kept").random() < 0.5
        self.log = MemoryLogCluster(sessions_kept=0 if few else SESSIONS_KEPT_MAX)
        self.store = MemoryStore(self.now_ms)
        self.lives = [Life(index) for index in range(cut.agents_of(self.shape.agents))]
        addresses = [life.address for life in self.lives]
        zones = dict(zip(addresses, self.shape.zones, strict=False))
        self.addresses = Addresses(addresses, zones)
        self.revoked: set[int] = set()
        """Sessions that were ended early: no lease says so to whom they belong."""
        self.agents = AgentAccount(
            loop, self.log, self.violations, acting=self._acting, revoked=self.revoked
        )
        self.batches = BatchAccount(self.violations)
        self.ends_told: dict[tuple[Address, Partition], int] = defaultdict(int)
        """The greatest that each agent told of each partition with records of it."""
        self._times_ms: Counter[str] = Counter()
        self._digests: dict[int, tuple[bytes, str]] = {}
        """By position, and whose they were."""

    # What a run is about; each kind of world says it.

    def drawn_shape(self) -> Shape:
        return Shape.drawn(self.rng)

    async def make_topics(self) -> None:
        """In fine weather, until all is there that clients need."""

    def workers(self) -> "Sequence[Worker]":
        """Those that finish what they have begun."""
        return ()

    def watchers(self) -> Iterable[Coroutine[Any, Any, None]]:
        """Those that look on until the very end."""
        return ()

    def harm(self) -> Iterable[Coroutine[Any, Any, None]]:
        """What ends with the faults."""
        return ()

    def stop(self, workers: "Sequence[Worker]") -> None:
        """The faults are over: what is begun is to be finished."""
        for each in workers:
            each.stopping = True

    async def settle(self) -> list[str]:
        """When workers are done: what does not come to its end, and what must not be there."""
        return []

    def watch(self, owner: str, node: Node) -> None:
        """An agent begins."""

    # What clients are given.

    def now_ms(self) -> int:
        return NOW_MS + int(self.loop.time() * 1000)

    @property
    def is_in_time(self) -> bool:
        """Whether all agents' clocks are right: what is kept for a day is there in all of the run."""
        return "skew" not in self.shape.kinds

    @property
    def until_s(self) -> float:
        """When the faults end."""
        return self.faults_s if self.cut.faults_s is None else self.cut.faults_s

    def draw(self, what: str) -> random.Random:
        """Chance of its own, whatever others draw; another for the next of that name."""
        return self.chances.stream(self.chances.numbered(what))

    def client(self, name: str, timeout_s: float = REQUEST_TIMEOUT_S) -> Client:
        return Client(self.loop, name, self.addresses, self.draw(name), timeout_s)

    # Agents.

    @property
    def is_embedded(self) -> bool:
        """Small chunks are put by the log, as by `frazil dev`: where an agent is alone."""
        return self.cut.agents_of(self.shape.agents) == 1

    def log_of(self, life: Life) -> FaultyLog:
        """As the present process of this agent sees it, in fine weather."""
        if self.is_embedded:
            return FaultyLocalLog(LocalMemoryLog(self.log), recording=False)
        return FaultyLog(MemoryLog(self.log), recording=False)

    def start(self, life: Life) -> None:
        """A new process of the agent: a new life, nothing kept but its name."""
        life.number += 1
        rng, loop = self.draw(life.name), self.loop
        store = FaultyStore(self.store, recording=False)
        log = self.log_of(life)
        life.store_weather.befall(store, self.chances, f"{life.name}.store")
        life.log_weather.befall(log, self.chances, f"{life.name}.log")
        self.agents.watch_log(life.owner, log)

        def wall_ms() -> int:
            return life.skew_ms + self.now_ms()

        def steady_ms() -> int:
            return 1_000_000 + int(loop.time() * 1000) - life.stood_still_ms

        parts = Parts(
            store=store,
            log=log,
            now_ms=wall_ms,
            boot_ms=self.agents.clock(PauseClock(wall_ms=wall_ms, boot_ms=steady_ms)),
            steady_ms=steady_ms,
            rng=rng,
        )
        with loop.owned(life.owner):
            life.agent = Agent(self.settings_of(life), parts)
            life.task = loop.create_task(self._live(life, life.agent, life.owner))

    async def _live(self, life: Life, agent: Agent, owner: str) -> None:
        def begun(node: Node) -> None:
            self.nodes.append((owner, node))
            self.watch(owner, node)
            self.agents.begins(owner, node)
            self.batches.begins(owner, node)
            node.log_client.on_applied(lambda applied: self._compare(owner, node, applied))
            node.log_client.on_applied(lambda applied: self.agents.applied(node, applied))

        agent.on_node(begun)
        try:
            await agent.run()
        except Exception as error:
            if not (isinstance(error, AgentError) and self.may_end(life, error)):
                # At the end of the run there may be another life in its place.
                self.violations.append(f"{owner} ended: {error!r}")
                raise
            # As whoever supervises processes would.
            with self.loop.owned("supervisor"):
                self.loop.call_soon(self.start_again, life)

    def _compare(self, owner: str, node: Node, applied: Applied) -> None:
        """Replicas at the same position are equal (P13)."""
        self._look_at_time(owner, node.log_client.machine, applied)
        digest = node.log_client.machine.digest()
        known, other = self._digests.setdefault(applied.position, (digest, owner))
        if known != digest:
            where = f"{applied.position:#x}"
            self.violations.append(f"digests of {other} and {owner} differ at {where}")

    def _look_at_time(self, owner: str, machine: Machine, applied: Applied) -> None:
        """It does not go back, nor ahead of the slowest clock; no clock is ahead of the store's (P6)."""
        where, before_ms = f"at {applied.position:#x} (P6)", self._times_ms[owner]
        if machine.time_ms < before_ms:
            self.violations.append(f"the time of {owner} went back {where}")
        least_ms = min((row.clock_ms for row in machine.incarnations), default=machine.time_ms)
        if before_ms and machine.time_ms > max(before_ms, least_ms):
            self.violations.append(f"the time of {owner} is ahead of the slowest clock {where}")
        # Of the store the simulator's clock is the only right one.
        ahead_ms = applied.entry.clock_ms - self.now_ms()
        if ahead_ms > TOLERANCE_MS:
            self.violations.append(f"an agent's time is {ahead_ms} ms ahead of the store's {where}")
        self._times_ms[owner] = machine.time_ms

    def _acting(self) -> Iterable[str]:
        """Who stands still does not act."""
        return [
            life.owner
            for life in self.lives
            if life.agent is not None and not self.loop.is_paused(life.owner)
        ]

    def may_end(self, life: Life, error: AgentError) -> bool:
        """Whether this is no bug."""
        return FALLEN_BEHIND in str(error)

    def start_again(self, life: Life) -> None:
        self.kill(life)
        self.start(life)

    def settings_of(self, life: Life) -> config.Settings:
        host, port = life.address
        given = {
            "listen": f"{host}:{port}",
            "cluster.id": self.cluster_id,
            "node.name": life.name,
            "zone": self.addresses.zones.get(life.address, ""),
            "cache.bytes": "1MiB",
            "chunk.bytes": "64KiB",
            "puts.per.second": "100",
            "lease.ttl.ms": "5000",
            "session.deadline.ms": "3500",
            "log.retention.ms": "-1",
            **(JOBS if self.shape.jobs else NO_JOBS),
            **self.shape.settings,
        }
        # No operator may have so few rows in memory; here there are no more.
        told = settings(**given)
        return replace(told, spill_rows=SPILL_ROWS) if self.shape.jobs else told

    def kill(self, life: Life) -> None:
        self.loop.kill(life.owner)
        self.network.reset(life.owner)
        life.agent = None

    # The log in the store.

    def newest_machine(self) -> Machine:
        machines = [node.log_client.machine for _, node in self.nodes]
        return max(machines, key=lambda machine: machine.position, default=Machine())

    async def watch_archive(self) -> None:
        """For ever: archives leave no hole, and what the store had of the log it has, or a snapshot."""
        before = POSITION_ZERO
        while True:
            await asyncio.sleep(0.5)
            published = self.newest_machine().snapshots.published
            begin = published[0].position if published else POSITION_ZERO
            after, end = reached(self.store._objects, begin)
            if after < max(before, end):
                self.violations.append(
                    f"archives lead from {begin:#x} to {after:#x}, not to {max(before, end):#x}"
                )
            before = max(before, after)

    async def archive_left(self) -> list[str]:
        """What a recovery would not find of the log as it is now; in the end."""
        since, deadline_s = self.log.head(), self.loop.time() + SETTLE_S
        cluster = ClusterIdentity(self.cluster_id, ERA)
        while True:
            try:
                rebuilt = await rebuild(self.store, cluster, Until(), tell=lambda _line: None)
            except RecoveryError as error:
                # A run may be over before anything was archived.
                trouble = f"archives lead nowhere: {error}"
            else:
                found = rebuilt.machine
                # The worker of the jobs may be ahead of all agents.
                if found.position >= since and found.position in self._digests:
                    return self._archive_fails(rebuilt)
                trouble = f"the log is archived to {found.position:#x} only, not to {since:#x}"
            if self.loop.time() >= deadline_s:
                return [trouble]
            await asyncio.sleep(5.0)

    def _archive_fails(self, rebuilt: Rebuilt) -> list[str]:
        found = rebuilt.machine
        digest, owner = self._digests[found.position]
        if found.digest() != digest:
            where = f"{found.position:#x}"
            return [f"archives lead to another machine than that of {owner} at {where}"]
        return [*rebuilt.troubles, *_next_era_fails(found)]

    def failures(self) -> list[str]:
        """Agents that ended by themselves, and errors that nobody caught: both are bugs."""
        found = list(self.loop.failures)
        for life in self.lives:
            if life.agent is not None and life.task is not None and life.task.done():
                found.append(f"{life.owner} ended: {life.task.exception()!r}")
        return found + [
            f"a handler of {owner} failed"
            for owner, node in self.nodes
            if node.stats.failed_handlers
        ]


class Worker:
    """A client with a load of its own: a connection, chance, and what it complains of."""

    is_spare: ClassVar[bool] = True
    """Whether a run can do without it."""

    def __init__(self, world: World, name: str, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self.world = world
        self.client = world.client(name, timeout_s)
        self.rng = self.client.rng
        self.stopping = False
        """To finish what it has begun."""

    @property
    def name(self) -> str:
        return self.client.name

    def wrong(self, told: str) -> None:
        self.world.violations.append(f"{self.name}: {told}")

    async def run(self) -> None:
        """What it does all the time."""


def _next_era_fails(machine: Machine) -> list[str]:
    """The machine goes on in another era, and comes back out of that one's snapshot."""
    begun = first_position(ERA + 1)
    machine.begin_era(begun, snapshot_key=manifest_key(begun))
    again = Machine()
    restore(again, [*dump(machine)])
    same = is_dump_of(again, dump(machine)) and not again.transactions.ongoing
    return [] if same else ["the next era is another machine out of its snapshot"]
