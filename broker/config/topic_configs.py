"""Topic configs: Kafka 4.3's and those of tables, checks, and what holds for a topic. Pure.

A topic has only what was set on it; the rest follows the broker's settings (`broker.config.entries`).
All names that Kafka has are taken and told back, also those without an effect here, since tools
set them by habit.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from broker.config import table_configs, values
from broker.config.changes import ConfigRules
from broker.config.config_row import LONG_MAX, ConfigRow, Kind, refusal
from broker.config.entries import ConfigEntry, Source, Synonym, describe, synonyms_of
from broker.config.kafka_settings import (
    CLEANUP_POLICIES,
    COMPRESSION_TYPES,
    TIMESTAMP_TYPES,
    KafkaSettings,
)
from protocol.compression import DECOMPRESSED_BYTES_MAX, inflated_max

_NO_SEGMENTS = "No effect: there are no segment files."
_NO_TIERS = "No effect: there are no tiers."
_NO_REPLICAS = "No effect: brokers do not copy from each other."
_ALWAYS_DURABLE = "No effect: records are durable before they are acknowledged."

OWN_PREFIX = "frazil."
"""Of configs that Kafka does not have: tables, and what is done beyond what Kafka does."""
RECORDS_VALIDATE = f"{OWN_PREFIX}records.validate"
SCHEMA_VALIDATE = f"{OWN_PREFIX}schema.validate"
DECODED_BYTES_MAX = 16 << 20
"""Of a batch, decompressed, whose values are to decode by their schemas: it is held for longer than others."""


_REPLICA = re.compile("[0-9]+:[0-9]+")


def _gzip_level(text: str) -> None:
    """Kafka has no 0, which compresses nothing."""
    if int(text) == 0:
        raise ValueError("Value must be between 1 and 9 or equal to -1")


def _throttled_replicas(text: str) -> None:
    """Nothing is throttled here, but who lists replicas should learn of a slip."""
    items = [item.strip() for item in text.split(",") if item.strip()]
    if items != ["*"] and not all(_REPLICA.fullmatch(item) for item in items):
        raise ValueError(
            "must be the literal '*' or a list of replicas in the following format:"
            " [partitionId]:[brokerId],[partitionId]:[brokerId],..."
        )


_ROWS = (
    ConfigRow("cleanup.policy", Kind.LIST, "delete",
              "delete drops old records, compact keeps the newest record of each key.",
              choices=CLEANUP_POLICIES, synonyms=("log.cleanup.policy",)),
    ConfigRow("compression.gzip.level", Kind.INT, "-1",
              "Level when compression.type is gzip; -1 is the library's own.",
              -1, 9, synonyms=("compression.gzip.level",), check=_gzip_level),
    ConfigRow("compression.lz4.level", Kind.INT, "9",
              "Level when compression.type is lz4.", 1, 17, synonyms=("compression.lz4.level",)),
    ConfigRow("compression.type", Kind.STRING, "producer",
              "Codec of stored batches; producer keeps what the producer sent.",
              choices=COMPRESSION_TYPES, synonyms=("compression.type",)),
    ConfigRow("compression.zstd.level", Kind.INT, "3",
              "Level when compression.type is zstd.",
              -131072, 22, synonyms=("compression.zstd.level",)),
    ConfigRow("delete.retention.ms", Kind.LONG, "86400000",
              "How long tombstones stay in a compacted topic.",
              0, synonyms=("log.cleaner.delete.retention.ms",)),
    ConfigRow("file.delete.delay.ms", Kind.LONG, "60000",
              "No effect: topics share objects, so the broker's log.segment.delete.delay.ms"
              " holds.", 0, synonyms=("log.segment.delete.delay.ms",)),
    ConfigRow("flush.messages", Kind.LONG, str(LONG_MAX),
              _ALWAYS_DURABLE, 1, synonyms=("log.flush.interval.messages",)),
    ConfigRow("flush.ms", Kind.LONG, str(LONG_MAX),
              _ALWAYS_DURABLE,
              0, synonyms=("log.flush.interval.ms", "log.flush.scheduler.interval.ms")),
    ConfigRow("follower.replication.throttled.replicas", Kind.LIST, "", _NO_REPLICAS,
              check=_throttled_replicas),
    ConfigRow(RECORDS_VALIDATE, Kind.STRING, "header",
              "header: a batch's header and checksum are checked before it is acknowledged;"
              " full: every record, too.",
              choices=("header", "full")),
    ConfigRow(SCHEMA_VALIDATE, Kind.STRING, "off",
              "off: bytes are bytes; id: each value begins with the id of a schema that the"
              " embedded registry has, and each key, too, where frazil.iceberg.key.mode reads keys"
              " by schemas, else it is refused; full: they decode by these schemas, too.",
              choices=("off", "id", "full")),
    ConfigRow("index.interval.bytes", Kind.INT, "4096",
              _NO_SEGMENTS, 0, synonyms=("log.index.interval.bytes",)),
    ConfigRow("leader.replication.throttled.replicas", Kind.LIST, "", _NO_REPLICAS,
              check=_throttled_replicas),
    ConfigRow("local.retention.bytes", Kind.LONG, "-2",
              _NO_TIERS, -2, synonyms=("log.local.retention.bytes",)),
    ConfigRow("local.retention.ms", Kind.LONG, "-2",
              _NO_TIERS, -2, synonyms=("log.local.retention.ms",)),
    ConfigRow("max.compaction.lag.ms", Kind.LONG, str(LONG_MAX),
              "Longest time that a record of a compacted topic waits for compaction.",
              1, synonyms=("log.cleaner.max.compaction.lag.ms",)),
    ConfigRow("max.message.bytes", Kind.INT, "1048588",
              "Largest record batch that is accepted, in bytes, after compression.",
              0, synonyms=("message.max.bytes",)),
    ConfigRow("message.timestamp.after.max.ms", Kind.LONG, "3600000",
              "How far a record's timestamp may lie ahead of the agent's clock.",
              0, synonyms=("log.message.timestamp.after.max.ms",)),
    ConfigRow("message.timestamp.before.max.ms", Kind.LONG, str(LONG_MAX),
              "How far a record's timestamp may lie behind the agent's clock.",
              0, synonyms=("log.message.timestamp.before.max.ms",)),
    ConfigRow("message.timestamp.type", Kind.STRING, "CreateTime",
              "CreateTime keeps the producer's timestamp, LogAppendTime sets the agent's.",
              choices=TIMESTAMP_TYPES, synonyms=("log.message.timestamp.type",)),
    ConfigRow("min.cleanable.dirty.ratio", Kind.DOUBLE, "0.5",
              "Share of uncompacted bytes at which compaction begins.",
              0, 1, synonyms=("log.cleaner.min.cleanable.ratio",)),
    ConfigRow("min.compaction.lag.ms", Kind.LONG, "0",
              "Shortest time that a record stays uncompacted.",
              0, synonyms=("log.cleaner.min.compaction.lag.ms",)),
    ConfigRow("min.insync.replicas", Kind.INT, "1",
              "No effect: a record is durable in object storage before it is acknowledged.",
              1, synonyms=("min.insync.replicas",)),
    ConfigRow("preallocate", Kind.BOOLEAN, "false", _NO_SEGMENTS, synonyms=("log.preallocate",)),
    ConfigRow("remote.log.copy.disable", Kind.BOOLEAN, "false", _NO_TIERS),
    ConfigRow("remote.log.delete.on.disable", Kind.BOOLEAN, "false", _NO_TIERS),
    ConfigRow("remote.storage.enable", Kind.BOOLEAN, "false", _NO_TIERS),
    ConfigRow("retention.bytes", Kind.LONG, "-1",
              "Size of a partition over which its oldest records are deleted; -1 is without"
              " limit.", synonyms=("log.retention.bytes",)),
    ConfigRow("retention.ms", Kind.LONG, "604800000",
              "How long records are kept, counted from their timestamps; -1 is for ever.",
              -1, synonyms=("log.retention.ms", "log.retention.minutes", "log.retention.hours")),
    ConfigRow("segment.bytes", Kind.INT, "1073741824",
              _NO_SEGMENTS, 1048576, synonyms=("log.segment.bytes",)),
    ConfigRow("segment.index.bytes", Kind.INT, "10485760",
              _NO_SEGMENTS, 4, synonyms=("log.index.size.max.bytes",)),
    ConfigRow("segment.jitter.ms", Kind.LONG, "0",
              _NO_SEGMENTS, 0, synonyms=("log.roll.jitter.ms", "log.roll.jitter.hours")),
    ConfigRow("segment.ms", Kind.LONG, "604800000",
              _NO_SEGMENTS, 1, synonyms=("log.roll.ms", "log.roll.hours")),
    ConfigRow("unclean.leader.election.enable", Kind.BOOLEAN, "false",
              "No effect: there are no leaders.", synonyms=("unclean.leader.election.enable",)),
)  # fmt: skip

TABLE_OF_TOPICS: dict[str, ConfigRow] = {
    row.name: row
    for row in sorted((*_ROWS, *table_configs.TABLE_CONFIGS), key=lambda row: row.name)
}
"""By name, sorted."""


def check(name: str, value: str | None) -> str | None:
    """None when a topic may have this config, else the sentence for INVALID_CONFIG (40)."""
    row = TABLE_OF_TOPICS.get(name)
    if row is None:
        return f"Unknown topic config name: {name}{values.did_you_mean(name, TABLE_OF_TOPICS)}"
    if value is None:
        return f"Null value not supported for topic configs: {name}"
    if len(value.encode()) > row.bytes_max:
        return f"Invalid value for configuration {name}: longer than {row.bytes_max} bytes"
    return refusal(row, value)


def check_together(configs: Mapping[str, str]) -> str | None:
    """The same for all configs of a topic, each right alone."""
    least, most = "min.compaction.lag.ms", "max.compaction.lag.ms"
    if least in configs and most in configs and int(configs[least]) > int(configs[most]):
        return (
            f"conflict topic config setting {least} ({int(configs[least])}) >"
            f" {most} ({int(configs[most])})"
        )
    if (checks := configs.get(SCHEMA_VALIDATE, "off").strip()) != "off" and (
        choice := table_configs.in_force(configs)[table_configs.VALUE_SCHEMA]
    ) != "by-id":
        return (
            f"{SCHEMA_VALIDATE}={checks} refuses values without the id of a schema, and"
            f" {table_configs.VALUE_SCHEMA}={choice} says that none has one"
        )
    return table_configs.check_together(configs)


def rules(kafka: KafkaSettings) -> ConfigRules:
    """How configs of topics may be altered."""
    return ConfigRules(
        check=check,
        check_together=check_together,
        is_list=lambda name: name in TABLE_OF_TOPICS and TABLE_OF_TOPICS[name].kind is Kind.LIST,
        inherited=lambda name: _synonyms(name, {}, kafka)[0].value,
    )


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """What holds for a topic's records, parsed once per topic. Times in ms, sizes in bytes."""

    max_message_bytes: int
    inflated_bytes_max: int
    """What one batch may become, decompressed (`protocol.compression.inflated_max`)."""
    validates_records: bool
    """Every record is looked at before it is acknowledged (frazil.records.validate)."""
    checks_value_schemas: bool
    """Each value names a schema that the registry has (frazil.schema.validate)."""
    checks_key_schemas: bool
    """The same of each key."""
    decodes_values: bool
    """And they decode by these schemas."""
    timestamp_type: str
    """`CreateTime` or `LogAppendTime`."""
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    compression_type: str
    """`producer`, or the codec that stored batches must have (`uncompressed`, `gzip`, …)."""
    compression_level: int | None
    """Of gzip, lz4 and zstd; None: the library's own."""
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
        return _synonyms(name, configs, kafka)[0].value

    codec = text("compression.type")
    policies = text("cleanup.policy").replace(" ", "").split(",")
    batch_bytes_max = int(text("max.message.bytes"))
    schema_validate = text(SCHEMA_VALIDATE)
    checks_schemas = schema_validate != "off"
    return TopicSettings(
        max_message_bytes=batch_bytes_max,
        inflated_bytes_max=min(
            inflated_max(batch_bytes_max),
            DECODED_BYTES_MAX if schema_validate == "full" else DECOMPRESSED_BYTES_MAX,
        ),
        validates_records=text(RECORDS_VALIDATE) == "full",
        checks_value_schemas=checks_schemas,
        checks_key_schemas=checks_schemas and table_configs.keys_name_schemas(configs),
        decodes_values=schema_validate == "full",
        timestamp_type=text("message.timestamp.type"),
        timestamp_before_max_ms=int(text("message.timestamp.before.max.ms")),
        timestamp_after_max_ms=int(text("message.timestamp.after.max.ms")),
        compression_type=codec,
        compression_level=_compression_level(codec, text),
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


def _compression_level(codec: str, text: Callable[[str], str]) -> int | None:
    """Kafka's defaults stand for the library's own, that of lz4 too (Lz4BlockOutputStream)."""
    row = TABLE_OF_TOPICS.get(f"compression.{codec}.level")
    if row is None or text(row.name) == row.default:
        return None
    return int(text(row.name))


def describe_topic(configs: Mapping[str, str], kafka: KafkaSettings) -> list[ConfigEntry]:
    """All configs of a topic, sorted by name, with their sources and synonyms."""
    return describe(TABLE_OF_TOPICS.values(), configs, Source.DYNAMIC_TOPIC, kafka)


def _synonyms(name: str, configs: Mapping[str, str], kafka: KafkaSettings) -> list[Synonym]:
    return synonyms_of(TABLE_OF_TOPICS[name], configs, Source.DYNAMIC_TOPIC, kafka)
