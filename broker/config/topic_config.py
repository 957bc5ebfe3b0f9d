"""One config that a topic can have, as the tables of them say it. Pure."""

from typing import NamedTuple

from broker.config.kafka_table import Kind


class TopicConfig(NamedTuple):
    """One config that a topic can have."""

    name: str
    kind: Kind
    default: str
    documentation: str
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()
    synonyms: tuple[str, ...] = ()
    """Broker settings that stand in for it, the strongest first; hours and minutes converted."""
