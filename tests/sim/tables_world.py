"""A run of tables: exports that retention waits for, topics that grow, a schema registry, upgrades.

The cluster, its weather, its faults and its end are those of `tests.sim.bounded_world`. In some
runs agents are at first of the release before, which knows no commands about tables: they are
started anew as of this release one by one, and until then nothing that they could not read may be
written. What must hold is in `tables_account`; it has the log at first hand.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any

from typing_extensions import override

from broker.agent import AgentError
from broker.config.addresses import Address
from broker.config.settings import Settings
from broker.node import Node
from coordinator.commands.codec import decode_entry, encode_entry
from coordinator.commands.entries import Open
from coordinator.commands.job_commands import JOBS_LEVEL
from coordinator.log.memory import MemoryLog, MemoryLogCluster
from coordinator.log.metadata_log import LogEntry, Session
from coordinator.log_client import Applied
from coordinator.tables.partition import Partition as Rows
from protocol.types import Position
from tests.kit.faults import FaultyLog
from tests.kit.loop import SimLoop
from tests.kit.requests import Partition
from tests.sim.bounded_clients import Remaker
from tests.sim.bounded_world import BoundedWorld
from tests.sim.cut import WHOLE, Cut
from tests.sim.tables_account import HOLD, HOLD_MAX, TablesAccount, touches_tables
from tests.sim.tables_clients import (
    HTTP_PORT,
    REGISTRY_PORT,
    Exporter,
    Grower,
    Registrar,
    Spreader,
    WideReader,
)
from tests.sim.web_client import TOKEN
from tests.sim.workload import Asker
from tests.sim.world import Life, Worker

WAITING, BRIEF, SIZED = "waiting", "brief", "heldsize"
TOPICS = [WAITING, BRIEF, SIZED]
"""Records wait for the export: for ever; for a while; and go by size."""
FOREVER_MS = "1000000000"
BRIEF_MS = ("1000", "6000", "15000")
CONFIGS = {
    WAITING: {"retention.ms": "1000", HOLD: "true", HOLD_MAX: FOREVER_MS},
    BRIEF: {"retention.ms": "500", HOLD: "true", HOLD_MAX: BRIEF_MS[1]},
    SIZED: {"retention.bytes": "500", HOLD: "true", HOLD_MAX: FOREVER_MS},
}
UNREADABLE = b"\xff"
"""An entry of a format that nobody knows."""


class WatchedLog(MemoryLogCluster):
    """Says what is appended, as it is."""

    def __init__(self, watch: Callable[[Position, bytes], None]) -> None:
        super().__init__()
        self._watch = watch

    @override
    def _place(self, session: int, n: int, payload: bytes) -> Position:
        position = super()._place(session, n, payload)
        self._watch(position, payload)
        return position


class OldLog(MemoryLog):
    """The log as an agent of the release before writes and reads it."""

    @override
    async def open(self, session: int, payload: bytes) -> Session:
        entry = decode_entry(payload)
        commands = tuple(
            replace(each, feature_level_max=JOBS_LEVEL) if isinstance(each, Open) else each
            for each in entry.commands
        )
        return await super().open(session, encode_entry(replace(entry, commands=commands)))

    @override
    async def tail(self, after: Position) -> AsyncGenerator[Sequence[LogEntry], None]:
        async for batch in super().tail(after):
            yield [as_read_before(entry) for entry in batch]


def as_read_before(entry: LogEntry) -> LogEntry:
    """An entry about tables is of a format that nobody knows there."""
    if touches_tables(decode_entry(entry.payload), topics=False):
        return entry._replace(payload=UNREADABLE)
    return entry


class TablesWorld(BoundedWorld):
    """Has topics that tables are made of."""

    def __init__(self, loop: SimLoop, rng: random.Random, cut: Cut = WHOLE) -> None:
        super().__init__(loop, rng, cut)
        self.tables = TablesAccount(self.violations, self.counts, now_ms=self.now_ms)
        self.log = WatchedLog(self.tables.placed)
        self.agents.look_at(self.log)
        self.account.dense = {*TOPICS}
        self.old: set[int] = set()
        """Places of agents that are still of the release before."""
        if rng.random() < 0.4:
            self.old = {life.index for life in self.lives if rng.random() < 0.6}
        self._exporters = [
            Exporter(self, f"exporter-{topic}", self.tables, topic) for topic in TOPICS
        ]

    # Agents.

    @override
    def start(self, life: Life) -> None:
        machine = self.tables.machine
        if len(machine.exports) or not machine.schemas.is_untouched:
            self.old.discard(life.index)  # It could not read the newest snapshot.
        super().start(life)

    @override
    def log_of(self, life: Life) -> FaultyLog:
        if life.index in self.old:
            return FaultyLog(OldLog(self.log), recording=False)
        return super().log_of(life)

    @override
    def may_end(self, life: Life, error: AgentError) -> bool:
        if life.index in self.old and "cannot be decoded" in str(error):
            self.counts["old agents that met the new"] += 1
            self.old.discard(life.index)
            return True
        return super().may_end(life, error)

    @override
    def settings_of(self, life: Life) -> Settings:
        host, _ = life.address
        return replace(
            super().settings_of(life),
            http=Address(host, HTTP_PORT),
            http_token=TOKEN,
            registry_listen=(Address(host, REGISTRY_PORT),),
        )

    @override
    def watch(self, owner: str, node: Node) -> None:
        super().watch(owner, node)
        machine = node.log_client.machine
        begun = False

        def compare(applied: Applied) -> None:
            nonlocal begun
            if not begun or touches_tables(applied.entry):
                begun = True
                self.tables.compare(node.settings.node_name, machine)

        node.log_client.on_applied(compare)

    async def _upgrade(self) -> None:
        """One agent after the other."""
        rng = self.draw("upgrade")
        for index in sorted(self.old):
            await asyncio.sleep(rng.uniform(1.0, 12.0))
            self._upgrade_one(self.lives[index])

    def _upgrade_one(self, life: Life) -> None:
        self.old.discard(life.index)
        if life.agent is not None:
            self.start_again(life)

    # What a run is about.

    @override
    def partitions(self) -> list[Partition]:
        counts = self.tables.states[-1].partition_counts
        return [(topic, number) for topic in TOPICS for number in range(counts.get(topic, 0))]

    @override
    async def make_topics(self) -> None:
        counts = {topic: self.rng.choice((1, 2)) for topic in TOPICS}
        await self.client("setup").create_topics(counts)

    @override
    def workers(self) -> Sequence[Worker]:
        spreaders = [Spreader(self, f"spreader-{topic}", self.tables, topic) for topic in TOPICS]
        return [*spreaders, Remaker(self, "remaker")]

    @override
    def watchers(self) -> Iterable[Coroutine[Any, Any, None]]:
        yield self.look()
        for index in range(self.shape.readers):
            yield WideReader(self, f"reader{index}", self.partitions()).run()
        yield Asker(self, "asker").run()

    @override
    def harm(self) -> Iterable[Coroutine[Any, Any, None]]:
        yield self.pin()
        yield self._upgrade()
        for exporter in self._exporters:
            yield exporter.run()
        yield self._hold()
        yield Grower(self, "grower", self.tables).run()
        for index in range(self.rng.choice((1, 2, 3))):
            yield Registrar(self, f"registrar{index}", self.tables).run()

    async def _hold(self) -> None:
        for topic in TOPICS:
            await self.configurer.until_set(topic, CONFIGS[topic])
        await self.configurer.keep_changing(BRIEF, [{HOLD_MAX: each} for each in BRIEF_MS])

    @override
    async def calm_down(self) -> None:
        for life in self.lives:
            if life.index in self.old:
                self._upgrade_one(life)
        for topic in TOPICS:
            await self.configurer.until_set(topic, CONFIGS[topic])
        for exporter in self._exporters:
            if exporter.topic != BRIEF:
                await exporter.finish(self._final(exporter.topic))

    def _final(self, topic: str) -> dict[int, int]:
        """How far the table is in the end: in some partitions not at the end of the log."""
        offsets = {}
        for name, number in self.partitions():
            if name == topic:
                end = max(self.account.acked[name, number], default=-1) + 1
                offsets[number] = self.rng.choice((end, self.rng.randint(0, end)))
        return offsets

    # The end.

    @override
    def left_to_do(self, since: Position) -> list[str]:
        left = super().left_to_do(since)
        for partition in self.partitions():
            rows = self._rows_of(partition)
            if rows is None or rows.row_count == 0:
                continue
            if partition[0] == BRIEF:
                left.append(f"{partition} has held records back for too long")
            elif partition[0] == WAITING and rows.row(0).next_offset <= self._exported(partition):
                left.append(f"{partition} holds records that are exported")
        return left

    def _rows_of(self, partition: Partition) -> Rows | None:
        topic = self.tables.machine.topics.by_name(partition[0])
        assert topic is not None
        return self.tables.machine.partitions.find(topic.topic_id, partition[1])

    def _exported(self, partition: Partition) -> int:
        return self.tables.states[-1].exported.get(partition[0], {}).get(partition[1], 0)

    @override
    def failures(self) -> list[str]:
        for owner, node in self.nodes:
            if any(life.owner == owner and life.agent is not None for life in self.lives):
                self.tables.compare(owner, node.log_client.machine)
        return [*super().failures(), *self.tables.too_much(self.account)]
