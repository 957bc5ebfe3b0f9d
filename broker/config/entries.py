"""Whose value of a config holds, and what DescribeConfigs says of each (KIP-226). Pure.

A topic or group stores only what was set on it; everything else follows the broker's settings
through Kafka's synonyms (`max.message.bytes` of a topic is `message.max.bytes` of the broker), in
the order topic or group, broker, Kafka's default. Of a broker's setting there are up to four values:
set for this agent, set for all (both at run time), given when it was started, default.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from broker.config.config_row import ConfigRow, Kind, Stance
from broker.config.kafka_settings import TABLE, KafkaSettings
from broker.config.kafka_table import DYNAMIC

_TO_MS = {"hours": 3_600_000, "minutes": 60_000}
_STAND_INS = (
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.roll.ms", "log.roll.hours"),
)
"""Settings of brokers of which the first one that is set holds."""


class Source(IntEnum):
    """Where a config's value comes from, as DescribeConfigs tells (KIP-226)."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
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
    kind: Kind | None
    """None: Kafka tells none."""
    documentation: str
    synonyms: tuple[Synonym, ...]
    """All values there are, the effective one first."""
    read_only: bool
    sensitive: bool


def synonyms_of(
    row: ConfigRow, configs: Mapping[str, str], source: Source, kafka: KafkaSettings
) -> list[Synonym]:
    """Every value there is for a config, the one in force first; never empty.

    `configs` were set on the topic or group, which `source` tells.
    """
    found = []
    if row.name in configs:
        found.append(Synonym(row.name, configs[row.name], source))
    for layer, layer_source in _layers(kafka):
        found += [
            Synonym(name, _in_ms(name, layer[name]), layer_source)
            for name in row.synonyms
            if name in layer
        ]
    default_name = row.synonyms[0] if row.synonyms else row.name
    found.append(Synonym(default_name, row.default_text, Source.DEFAULT))
    return found


def _layers(kafka: KafkaSettings) -> list[tuple[Mapping[str, str], Source]]:
    """Whose value of a broker's setting there may be, the strongest first."""
    return [
        (kafka.of_agent, Source.DYNAMIC_BROKER),
        (kafka.of_all, Source.DYNAMIC_DEFAULT_BROKER),
        (kafka.given, Source.STATIC_BROKER),
    ]


def _in_ms(name: str, text: str) -> str:
    """Broker settings in hours and minutes stand in for configs in ms."""
    factor = _TO_MS.get(name.rsplit(".", 1)[-1])
    if factor is None:
        return text
    return str(int(text) * factor) if int(text) >= 0 else "-1"


def describe(
    rows: Iterable[ConfigRow], configs: Mapping[str, str], source: Source, kafka: KafkaSettings
) -> list[ConfigEntry]:
    """The configs of a topic or group, in the order of `rows`; arguments as of `synonyms_of`."""
    entries = []
    for row in rows:
        synonyms = synonyms_of(row, configs, source, kafka)
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

    Those that do not change while an agent runs are read-only.
    """
    return [_entry(row, _values(row.name, kafka)) for row in TABLE.values()]


def describe_all_brokers(configs: Mapping[str, str]) -> list[ConfigEntry]:
    """What was set for all agents together, at run time; nothing else is theirs."""
    entries = []
    for name, text in sorted(configs.items()):
        if (row := TABLE.get(name)) is not None:
            synonym = Synonym(name, text, Source.DYNAMIC_DEFAULT_BROKER)
            entries.append(_entry(row, [synonym]))
    return entries


def _entry(row: ConfigRow, found: list[Synonym]) -> ConfigEntry:
    secret = row.kind is Kind.PASSWORD
    stance = "Served." if row.stance is Stance.SERVED else f"{row.stance.value}: {row.reason}."
    return ConfigEntry(
        name=row.name,
        value=found[0].value if found and not secret else None,
        source=found[0].source if found else Source.DEFAULT,
        kind=row.kind,
        documentation=stance[0].upper() + stance[1:],
        synonyms=() if secret else tuple(found),
        read_only=row.name not in DYNAMIC,
        sensitive=secret,
    )


def _values(name: str, kafka: KafkaSettings) -> list[Synonym]:
    """All values of a broker's setting, and of those that stand in for it, the strongest first."""
    names = next((group for group in _STAND_INS if name in group), (name,))
    found = [
        Synonym(each, layer[each], source)
        for layer, source in _layers(kafka)
        for each in names
        if each in layer
    ]
    found += [
        Synonym(each, default, Source.DEFAULT)
        for each in names
        if (default := TABLE[each].default) is not None
    ]
    # As Kafka: what stands in for another is told of that one, not the other way round.
    at = next((at for at, each in enumerate(found) if each.name == name), len(found))
    return found[at:]
