"""A run of topics that lose records: retention, DeleteRecords, compaction, deletion; with pins.

The cluster, its weather and its faults are those of `tests.sim.world`, always with jobs, whose
claims move with the agents that die, stall and lapse. Whatever was reachable at a position that is
pinned stays in the store, as does what is reachable now, or from a snapshot that is kept; the log is never cut behind its older
snapshot. In the end jobs run until nothing is left to do: the store holds what the machine knows
of and nothing else, the log of the time with faults is cut, and an agent that is started then
shows the same records as the others.
"""

import asyncio
import itertools
import random
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from typing import Any

from typing_extensions import override

from broker.jobs.kinds.collection_plan import PREFIXES, begun_ms, orphans
from broker.node import Node
from coordinator.commands.entries import (
    Close,
    Command,
    CommitChunk,
    Open,
    Pin,
    Rejected,
    Tick,
    Unpin,
)
from coordinator.commands.job_commands import (
    BeginSnapshot,
    ClaimJobs,
    DoomObjects,
    ExpireRecords,
    JobKind,
    ObjectsDoomed,
    ReleaseJobs,
    ReplaceRows,
    RequestJob,
)
from coordinator.log_client import Applied
from coordinator.machine.machine import Machine
from coordinator.snapshot.keeping import kept, snapshot_pins
from coordinator.snapshot.manifest import manifest_key
from coordinator.tables.objects import Unreferenced
from coordinator.tables.partition import Partition as Rows
from protocol.types import POSITION_ZERO, Position
from storage.formats import log_checkpoint
from storage.formats.page import decode_rows
from storage.formats.spans import Marker, ObjectId, Page, Span
from storage.stores.object_store import ObjectInfo
from tests.kit.loop import SimLoop
from tests.kit.requests import Partition
from tests.sim.bounded_clients import Configurer, Deleter, Remaker, Transactor
from tests.sim.compaction_account import CompactionAccount, Kept, records_of
from tests.sim.cut import WHOLE, Cut
from tests.sim.records_world import RecordsWorld
from tests.sim.workload import Asker, LaggingReader, Producer
from tests.sim.world import JOBS, SETTLE_S, Life, Shape, Worker

TRIMMED: list[Partition] = [("trimmed", 0), ("trimmed", 1)]
SIZED: Partition = ("sized", 0)
AGED: Partition = ("aged", 0)
HELD: Partition = ("held", 0)
"""With transactions that stay open for longer than records stay."""
COMPACTED: Partition = ("compacted", 0)
ALL = [*TRIMMED, SIZED, AGED, HELD, COMPACTED]
AGED_MS = ("-1", "3000", "8000", "30000")
HELD_MS = 2000
LONG_MS = "10000000"
"""No run lasts so long."""
CLUSTER_FILES = ("cluster.json", "log.json", "put-once")
LOOK_S = 1.0
MOVING = (ClaimJobs, ReleaseJobs, Open, Close)
"""Commands by which jobs move to others."""
GRACE_MS = int(JOBS["log.segment.delete.delay.ms"])
LONG_GRACE_MS = 20_000
"""Snapshots come more often."""
ASKED_MAX = 5
BUSY_S = (0.0, 0.05, 0.3)


class BoundedWorld(RecordsWorld):
    """Always has jobs. Other worlds with jobs have other topics and clients."""

    def __init__(self, loop: SimLoop, rng: random.Random, cut: Cut = WHOLE) -> None:
        super().__init__(loop, rng, cut)
        self.account.dense = {"trimmed", "sized", "aged"}
        self.account.compacted = {"compacted"}
        self.pinned: dict[tuple[str, Position], frozenset[str]] = {}
        """Objects that were reachable when the pin was set."""
        self.begun: dict[Position, frozenset[str]] = {}
        """Likewise, when a snapshot was begun."""
        self.configurer = Configurer(self, "configurer")
        self._top: Machine | None = None
        self.compaction = CompactionAccount(self.violations, self.counts)
        self._records: dict[Span, dict[int, Kept]] = {}
        """Of the compacted partition, by row."""
        self._waiting: dict[ObjectId, Unreferenced] = {}
        """Objects that nothing points at, after the newest entry that may have changed that."""

    @override
    def drawn_shape(self) -> Shape:
        shape = Shape.drawn(self.rng)
        shape.jobs = True
        # Clocks that are a day ahead are no reason to delete, those behind keep everything: nothing
        # of what is judged here could be.
        shape.kinds -= {"skew"}
        # Where rows are merged all the time there are seldom enough of them for pages.
        shape.settings = {"merge.interval.ms": self.rng.choice(("1000", "600000"))}
        # What is kept by age has its objects for that alone: half of the runs keep two snapshots.
        kept_ms = self.draw("snapshots").choice(("0", JOBS["snapshot.retention.ms"]))
        shape.settings["snapshot.retention.ms"] = kept_ms
        return shape

    # What a run is about.

    @override
    def partitions(self) -> list[Partition]:
        return ALL

    @override
    async def make_topics(self) -> None:
        choice, setup, limits_ms = self.rng.choice, self.client("setup"), self.account.retention_ms
        aged_ms = choice(AGED_MS)
        limits_ms |= {"trimmed": -1, AGED[0]: int(aged_ms), HELD[0]: HELD_MS}
        await setup.create_topics({"trimmed": len(TRIMMED)})
        await setup.create_topics({SIZED[0]: 1}, {"retention.bytes": choice(("500", "4000"))})
        await setup.create_topics({AGED[0]: 1}, {"retention.ms": aged_ms})
        await setup.create_topics({HELD[0]: 1}, {"retention.ms": str(HELD_MS)})
        compaction = {
            "cleanup.policy": "compact",
            "max.compaction.lag.ms": choice(("500", "3000")),
            "min.compaction.lag.ms": choice(("0", "300")),
            "min.cleanable.dirty.ratio": choice(("0.0", "0.5")),
            "delete.retention.ms": choice(("0", "2000", LONG_MS)),
        }
        keeps = compaction["delete.retention.ms"] == LONG_MS
        self.account.keeps_tombstones = self.compaction.keeps_tombstones = keeps
        await setup.create_topics({COMPACTED[0]: 1}, compaction)

    @override
    def workers(self) -> Sequence[Worker]:
        return [
            *[Producer(self, f"trimmed{p[1]}", p, pauses_s=BUSY_S) for p in TRIMMED],
            Producer(self, "sized", SIZED, idempotent=self.rng.random() < 0.5),
            Producer(self, "aged", AGED),
            Producer(self, "held", HELD, pauses_s=(0.5, 2.0)),
            Transactor(self, "transactor", HELD),
            Producer(self, "compacted-a", COMPACTED, keys=5),
            Producer(self, "compacted-b", COMPACTED, keys=8, idempotent=False),
            Remaker(self, "remaker"),
        ]

    @override
    def watchers(self) -> Iterable[Coroutine[Any, Any, None]]:
        yield self.look()
        for index in range(self.shape.readers):
            yield LaggingReader(self, f"reader{index}", ALL).run()
        yield Asker(self, "asker").run()

    @override
    def harm(self) -> Iterable[Coroutine[Any, Any, None]]:
        yield self.configurer.keep_changing(AGED[0], [{"retention.ms": each} for each in AGED_MS])
        to_the_end = self.rng.random() < 0.3
        yield Deleter(self, "deleter", TRIMMED, to_the_end=to_the_end).run()
        yield self.pin()
        yield self.ask_too_much()

    async def calm_down(self) -> None:
        """What is set when the faults are over, so that there is an end."""
        await self.configurer.until_set(AGED[0], {"retention.ms": "3000"})

    # What the log says.

    @override
    def watch(self, owner: str, node: Node) -> None:
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
        self._look_at_holder(machine, applied)
        self._look_at_doomed(machine, applied)
        for command in applied.entry.commands:
            if isinstance(command, Pin):
                self._note_pin(machine, command.name, applied.position)
            elif isinstance(command, BeginSnapshot):
                self.begun[applied.position] = frozenset(self.reachable(machine))
            elif isinstance(command, ExpireRecords):
                self.account.violations += _expired_too_much(machine, command)
            elif isinstance(command, ReplaceRows):
                self._look_at_compacted(machine)

    def _look_at_holder(self, machine: Machine, applied: Applied) -> None:
        """What is a job's is done for its holder alone (P14)."""
        holder = machine.jobs.get(JobKind.COLLECT).holder
        commands = applied.entry.commands
        if holder == applied.incarnation or any(isinstance(each, MOVING) for each in commands):
            return
        for command, outcome in zip(commands, applied.outcomes, strict=True):
            if isinstance(command, DoomObjects) and not isinstance(outcome, Rejected):
                self.account.violations.append(
                    f"objects went as {applied.incarnation} asked, and {holder} has that job (P14)"
                )

    def _look_at_doomed(self, machine: Machine, applied: Applied) -> None:
        """Objects go a while after nothing points at them any more, and no pin reaches them (P14)."""
        commands = applied.entry.commands
        # What else is in the entry may set pins, and take them back.
        pinned = machine.pins.oldest(machine.time_ms) if len(commands) == 1 else None
        for command, outcome in zip(commands, applied.outcomes, strict=True):
            if isinstance(command, DoomObjects) and isinstance(outcome, ObjectsDoomed):
                # Another command of the entry may name it again.
                gone = [self._waiting.pop(each, None) for each in outcome.objects]
                waited = [each for each in gone if each is not None]
                self._look_at_waited(machine.time_ms, command.grace_ms, pinned, waited)
        if not all(isinstance(each, CommitChunk | Tick) for each in commands):
            waiting = machine.objects.unreferenced()
            self._waiting = {each.object_id: each for each in waiting}

    def _look_at_waited(
        self, now_ms: int, grace_ms: int, pinned: Position | None, doomed: Iterable[Unreferenced]
    ) -> None:
        for object_id, since, since_ms in doomed:
            waited_ms = now_ms - since_ms
            if waited_ms < grace_ms:
                text = f"{object_id.key} went after {waited_ms} ms, not after {grace_ms} (P14)"
                self.account.violations.append(text)
            if pinned is not None and since > pinned:
                text = f"{object_id.key} went, and a pin at {pinned:#x} reaches it (P14)"
                self.account.violations.append(text)

    def _note_pin(self, machine: Machine, name: str, position: Position) -> None:
        if any(row.name == name and row.position == position for row in _pins(machine)):
            self.pinned[name, position] = frozenset(self.reachable(machine))
            self.account.counts["pins"] += 1

    def _look_at_compacted(self, machine: Machine) -> None:
        topic = machine.topics.by_name(COMPACTED[0])
        rows = topic and machine.partitions.find(topic.topic_id, COMPACTED[1])
        if rows:
            there = {row: self._records_of(row) for row in self._spans(rows)}
            self._records = there
            records = {offset: each for some in there.values() for offset, each in some.items()}
            self.compaction.look(records, f"at {machine.position:#x}")

    def _spans(self, rows: Rows) -> Iterator[Span]:
        """All, those in pages included."""
        for row in map(rows.row, range(rows.row_count)):
            if isinstance(row, Page):
                yield from [each for each in self._page_rows(row) if isinstance(each, Span)]
            elif isinstance(row, Span):
                yield row

    def _records_of(self, row: Span) -> dict[int, Kept]:
        """As they were when the row was seen first: what is written does not change."""
        if (known := self._records.get(row)) is not None:
            return known
        data = self.store._objects.get(row.object_id.key)
        if data is None:  # Which is told as soon as somebody looks.
            return {}
        return dict(records_of(row, data[row.start : row.start + row.length]))

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
                    rows_in = self._page_rows(row)
                    yield from [each.object_id.key for each in rows_in if isinstance(each, Span)]

    def _page_rows(self, page: Page) -> Sequence[Span | Marker]:
        # The store's clients are in the weather; this is not.
        data = self.store._objects.get(page.object_id.key)
        if data is None:
            self.account.violations.append(f"the page {page} is not in the store")
            return []
        body = data[page.start : page.start + page.length]
        return decode_rows(body, base_offset=page.base_offset, next_offset=page.next_offset)

    async def look(self) -> None:
        """For ever: nothing is missing."""
        while True:
            self.look_once()
            await asyncio.sleep(LOOK_S)

    def look_once(self) -> None:
        machine = self._top
        if machine is None:
            return
        found = self.account.violations
        missing = sorted(set(self.reachable(machine)).difference(self.store._objects))
        if missing:
            found.append(f"at {machine.position:#x} {missing[:3]} are not in the store")
        for row in _pins(machine):
            pinned = self.pinned.get((row.name, row.position), frozenset())
            if missing := sorted(pinned.difference(self.store._objects)):
                found.append(f"{missing[:3]} are not in the store, pinned by {row}")
        self._look_at_snapshots(machine)
        older = machine.snapshots.older
        if self.log._cut > (POSITION_ZERO if older is None else older.position):
            found.append(f"the log is cut at {self.log._cut:#x}, the older snapshot is {older}")

    def _look_at_snapshots(self, machine: Machine) -> None:
        """The two newest, and those that are kept by age, have all that they point at."""
        there = [each for each in self.begun if manifest_key(each) in self.store._objects]
        aged = kept(there, snapshot_pins(machine.pins, machine.time_ms))
        self.account.counts["kept snapshots"] += len(aged)
        newest = [each.position for each in machine.snapshots.published]
        for position in sorted({*aged, *newest}):
            pointed_at = self.begun.get(position, frozenset())
            if missing := sorted(pointed_at.difference(self.store._objects)):
                text = f"{missing[:3]} are not in the store, of the snapshot {position:#x}"
                self.account.violations.append(text)

    # What is proposed by agents.

    def nodes_alive(self) -> list[Node]:
        """With a proven session."""
        owners = {life.owner for life in self.lives if life.agent is not None}
        return [
            node
            for owner, node in self.nodes
            if owner in owners and node.log_client.incarnation() is not None
        ]

    def propose(self, node: Node, command: Command) -> None:
        """Whatever becomes of it."""
        future = node.log_client.propose(command)
        future.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def pin(self) -> None:
        """For ever: pins come, are renewed and taken back."""
        rng = self.draw("pins")
        while True:
            await asyncio.sleep(rng.uniform(0.5, 5.0))
            if nodes := self.nodes_alive():
                name = f"pin{rng.randrange(3)}"
                command = Pin(name, rng.choice((1000, 6000, 20_000)))
                self.propose(rng.choice(nodes), Unpin(name) if rng.random() < 0.2 else command)

    async def ask_too_much(self) -> None:
        """For ever: whatever is there is to go, as if a job were wrong. Apply judges again what jobs ask for."""
        rng, graces = self.draw("asking"), self.draw("graces")
        while True:
            await asyncio.sleep(rng.uniform(1.0, 5.0))
            nodes = self.nodes_alive()
            if not nodes:
                continue
            keys = sorted(key for key in self.store._objects if key.startswith(PREFIXES))
            there = [*map(ObjectId.of_key, keys)]
            waiting = [each[0] for each in nodes[0].log_client.machine.objects.unreferenced()]
            some = [rng.sample(each, min(len(each), ASKED_MAX)) for each in (there, waiting)]
            grace_ms = graces.choice((GRACE_MS, LONG_GRACE_MS))
            command = DoomObjects(grace_ms, tuple(dict.fromkeys(itertools.chain(*some))))
            for node in nodes:  # One of them has the job, or none.
                self.propose(node, command)

    # The end.

    @override
    async def settle(self) -> list[str]:
        """Jobs do all there is to do, and every agent, a new one too, shows the same."""
        found = []
        try:
            async with asyncio.timeout(SETTLE_S):
                await self.calm_down()
        except TimeoutError:
            found.append("a config could not be changed in fine weather")
        found += await self._until_quiet()
        self.lives.append(Life(len(self.lives)))
        self.start(self.lives[-1])
        found += await super().settle()
        self.look_once()
        return found

    async def _until_quiet(self) -> list[str]:
        """Ask for jobs until they have nothing to do any more."""
        since, deadline_s = self.log.head(), self.loop.time() + SETTLE_S
        while True:
            left = self.left_to_do(since)
            if not left or self.loop.time() >= deadline_s:
                return left
            if nodes := self.nodes_alive():
                for kind in JobKind:
                    self.propose(nodes[0], RequestJob(kind))
            await asyncio.sleep(5.0)

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
            if not key.startswith((*PREFIXES, "archive/", "snapshots/", "clock/", "checkpoints/"))
            and key not in CLUSTER_FILES
        ]
        if strange:
            left.append(f"{strange[:3]} are in the store")
        if self.account.starts[AGED] < self.account.end_least(AGED):
            left.append(
                f"old records of {AGED} are there, it starts at {self.account.starts[AGED]}"
            )
        return left


def _pins(machine: Machine) -> list[Any]:
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
        if rows is None:
            continue
        first = next(iter(rows.open_transactions.values()), rows.log_start)
        if rows.log_start > first:
            found.append(f"{expiry}: a transaction has been open since {first}")
    return found
