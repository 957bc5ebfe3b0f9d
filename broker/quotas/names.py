"""What entities and quotas are called in requests (ClientQuotaEntity, QuotaConfig), and what a quota's
value may be. Pure."""

import ipaddress
from typing import Final

from coordinator.commands.config_commands import EntityType, Quota

TYPE_NAMES: Final = {
    EntityType.USER: "user",
    EntityType.CLIENT_ID: "client-id",
    EntityType.IP: "ip",
}
ENTITY_TYPES: Final = {name: entity_type for entity_type, name in TYPE_NAMES.items()}

OF_CLIENTS: Final = {
    "producer_byte_rate": Quota.PRODUCER_BYTE_RATE,
    "consumer_byte_rate": Quota.CONSUMER_BYTE_RATE,
    "request_percentage": Quota.REQUEST_PERCENTAGE,
    "controller_mutation_rate": Quota.CONTROLLER_MUTATION_RATE,
}
"""Quotas of users and client ids, by key."""
OF_ADDRESSES: Final = {"connection_creation_rate": Quota.CONNECTION_CREATION_RATE}


def key_of(quota: Quota) -> str:
    """The key of a quota in requests: its name here, in small letters."""
    return quota.name.lower()


def address_of(name: str) -> str | None:
    """An address in its usual spelling, in which connections have it; None: it is none."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return None
