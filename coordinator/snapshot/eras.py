"""Eras in a snapshot.

A friend of the module. They come only when there is one after the first, or something behind them, so that the snapshot of a
cluster that never lost its log is one that the release before reads, too.
"""

from typing import Final

from coordinator.commands.layout import Layout, fields_of, mapping_of, tuple_of
from coordinator.snapshot.rows import POSITION, TOPIC_ID, UINT, read, write
from coordinator.snapshot.stream import BlockReader, BlockWriter
from coordinator.tables.eras import EraRow, Eras

_PLACE: Final = tuple_of({"[0]": TOPIC_ID, "[1]": UINT})
_ENDS: Final = mapping_of(_PLACE, UINT)
_ERA: Final[Layout[EraRow]] = fields_of(EraRow, begun=POSITION, ends=_ENDS, stable_ends=_ENDS)


def has_eras(eras: Eras) -> bool:
    """Whether there is anything to be written."""
    return bool(eras.rows)


def dump_eras(out: BlockWriter, eras: Eras, *, more_follows: bool) -> None:
    """`more_follows`: something comes behind them, so they cannot be left out."""
    if has_eras(eras) or more_follows:
        write(out, eras.rows, len(eras.rows), _ERA)


def restore_eras(parts: BlockReader, eras: Eras) -> None:
    eras.set(() if parts.is_at_end else tuple(read(parts, _ERA)))
