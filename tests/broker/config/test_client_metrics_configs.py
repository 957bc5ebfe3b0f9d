"""Subscriptions to clients' metrics (KIP-714), judged as Kafka judges them."""

import pytest

from broker.config.client_metrics_configs import parse_subscription
from protocol.errors import ErrorCode, KafkaError


def test_a_subscription_says_what_how_often_and_of_whom():
    found = parse_subscription(
        {
            "metrics": "org.apache.kafka.producer., org.apache.kafka.consumer.",
            "interval.ms": "1000",
            "match": "client_id=payments-.*,client_software_name=apache-kafka-java",
        }
    )
    assert found.metrics == ("org.apache.kafka.producer.", "org.apache.kafka.consumer.")
    assert found.interval_ms == 1000
    assert sorted(found.match) == ["client_id", "client_software_name"]
    assert found.match["client_id"].fullmatch("payments-7")
    assert not found.match["client_id"].fullmatch("x-payments-7")


def test_what_is_not_set_has_kafkas_defaults():
    found = parse_subscription({})
    assert (found.metrics, found.interval_ms, found.match) == ((), 300_000, {})


@pytest.mark.parametrize(
    ("configs", "code", "message"),
    [
        (
            {"metric": "*"},
            ErrorCode.INVALID_REQUEST,
            "Unknown client metrics configuration: metric",
        ),
        (
            {"interval.ms": "99"},
            ErrorCode.INVALID_REQUEST,
            "Invalid value 99 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        (
            {"interval.ms": "3600001"},
            ErrorCode.INVALID_REQUEST,
            (
                "Invalid value 3600001 for interval.ms,"
                " interval must be between 100 and 3600000 (1 hour)"
            ),
        ),
        (
            {"match": "client_id=[a"},
            ErrorCode.INVALID_CONFIG,
            "Illegal client matching pattern: client_id=[a",
        ),
        (
            {"match": "client_id=a,colour=red"},
            ErrorCode.INVALID_CONFIG,
            "Illegal client matching pattern: colour=red",
        ),
        (
            {"match": "client_id=a,"},
            ErrorCode.INVALID_CONFIG,
            "Configuration 'match' values must not be empty.",
        ),
        (
            {"metrics": "a.,,b."},
            ErrorCode.INVALID_CONFIG,
            "Configuration 'metrics' values must not be empty.",
        ),
        (
            {"match": "client_id"},
            ErrorCode.INVALID_CONFIG,
            "Illegal client matching pattern: client_id",
        ),
    ],
)
def test_what_is_no_subscription_is_refused_in_kafkas_words(configs, code, message):
    with pytest.raises(KafkaError) as refused:
        parse_subscription(configs)
    assert (refused.value.code, refused.value.message) == (code, message)


def test_a_pattern_whose_program_is_very_large_is_refused():
    """Kafka has no bound; here a client's name must be matched soon, whatever the pattern."""
    with pytest.raises(KafkaError, match="Illegal client matching pattern"):
        parse_subscription({"match": "client_id=(((((a*){9}){9}){9}){9}){9}"})
