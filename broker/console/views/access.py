"""Who may do what: users, ACLs and quotas, in three lists. Pure.

Of a user's password nothing is here but how it is kept. Users who log in otherwise (certificates, tokens of a
company) are in no table.
"""

from typing import Final, NamedTuple

from coordinator.commands.config_commands import QuotaEntity
from coordinator.machine.machine import Machine

ROWS_MAX: Final = 500
"""Of each list."""


class UserRow(NamedTuple):
    """A user with a SCRAM password."""

    user: str
    mechanisms: tuple[str, ...]


class AclRow(NamedTuple):
    """One ACL, in Kafka's words."""

    principal: str
    permission: str
    operation: str
    resource_type: str
    pattern_type: str
    name: str
    host: str


class QuotaRow(NamedTuple):
    """All quotas of one entity."""

    entity: str
    quotas: tuple[tuple[str, float], ...]


class AccessView(NamedTuple):
    """The first ROWS_MAX of each list, and how many there are."""

    users: tuple[UserRow, ...]
    user_count: int
    acls: tuple[AclRow, ...]
    acl_count: int
    quotas: tuple[QuotaRow, ...]
    quota_count: int


def access_view(machine: Machine) -> AccessView:
    """What the page shows."""
    users = sorted(machine.credentials.users())
    acls = sorted(machine.acls, key=lambda acl: (acl.principal, acl.resource_type, acl.name))
    quotas = sorted(machine.client_quotas, key=lambda row: _entity(row[0]))
    return AccessView(
        users=tuple(
            UserRow(user, tuple(each.name for each in machine.credentials.of_user(user)))
            for user in users[:ROWS_MAX]
        ),
        user_count=len(users),
        acls=tuple(
            AclRow(
                acl.principal,
                acl.permission.name,
                acl.operation.name,
                acl.resource_type.name,
                acl.pattern_type.name,
                acl.name,
                acl.host,
            )
            for acl in acls[:ROWS_MAX]
        ),
        acl_count=len(acls),
        quotas=tuple(
            QuotaRow(
                _entity(entity), tuple((each.name.lower(), value) for each, value in found.items())
            )
            for entity, found in quotas[:ROWS_MAX]
        ),
        quota_count=len(quotas),
    )


def _entity(entity: QuotaEntity) -> str:
    """As Kafka's tools write it: `user alice, client-id <default>`."""
    return ", ".join(
        f"{part.entity_type.name.lower().replace('_', '-')} {part.name or '<default>'}"
        for part in entity
    )
