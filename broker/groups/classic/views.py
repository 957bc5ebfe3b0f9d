"""Decodes the bytes of a classic group's members: topics, owners, descriptions. Pure.

Only of groups whose protocol type is "consumer"; the bytes are between the members, and a
coordinator that cannot read them knows nothing, which is no error.
"""

from collections.abc import Iterable

from broker.groups.classic.members import ClassicMember
from protocol.consumer_protocol import read_assignment, read_subscription
from protocol.errors import ProtocolError
from protocol.messages import DescribedGroupMember

Owners = dict[tuple[str, int], str]
"""Member ids by topic name and partition."""


def owners(members: Iterable[ClassicMember]) -> Owners:
    """Returns the owner of each partition; an assignment that cannot be read counts as empty."""
    found: Owners = {}
    for member in members:
        try:
            assigned = read_assignment(member.assignment)
        except ProtocolError:
            continue
        for topic, partitions in assigned.items():
            for partition in partitions:
                found[topic, partition] = member.member_id
    return found


def subscribed_topics(
    members: Iterable[ClassicMember], protocol_name: str | None
) -> frozenset[str] | None:
    """Topics that any member subscribes to. None: not known."""
    topics: set[str] = set()
    for member in members:
        metadata = member.metadata(protocol_name)
        if metadata is None:
            return None
        try:
            topics.update(read_subscription(metadata).topics)
        except ProtocolError:
            return None
    return frozenset(topics)


def described_member(member: ClassicMember, protocol_name: str | None) -> DescribedGroupMember:
    """With the metadata of a protocol; None: without."""
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(protocol_name) or b"",
        member_assignment=member.assignment,
    )
