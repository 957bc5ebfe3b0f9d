"""Commands for rights: ACLs are made and taken away, and agents say that they know of it.

A binding is one ACL (KIP-11, KIP-290): who, from where, may or may not do what to which resource.
Lists are all or nothing. Deleting names bindings, not filters: whoever asks has looked at a replica
that has caught up, and the outcome says which of them were there at this position.

An ACL holds for an agent when it has applied the entry. So that an answer can say that it holds
everywhere, each agent answers such an entry with `ConfirmRights`, which changes nothing: the agent
that was asked waits for those of all that were live (docs/design/rights.md §3).
"""

from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple

from coordinator.commands.declaration import command, outcome
from coordinator.commands.layout import at_most, byte_of
from protocol.acls import Operation, PatternType, Permission, ResourceType
from protocol.types import Position

RIGHTS_LEVEL: Final = 4
"""`feature_level_max` of an agent that can decode these commands. While one that cannot is live,
none is proposed: it would stop (P13)."""
BINDINGS_PER_COMMAND_MAX: Final = 1_000


class AclBinding(NamedTuple):
    """One ACL."""

    resource_type: Annotated[ResourceType, byte_of(ResourceType)]
    pattern_type: Annotated[PatternType, byte_of(PatternType)]
    name: str
    """Of the resource, or a prefix of names."""
    principal: str
    """`User:alice`; `User:*`: everybody."""
    host: str
    """An address as text; "*": any."""
    operation: Annotated[Operation, byte_of(Operation)]
    permission: Annotated[Permission, byte_of(Permission)]


Bindings = Annotated[tuple[AclBinding, ...], at_most(BINDINGS_PER_COMMAND_MAX)]


@command(70)
@dataclass(frozen=True, slots=True)
class CreateAcls:
    """These ACLs are there from now on; those that were there already are no error."""

    bindings: Bindings


@command(71)
@dataclass(frozen=True, slots=True)
class DeleteAcls:
    """These ACLs are there no more."""

    bindings: Bindings


@command(72, bounds_log=True, changes_state=False)
@dataclass(frozen=True, slots=True)
class ConfirmRights:
    """The agent that writes this decides by everything that the log held up to this position."""

    position: Position


RightsCommand = CreateAcls | DeleteAcls | ConfirmRights


@outcome(20, rows="b")
@dataclass(frozen=True, slots=True)
class AclsDeleted:
    """For each binding of the command, whether it was there."""

    deleted: tuple[bool, ...]


RightsOutcome = AclsDeleted
