"""Delegation tokens in a snapshot.

A friend of the module. They come behind credentials, and only when there ever were any, so that the
snapshot of a cluster without them is one that the release before reads, too.
"""

from typing import Final

from coordinator.commands.layout import Layout, layout_of
from coordinator.snapshot.rows import POSITION, Fields, read, read_fields, write, write_fields
from coordinator.snapshot.stream import BlockReader, BlockWriter
from coordinator.tables.administration.delegation_tokens import DelegationToken, DelegationTokens
from protocol.types import POSITION_ZERO

_TOKENS: Final[Fields] = {"version": POSITION}
_TOKEN: Final[Layout[DelegationToken]] = layout_of(DelegationToken)


def has_tokens(tokens: DelegationTokens) -> bool:
    """Whether there is anything to be written."""
    return tokens.version != POSITION_ZERO


def dump_tokens(out: BlockWriter, tokens: DelegationTokens, *, more_follows: bool) -> None:
    """`more_follows`: something comes behind them, so they cannot be left out."""
    if has_tokens(tokens) or more_follows:
        write_fields(out, (tokens, _TOKENS))
        write(out, tokens, len(tokens), _TOKEN)


def restore_tokens(parts: BlockReader, tokens: DelegationTokens) -> None:
    empty = DelegationTokens()
    for name in vars(empty):
        setattr(tokens, name, getattr(empty, name))
    if parts.is_at_end:
        return
    read_fields(parts, (tokens, _TOKENS))
    for row in read(parts, _TOKEN):
        tokens._rows[row.token_id] = row
