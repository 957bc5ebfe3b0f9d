"""Kafka's broker settings: all of 4.3's are known, and every name is judged."""

from dataclasses import fields

import pytest

from broker.config.config_row import Stance, value_of
from broker.config.kafka_settings import TABLE, KafkaSettings, is_known, parse
from broker.config.listener_table import LISTENER_TABLE


def test_a_served_setting_is_the_field_of_its_name() -> None:
    served = {row.name.replace(".", "_") for row in TABLE.values() if row.stance is Stance.SERVED}
    of_listeners = {name.replace(".", "_") for name in LISTENER_TABLE}
    layers = {"given", "of_all", "of_agent"}
    assert {item.name for item in fields(KafkaSettings)} == (served - of_listeners) | layers
    assert of_listeners <= served


def test_every_default_of_the_table_is_of_its_type() -> None:
    for row in TABLE.values():
        if row.default is not None:
            value_of(row, row.default)


def test_the_table_has_all_settings_of_kafka_4_3() -> None:
    assert len(TABLE) == 360 + 5  # Those of its ConfigDef, and of the authorizer and throttles.


def test_setting_without_meaning_here_is_taken_with_a_warning() -> None:
    parsed = parse({"log.segment.bytes": "1048576", "transaction.two.phase.commit.enable": "true"})
    assert parsed.mistakes == []
    assert "means nothing here" in parsed.warnings[0]
    assert "not yet" in parsed.warnings[1]


def test_setting_that_kafka_does_not_have_is_a_mistake_with_the_nearest_name() -> None:
    parsed = parse({"auto.create.topic.enable": "true"})
    (mistake,) = parsed.mistakes
    assert mistake.startswith('Kafka has no setting named "auto.create.topic.enable"')
    assert mistake.endswith('did you mean "auto.create.topics.enable"?')


def test_value_of_another_type_is_a_mistake_also_when_it_would_have_no_effect() -> None:
    parsed = parse({"log.segment.bytes": "big", "num.partitions": "0", "compression.type": "rar"})
    assert [mistake.split(":")[0] for mistake in parsed.mistakes] == [
        "log.segment.bytes",
        "num.partitions",
        "compression.type",
    ]


def test_names_made_by_prefix_are_known() -> None:
    assert is_known("listener.name.internal.ssl.keystore.location")
    assert is_known("rsm.config.bucket")
    assert not is_known("listener.name.")
    parsed = parse({"listener.name.internal.ssl.keystore.location": "/k"})
    assert (parsed.mistakes, parsed.warnings) == ([], [])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("listener.name.internal.max.connections", "not yet"),
        ("listener.name.internal.of.somebody", "means nothing here"),
    ],
)
def test_what_a_single_listener_does_not_have_is_a_warning(name: str, reason: str) -> None:
    (warning,) = parse({name: "5"}).warnings
    assert reason in warning


def test_a_secret_is_not_repeated_in_what_is_said_of_it() -> None:
    parsed = parse({"ssl.keystore.password": "hush", "listener.name.a.ssl.key.password": "hush"})
    assert "hush" not in repr(parsed)


def test_text_is_what_was_given_else_the_default() -> None:
    settings = parse({"log.retention.ms": "5"}).settings
    assert settings.text("log.retention.ms") == "5"
    assert settings.text("log.retention.hours") == "168"
    assert settings.text("log.flush.interval.ms") is None


@pytest.mark.parametrize("unit", ["ms", "minutes", "hours"])
def test_records_are_kept_for_some_time_or_for_ever(unit: str) -> None:
    assert parse({f"log.retention.{unit}": "0"}).mistakes == [
        f"log.retention.{unit} must be unlimited (-1) or, equal or greater than 1"
    ]
    assert parse({f"log.retention.{unit}": "-1"}).mistakes == []


CONSUMER = "group.consumer."


def at_least(larger: str, smaller: str) -> str:
    return f"{CONSUMER}{larger} must be greater than or equal to {CONSUMER}{smaller}"


@pytest.mark.parametrize(
    ("given", "mistake"),
    [
        (
            {"group.consumer.heartbeat.interval.ms": "4999"},
            at_least("heartbeat.interval.ms", "min.heartbeat.interval.ms"),
        ),
        (
            {"group.consumer.session.timeout.ms": "60001"},
            at_least("max.session.timeout.ms", "session.timeout.ms"),
        ),
        (
            {
                "group.consumer.max.heartbeat.interval.ms": "45000",
                "group.consumer.heartbeat.interval.ms": "45000",
            },
            f"{CONSUMER}heartbeat.interval.ms must be less than {CONSUMER}session.timeout.ms",
        ),
        (
            {"group.coordinator.rebalance.protocols": "consumer"},
            "group.coordinator.rebalance.protocols: classic cannot be disabled",
        ),
        (
            {"group.consumer.assignors": "range,range"},
            'group.consumer.assignors: "range,range" is empty or names one twice',
        ),
        (
            {"group.consumer.assignors": " "},
            'group.consumer.assignors: " " is empty or names one twice',
        ),
    ],
)
def test_settings_of_groups_that_contradict_each_other_are_a_mistake(given, mistake) -> None:
    assert parse(given).mistakes == [mistake]


def test_a_least_value_over_the_largest_is_a_mistake_for_each_that_it_contradicts() -> None:
    parsed = parse({"group.consumer.min.session.timeout.ms": "70000"})
    assert parsed.mistakes == [
        at_least("max.session.timeout.ms", "min.session.timeout.ms"),
        at_least("session.timeout.ms", "min.session.timeout.ms"),
    ]


def test_the_migration_policy_may_be_written_in_any_case() -> None:
    parsed = parse({"group.consumer.migration.policy": "UpGrade"})
    assert (parsed.mistakes, parsed.settings.group_consumer_migration_policy) == ([], "upgrade")
    assert parse({"group.consumer.migration.policy": "sideways"}).mistakes


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("group.consumer.regex.refresh.interval.ms", "whenever topics change"),
        ("group.consumer.assignment.interval.ms", "as soon as it is due"),
        ("group.coordinator.threads", "Kafka's own process"),
    ],
)
def test_settings_of_groups_that_are_not_needed_say_so(name, reason) -> None:
    parsed = parse({name: "10000"})
    (warning,) = parsed.warnings
    assert "means nothing here" in warning
    assert reason in warning


def test_connections_of_an_address_are_read_in_its_usual_spelling() -> None:
    text = "10.0.0.1:5, [::1]:7,2001:DB8::0:2:0"
    told = parse({"max.connections.per.ip.overrides": text}).settings
    assert told.connections_per_ip_overrides() == {"10.0.0.1": 5, "::1": 7, "2001:db8::2": 0}


@pytest.mark.parametrize("text", ["localhost:5", "10.0.0.1", "10.0.0.1:x", "10.0.0.1:-1", ":5"])
def test_what_is_no_address_and_number_is_a_mistake(text: str) -> None:
    (mistake,) = parse({"max.connections.per.ip.overrides": text}).mistakes
    assert mistake.startswith("max.connections.per.ip.overrides: ")


def test_no_connections_at_all_of_any_address_is_a_mistake() -> None:
    none = {"max.connections.per.ip": "0"}
    (mistake,) = parse(none).mistakes
    assert "only if max.connections.per.ip.overrides is set" in mistake
    assert not parse(none | {"max.connections.per.ip.overrides": "10.0.0.1:5"}).mistakes


def test_a_rate_of_no_connections_is_a_mistake() -> None:
    assert parse({"max.connection.creation.rate": "0"}).mistakes
    assert parse({"max.connection.creation.rate": "1"}).settings.max_connection_creation_rate == 1


STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def test_the_authorizer_is_kafkas_or_none() -> None:
    assert parse({"authorizer.class.name": STANDARD}).mistakes == []
    assert parse({"authorizer.class.name": ""}).mistakes == []
    # The one over ZooKeeper went with Kafka 4.0.
    old = parse({"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"})
    assert "authorizer.class.name" in old.mistakes[0]


def test_super_users_are_principals_separated_by_semicolons() -> None:
    settings = parse({"super.users": "User:a;User:CN=b,O=c; "}).settings
    assert settings.super_user_principals() == {"User:a", "User:CN=b,O=c"}
    (mistake,) = parse({"super.users": "User:a;alice"}).mistakes
    assert mistake == 'super.users: "alice" is not a principal (example: User:admin)'
