"""The change of a KIP-848 group that a request makes (a delta), and the commands that write it. Pure.

A new target may move partitions of any number of members, so a change may be larger than an
entry. It is then several commands, each whole in itself (`coordinator.commands.group_commands`):

 - the first raises the group epoch; until the last, the assignment epoch stays behind it, so
   whoever takes over in the middle computes the target again, from targets of which some are old;
 - the last one alone has the member that asked, with its new epoch and what it is assigned, and
   removes the one that it replaces: nobody is in an epoch whose target is not whole.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.groups.consumer.members import Member
from broker.groups.consumer.rows import GroupBody, encode_group, encode_member
from broker.groups.consumer.topics import SubscriptionMetadata
from broker.groups.group.change_commands import Row, batches, size_of, write_of
from broker.groups.group.effects import Write
from coordinator.commands.encoding import CodecError
from coordinator.commands.group_commands import GroupKind, GroupMember
from coordinator.tables.groups import GROUP_COMMAND_ROWS_MAX
from protocol.errors import ErrorCode, KafkaError

COMMAND_BYTES_MAX: Final = 48 * 1024
"""Below what an entry takes, with room for what else is in a command."""
ROW_BYTES: Final = 16
"""What a row takes besides id and body, at most."""


class GroupDelta(NamedTuple):
    """The difference between a group's image and its next one."""

    epoch: int
    assignment_epoch: int
    fingerprint: bytes
    put: tuple[Member, ...] = ()
    """The member that asked is the last one."""
    removed: tuple[str, ...] = ()
    heartbeat_of: Member | None = None
    """The member whose heartbeat this was."""
    metadata: SubscriptionMetadata | None = None
    """At the topics that the targets take account of."""


def delta_commands(
    group_id: str,
    before: GroupBody,
    epoch_before: int,
    delta: GroupDelta,
    row_ids: Sequence[str] | None = None,
) -> Write:
    """The change as commands; `before` and `epoch_before` are what the log has.

    `row_ids`: the ids that the log has, when all members are put; those of others go first.
    Raises KafkaError when a member does not fit into an entry.
    """
    rows = [_row(member) for member in delta.put]
    first: list[Row]
    last: list[Row] = []
    if row_ids is not None:
        ids = {row.member_id for row in rows}
        first, last = [*(gone for gone in row_ids if gone not in ids), *rows[:-1]], [*rows[-1:]]
    elif rows:
        first, last = [*rows[:-1]], [*delta.removed, rows[-1]]
    else:
        first = [*delta.removed]
    parts = batches(
        first,
        last,
        overhead=ROW_BYTES,
        bytes_max=COMMAND_BYTES_MAX,
        rows_max=GROUP_COMMAND_ROWS_MAX,
    )
    behind = [encode_group(before)] * (len(parts) - 1)
    body = encode_group(GroupBody(delta.assignment_epoch, delta.fingerprint))
    epochs = [epoch_before, *[delta.epoch] * len(parts)]
    return write_of(group_id, GroupKind.CONSUMER, parts, epochs=epochs, bodies=[*behind, body])


def _row(member: Member) -> GroupMember:
    try:
        row = GroupMember(member.member_id, member.epoch, encode_member(member))
    except CodecError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{error}.") from error
    if size_of(row, ROW_BYTES) > COMMAND_BYTES_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"The subscription and assignment of member {member.member_id} take {len(row.body)} "
            f"bytes, at most {COMMAND_BYTES_MAX}.",
        )
    return row
