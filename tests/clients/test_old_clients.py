"""Clients that speak the protocol of older releases of Kafka: sarama, told so, and segmentio's kafka-go."""

import subprocess
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient

from tests.parts import install
from tests.parts.servers import FrazilDev
from tests.parts.topics import create_topic

pytestmark = pytest.mark.integration

VERSIONS = ("0.11.0.0", "1.0.0", "2.1.0", "2.8.0", "3.6.0")


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrazilDev]:
    settings = ("group.initial.rebalance.delay.ms=0", "puts.per.second=1000")
    words = [word for each in settings for word in ("--set", each)]
    with FrazilDev(tmp_path_factory.mktemp("old"), *words) as agent:
        yield agent
        assert agent.stop() == 0


def run(client: str, agent: FrazilDev, topic: str, *words: str) -> list[str]:
    """What it tells."""
    create_topic(AdminClient({"bootstrap.servers": agent.bootstrap}), topic, 1)
    done = subprocess.run(
        [str(install.go_clients()[client]), agent.bootstrap, topic, *words],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [line[1:] for line in done.stdout.splitlines() if line.startswith("@")]


def test_sarama_writes_reads_and_joins_a_group_by_the_protocol_of_older_releases(
    agent: FrazilDev,
) -> None:
    told = run("sarama_versions", agent, "by-sarama", *VERSIONS)
    assert told == [f"{version} ok" for version in VERSIONS]


def test_kafka_go_writes_reads_and_joins_a_group(agent: FrazilDev) -> None:
    assert run("kafkago", agent, "by-kafka-go") == ["ok", "ok", "ok"]
