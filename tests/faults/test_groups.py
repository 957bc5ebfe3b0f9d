"""The agent that coordinates a group is killed, or stands still: members and offsets stay."""

import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages import OffsetCommitResponse
from tests.clients import raw
from tests.clients.groups import (
    CommitError,
    Member,
    Place,
    Stream,
    assert_no_errors,
    read_by,
    until,
    until_read,
    until_shared,
)
from tests.clients.members import ConfluentMember, MemberHost, java_host
from tests.parts.servers import EtcdServer, Frazil, FrazilCluster, MinioServer

pytestmark = pytest.mark.integration

SETTINGS = (
    "group.initial.rebalance.delay.ms=0",
    "group.consumer.min.heartbeat.interval.ms=300",
    "group.consumer.heartbeat.interval.ms=300",
)
"""So that groups are stable soon, and a member that had to rejoin would. Leases as they are."""
KINDS = {
    "classic": {"partition.assignment.strategy": "range"},
    "consumer": {"group.protocol": "consumer"},
}
JAVA_KINDS = {
    "classic": {"partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor"},
    "consumer": {"group.protocol": "consumer"},
}
LIBRDKAFKA_MEMBERS, JAVA_MEMBERS, PARTITIONS = 15, 5, 40
COMMITS_AGAIN_S = 5.0
ALL_COMMIT_AGAIN_S = 10.0
"""Also those that were in a back-off of their own when there was a coordinator again."""
PAUSE_S = 12.0
PROBES = 30

Epochs = tuple[int, dict[str, int]]
"""The generation or epoch of a group, and of its members by their ids."""


@pytest.fixture(scope="module")
def java() -> Iterator[MemberHost]:
    host = java_host()
    yield host
    host.stop()


def _coordinator(agents: Sequence[Frazil], group: str) -> Frazil | None:
    """The one of these agents that all of them name as coordinator, if they do."""
    named = {raw.coordinator(agent.bootstrap, group) for agent in agents}
    found = [agent for agent in agents if named == {agent.bootstrap}]
    return found[0] if found else None


def _new_coordinator(agents: Sequence[Frazil], group: str) -> Frazil:
    found: list[Frazil] = []

    def asked() -> bool:
        agent = _coordinator(agents, group)
        found.extend([agent] if agent is not None else [])
        return agent is not None

    until(asked, [], "the group has a coordinator")
    return found[0]


def _coordinates_some(agent: Frazil) -> bool:
    """Is it the coordinator of any of many groups that could be?"""
    return any(
        raw.coordinator(agent.bootstrap, f"probe-{number}") == agent.bootstrap
        for number in range(PROBES)
    )


def _epochs(agent: Frazil, group: str, members: Sequence[Member], kind: str) -> Epochs:
    """As this coordinator has them. All the members must be known to it."""
    if kind == "consumer":
        return raw.epochs(agent.bootstrap, group)
    number = raw.generation(agent.bootstrap, group, members[0].member_id)
    for member in members:
        error = raw.heartbeat(agent.bootstrap, group, number, member.member_id)
        assert error == ErrorCode.NONE, f"{member.name}: {ErrorCode(error).name}"
    return number, {member.member_id: number for member in members}


def _commit_error(answer: OffsetCommitResponse) -> int:
    return answer.topics[0].partitions[0].error_code


def _some_place(member: Member) -> Place:
    return min(member.owned)


def _commits_again(member: Member, offset: int, began_s: float) -> float:
    """Commit until it is done; seconds since `began_s`."""
    while time.monotonic() < began_s + 30:
        try:
            member.commit(dict.fromkeys(member.owned, offset))
            return time.monotonic() - began_s
        except CommitError:
            time.sleep(0.02)
    raise AssertionError(f"no commit in 30 s\n{member.told()}")


def _raw_commits_again(
    agents: Sequence[Frazil], group: str, member: Member, epoch: int, offset: int
) -> None:
    """As the quickest client could: ask all agents, and commit to the one that they name."""

    def committed() -> bool:
        agent = _coordinator(agents, group)
        if agent is None:
            return False
        place, member_id = _some_place(member), member.member_id
        return (
            raw.commit(agent.bootstrap, group, place, offset, epoch=epoch, member_id=member_id)
            == ErrorCode.NONE
        )

    until(committed, [member], "a commit is taken again")


@pytest.mark.alone
@pytest.mark.parametrize("kind", KINDS)
def test_a_group_of_twenty_outlives_its_coordinator(
    tmp_path: Path, etcd: EtcdServer, minio: MinioServer, java: MemberHost, kind: str
) -> None:
    group = f"kill-coordinator-{kind}"
    with FrazilCluster(tmp_path / group, etcd, minio, *SETTINGS) as cluster:
        cluster.until_groups_settle()
        everywhere = ",".join(agent.bootstrap for agent in cluster.agents)
        stream = Stream(everywhere, group, PARTITIONS)
        members: list[Member] = [
            ConfluentMember(f"m{index}", everywhere, group, [group], **KINDS[kind])
            for index in range(LIBRDKAFKA_MEMBERS)
        ]
        for index in range(JAVA_MEMBERS):
            members.append(java.open(f"j{index}", everywhere, group, group, **JAVA_KINDS[kind]))
        until_shared(members, stream.places, seconds=60)
        stream.send(5)
        until_read(members, stream.records_from([0] * PARTITIONS))
        for member in members:
            member.commit()
        agent = _new_coordinator(cluster.agents, group)
        before = _epochs(agent, group, members, kind)
        assert set(before[1]) == {member.member_id for member in members}
        heard = {member.name: list(member.events) for member in members}

        agent.child.kill()
        began_s = time.monotonic()
        rest = [other for other in cluster.agents if other is not agent]
        with ThreadPoolExecutor(len(members)) as pool:
            waiting = [pool.submit(_commits_again, member, 5, began_s) for member in members]
            _raw_commits_again(rest, group, members[0], before[1][members[0].member_id], 5)
            raw_s = time.monotonic() - began_s
            clients_s = [future.result(60) for future in waiting]
        librdkafka_s, java_s = (
            max(clients_s[:LIBRDKAFKA_MEMBERS]),
            max(clients_s[LIBRDKAFKA_MEMBERS:]),
        )
        print(
            f"{kind}: commits are taken again after {raw_s:.1f} s; "
            f"of librdkafka after {librdkafka_s:.1f} s, of Java after {java_s:.1f} s"
        )

        stream.send(5)
        until_read(members, stream.records_from([0] * PARTITIONS))
        for member in members:
            member.commit()
        assert {member.name: member.events for member in members} == heard
        assert set(before[1]) == {member.member_id for member in members}
        assert _epochs(_new_coordinator(rest, group), group, members, kind) == before
        assert read_by(members) == Counter(stream.records_from([0] * PARTITIONS))
        assert stream.committed(group, rest[0].bootstrap) == stream.ends
        for member in members:
            member.close()
        assert raw_s < COMMITS_AGAIN_S
        assert statistics.median(clients_s) < COMMITS_AGAIN_S
        assert max(clients_s) < ALL_COMMIT_AGAIN_S


def test_a_coordinator_that_stood_still_moves_no_offset_back(
    tmp_path: Path, etcd: EtcdServer, minio: MinioServer
) -> None:
    group = "pause-coordinator"
    with FrazilCluster(tmp_path / group, etcd, minio, *SETTINGS) as cluster:
        cluster.until_groups_settle()
        everywhere = ",".join(agent.bootstrap for agent in cluster.agents)
        stream = Stream(everywhere, group)
        # Their connections to the paused agent stay open, and they wait in vain for so long.
        patience = {"socket.timeout.ms": 1000}
        members: list[Member] = [
            ConfluentMember(f"m{index}", everywhere, group, [group], **patience)
            for index in range(2)
        ]
        until_shared(members, stream.places)
        # A member that had still to fetch its offsets would find those that are committed for it below.
        stream.send(1)
        until_read(members, stream.records_from([0] * 4))
        agent = _new_coordinator(cluster.agents, group)
        generation = raw.generation(agent.bootstrap, group, members[0].member_id)
        place, member_id = _some_place(members[0]), members[0].member_id
        late = raw.commit_of(group, place, 1, epoch=generation, member_id=member_id)
        heard = {member.name: list(member.events) for member in members}

        with raw.Connection(agent.bootstrap, seconds=30) as connection:
            agent.child.pause()
            began_s = time.monotonic()
            # What it will find in the kernel when it goes on: a commit by a member in good order.
            connection.send(raw.OFFSET_COMMIT, raw.OFFSET_COMMIT_VERSION, late)
            # Meanwhile the group goes on, elsewhere.
            rounds = 0
            while time.monotonic() < began_s + PAUSE_S:
                stream.send(1)
                for member in members:
                    _commits_again(member, stream.ends[0], time.monotonic())
                rounds += 1
            assert rounds > 3
            agent.child.resume()
            answers = [_commit_error(connection.receive())]
            while answers[-1] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                # What was read around the stall is refused like that, whatever it is (P17).
                connection.send(raw.OFFSET_COMMIT, raw.OFFSET_COMMIT_VERSION, late)
                answers.append(_commit_error(connection.receive()))
        assert answers[-1] == ErrorCode.NOT_COORDINATOR, answers
        assert stream.committed(group) == stream.ends
        # It gets its share of the groups again; if this one moves, nobody hears of it either.
        until(lambda: _coordinates_some(agent), members, "the agent coordinates again")
        assert stream.committed(group) == stream.ends
        cluster.until_groups_settle()
        now = _new_coordinator(cluster.agents, group)
        assert raw.generation(now.bootstrap, group, member_id) == generation
        stream.send(1)
        until_read(members, stream.records_from([0] * 4))
        for member in members:
            member.commit()
        assert stream.committed(group) == stream.ends
        assert {member.name: member.events for member in members} == heard
        for member in members:
            member.close()
        assert_no_errors(*members)
        assert cluster.stop() == [0, 0, 0]


@pytest.mark.alone
def test_a_rolling_restart_disturbs_no_group(
    tmp_path: Path, etcd: EtcdServer, minio: MinioServer, java: MemberHost
) -> None:
    with FrazilCluster(tmp_path / "rolling", etcd, minio, *SETTINGS) as cluster:
        cluster.until_groups_settle()
        everywhere = ",".join(agent.bootstrap for agent in cluster.agents)
        stream = Stream(everywhere, "rolling")
        groups: dict[str, list[Member]] = {
            kind: [
                ConfluentMember(f"{kind}-librdkafka", everywhere, kind, ["rolling"], **KINDS[kind]),
                java.open(f"{kind}-java", everywhere, kind, "rolling", **JAVA_KINDS[kind]),
            ]
            for kind in KINDS
        }
        everybody = [member for members in groups.values() for member in members]
        for members in groups.values():
            until_shared(members, stream.places)

        def epochs() -> list[Epochs]:
            return [
                _epochs(_new_coordinator(cluster.agents, kind), kind, members, kind)
                for kind, members in groups.items()
            ]

        before = epochs()
        heard = {member.name: list(member.events) for member in everybody}
        for agent in cluster.agents:
            assert agent.stop() == 0
            stopped_s = time.monotonic()
            stream.send(1)
            waited_s = [_commits_again(member, stream.ends[0], stopped_s) for member in everybody]
            assert max(waited_s) < COMMITS_AGAIN_S
            agent.start()
        for kind, members in groups.items():
            until_read(members, stream.records_from([0] * 4))
            assert read_by(members) == Counter(stream.records_from([0] * 4))
            assert stream.committed(kind) == stream.ends
        # Shards go back to who has started: the coordinator that is asked has to stay it.
        cluster.until_groups_settle()
        assert epochs() == before
        assert {member.name: member.events for member in everybody} == heard
        for member in everybody:
            member.close()
        assert cluster.stop() == [0, 0, 0]
