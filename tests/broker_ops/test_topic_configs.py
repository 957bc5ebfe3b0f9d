"""Topic configs: values that a topic may have, and what holds for it in the end."""

import pytest

from broker.kafka_settings import TABLE, KafkaSettings, parse
from broker.topic_configs import (
    TABLE_OF_TOPICS,
    ConfigEntry,
    Source,
    check,
    describe_broker,
    describe_topic,
    effective,
)


def entry(name: str, configs: dict[str, str], **given: str) -> ConfigEntry:
    kafka = parse({key.replace("_", "."): value for key, value in given.items()}).settings
    return next(item for item in describe_topic(configs, kafka) if item.name == name)


def test_every_default_passes_its_own_check() -> None:
    for row in TABLE_OF_TOPICS.values():
        assert check(row.name, row.default) is None, row.name


def test_every_synonym_is_a_setting_of_the_broker() -> None:
    for row in TABLE_OF_TOPICS.values():
        assert all(name in TABLE for name in row.synonyms), row.name


def test_the_table_is_sorted_and_has_all_public_configs_of_kafka_4_3() -> None:
    assert list(TABLE_OF_TOPICS) == sorted(TABLE_OF_TOPICS)
    assert len(TABLE_OF_TOPICS) == 33


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max.message.bytes", "-1"),
        ("max.message.bytes", "1e6"),
        ("max.message.bytes", None),
        ("cleanup.policy", "compact,shred"),
        ("compression.type", "none"),
        ("message.timestamp.type", "createtime"),
        ("retention.ms", "-2"),
        ("preallocate", "yes"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("retention.msec", "1"),
    ],
)
def test_check_refuses(name: str, value: str | None) -> None:
    assert check(name, value) is not None


@pytest.mark.parametrize(
    ("name", "value"),
    [("cleanup.policy", "compact,delete"), ("retention.ms", "-1"), ("compression.type", "zstd")],
)
def test_check_accepts(name: str, value: str) -> None:
    assert check(name, value) is None


def test_defaults_hold_for_a_topic_without_configs() -> None:
    settings = effective({}, KafkaSettings())
    assert settings.max_message_bytes == 1_048_588
    assert settings.timestamp_after_max_ms == 3_600_000
    assert settings.compression_type == "producer"
    assert not settings.compacted
    assert not settings.log_append_time


def test_broker_setting_stands_in_for_a_topic_config_that_is_not_set() -> None:
    kafka = parse({"message.max.bytes": "100", "log.cleanup.policy": "compact,delete"}).settings
    assert effective({}, kafka).max_message_bytes == 100
    assert effective({}, kafka).compacted
    assert effective({"max.message.bytes": "7"}, kafka).max_message_bytes == 7


def test_retention_follows_the_brokers_settings_in_the_units_they_have() -> None:
    assert effective({}, KafkaSettings()).retention_ms == 604_800_000
    kafka = parse({"log.retention.hours": "2", "log.retention.bytes": "9"}).settings
    assert effective({}, kafka).retention_ms == 7_200_000
    assert effective({}, kafka).retention_bytes == 9
    kafka = parse({"log.retention.hours": "2", "log.retention.ms": "-1"}).settings
    assert effective({}, kafka).retention_ms == -1
    assert effective({"retention.ms": "5"}, kafka).retention_ms == 5


@pytest.mark.parametrize(
    ("policy", "deleted", "compacted"),
    [("delete", True, False), ("compact", False, True), ("compact, delete", True, True)],
)
def test_the_cleanup_policy_says_what_happens_to_records(policy, deleted, compacted) -> None:
    settings = effective({"cleanup.policy": policy}, KafkaSettings())
    assert (settings.deleted, settings.compacted) == (deleted, compacted)


def test_level_is_that_of_the_codec() -> None:
    configs = {"compression.type": "zstd", "compression.zstd.level": "9"}
    assert effective(configs, KafkaSettings()).compression_level == 9


def test_sources_and_synonyms_come_strongest_first() -> None:
    item = entry("retention.ms", {"retention.ms": "9"}, log_retention_hours="2")
    assert (item.value, item.source) == ("9", Source.DYNAMIC_TOPIC)
    assert [(synonym.value, synonym.source) for synonym in item.synonyms] == [
        ("9", Source.DYNAMIC_TOPIC),
        ("7200000", Source.STATIC_BROKER),
        ("604800000", Source.DEFAULT),
    ]


def test_broker_is_described_without_its_passwords() -> None:
    kafka = parse({"ssl.key.password": "hush", "num.partitions": "4"}).settings
    entries = {item.name: item for item in describe_broker(kafka)}
    assert len(entries) == len(TABLE)
    assert entries["ssl.key.password"].value is None
    assert entries["ssl.key.password"].sensitive
    assert (entries["num.partitions"].value, entries["num.partitions"].source) == ("4", 4)
    assert "hush" not in repr(entries)


def test_a_value_that_would_fill_an_entry_of_the_log_is_refused() -> None:
    refusal = check("leader.replication.throttled.replicas", "0:1," * 2000)
    assert refusal is not None
    assert "longer than" in refusal
