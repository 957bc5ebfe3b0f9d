"""The table of ACLs: who may, or may not, do what to which resources (KIP-11, KIP-290).

Rows are bindings, in the order in which they were made; each is there once. They are indexed by
type, pattern and name of the resource and by principal, so that a decision looks at those that can
apply and at no others (`matching`); those that allow something also by principal and operation, for
who asks whether there is anything at all (`allowing`). `version` is the position of the newest change: whoever
remembers decisions forgets them when it moves.

Invariants: only real values are kept (no ANY, MATCH, UNKNOWN); their number and the size of their
texts are bounded; the indexes have the rows and nothing else.

Left out: the decision itself (`broker.rights.authorizer`).
"""

from collections.abc import Iterable, Iterator
from typing import Final

from coordinator.commands.entries import DONE, Done, Rejected
from coordinator.commands.rights_commands import (
    AclBinding,
    AclsDeleted,
    ConfirmRights,
    CreateAcls,
    DeleteAcls,
    RightsCommand,
)
from protocol.acls import WILDCARD, Operation, PatternType, Permission, ResourceType
from protocol.errors import ErrorCode
from protocol.types import POSITION_ZERO, Position

BINDINGS_MAX: Final = 100_000
"""Of the whole cluster."""
TEXT_MAX: Final = 32 * 1024 * 1024
"""Characters of all bindings together: they are in every agent's memory."""
RESOURCE_NAME_MAX: Final = 4_096
"""Characters; group ids and transactional ids may be longer than names of topics."""
PRINCIPAL_MAX: Final = 1_024
"""Characters: names of certificates are long."""
HOST_MAX: Final = 255

_Principals = dict[str, dict[AclBinding, None]]
"""The bindings of one pattern, by principal."""


class Acls:
    """All ACLs of the cluster. Iterates in the order in which they were made."""

    def __init__(self) -> None:
        self.version: Position = POSITION_ZERO
        self._rows: dict[AclBinding, None] = {}
        self._size = 0
        self._literal: dict[tuple[ResourceType, str], _Principals] = {}
        self._prefixed: dict[tuple[ResourceType, str], _Principals] = {}
        self._prefix_lengths: dict[ResourceType, dict[int, int]] = {}
        """How many prefixes of each length there are, by type of resource."""
        self._allowing: dict[tuple[ResourceType, str, Operation], dict[AclBinding, None]] = {}
        """Those that allow something, by principal and operation."""

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[AclBinding]:
        return iter(self._rows)

    def __contains__(self, binding: AclBinding) -> bool:
        return binding in self._rows

    def matching(self, resource_type: ResourceType, name: str) -> list[_Principals]:
        """The ACLs that apply to a resource, by principal, for each pattern that fits. Empty: the
        resource has none at all."""
        found = []
        for literal in (name, WILDCARD):
            if (here := self._literal.get((resource_type, literal))) is not None:
                found.append(here)
            if name == WILDCARD:
                break
        found += self.prefixes_of(resource_type, name)
        return found

    def prefixes_of(self, resource_type: ResourceType, name: str) -> Iterator[_Principals]:
        """The ACLs of each pattern that is a prefix of this name, by principal."""
        for length in self._prefix_lengths.get(resource_type, ()):
            if length <= len(name):
                here = self._prefixed.get((resource_type, name[:length]))
                if here is not None:
                    yield here

    def literally(self, resource_type: ResourceType, name: str) -> _Principals:
        """The ACLs of the literal pattern, by principal."""
        return self._literal.get((resource_type, name), {})

    def allowing(
        self, resource_type: ResourceType, principal: str, operation: Operation
    ) -> Iterable[AclBinding]:
        """Those that allow this very principal this very operation on something."""
        return self._allowing.get((resource_type, principal, operation), ())

    def names(self, resource_type: ResourceType, name: str) -> bool:
        """Whether an ACL is about a resource by its very name, not by a prefix, nor about all."""
        return name != WILDCARD and (resource_type, name) in self._literal

    # For `apply`.

    def apply(self, command: RightsCommand, position: Position) -> Done | Rejected | AclsDeleted:
        """Judge, then carry out."""
        match command:
            case CreateAcls(bindings):
                return self._create(bindings, position)
            case DeleteAcls(bindings):
                return self._delete(bindings, position)
            case ConfirmRights():
                return DONE

    def validate(self, bindings: Iterable[AclBinding]) -> Rejected | None:
        """Why these cannot be made; None when they can."""
        fresh = dict.fromkeys([each for each in bindings if each not in self._rows])
        for binding in fresh:
            if (reason := misfit(binding)) is not None:
                return Rejected(ErrorCode.INVALID_REQUEST, reason)
        if len(self._rows) + len(fresh) > BINDINGS_MAX:
            reason = f"there are at most {BINDINGS_MAX} ACLs"
            return Rejected(ErrorCode.POLICY_VIOLATION, reason)
        if self._size + sum(map(_size_of, fresh)) > TEXT_MAX:
            reason = f"all ACLs together have at most {TEXT_MAX} characters"
            return Rejected(ErrorCode.POLICY_VIOLATION, reason)
        return None

    def _create(self, bindings: Iterable[AclBinding], position: Position) -> Done | Rejected:
        if (rejected := self.validate(bindings)) is not None:
            return rejected
        for binding in bindings:
            if binding not in self._rows:
                self._add(binding)
                self.version = position
        return DONE

    def _delete(self, bindings: Iterable[AclBinding], position: Position) -> AclsDeleted:
        deleted = []
        for binding in bindings:
            deleted.append(binding in self._rows)
            if deleted[-1]:
                self._remove(binding)
                self.version = position
        return AclsDeleted(tuple(deleted))

    def _add(self, binding: AclBinding) -> None:
        assert binding not in self._rows
        self._rows[binding] = None
        self._size += _size_of(binding)
        key = (binding.resource_type, binding.name)
        index = self._index_of(binding)
        principals = index.get(key)
        if principals is None:
            principals = index[key] = {}
            if binding.pattern_type is PatternType.PREFIXED:
                lengths = self._prefix_lengths.setdefault(binding.resource_type, {})
                lengths[len(binding.name)] = lengths.get(len(binding.name), 0) + 1
        principals.setdefault(binding.principal, {})[binding] = None
        if binding.permission is Permission.ALLOW:
            self._allowing.setdefault(_allowed_by(binding), {})[binding] = None

    def _remove(self, binding: AclBinding) -> None:
        del self._rows[binding]
        self._size -= _size_of(binding)
        if binding.permission is Permission.ALLOW:
            allowing = self._allowing[_allowed_by(binding)]
            del allowing[binding]
            if not allowing:
                del self._allowing[_allowed_by(binding)]
        key = (binding.resource_type, binding.name)
        index = self._index_of(binding)
        principals = index[key]
        del principals[binding.principal][binding]
        if not principals[binding.principal]:
            del principals[binding.principal]
        if principals:
            return
        del index[key]
        if binding.pattern_type is PatternType.PREFIXED:
            lengths = self._prefix_lengths[binding.resource_type]
            lengths[len(binding.name)] -= 1
            if not lengths[len(binding.name)]:
                del lengths[len(binding.name)]
            if not lengths:
                del self._prefix_lengths[binding.resource_type]

    def _index_of(self, binding: AclBinding) -> dict[tuple[ResourceType, str], _Principals]:
        is_prefix = binding.pattern_type is PatternType.PREFIXED
        return self._prefixed if is_prefix else self._literal


def misfit(binding: AclBinding) -> str | None:
    """Why this cannot be an ACL, as a sentence; None when it can."""
    if binding.resource_type in {ResourceType.UNKNOWN, ResourceType.ANY}:
        return "an ACL is about a resource of one type"
    if binding.pattern_type not in {PatternType.LITERAL, PatternType.PREFIXED}:
        return "the pattern of an ACL is literal or a prefix"
    if binding.operation in {Operation.UNKNOWN, Operation.ANY}:
        return "an ACL is about one operation, or ALL"
    if binding.permission not in {Permission.DENY, Permission.ALLOW}:
        return "an ACL allows or denies"
    for what, text, most in (
        ("name of a resource", binding.name, RESOURCE_NAME_MAX),
        ("principal", binding.principal, PRINCIPAL_MAX),
        ("host", binding.host, HOST_MAX),
    ):
        if not 0 < len(text) <= most:
            return f"the {what} has 1 to {most} characters"
    return None


def _size_of(binding: AclBinding) -> int:
    return len(binding.name) + len(binding.principal) + len(binding.host)


def _allowed_by(binding: AclBinding) -> tuple[ResourceType, str, Operation]:
    return binding.resource_type, binding.principal, binding.operation
