"""What `frazil group` prints: groups, members and lag as tables and JSON. Pure.

A group of either protocol becomes one `GroupView`; lag is counted to the log's end, as Kafka's
tools do. Leaves out: asking for it (`broker.cli.groups.group_tool`), planning a reset (`broker.cli.groups.group_reset`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.reports.tables import Cell, table
from protocol.consumer_protocol import PROTOCOL_TYPE, read_assignment
from protocol.errors import ErrorCode, ProtocolError

if TYPE_CHECKING:
    from protocol.messages import (
        ConsumerGroupAssignment,
        ConsumerGroupMember,
        DescribedConsumerGroup,
        DescribedGroup,
        DescribedGroupMember,
        ListedGroup,
    )

Partition = tuple[str, int]
"""Of a topic by its name, as it is printed."""

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
EMPTY: Final = "Empty"
DEAD: Final = "Dead"
STATES: Final = (
    EMPTY,
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "Stable",
    DEAD,
)
"""Of groups of both protocols, under Kafka's names."""
REBALANCING: Final = frozenset(STATES) - {EMPTY, "Stable", DEAD}

WORDS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.NON_EMPTY_GROUP: "it has members; stop its consumers first",
    ErrorCode.UNKNOWN_MEMBER_ID: "it has members now; stop its consumers first",
    ErrorCode.INVALID_GROUP_ID: "that is not a group id",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "you may not do that with this group",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "you may not do that with the topic",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such partition",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "the metadata is too long",
}


class MemberView(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    epoch: int | None
    """Of KIP-848; the classic protocol does not tell it."""
    assigned: Mapping[str, Sequence[int]]
    """Partitions by topic."""
    target: Mapping[str, Sequence[int]] | None
    """What it will have when the group has settled (KIP-848)."""


class CoordinatorView(NamedTuple):
    node_id: int
    host: str
    port: int


class GroupView(NamedTuple):
    group_id: str
    kind: str
    """CLASSIC or CONSUMER."""
    state: str
    protocol_type: str
    """What the members are: "consumer", "connect", …; "" when there were never any."""
    assignor: str
    epoch: int | None
    """Group epoch (KIP-848)."""
    target_epoch: int | None
    coordinator: CoordinatorView
    members: Sequence[MemberView]


class PartitionView(NamedTuple):
    topic: str
    partition: int
    committed: int | None
    end: int | None
    """None: the topic or partition is gone."""
    metadata: str
    """What the consumer put beside the offset."""
    member: MemberView | None

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.end is None:
            return None
        return self.end - self.committed


def error_text(code: ErrorCode, message: str = "", words: Mapping[ErrorCode, str] = WORDS) -> str:
    """What an error of the cluster means, for a sentence about what `words` speak of."""
    if code in words:
        return words[code]
    return f"{message} ({code.name})" if message else code.name


def of_classic(group: "DescribedGroup", coordinator: CoordinatorView) -> GroupView:
    return GroupView(
        group_id=group.group_id,
        kind=CLASSIC,
        state=group.group_state,
        protocol_type=group.protocol_type,
        assignor=group.protocol_data,
        epoch=None,
        target_epoch=None,
        coordinator=coordinator,
        members=[_classic_member(group, member) for member in group.members],
    )


def _classic_member(group: "DescribedGroup", member: "DescribedGroupMember") -> MemberView:
    return MemberView(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        epoch=None,
        assigned=_classic_assignment(group.protocol_type, member.member_assignment),
        target=None,
    )


def _classic_assignment(protocol_type: str, data: bytes) -> Mapping[str, Sequence[int]]:
    """Nothing for members that are not consumers, have none yet, or wrote what nobody can read."""
    if protocol_type != PROTOCOL_TYPE or not data:
        return {}
    try:
        return read_assignment(data)
    except ProtocolError:
        return {}


def of_consumer(group: "DescribedConsumerGroup", coordinator: CoordinatorView) -> GroupView:
    return GroupView(
        group_id=group.group_id,
        kind=CONSUMER,
        state=group.group_state,
        protocol_type=PROTOCOL_TYPE,
        assignor=group.assignor_name,
        epoch=group.group_epoch,
        target_epoch=group.assignment_epoch,
        coordinator=coordinator,
        members=[_consumer_member(member) for member in group.members],
    )


def _consumer_member(member: "ConsumerGroupMember") -> MemberView:
    return MemberView(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.client_host,
        epoch=member.member_epoch,
        assigned=_by_name(member.assignment),
        target=_by_name(member.target_assignment),
    )


def _by_name(assignment: "ConsumerGroupAssignment") -> Mapping[str, Sequence[int]]:
    return {row.topic_name: row.partitions for row in assignment.topic_partitions}


def owners(group: GroupView) -> dict[Partition, MemberView]:
    """The member of each assigned partition."""
    return {
        (topic, partition): member
        for member in group.members
        for topic, partitions in member.assigned.items()
        for partition in partitions
    }


def group_lines(groups: "Iterable[ListedGroup]") -> list[str]:
    """The table of `frazil group list`, by group id."""
    rows = sorted(
        (row.group_id, row.group_type.lower(), row.group_state, row.protocol_type) for row in groups
    )
    if not rows:
        return ["there are no groups"]
    return table(
        ("GROUP", "TYPE", "STATE", "PROTOCOL"),
        [[cell or None for cell in row] for row in rows],
    )


def list_json(groups: "Iterable[ListedGroup]") -> list[dict[str, Any]]:
    """The groups by id, for programs."""
    return [
        {
            "group_id": row.group_id,
            "type": row.group_type.lower(),
            "state": row.group_state,
            "protocol_type": row.protocol_type,
        }
        for row in sorted(groups, key=lambda row: row.group_id)
    ]


def describe_lines(group: GroupView, partitions: Sequence[PartitionView]) -> list[str]:
    """Who the group is, and every partition with its lag."""
    lines = [_headline(group)]
    if partitions:
        lines.append("")
        lines += table(
            ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER", "HOST", "CLIENT"),
            [
                [row.topic, row.partition, row.committed, row.end, row.lag, *_who(row.member)]
                for row in partitions
            ],
        )
        lags = [row.lag for row in partitions if row.lag is not None]
        unknown = len(partitions) - len(lags)
        without = f", not counting {count(unknown, 'partition')} without one" if unknown else ""
        lines += ["", f"lag {sum(lags)} in {count(len(lags), 'partition')}{without}"]
    else:
        lines.append("no offsets are committed and no partitions assigned")
    return lines


def _who(member: MemberView | None) -> tuple[Cell, Cell, Cell]:
    if member is None:
        return None, None, None
    return member.member_id, member.host, member.client_id


def member_lines(group: GroupView) -> list[str]:
    """Who the group is, and every member with its partitions."""
    lines = [_headline(group)]
    if not group.members:
        return lines
    headers = ["MEMBER", "INSTANCE", "HOST", "CLIENT", "PARTITIONS", "ASSIGNED"]
    if group.kind == CONSUMER:
        headers[4:4] = ["EPOCH"]
        headers.append("TARGET")
    rows: list[list[Cell]] = []
    for member in sorted(group.members, key=lambda member: (member.client_id, member.member_id)):
        partitions = sum(map(len, member.assigned.values()))
        row = [member.member_id, member.instance_id, member.host, member.client_id]
        rest: list[Cell] = [partitions, compact(member.assigned)]
        if group.kind == CONSUMER:
            rest = [member.epoch, *rest, compact(member.target or {})]
        rows.append([*row, *rest])
    return [*lines, "", *table(headers, rows)]


def _headline(group: GroupView) -> str:
    idle = sum(not any(member.assigned.values()) for member in group.members)
    members = count(len(group.members), "member")
    if idle:
        members += f" ({idle} without partitions)"
    parts = [group.state or "state unknown", f"{group.kind} protocol", members]
    if group.protocol_type not in ("", PROTOCOL_TYPE):
        parts.append(f"of type {group.protocol_type}")
    if group.epoch is not None:
        behind = f" (assigned: {group.target_epoch})" if group.target_epoch != group.epoch else ""
        parts.append(f"epoch {group.epoch}{behind}")
    if group.assignor:
        parts.append(f"assignor {group.assignor}")
    node_id, host, port = group.coordinator
    parts.append(f"coordinator {node_id} at {host}:{port}")
    return f"{group.group_id}: {', '.join(parts)}"


def describe_json(group: GroupView, partitions: Sequence[PartitionView]) -> dict[str, Any]:
    """Everything that `describe` knows, for programs."""
    described = group._asdict()
    described["type"] = described.pop("kind")
    described["coordinator"] = group.coordinator._asdict()
    described["members"] = [member._asdict() for member in group.members]
    described["partitions"] = [
        {**row._asdict(), "lag": row.lag, "member": row.member and row.member.member_id}
        for row in partitions
    ]
    return described


def compact(assigned: Mapping[str, Sequence[int]]) -> str | None:
    """`orders(0-3,7) users(1)`; None for nothing."""
    parts = [
        f"{topic}({_ranges(partitions)})"
        for topic, partitions in sorted(assigned.items())
        if partitions
    ]
    return " ".join(parts) or None


def _ranges(numbers: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)


def count(number: int, noun: str) -> str:
    """`1 page`, `2 pages`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
