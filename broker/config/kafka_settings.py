"""Kafka's broker settings: the ones served, as values, and a judgement of all the others. Pure.

Invariant: every field of `KafkaSettings` but `given` is named like a setting of
`broker.config.kafka_table.SERVED` (dots for underscores) and has Kafka's default. A setting that is
known and not served is taken with a warning; a name that Kafka does not have is a mistake.

Left out: dynamic changes. An agent's settings are its own; they change when it is started again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from broker.config import values
from broker.config.kafka_table import (
    ANY_CASE,
    DISTINCT,
    INT_MAX,
    LONG_MAX,
    PREFIXES,
    SERVED,
    UNSERVED,
    Kind,
    Stance,
)

_LIMITS = {
    Kind.SHORT: (-(1 << 15), (1 << 15) - 1),
    Kind.INT: (-(1 << 31), INT_MAX),
    Kind.LONG: (-(1 << 63), LONG_MAX),
}


class KafkaSetting(NamedTuple):
    """One row of the table of all settings that Kafka 4.3 has."""

    name: str
    kind: Kind
    default: str | None
    """In Kafka's spelling; None when Kafka has none."""
    stance: Stance
    reason: str
    """Why it is not served; "" when it is."""
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()


def _table() -> dict[str, KafkaSetting]:
    rows = []
    for name, kind, default, least, greatest in SERVED:
        choices = least if isinstance(least, tuple) else ()
        minimum = least if isinstance(least, int) else None
        rows.append(
            KafkaSetting(name, kind, default, Stance.SERVED, "", minimum, greatest, choices)
        )
    for (stance, reason), unserved in UNSERVED.items():
        rows.extend(
            KafkaSetting(name, kind, default, stance, reason) for name, kind, default in unserved
        )
    return {row.name: row for row in sorted(rows)}


TABLE: dict[str, KafkaSetting] = _table()
"""By name, sorted."""


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """The settings that have an effect, with Kafka's defaults. Times in ms, sizes in bytes."""

    auto_create_topics_enable: bool = True
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    connections_max_idle_ms: int = 600_000
    """Negative: connections are never closed for idleness."""
    delete_topic_enable: bool = True
    fetch_max_bytes: int = 57_671_680
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """The first one is the default."""
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_max_heartbeat_interval_ms: int = 15_000
    group_consumer_max_session_timeout_ms: int = 60_000
    group_consumer_max_size: int = INT_MAX
    group_consumer_migration_policy: str = "bidirectional"
    group_consumer_min_heartbeat_interval_ms: int = 5_000
    group_consumer_min_session_timeout_ms: int = 45_000
    group_consumer_session_timeout_ms: int = 45_000
    group_coordinator_rebalance_protocols: tuple[str, ...] = ("classic", "consumer", "streams")
    """Of these, "consumer" has an effect, by its absence: KIP-848 is refused."""
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = INT_MAX
    group_min_session_timeout_ms: int = 6_000
    log_cleaner_backoff_ms: int = 15_000
    log_cleaner_dedupe_buffer_size: int = 134_217_728
    log_cleaner_delete_retention_ms: int = 86_400_000
    log_cleaner_enable: bool = True
    log_cleaner_io_max_bytes_per_second: float = 1.7976931348623157e308
    log_cleaner_max_compaction_lag_ms: int = LONG_MAX
    log_cleaner_min_cleanable_ratio: float = 0.5
    log_cleaner_min_compaction_lag_ms: int = 0
    log_cleanup_policy: tuple[str, ...] = ("delete",)
    log_message_timestamp_after_max_ms: int = 3_600_000
    log_message_timestamp_before_max_ms: int = LONG_MAX
    log_message_timestamp_type: str = "CreateTime"
    log_retention_bytes: int = -1
    log_retention_check_interval_ms: int = 300_000
    log_retention_hours: int = 168
    """Of the three only `given` is asked, by the topics' configs (`broker.config.topic_configs`)."""
    log_retention_minutes: int | None = None
    log_retention_ms: int | None = None
    log_segment_delete_delay_ms: int = 60_000
    """For so long objects stay that nothing points at any more."""
    max_connections: int = INT_MAX
    max_incremental_fetch_session_cache_slots: int = 1000
    max_request_partition_size_limit: int = 2000
    message_max_bytes: int = 1_048_588
    num_partitions: int = 1
    offset_metadata_max_bytes: int = 4_096
    """Characters, in fact, as in Kafka."""
    offsets_commit_timeout_ms: int = 5_000
    offsets_retention_check_interval_ms: int = 600_000
    offsets_retention_minutes: int = 10_080
    producer_id_expiration_check_interval_ms: int = 600_000
    producer_id_expiration_ms: int = 86_400_000
    socket_listen_backlog_size: int = 50
    socket_request_max_bytes: int = 104_857_600
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_max_timeout_ms: int = 900_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    transactional_id_expiration_ms: int = 604_800_000
    given: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What was set explicitly, served or not, in Kafka's spelling; for DescribeConfigs."""

    def text(self, name: str) -> str | None:
        """The setting in Kafka's spelling: as given, else Kafka's default, None when unset.

        Raises KeyError for a name that Kafka does not have.
        """
        return self.given[name] if name in self.given else TABLE[name].default


class Parsed(NamedTuple):
    """What became of a set of names and values: all mistakes and warnings, not just the first."""

    settings: KafkaSettings
    mistakes: list[str]
    warnings: list[str]


def parse(given: Mapping[str, str]) -> Parsed:
    """Judge `given` (name to text). With mistakes, `settings` has the defaults in their place."""
    mistakes: list[str] = []
    warnings: list[str] = []
    taken: dict[str, str] = {}
    parsed: dict[str, object] = {}
    served = {item.name for item in fields(KafkaSettings)}
    for name, text in given.items():
        row = TABLE.get(name) or _by_prefix(name)
        if row is None:
            hint = values.did_you_mean(name, TABLE)
            mistakes.append(f'Kafka has no setting named "{name}"{hint}')
            continue
        try:
            value = value_of(row, text)
        except ValueError as error:
            mistakes.append(f"{name}: {error}")
            continue
        taken[name] = text
        if row.stance is Stance.SERVED:
            assert name.replace(".", "_") in served
            parsed[name.replace(".", "_")] = value
        else:
            warnings.append(f"{name}: {row.stance.value}: {row.reason}")
    settings = KafkaSettings(given=taken, **parsed)  # type: ignore[arg-type]
    mistakes += _contradictions(settings)
    return Parsed(settings, mistakes, warnings)


def _contradictions(settings: KafkaSettings) -> list[str]:
    """Settings that are right alone and wrong together, as Kafka says it at its start."""
    mistakes = [
        f"{name} must be unlimited (-1) or, equal or greater than 1"
        for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
        if getattr(settings, name.replace(".", "_")) == 0
    ]
    for what in ("heartbeat.interval.ms", "session.timeout.ms"):
        least, middle, most = (f"group.consumer.{each}{what}" for each in ("min.", "", "max."))
        for lower, upper in ((least, most), (least, middle), (middle, most)):
            if _number(settings, lower) > _number(settings, upper):
                mistakes.append(f"{upper} must be greater than or equal to {lower}")
    heartbeat, session = "group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"
    if _number(settings, heartbeat) >= _number(settings, session):
        mistakes.append(f"{heartbeat} must be less than {session}")
    if "classic" not in settings.group_coordinator_rebalance_protocols:
        mistakes.append("group.coordinator.rebalance.protocols: classic cannot be disabled")
    return mistakes


def _number(settings: KafkaSettings, name: str) -> int:
    value = getattr(settings, name.replace(".", "_"))
    assert isinstance(value, int)
    return value


def value_of(row: KafkaSetting, text: str) -> bool | int | float | str | tuple[str, ...]:
    """`text` as the value of the row's type. Raises ValueError with the end of a sentence."""
    match row.kind:
        case Kind.BOOLEAN:
            return values.boolean(text)
        case Kind.SHORT | Kind.INT | Kind.LONG:
            least, greatest = _LIMITS[row.kind]
            return values.whole_number(
                text,
                minimum=least if row.minimum is None else row.minimum,
                maximum=greatest if row.maximum is None else row.maximum,
            )
        case Kind.DOUBLE:
            try:
                return float(text)
            except ValueError:
                raise ValueError(f'"{text}" is not a number') from None
        case Kind.LIST:
            items = tuple(item.strip() for item in text.split(",") if item.strip())
            _check_choices(row, items)
            if row.name in DISTINCT and not 0 < len(items) == len(dict.fromkeys(items)):
                raise ValueError(f'"{text}" is empty or names one twice')
            return items
        case Kind.STRING | Kind.CLASS | Kind.PASSWORD:
            word = text.lower() if row.name in ANY_CASE else text
            _check_choices(row, (word,))
            return word


def _check_choices(row: KafkaSetting, items: tuple[str, ...]) -> None:
    for item in items:
        if row.choices and item not in row.choices:
            raise ValueError(f'"{item}" is none of {", ".join(row.choices)}')


def _by_prefix(name: str) -> KafkaSetting | None:
    for prefix, stance, reason in PREFIXES:
        if name.startswith(prefix) and len(name) > len(prefix):
            return KafkaSetting(name, Kind.STRING, None, stance, reason)
    return None
