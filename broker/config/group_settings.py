"""What configures a group: the agent's settings, and the configs of the group itself. Pure.

Names and defaults are Kafka's (`GroupCoordinatorConfig`, `GroupConfig`); times in ms.
"""

from dataclasses import dataclass

INT_MAX = (1 << 31) - 1
MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """The settings that hold for one group."""

    # The classic protocol.
    max_size: int = INT_MAX
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000

    # KIP-848.
    consumer_max_size: int = INT_MAX
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """The first one is the default."""
    consumer_migration_policy: str = "bidirectional"
    """Or "upgrade", "downgrade", "disabled"."""
    consumer_regex_refresh_interval_ms: int = 600_000

    # Offsets.
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 10_080 * MINUTE_MS
    commit_owner_only: bool = False
    """`frazil.commit.owner.only`: see `broker.groups.commits`."""
