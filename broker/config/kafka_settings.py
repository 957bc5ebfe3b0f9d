"""Kafka's broker settings: the ones served, as values, and a judgement of all the others. Pure.

A field of `KafkaSettings` is the row of a served setting: its name is the setting's (dots for
underscores), its type, default and limits are Kafka's; those of listeners are apart
(`broker.config.listeners`). A setting that is known and not served
(`broker.config.kafka_table`) is taken with a warning; a name that Kafka does not have is a mistake.

Left out: which of them change while an agent runs, and who sets them (`broker.dynamic.settings`).
"""

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, NamedTuple, Protocol

from broker.config import values
from broker.config.config_row import INT_MAX, ConfigRow, Kind, Stance, value_of
from broker.config.kafka_table import PREFIXES, UNSERVED
from broker.config.listener_table import LISTENER_TABLE
from broker.config.listeners import row_of_listener

OLDER_NAMES = {"delegation.token.master.key": "delegation.token.secret.key"}
"""Names that Kafka had before 4.0 and that are still taken."""
COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
AUTHORIZERS = ("", "org.apache.kafka.metadata.authorizer.StandardAuthorizer")
CLEANUP_POLICIES = ("compact", "delete")


def _served(
    kind: Kind,
    default: str | None,
    minimum: int | None = None,
    maximum: int | None = None,
    **rest: Any,
) -> Any:
    """A field of `KafkaSettings`. Its default is Kafka's, in Kafka's spelling (None: unset)."""
    row = ConfigRow("", kind, default, minimum=minimum, maximum=maximum, **rest)
    value = None if default is None else value_of(row, default)
    return field(default=value, metadata={"row": row}, repr=kind is not Kind.PASSWORD)


_boolean = partial(_served, Kind.BOOLEAN)
_int = partial(_served, Kind.INT)
_long = partial(_served, Kind.LONG)
_double = partial(_served, Kind.DOUBLE)
_word = partial(_served, Kind.STRING)
_list = partial(_served, Kind.LIST)
_password = partial(_served, Kind.PASSWORD)


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """The settings that have an effect; one row each. Times in ms, sizes in bytes."""

    allow_everyone_if_no_acl_found: bool = _boolean("false")
    """To do what they like with a resource that has no ACL."""
    authorizer_class_name: str = _word("", choices=AUTHORIZERS)
    """Empty: everybody may do everything."""
    auto_create_topics_enable: bool = _boolean("true")
    compression_gzip_level: int = _int("-1", -1, 9)
    compression_lz4_level: int = _int("9", 1, 17)
    compression_type: str = _word("producer", choices=COMPRESSION_TYPES)
    compression_zstd_level: int = _int("3", -131072, 22)
    connection_failed_authentication_delay_ms: int = _int("100", 0)
    connections_max_idle_ms: int = _long("600000")
    """Negative: connections are never closed for idleness."""
    controller_quota_window_num: int = _int("11", 1)
    controller_quota_window_size_seconds: int = _int("1", 1)
    delegation_token_expiry_check_interval_ms: int = _long("3600000", 1)
    delegation_token_expiry_time_ms: int = _long("86400000", 1)
    """Until a token has to be renewed."""
    delegation_token_max_lifetime_ms: int = _long("604800000", 1)
    delegation_token_secret_key: str | None = _password(None)
    """The same on all agents; without it delegation tokens are not served."""
    delete_topic_enable: bool = _boolean("true")
    fetch_max_bytes: int = _int("57671680", 1024)
    group_consumer_assignors: tuple[str, ...] = _list(
        "uniform,range", choices=("uniform", "range"), distinct=True
    )
    """The first one is the default."""
    group_consumer_heartbeat_interval_ms: int = _int("5000", 1)
    group_consumer_max_heartbeat_interval_ms: int = _int("15000", 1)
    group_consumer_max_session_timeout_ms: int = _int("60000", 1)
    group_consumer_max_size: int = _int("2147483647", 1)
    group_consumer_migration_policy: str = _word(
        "bidirectional",
        choices=("disabled", "downgrade", "upgrade", "bidirectional"),
        any_case=True,
    )
    group_consumer_min_heartbeat_interval_ms: int = _int("5000", 1)
    group_consumer_min_session_timeout_ms: int = _int("45000", 1)
    group_consumer_session_timeout_ms: int = _int("45000", 1)
    group_coordinator_rebalance_protocols: tuple[str, ...] = _list(
        "classic,consumer,streams",
        choices=("classic", "consumer", "share", "streams"),
        distinct=True,
    )
    """Of these, "consumer" has an effect, by its absence: KIP-848 is refused."""
    group_initial_rebalance_delay_ms: int = _int("3000")
    group_max_session_timeout_ms: int = _int("1800000")
    group_max_size: int = _int("2147483647", 1)
    group_min_session_timeout_ms: int = _int("6000")
    log_cleaner_backoff_ms: int = _long("15000", 0)
    log_cleaner_dedupe_buffer_size: int = _long("134217728")
    log_cleaner_delete_retention_ms: int = _long("86400000", 0)
    log_cleaner_enable: bool = _boolean("true")
    log_cleaner_io_max_bytes_per_second: float = _double("1.7976931348623157E308")
    log_cleaner_max_compaction_lag_ms: int = _long("9223372036854775807", 1)
    log_cleaner_min_cleanable_ratio: float = _double("0.5")
    log_cleaner_min_compaction_lag_ms: int = _long("0", 0)
    log_cleanup_policy: tuple[str, ...] = _list("delete", choices=CLEANUP_POLICIES)
    log_message_timestamp_after_max_ms: int = _long("3600000", 0)
    log_message_timestamp_before_max_ms: int = _long("9223372036854775807", 0)
    log_message_timestamp_type: str = _word("CreateTime", choices=TIMESTAMP_TYPES)
    log_retention_bytes: int = _long("-1")
    log_retention_check_interval_ms: int = _long("300000", 1)
    log_retention_hours: int = _int("168")
    """Of the three only `given` is asked, by the topics' configs (`broker.config.topic_configs`)."""
    log_retention_minutes: int | None = _int(None)
    log_retention_ms: int | None = _long(None)
    log_segment_delete_delay_ms: int = _long("60000", 0)
    """For so long objects stay that nothing points at any more."""
    max_connection_creation_rate: int = _int("2147483647", 1)
    max_connections: int = _int("2147483647", 0)
    """An agent takes fewer when its descriptors do not suffice (`broker.edge.limits`)."""
    max_connections_per_ip: int = _int("2147483647", 0)
    max_connections_per_ip_overrides: str = _word("")
    """`address:number` by commas; of host names there are none, unlike in Kafka."""
    max_incremental_fetch_session_cache_slots: int = _int("1000", 0)
    max_request_partition_size_limit: int = _int("2000", 1)
    message_max_bytes: int = _int("1048588", 0)
    num_partitions: int = _int("1", 1)
    offset_metadata_max_bytes: int = _int("4096")
    """Characters, in fact, as in Kafka."""
    offsets_commit_timeout_ms: int = _int("5000", 1)
    offsets_retention_check_interval_ms: int = _long("600000", 1)
    offsets_retention_minutes: int = _int("10080", 1)
    producer_id_expiration_check_interval_ms: int = _int("600000", 1)
    producer_id_expiration_ms: int = _int("86400000", 1)
    quota_window_num: int = _int("11", 1)
    """Samples over which the rates of clients are taken."""
    quota_window_size_seconds: int = _int("1", 1)
    super_users: str = _word("")
    """Principals by semicolons; `super_user_principals` are they."""
    socket_listen_backlog_size: int = _int("50", 1)
    socket_request_max_bytes: int = _int("104857600", 1)
    telemetry_max_bytes: int = _int("1048576", 1)
    """Of what a client pushes, as sent and inflated. No request may have more than 8 MiB."""
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = _int("10000", 1)
    transaction_max_timeout_ms: int = _int("900000", 1)
    transaction_remove_expired_transaction_cleanup_interval_ms: int = _int("3600000", 1)
    transactional_id_expiration_ms: int = _int("604800000", 1)
    given: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What was set explicitly, served or not, in Kafka's spelling; for DescribeConfigs."""
    of_agent: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What was set at run time for this agent, and is in force (KIP-226); before `given`."""
    of_all: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Likewise for all agents; before `given`, behind `of_agent`."""

    def connections_per_ip_overrides(self) -> dict[str, int]:
        """By address, in its usual spelling. Raises ValueError with the end of a sentence."""
        return _connections_of_addresses(self.max_connections_per_ip_overrides)

    def super_user_principals(self) -> frozenset[str]:
        """Who may do everything. Raises ValueError with the end of a sentence."""
        return values.principals(self.super_users)

    def text(self, name: str) -> str | None:
        """The setting in Kafka's spelling: as set, else Kafka's default, None when unset.

        Raises KeyError for a name that Kafka does not have.
        """
        for layer in (self.of_agent, self.of_all, self.given):
            if name in layer:
                return layer[name]
        return TABLE[name].default

    def number(self, name: str) -> int:
        """A served setting that is a number, by its name in Kafka."""
        value = getattr(self, _field_of(name))
        assert isinstance(value, int)
        return value


class HasKafka(Protocol):
    """Something with Kafka's settings: as they were given (`Settings`), or as they are by now."""

    @property
    def kafka(self) -> KafkaSettings: ...


def _field_of(name: str) -> str:
    return name.replace(".", "_")


def _rows() -> Iterator[ConfigRow]:
    for item in fields(KafkaSettings):
        if item.metadata:
            row: ConfigRow = item.metadata["row"]
            yield row._replace(name=item.name.replace("_", "."))
    yield from LISTENER_TABLE.values()
    for (stance, reason), unserved in UNSERVED.items():
        for name, kind, default in unserved:
            yield ConfigRow(name, kind, default, stance=stance, reason=reason)


_FIELDS = frozenset(item.name for item in fields(KafkaSettings) if item.metadata)

TABLE: dict[str, ConfigRow] = {row.name: row for row in sorted(_rows(), key=lambda row: row.name)}
"""All settings that Kafka 4.3 has, by name, sorted."""


class ParsedSettings(NamedTuple):
    """What became of a set of names and values: all mistakes and warnings, not just the first."""

    settings: KafkaSettings
    mistakes: list[str]
    warnings: list[str]


def parse(given: Mapping[str, str]) -> ParsedSettings:
    """Judge `given` (name to text). With mistakes, `settings` has the defaults in their place."""
    mistakes: list[str] = []
    warnings: list[str] = []
    taken: dict[str, str] = {}
    parsed: dict[str, object] = {}
    for written, text in given.items():
        name = OLDER_NAMES.get(written, written)
        row = row_of(name)
        if row is None:
            hint = values.did_you_mean(name, TABLE)
            sentence = f'Kafka has no setting named "{name}"{hint}'
            mistakes.append(values.unknown_setting(sentence))
            continue
        try:
            value = value_of(row, text)
        except ValueError as error:
            shown = "the value is not usable" if row.kind is Kind.PASSWORD else error
            mistakes.append(f"{name}: {shown}")
            continue
        taken[name] = text
        if row.stance is Stance.SERVED and _field_of(name) in _FIELDS:
            parsed[_field_of(name)] = value
        elif row.stance is not Stance.SERVED:
            warnings.append(f"{name}: {row.stance.value}: {row.reason}")
    settings = KafkaSettings(given=taken, **parsed)  # type: ignore[arg-type]
    mistakes += _contradictions(settings)
    return ParsedSettings(settings, mistakes, warnings)


def _contradictions(settings: KafkaSettings) -> list[str]:
    """Settings that are right alone and wrong together, as Kafka says it at its start."""
    mistakes = [
        f"{name} must be unlimited (-1) or, equal or greater than 1"
        for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
        if getattr(settings, _field_of(name)) == 0
    ]
    for what in ("heartbeat.interval.ms", "session.timeout.ms"):
        least, middle, most = (f"group.consumer.{each}{what}" for each in ("min.", "", "max."))
        for lower, upper in ((least, most), (least, middle), (middle, most)):
            if settings.number(lower) > settings.number(upper):
                mistakes.append(f"{upper} must be greater than or equal to {lower}")
    heartbeat, session = "group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"
    if settings.number(heartbeat) >= settings.number(session):
        mistakes.append(f"{heartbeat} must be less than {session}")
    per_ip = "max.connections.per.ip"
    try:
        overrides = settings.connections_per_ip_overrides()
        if settings.max_connections_per_ip == 0 and not overrides:
            mistakes.append(f"{per_ip} can be set to zero only if {per_ip}.overrides is set")
    except ValueError as error:
        mistakes.append(f"{per_ip}.overrides: {error}")
    try:
        settings.super_user_principals()
    except ValueError as error:
        mistakes.append(f"super.users: {error}")
    if not settings.log_cleaner_io_max_bytes_per_second > 0:
        mistakes.append("log.cleaner.io.max.bytes.per.second must be greater than 0")
    if "classic" not in settings.group_coordinator_rebalance_protocols:
        mistakes.append("group.coordinator.rebalance.protocols: classic cannot be disabled")
    if settings.socket_request_max_bytes < settings.message_max_bytes:
        mistakes.append(
            f"socket.request.max.bytes ({settings.socket_request_max_bytes}) must not be less than"
            f" message.max.bytes ({settings.message_max_bytes})"
        )
    return mistakes


def _connections_of_addresses(text: str) -> dict[str, int]:
    told: dict[str, int] = {}
    for item in filter(None, map(str.strip, text.split(","))):
        address, _, number = item.rpartition(":")
        try:
            host = str(ipaddress.ip_address(address.strip().strip("[]")))
        except ValueError:
            raise ValueError(f'"{item}" is not address:number, the address in digits') from None
        told[host] = values.whole_number(number, minimum=0, maximum=INT_MAX)
    return told


def is_known(name: str) -> bool:
    """Whether Kafka has a setting of this name, or makes such names by a prefix."""
    return name in OLDER_NAMES or row_of(name) is not None


def row_of(name: str) -> ConfigRow | None:
    """The row of a setting, also of one that Kafka makes by a prefix; None: Kafka has none."""
    return TABLE.get(name) or _by_prefix(name)


def _by_prefix(name: str) -> ConfigRow | None:
    row = row_of_listener(name, TABLE)
    if row is not None:
        return row
    for prefix, stance, reason in PREFIXES:
        if name.startswith(prefix) and len(name) > len(prefix):
            return ConfigRow(name, Kind.STRING, None, stance=stance, reason=reason)
    return None
