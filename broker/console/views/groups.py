"""Groups in a list, and one group with its members and lag. Pure.

All of it is from the rows that every agent has, so no coordinator is asked: what only the coordinator knows (who was
heard of last, who is waited for in a rebalance) is not here. Lag is counted to the log's end, as Kafka's tools do.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final, NamedTuple

from broker.console.views.page_of_rows import ROWS_MAX, Asked, PageOfRows, page_of
from broker.groups.classic import rows as classic_rows
from broker.groups.consumer import rows as consumer_rows
from coordinator.commands.group_commands import GROUP_SHARDS, GroupKind
from coordinator.machine.machine import Machine
from coordinator.tables.groups import GroupRow, shard_of
from protocol.consumer_protocol import PROTOCOL_TYPE, read_assignment
from protocol.errors import ProtocolError
from protocol.types import TopicId

OFFSETS_SUMMED_MAX: Final = 5_000
"""On one page of the list."""
MEMBERS_SHOWN_MAX: Final = 200


class GroupSummary(NamedTuple):
    """A group in the list."""

    group_id: str
    kind: str
    """`classic` or `consumer`."""
    members: int
    coordinator: str
    """The agent's name; "": nobody holds its shard now."""
    offsets: int
    """That it has committed."""
    lag: int | None
    """None: too many offsets stand on the page before it."""


class MemberView(NamedTuple):
    """A member of a group."""

    member_id: str
    instance_id: str
    client_id: str
    host: str
    epoch: int
    assigned: tuple[tuple[str, tuple[int, ...]], ...]
    """Partitions by topic."""


class LagRow(NamedTuple):
    """What a group has committed of a partition."""

    topic: str
    partition: int
    committed: int
    end: int
    lag: int
    client_id: str
    """Of the member that has it; "": none."""
    age_ms: int
    """Since the commit."""


class GroupView(NamedTuple):
    """One group."""

    summary: GroupSummary
    epoch: int
    protocol: str
    """What its members are: `consumer`, `connect`, …"""
    members: tuple[MemberView, ...]
    """The first MEMBERS_SHOWN_MAX."""
    lags: PageOfRows[LagRow]


def groups_view(machine: Machine, asked: Asked) -> PageOfRows[GroupSummary]:
    """A page of the list, by group id."""
    page = page_of((group.group_id for group in _groups(machine)), asked)
    rows, left = list[GroupSummary](), OFFSETS_SUMMED_MAX
    for group in filter(None, map(machine.groups.get, page.rows)):
        left -= len(group.offsets)
        rows.append(_summary(machine, group, _lag(machine, group) if left >= 0 else None))
    return PageOfRows(rows, page.asked, page.found, page.total)


def group_view(machine: Machine, group: GroupRow, number: int) -> GroupView:
    """`number`: of the page of its offsets, or the last if there are fewer."""
    protocol, members = _members(machine, group)
    clients = {
        (topic, partition): member.client_id
        for member in members
        for topic, partitions in member.assigned
        for partition in partitions
    }
    total = len(group.offsets)
    last = max(1, -(-total // ROWS_MAX))
    asked = Asked(number=min(number, last))
    first = (asked.number - 1) * ROWS_MAX
    found = islice(_lags(machine, group, clients), first, first + ROWS_MAX)
    lag = _lag(machine, group) if total <= OFFSETS_SUMMED_MAX else None
    return GroupView(
        summary=_summary(machine, group, lag),
        epoch=group.epoch,
        protocol=protocol,
        members=tuple(members[:MEMBERS_SHOWN_MAX]),
        lags=PageOfRows(list(found), asked, total, total),
    )


def _groups(machine: Machine) -> Iterable[GroupRow]:
    for shard in range(GROUP_SHARDS):
        yield from machine.groups.of_shard(shard)


def _summary(machine: Machine, group: GroupRow, lag: int | None) -> GroupSummary:
    holder = machine.groups.holder(shard_of(group.group_id))
    agent = None if holder is None else machine.incarnations.get(holder)
    return GroupSummary(
        group_id=group.group_id,
        kind=group.kind.name.lower(),
        members=len(group.members),
        coordinator="" if agent is None else agent.node_name,
        offsets=len(group.offsets),
        lag=lag,
    )


def _lag(machine: Machine, group: GroupRow) -> int:
    return sum(row.lag for row in _lags(machine, group, {}))


def _lags(
    machine: Machine, group: GroupRow, clients: Mapping[tuple[str, int], str]
) -> Iterable[LagRow]:
    """Of topics that are there, by name."""
    names = {
        topic.name: topic_id
        for topic_id in group.offsets.topics()
        if (topic := machine.topics.by_id(topic_id)) is not None
    }
    for name in sorted(names):
        for partition, row in group.offsets.of_topic(names[name]):
            end = _end(machine, names[name], partition)
            yield LagRow(
                topic=name,
                partition=partition,
                committed=row.offset,
                end=end,
                lag=max(0, end - row.offset),
                client_id=clients.get((name, partition), ""),
                age_ms=machine.time_ms - row.committed_ms,
            )


def _end(machine: Machine, topic_id: TopicId, partition: int) -> int:
    found = machine.partitions.get(topic_id, partition)
    return 0 if found is None else found.end_offset


def _members(machine: Machine, group: GroupRow) -> tuple[str, list[MemberView]]:
    """The protocol's type, and the members by client."""
    if group.kind is GroupKind.CONSUMER:
        protocol, members = PROTOCOL_TYPE, _consumer_members(machine, group)
    else:
        protocol = classic_rows.decode_group(group.body).protocol_type or ""
        members = _classic_members(group, protocol)
    return protocol, sorted(members, key=lambda member: (member.client_id, member.member_id))


def _consumer_members(machine: Machine, group: GroupRow) -> list[MemberView]:
    found = []
    for member_id, row in group.members.items():
        member = consumer_rows.decode_member(member_id, row.epoch, row.body)
        named = {
            topic.name: tuple(sorted(numbers))
            for topic_id, numbers in member.assigned.items()
            if (topic := machine.topics.by_id(topic_id)) is not None
        }
        found.append(
            MemberView(
                member_id,
                member.instance_id or "",
                member.client_id,
                member.client_host,
                row.epoch,
                tuple(sorted(named.items())),
            )
        )
    return found


def _classic_members(group: GroupRow, protocol: str) -> list[MemberView]:
    found = []
    for member_id, row in group.members.items():
        body = classic_rows.decode_member(row.body)
        found.append(
            MemberView(
                member_id,
                body.instance_id or "",
                body.client_id,
                body.client_host,
                row.epoch,
                _assigned(protocol, body.assignment),
            )
        )
    return found


def _assigned(protocol: str, data: bytes) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Nothing for members that are no consumers, have none yet, or wrote what nobody can read."""
    if protocol != PROTOCOL_TYPE or not data:
        return ()
    try:
        assigned = read_assignment(data)
    except ProtocolError:
        return ()
    return tuple((topic, tuple(sorted(numbers))) for topic, numbers in sorted(assigned.items()))
