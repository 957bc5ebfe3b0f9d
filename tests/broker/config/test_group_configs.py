"""Configs of groups: what a group may have, and what holds for it in the end."""

import pytest

from broker.config.entries import Source
from broker.config.group_configs import (
    TABLE_OF_GROUPS,
    WITHOUT_EFFECT,
    check,
    check_together,
    consumer_protocol_enabled,
    describe_group,
    group_settings,
)
from broker.config.group_settings import GroupSettings
from broker.config.kafka_settings import TABLE, KafkaSettings, parse

SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"
OWNER_ONLY = "frazil.commit.owner.only"
DEFAULTS = KafkaSettings()


def told(**given: str) -> KafkaSettings:
    parsed = parse({name.replace("_", "."): value for name, value in given.items()})
    assert not parsed.mistakes
    return parsed.settings


def test_the_table_is_sorted_and_has_with_the_others_all_that_kafka_4_3_has() -> None:
    assert list(TABLE_OF_GROUPS) == sorted(TABLE_OF_GROUPS)
    assert len(TABLE_OF_GROUPS) - 1 + len(WITHOUT_EFFECT) == 17  # Those of its ConfigDef.


def test_every_synonym_is_a_setting_of_the_broker_with_the_same_default() -> None:
    for row in TABLE_OF_GROUPS.values():
        assert all(TABLE[name].default == row.default for name in row.synonyms), row.name


def test_every_default_passes_its_own_check() -> None:
    for row in TABLE_OF_GROUPS.values():
        assert check(row.name, row.default, DEFAULTS) is None, row.name


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (SESSION, "44999", "greater than or equal to group.consumer.min.session.timeout.ms"),
        (SESSION, "60001", "less than or equal to group.consumer.max.session.timeout.ms"),
        (HEARTBEAT, "4999", "greater than or equal to group.consumer.min.heartbeat.interval.ms"),
        (HEARTBEAT, "15001", "less than or equal to group.consumer.max.heartbeat.interval.ms"),
        (SESSION, "0", "too small"),
        (SESSION, "soon", "not a whole number"),
        (OWNER_ONLY, "yes", "neither true nor false"),
        ("consumer.session.timeout", "1", 'did you mean "consumer.session.timeout.ms"'),
        ("share.session.timeout.ms", "45000", "no effect: there are no share groups"),
        ("streams.num.standby.replicas", "1", "no effect: there are no streams groups"),
        ("consumer.assignment.interval.ms", "0", "no effect: assignments are computed as soon"),
    ],
)
def test_what_a_group_may_not_have_is_refused_with_the_reason(name, value, words) -> None:
    assert words in check(name, value, DEFAULTS)


def test_what_lies_on_the_bounds_is_taken() -> None:
    for name, value in [
        (SESSION, "45000"),
        (SESSION, "60000"),
        (HEARTBEAT, "5000"),
        (HEARTBEAT, "15000"),
        (OWNER_ONLY, "TRUE"),
    ]:
        assert check(name, value, DEFAULTS) is None


def test_a_session_must_be_longer_than_the_time_between_heartbeats() -> None:
    kafka = told(group_consumer_min_session_timeout_ms="5000")
    sentence = "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms"
    assert check_together({SESSION: "9000", HEARTBEAT: "9000"}, kafka) == sentence
    assert check_together({SESSION: "9001", HEARTBEAT: "9000"}, kafka) is None
    assert check_together({SESSION: "5000"}, kafka) == sentence  # Against the agent's 5000.


def test_without_configs_the_defaults_are_those_of_kafka() -> None:
    assert group_settings(DEFAULTS, {}) == GroupSettings()


def test_the_agents_settings_hold_for_a_group_without_configs() -> None:
    kafka = told(
        group_max_size="7",
        group_min_session_timeout_ms="100",
        group_max_session_timeout_ms="200",
        group_initial_rebalance_delay_ms="0",
        group_consumer_max_size="8",
        group_consumer_session_timeout_ms="50000",
        group_consumer_heartbeat_interval_ms="6000",
        group_consumer_assignors="range",
        group_consumer_migration_policy="disabled",
        offset_metadata_max_bytes="9",
        offsets_retention_minutes="2",
    )
    assert group_settings(kafka, {}) == GroupSettings(
        max_size=7,
        min_session_timeout_ms=100,
        max_session_timeout_ms=200,
        initial_rebalance_delay_ms=0,
        consumer_max_size=8,
        consumer_session_timeout_ms=50_000,
        consumer_heartbeat_interval_ms=6_000,
        consumer_assignors=("range",),
        consumer_migration_policy="disabled",
        offset_metadata_max_bytes=9,
        offsets_retention_ms=120_000,
    )


def test_a_groups_own_configs_come_before_the_agents_settings() -> None:
    kafka = told(group_consumer_session_timeout_ms="50000")
    settings = group_settings(kafka, {SESSION: "55000", HEARTBEAT: "7000", OWNER_ONLY: "True"})
    assert settings.consumer_session_timeout_ms == 55_000
    assert settings.consumer_heartbeat_interval_ms == 7_000
    assert settings.commit_owner_only


def test_what_was_set_within_another_agents_bounds_is_brought_within_this_ones() -> None:
    settings = group_settings(DEFAULTS, {SESSION: "90000", HEARTBEAT: "1000"})
    assert settings.consumer_session_timeout_ms == 60_000
    assert settings.consumer_heartbeat_interval_ms == 5_000


def test_sources_and_synonyms_come_strongest_first() -> None:
    kafka = told(group_consumer_session_timeout_ms="50000")
    entries = {entry.name: entry for entry in describe_group({SESSION: "55000"}, kafka)}
    session = entries[SESSION]
    assert (session.value, session.source) == ("55000", Source.GROUP)
    broker_name = "group.consumer.session.timeout.ms"
    assert [tuple(synonym) for synonym in session.synonyms] == [
        (SESSION, "55000", Source.GROUP),
        (broker_name, "50000", Source.STATIC_BROKER),
        (broker_name, "45000", Source.DEFAULT),
    ]
    assert (entries[HEARTBEAT].value, entries[HEARTBEAT].source) == ("5000", Source.DEFAULT)
    assert (entries[OWNER_ONLY].value, entries[OWNER_ONLY].source) == ("false", Source.DEFAULT)
    assert Source.GROUP == 8


def test_kip_848_is_served_unless_it_is_left_out_of_the_protocols() -> None:
    assert consumer_protocol_enabled(DEFAULTS)
    assert not consumer_protocol_enabled(told(group_coordinator_rebalance_protocols="classic"))
