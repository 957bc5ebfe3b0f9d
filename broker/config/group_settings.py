"""What configures a group: the agent's settings, and the configs of the group itself. Pure.

The defaults are Kafka's, as the rows of `broker.config.kafka_settings` have them; times in ms.
"""

from dataclasses import dataclass

from broker.config.kafka_settings import KafkaSettings

MINUTE_MS = 60_000
_KAFKA = KafkaSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """The settings that hold for one group."""

    # The classic protocol.
    max_size: int = _KAFKA.group_max_size
    min_session_timeout_ms: int = _KAFKA.group_min_session_timeout_ms
    max_session_timeout_ms: int = _KAFKA.group_max_session_timeout_ms
    initial_rebalance_delay_ms: int = _KAFKA.group_initial_rebalance_delay_ms

    # KIP-848.
    consumer_max_size: int = _KAFKA.group_consumer_max_size
    consumer_session_timeout_ms: int = _KAFKA.group_consumer_session_timeout_ms
    consumer_heartbeat_interval_ms: int = _KAFKA.group_consumer_heartbeat_interval_ms
    consumer_assignors: tuple[str, ...] = _KAFKA.group_consumer_assignors
    """The first one is the default."""
    consumer_migration_policy: str = _KAFKA.group_consumer_migration_policy
    """Or "upgrade", "downgrade", "disabled"."""

    # Offsets.
    offset_metadata_max_bytes: int = _KAFKA.offset_metadata_max_bytes
    offsets_retention_ms: int = _KAFKA.offsets_retention_minutes * MINUTE_MS
    commit_owner_only: bool = False
    """`frazil.commit.owner.only`: see `broker.groups.commits`."""
