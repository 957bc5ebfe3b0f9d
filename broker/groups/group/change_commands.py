"""A change of a group, cut into commands that each fit into an entry. Pure.

`ChangeGroup` says what a cut change means: all commands but the last keep the group's epoch, so
whoever takes over in the middle sees members ahead of their group. Hence one is put before
anything else; then come the removals: a prefix has members too few, who are told to join again,
rather than dead ones to be waited for. (Removals alone leave members who are on their way out.)

Invariants: the commands put together are the change; each of them has at most
GROUP_COMMAND_ROWS_MAX rows and COMMAND_BYTES_MAX bytes; there is at least one.
"""

from collections.abc import Iterable, Sequence
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
    parts = _Parts(COMMAND_BYTES_MAX - _NUMBERS_BYTES - _bytes_of(group_id) - len(body))
    for member in put[:1]:
        parts.add_put(member)
    for member_id in removed:
        parts.add_removed(member_id)
    for member in put[1:]:
        parts.add_put(member)
    commands = []
    last = len(parts.put) - 1
    for index, (some_put, some_removed) in enumerate(zip(parts.put, parts.removed, strict=True)):
        epoch_after = epoch if index == last else max(epoch_before, 0)
        commands.append(
            ChangeGroup(
                group_id=group_id,
                kind=kind,
                epoch_before=epoch_before,
                epoch=epoch_after,
                body=body,
                put=tuple(some_put),
                removed=tuple(some_removed),
            )
        )
        epoch_before = epoch_after
    return Write(tuple(commands))


class _Parts:
    """Rows of the commands so far; the last one takes what comes."""

    def __init__(self, room: int) -> None:
        if room < 0:
            raise TooLargeError("a group's id and body that fit into no entry")
        self._room = room
        self._left = room
        self._rows = 0
        self.put: list[list[GroupMember]] = [[]]
        self.removed: list[list[str]] = [[]]

    def add_put(self, member: GroupMember) -> None:
        self._find_room(_ROW_NUMBERS_BYTES + _bytes_of(member.member_id) + len(member.body))
        self.put[-1].append(member)

    def add_removed(self, member_id: str) -> None:
        self._find_room(_ROW_NUMBERS_BYTES + _bytes_of(member_id))
        self.removed[-1].append(member_id)

    def _find_room(self, size: int) -> None:
        """Let the last command be one that a row of `size` bytes fits into."""
        if size > self._room:
            raise TooLargeError(f"a member of {size} bytes, at most {self._room}")
        if size > self._left or self._rows == GROUP_COMMAND_ROWS_MAX:
            self.put.append([])
            self.removed.append([])
            self._left = self._room
            self._rows = 0
        self._left -= size
        self._rows += 1


def _bytes_of(text: str) -> int:
    size = len(text.encode())
    if size > STRING_BYTES_MAX:
        raise TooLargeError(f"a string of {size} bytes, at most {STRING_BYTES_MAX}")
    return size
