"""Members of a real etcd of three die, stand still, are cut off, full or only learning: clients notice
no more than a pause, and what they read is whole."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.anomalies import check
from tests.clients.groups import Stream
from tests.faults.load import Load, assert_nothing_lost
from tests.faults.test_outages import RETRIABLE
from tests.faults.txn_load import Workers
from tests.faults.wire import batch, produce_error
from tests.parts.etcd_cluster import EtcdCluster, EtcdMember, until
from tests.parts.servers import FrazilCluster, MinioServer

pytestmark = pytest.mark.integration

SETTINGS = (
    *("lease.ttl.ms=3000", "session.deadline.ms=2000", "session.read.ms=500"),
    "group.initial.rebalance.delay.ms=0",
    "puts.per.second=1000",
)
FLAGS = (
    # Soon full.
    *("--quota-backend-bytes", str(16 << 20)),
    # A member that was away is sent a snapshot, not entries.
    *("--snapshot-count", "100", "--snapshot-catchup-entries", "50"),
)
PER_SECOND = 200
PARTITIONS = 4
PATIENCE_MS = 2000
REFUSED_S_MAX = 10.0
"""On a busy machine."""


class World(NamedTuple):
    etcd: EtcdCluster
    cluster: FrazilCluster

    @property
    def everywhere(self) -> str:
        return ",".join(agent.bootstrap for agent in self.cluster.agents)

    @property
    def watched(self) -> EtcdMember:
        """The member that most agents hear of the log's entries from."""
        return max(self.etcd.members, key=lambda member: member.watchers)

    @contextmanager
    def under_load(self, name: str) -> Iterator[Load]:
        """Records and transactions, before, during and behind what the test does; all is judged."""
        Stream(self.everywhere, f"{name}-txn", PARTITIONS)
        load = Load(self.everywhere, name, per_second=PER_SECOND)
        load.start()
        workers = Workers(self.everywhere, f"{name}-txn", PARTITIONS, 3)
        try:
            load.wait_for_acks(PER_SECOND, seconds=30)
            yield load
            load.wait_for_acks(PER_SECOND, seconds=30)
        finally:
            self.etcd.heal()
        load.stop()
        workers.stop()
        workers.read_all()
        for agent in self.cluster.agents:
            agent.until_ready()
            assert_nothing_lost(load.audit(agent.port))
        print(f"{name}: no acknowledgement for {load.longest_gap_s:.1f} s; {workers.counts}")
        assert check(workers.recorder.history, transactional=True) == []
        assert workers.counts["ok"] > 0


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, minio: MinioServer) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("members")
    with (
        EtcdCluster(folder / "etcd", *FLAGS) as etcd,
        FrazilCluster(folder / "members", etcd, minio, *SETTINGS) as cluster,
    ):
        yield World(etcd, cluster)
        assert cluster.stop() == [0, 0, 0]


def test_the_leader_is_killed_and_another_is_elected(world: World) -> None:
    etcd = world.etcd
    with world.under_load("leader-killed") as load:
        etcd.lead(leader := world.watched)
        leader.child.kill()
        etcd.leader_among(etcd.others(leader))
        load.wait_for_acks(PER_SECOND, seconds=30)
        leader.start()


def test_a_follower_that_comes_back_stands_in_for_another_at_once(world: World) -> None:
    """It has to be sent a snapshot first; and without it there is no majority."""
    etcd = world.etcd
    with world.under_load("followers") as load:
        leader = etcd.leader_among(etcd.members)
        first, second = etcd.others(leader)
        first.child.kill()
        load.wait_for_acks(2 * PER_SECOND, seconds=30)
        second.child.kill()
        first.start()
        load.wait_for_acks(PER_SECOND, seconds=30)
        second.start()


@pytest.mark.promise("P5")
def test_a_leader_that_stood_still_is_believed_by_nobody(world: World) -> None:
    etcd = world.etcd
    with world.under_load("leader-paused") as load:
        etcd.lead(leader := world.watched)
        leader.child.pause()
        etcd.leader_among(etcd.others(leader))
        load.wait_for_acks(2 * PER_SECOND, seconds=30)
        leader.child.resume()


@pytest.mark.promise("P5")
@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
def test_a_member_that_is_cut_off_from_the_others_holds_up_nobody_for_long(
    world: World, *, leads: bool
) -> None:
    """Agents reach it, and it answers some of what they ask: as a leader it knows of no other one."""
    etcd = world.etcd
    with world.under_load(f"cut-{leads}".lower()) as load:
        member = world.watched
        etcd.lead(member if leads else etcd.others(member)[0])
        etcd.isolate(member)
        etcd.leader_among(etcd.others(member))
        load.wait_for_acks(2 * PER_SECOND, seconds=30)


def test_history_that_is_compacted_before_a_watch_has_told_it_is_read_another_way(
    world: World,
) -> None:
    etcd = world.etcd
    with world.under_load("compacted"):
        member = world.watched
        other = etcd.leader_among(etcd.members)
        if other is member:
            etcd.lead(other := etcd.others(member)[0])
        member.child.pause()
        revision = other.revision
        # Of appends that went to other members, and that nobody has heard of.
        until(lambda: other.revision > revision + 1, "nothing is appended")
        other.ask("kv/compaction", revision=str(other.revision))


@pytest.mark.promise("P16")
def test_a_full_database_refuses_writes_in_time_until_the_alarm_is_disarmed(world: World) -> None:
    etcd, (agent, *_) = world.etcd, world.cluster.agents
    with world.under_load("full") as load:
        etcd.fill()
        try:
            asked_s = time.monotonic()
            error = produce_error(agent.port, "full", batch(), timeout_ms=PATIENCE_MS)
            assert error in RETRIABLE
            assert time.monotonic() - asked_s < REFUSED_S_MAX
            assert agent.child.running
        finally:
            etcd.empty()
        load.wait_for_acks(PER_SECOND, seconds=30)


def test_a_member_that_only_learns_is_passed_over(
    tmp_path: Path, world: World, minio: MinioServer
) -> None:
    etcd = world.etcd
    with (
        etcd.learner(),
        FrazilCluster(tmp_path / "learning", etcd, minio, *SETTINGS, agents=1) as cluster,
    ):
        load = Load(cluster.bootstrap, "learning", per_second=PER_SECOND)
        load.start()
        load.wait_for_acks(PER_SECOND, seconds=30)
        (agent,) = cluster.agents
        # No other endpoint answers, so the first one is asked again.
        for member in etcd.members:
            member.child.pause()
        until(lambda: not agent.ready, "an agent without a log is ready")
        etcd.heal()
        load.wait_for_acks(PER_SECOND, seconds=30)
        load.stop()
        assert_nothing_lost(load.audit(agent.port))
        assert cluster.stop() == [0]
