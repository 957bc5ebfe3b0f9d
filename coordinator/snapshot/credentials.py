"""Credentials of SCRAM's users in a snapshot.

A friend of the module. They come behind all other tables, and only when there ever was one, so that
the snapshot of a cluster that has no users is one that the release before reads, too.
"""

from typing import Final

from coordinator.commands.credential_commands import ScramMechanism
from coordinator.commands.layout import Layout, layout_of
from coordinator.snapshot.rows import read, write
from coordinator.snapshot.stream import BlockReader, BlockWriter
from coordinator.tables.administration.credentials import (
    Credentials,
    FirstCredential,
    ScramCredential,
)

_FIRST: Final[Layout[FirstCredential]] = layout_of(FirstCredential)
_USER: Final = layout_of(tuple[str, dict[ScramMechanism, ScramCredential]])


def has_credentials(credentials: Credentials) -> bool:
    """Whether there is anything to be written."""
    return not credentials.is_untouched


def dump_credentials(out: BlockWriter, credentials: Credentials, *, more_follows: bool) -> None:
    """`more_follows`: something comes behind them, so they cannot be left out."""
    first = () if credentials.first is None else (credentials.first,)
    if not first and not more_follows:
        return
    write(out, first, len(first), _FIRST)
    write(out, credentials._rows.items(), len(credentials._rows), _USER)


def restore_credentials(parts: BlockReader, credentials: Credentials) -> None:
    empty = Credentials()
    for name in vars(empty):
        setattr(credentials, name, getattr(empty, name))
    if parts.is_at_end:
        return
    for first in read(parts, _FIRST):
        credentials.first = first
    for user, row in read(parts, _USER):
        for mechanism, credential in row.items():
            credentials._put(user, mechanism, credential)
