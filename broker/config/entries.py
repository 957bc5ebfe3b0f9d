"""Whose value of a config holds, and what DescribeConfigs says of each (KIP-226). Pure.

A topic or group stores only what was set on it; everything else follows the broker's settings
through Kafka's synonyms (`max.message.bytes` of a topic is `message.max.bytes` of the broker), in
the order topic or group, broker, Kafka's default.

Left out: dynamic configs of brokers as a source; an agent's settings are its own.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from broker.config.config_row import ConfigRow, Kind, Stance
from broker.config.kafka_settings import TABLE, KafkaSettings

_TO_MS = {"hours": 3_600_000, "minutes": 60_000}


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


def synonyms_of(
    row: ConfigRow, configs: Mapping[str, str], source: Source, kafka: KafkaSettings
) -> list[Synonym]:
    """Every value there is for a config, the one in force first; never empty.

    `configs` were set on the topic or group, which `source` tells.
    """
    found = []
    if row.name in configs:
        found.append(Synonym(row.name, configs[row.name], source))
    for name in row.synonyms:
        if name in kafka.given:
            value = _in_ms(name, kafka.given[name])
            found.append(Synonym(name, value, Source.STATIC_BROKER))
    default_name = row.synonyms[0] if row.synonyms else row.name
    found.append(Synonym(default_name, row.default_text, Source.DEFAULT))
    return found


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
