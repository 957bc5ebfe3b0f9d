"""Losses in a snapshot.

A friend of the module. They come last, and only when something was declared lost, as eras do.
"""

from typing import Final

from coordinator.commands.layout import Layout, fields_of, list_of, tuple_of
from coordinator.snapshot.rows import INT, TOPIC_ID, UINT, read, write
from coordinator.snapshot.stream import BlockReader, BlockWriter
from coordinator.tables.losses import Loss, Losses

_PLACE: Final = tuple_of({"[0]": TOPIC_ID, "[1]": UINT})
_LOSS: Final[Layout[Loss]] = fields_of(Loss, base_offset=UINT, next_offset=UINT, declared_ms=INT)
_ROW: Final = tuple_of({"[0]": _PLACE, "[1]": list_of(_LOSS)})


def has_losses(losses: Losses) -> bool:
    """Whether there is anything to be written."""
    return bool(losses.rows)


def dump_losses(out: BlockWriter, losses: Losses) -> None:
    if has_losses(losses):
        write(out, losses.rows.items(), len(losses.rows), _ROW)


def restore_losses(parts: BlockReader, losses: Losses) -> None:
    found = () if parts.is_at_end else read(parts, _ROW)
    losses.rows = {place: tuple(each) for place, each in found}
