"""A run of topics that lose records: retention, DeleteRecords, compaction, deletion; with pins.

The cluster, its weather and its faults are those of `tests.sim.world`, always with jobs, whose
claims move with the agents that die, stall and lapse. Whatever was reachable at a position that is
pinned stays in the store, as does what is reachable now; the log is never cut behind its older
snapshot. In the end jobs run until nothing is left to do: the store holds what the machine knows
of and nothing else, the log of the time with faults is cut, and an agent that is started then
shows the same records as the others.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from unittest.mock import patch

from broker.jobs.kinds import spill_plan
from broker.jobs.kinds.collection_plan import PREFIXES, begun_ms, orphans
from broker.jobs.worker import worker
from broker.node import Node
from coordinator.commands.entries import Pin, Unpin
from coordinator.commands.job_commands import ExpireRecords, JobKind, RequestJob
from coordinator.log_client import Applied
from coordinator.machine.machine import Machine
from coordinator.tables.partition import Partition as Rows
from protocol.types import POSITION_ZERO, Position
from storage.formats import log_checkpoint
from storage.formats.page import decode_rows
from storage.formats.spans import Page, Span
from storage.stores.object_store import ObjectInfo
from tests.kit.faults import Weather
from tests.kit.loop import SimLoop
from tests.sim.bounded_account import BoundedAccount, Partition, Shown
from tests.sim.bounded_clients import (
    EARLIEST,
    LATEST,
    Asker,
    Bounded,
    Configurer,
    Deleter,
    LaggingReader,
    Remaker,
    Transactor,
    Writer,
    create_topic,
)
from tests.sim.world import FAULTS_S, SETTLE_S, START_MS, Life, Nemesis, Shape, World

TRIMMED: list[Partition] = [("trimmed", 0), ("trimmed", 1)]
SIZED: Partition = ("sized", 0)
AGED: Partition = ("aged", 0)
HELD: Partition = ("held", 0)
"""With transactions that stay open for longer than records stay."""
COMPACTED: Partition = ("compacted", 0)
ALL = [*TRIMMED, SIZED, AGED, HELD, COMPACTED]
AGED_MS = ("-1", "3000", "8000", "30000")
HELD_MS = 2000
CLUSTER_FILES = ("cluster.json", "log.json")
LOOK_S = 1.0
BUSY_S = (0.0, 0.05, 0.3)


@dataclass
class BoundedWorld(World):
    bounded: BoundedAccount = field(default_factory=BoundedAccount)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.bounded.dense = {"trimmed", "sized", "aged"}
        self.bounded.compacted = {"compacted"}
        self.pinned: dict[tuple[str, Position], frozenset[str]] = {}
        """Objects that were reachable when the pin was set."""
        self.watch = self._watch
        self._top: Machine | None = None

    # What a run is about; other worlds with jobs have other topics and clients.

    def partitions(self) -> list[Partition]:
        """All that are read in the end."""
        return ALL

    async def make_topics(self) -> None:
        """Until they are there."""
        await _make_topics(self)
        self._configurer = Configurer(*self.given("configurer"), topic=AGED[0], choices=[*AGED_MS])

    def workers(self) -> list:
        """Those that finish what they have begun."""
        return _workers(self)

    def watchers(self) -> Iterator:
        """Those that look on until the very end."""
        return _watchers(self)

    def harm(self) -> Iterator:
        """What ends with the faults."""
        yield self._configurer.run()
        yield from _harm(self)

    async def calm_down(self) -> None:
        """What is set when the faults are over, so that there is an end."""
        await self._configurer.settle("3000")

    def now_ms(self) -> int:
        return START_MS + int(self.loop.time() * 1000)

    def given(self, name: str) -> tuple:
        """What every client is given."""
        rng = random.Random(self.rng.getrandbits(64))
        return self.client(name), self.addresses, self.bounded, rng, self.now_ms

    # What the log says.

    def _watch(self, node: Node) -> None:
        machine = node.log_client.machine
        node.log_client.on_applied(lambda applied: self._applied(machine, applied))

    def _applied(self, machine: Machine, applied: Applied) -> None:
        if (
            self._top is not None
            and applied.position <= self._top.position
            and (self._top is not machine)
        ):
            return
        self._top = machine
        for command in applied.entry.commands:
            if isinstance(command, Pin):
                self._note_pin(machine, command.name, applied.position)
            elif isinstance(command, ExpireRecords):
                self.bounded.violations += _expired_too_much(machine, command)

    def _note_pin(self, machine: Machine, name: str, position: Position) -> None:
        if any(row.name == name and row.position == position for row in _pins(machine)):
            self.pinned[name, position] = frozenset(self.reachable(machine))
            self.bounded.counts["pins"] += 1

    # What must be in the store.

    def reachable(self, machine: Machine) -> Iterator[str]:
        """Keys of all objects that rows point at, those in pages included."""
        for rows in _all_rows(machine):
            for index in range(rows.row_count):
                row = rows.row(index)
                if isinstance(row, Span):
                    yield row.object_id.key
                elif isinstance(row, Page):
                    yield row.object_id.key
                    yield from self._in_page(row)

    def _in_page(self, page: Page) -> list[str]:
        # The store's clients are in the weather; this is not.
        data = self.store._objects.get(page.object_id.key)
        if data is None:
            self.bounded.violations.append(f"the page {page} is not in the store")
            return []
        body = data[page.start : page.start + page.length]
        rows = decode_rows(body, base_offset=page.base_offset, next_offset=page.next_offset)
        return [row.object_id.key for row in rows if isinstance(row, Span)]

    async def look(self) -> None:
        """For ever: nothing is missing."""
        while True:
            self.look_once()
            await asyncio.sleep(LOOK_S)

    def look_once(self) -> None:
        machine = self._top
        if machine is None:
            return
        found = self.bounded.violations
        missing = sorted(set(self.reachable(machine)).difference(self.store._objects))
        if missing:
            found.append(f"at {machine.position:#x} {missing[:3]} are not in the store")
        for row in _pins(machine):
            pinned = self.pinned.get((row.name, row.position), frozenset())
            if missing := sorted(pinned.difference(self.store._objects)):
                found.append(f"{missing[:3]} are not in the store, pinned by {row}")
        older = machine.snapshots.older
        if self.log._cut > (POSITION_ZERO if older is None else older.position):
            found.append(f"the log is cut at {self.log._cut:#x}, the older snapshot is {older}")

    # What is proposed by agents.

    def nodes_alive(self) -> list[Node]:
        """With a proven session."""
        owners = {life.owner for life in self.lives if life.agent is not None}
        return [
            node
            for owner, node in self.nodes
            if owner in owners and node.log_client.incarnation() is not None
        ]

    def propose(self, node: Node, command) -> None:
        """Whatever becomes of it."""
        future = node.log_client.propose(command)
        future.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def pin(self) -> None:
        """For ever: pins come, are renewed and taken back."""
        rng = random.Random(self.rng.getrandbits(64))
        while True:
            await asyncio.sleep(rng.uniform(0.5, 5.0))
            if nodes := self.nodes_alive():
                name = f"pin{rng.randrange(3)}"
                command = Pin(name, rng.choice((1000, 6000, 20_000)))
                self.propose(rng.choice(nodes), Unpin(name) if rng.random() < 0.2 else command)

    # The end.

    def left_to_do(self, since: Position) -> list[str]:
        """What jobs have not done yet, of what was to be done at a position."""
        nodes = self.nodes_alive()
        if not nodes:
            return ["no agent has a session"]
        machine = max([node.log_client.machine for node in nodes], key=lambda m: m.position)
        left = []
        if self.log._cut < since:
            left.append(f"the log is cut at {self.log._cut:#x} only, not at {since:#x}")
        if any(since >= each.since for each in machine.objects.unreferenced()):
            left.append("objects that nothing points at are not deleted")
        if any(True for _ in machine.partitions.deleted()):
            left.append("deleted topics have rows left")
        infos = [
            ObjectInfo(key, len(data), self.store._modified_ms[key])
            for key, data in sorted(self.store._objects.items())
        ]
        since_ms = begun_ms(machine, log_checkpoint.found_in(infos))
        if found := [each.key for each in orphans(machine, infos, begun_ms=since_ms)]:
            left.append(f"orphans are in the store: {found[:3]}")
        strange = [
            key
            for key in sorted(self.store._objects)
            if not key.startswith((*PREFIXES, "snapshots/", "clock/", "checkpoints/"))
            and key not in CLUSTER_FILES
        ]
        if strange:
            left.append(f"{strange[:3]} are in the store")
        if self.bounded.starts[AGED] < max(self.bounded.acked[AGED], default=-1) + 1:
            left.append(
                f"old records of {AGED} are there, it starts at {self.bounded.starts[AGED]}"
            )
        return left


def _pins(machine: Machine):
    return list(machine.pins.alive(machine.time_ms))


def _all_rows(machine: Machine) -> Iterator[Rows]:
    yield from machine.partitions.written()
    for topic in machine.partitions.deleted():
        yield from machine.partitions.left(topic.topic_id)


def _expired_too_much(machine: Machine, command: ExpireRecords) -> list[str]:
    """Retention leaves alone what is in open transactions, and what comes after."""
    found = []
    for expiry in command.expiries:
        rows = machine.partitions.find(expiry.topic_id, expiry.partition)
        first = None if rows is None else next(iter(rows.open_transactions.values()), None)
        if first is not None and rows.log_start > first:
            found.append(f"{expiry}: a transaction has been open since {first}")
    return found


async def simulate_bounded(loop: SimLoop, rng: random.Random) -> list[str]:
    """One run. The violations found; none is a pass."""
    return await simulate_jobs(BoundedWorld(loop, rng, _shape(rng)))


async def simulate_jobs(world: BoundedWorld) -> list[str]:
    """One run of a world that always has jobs."""
    logging.getLogger().setLevel(logging.CRITICAL)
    # Pages are for hundreds of rows; no run lasts so long.
    with patch.multiple(spill_plan, PAGE_ROWS_MIN=4, ROWS_LEFT=2), _heard() as bugs:
        return [*await _simulate(world), *bugs]


@contextlib.contextmanager
def _heard() -> Iterator[list[str]]:
    """Rounds of jobs that failed by a bug: a worker only says so, and goes on."""
    bugs: list[str] = []
    logger = logging.getLogger(worker.__name__)
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: bugs.append(f"{record.getMessage()}: {record.exc_info[1]!r}")
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        yield bugs
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


async def _simulate(world: BoundedWorld) -> list[str]:
    loop, rng = world.loop, world.rng
    for life in world.lives:
        world.start(life)
    try:
        async with asyncio.timeout(SETTLE_S):
            await world.make_topics()
    except TimeoutError:
        return [*world.failures(), "no topics could be created in fine weather"]
    workers = world.workers()
    working = [loop.create_task(each.run(), name=each.client.name) for each in workers]
    background = [loop.create_task(each) for each in world.watchers()]
    harm = [loop.create_task(each) for each in world.harm()]
    for life in world.lives:
        life.store_weather.__dict__.update(Weather.drawn(rng).__dict__)
        life.log_weather.__dict__.update(Weather.drawn(rng).__dict__)
    nemesis = Nemesis(world)
    harm.append(loop.create_task(nemesis.run()))
    await asyncio.sleep(FAULTS_S)
    for task in harm:
        task.cancel()
    nemesis.take_back()
    for each in workers:
        each.stopping = True
    found = await _settle(world, working)
    for task in background:
        task.cancel()
        if task.done() and not task.cancelled():
            found.append(f"a client ended: {task.exception()!r}")
    for task in harm:
        if task.done() and not task.cancelled() and task.exception() is not None:
            found.append(f"what does harm ended: {task.exception()!r}")
    return found


def _shape(rng: random.Random) -> Shape:
    shape = Shape.drawn(rng)
    shape.jobs = True
    # Clocks that are a day ahead are no reason to delete, those behind keep everything: nothing
    # of what is judged here could be.
    shape.kinds -= {"skew"}
    # Where rows are merged all the time there are seldom enough of them for pages.
    shape.settings = {"merge.interval.ms": rng.choice(("1000", "600000"))}
    return shape


async def _make_topics(world: BoundedWorld) -> None:
    rng, setup = world.rng, Bounded(*world.given("setup"))
    await create_topic(setup, "trimmed", len(TRIMMED), {})
    world.bounded.retention_ms["trimmed"] = -1
    await create_topic(setup, SIZED[0], 1, {"retention.bytes": rng.choice(("500", "4000"))})
    first_ms = rng.choice(AGED_MS)
    await create_topic(setup, AGED[0], 1, {"retention.ms": first_ms})
    world.bounded.retention_ms[AGED[0]] = int(first_ms)
    await create_topic(setup, HELD[0], 1, {"retention.ms": str(HELD_MS)})
    world.bounded.retention_ms[HELD[0]] = HELD_MS
    compaction = {
        "cleanup.policy": "compact",
        "max.compaction.lag.ms": rng.choice(("500", "3000")),
        "min.compaction.lag.ms": rng.choice(("0", "300")),
        "min.cleanable.dirty.ratio": rng.choice(("0.0", "0.5")),
        "delete.retention.ms": rng.choice(("0", "2000", "100000")),
    }
    await create_topic(setup, COMPACTED[0], 1, compaction)


def _workers(world: BoundedWorld) -> list:
    rng = world.rng
    return [
        *[Writer(*world.given(f"trimmed{p[1]}"), partition=p, pauses_s=BUSY_S) for p in TRIMMED],
        Writer(*world.given("sized"), partition=SIZED, idempotent=rng.random() < 0.5),
        Writer(*world.given("aged"), partition=AGED),
        Writer(*world.given("held"), partition=HELD, pauses_s=(0.5, 2.0)),
        Transactor(*world.given("transactor"), partition=HELD),
        Writer(*world.given("compacted-a"), partition=COMPACTED, keys=5),
        Writer(*world.given("compacted-b"), partition=COMPACTED, keys=8, idempotent=False),
        Remaker(*world.given("remaker")),
    ]


def _watchers(world: BoundedWorld) -> Iterator:
    yield world.look()
    for index in range(world.shape.readers):
        yield LaggingReader(*world.given(f"reader{index}"), partitions=ALL).run()
    yield Asker(*world.given("asker"), partitions=ALL).run()


def _harm(world: BoundedWorld) -> Iterator:
    to_the_end = world.rng.random() < 0.3
    yield Deleter(*world.given("deleter"), partitions=TRIMMED, to_the_end=to_the_end).run()
    yield world.pin()


async def _settle(world: BoundedWorld, working: list[asyncio.Task]) -> list[str]:
    """Liveness: in fine weather clients finish, jobs do all there is to do, and every agent, a
    new one too, shows the same."""
    found = world.failures()
    _, stuck = await asyncio.wait(working, timeout=SETTLE_S)
    found += [f"{task.get_name()} did not finish {SETTLE_S:g} s after the faults" for task in stuck]
    if not stuck:
        found += [repr(error) for task in working if (error := task.exception()) is not None]
    if not world.bounded.places:
        found.append("nothing was acknowledged in the whole run")
    try:
        async with asyncio.timeout(SETTLE_S):
            await world.calm_down()
    except TimeoutError:
        found.append("a config could not be changed in fine weather")
    found += await _until_quiet(world)
    fresh = Life(len(world.lives), (f"agent{len(world.lives)}", 9092), Weather(), Weather())
    world.lives.append(fresh)
    world.start(fresh)
    final = {}
    for life in world.lives:
        try:
            async with asyncio.timeout(SETTLE_S):
                final[f"agent{life.index}"] = await _read_all(world, life)
        except TimeoutError:
            found.append(f"agent{life.index} did not show the whole log in {SETTLE_S:g} s")
    world.look_once()
    violations = [*world.account.violations, *world.bounded.verdict(final)]
    return [*found, *world.failures(), *violations]


async def _until_quiet(world: BoundedWorld) -> list[str]:
    """Ask for jobs until they have nothing to do any more."""
    since, deadline_s = world.log.head(), world.loop.time() + SETTLE_S
    while True:
        left = world.left_to_do(since)
        if not left or world.loop.time() >= deadline_s:
            return left
        if nodes := world.nodes_alive():
            for kind in JobKind:
                world.propose(nodes[0], RequestJob(kind))
        await asyncio.sleep(5.0)


async def _read_all(world: BoundedWorld, life: Life) -> dict[Partition, Shown]:
    """Everything that one agent has, from log start to end."""
    partitions = world.partitions()
    reader = LaggingReader(*world.given(f"final{life.index}"), partitions=partitions)
    ends: dict[Partition, int] = {}
    for partition in partitions:
        while (end := await reader.limit(partition, LATEST, life.address)) is None:
            await asyncio.sleep(0.3)
        while (start := await reader.limit(partition, EARLIEST, life.address)) is None:
            await asyncio.sleep(0.3)
        reader.offsets[partition], ends[partition] = start, end
    starts = dict(reader.offsets)
    while any(reader.offsets[partition] < end for partition, end in ends.items()):
        await reader.poll(life.address, max_wait_ms=100)
    return {p: Shown(starts[p], ends[p], reader.lines[p]) for p in partitions}
