"""A member of one protocol's group as a member of the other's, also in rows. Pure.

A classic member of a KIP-848 group owns what it was assigned by SyncGroup, and what it has not
given up yet; as a member of a classic group that is its assignment, and the other way round.

A change of a large group is several commands. Whoever takes over between those of a migration
finds members that are written as of the other kind; `as_consumer` and `as_classic` show the row
as if they were not, with the members' epochs, which are not the group's: all join again.
"""

from dataclasses import replace

from broker.groups.classic import members as classic_members
from broker.groups.classic import rows
from broker.groups.consumer import rows as consumer_rows
from broker.groups.consumer.members import (
    NOTHING,
    ClassicMember,
    Member,
    Partitions,
    Subscription,
    union,
)
from broker.groups.migration.classic_in_consumer import assignment_of, owned_by_id
from coordinator.commands.encoding import CodecError
from coordinator.tables.groups import GroupRow, MemberRow
from coordinator.tables.topics import Topics
from protocol.consumer_protocol import read_assignment, read_subscription
from protocol.errors import ProtocolError
from protocol.types import TopicId, TopicPartition

_NONE: frozenset[int] = frozenset()


def as_member(
    member: classic_members.ClassicMember, epoch: int, protocol_name: str, topics: Topics
) -> Member:
    """A classic member as one of a KIP-848 group that is settled. Raises ProtocolError."""
    subscriptions = {name: read_subscription(data) for name, data in member.protocols}
    subscription = subscriptions[protocol_name]
    assigned: Partitions = NOTHING
    if member.assignment:
        assigned = owned_by_id(read_assignment(member.assignment), topics)
    return _unsubscribed(member, epoch)._replace(
        rack_id=subscription.rack_id,
        subscription=Subscription(names=frozenset(subscription.topics)),
        assigned=assigned,
        target=assigned,
    )


def _unsubscribed(member: classic_members.ClassicMember, epoch: int) -> Member:
    return Member(
        member.member_id,
        epoch=epoch,
        previous_epoch=epoch,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMember(member.session_timeout_ms, member.protocols),
    )


def as_classic_member(member: Member, topics: Topics) -> classic_members.ClassicMember:
    """A classic member of a KIP-848 group as one of a classic group."""
    assert member.classic is not None
    return classic_members.ClassicMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols=member.classic.protocols,
        assignment=assignment_of(member, union(member.assigned, member.revoking), topics),
    )


def places(partitions: Partitions) -> set[TopicPartition]:
    return {
        TopicPartition(topic, number) for topic, numbers in partitions.items() for number in numbers
    }


# Rows.


def as_consumer(row: GroupRow, topics: Topics) -> GroupRow:
    """The row of a KIP-848 group, of whose members some may be classic ones. Raises ValueError."""
    foreign = _written_as(row, rows.FORMAT_VERSION)
    if not foreign:
        return row
    taken: set[TopicPartition] = set()
    for member_id, (epoch, body) in row.members.items():
        if member_id not in foreign:
            taken |= places(consumer_rows.decode_member(member_id, epoch, body).assigned)
    members = dict(row.members)
    for member_id in foreign:
        epoch, body = row.members[member_id]
        old = classic_members.ClassicMember(
            member_id=member_id, **rows.decode_member(body)._asdict()
        )
        member = _late(old, epoch, taken, topics)
        taken |= places(member.assigned)
        members[member_id] = MemberRow(epoch, consumer_rows.encode_member(member))
    return replace(row, members=members)


def as_classic(row: GroupRow, topics: Topics) -> GroupRow:
    """The row of a classic group, of whose members some may be of KIP-848. Raises ValueError.

    Those that speak that protocol, of which there are some until the next command, are left out.
    """
    foreign = _written_as(row, consumer_rows.FORMAT_VERSION)
    if not foreign:
        return row
    members = dict(row.members)
    for member_id in foreign:
        epoch, body = members.pop(member_id)
        member = consumer_rows.decode_member(member_id, epoch, body)
        if member.classic is None:
            continue
        try:
            body = rows.encode_member(as_classic_member(member, topics))
        except CodecError as error:
            raise ValueError(f"member '{member_id}' as a classic one: {error}") from error
        members[member_id] = MemberRow(epoch, body)
    return replace(row, members=members)


def _late(
    member: classic_members.ClassicMember, epoch: int, taken: set[TopicPartition], topics: Topics
) -> Member:
    """As `as_member`, but always.

    Groups with metadata that cannot be read, or partitions assigned twice, are not migrated; but
    here may be a member that was gone already, of whom nobody asked that.
    """
    try:
        found = as_member(member, epoch, member.protocols[0][0], topics)
    except ProtocolError:
        return _unsubscribed(member, epoch)
    free: dict[TopicId, frozenset[int]] = {}
    for topic, partition in places(found.assigned) - taken:
        free[topic] = free.get(topic, _NONE) | {partition}
    return found._replace(assigned=free, target=free)


def _written_as(row: GroupRow, version: int) -> list[str]:
    """Members whose bodies begin with this version."""
    return [id_ for id_, member in row.members.items() if member.body.startswith(bytes((version,)))]
