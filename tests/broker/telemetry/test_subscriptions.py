"""What is asked of a client, by the subscriptions in the log."""

import pytest

from broker.config.client_metrics_configs import parse_subscription
from broker.telemetry import subscriptions as module
from broker.telemetry.subscriptions import (
    NOTHING,
    Asked,
    Client,
    Subscriptions,
    id_text,
    matches,
    subscription_id,
    united,
)
from coordinator.commands.config_commands import ChangeConfigs, ConfigKind
from coordinator.tables.administration.dynamic_configs import DynamicConfigs
from protocol.slices import advance, finish
from protocol.types import Position

CLIENT = Client(
    "AAAAAAAAAAAAAAAAAAAAAA", "payments-1", "apache-kafka-java", "4.3.1", "10.0.0.7", "5000"
)


class Log:
    """Configs as the machine has them."""

    def __init__(self) -> None:
        self.configs = DynamicConfigs()
        self._position = 0

    def set(self, name, **configs):
        self._position += 1
        pairs = tuple(sorted((key.replace("_", "."), value) for key, value in configs.items()))
        self.configs.apply(
            ChangeConfigs(ConfigKind.CLIENT_METRICS, name, pairs), Position(self._position)
        )


def subscription(**configs):
    return parse_subscription({key.replace("_", "."): text for key, text in configs.items()})


def test_without_subscriptions_nothing_is_asked():
    assert finish(Subscriptions(DynamicConfigs()).asked_of(CLIENT)) == NOTHING == Asked((), 300_000)


@pytest.mark.parametrize(
    ("match", "is_matched"),
    [
        ({}, True),
        ({"match": "client_id=payments-.*"}, True),
        ({"match": "client_id=payments"}, False),
        ({"match": "client_software_name=apache-.*,client_software_version=4\\..*"}, True),
        ({"match": "client_software_name=apache-.*,client_software_version=3\\..*"}, False),
        ({"match": "client_source_address=10\\.0\\.0\\..,client_source_port=5000"}, True),
        ({"match": "client_instance_id=A+"}, True),
    ],
)
def test_every_pattern_has_to_be_of_the_whole(match, is_matched):
    assert matches(subscription(metrics="a", **match), CLIENT) is is_matched


def test_a_pattern_is_of_no_client_id_that_is_not_there():
    assert not matches(subscription(match="client_id=.*"), CLIENT._replace(client_id=None))


def test_what_is_asked_is_all_metrics_of_any_as_often_as_any_wants():
    some = [
        subscription(metrics="b.,a.", interval_ms="5000"),
        subscription(metrics="b.,c.", interval_ms="1000"),
        subscription(interval_ms="2000"),
    ]
    assert united(some) == Asked(("a.", "b.", "c."), 1000)
    assert united([*some, subscription(metrics="*")]) == Asked(("*",), 1000)
    assert united([subscription(metrics="a", interval_ms="3600000")]) == Asked(("a",), 300_000)


def test_the_id_of_a_subscription_is_what_kafka_makes_of_it():
    # In Java: (int) Crc32C.compute("[*]300000") ^ new Uuid(0x8000000100000002L, 0x300000004L).hashCode()
    instance_id = bytes.fromhex("80000001000000020000000300000004")
    asked = Asked(("*",), 300_000)
    assert subscription_id(asked, instance_id) == -1135276249
    assert subscription_id(asked, bytes(16)) != subscription_id(Asked(("*",), 1000), bytes(16))
    assert subscription_id(asked, bytes(16)) != subscription_id(Asked(("a",), 300_000), bytes(16))


def test_an_id_is_written_as_kafka_writes_it():
    assert id_text(bytes(16)) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert id_text(b"\xff" * 16) == "_____________________w"


def test_a_change_counts_from_the_next_question_on():
    log = Log()
    asks = Subscriptions(log.configs)
    before = asks.version
    log.set("one", metrics="a", match="client_id=payments.*")
    log.set("two", metrics="b", match="client_id=other")
    assert asks.version > before
    assert finish(asks.asked_of(CLIENT)).metrics == ("a",)
    log.set("two", match="client_id=pay.*", interval_ms="500")
    assert finish(asks.asked_of(CLIENT)) == Asked(("a", "b"), 500)
    log.set("one", metrics=None, match=None)
    assert finish(asks.asked_of(CLIENT)) == Asked(("b",), 500)


def test_a_subscription_of_a_release_to_come_asks_for_nothing():
    log = Log()
    log.set("new", metrics="a", temperature="warm")
    log.set("old", metrics="b")
    assert finish(Subscriptions(log.configs).asked_of(CLIENT)).metrics == ("b",)


def test_subscriptions_are_parsed_once(monkeypatch):
    parsed = []

    def counted(configs):
        parsed.append(configs)
        return parse_subscription(configs)

    monkeypatch.setattr(module, "parse_subscription", counted)
    log = Log()
    log.set("one", metrics="a")
    log.set("two", metrics="b")
    asks = Subscriptions(log.configs)
    for _ in range(3):
        finish(asks.asked_of(CLIENT))
    assert len(parsed) == 2
    log.set("two", metrics="c")
    finish(asks.asked_of(CLIENT))
    assert len(parsed) == 3


def test_many_subscriptions_are_looked_at_in_slices():
    log = Log()
    for number in range(600):
        log.set(f"s{number}", metrics=f"m{number}", match="client_id=payments-.*")
    work = Subscriptions(log.configs).asked_of(CLIENT)
    slices = 0
    while (ended := advance(work)) is None:
        slices += 1
    assert len(ended.result.metrics) == 600
    assert slices >= 2
