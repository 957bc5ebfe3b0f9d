"""What is asked of a client: all subscriptions that match it, united. Pure.

A subscription is what was set on a resource CLIENT_METRICS (`broker.config.client_metrics_configs`).
What this agent cannot read, since one of another release wrote it, asks for nothing.
"""

import base64
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from crc32c import crc32c

from broker import patterns
from broker.config.client_metrics_configs import (
    ALL_METRICS,
    TABLE_OF_CLIENT_METRICS,
    Subscription,
    parse_subscription,
)
from coordinator.commands.config_commands import ConfigKind
from coordinator.tables.administration.dynamic_configs import DynamicConfigs
from protocol.errors import KafkaError
from protocol.slices import Sliced
from protocol.types import POSITION_ZERO

INTERVAL_DEFAULT_MS: Final = int(TABLE_OF_CLIENT_METRICS["interval.ms"].default_text)
PARSED_MAX: Final = 128
"""Subscriptions that are kept parsed, as RE2 keeps expressions; more are parsed each time."""
SLICE_ELEMENTS: Final = 500
CHARACTERS_PER_ELEMENT: Final = 20
"""Of a pattern that is parsed."""


class Client(NamedTuple):
    """What patterns can be of. None: not known, so no pattern matches it."""

    client_instance_id: str
    client_id: str | None
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str


class Asked(NamedTuple):
    """What a client is asked for."""

    metrics: tuple[str, ...]
    """Beginnings of names, sorted; empty: it shall not push."""
    interval_ms: int


NOTHING: Final = Asked((), INTERVAL_DEFAULT_MS)


def id_text(instance_id: bytes) -> str:
    """As Kafka writes ids (org.apache.kafka.common.Uuid)."""
    return base64.urlsafe_b64encode(instance_id).rstrip(b"=").decode()


def united(subscriptions: Iterable[Subscription]) -> Asked:
    """All metrics of any of them, as often as the one that wants them most often."""
    metrics: set[str] = set()
    interval_ms = INTERVAL_DEFAULT_MS
    for each in subscriptions:
        metrics.update(each.metrics)
        interval_ms = min(interval_ms, each.interval_ms)
    if ALL_METRICS in metrics:
        metrics = {ALL_METRICS}
    return Asked(tuple(sorted(metrics)), interval_ms)


def subscription_id(asked: Asked, instance_id: bytes) -> int:
    """Says that what is asked of this client is this; the same on every agent, as 32 bits with a sign.

    As Kafka's ClientMetricsManager makes it, but that Kafka's order of metrics is its hash set's.
    """
    text = f"[{', '.join(asked.metrics)}]{asked.interval_ms}"
    words = [int.from_bytes(instance_id[at : at + 4]) for at in range(0, 16, 4)]
    unsigned = crc32c(text.encode()) ^ words[0] ^ words[1] ^ words[2] ^ words[3]
    return unsigned - (1 << 32) if unsigned >> 31 else unsigned


class Subscriptions:
    """Those of the log, parsed when they are first asked about."""

    def __init__(self, configs: DynamicConfigs) -> None:
        self._configs = configs
        self._parsed: dict[str, tuple[Mapping[str, str], Subscription | None]] = {}
        """By name, with what it was parsed from; a change makes another mapping."""
        self._seen = POSITION_ZERO

    @property
    def version(self) -> int:
        """Grows whenever what is asked may have changed."""
        return self._configs.version

    def asked_of(self, client: Client) -> Sliced[Asked]:
        """What is asked of a client, in slices of the loop."""
        names = self._configs.names(ConfigKind.CLIENT_METRICS)
        if not names:
            return NOTHING
        self._forget_old()
        matching: list[Subscription] = []
        left = SLICE_ELEMENTS
        for name in names:
            configs = self._configs.of(ConfigKind.CLIENT_METRICS, name)
            known = self._parsed.get(name)
            if known is None:
                left -= 1 + sum(map(len, configs.values())) // CHARACTERS_PER_ELEMENT
                known = self._parse(name, configs)
            subscription = known[1]
            if subscription is not None:
                left -= _cost(subscription, client)
                if matches(subscription, client):
                    matching.append(subscription)
            if left <= 0:
                yield
                left = SLICE_ELEMENTS
        return united(matching)

    def _parse(
        self, name: str, configs: Mapping[str, str]
    ) -> tuple[Mapping[str, str], Subscription | None]:
        subscription = None
        if configs:  # Else it has gone meanwhile.
            try:
                subscription = parse_subscription(configs)
            except KafkaError:
                subscription = None
        parsed = (configs, subscription)
        if len(self._parsed) < PARSED_MAX:
            self._parsed[name] = parsed
        return parsed

    def _forget_old(self) -> None:
        if self._seen != self._configs.version:
            self._seen = self._configs.version
            self._parsed = {
                name: parsed
                for name, parsed in self._parsed.items()
                if self._configs.of(ConfigKind.CLIENT_METRICS, name) is parsed[0]
            }


def matches(subscription: Subscription, client: Client) -> bool:
    """Whether each of its patterns is of the whole of what it is of."""
    for key, pattern in subscription.match.items():
        text = getattr(client, key)
        if text is None or not pattern.fullmatch(text):
            return False
    return True


def _cost(subscription: Subscription, client: Client) -> int:
    """In elements that are looked at."""
    return 1 + sum(
        1 + patterns.elements(pattern, getattr(client, key) or "")
        for key, pattern in subscription.match.items()
    )
