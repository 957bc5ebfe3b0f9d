"""Agents of this release and of the one before in one cluster, as while it is upgraded."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.clients.bounded import Bounded, until
from tests.clients.raw import Connection, coordinator
from tests.clients.raw_txn import LIBRDKAFKA, NEW_JAVA, Dialect, until_all_know, visible
from tests.clients.raw_txn import Producer as RawProducer
from tests.parts.servers import EtcdServer
from tests.parts.topics import create_topic
from tests.releases import KEPT, agents, story
from tests.releases.agents import KeptAgent
from tests.releases.keep import started, take_snapshots
from tests.releases.seen import read

pytestmark = pytest.mark.integration


class Mixed(NamedTuple):
    older: KeptAgent
    newer: KeptAgent

    @property
    def both(self) -> tuple[KeptAgent, KeptAgent]:
        return self.older, self.newer


@pytest.fixture(scope="module", params=[pytest.param(each, id=each.version) for each in KEPT])
def mixed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, etcd: EtcdServer
) -> Iterator[Mixed]:
    """Both serve one log and one store; each topic is for one test."""
    folder: Path = tmp_path_factory.mktemp("mixed")
    package = agents.unpacked(request.param.wheel, folder / "package")
    objects, prefix = folder / "data", etcd.new_prefix()
    (objects / "objects").mkdir(parents=True)
    with (
        started(agents.on_etcd(folder / "older", objects, etcd, prefix, package=package)) as older,
        started(agents.on_etcd(folder / "newer", objects, etcd, prefix)) as newer,
    ):
        yield Mixed(older, newer)


def topic(mixed: Mixed, name: str, **configs: str) -> str:
    admin = AdminClient({"bootstrap.servers": mixed.older.bootstrap})
    create_topic(admin, name, 2, {key.replace("_", "."): value for key, value in configs.items()})
    return name


def values(agent: KeptAgent, *places: tuple[str, int]) -> list[str]:
    """What this very agent gives to who reads committed records."""
    return visible(agent.bootstrap, *places)


@pytest.mark.parametrize("dialect", [LIBRDKAFKA, NEW_JAVA], ids=["old clients", "new clients"])
def test_each_reads_what_the_other_wrote_and_ends_what_it_began(
    mixed: Mixed, dialect: Dialect
) -> None:
    name = topic(mixed, f"transactions-{dialect.end}")
    for number, (begins, ends) in enumerate((mixed.both, mixed.both[::-1])):
        for commit in (True, False):
            producer = RawProducer(f"{name}-{number}-{commit}", dialect)
            with Connection(begins.bootstrap) as one, Connection(ends.bootstrap) as other:
                producer.init(one)
                producer.write(one, (name, 0), f"{number} {commit} 0")
                producer.write(other, (name, 1), f"{number} {commit} 1")
                assert producer.end(other, commit=commit)[-1] == 0
    places = [(name, partition) for partition in range(2)]
    until_all_know([agent.bootstrap for agent in mixed.both], *places)
    for agent in mixed.both:
        assert values(agent, *places) == ["0 True 0", "1 True 0", "0 True 1", "1 True 1"]


def test_groups_of_either_protocol_are_coordinated_by_either(mixed: Mixed) -> None:
    """Shards are dealt out between both; what one coordinates the other finds."""
    topic(mixed, "plain-here")
    admin = AdminClient({"bootstrap.servers": mixed.newer.bootstrap})
    create_topic(admin, "plain", 3)
    addresses = {agent.bootstrap for agent in mixed.both}
    names = [f"group-{number}" for number in range(16)]
    # Shards move one after the other, and each hears of it in its own time.
    named, _ = until(
        lambda: [[coordinator(each.bootstrap, name) for name in names] for each in mixed.both],
        lambda told: told[0] == told[1] and {*told[0]} == addresses,
    )
    by = dict(zip(named, names, strict=True))
    for at, group in enumerate(by.values()):
        settings = {"group.protocol": "consumer"} if at else {}
        member = story.static_member(mixed.both[at].bootstrap, group, **settings)
        story.commit(member, [TopicPartition("plain", 0, 5 + at, "both")])
        member.close()
        for agent in mixed.both:
            found = story.committed(agent.bootstrap, group, "plain")
            assert found[0] == (5 + at, "both")


@pytest.mark.promise("P13")
def test_jobs_of_either_rearrange_what_both_wrote_and_agree_about_snapshots(mixed: Mixed) -> None:
    name = topic(mixed, "layers", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    for agent in mixed.both:
        story.write_keys(agent.bootstrap, name, rounds=3)
    jobs = Bounded(mixed.newer.bootstrap, mixed.newer.http_port)
    jobs.run_until("compact", name, lambda row: row["clean_to"] == row["end"])
    # An agent whose machine is not the snapshot's stops (P13).
    take_snapshots(mixed.newer, name)
    for agent in mixed.both:
        assert agent.child.running
        keys = {row["key"] for row in read(agent.bootstrap, name)}
        assert keys == {f"key-{number}" for number in range(4)}
