"""Codes and sentences of DescribeConfigs and AlterConfigs, of an agent and of Kafka 4.3 side by side.

On the wire by hand, since clients do not send all of these. Everything is only validated.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from broker.config.changes import OpType
from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tests.clients.raw import Connection
from tests.clients.test_config_tools import node_of
from tests.parts.servers import FrazilDev, KafkaServer
from tests.parts.topics import NotNowError, patiently

pytestmark = pytest.mark.integration

BROKER, LOGGER, METRICS, GROUP = 4, 8, 16, 32
NODE = "{node}"
SET, DELETE, APPEND, SUBTRACT = OpType
Operation = tuple[str, int, str | None]


class Side(NamedTuple):
    connection: Connection
    node: str

    def named(self, name: str) -> str:
        return self.node if name == NODE else name

    def alter(self, kind: int, name: str, *operations: Operation) -> tuple[int, str | None]:
        resource = IncrementalAlterConfigsResource(
            resource_type=kind,
            resource_name=self.named(name),
            configs=[
                IncrementalAlterableConfig(name=each, config_operation=operation, value=value)
                for each, operation, value in operations
            ],
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
        return self._altered(apis.INCREMENTAL_ALTER_CONFIGS, 1, request)

    def replace(self, kind: int, name: str, config: str, value: str) -> tuple[int, str | None]:
        resource = AlterConfigsResource(
            resource_type=kind,
            resource_name=self.named(name),
            configs=[AlterableConfig(name=config, value=value)],
        )
        request = AlterConfigsRequest(resources=[resource], validate_only=True)
        return self._altered(apis.ALTER_CONFIGS, 2, request)

    def describe(self, kind: int, name: str) -> tuple[int, str | None]:
        resource = DescribeConfigsResource(
            resource_type=kind, resource_name=self.named(name), configuration_keys=None
        )
        answer = self.connection.ask(
            apis.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=[resource])
        )
        return self._answered(answer.results[0].error_code, answer.results[0].error_message)

    def _altered(self, key: int, version: int, request: Any) -> tuple[int, str | None]:
        """What is said of the only resource, once the agent refuses no more because it stood still."""

        def attempt() -> Any:
            (row,) = self.connection.ask(key, version, request).responses
            if row.error_code == ErrorCode.NOT_CONTROLLER:
                raise NotNowError(row.error_message)
            return row

        row = patiently(attempt, NotNowError)
        return self._answered(row.error_code, row.error_message)

    def _answered(self, code: int, sentence: str | None) -> tuple[int, str | None]:
        told = (sentence or "").replace(f"xpected {self.node}", f"xpected {NODE}")
        return int(code), told


@pytest.fixture(scope="module")
def sides(kafka: KafkaServer, embedded: FrazilDev) -> Iterator[tuple[Side, Side]]:
    with Connection(kafka.bootstrap) as one, Connection(embedded.bootstrap) as other:
        yield Side(one, node_of(kafka.bootstrap)), Side(other, node_of(embedded.bootstrap))


@pytest.mark.parametrize(
    ("kind", "name", "operations"),
    [
        (BROKER, NODE, [("max.connections", SET, "500")]),
        (BROKER, "", [("max.connections", SET, "500")]),
        (BROKER, NODE, []),
        (BROKER, "77", [("max.connections", SET, "500")]),
        (BROKER, "x", [("max.connections", SET, "500")]),
        (BROKER, NODE, [("num.partitions", SET, "1"), ("max.connections", SET, "7000")]),
        (BROKER, NODE, [("num.partitions", DELETE, None)]),
        (BROKER, NODE, [("max.connections", SET, None)]),
        (BROKER, NODE, [("max.connections", SET, "1"), ("max.connections", SET, "2")]),
        (BROKER, NODE, [("log.cleanup.policy", APPEND, "compact")]),
        (BROKER, NODE, [("log.cleanup.policy", SUBTRACT, "compact")]),
        (BROKER, NODE, [("leader.replication.throttled.rate", SET, "5")]),
        (BROKER, "", [("cordoned.log.dirs", SET, "/d")]),
        (LOGGER, NODE, [("root", SET, "INFO")]),
        (LOGGER, "77", [("root", SET, "INFO")]),
        (LOGGER, "", [("root", SET, "INFO")]),
        (LOGGER, "x", [("root", SET, "INFO")]),
        (LOGGER, NODE, [("root", SET, "LOUD")]),
        (LOGGER, NODE, [("root", SET, "OFF")]),
        (LOGGER, NODE, [("root", SET, "info")]),
        (LOGGER, NODE, [("root", DELETE, None)]),
        (LOGGER, NODE, [("no.such", SET, "INFO")]),
        (LOGGER, NODE, [("no.such", DELETE, None)]),
        (LOGGER, NODE, [("root", APPEND, "INFO")]),
        (LOGGER, NODE, [("root", SUBTRACT, "INFO")]),
        (LOGGER, NODE, [("root", SET, None)]),
        (LOGGER, NODE, [("root", SET, "INFO"), ("root", SET, "WARN")]),
        (METRICS, "", [("interval.ms", SET, "1000")]),
        (METRICS, "s", [("interval.ms", SET, "99")]),
        (METRICS, "s", [("interval.ms", SET, "3600001")]),
        (METRICS, "s", [("interval.ms", DELETE, None)]),
        (METRICS, "s", [("metric", SET, "x")]),
        (METRICS, "s", [("metrics", SET, "*")]),
        (METRICS, "s", [("metrics", SET, "a.,a.")]),
        (METRICS, "s", [("metrics", SET, "a.,,b.")]),
        (METRICS, "s", [("metrics", SET, "")]),
        (METRICS, "s", [("metrics", APPEND, "a.")]),
        (METRICS, "s", [("match", SET, "")]),
        (METRICS, "s", [("match", SET, "x")]),
        (METRICS, "s", [("match", SET, "client_id")]),
        (METRICS, "s", [("match", SET, "client_id=")]),
        (METRICS, "s", [("match", SET, "client_id=[")]),
        (METRICS, "s", [("match", SET, "client_id=a=b")]),
        (METRICS, "s", [("match", SET, "client_id=a,")]),
        (METRICS, "s", [("match", SET, "client_id=a,client_id=b")]),
        (METRICS, "s", [("match", SET, " client_id = a , client_source_port=1.*")]),
        (GROUP, "", [("consumer.session.timeout.ms", SET, "50000")]),
        (99, "", [("a", SET, "b")]),
    ],
)
def test_what_is_altered_is_answered_alike(
    sides: tuple[Side, Side], kind: int, name: str, operations: list[Operation]
) -> None:
    kafka, agent = sides
    assert agent.alter(kind, name, *operations) == kafka.alter(kind, name, *operations)


@pytest.mark.parametrize(
    ("kind", "name", "operation"),
    [
        (BROKER, NODE, ("log.retention.ms", SET, "abc")),
        (BROKER, NODE, ("log.retention.ms", SET, "0")),
        (BROKER, NODE, ("message.max.bytes", SET, "-5")),
        (BROKER, NODE, ("compression.type", SET, "rar")),
        (BROKER, NODE, ("producer.id.expiration.ms", SET, "0")),
        (BROKER, NODE, ("max.connections.per.ip", SET, "0")),
        (BROKER, NODE, ("max.connections.per.ip.overrides", SET, "127.0.0.1:x")),
        (BROKER, NODE, ("max.connections", APPEND, "5")),
        (BROKER, NODE, ("max.connections", 9, "5")),
        (BROKER, "", ("ssl.keystore.location", SET, "/k")),
        (BROKER, NODE, ("ssl.keystore.location", SET, "/k")),
        (METRICS, "s", ("interval.ms", SET, "x")),
    ],
)
def test_what_is_refused_in_other_words_is_refused_with_the_same_code(
    sides: tuple[Side, Side], kind: int, name: str, operation: Operation
) -> None:
    kafka, agent = sides
    code, _ = kafka.alter(kind, name, operation)
    assert code != 0
    assert agent.alter(kind, name, operation)[0] == code


@pytest.mark.parametrize(
    ("kind", "name", "config", "value"),
    [
        (BROKER, NODE, "max.connections", "500"),
        (BROKER, "77", "max.connections", "500"),
        (BROKER, NODE, "num.partitions", "5"),
        (LOGGER, NODE, "root", "INFO"),
        (METRICS, "s", "interval.ms", "99"),
    ],
)
def test_what_the_older_api_is_asked_is_answered_alike(
    sides: tuple[Side, Side], kind: int, name: str, config: str, value: str
) -> None:
    kafka, agent = sides
    told = kafka.replace(kind, name, config, value)
    assert agent.replace(kind, name, config, value) == told


@pytest.mark.parametrize("name", ["", "77", "x", NODE])
@pytest.mark.parametrize("kind", [BROKER, LOGGER, METRICS])
def test_what_is_described_is_answered_alike(
    sides: tuple[Side, Side], kind: int, name: str
) -> None:
    kafka, agent = sides
    assert agent.describe(kind, name) == kafka.describe(kind, name)
