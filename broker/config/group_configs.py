"""Configs of groups (resource type GROUP, KIP-848): the table, checks, and what holds in the end. Pure.

A group id has only what was set on it, whether or not there is such a group; the rest follows the
agent's settings. What was set within one agent's bounds may be outside of another's: the value
that holds is the nearest within the bounds, as in Kafka 4.3.

`frazil.commit.owner.only` is ours; `broker.groups.commits` says what it does. Kafka's configs of
share and streams groups are known by name, and refused: there are no such groups here.

Left out: `consumer.assignment.interval.ms`; `broker.groups.consumer.steps` says when assignments are
computed.
"""

from collections.abc import Mapping
from typing import Final

from broker.config import values
from broker.config.changes import ConfigRules
from broker.config.config_row import ConfigRow, Kind, refusal
from broker.config.entries import ConfigEntry, Source, describe
from broker.config.group_settings import MINUTE_MS, GroupSettings
from broker.config.kafka_settings import KafkaSettings

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
COMMIT_OWNER_ONLY: Final = "frazil.commit.owner.only"


_ROWS = (
    ConfigRow(HEARTBEAT_INTERVAL, Kind.INT, "5000",
              "How often members of KIP-848 are told to send heartbeats.",
              1, synonyms=("group.consumer.heartbeat.interval.ms",)),
    ConfigRow(SESSION_TIMEOUT, Kind.INT, "45000",
              "How long a member of KIP-848 may be silent before it is taken for dead.",
              1, synonyms=("group.consumer.session.timeout.ms",)),
    ConfigRow(COMMIT_OWNER_ONLY, Kind.BOOLEAN, "false",
              "Refuse a member's commit of a partition that another member owns."),
)  # fmt: skip

TABLE_OF_GROUPS: Final[dict[str, ConfigRow]] = {row.name: row for row in _ROWS}
"""By name, sorted."""

_NO_SHARE = "there are no share groups here"
_NO_STREAMS = "there are no streams groups here"

WITHOUT_EFFECT: Final[dict[str, str]] = {
    "consumer.assignment.interval.ms": "assignments are computed as soon as they are due",
    "share.assignment.interval.ms": _NO_SHARE,
    "share.auto.offset.reset": _NO_SHARE,
    "share.delivery.count.limit": _NO_SHARE,
    "share.heartbeat.interval.ms": _NO_SHARE,
    "share.isolation.level": _NO_SHARE,
    "share.partition.max.record.locks": _NO_SHARE,
    "share.record.lock.duration.ms": _NO_SHARE,
    "share.renew.acknowledge.enable": _NO_SHARE,
    "share.session.timeout.ms": _NO_SHARE,
    "streams.assignment.interval.ms": _NO_STREAMS,
    "streams.heartbeat.interval.ms": _NO_STREAMS,
    "streams.initial.rebalance.delay.ms": _NO_STREAMS,
    "streams.num.standby.replicas": _NO_STREAMS,
    "streams.session.timeout.ms": _NO_STREAMS,
}
"""The others that Kafka 4.3 has, with the reason."""


def check(name: str, value: str, kafka: KafkaSettings) -> str | None:
    """None when a group may have this config, else the sentence for INVALID_CONFIG (40)."""
    if (reason := WITHOUT_EFFECT.get(name)) is not None:
        return f"Group config {name} has no effect: {reason}."
    row = TABLE_OF_GROUPS.get(name)
    if row is None:
        return f"Unknown group config name: {name}{values.did_you_mean(name, TABLE_OF_GROUPS)}"
    if (reason := refusal(row, value)) is not None or row.kind is not Kind.INT:
        return reason
    least, most = _bounds(name)
    if int(value) < kafka.number(least):
        return f"{name} must be greater than or equal to {least}"
    if int(value) > kafka.number(most):
        return f"{name} must be less than or equal to {most}"
    return None


def check_together(configs: Mapping[str, str], kafka: KafkaSettings) -> str | None:
    """The same for all that a group would have, each of which is right alone."""
    settings = group_settings(kafka, configs)
    if settings.consumer_session_timeout_ms <= settings.consumer_heartbeat_interval_ms:
        return f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}"
    return None


def rules(kafka: KafkaSettings) -> ConfigRules:
    """How configs of groups may be altered."""
    return ConfigRules(
        check=lambda name, value: check(name, value, kafka),
        check_together=lambda configs: check_together(configs, kafka),
        is_list=lambda _: False,
        inherited=lambda name: TABLE_OF_GROUPS[name].default_text,
    )


def group_settings(kafka: KafkaSettings, configs: Mapping[str, str]) -> GroupSettings:
    """The agent's settings and a group's own configs (checked when they were set), in one."""
    return GroupSettings(
        max_size=kafka.group_max_size,
        min_session_timeout_ms=kafka.group_min_session_timeout_ms,
        max_session_timeout_ms=kafka.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=kafka.group_initial_rebalance_delay_ms,
        consumer_max_size=kafka.group_consumer_max_size,
        consumer_session_timeout_ms=_in_force(SESSION_TIMEOUT, configs, kafka),
        consumer_heartbeat_interval_ms=_in_force(HEARTBEAT_INTERVAL, configs, kafka),
        consumer_assignors=kafka.group_consumer_assignors,
        consumer_migration_policy=kafka.group_consumer_migration_policy,
        offset_metadata_max_bytes=kafka.offset_metadata_max_bytes,
        offsets_retention_ms=kafka.offsets_retention_minutes * MINUTE_MS,
        commit_owner_only=values.boolean(configs.get(COMMIT_OWNER_ONLY, "false")),
    )


def describe_group(configs: Mapping[str, str], kafka: KafkaSettings) -> list[ConfigEntry]:
    """All configs of a group id, sorted by name, with their sources and synonyms."""
    return describe(TABLE_OF_GROUPS.values(), configs, Source.GROUP, kafka)


def consumer_protocol_enabled(kafka: KafkaSettings) -> bool:
    """Whether KIP-848 is served; else its APIs answer UNSUPPORTED_VERSION."""
    return "consumer" in kafka.group_coordinator_rebalance_protocols


def _bounds(name: str) -> tuple[str, str]:
    """The settings of the agent that bound a group's config from below and above."""
    what = name.removeprefix("consumer.")
    return f"group.consumer.min.{what}", f"group.consumer.max.{what}"


def _in_force(name: str, configs: Mapping[str, str], kafka: KafkaSettings) -> int:
    """A group's number within the agent's bounds; the agent's own when the group has none."""
    if name not in configs:
        return kafka.number(f"group.{name}")
    least, most = _bounds(name)
    return min(max(values.whole_number(configs[name]), kafka.number(least)), kafka.number(most))
