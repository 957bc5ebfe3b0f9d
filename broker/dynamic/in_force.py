"""Kafka's settings of an agent as they are now: what it was started with, and what was set since (KIP-226). Pure.

`SettingsInForce.kafka` is made anew when the log has changed something; whoever reads it each time has
the newest. Who keeps a value, or is made of some, asks to be called (`on_change`).
"""

from collections.abc import Callable

from broker.config.kafka_settings import KafkaSettings
from broker.dynamic.settings import in_force
from coordinator.commands.config_commands import ConfigKind
from coordinator.tables.administration.dynamic_configs import DynamicConfigs
from protocol.types import POSITION_ZERO

ALL_AGENTS = ""
"""The name of the resource whose configs are all agents'."""


class SettingsInForce:
    """Those of one agent."""

    def __init__(self, given: KafkaSettings, configs: DynamicConfigs) -> None:
        """`given`: what the agent was started with."""
        self.kafka = given
        self.given = given
        self._configs = configs
        self._version = POSITION_ZERO
        self._node_id: int | None = None
        self._told: frozenset[str] = frozenset()
        self._callbacks: list[Callable[[], None]] = []

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call it whenever `kafka` is another one."""
        self._callbacks.append(callback)

    def refresh(self, node_id: int | None) -> list[str]:
        """Take in what the log says by now; sentences about what is ignored since this time.

        `node_id`: the agent's; None: as before, or not known yet, and then it has none of its own.
        """
        configs = self._configs
        if configs.version == self._version and node_id in (None, self._node_id):
            return []
        self._version = configs.version
        self._node_id = self._node_id if node_id is None else node_id
        own = {} if self._node_id is None else configs.of(ConfigKind.BROKER, str(self._node_id))
        found = in_force(self.given, of_all=configs.of(ConfigKind.BROKER, ALL_AGENTS), of_agent=own)
        told, self._told = self._told, frozenset(found.ignored)
        if found.settings != self.kafka:
            self.kafka = found.settings
            for callback in self._callbacks:
                callback()
        return [sentence for sentence in found.ignored if sentence not in told]
