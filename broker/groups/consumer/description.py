"""ConsumerGroupDescribe: a KIP-848 group as its operators see it. Pure."""

from collections.abc import Sequence
from typing import Final

from broker.groups.consumer.image import GroupImage
from broker.groups.consumer.members import Member, Partitions
from broker.groups.consumer.steps import preferred_assignor
from coordinator.tables.topics import Topics
from protocol.messages import (
    ConsumerGroupAssignment,
    ConsumerGroupMember,
    DescribedConsumerGroup,
    NamedTopicPartitions,
)

TYPE_CLASSIC: Final = 0
TYPE_CONSUMER: Final = 1
"""Of members (KIP-1099)."""


def described(
    group_id: str, state: str, image: GroupImage, assignors: Sequence[str], topics: Topics
) -> DescribedConsumerGroup:
    """`assignors`: those served, the default first."""
    return DescribedConsumerGroup(
        group_id=group_id,
        group_state=state,
        group_epoch=image.epoch,
        assignment_epoch=image.assignment_epoch,
        assignor_name=preferred_assignor(image.members.values(), assignors),
        members=[_described(member, topics) for member in image.members.values()],
    )


def _described(member: Member, topics: Topics) -> ConsumerGroupMember:
    return ConsumerGroupMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscription.names),
        subscribed_topic_regex=member.subscription.regex or None,
        assignment=_named(member.assigned, topics),
        target_assignment=_named(member.target, topics),
        member_type=TYPE_CONSUMER if member.classic is None else TYPE_CLASSIC,
    )


def _named(partitions: Partitions, topics: Topics) -> ConsumerGroupAssignment:
    """Topics that are gone have no name and are left out, as in Kafka."""
    named = [
        NamedTopicPartitions(
            topic_id=topic_id, topic_name=topic.name, partitions=sorted(partitions[topic_id])
        )
        for topic_id in sorted(partitions)
        if (topic := topics.by_id(topic_id)) is not None
    ]
    return ConsumerGroupAssignment(topic_partitions=named)
