"""`frazil config` and `frazil cluster` beside Apache Kafka: the same commands, line by line the same answers."""

import json
from collections.abc import Iterator
from functools import partial

import pytest

from tests.clients import commands
from tests.clients.bounded import until
from tests.clients.side_by_side import Pair
from tests.clients.test_topic_commands import both

pytestmark = pytest.mark.integration


@pytest.fixture
def orders(beside: Pair) -> Iterator[Pair]:
    """Where there is a topic, which is deleted when the test ends."""
    assert both(beside, "create orders --config min.insync.replicas=1").code == 0
    assert both(beside, "describe orders").code == 0
    yield beside
    assert both(beside, "delete orders --yes --if-exists").code == 0


def configs(bootstrap: str, about: str) -> dict[str, str]:
    """Those that are no defaults. Kafka's broker hears of one a moment after its controller."""
    words = ("config", "describe", *about.split(), "--json", "--bootstrap", bootstrap)
    return {one["name"]: one["value"] for one in json.loads(commands.frazil(*words).out)}


@pytest.mark.parametrize(
    ("about", "setting", "value"),
    [
        ("--topic orders", "retention.ms", "-1"),
        ("--group g", "consumer.session.timeout.ms", "50000"),
        ("--client-metrics m", "interval.ms", "60000"),
        ("--all-brokers", "log.retention.ms", "86400000"),
        ("--broker 1", "log.retention.ms", "86400000"),
    ],
)
def test_configs_are_altered_and_described_alike(
    orders: Pair, about: str, setting: str, value: str
) -> None:
    altering = f"alter {about} --set {setting}={value}"
    assert both(orders, f"{altering} --dry-run", "config").code == 0
    assert both(orders, altering, "config").lines[0].endswith(f"is altered: set {setting}={value}")
    for bootstrap in orders:
        until(partial(configs, bootstrap, about), lambda told: told.get(setting) == value)
    assert both(orders, f"alter {about} --unset {setting}", "config").code == 0


@pytest.mark.parametrize(
    "words",
    [
        "describe --topic nothing",
        "describe --broker 77",
        "describe --broker one",
        "describe --broker-logger 77",
        "alter --topic orders",
        "alter --topic nothing --set retention.ms=1",
        "alter --topic orders --set retention.ms=long",
        "alter --topic orders --set nothing=1",
        "alter --broker 77 --set log.retention.ms=1",
        "alter --group g --set consumer.session.timeout.ms=long",
        "alter --client-metrics m --set nothing=1",
    ],
)
def test_mistakes_are_told_the_same(orders: Pair, words: str) -> None:
    refused = both(orders, words, "config")
    assert refused.code == 1
    assert refused.complaints


@pytest.mark.parametrize(
    ("entity", "setting"),
    [
        ("--user bob", "producer_byte_rate=1048576"),
        ("--user bob --client-id-default", "consumer_byte_rate=2000"),
        ("--user-default", "request_percentage=50"),
        ("--ip 127.0.0.9", "connection_creation_rate=5"),
    ],
)
def test_quotas_are_altered_and_described_alike(beside: Pair, entity: str, setting: str) -> None:
    name, _, number = setting.partition("=")
    assert both(beside, f"alter {entity} --set {setting} --dry-run", "quota").code == 0
    assert both(beside, f"alter {entity} --set {setting}", "quota").code == 0
    assert both(beside, f"describe {entity}", "quota").lines[1].endswith(f" {name} {number}")
    both(beside, "describe --json", "quota")
    assert both(beside, f"alter {entity} --unset {name}", "quota").code == 0
    assert both(beside, "describe", "quota").lines == ["there are no quotas"]


@pytest.mark.parametrize(
    "words",
    [
        "alter --user bob --set nothing=1",
        "alter --user bob --set producer_byte_rate=-1",
        "alter --ip 127.0.0.9 --set producer_byte_rate=1",
        "alter --ip 127.0.0.9 --user bob --set producer_byte_rate=1",
    ],
)
def test_mistakes_about_quotas_are_told_the_same(beside: Pair, words: str) -> None:
    refused = both(beside, words, "quota")
    assert refused.code == 1
    assert refused.complaints


def test_a_cluster_is_described_alike_but_for_its_id(beside: Pair) -> None:
    described = []
    for bootstrap in beside:
        done = commands.frazil("cluster", "describe", "--json", "--bootstrap", bootstrap)
        told = json.loads(done.out)
        assert told.pop("cluster_id")
        (broker,) = told["brokers"]
        assert f"{broker.pop('host')}:{broker.pop('port')}".endswith(bootstrap.partition(":")[2])
        described.append(told)
    assert described[0] == described[1]
