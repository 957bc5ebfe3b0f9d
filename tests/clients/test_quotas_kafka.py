"""Client quotas are set, refused and described as by Apache Kafka, word for word; and by its tools."""

from collections.abc import Iterator
from functools import partial

import pytest

from protocol import apis
from tests.broker.handlers.test_quotas import FILTERS, SAME_IN_KAFKA, altering, found, told
from tests.clients.bounded import until
from tests.clients.kafka_tools import CONFIGS, KafkaTools
from tests.clients.raw import Connection
from tests.parts.servers import FrazilDev, KafkaServer

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrazilDev]:
    with FrazilDev(tmp_path_factory.mktemp("quotas")) as agent:
        yield agent


def test_requests_are_answered_as_by_kafka(ours: FrazilDev, kafka: KafkaServer) -> None:
    with Connection(ours.bootstrap) as one, Connection(kafka.bootstrap) as other:
        for name, entries in SAME_IN_KAFKA.items():
            answers = [
                each.ask(apis.ALTER_CLIENT_QUOTAS, 1, altering(*entries)) for each in (one, other)
            ]
            mine, kafkas = [
                sorted((sorted(entity), *rest) for entity, *rest in told(answer))
                for answer in answers
            ]
            assert mine == kafkas, name
        everything = FILTERS["everything"]
        mine = found(one.ask(apis.DESCRIBE_CLIENT_QUOTAS, 1, everything))
        # Kafka's broker knows a moment later than its controller.
        until(
            lambda: found(other.ask(apis.DESCRIBE_CLIENT_QUOTAS, 1, everything)),
            lambda kafkas: kafkas == mine,
        )
        assert len(mine) == 6
        for name, request in FILTERS.items():
            answers = [each.ask(apis.DESCRIBE_CLIENT_QUOTAS, 1, request) for each in (one, other)]
            assert found(answers[0]) == found(answers[1]), name


ENTITIES = (
    ("--entity-type", "users", "--entity-name", "alice"),
    ("--entity-type", "users", "--entity-default"),
    ("--entity-type", "clients", "--entity-name", "app"),
    ("--entity-type", "clients", "--entity-default"),
    (
        "--entity-type",
        "users",
        "--entity-name",
        "al",
        "--entity-type",
        "clients",
        "--entity-default",
    ),
    ("--entity-type", "ips", "--entity-name", "127.0.0.9"),
    ("--entity-type", "ips", "--entity-default"),
)


@pytest.mark.parametrize("entity", ENTITIES, ids=" ".join)
def test_kafka_configs_sets_shows_and_removes_quotas(
    entity: tuple[str, ...], ours: FrazilDev, kafka: KafkaServer, tools: KafkaTools
) -> None:
    key, value = ("producer_byte_rate", "1024")
    if "ips" in entity:
        key, value = ("connection_creation_rate", "50")
    printed = []
    for bootstrap in (ours.bootstrap, kafka.bootstrap):
        steps = [
            tools.run(CONFIGS, bootstrap, "--alter", "--add-config", f"{key}={value}", *entity)
        ]
        describe = partial(tools.run, CONFIGS, bootstrap, "--describe", *entity)
        steps += [
            until(describe, lambda shown: key in shown),
            tools.run(CONFIGS, bootstrap, "--alter", "--delete-config", key, *entity),
            tools.run(CONFIGS, bootstrap, "--alter", "--add-config", "x=1", *entity),
        ]
        printed.append(steps)
    said = [
        [line for step in steps for line in step.splitlines() if not line.startswith("SLF4J")]
        for steps in printed
    ]
    assert said[0] == said[1]
    assert f"{key}={value}.0" in printed[0][1]
