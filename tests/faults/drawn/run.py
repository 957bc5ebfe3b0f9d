"""A run: clients work while what is planned happens, then everything has to be as it should."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from confluent_kafka.admin import AdminClient

from tests.anomalies import check
from tests.faults.drawn.clients import Patient, Readers, TimedLoad
from tests.faults.drawn.link import Network
from tests.faults.drawn.linked_cluster import LinkedCluster, Part
from tests.faults.drawn.plan import DISK_KINDS, Fault, Stage, draw
from tests.faults.drawn.recorded import Ack, Recorded, Settled
from tests.faults.load import Audit
from tests.faults.txn_load import Workers
from tests.parts import install, small_disk
from tests.parts.etcd_cluster import EtcdCluster
from tests.parts.servers import Etcd, EtcdServer, MinioServer, get_text
from tests.parts.small_disk import SmallDisk
from tests.parts.topics import create_topic
from tests.parts.wall_clock import WallClock

PER_SECOND = 200
WORKERS, READERS = 3, 2
KEYS = 4
SETTLE_S = 90.0
LONGER_S = 420.0
"""Than the faults: what follows them takes less. A clock that is off by more than both would show."""
MORE_ACKS, MORE_COMMITS = 100, 5
TOLD_MAX = 5
BEHIND_MS_MAX = 120_000
"""Of the log's time: an agent that has nothing to write says the time each minute, and clocks that differ by less
agree."""


def stage_here(*, members: int) -> Stage:
    """With what can be had on this machine."""
    return Stage(
        members=members,
        sets_clocks=install.libfaketime() is not None,
        fills_disks=small_disk.is_possible(),
    )


def run(
    folder: Path, seed: int, seconds: float, stage: Stage, tell: Callable[[str], None]
) -> Recorded:
    """With servers of its own; whatever becomes of it, they are gone in the end."""
    plan = draw(seed, seconds, stage)
    with Network() as network, _linked(folder, network, stage, plan) as linked:
        running = Running(linked, tell)
        running.begin(seconds)
        running.befall(plan, seconds)
        running.settle()
        running.validate()
        return running.recorded(seed, seconds, plan)


@contextmanager
def _linked(
    folder: Path, network: Network, stage: Stage, plan: Sequence[Fault]
) -> Iterator[LinkedCluster]:
    minio = MinioServer(folder / "minio")
    with ExitStack() as stack:
        disk = None
        if any(fault.kind in DISK_KINDS for fault in plan):
            disk = stack.enter_context(SmallDisk(minio.data))
            minio.child.argv = disk.inside(minio.child.argv)
        etcd, parts = stack.enter_context(_etcd(folder / "etcd", stage))
        members = dict(zip(stage.etcd, parts, strict=True))
        stack.callback(minio.stop)
        minio.start()
        clocks = _clocks(folder, stage)
        linked = LinkedCluster(folder, network, etcd, members, minio, stage, clocks, disk)
        stack.enter_context(linked.cluster)
        yield linked


def _clocks(folder: Path, stage: Stage) -> dict[str, WallClock]:
    """Of each agent, by name; none where they cannot be set."""
    library = install.libfaketime() if stage.sets_clocks else None
    if library is None:
        return {}
    return {name: WallClock(library, folder / f"{name}.time") for name in stage.agent_names}


@contextmanager
def _etcd(folder: Path, stage: Stage) -> Iterator[tuple[Etcd, Sequence[Part]]]:
    """It runs; and its members, as many as the stage has."""
    if stage.members > 1:
        with EtcdCluster(folder) as cluster:
            yield cluster, cluster.members
        return
    etcd = EtcdServer(folder)
    try:
        etcd.start()
        yield etcd, [etcd]
    finally:
        etcd.child.kill()


class Running:
    """Clients of a cluster, and what they found."""

    def __init__(self, linked: LinkedCluster, tell: Callable[[str], None]) -> None:
        self._cluster, self._tell = linked, tell
        self._anomalies: list[str] = []
        self._settled: list[Settled] = []
        self._counts: dict[str, int] = {}
        self._began_s = 0.0

    def begin(self, seconds: float) -> None:
        """In fine weather, until all clients work."""
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap})
        create_topic(admin, "transactions", KEYS)
        create_topic(admin, "waiting", 1)
        self._load = TimedLoad(self._cluster.bootstrap, "steady", per_second=PER_SECOND)
        # Nothing is as old when it is over; by a clock that is ahead it is.
        long_s = seconds + LONGER_S
        create_topic(
            admin, "steady", self._load.partitions, {"retention.ms": f"{long_s * 1000:.0f}"}
        )
        self._load.topic_is_there = True
        self._load.start()
        self._workers = Workers(self._cluster.bootstrap, "transactions", KEYS, WORKERS)
        self._readers = Readers(self._cluster.bootstrap, "steady", READERS)
        self._patient = Patient(self._cluster.bootstrap, "waiting", long_s)
        self._load.wait_for_acks(MORE_ACKS, seconds=SETTLE_S)
        self._until(lambda: bool(self._workers.counts["ok"] and self._readers.seen))

    def befall(self, plan: list[Fault], seconds: float) -> None:
        """Every fault begins and ends in its time."""
        self._began_s = time.monotonic()
        events = [
            (at_s, begins, fault)
            for fault in plan
            for at_s, begins in ((fault.at_s, True), (fault.end_s, False))
        ]
        for at_s, begins, fault in sorted(events, key=lambda event: event[:2]):
            self._sleep_until(at_s)
            self._anomalies += self._cluster.ended()
            if begins:
                self._tell(f"{at_s:6.1f} s  {fault.name}: {fault.told()}")
                self._cluster.befall(fault)
            else:
                self._cluster.heal(fault)
        self._sleep_until(seconds)
        self._anomalies += self._cluster.ended()

    def _sleep_until(self, at_s: float) -> None:
        time.sleep(max(0.0, self._began_s + at_s - time.monotonic()))

    def settle(self) -> None:
        """In fine weather everything serves again, and clients end what they began."""
        self._tell("the faults are over")
        agents = self._cluster.agents.values()
        self._cluster.start_anew()
        self._must_come("all agents are ready", lambda: all(agent.ready for agent in agents))
        acks, commits = len(self._load.acks), self._workers.counts["ok"]
        self._must_come(
            "records are acknowledged", lambda: len(self._load.acks) >= acks + MORE_ACKS
        )
        self._must_come(
            "transactions are committed",
            lambda: self._workers.counts["ok"] >= commits + MORE_COMMITS,
        )
        self._must_come(
            "the log's time is right",
            lambda: all(abs(_behind_ms(agent.http_port)) <= BEHIND_MS_MAX for agent in agents),
        )
        self._must("the open transaction ends", self._commit)
        self._must("the producer ends", self._load.stop)
        self._must("transactional clients end", self._workers.stop)
        self._must_come(
            "the group has read all", lambda: not self._readers.lacks(self._load.acknowledged)
        )
        self._must("the group ends", self._readers.stop)
        self._must("all transactions are read", self._workers.read_all)
        self._anomalies += self._cluster.ended()

    def _commit(self) -> None:
        what = "the transaction that was open all the time is committed"
        self._must_come(what, self._patient.is_committed)

    def _must_come(self, what: str, holds: Callable[[], bool]) -> None:
        began_s = time.monotonic()
        came = self._until(holds)
        took_s = round(time.monotonic() - began_s, 3) if came else None
        self._settled.append(Settled(what, SETTLE_S, took_s))

    def _must(self, what: str, do: Callable[[], None]) -> None:
        try:
            do()
        except AssertionError as error:
            self._anomalies.append(f"not so: {what}: {error}")

    def _until(self, holds: Callable[[], bool]) -> bool:
        deadline_s = time.monotonic() + SETTLE_S
        while not holds():
            if time.monotonic() > deadline_s:
                return False
            time.sleep(0.1)
        return True

    def validate(self) -> None:
        """Every agent shows what was acknowledged; histories and the group have no anomaly."""
        for name, agent in self._cluster.agents.items():
            self._must(f"{name} is read", partial(self._audit, name, agent.port))
        found = check(self._workers.recorder.history, transactional=True)
        self._anomalies += [f"{each.type}: {each.cases[:TOLD_MAX]}" for each in found]
        self._anomalies += self._readers.wrong[:TOLD_MAX]
        self._counts = {
            "records acknowledged": len(self._load.acks),
            "transactions committed": self._workers.counts["ok"],
            "transactions aborted": self._workers.counts["fail"],
            "transactions of unknown fate": self._workers.counts["info"],
            "records given to the group": len(self._readers.seen),
            "of these again": self._readers.again,
            **self._cluster.damaged,
        }

    def _audit(self, name: str, port: int) -> None:
        audit: Audit = self._load.audit(port)
        for what, some in (
            ("acknowledged records are missing", audit.missing),
            ("records are there twice", audit.twice),
            ("offsets cannot be read", audit.holes),
        ):
            if some:
                self._anomalies.append(f"{name}: {len(some)} {what}: {some[:TOLD_MAX]}")

    def recorded(self, seed: int, seconds: float, plan: list[Fault]) -> Recorded:
        acks = [Ack(ack.at_s - self._began_s, ack.latency_s) for ack in self._load.acks]
        return Recorded(
            seed=seed,
            seconds=seconds,
            stage=self._cluster.stage,
            faults=plan,
            acks=acks,
            settled=self._settled,
            counts=self._counts,
            anomalies=self._anomalies,
        )


def _behind_ms(http_port: int) -> float:
    """How far the log's time is behind, by an agent's clock, which is right."""
    text = get_text(http_port, "/metrics")
    found = re.search(r"^frazil_machine_time_behind_ms (\S+)$", text, re.MULTILINE)
    assert found is not None
    return float(found[1])
