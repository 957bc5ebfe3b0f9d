"""A cluster is upgraded agent by agent while clients write and read, or goes back: none hears an error."""

import compileall
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typing_extensions import override

from broker.cli.admin_client import AgentPlace, ask
from tests.anomalies import check
from tests.clients.bounded import Bounded, until
from tests.clients.groups import (
    CommitError,
    Got,
    Stream,
    assert_no_errors,
    until_read,
    until_shared,
)
from tests.clients.members import ConfluentMember
from tests.clients.raw_txn import set_transaction_version
from tests.faults.load import Load, assert_nothing_lost
from tests.faults.txn_load import Workers
from tests.parts.servers import EtcdServer, at_once
from tests.releases import KEPT, agents
from tests.releases.agents import KeptAgent

pytestmark = [pytest.mark.integration, pytest.mark.alone]

PER_SECOND = 200
PARTITIONS = 4
STALL_S = 2.0
"""What no client may wait for longer, on a machine that has little else to do."""
STALL_S_MAX = 2 * STALL_S
"""On any; or for as long as an agent takes to start, where that is more."""


class Arrivals(list[Got]):
    """What a member reads, and the longest time between two records of a partition."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._newest_s: dict[int, float] = {}

    @override
    def append(self, got: Got) -> None:
        now_s = time.monotonic()
        before_s = self._newest_s.get(got.partition, now_s)
        self.longest_s = max(self.longest_s, now_s - before_s)
        self._newest_s[got.partition] = now_s
        super().append(got)


class Traffic:
    """An idempotent producer, a group that reads what it writes, and transactions."""

    def __init__(self, everywhere: str) -> None:
        places = Stream(everywhere, "records", PARTITIONS).places
        Stream(everywhere, "transactions", PARTITIONS)
        self.members = [
            ConfluentMember(f"member-{number}", everywhere, "readers", ["records"])
            for number in range(2)
        ]
        self.arrivals = [Arrivals(), Arrivals()]
        for member, arrivals in zip(self.members, self.arrivals, strict=True):
            member.records = arrivals
        # Else what one has read is the other's before it is committed.
        until_shared(self.members, places)
        self.load = Load(everywhere, "records", PER_SECOND, PARTITIONS, topic_is_there=True)
        self.load.start()
        self.workers = Workers(everywhere, "transactions", PARTITIONS, 2)

    def go_on(self) -> None:
        """Until everybody has done something more."""
        done = self.workers.counts["ok"]
        read = [len(member.records) for member in self.members]
        self.load.wait_for_acks(PER_SECOND, seconds=30)
        until(lambda: self.workers.counts["ok"], lambda now: now > done + 2)
        until(
            lambda: [len(member.records) for member in self.members],
            lambda now: all(one > other for one, other in zip(now, read, strict=True)),
        )
        self._commit()

    def _commit(self) -> None:
        for member in self.members:
            try:
                member.commit()
            except CommitError as error:
                if str(error) != "_NO_OFFSET":  # There is nothing new.
                    raise

    def stop(self) -> None:
        """All that was acknowledged has been read once, and nobody was told of an error."""
        self.load.stop()
        self.workers.stop()
        wanted = {
            Got("records", partition, offset, value.decode())
            for value, (partition, offset) in self.load.acknowledged.items()
        }
        until_read(self.members, wanted)
        self._commit()
        for member in self.members:
            member.close()
        assert_no_errors(*self.members)
        counts = Counter(got for member in self.members for got in member.records)
        assert counts == Counter(wanted)
        assert self.workers.errors == []
        self.workers.read_all()
        assert check(self.workers.recorder.history, transactional=True) == []

    def stalls(self) -> dict[str, float]:
        return {
            "acknowledgements": self.load.longest_gap_s,
            "records read": max(each.longest_s for each in self.arrivals),
            "transactions": self.workers.longest_s,
        }


class Cluster:
    """Three agents, of the older release at first."""

    def __init__(self, folder: Path, etcd: EtcdServer, package: Path) -> None:
        (folder / "data" / "objects").mkdir(parents=True)
        prefix = etcd.new_prefix()
        self.package = package
        self.longest_start_s = 0.0
        self.agents = [
            agents.on_etcd(
                folder / f"agent-{number}", folder / "data", etcd, prefix, package=package
            )
            for number in range(3)
        ]

    @property
    def everywhere(self) -> str:
        return ",".join(agent.bootstrap for agent in self.agents)

    def replace(self, agent: KeptAgent, package: Path | None) -> None:
        """As in a rolling restart; None: this release."""
        assert agent.stop() == 0, agent.child.tail()
        agent.be(package)
        began_s = time.monotonic()
        agent.start()
        self.longest_start_s = max(self.longest_start_s, time.monotonic() - began_s)

    def take_snapshot(self) -> None:
        """By whichever agent has the jobs; whoever starts next reads it."""
        agent = self.agents[0]

        def newest() -> int:
            found: list[dict[str, int]] = ask(AgentPlace(agent.admin), "/jobs")["snapshots"]
            return max((each["position"] for each in found), default=0)

        before = newest()
        Bounded(agent.bootstrap, agent.http_port).run("snapshot")
        until(newest, lambda position: position > before)


@contextmanager
def under_traffic(cluster: Cluster) -> Iterator[Traffic]:
    at_once(KeptAgent.start, cluster.agents)
    try:
        set_transaction_version(cluster.agents[0].bootstrap, 1)
        traffic = Traffic(cluster.everywhere)
        traffic.go_on()
        yield traffic
        traffic.go_on()
        traffic.stop()
        for agent in cluster.agents:
            assert_nothing_lost(traffic.load.audit(agent.port))
        stalls = {what: f"{seconds:.2f} s" for what, seconds in traffic.stalls().items()}
        print(f"longest stalls: {stalls}; longest start {cluster.longest_start_s:.2f} s")
    finally:
        codes = at_once(KeptAgent.stop, cluster.agents)
    assert codes == [0, 0, 0]


@pytest.fixture(scope="module", params=[pytest.param(each, id=each.version) for each in KEPT])
def package(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the older release; compiled, as an installed one is: agents start sooner."""
    folder = agents.unpacked(request.param.wheel, tmp_path_factory.mktemp("package"))
    assert compileall.compile_dir(folder, quiet=1)
    return folder


@pytest.fixture
def cluster(tmp_path: Path, etcd: EtcdServer, package: Path) -> Cluster:
    return Cluster(tmp_path, etcd, package)


@pytest.mark.promise("P13")
def test_an_upgrade_agent_by_agent_is_no_more_than_a_pause_for_clients(cluster: Cluster) -> None:
    with under_traffic(cluster) as traffic:
        cluster.take_snapshot()
        for agent in cluster.agents:
            cluster.replace(agent, None)
            traffic.go_on()
        cluster.take_snapshot()
        set_transaction_version(cluster.agents[0].bootstrap, 2)
    assert max(traffic.stalls().values()) < max(STALL_S_MAX, cluster.longest_start_s)


@pytest.mark.promise("P13")
def test_an_upgrade_that_was_not_finalised_is_taken_back_the_same_way(cluster: Cluster) -> None:
    with under_traffic(cluster) as traffic:
        for package in (None, cluster.package):
            for agent in cluster.agents:
                cluster.replace(agent, package)
            cluster.take_snapshot()
    assert max(traffic.stalls().values()) < max(STALL_S_MAX, cluster.longest_start_s)
