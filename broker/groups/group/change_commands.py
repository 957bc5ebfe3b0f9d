"""A change of a group, cut into commands that each fit into an entry. Pure.

`ChangeGroup` says what a cut change means: all commands but the last keep the group's epoch, so
whoever takes over in the middle sees members ahead of their group. Hence one is put before
anything else; then come the removals: a prefix has members too few, who are told to join again,
rather than dead ones to be waited for. (Removals alone leave members who are on their way out.)
Changes of KIP-848 groups come in another order (`broker.groups.consumer.delta`).

Invariants: the commands put together are the change; each of them has at most
GROUP_COMMAND_ROWS_MAX rows and COMMAND_BYTES_MAX bytes; there is at least one.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from broker.groups.group.effects import Write
from coordinator.commands.codec import ENTRY_BYTES_MAX, ENTRY_OVERHEAD_BYTES_MAX
from coordinator.commands.encoding import STRING_BYTES_MAX, CodecError
from coordinator.commands.group_commands import ChangeGroup, GroupKind, GroupMember
from coordinator.tables.groups import GROUP_COMMAND_ROWS_MAX

COMMAND_BYTES_MAX: Final = ENTRY_BYTES_MAX - ENTRY_OVERHEAD_BYTES_MAX

_NUMBERS_BYTES: Final = 32
"""What the numbers and lengths of a command take at most."""
_ROW_NUMBERS_BYTES: Final = 12
"""Likewise of one member: two lengths and an epoch."""

Row = GroupMember | str
"""One that is put, or the id of one that is removed."""


class TooLargeError(CodecError):
    """A part of the change fits into no entry, whatever else is in it."""


def group_write(
    group_id: str,
    *,
    kind: GroupKind,
    epoch_before: int,
    epoch: int,
    body: bytes,
    put: Sequence[GroupMember] = (),
    removed: Iterable[str] = (),
) -> Write:
    """The Write that changes a group; fields as in `ChangeGroup`. Raises TooLargeError.

    A change whose epoch is the one before cannot be told from a whole one when it was cut: who
    needs it whole looks at the number of commands.
    """
    assert epoch >= max(epoch_before, 0)
    room = COMMAND_BYTES_MAX - _NUMBERS_BYTES - _bytes_of(group_id) - len(body)
    if room < 0:
        raise TooLargeError("a group's id and body that fit into no entry")
    rows: list[Row] = [*put[:1], *removed, *put[1:]]
    for row in rows:
        _bytes_of(row if isinstance(row, str) else row.member_id)
        if (size := size_of(row, _ROW_NUMBERS_BYTES)) > room:
            raise TooLargeError(f"a member of {size} bytes, at most {room}")
    parts = batches(
        rows, overhead=_ROW_NUMBERS_BYTES, bytes_max=room, rows_max=GROUP_COMMAND_ROWS_MAX
    )
    kept = [max(epoch_before, 0)] * (len(parts) - 1)
    epochs = [epoch_before, *kept, epoch]
    return write_of(group_id, kind, parts, epochs=epochs, bodies=[body] * len(parts))


def write_of(
    group_id: str,
    kind: GroupKind,
    parts: Sequence[Sequence[Row]],
    *,
    epochs: Sequence[int],
    bodies: Sequence[bytes],
) -> Write:
    """A command for each part; `epochs`: the one before all, and the one after each."""
    commands = [
        ChangeGroup(
            group_id=group_id,
            kind=kind,
            epoch_before=before,
            epoch=after,
            body=body,
            put=tuple([row for row in part if isinstance(row, GroupMember)]),
            removed=tuple([row for row in part if isinstance(row, str)]),
        )
        for part, (before, after), body in zip(parts, pairwise(epochs), bodies, strict=True)
    ]
    return Write(tuple(commands))


def batches(
    rows: Iterable[Row],
    last: Sequence[Row] = (),
    *,
    overhead: int,
    bytes_max: int,
    rows_max: int,
) -> list[list[Row]]:
    """Rows by the command, in order, at least one; what is in `last` is together in the last one.

    `overhead`: what a row takes besides id and body. No row takes more than `bytes_max`.
    """
    found: list[list[Row]] = [[]]
    left = bytes_max
    for some in [*([row] for row in rows), last]:
        size = sum([size_of(row, overhead) for row in some])
        if found[-1] and (size > left or len(found[-1]) + len(some) > rows_max):
            found.append([])
            left = bytes_max
        found[-1].extend(some)
        left -= size
    return found


def size_of(row: Row, overhead: int) -> int:
    if isinstance(row, str):
        return overhead + len(row.encode())
    return overhead + len(row.member_id.encode()) + len(row.body)


def _bytes_of(text: str) -> int:
    size = len(text.encode())
    if size > STRING_BYTES_MAX:
        raise TooLargeError(f"a string of {size} bytes, at most {STRING_BYTES_MAX}")
    return size
