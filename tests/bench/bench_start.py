"""How long an agent takes to start on a large cluster: `python -m tests.bench.bench_start`.

Makes a machine of so many partitions and spans (most of them in pages), windows, groups and
offsets; dumps it, writes it into a store on disk, and publishes it in a log in SQLite. Then a
process of its own starts an agent: the seconds until it serves, its memory, and the longest time
that a ticker of 1 ms had to wait, until then (health is answered by that loop) and while its
worker makes a snapshot. Dumping and restoring are also measured alone.
"""

import argparse
import asyncio
import gc
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from broker.agent import Agent
from broker.composition import Parts
from broker.config.settings import Settings, load
from broker.environment import boot_ms, loop_factory, now_ms, open_adapters
from broker.process import software_version
from broker.store import identity
from coordinator.commands.codec import encode_entry
from coordinator.commands.entries import (
    ChunkSpan,
    Command,
    CommitChunk,
    CreateTopic,
    Entry,
    Open,
    Outcome,
    TopicCreated,
)
from coordinator.commands.group_commands import (
    EPOCH_NONE,
    GROUP_SHARDS,
    ClaimShards,
    CommitOffsets,
    CommittedOffset,
)
from coordinator.commands.job_commands import (
    BeginSnapshot,
    ClaimJobs,
    JobKind,
    PublishSnapshot,
    ReleaseJobs,
    RequestJob,
)
from coordinator.log.metadata_log import Session
from coordinator.log.sqlite import SqliteLog
from coordinator.machine.machine import Machine
from coordinator.snapshot.manifest import encode_published
from coordinator.snapshot.snapshot import dump, restoring
from coordinator.snapshot.store import SnapshotStore
from coordinator.tables import rows
from coordinator.tables.aborted import pack
from coordinator.tables.objects import Moment
from coordinator.tables.rows import PageSums
from protocol.types import INCARNATION_NONE, POSITION_ZERO, TopicId
from storage.formats.cluster_identity import ClusterIdentity
from storage.formats.spans import Item, ObjectKind
from storage.stores.disk import DiskStore
from tests.bench.bench_machine_memory import resident_bytes
from txn.producers import advance

IDENTITY = ClusterIdentity("bench", 1)
TOPIC_PARTITIONS = 100
CHUNK_SPANS = 100
INDEX_PAGES = 1000
SPAN_BYTES = 9000
RECORDS = 20
NOW_MS = 1_700_000_000_000
TICK_S = 0.001


class Cluster:
    """A log with one writer, and the machine that follows it; filled past the log where that
    would take hours."""

    def __init__(self, log: SqliteLog) -> None:
        self.log = log
        self.machine = Machine()
        self.session = Session(0, INCARNATION_NONE)
        self.n = 0

    async def open(self) -> None:
        lease = await self.log.grant(24 * 3600 * 1000)
        command = Open(lease, "writer", -1, "zone-a", (), "bench", 1)
        entry = Entry(INCARNATION_NONE, 0, NOW_MS, (command,))
        self.session = await self.log.open(lease, encode_entry(entry))
        self.machine.apply(self.session.incarnation, entry)

    async def do(self, *commands: Command) -> tuple[Outcome, ...]:
        self.n += 1
        entry = Entry(self.session.incarnation, self.n, NOW_MS + self.n, commands)
        place = await self.log.append(self.session, self.n, encode_entry(entry))
        return self.machine.apply(place, entry)

    async def topics(self, partitions: int) -> list[TopicId]:
        topic_ids = []
        for number in range(partitions // TOPIC_PARTITIONS):
            (outcome,) = await self.do(CreateTopic(f"topic-{number:06}", TOPIC_PARTITIONS, ()))
            assert isinstance(outcome, TopicCreated)
            topic_ids.append(outcome.topic_id)
        return topic_ids

    def fill(self, topic_ids: list[TopicId], *, paged: int, in_memory: int, windows: int) -> None:
        """So many spans and windows for each partition, as commits and spills leave them."""
        machine = self.machine
        me = self.session.incarnation
        chunks, indexes = (
            machine.objects.slot(me, kind) for kind in (ObjectKind.CHUNK, ObjectKind.INDEX)
        )
        moment = Moment(machine.position, machine.time_ms)
        partitions = machine.partitions
        window = window_of_five()
        places = [(topic_id, at) for topic_id in topic_ids for at in range(TOPIC_PARTITIONS)]
        references = len(places) * (paged + in_memory)
        for number in range(-(-references // CHUNK_SPANS)):
            machine.objects.add(
                chunks, number, length=900_000, references=CHUNK_SPANS, moment=moment
            )
        for number in range(-(-len(places) // INDEX_PAGES) if paged else 0):
            count = min(INDEX_PAGES, len(places) - number * INDEX_PAGES)
            machine.objects.add(indexes, number, length=1_000_000, references=count, moment=moment)
        for index, (topic_id, at) in enumerate(places):
            row = partitions.get(topic_id, at)
            assert row is not None
            before = row.sums()
            if paged:
                row.append((indexes, index // INDEX_PAGES, index % INDEX_PAGES, 900, 0, NOW_MS))
                row._pages = bytearray()
                digest = index.to_bytes(16, "big")
                rows.add_page(row._pages, 0, PageSums(paged, paged * SPAN_BYTES, 0, digest))
                row.paged_row_count = paged
                row.data_bytes = paged * SPAN_BYTES
            base_offset = paged * RECORDS
            for span in range(in_memory):
                chunk = (index * in_memory + span) // CHUNK_SPANS
                start = index % CHUNK_SPANS * SPAN_BYTES
                row.append((chunks, chunk, start, SPAN_BYTES, base_offset, NOW_MS + span))
                base_offset += RECORDS
            if windows:
                row.windows = {index * windows + number: window for number in range(windows)}
            if index % 10 == 0:
                row._aborted = bytearray(pack(7, 0, base_offset - 1, base_offset))
            row.reach(base_offset)
            partitions._topics[topic_id].written += 1
            partitions.changed(row, before)
            partitions.window_count += windows

    async def groups(self, topic_ids: list[TopicId], count: int) -> None:
        await self.do(ClaimShards(tuple(range(GROUP_SHARDS))))
        for number in range(count):
            topic_id = topic_ids[number % len(topic_ids)]
            offsets = tuple(
                CommittedOffset(topic_id, at, 10**9 + at, 0, "") for at in range(TOPIC_PARTITIONS)
            )
            await self.do(CommitOffsets(f"group-{number}", "", EPOCH_NONE, offsets))

    async def snapshot(self, store: DiskStore) -> list[bytes]:
        await self.do(ClaimJobs((JobKind.SNAPSHOT,)))
        await self.do(BeginSnapshot())
        began = time.perf_counter()
        parts = dump(self.machine)
        told("dump", time.perf_counter() - began)
        began = time.perf_counter()
        key = await SnapshotStore(store, IDENTITY).write(parts)
        told("write, read back, restore and compare", time.perf_counter() - began)
        begun = self.machine.snapshots.begun
        assert begun is not None
        await self.do(PublishSnapshot(begun.position, begun.digest, key))
        listed = encode_published(self.machine.snapshots.published)
        await self.log.publish(self.session, listed, older=POSITION_ZERO)
        await self.do(ReleaseJobs((JobKind.SNAPSHOT,), INCARNATION_NONE))
        return parts

    async def tail(self, topic_ids: list[TopicId], entries: int, each: int) -> None:
        """What was written since: chunks of so many spans each."""
        writer = self.machine.incarnations.get(self.session.incarnation)
        assert writer is not None
        number = 10**6
        writer.chunk_last = number - 1
        for entry in range(entries):
            topic_id = topic_ids[entry % len(topic_ids)]
            item = Item(0, SPAN_BYTES, RECORDS, NOW_MS)
            spans = tuple(ChunkSpan(topic_id, at, at * SPAN_BYTES, (item,)) for at in range(each))
            await self.do(CommitChunk(number, each * SPAN_BYTES, spans))
            number += 1


def window_of_five() -> bytes:
    window = None
    for batch in range(5):
        window = advance(
            window,
            epoch=0,
            first_sequence=batch * RECORDS,
            records=RECORDS,
            base_offset=batch * RECORDS,
            timestamp_max=NOW_MS,
            updated_ms=NOW_MS,
        )
    assert window is not None
    return window


def told(what: str, seconds: float) -> None:
    print(f"{seconds:8.2f} s  {what}", flush=True)


def memory(what: str, bytes_: int) -> None:
    print(f"{bytes_ / 1e6:8.1f} MB {what}", flush=True)


def measure_restore(parts: list[bytes]) -> None:
    gc.collect()
    gc.freeze()
    machine = Machine()
    began = time.perf_counter()
    longest = step = time.perf_counter()
    longest = 0.0
    for _ in restoring(machine, [*parts]):
        now = time.perf_counter()
        longest, step = max(longest, now - step), now
    told("restore", time.perf_counter() - began)
    told("longest step of it", longest)
    assert dump(machine) == parts


async def make(folder: Path, arguments: argparse.Namespace) -> None:
    log, store = SqliteLog(folder / "log.db"), DiskStore(folder / "store")
    await identity.check(store, log, IDENTITY.cluster_id, random.Random(1))
    cluster = Cluster(log)
    began = time.perf_counter()
    await cluster.open()
    topic_ids = await cluster.topics(arguments.partitions)
    spans = arguments.spans // arguments.partitions
    in_memory = min(arguments.in_memory // arguments.partitions, spans)
    windows = arguments.windows // arguments.partitions
    cluster.fill(topic_ids, paged=spans - in_memory, in_memory=in_memory, windows=windows)
    await cluster.groups(topic_ids, arguments.groups)
    told("making it", time.perf_counter() - began)
    partitions = cluster.machine.partitions
    print(
        f"{len(partitions)} partitions, {partitions.row_count} rows in memory,"
        f" {partitions.paged_row_count} in {partitions.page_count} pages,"
        f" {partitions.window_count} windows, {cluster.machine.groups.offset_rows} offsets"
    )
    memory("resident with it", resident_bytes())
    parts = await cluster.snapshot(store)
    memory(f"snapshot in {len(parts)} parts", sum(map(len, parts)))
    memory("resident at most, who makes and verifies it", peak_bytes())
    measure_restore(parts)
    await cluster.tail(topic_ids, arguments.tail, arguments.tail_spans)
    await log.aclose()
    await store.aclose()


def settings_of(folder: Path) -> Settings:
    given = {
        "cluster.id": IDENTITY.cluster_id,
        "listen": "127.0.0.1:0",
        "http": "off",
        "store": f"file://{folder}/store",
        "log": f"sqlite://{folder}/log.db",
        # What the generator made is old, and its objects are not there.
        "log.retention.ms": "-1",
        "merge.age.ms": "315360000000",
        "jobs.start.delay.ms": "86400000",
        "log.archive.ms": "0",
    }
    flags = [f"{name}={value}" for name, value in given.items()]
    return load(defaults={}, toml=None, environ={}, flags=flags).settings


async def start(folder: Path, began_s: float) -> None:
    """A whole agent; when it serves, its worker makes a snapshot."""
    told("process and imports", time.time() - began_s)
    before = resident_bytes()
    settings = settings_of(folder)
    store, log = open_adapters(settings)
    parts = Parts(store=store, log=log, now_ms=now_ms, boot_ms=boot_ms, rng=random.Random())
    agent = Agent(settings, parts, software_version=software_version())
    ticks = Ticker()
    ticker = asyncio.create_task(ticks.run())
    running = asyncio.create_task(agent.run())
    await agent.serving()
    assert not running.done(), running.exception()
    told("from the start of the process until clients are served", time.time() - began_s)
    log_client = agent.node.log_client
    stats = log_client.stats
    told("of that: finding, reading and restoring the snapshot", stats.snapshot_seconds)
    told(f"of that: applying {stats.entries_applied} entries behind it", stats.apply_seconds)
    told("longest stall of a ticker of 1 ms until then", ticks.take())
    memory("resident before", before)
    memory("resident at most", peak_bytes())
    memory("resident when it serves", resident_bytes())
    gc.collect()
    gc.freeze()
    ticks.take()
    await asyncio.sleep(5.0)
    told("longest stall in 5 s with nothing to do", ticks.take())
    published = log_client.machine.snapshots.published
    began = time.perf_counter()
    await log_client.propose(RequestJob(JobKind.SNAPSHOT))
    while log_client.machine.snapshots.published == published:
        await asyncio.sleep(0.01)
        assert not running.done(), running.exception()
    told("a snapshot by the worker, its start included", time.perf_counter() - began)
    told("longest stall of the agent meanwhile", ticks.take())
    await agent.stop()
    ticker.cancel()
    await asyncio.gather(running, ticker, return_exceptions=True)
    await log.aclose()
    await store.aclose()


def peak_bytes() -> int:
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024


class Ticker:
    """Sleeps 1 ms, again and again."""

    def __init__(self) -> None:
        self._longest = 0.0

    def take(self) -> float:
        """The longest that a sleep took too long since the last time that this was asked."""
        longest, self._longest = self._longest, 0.0
        return longest

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(TICK_S)
            self._longest = max(self._longest, loop.time() - before - TICK_S)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--spans", type=int, default=10_000_000)
    parser.add_argument("--in-memory", type=int, default=2_000_000)
    parser.add_argument("--windows", type=int, default=100_000)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--tail", type=int, default=2_000, help="entries behind the snapshot")
    parser.add_argument("--tail-spans", type=int, default=20, help="of each of those")
    parser.add_argument("--start", type=Path, help="start an agent on what lies in this folder")
    arguments = parser.parse_args()
    if arguments.start is not None:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(start(arguments.start, float(os.environ["BENCH_BEGAN"])))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asyncio.run(make(folder, arguments))
        command = [sys.executable, "-m", "tests.bench.bench_start", "--start", name]
        environment = {**os.environ, "BENCH_BEGAN": str(time.time())}
        subprocess.run(command, env=environment, check=True)


if __name__ == "__main__":
    main()
