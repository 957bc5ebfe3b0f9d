"""Rights in a snapshot: ACLs.

A friend of the module. They come last, and only when there is something in them, so that the snapshot
of a cluster that has not used them is one that the release before reads, too. The index of ACLs
is made again from the rows.
"""

from typing import Final

from coordinator.commands.layout import Layout, layout_of
from coordinator.commands.rights_commands import AclBinding
from coordinator.snapshot.rows import POSITION, Fields, read, read_fields, write, write_fields
from coordinator.snapshot.stream import BlockReader, BlockWriter
from coordinator.tables.administration.acls import Acls
from protocol.types import POSITION_ZERO

_ACLS: Final[Fields] = {"version": POSITION}
_BINDING: Final[Layout[AclBinding]] = layout_of(AclBinding)


def has_rights(acls: Acls) -> bool:
    """Whether there is anything to be written."""
    return acls.version != POSITION_ZERO


def dump_rights(out: BlockWriter, acls: Acls, *, more_follows: bool) -> None:
    """`more_follows`: something comes behind them, so they cannot be left out."""
    if has_rights(acls) or more_follows:
        write_fields(out, (acls, _ACLS))
        write(out, acls, len(acls), _BINDING)


def restore_rights(parts: BlockReader, acls: Acls) -> None:
    empty = Acls()
    for name in vars(empty):
        setattr(acls, name, getattr(empty, name))
    if parts.is_at_end:
        return
    read_fields(parts, (acls, _ACLS))
    for binding in read(parts, _BINDING):
        acls._add(binding)
