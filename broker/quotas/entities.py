"""Which quota holds for a client, and with whom its usage is counted together (KIP-55). Pure.

Of the entities that a user and a client id belong to, the first one in `PRECEDENCE` that has the quota
in question gives it. Usage is counted for each user, each client id or each pair of them, as the entity
says: under the default of all users each user has so much for itself. Each kind of quota is
looked up by itself.
"""

from enum import Enum
from typing import Final, NamedTuple

from coordinator.commands.config_commands import (
    ENTITY_NAME_MAX,
    EntityPart,
    EntityType,
    Quota,
    QuotaEntity,
)
from coordinator.tables.administration.client_quotas import ClientQuotas


class Part(Enum):
    """How an entity names its user, or its client id."""

    BY_NAME = "by name"
    DEFAULT = "the default of all"
    NONE = "not at all"


class Level(NamedTuple):
    """A way to name an entity."""

    user: Part
    client_id: Part


PRECEDENCE: Final = (
    Level(user=Part.BY_NAME, client_id=Part.BY_NAME),
    Level(user=Part.BY_NAME, client_id=Part.DEFAULT),
    Level(user=Part.BY_NAME, client_id=Part.NONE),
    Level(user=Part.DEFAULT, client_id=Part.BY_NAME),
    Level(user=Part.DEFAULT, client_id=Part.DEFAULT),
    Level(user=Part.DEFAULT, client_id=Part.NONE),
    Level(user=Part.NONE, client_id=Part.BY_NAME),
    Level(user=Part.NONE, client_id=Part.DEFAULT),
)
"""Kafka's, the most specific one first (DefaultQuotaCallback)."""


class Holder(NamedTuple):
    """Who uses up a quota together; "": any."""

    user: str
    client_id: str


class Found(NamedTuple):
    """The quota that holds for a client."""

    limit: float
    holder: Holder
    entity: QuotaEntity


def quota_of(quotas: ClientQuotas, quota: Quota, *, user: str, client_id: str) -> Found | None:
    """None: there is none for it."""
    for level in PRECEDENCE:
        entity = _entity(level, user, client_id)
        limit = quotas.of(entity).get(quota)
        if limit is not None:
            holder = Holder(
                user="" if level.user is Part.NONE else user,
                client_id="" if level.client_id is Part.NONE else client_id,
            )
            return Found(limit, holder, entity)
    return None


def address_quota(quotas: ClientQuotas, address: str) -> Found | None:
    """New connections a second of an address, counted for each one."""
    for name in (address, None):
        entity = (EntityPart(EntityType.IP, name),)
        limit = quotas.of(entity).get(Quota.CONNECTION_CREATION_RATE)
        if limit is not None:
            return Found(limit, Holder(address, ""), entity)
    return None


def told_name(name: str | None) -> str:
    """A user or client id as quotas know it. No entity has a longer name, so the end of a longer one
    says nothing, and is not kept."""
    return (name or "")[:ENTITY_NAME_MAX]


def _entity(level: Level, user: str, client_id: str) -> QuotaEntity:
    parts = []
    if level.user is not Part.NONE:
        name = user if level.user is Part.BY_NAME else None
        parts.append(EntityPart(EntityType.USER, name))
    if level.client_id is not Part.NONE:
        name = client_id if level.client_id is Part.BY_NAME else None
        parts.append(EntityPart(EntityType.CLIENT_ID, name))
    return tuple(parts)
