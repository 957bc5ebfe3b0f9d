"""Configs of subscriptions to clients' metrics (resource type CLIENT_METRICS, KIP-714): rows, checks, parsed. Pure.

As in Kafka's `ClientMetricsConfigs`, but for the language of patterns: RE2 (`broker.patterns`), since
whoever may alter configs must not be able to make agents stand still.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from broker import patterns
from broker.config import values
from broker.config.changes import ConfigRules
from broker.config.config_row import ConfigRow, Kind
from broker.config.entries import ConfigEntry, Source, Synonym
from protocol.errors import ErrorCode, KafkaError

METRICS: Final = "metrics"
INTERVAL: Final = "interval.ms"
MATCH: Final = "match"
ALL_METRICS: Final = "*"
INTERVAL_MIN_MS: Final = 100
INTERVAL_MAX_MS: Final = 3_600_000
MATCH_KEYS: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What a pattern can be of."""

TABLE_OF_CLIENT_METRICS: Final[dict[str, ConfigRow]] = {
    row.name: row
    for row in (
        ConfigRow(INTERVAL, Kind.INT, "300000", "How often clients push, in ms."),
        ConfigRow(MATCH, Kind.LIST, "", "Whose metrics: key=pattern, by commas. Empty: everybody's."),
        ConfigRow(METRICS, Kind.LIST, "", "Beginnings of names of metrics; * is for all of them."),
    )
}  # fmt: skip
"""By name, sorted."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What one subscription asks of which clients."""

    metrics: tuple[str, ...]
    """Beginnings of names; `ALL_METRICS` among them: all. Empty: none."""
    interval_ms: int
    match: Mapping[str, Any]
    """Patterns (`broker.patterns.compiled`) by `MATCH_KEYS`, each for the whole of what it is of.
    Empty: all clients."""


def parse_subscription(configs: Mapping[str, str]) -> Subscription:
    """What was set on a subscription. Raises KafkaError as Kafka does when it is set.

    Who reads it out of the log ignores what it cannot read: an agent of another release wrote it.
    """
    for name in configs:
        if name not in TABLE_OF_CLIENT_METRICS:
            reason = f"Unknown client metrics configuration: {name}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    return Subscription(
        metrics=tuple(dict.fromkeys(_items(configs, METRICS))),
        interval_ms=_interval_ms(_text(configs, INTERVAL)),
        match=_patterns(_items(configs, MATCH)),
    )


def rules() -> ConfigRules:
    """How configs of subscriptions may be altered. Kafka takes none of them for lists here."""

    def check_together(after: Mapping[str, str]) -> str | None:
        parse_subscription(after)
        return None

    return ConfigRules(
        check=lambda name, text: None,
        check_together=check_together,
        is_list=lambda name: False,
        inherited=lambda name: "",
    )


def describe_subscription(configs: Mapping[str, str]) -> list[ConfigEntry]:
    """All configs of a subscription, also of one that is none, sorted by name."""
    entries = []
    for name, row in TABLE_OF_CLIENT_METRICS.items():
        is_set = name in configs
        value = configs[name] if is_set else row.default_text
        source = Source.CLIENT_METRICS if is_set else Source.DEFAULT
        entries.append(
            ConfigEntry(
                name=name,
                value=value,
                source=source,
                kind=row.kind,
                documentation=row.documentation,
                synonyms=(Synonym(name, value, source),) if is_set else (),
                read_only=False,
                sensitive=False,
            )
        )
    return entries


def _text(configs: Mapping[str, str], name: str) -> str:
    return configs.get(name, TABLE_OF_CLIENT_METRICS[name].default_text)


def _items(configs: Mapping[str, str], name: str) -> list[str]:
    text = _text(configs, name)
    if not text.strip():
        return []
    items = [item.strip() for item in text.split(",")]
    if not all(items):
        reason = f"Configuration '{name}' values must not be empty."
        raise KafkaError(ErrorCode.INVALID_CONFIG, reason)
    return items


def _interval_ms(text: str) -> int:
    try:
        interval_ms = values.whole_number(text)
    except ValueError as error:
        reason = f"Invalid value {text} for configuration {INTERVAL}: {error}"
        raise KafkaError(ErrorCode.INVALID_CONFIG, reason) from error
    if not INTERVAL_MIN_MS <= interval_ms <= INTERVAL_MAX_MS:
        reason = (
            f"Invalid value {text} for {INTERVAL},"
            " interval must be between 100 and 3600000 (1 hour)"
        )
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    return interval_ms


def _patterns(items: Iterable[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in items:
        key, _, pattern = item.partition("=")
        key, pattern = key.strip(), pattern.strip()
        if key not in MATCH_KEYS or not pattern or "=" in pattern:
            raise _illegal(item)
        try:
            found[key] = patterns.compiled(pattern, field=MATCH)
        except KafkaError as error:
            raise _illegal(item) from error
    return found


def _illegal(item: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {item}")
