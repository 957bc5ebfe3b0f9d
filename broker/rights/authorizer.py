"""The decision of Kafka's StandardAuthorizer (KIP-11, KIP-290, KIP-801), and its memory. Pure.

A super user may do everything. Of the ACLs whose resource pattern fits (the name itself, "*", a
prefix of it), those count that are for the requester (or for `User:*`) and for its host (or "*"). One
that denies the operation, or ALL, decides; else one that allows it, ALL, or what implies it; else,
if the resource has no ACL of anybody, `allow.everyone.if.no.acl.found`; else it is refused. Only
what is allowed implies something: who may not READ may still be allowed to DESCRIBE.

Decisions are remembered, and forgotten all together when the table of ACLs has another version, so
a change counts from the next question on. The memory is bounded; names that are longer than those of
topics are not remembered.

Left out: what a refusal looks like (`broker.guards`), and who asks (`broker.calls.requester`).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from broker.calls.requester import Requester
from coordinator.commands.rights_commands import AclBinding
from coordinator.tables.administration.acls import Acls
from protocol.acls import (
    OPERATIONS,
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

CACHED_MAX: Final = 100_000
"""Decisions that are remembered."""
CACHED_NAME_MAX: Final = 255
"""Characters of a name that is remembered."""
HARDCODE: Final = "hardcode"
"""The name that Kafka asks for to find who may do something to whatever resource there is."""

_IMPLIED_BY: Final = {
    Operation.DESCRIBE: frozenset(
        {
            Operation.DESCRIBE,
            Operation.READ,
            Operation.WRITE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.ALL,
        }
    ),
    Operation.DESCRIBE_CONFIGS: frozenset(
        {Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.ALL}
    ),
}
"""Operations whose permission is enough; of others, the operation itself and ALL."""

_Key = tuple[str, str, int, int, str]


class Authorizer:
    """Decides by a table of ACLs that changes under it."""

    def __init__(
        self, acls: Acls, *, super_users: Iterable[str] = (), allow_everyone: bool = False
    ) -> None:
        """`allow_everyone`: to do what they like with resources that have no ACL."""
        self._acls = acls
        self._super_users = frozenset(super_users)
        self._allow_everyone = allow_everyone
        self._version = acls.version
        self._decided: dict[_Key, bool] = {}
        self._decided_some: dict[tuple[str, str, int, int], bool] = {}

    def allows(
        self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """Whether the requester may do this to the resource of that name."""
        if self._acls.version != self._version:
            self._forget()
        key = (requester.principal, requester.host, operation, resource_type, name)
        decided = self._decided.get(key)
        if decided is None:
            decided = self._decide(requester, operation, resource_type, name)
            if len(name) <= CACHED_NAME_MAX:
                if len(self._decided) >= CACHED_MAX:
                    self._decided.clear()
                self._decided[key] = decided
        return decided

    def allows_some(
        self, requester: Requester, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Whether there may be a resource of the type to which the requester may do this
        (`authorizeByResourceType`, KIP-679)."""
        if self._acls.version != self._version:
            self._forget()
        key = (requester.principal, requester.host, operation, resource_type)
        decided = self._decided_some.get(key)
        if decided is None:
            decided = self._decide_some(requester, operation, resource_type)
            if len(self._decided_some) >= CACHED_MAX:
                self._decided_some.clear()
            self._decided_some[key] = decided
        return decided

    def operations(self, requester: Requester, resource_type: ResourceType, name: str) -> int:
        """What the requester may do to the resource, as bits of the operations' numbers (KIP-430)."""
        return sum(
            1 << operation
            for operation in OPERATIONS[resource_type]
            if self.allows(requester, operation, resource_type, name)
        )

    def _forget(self) -> None:
        self._decided.clear()
        self._decided_some.clear()
        self._version = self._acls.version

    def _decide_some(
        self, requester: Requester, operation: Operation, resource_type: ResourceType
    ) -> bool:
        if self.allows(requester, operation, resource_type, HARDCODE):
            return True
        asked = _Asked(
            self._acls,
            resource_type,
            operations=(operation, Operation.ALL),
            principals=dict.fromkeys((requester.principal, WILDCARD_PRINCIPAL)),
            hosts=(requester.host, WILDCARD),
        )
        if asked.denies(self._acls.literally(resource_type, WILDCARD)):
            return False
        return any(not asked.is_dominated(binding) for binding in asked.allowed())

    def _decide(
        self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        if requester.principal in self._super_users:
            return True
        matching = self._acls.matching(resource_type, name)
        if not matching:
            return self._allow_everyone
        enough = _IMPLIED_BY.get(operation) or (operation, Operation.ALL)
        allowed = False
        for principals in matching:
            for principal in {requester.principal: None, WILDCARD_PRINCIPAL: None}:
                for binding in principals.get(principal, ()):
                    if binding.host not in (requester.host, WILDCARD):
                        continue
                    if binding.permission is Permission.ALLOW:
                        allowed = allowed or binding.operation in enough
                    elif binding.operation in (operation, Operation.ALL):
                        return False
        return allowed


class _Asked(NamedTuple):
    """Who wants to do what to some resource of a type."""

    acls: Acls
    resource_type: ResourceType
    operations: Collection[Operation]
    principals: Collection[str]
    hosts: Collection[str]

    def allowed(self) -> Iterator[AclBinding]:
        """What allows it."""
        for principal in self.principals:
            for operation in self.operations:
                for binding in self.acls.allowing(self.resource_type, principal, operation):
                    if binding.host in self.hosts:
                        yield binding

    def denies(self, there: Mapping[str, Iterable[AclBinding]]) -> bool:
        """Whether the ACLs of one pattern, by principal, deny it."""
        return any(
            binding.permission is Permission.DENY
            and binding.operation in self.operations
            and binding.host in self.hosts
            for principal in self.principals
            for binding in there.get(principal, ())
        )

    def is_dominated(self, allowed: AclBinding) -> bool:
        """Whether one that denies covers all that this one allows."""
        if allowed.pattern_type is PatternType.LITERAL:
            if allowed.name == WILDCARD:
                return False
            if self.denies(self.acls.literally(self.resource_type, allowed.name)):
                return True
        return any(map(self.denies, self.acls.prefixes_of(self.resource_type, allowed.name)))
