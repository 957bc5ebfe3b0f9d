"""Kafka's own test of whether a cluster serves its clients, as its system tests run it."""

import pytest

from tests.clients.kafka_tools import CLIENT_COMPATIBILITY, KafkaTools
from tests.parts.servers import FrazilDev

pytestmark = pytest.mark.integration


def test_kafkas_test_of_compatibility_finds_everything_that_newest_clients_use(
    tools: KafkaTools, embedded: FrazilDev
) -> None:
    expected = {
        "topic": "compatible",
        "offsets-for-times-supported": "true",
        "cluster-id-supported": "true",
        "expect-record-too-large-exception": "false",
        "num-cluster-nodes": "1",
        "create-topics-supported": "true",
        "describe-acls-supported": "true",
        "describe-configs-supported": "true",
        "idempotent-producer-supported": "true",
    }
    words = [word for name, value in expected.items() for word in (f"--{name}", value)]
    code, printed = tools.end_of(
        CLIENT_COMPATIBILITY, "--bootstrap-server", embedded.bootstrap, *words
    )
    assert "SUCCESS" in printed, printed
    assert code == 0, printed
