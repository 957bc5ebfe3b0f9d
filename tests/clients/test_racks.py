"""Consumers that tell `client.rack`: three agents in two zones, bytes counted by agent and rack.

No record crosses zones but while no agent of the consumer's zone is there; agents leave and come
back, and every record is read once. Partitions are assigned by hand, since Java's groups rebalance
when a zone gets its first agent or loses its last one (KIP-881), and then read again what they did not
commit.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.clients.conftest import SETTINGS
from tests.clients.groups import Member, Stream, read_by, until, until_read
from tests.clients.members import ConfluentMember, MemberHost
from tests.parts.servers import EtcdServer, Frazil, FrazilCluster, MinioServer, get_text

pytestmark = pytest.mark.integration

ZONES = ("a", "a", "b")
PATIENT = ("lease.ttl.ms=10000", "session.deadline.ms=8000")
"""Who cannot prove its session serves everybody; that a busy machine stood still is no reason."""
PARTITIONS = 8
EACH = 50
"""Records that are sent to each partition at a time."""

Join = Callable[[str, str], Member]
"""A consumer of this rack, which reads all partitions of this topic."""


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, etcd: EtcdServer, minio: MinioServer
) -> Iterator[FrazilCluster]:
    folder = tmp_path_factory.mktemp("zoned")
    with FrazilCluster(folder, etcd, minio, *SETTINGS, *PATIENT, zones=ZONES) as cluster:
        cluster.until_groups_settle()
        yield cluster
        assert cluster.stop() == [0, 0, 0]


@pytest.fixture
def zoned(shared: FrazilCluster) -> FrazilCluster:
    """All run and know of each other, whatever the test before did."""
    for agent in shared.agents:
        if not agent.child.running:
            agent.start()
    _until_known(shared, len(ZONES))
    return shared


@pytest.fixture(params=["librdkafka", "java", "java-consumer-protocol"])
def join(request: pytest.FixtureRequest, zoned: FrazilCluster) -> Iterator[Join]:
    kind, bootstrap = request.param, _addresses(zoned)
    members: list[Member] = []
    told: dict[str, Any] = {}
    if kind == "java":
        told["metadata.max.age.ms"] = 300_000  # As by default: it asks only when it must.
    elif kind == "java-consumer-protocol":
        told["group.protocol"] = "consumer"  # And each second it tries the leader again.

    def joined(rack: str, topic: str) -> Member:
        name = f"rack-{rack}"
        config: dict[str, Any] = {"client.rack": rack, **told}
        if kind == "librdkafka":
            member: Member = ConfluentMember(name, bootstrap, topic, [f"={topic}"], **config)
        else:
            host: MemberHost = request.getfixturevalue("java")
            member = host.open(name, bootstrap, topic, f"={topic}", **config)
        members.append(member)
        return member

    yield joined
    for member in members:
        member.close()


@pytest.fixture
def stream(request: pytest.FixtureRequest, zoned: FrazilCluster) -> Stream:
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name)
    return Stream(_addresses(zoned), name, PARTITIONS)


def _addresses(cluster: FrazilCluster) -> str:
    return ",".join(agent.bootstrap for agent in cluster.agents)


def _metric(agent: Frazil, series: str) -> float:
    found = re.search(
        rf"^{re.escape(series)} (\S+)$", get_text(agent.http_port, "/metrics"), re.MULTILINE
    )
    assert found is not None, f"no {series}"
    return float(found[1])


def _given(agent: Frazil, rack: str) -> float:
    """Bytes of records that the agent gave to consumers of no rack, its own zone, or another."""
    return _metric(agent, f'frazil_fetch_bytes_total{{rack="{rack}"}}')


def _crossed(cluster: FrazilCluster) -> list[float]:
    return [_given(agent, "other") for agent in cluster.agents if agent.child.running]


def _until_known(cluster: FrazilCluster, count: int) -> None:
    """Wait until all that run know of so many live agents."""
    running = [agent for agent in cluster.agents if agent.child.running]

    def is_known() -> bool:
        return all(_metric(agent, "frazil_agents") == count for agent in running)

    until(is_known, [], f"{count} agents are known")


def _until_all_read(members: list[Member], stream: Stream) -> None:
    """Wait until each of them has read everything, once."""
    wanted = stream.records_from([0] * PARTITIONS)
    for member in members:
        until_read([member], wanted, seconds=60)
        assert read_by([member]) == Counter(wanted), member.told()


def test_no_record_crosses_zones(zoned: FrazilCluster, stream: Stream, join: Join) -> None:
    agents = zoned.agents
    crossed, own = _crossed(zoned), [_given(agent, "own") for agent in agents]
    stream.send(EACH)
    members = [join("a", stream.topic), join("b", stream.topic)]
    for _ in range(5):
        _until_all_read(members, stream)
        stream.send(EACH)
    _until_all_read(members, stream)
    assert _crossed(zoned) == crossed
    # No sum is compared: Java asks for a partition anew where the leader sends it, while the answer
    # to its older request is on its way, and drops the one that comes second.
    given = [_given(agent, "own") - before for agent, before in zip(agents, own, strict=True)]
    least = sum(len(got.value) for got in stream.records_from([0] * PARTITIONS))
    assert given[0] + given[1] > least, "zone a's agents gave its consumer every record"
    assert given[2] > least, "zone b's agent gave its consumer every record"


def test_when_one_of_the_zones_agents_leaves_and_comes_back_the_other_serves(
    zoned: FrazilCluster, stream: Stream, join: Join
) -> None:
    crossed = _crossed(zoned)
    member = join("a", stream.topic)
    stream.send(EACH)
    _until_all_read([member], stream)
    leaving = zoned.agents[1]
    assert leaving.stop() == 0
    stream.send(EACH)
    _until_all_read([member], stream)
    assert _crossed(zoned) == [crossed[0], crossed[2]]
    leaving.start()
    _until_known(zoned, len(ZONES))
    stream.send(EACH)
    _until_all_read([member], stream)
    assert _crossed(zoned) == [crossed[0], 0, crossed[2]]


@pytest.mark.promise("P7")
def test_records_cross_zones_only_while_the_zone_has_no_agent(
    zoned: FrazilCluster, stream: Stream, join: Join
) -> None:
    before = _crossed(zoned)
    member = join("b", stream.topic)
    stream.send(EACH)
    _until_all_read([member], stream)
    assert _crossed(zoned) == before
    leaving = zoned.agents[2]
    assert leaving.stop() == 0
    stream.send(EACH)
    _until_all_read([member], stream)
    assert sum(_crossed(zoned)) > before[0] + before[1]
    leaving.start()
    _until_known(zoned, len(ZONES))
    # From here on nobody in the other zone gives it anything, whether it has moved yet or not.
    away = _crossed(zoned)
    stream.send(EACH)
    _until_all_read([member], stream)
    assert _crossed(zoned) == away
    assert _given(leaving, "own") > 0
