"""The table of cases: what clients do to a broker, by section of the report."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.bench import bench_groups, clients, load
from tests.bench.case import Case, Column, Effort, Figures
from tests.bench.sides import (
    ALL,
    BROKERS,
    DEV,
    FLOOR,
    S3,
    AgentSide,
    Cost,
    Side,
    costing,
    memory_mib,
)

KiB, MiB = 1 << 10, 1 << 20
RECORD_BYTES = clients.RECORD_BYTES
FIRST_RECORDS = 20_000
RDKAFKA, JAVA, FRANZ = "librdkafka", "Java", "franz-go"
GROUPS, MEMBERS = 2000, 5
GROUPS_S = 30.0
IDLE_S = 10.0
LINGER_MS = 50.0
"""chunk.linger.ms of an agent on S3, by default."""
CALM_S = 1.0
BEFORE_KILL_S, AFTER_KILL_S = 2.0, 6.0
RESTART_PER_SECOND = 200


def partitions_of(count: int) -> str:
    return f"{count} partition{'s' if count > 1 else ''}"


def size_of(batch: int) -> str:
    return "1 MiB" if batch == MiB else f"{batch >> 10} KiB"


def new_topic(side: Side, name: str, partitions: int) -> None:
    """The floor has every topic."""
    if side.name != FLOOR:
        load.create_topic(side.port, name, partitions)


def throughput(seen: clients.Seen, cost: Cost) -> Figures:
    return {
        "CPU": cost.cpu_s / (seen["bytes"] / 1e9),
        "MB/s": seen["bytes"] / 1e6 / seen["seconds"],
    }


@dataclass
class Produce:
    """librdkafka at full speed."""

    batch: int
    partitions: int
    sides: Sequence[str] = ALL
    turns_max: int = 99

    @property
    def name(self) -> str:
        return f"produce-{self.batch >> 10}k-{self.partitions}"

    @property
    def title(self) -> str:
        return f"librdkafka, {size_of(self.batch)} batches, {partitions_of(self.partitions)}"

    def prepare(self, side: Side, effort: Effort) -> None:
        new_topic(side, self.name, self.partitions)
        self.turn(side, effort)

    def turn(self, side: Side, effort: Effort) -> Figures:
        records = effort.turn_bytes // RECORD_BYTES
        return throughput(
            *clients.rdkafka(
                side,
                "produce",
                self.name,
                partitions=self.partitions,
                batch=self.batch,
                seconds=effort.seconds,
                records=records,
            )
        )


@dataclass
class ProgramProduce:
    """Kafka's own tool in Java, or franz-go, at full speed: as many records as go into a turn."""

    client: str
    partitions: int
    batch: int = 16 * KiB
    sides: Sequence[str] = BROKERS
    turns_max: int = 99
    _per_second: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.client.lower()}-produce-{self.batch >> 10}k-{self.partitions}"

    @property
    def title(self) -> str:
        return f"{self.client}, {size_of(self.batch)} batches, {partitions_of(self.partitions)}"

    def prepare(self, side: Side, effort: Effort) -> None:
        new_topic(side, self.name, self.partitions)
        seen, _ = self._run(side, FIRST_RECORDS)
        self._per_second[side.name] = seen["records"] / seen["seconds"]

    def turn(self, side: Side, effort: Effort) -> Figures:
        wanted = self._per_second[side.name] * effort.seconds
        records = int(max(FIRST_RECORDS, min(wanted, effort.turn_bytes // RECORD_BYTES)))
        return throughput(*self._run(side, records))

    def _run(self, side: Side, records: int) -> tuple[clients.Seen, Cost]:
        if self.client == JAVA:
            return clients.java_produce(side, self.name, records=records, batch=self.batch)
        return clients.franz_go(
            side, "produce", self.name, partitions=self.partitions, records=records
        )


@dataclass
class CatchUp:
    """All of a topic, from its beginning on."""

    client: str
    batch: int
    partitions: int
    from_store: bool = False
    """Agents are restarted before each turn; Kafka and the floor read from the machine's memory."""
    sides: Sequence[str] = BROKERS
    turns_max: int = 99
    rounds: int = 3
    """Of one turn, from memory."""

    @property
    def name(self) -> str:
        client = "" if self.client == RDKAFKA else f"{self.client.lower()}-"
        restarted = "-restarted" if self.from_store else ""
        return f"{client}catch-up-{self.batch >> 10}k-{self.partitions}{restarted}"

    @property
    def title(self) -> str:
        where = "from the store after a restart" if self.from_store else "from memory"
        what = f"{size_of(self.batch)} batches, {partitions_of(self.partitions)}"
        return f"{self.client}, {what}, {where}"

    def prepare(self, side: Side, effort: Effort) -> None:
        new_topic(side, self.name, self.partitions)
        clients.rdkafka(
            side,
            "produce",
            self.name,
            partitions=self.partitions,
            batch=self.batch,
            seconds=120,
            records=self._records(effort),
        )
        self.read(side, effort)

    def turn(self, side: Side, effort: Effort) -> Figures:
        if self.from_store:
            side.restart()
        return self.read(side, effort)

    def read(self, side: Side, effort: Effort) -> Figures:
        records = self._records(effort)
        if self.client == JAVA:
            return throughput(*clients.java_consume(side, self.name, records=records))
        if self.client == FRANZ:
            many = {"partitions": self.partitions, "records": records}
            return throughput(*clients.franz_go(side, "consume", self.name, **many))
        rounds = 1 if self.from_store else self.rounds
        return throughput(
            *clients.rdkafka(
                side,
                "consume",
                self.name,
                partitions=self.partitions,
                records=records,
                rounds=rounds,
            )
        )

    def _records(self, effort: Effort) -> int:
        """As many as the producer makes at once, or a multiple."""
        return effort.fill_bytes // RECORD_BYTES // 500 * 500


@dataclass
class Head:
    """A producer at a rate, and a consumer that keeps up with it."""

    per_second: int = 20_000
    batch: int = 16 * KiB
    partitions: int = 64
    sides: Sequence[str] = BROKERS
    turns_max: int = 99

    @property
    def name(self) -> str:
        return f"head-{self.partitions}"

    @property
    def title(self) -> str:
        what = f"{size_of(self.batch)} batches, {partitions_of(self.partitions)}"
        return f"{self.per_second:,} records a second, {what}"

    def prepare(self, side: Side, effort: Effort) -> None:
        new_topic(side, self.name, self.partitions)
        self.turn(side, effort)

    def turn(self, side: Side, effort: Effort) -> Figures:
        seen, cost = clients.rdkafka(
            side,
            "head",
            self.name,
            partitions=self.partitions,
            batch=self.batch,
            rate=self.per_second,
            seconds=effort.seconds,
        )
        return {
            **throughput(seen, cost),
            "p50": seen["p50_ms"],
            "p99": seen["p99_ms"],
            "behind": seen["behind"],
        }


@dataclass
class Acks:
    """Single records at a rate, from an idempotent producer that does not linger."""

    per_second: int
    partitions: int
    sides: Sequence[str] = BROKERS
    turns_max: int = 99

    @property
    def name(self) -> str:
        return f"acks-{self.per_second}-{self.partitions}"

    @property
    def title(self) -> str:
        return f"{self.per_second:,} records a second, {partitions_of(self.partitions)}"

    def prepare(self, side: Side, effort: Effort) -> None:
        new_topic(side, self.name, self.partitions)
        self.turn(side, effort)

    def turn(self, side: Side, effort: Effort) -> Figures:
        seen, cost = clients.rdkafka(
            side,
            "paced",
            self.name,
            partitions=self.partitions,
            rate=self.per_second,
            seconds=effort.seconds,
        )
        figures = {
            "p50": seen["p50_ms"],
            "p99": seen["p99_ms"],
            "core": 100 * cost.cpu_s / cost.seconds,
            "CPU": 1e3 * cost.cpu_s / seen["records"],
        }
        if side.name == S3:
            put_ms, append_ms = cost.mean_ms("put_s", "puts"), cost.mean_ms("append_s", "entries")
            figures["bound"] = LINGER_MS + 1.5 * (put_ms + append_ms)
        if cost.counted:
            figures["puts"] = cost.counted["puts"] / cost.seconds
        return figures


@dataclass
class Transactions:
    """Producers that each commit one transaction after the other."""

    producers: int
    partitions: int = 16
    sides: Sequence[str] = BROKERS
    turns_max: int = 99

    @property
    def name(self) -> str:
        return f"transactions-{self.producers}"

    @property
    def title(self) -> str:
        return f"{self.producers} producer{'s' if self.producers > 1 else ''}"

    def prepare(self, side: Side, effort: Effort) -> None:
        new_topic(side, self.name, self.partitions)
        self.turn(side, effort)

    def turn(self, side: Side, effort: Effort) -> Figures:
        seen, cost = clients.rdkafka(
            side,
            "transactions",
            self.name,
            partitions=self.partitions,
            producers=self.producers,
            seconds=effort.seconds,
        )
        return {
            "commits": seen["records"] / seen["seconds"],
            "CPU": 1000 * cost.cpu_s / seen["records"],
            "p50": seen["p50_ms"],
            "p99": seen["p99_ms"],
        }


@dataclass
class Heartbeats:
    """Members of many groups, each on its own connection, that do nothing but heartbeat."""

    protocol: str
    every_s: float
    sides: Sequence[str] = BROKERS
    turns_max: int = 1

    @property
    def name(self) -> str:
        return f"heartbeats-{self.protocol}"

    @property
    def title(self) -> str:
        return f"{self.protocol}, every {self.every_s:g} s"

    def prepare(self, side: Side, effort: Effort) -> None:
        """Members join in the turn itself."""

    def turn(self, side: Side, effort: Effort) -> Figures:
        seen = bench_groups.measure(
            side.port,
            side.pid,
            protocol=self.protocol,
            every_s=self.every_s,
            seconds=min(GROUPS_S, 6 * effort.seconds),
            groups=GROUPS,
            members=MEMBERS,
            http_port=side.http_port if isinstance(side, AgentSide) else None,
        )
        figures = {
            "core": seen.core_percent,
            "CPU": seen.us_per_heartbeat,
            "p50": seen.p50_ms,
            "p99": seen.p99_ms,
        }
        return figures if seen.entries < 0 else {**figures, "entries": seen.entries}


@dataclass
class Restart:
    """The agent is killed under a producer, and started again in the same moment."""

    partitions: int = 1
    sides: Sequence[str] = (DEV, S3)
    turns_max: int = 99

    name = "restart"
    title = "SIGKILL, and another process at once"

    def prepare(self, side: Side, effort: Effort) -> None:
        new_topic(side, self.name, self.partitions)

    def turn(self, side: Side, effort: Effort) -> Figures:
        assert isinstance(side, AgentSide)

        def kill() -> None:
            time.sleep(BEFORE_KILL_S)
            side.kill()

        seen, _ = clients.rdkafka(
            side,
            "gap",
            self.name,
            meanwhile=kill,
            rate=RESTART_PER_SECOND,
            seconds=BEFORE_KILL_S + AFTER_KILL_S,
        )
        return {"gap": seen["gap_s"]}


@dataclass
class Idle:
    """No client at all: of a broker that is new, or that has done all the other cases."""

    used: bool
    sides: Sequence[str] = BROKERS
    turns_max: int = 2

    @property
    def name(self) -> str:
        return "idle-used" if self.used else "idle-new"

    @property
    def title(self) -> str:
        return "after all other cases of the run" if self.used else "warmed up"

    def prepare(self, side: Side, effort: Effort) -> None:
        time.sleep(CALM_S)

    def turn(self, side: Side, effort: Effort) -> Figures:
        with costing(side) as cost:
            time.sleep(IDLE_S)
        return {"core": 100 * cost.cpu_s / cost.seconds, "memory": memory_mib(side)}


class Section(NamedTuple):
    """A section of the report: cases with the same figures."""

    title: str
    about: str
    columns: Sequence[Column]
    cases: Sequence[Case]


CPU, MB = Column("CPU", "CPU s/GB", 2), Column("MB/s", "MB/s", 0)
P50, P99 = Column("p50", "p50, ms", 1), Column("p99", "p99, ms", 1)
CORE = Column("core", "% of a core", 1)

SECTIONS: Sequence[Section] = (
    Section(
        "Idle",
        "No client; no figure of a broker's other processes.",
        (CORE, Column("memory", "resident MiB", 0)),
        (Idle(used=False),),
    ),
    Section(
        "Produce",
        "Records of 1 KiB that do not compress, acks=all, 5 ms of linger, as fast as one client"
        " sends. The bars: at most twice the floor's CPU, at most a warm Kafka's; at least 0.7 of"
        " Kafka's MB/s with `frazil dev`, which syncs where Kafka does not.",
        (CPU, MB),
        (
            Produce(16 * KiB, 1),
            Produce(16 * KiB, 64),
            Produce(MiB, 1),
            Produce(MiB, 64),
            ProgramProduce(JAVA, 1),
            ProgramProduce(JAVA, 64),
            ProgramProduce(FRANZ, 64),
        ),
    ),
    Section(
        "Catch-up",
        "A whole topic, with clients' default limits. From the store: agents are restarted before"
        " each turn; Kafka, which reads from the page cache, stays warm. The bars: at most twice"
        " the floor's CPU; 1.3 times Kafka's from memory, twice from the store.",
        (CPU, MB),
        (
            CatchUp(RDKAFKA, 16 * KiB, 64, sides=ALL),
            CatchUp(RDKAFKA, 16 * KiB, 64, from_store=True, sides=ALL),
            CatchUp(RDKAFKA, MiB, 64),
            CatchUp(RDKAFKA, MiB, 64, from_store=True),
            CatchUp(JAVA, 16 * KiB, 1),
            CatchUp(JAVA, 16 * KiB, 64),
            CatchUp(FRANZ, 16 * KiB, 64),
        ),
    ),
    Section(
        "Head",
        "One librdkafka producer at a rate and one consumer; p50 and p99 from the call of produce to"
        " the consumer's hands, 100 ms of linger included. The bar: at most Kafka's CPU.",
        (CPU, P50, P99, Column("behind", "records not yet read", 0, has_ratio=False)),
        (Head(),),
    ),
    Section(
        "Acknowledgements",
        "librdkafka, idempotent, no linger, single records over the partitions in turn. *bound*:"
        " linger + 1.5 times (mean PUT + mean append) of the same turn. The bars: 5 ms and 15 ms with"
        " `frazil dev`, at most 10 % of a core at 200 a second; the bound on S3; over 64 partitions"
        " twice p50 and four times p99 of one.",
        (
            P50,
            P99,
            CORE,
            Column("CPU", "CPU ms a record", 2),
            Column("bound", "bound, ms", 1, has_ratio=False),
            Column("puts", "PUTs a second", 1, has_ratio=False),
        ),
        (Acks(200, 1), Acks(200, 64), Acks(1000, 1), Acks(1000, 64)),
    ),
    Section(
        "Transactions",
        "librdkafka; ten records over four of 16 partitions in each. The bars: at most Kafka's CPU;"
        " with 10 and 40 producers at least its rate with `frazil dev`.",
        (
            Column("commits", "commits a second", 0),
            Column("CPU", "CPU s per 1,000", 2),
            P50,
            P99,
        ),
        (Transactions(1), Transactions(10), Transactions(40)),
    ),
    Section(
        "Heartbeats",
        f"{GROUPS:,} groups of {MEMBERS} members, each on its own connection, that do nothing else"
        " (`tests/bench/bench_groups.py`). The bar: at most 25 % of a core with the classic"
        " protocol, and no entries in the log but ticks.",
        (
            CORE,
            Column("CPU", "CPU µs a heartbeat", 0),
            P50,
            P99,
            Column("entries", "entries in the log", 0, has_ratio=False),
        ),
        tuple(Heartbeats(*each) for each in bench_groups.CASES),
    ),
    Section(
        "Restart",
        f"One producer of {RESTART_PER_SECOND} records a second: the longest time between two"
        " acknowledgements. The bar: 1.5 s.",
        (Column("gap", "gap, s", 2),),
        (Restart(),),
    ),
    Section(
        "Idle afterwards",
        "The same brokers when all of the above is over.",
        (CORE, Column("memory", "resident MiB", 0)),
        (Idle(used=True),),
    ),
)
