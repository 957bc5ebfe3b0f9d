"""Commands for what administrators set at run time: client quotas, and configs of agents and of telemetry.

Quotas are of entities: users, client ids, both together, addresses, and the defaults of each (KIP-546).
Configs are of a resource: one agent, all agents (KIP-226), or a subscription to clients' metrics
(KIP-714). Topics and groups have theirs in commands of their own, and loggers none: they
are one process's, until it ends (KIP-412).

What a value may be is judged by whoever proposes it; the log bounds numbers and sizes only, so that
agents of two releases agree. What an agent does not understand it leaves alone.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Final, NamedTuple

from coordinator.commands.declaration import command
from coordinator.commands.encoding import CONFIGS_MAX
from coordinator.commands.layout import Float64, at_most, byte_of

CONFIG_LEVEL: Final = 5
"""`feature_level_max` of an agent that can decode these commands. While one that cannot is live, none is
proposed: it would stop (P13)."""
QUOTA_ENTITIES_MAX: Final = 20_000
"""Of the whole cluster."""
QUOTA_CHANGES_MAX: Final = 1_000
"""Of a command."""
USAGE_ROWS_MAX: Final = 500
"""Of a report; it is made every two seconds."""
ENTITY_NAME_MAX: Final = 1_024
"""Characters."""
CONFIG_RESOURCES_MAX: Final = 2_000
"""Of each kind, in the whole cluster."""
RESOURCE_NAME_MAX: Final = 256
"""Characters, as the names of configs have."""
CONFIG_VALUE_MAX: Final = 8_000
"""Characters, in UTF-8 less than a string of the log may have bytes."""


class EntityType(IntEnum):
    """What a quota can be of (`org.apache.kafka.common.quota.ClientQuotaEntity`)."""

    USER = 0
    CLIENT_ID = 1
    IP = 2


class Quota(IntEnum):
    """What it can bound (`org.apache.kafka.server.config.QuotaConfig`)."""

    PRODUCER_BYTE_RATE = 0
    CONSUMER_BYTE_RATE = 1
    REQUEST_PERCENTAGE = 2
    CONTROLLER_MUTATION_RATE = 3
    CONNECTION_CREATION_RATE = 4


class EntityPart(NamedTuple):
    """Of an entity."""

    entity_type: Annotated[EntityType, byte_of(EntityType)]
    name: str | None
    """None: whoever has no quota of its own."""


QuotaEntity = tuple[EntityPart, ...]
"""Ascending by type, each once; an address stands alone."""


class QuotaChange(NamedTuple):
    """Of one quota of one entity."""

    entity: QuotaEntity
    quota: Annotated[Quota, byte_of(Quota)]
    value: Float64 | None
    """None: it has none from now on."""


@command(80)
@dataclass(frozen=True, slots=True)
class AlterClientQuotas:
    """Quotas are these from now on; all or nothing."""

    changes: Annotated[tuple[QuotaChange, ...], at_most(QUOTA_CHANGES_MAX)]


class ConfigKind(IntEnum):
    """Resources whose configs are kept so (`org.apache.kafka.common.config.ConfigResource.Type`)."""

    BROKER = 4
    CLIENT_METRICS = 16


@command(81)
@dataclass(frozen=True, slots=True)
class ChangeConfigs:
    """Configs of one resource are these from now on; null: not set. What is not named stays."""

    kind: Annotated[ConfigKind, byte_of(ConfigKind)]
    name: str
    """Of an agent its node id; "" for all agents."""
    changes: Annotated[tuple[tuple[str, str | None], ...], at_most(CONFIGS_MAX)]
    """Sorted by name."""


class UsageRow(NamedTuple):
    """What one agent's clients want of a quota, counted for a user, a client id, or both."""

    quota: Annotated[Quota, byte_of(Quota)]
    user: str
    """"": any."""
    client_id: str
    """Likewise."""
    demand: Float64
    """What they use, or the whole quota when they had to wait."""


@command(82, changes_state=False)
@dataclass(frozen=True, slots=True)
class ReportUsage:
    """What the writer's clients use up of quotas that are the cluster's; instead of what it said before."""

    rows: Annotated[tuple[UsageRow, ...], at_most(USAGE_ROWS_MAX)]
    """Sorted."""


ConfigCommand = AlterClientQuotas | ChangeConfigs | ReportUsage
