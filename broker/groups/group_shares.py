"""Shares of what groups take, by client address: groups, members, committed offsets. Pure.

Of the cluster: groups, the bytes of their rows, offsets, and offsets that wait for the ends of
transactions; apply bounds them, and knows no addresses (`broker.calls.shares`). Of this agent:
groups that the log knows nothing of, and bytes that only memory has: requests that wait for a
group, ids that were given out (KIP-394), members that the log does not have yet. Nothing else bounds
those: a connection may close and leave what it asked for here, for as long as a session lasts.

What a group has counts for everybody who commits to it. Left out: how many members one group may
have, since who may join a group can stop it anyway.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from broker.calls.shares import Ledger, Owner
from broker.groups.commits import RequestedOffset
from broker.groups.group.live import LiveGroup
from coordinator.tables.groups import (
    GROUPS_MAX,
    GROUPS_SIZE_MAX,
    OFFSET_ROWS_MAX,
    PENDING_OFFSETS_MAX,
    GroupRow,
    Groups,
)
from protocol.errors import ErrorCode

JOINING_BYTES_MAX: Final = 64 << 20
"""Of requests that wait for groups, and of members that only this agent's memory has."""
MEMBER_BYTES: Final = 1_000
"""About what a member takes beside its id and metadata."""

_Member = tuple[str, str]
"""Group id and member id; "": the group without its members."""


class GroupShares:
    """What each address has. `live`: a group in this agent's memory."""

    def __init__(
        self,
        table: Groups,
        live: Callable[[str], LiveGroup | None],
        *,
        soft_groups_max: int,
        soft_groups: Callable[[], int],
    ) -> None:
        self._table = table
        self._live = live
        self._groups: Ledger[str] = Ledger(
            GROUPS_MAX,
            "groups",
            size_of=lambda group_id: table.get(group_id) is not None or live(group_id) is not None,
            used=lambda: len(table),
        )
        self._soft: Ledger[str] = Ledger(
            soft_groups_max,
            "groups that nothing is written of",
            size_of=lambda group_id: live(group_id) is not None and table.get(group_id) is None,
            used=soft_groups,
        )
        self._joining: Ledger[_Member] = Ledger(
            JOINING_BYTES_MAX,
            "bytes of requests and members that wait for groups",
            size_of=self._joining_size,
        )
        self._sizes: Ledger[_Member] = Ledger(
            GROUPS_SIZE_MAX,
            "bytes of groups",
            size_of=self._written_size,
            used=lambda: table.size,
        )
        self._rows: Ledger[str] = Ledger(
            OFFSET_ROWS_MAX,
            "committed offsets",
            size_of=lambda group_id: self._counts(group_id)[0],
            used=lambda: table.offset_rows,
        )
        self._pending: Ledger[str] = Ledger(
            PENDING_OFFSETS_MAX,
            "offsets that wait for the ends of transactions",
            size_of=lambda group_id: self._counts(group_id)[1],
            used=lambda: table.pending_rows,
        )

    # Requests, and members.

    def begin(self, owner: Owner, group_id: str, byte_count: int, *, joins: bool) -> None:
        """A request is to be asked of a group: it counts until its `end`. Raises KafkaError.

        `joins`: a member may come of it, or a group.
        """
        size = byte_count + MEMBER_BYTES
        self._joining.require(owner, size, code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if joins:
            self._sizes.require(owner, byte_count, code=ErrorCode.GROUP_MAX_SIZE_REACHED)
            if self._table.get(group_id) is None:
                self._groups.require(owner, code=ErrorCode.GROUP_MAX_SIZE_REACHED)
                if self._live(group_id) is None:
                    self._soft.require(owner, code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        self._joining.begin(owner, size)

    def asked(self, owner: Owner, group_id: str) -> None:
        """There is a live group now that may have been made for the request."""
        if self._table.get(group_id) is None:
            self._soft.note(owner, group_id)
            self._groups.note(owner, group_id)

    def end(self, owner: Owner, group_id: str, byte_count: int, member_id: str) -> None:
        """It is answered; `member_id`: who came of it, if anybody."""
        member = (group_id, member_id)
        size = byte_count + MEMBER_BYTES
        self._joining.settle(owner, member, size, made=member_id != "")
        if member_id:
            self._sizes.note(owner, member)

    # Offsets.

    @contextmanager
    def committing(
        self, owner: Owner, group_id: str, wanted: Sequence[RequestedOffset], *, pending: bool
    ) -> Iterator[None]:
        """While an owner's offsets are committed, they count, however many requests bring some;
        `pending`: in a transaction. Raises KafkaError."""
        is_new = self._table.get(group_id) is None
        rows, size = len(wanted), sum([len(each.metadata) for each in wanted])
        if not (self._rows.is_plenty(rows) and self._sizes.is_plenty(size)):
            rows, size = self._growth(group_id, wanted)
        asked: list[tuple[Ledger[Any], int]] = [
            (self._groups, int(is_new)),
            (self._rows, rows),
            (self._sizes, size),
            (self._pending, len(wanted) if pending else 0),
        ]
        asked = [(ledger, count) for ledger, count in asked if count]
        for ledger, count in asked:
            ledger.require(owner, count)
        for ledger, count in asked:
            ledger.begin(owner, count)
        try:
            yield
        finally:
            for ledger, count in asked:
                ledger.end(owner, count)
            self._committed(owner, group_id, is_new=is_new, pending=pending)

    def _committed(self, owner: Owner, group_id: str, *, is_new: bool, pending: bool) -> None:
        """Whatever has become of it."""
        row = self._table.get(group_id)
        if row is None:
            return
        group_id = row.group_id  # The table's own text, not one more that may be long.
        if is_new:
            self._groups.note(owner, group_id)
        if not self._rows.names(owner, group_id):
            self._rows.note(owner, group_id)
            self._sizes.note(owner, (group_id, ""))
        if pending:
            self._pending.note(owner, group_id)

    def _growth(self, group_id: str, wanted: Sequence[RequestedOffset]) -> tuple[int, int]:
        """Offsets and bytes that come on top of what the group has."""
        row = self._table.get(group_id)
        rows = size = 0
        for each in wanted:
            before = None
            if row is not None and each.topic is not None:
                before = row.offsets.get(each.topic.topic_id, each.partition)
            rows += before is None
            size += len(each.metadata) - (0 if before is None else len(before.metadata))
        return rows, max(size, 0)

    # What there is of each.

    def _joining_size(self, thing: _Member) -> int:
        group_id, member_id = thing
        group, row = self._live(group_id), self._table.get(group_id)
        if group is None or (row is not None and member_id in row.members):
            return 0
        size = group.member_size(member_id)
        return size + MEMBER_BYTES if size else 0

    def _written_size(self, thing: _Member) -> int:
        group_id, member_id = thing
        row = self._table.get(group_id)
        if row is None:
            return 0
        if member_id == "":
            return _size_without_members(row)
        member = row.members.get(member_id)
        return 0 if member is None else len(member_id) + len(member.body)

    def _counts(self, group_id: str) -> tuple[int, int, int]:
        row = self._table.get(group_id)
        return (0, 0, 0) if row is None else row.offsets.counts()


def _size_without_members(row: GroupRow) -> int:
    return len(row.group_id) + len(row.body) + row.offsets.counts()[2]
