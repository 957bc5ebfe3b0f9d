"""Topic configs: Kafka 4.3's and those of tables, checks, and what holds for a topic. Pure.

A topic stores only what was set on it; everything else follows the broker's settings through
Kafka's synonyms (`max.message.bytes` of a topic is `message.max.bytes` of the broker), in the
order topic, broker, Kafka's default. All names that Kafka has are taken and told back, also
those without an effect here, since tools set them by habit.

Left out: dynamic configs of brokers as a source; an agent's settings are its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from broker.config import table_configs, values
from broker.config.changes import Rules
from broker.config.kafka_settings import TABLE, KafkaSetting, KafkaSettings, value_of
from broker.config.kafka_table import (
    CLEANUP_POLICIES,
    COMPRESSION_TYPES,
    LONG_MAX,
    TIMESTAMP_TYPES,
    Kind,
    Stance,
)
from broker.config.topic_config import TopicConfig


class Source(IntEnum):
    """Where a config's value comes from, as DescribeConfigs tells (KIP-226)."""

    DYNAMIC_TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class Synonym(NamedTuple):
    name: str
    value: str
    source: Source


class ConfigEntry(NamedTuple):
    """One config as DescribeConfigs answers it."""

    name: str
    value: str | None
    source: Source
    kind: Kind
    documentation: str
    synonyms: tuple[Synonym, ...]
    """All values there are, the effective one first."""
    read_only: bool
    sensitive: bool


_NO_SEGMENTS = "No effect: there are no segment files."
_NO_TIERS = "No effect: there are no tiers."
_NO_REPLICAS = "No effect: brokers do not copy from each other."
_ALWAYS_DURABLE = "No effect: records are durable before they are acknowledged."

_ROWS = (
    TopicConfig(
        "cleanup.policy",
        Kind.LIST,
        "delete",
        "delete drops old records, compact keeps the newest record of each key.",
        choices=CLEANUP_POLICIES,
        synonyms=("log.cleanup.policy",),
    ),
    TopicConfig(
        "compression.gzip.level",
        Kind.INT,
        "-1",
        "Level when compression.type is gzip; -1 is the library's own.",
        -1,
        9,
        synonyms=("compression.gzip.level",),
    ),
    TopicConfig(
        "compression.lz4.level",
        Kind.INT,
        "9",
        "Level when compression.type is lz4.",
        1,
        17,
        synonyms=("compression.lz4.level",),
    ),
    TopicConfig(
        "compression.type",
        Kind.STRING,
        "producer",
        "Codec of stored batches; producer keeps what the producer sent.",
        choices=COMPRESSION_TYPES,
        synonyms=("compression.type",),
    ),
    TopicConfig(
        "compression.zstd.level",
        Kind.INT,
        "3",
        "Level when compression.type is zstd.",
        -131072,
        22,
        synonyms=("compression.zstd.level",),
    ),
    TopicConfig(
        "delete.retention.ms",
        Kind.LONG,
        "86400000",
        "How long tombstones stay in a compacted topic.",
        0,
        synonyms=("log.cleaner.delete.retention.ms",),
    ),
    TopicConfig(
        "file.delete.delay.ms",
        Kind.LONG,
        "60000",
        "No effect: topics share objects, so the broker's log.segment.delete.delay.ms holds.",
        0,
        synonyms=("log.segment.delete.delay.ms",),
    ),
    TopicConfig(
        "flush.messages",
        Kind.LONG,
        str(LONG_MAX),
        _ALWAYS_DURABLE,
        1,
        synonyms=("log.flush.interval.messages",),
    ),
    TopicConfig(
        "flush.ms",
        Kind.LONG,
        str(LONG_MAX),
        _ALWAYS_DURABLE,
        0,
        synonyms=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ),
    TopicConfig("follower.replication.throttled.replicas", Kind.LIST, "", _NO_REPLICAS),
    TopicConfig(
        "index.interval.bytes",
        Kind.INT,
        "4096",
        _NO_SEGMENTS,
        0,
        synonyms=("log.index.interval.bytes",),
    ),
    TopicConfig("leader.replication.throttled.replicas", Kind.LIST, "", _NO_REPLICAS),
    TopicConfig(
        "local.retention.bytes",
        Kind.LONG,
        "-2",
        _NO_TIERS,
        -2,
        synonyms=("log.local.retention.bytes",),
    ),
    TopicConfig(
        "local.retention.ms", Kind.LONG, "-2", _NO_TIERS, -2, synonyms=("log.local.retention.ms",)
    ),
    TopicConfig(
        "max.compaction.lag.ms",
        Kind.LONG,
        str(LONG_MAX),
        "Longest time that a record of a compacted topic waits for compaction.",
        1,
        synonyms=("log.cleaner.max.compaction.lag.ms",),
    ),
    TopicConfig(
        "max.message.bytes",
        Kind.INT,
        "1048588",
        "Largest record batch that is accepted, in bytes, after compression.",
        0,
        synonyms=("message.max.bytes",),
    ),
    TopicConfig(
        "message.timestamp.after.max.ms",
        Kind.LONG,
        "3600000",
        "How far a record's timestamp may lie ahead of the agent's clock.",
        0,
        synonyms=("log.message.timestamp.after.max.ms",),
    ),
    TopicConfig(
        "message.timestamp.before.max.ms",
        Kind.LONG,
        str(LONG_MAX),
        "How far a record's timestamp may lie behind the agent's clock.",
        0,
        synonyms=("log.message.timestamp.before.max.ms",),
    ),
    TopicConfig(
        "message.timestamp.type",
        Kind.STRING,
        "CreateTime",
        "CreateTime keeps the producer's timestamp, LogAppendTime sets the agent's.",
        choices=TIMESTAMP_TYPES,
        synonyms=("log.message.timestamp.type",),
    ),
    TopicConfig(
        "min.cleanable.dirty.ratio",
        Kind.DOUBLE,
        "0.5",
        "Share of uncompacted bytes at which compaction begins.",
        0,
        1,
        synonyms=("log.cleaner.min.cleanable.ratio",),
    ),
    TopicConfig(
        "min.compaction.lag.ms",
        Kind.LONG,
        "0",
        "Shortest time that a record stays uncompacted.",
        0,
        synonyms=("log.cleaner.min.compaction.lag.ms",),
    ),
    TopicConfig(
        "min.insync.replicas",
        Kind.INT,
        "1",
        "No effect: a record is durable in object storage before it is acknowledged.",
        1,
        synonyms=("min.insync.replicas",),
    ),
    TopicConfig("preallocate", Kind.BOOLEAN, "false", _NO_SEGMENTS, synonyms=("log.preallocate",)),
    TopicConfig("remote.log.copy.disable", Kind.BOOLEAN, "false", _NO_TIERS),
    TopicConfig("remote.log.delete.on.disable", Kind.BOOLEAN, "false", _NO_TIERS),
    TopicConfig("remote.storage.enable", Kind.BOOLEAN, "false", _NO_TIERS),
    TopicConfig(
        "retention.bytes",
        Kind.LONG,
        "-1",
        "Size of a partition over which its oldest records are deleted; -1 is without limit.",
        synonyms=("log.retention.bytes",),
    ),
    TopicConfig(
        "retention.ms",
        Kind.LONG,
        "604800000",
        "How long records are kept, counted from their timestamps; -1 is for ever.",
        -1,
        synonyms=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ),
    TopicConfig(
        "segment.bytes",
        Kind.INT,
        "1073741824",
        _NO_SEGMENTS,
        1048576,
        synonyms=("log.segment.bytes",),
    ),
    TopicConfig(
        "segment.index.bytes",
        Kind.INT,
        "10485760",
        _NO_SEGMENTS,
        4,
        synonyms=("log.index.size.max.bytes",),
    ),
    TopicConfig(
        "segment.jitter.ms",
        Kind.LONG,
        "0",
        _NO_SEGMENTS,
        0,
        synonyms=("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ),
    TopicConfig(
        "segment.ms",
        Kind.LONG,
        "604800000",
        _NO_SEGMENTS,
        1,
        synonyms=("log.roll.ms", "log.roll.hours"),
    ),
    TopicConfig(
        "unclean.leader.election.enable",
        Kind.BOOLEAN,
        "false",
        "No effect: there are no leaders.",
        synonyms=("unclean.leader.election.enable",),
    ),
)

TABLE_OF_TOPICS: dict[str, TopicConfig] = {
    row.name: row for row in sorted((*_ROWS, *table_configs.TABLE_CONFIGS))
}
"""By name, sorted."""

_TO_MS = {"hours": 3_600_000, "minutes": 60_000}


VALUE_BYTES_MAX = 4096
"""No config needs more, and all of a topic's must fit into one entry of the log."""


def check(name: str, value: str | None) -> str | None:
    """None when a topic may have this config, else the sentence for INVALID_CONFIG (40)."""
    row = TABLE_OF_TOPICS.get(name)
    if row is None:
        return f"Unknown topic config name: {name}{values.did_you_mean(name, TABLE_OF_TOPICS)}"
    if value is None:
        return f"Null value not supported for topic configs: {name}"
    if len(value.encode()) > VALUE_BYTES_MAX:
        return f"Invalid value for configuration {name}: longer than {VALUE_BYTES_MAX} bytes"
    try:
        value_of(_as_setting(row), value)
        if row.kind is Kind.DOUBLE and not 0 <= float(value) <= 1:
            return f"Invalid value {value} for configuration {name}: not between 0 and 1"
        table_configs.check_value(name, value)
    except ValueError as error:
        return f"Invalid value {value} for configuration {name}: {error}"
    return None


def check_together(configs: Mapping[str, str]) -> str | None:
    """The same for all configs of a topic, each right alone."""
    return table_configs.check_together(configs)


def rules(kafka: KafkaSettings) -> Rules:
    """How configs of topics may be altered."""
    return Rules(
        check=check,
        check_together=check_together,
        is_list=lambda name: name in TABLE_OF_TOPICS and TABLE_OF_TOPICS[name].kind is Kind.LIST,
        inherited=lambda name: _synonyms(TABLE_OF_TOPICS[name], {}, kafka)[0].value,
    )


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """What holds for a topic's records, parsed once per topic. Times in ms, sizes in bytes."""

    max_message_bytes: int
    timestamp_type: str
    """`CreateTime` or `LogAppendTime`."""
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    compression_type: str
    """`producer`, or the codec that stored batches must have (`uncompressed`, `gzip`, …)."""
    compression_level: int
    """For gzip, lz4 and zstd; -1 else."""
    compacted: bool
    deleted: bool
    """Records go by age and size (cleanup.policy has delete)."""
    retention_ms: int
    """-1: without limit."""
    retention_bytes: int
    """-1: without limit."""
    delete_retention_ms: int
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    hold_ms: int
    """How much longer than retention_ms records are kept for their export; -1: it is not
    waited for."""

    @property
    def log_append_time(self) -> bool:
        return self.timestamp_type == "LogAppendTime"


def effective(configs: Mapping[str, str], kafka: KafkaSettings) -> TopicSettings:
    """The settings of a topic whose own configs are `configs` (checked when they were set)."""

    def text(name: str) -> str:
        return _synonyms(TABLE_OF_TOPICS[name], configs, kafka)[0].value

    codec = text("compression.type")
    levelled = codec in ("gzip", "lz4", "zstd")
    policies = text("cleanup.policy").replace(" ", "").split(",")
    return TopicSettings(
        max_message_bytes=int(text("max.message.bytes")),
        timestamp_type=text("message.timestamp.type"),
        timestamp_before_max_ms=int(text("message.timestamp.before.max.ms")),
        timestamp_after_max_ms=int(text("message.timestamp.after.max.ms")),
        compression_type=codec,
        compression_level=int(text(f"compression.{codec}.level")) if levelled else -1,
        compacted="compact" in policies,
        deleted="delete" in policies,
        retention_ms=max(int(text("retention.ms")), -1),
        retention_bytes=max(int(text("retention.bytes")), -1),
        delete_retention_ms=int(text("delete.retention.ms")),
        min_cleanable_dirty_ratio=float(text("min.cleanable.dirty.ratio")),
        min_compaction_lag_ms=int(text("min.compaction.lag.ms")),
        max_compaction_lag_ms=int(text("max.compaction.lag.ms")),
        hold_ms=table_configs.hold_ms(configs),
    )


def describe_topic(configs: Mapping[str, str], kafka: KafkaSettings) -> list[ConfigEntry]:
    """All configs of a topic, sorted by name, with their sources and synonyms."""
    entries = []
    for row in TABLE_OF_TOPICS.values():
        synonyms = _synonyms(row, configs, kafka)
        entries.append(
            ConfigEntry(
                name=row.name,
                value=synonyms[0].value,
                source=synonyms[0].source,
                kind=row.kind,
                documentation=row.documentation,
                synonyms=tuple(synonyms),
                read_only=False,
                sensitive=False,
            )
        )
    return entries


def describe_broker(kafka: KafkaSettings) -> list[ConfigEntry]:
    """All settings of the broker that Kafka 4.3 has, sorted by name; passwords without value.

    All are read-only: they come from this agent's file, environment or flags.
    """
    entries = []
    for row in TABLE.values():
        source = Source.STATIC_BROKER if row.name in kafka.given else Source.DEFAULT
        value = kafka.text(row.name)
        secret = row.kind is Kind.PASSWORD
        synonyms = () if value is None or secret else (Synonym(row.name, value, source),)
        stance = "Served." if row.stance is Stance.SERVED else f"{row.stance.value}: {row.reason}."
        entries.append(
            ConfigEntry(
                name=row.name,
                value=None if secret else value,
                source=source,
                kind=row.kind,
                documentation=stance[0].upper() + stance[1:],
                synonyms=synonyms,
                read_only=True,
                sensitive=secret,
            )
        )
    return entries


def _synonyms(row: TopicConfig, configs: Mapping[str, str], kafka: KafkaSettings) -> list[Synonym]:
    """Every value there is for a topic's config, the one in force first; never empty."""
    found = []
    if row.name in configs:
        found.append(Synonym(row.name, configs[row.name], Source.DYNAMIC_TOPIC))
    for name in row.synonyms:
        if name in kafka.given:
            value = _converter(name)(kafka.given[name])
            found.append(Synonym(name, value, Source.STATIC_BROKER))
    default_name = row.synonyms[0] if row.synonyms else row.name
    found.append(Synonym(default_name, row.default, Source.DEFAULT))
    return found


def _converter(broker_name: str) -> Callable[[str], str]:
    """Broker settings in hours and minutes stand in for topic configs in ms."""
    factor = _TO_MS.get(broker_name.rsplit(".", 1)[-1])
    if factor is None:
        return str
    return lambda text: str(int(text) * factor) if int(text) >= 0 else "-1"


def _as_setting(row: TopicConfig) -> KafkaSetting:
    return KafkaSetting(
        row.name, row.kind, row.default, Stance.SERVED, "", row.minimum, row.maximum, row.choices
    )
