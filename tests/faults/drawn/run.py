"""A run: clients work while what is planned happens, then everything has to be as it should."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from confluent_kafka.admin import AdminClient

from tests.anomalies import check
from tests.faults.drawn.clients import Act, Readers
from tests.faults.drawn.link import Network
from tests.faults.drawn.linked_cluster import LinkedCluster, Part, metric
from tests.faults.drawn.loss import gone, known_at, not_listed, unread_at_last
from tests.faults.drawn.plan import DISK_KINDS, LOSS_KINDS, RELEASE_KINDS, Fault, Stage, draw
from tests.faults.drawn.recorded import Ack, Recorded, Settled
from tests.parts import install, small_disk
from tests.parts.etcd_cluster import EtcdCluster
from tests.parts.servers import Etcd, EtcdServer, MinioServer
from tests.parts.small_disk import SmallDisk
from tests.parts.topics import create_topic
from tests.parts.wall_clock import WallClock
from tests.releases import KEPT
from tests.releases.agents import unpacked

STEADY, PARTITIONS = "steady", 4
READERS = 2
QUOTA = "--quota-backend-bytes", str(48 << 20)
"""Of etcd: more than a run writes, and soon reached."""
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
        older = None
        if any(fault.kind in RELEASE_KINDS for fault in plan):
            older = unpacked(KEPT[-1].wheel, folder / "older")
        linked = LinkedCluster(folder, network, etcd, members, minio, stage, clocks, disk, older)
        stack.callback(linked.close)
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
        with EtcdCluster(folder, *QUOTA) as cluster:
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
        self._stood_s = 0.0
        """For so long the plan stood still."""
        self._longest_s = LONGER_S
        """What a run takes, at most."""
        self._acts: list[Act] = []
        self._lost = 0

    @property
    def _act(self) -> Act:
        return self._acts[-1]

    def begin(self, seconds: float) -> None:
        """In fine weather, until all clients work."""
        bootstrap = self._cluster.bootstrap
        self._longest_s += seconds
        # Nothing is as old when it is over; by a clock that is ahead it is.
        retention = {"retention.ms": f"{self._longest_s * 1000:.0f}"}
        create_topic(AdminClient({"bootstrap.servers": bootstrap}), STEADY, PARTITIONS, retention)
        self._begin_act()
        self._readers = Readers(bootstrap, STEADY, READERS)
        self._act.load.wait_for_acks(MORE_ACKS, seconds=SETTLE_S)
        self._until(lambda: self._act.is_at_work and self._readers.count > 0)

    def _begin_act(self) -> None:
        number = len(self._acts) + 1
        self._acts.append(Act(self._cluster.bootstrap, number, STEADY, self._longest_s))

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
            if fault.kind in LOSS_KINDS:
                if begins:
                    self._lose_the_log()
            elif begins:
                self._cluster.befall(fault)
            else:
                self._cluster.heal(fault)
        self._sleep_until(seconds)
        self._anomalies += self._cluster.ended()

    def _sleep_until(self, at_s: float) -> None:
        time.sleep(max(0.0, self._began_s + self._stood_s + at_s - time.monotonic()))

    def _lose_the_log(self) -> None:
        """All is archived, but for what clients do meanwhile; then it is lost, and producers start anew."""
        began_s = time.monotonic()
        agents = self._cluster.agents.values()
        self._must_come("all agents are ready", lambda: all(agent.ready for agent in agents))
        act = self._act
        early, events = {*act.load.acknowledged}, len(act.workers.recorder.history)
        self._must("the log is archived", self._cluster.until_archived)
        act.end()
        self._cluster.kill_all()
        acknowledged = dict(act.load.acknowledged)
        told = self._cluster.lose_the_log()
        self._must("the producer ends", act.load.wait_until_ended)
        self._must("transactional clients end", lambda: act.workers.stop(SETTLE_S))
        found = act.load.audit(next(iter(agents)).port).found
        lost = {value: acknowledged[value] for value in gone(acknowledged, found)}
        late = {value: place for value, place in lost.items() if value not in early}
        missed = [*(lost.keys() - late.keys()), *not_listed(late, STEADY, told["unarchived"])]
        if missed:
            many = f"{len(missed)} records are lost and were archived, or are not listed"
            self._anomalies.append(f"{many}: {missed[:TOLD_MAX]}")
        for value in late:
            del act.load.acknowledged[value]
        self._lost += len(late)
        act.workers.recorder.history[:] = known_at(act.workers.recorder.history, events)
        self._begin_act()
        self._stood_s = time.monotonic() - began_s

    def settle(self) -> None:
        """In fine weather everything serves again, and clients end what they began."""
        self._tell("the faults are over")
        agents = self._cluster.agents.values()
        self._cluster.start_anew()
        load, workers = self._act.load, self._act.workers
        self._must_come("all agents are ready", lambda: all(agent.ready for agent in agents))
        acks, commits = len(load.acks), workers.counts["ok"]
        self._must_come("records are acknowledged", lambda: len(load.acks) >= acks + MORE_ACKS)
        self._must_come(
            "transactions are committed", lambda: workers.counts["ok"] >= commits + MORE_COMMITS
        )
        self._must_come(
            "the log's time is right",
            lambda: all(abs(_behind_ms(agent.http_port)) <= BEHIND_MS_MAX for agent in agents),
        )
        self._must("the open transaction ends", self._commit)
        self._must("the producer ends", load.stop)
        self._must("transactional clients end", workers.stop)
        self._must_come(
            "the group has read all",
            lambda: not any(self._readers.lacks(act.load.acknowledged) for act in self._acts),
        )
        for act in self._acts:
            if lacking := self._readers.lacks(act.load.acknowledged):
                places = sorted((act.load.acknowledged[value], value) for value in lacking)
                some = [self._readers.told_of(value, at) for at, value in places[:TOLD_MAX]]
                self._anomalies.append(f"the group lacks {len(lacking)} records: {some}")
        self._must("the group ends", self._readers.stop)
        for act in self._acts:
            self._must("all transactions are read", partial(_read_all, act))
        self._anomalies += self._cluster.ended()

    def _commit(self) -> None:
        what = "the transaction that was open all the time is committed"
        self._must_come(what, self._act.patient.is_committed)

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
            for act in self._acts:
                self._must(f"{name} is read", partial(self._audit, name, agent.port, act))
        for act in self._acts:
            found = check(act.workers.recorder.history, transactional=True)
            self._anomalies += [f"{each.type}: {each.cases[:TOLD_MAX]}" for each in found]
        self._counts = {
            "records acknowledged": sum(len(act.load.acks) for act in self._acts),
            "transactions committed": self._count("ok"),
            "transactions aborted": self._count("fail"),
            "transactions of unknown fate": self._count("info"),
            "records given to the group": self._readers.count,
            "of these again": self._readers.again,
            "records lost with the log, and listed": self._lost,
            **self._cluster.damaged,
        }

    def _count(self, fate: str) -> int:
        return sum(act.workers.counts[fate] for act in self._acts)

    def _audit(self, name: str, port: int, act: Act) -> None:
        audit = act.load.audit(port)
        for what, some in (
            ("acknowledged records are missing", audit.missing),
            ("records are there twice", audit.twice),
            ("offsets cannot be read", audit.holes),
            (
                "records are not what the group was given",
                [*self._readers.wrong(audit.found, log_was_lost=len(self._acts) > 1)],
            ),
        ):
            if some:
                self._anomalies.append(f"{name}: {len(some)} {what}: {some[:TOLD_MAX]}")

    def recorded(self, seed: int, seconds: float, plan: list[Fault]) -> Recorded:
        acks = [
            Ack(ack.at_s - self._began_s, ack.latency_s)
            for act in self._acts
            for ack in act.load.acks
        ]
        return Recorded(
            seed=seed,
            seconds=seconds,
            stood_s=self._stood_s,
            stage=self._cluster.stage,
            faults=_as_they_came(plan, self._stood_s),
            acks=acks,
            settled=self._settled,
            counts=self._counts,
            anomalies=self._anomalies,
        )


def _read_all(act: Act) -> None:
    """All that was committed is there."""
    act.workers.read_all()
    lost = unread_at_last(act.workers.recorder.history)
    assert not lost, f"{len(lost)} records of committed transactions are gone: {lost[:TOLD_MAX]}"


def _as_they_came(plan: Sequence[Fault], stood_s: float) -> list[Fault]:
    """The plan stood still while the log was lost."""
    lost_s = next((each.at_s for each in plan if each.kind in LOSS_KINDS), 0.0)
    return [
        replace(each, seconds=stood_s)
        if each.kind in LOSS_KINDS
        else replace(each, at_s=each.at_s + stood_s * (each.at_s > lost_s))
        for each in plan
    ]


def _behind_ms(http_port: int) -> float:
    """How far the log's time is behind, by an agent's clock, which is right."""
    return metric(http_port, "machine_time_behind_ms")
