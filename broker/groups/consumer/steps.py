"""Computes what a member's heartbeat changes of a KIP-848 group: epoch, targets, the member's next step. Pure.

    1. another subscription, or other topics than the targets were computed from: group epoch + 1
    2. group epoch above the assignment epoch: targets for all members
    3. the member takes one step towards its target

As in Kafka's `consumerGroupHeartbeat`, all three in one request, for members of either protocol.

Targets of a big group take long to compute (some 20 ms for a thousand members), and when all its
members start at once each of them raises the epoch. So a big group rests after each; who joins in
the meantime is a member without partitions, in the epoch of the targets that there are, and one
of the next heartbeats computes for all of them (KIP-1263; there it is every second, for any group).
"""

from collections.abc import Iterable, Sequence
from typing import Final

from broker.groups.consumer import assignors
from broker.groups.consumer.delta import GroupDelta
from broker.groups.consumer.image import GroupImage
from broker.groups.consumer.members import NOTHING, Member, Partitions
from broker.groups.consumer.reconciliation import reconcile
from broker.groups.consumer.topics import (
    SubscribedTopics,
    SubscriptionMetadata,
    refuse_too_many,
)
from coordinator.tables.topics import Topics
from protocol.types import TopicId

EAGER_MEMBERS_MAX: Final = 100
"""Groups up to this size compute their targets in the request that needs them."""
REST_MS_PER_MEMBER: Final = 1
"""How long bigger ones rest: a few percent of a core."""


def advance(
    image: GroupImage,
    subscribed: SubscribedTopics,
    *,
    before: Member,
    after: Member,
    replaced: Member | None,
    owned: Partitions | None,
    topics: Topics,
    assignors_served: Sequence[str],
    now_ms: int,
) -> tuple[Member, GroupDelta | None]:
    """The member when its request is carried out, and the change to write, if there is one.

    `before`: the member as it was; with defaults when it joins, and in place of `replaced`, a
    static member under another id, that one under the new id. `after`: with what the request
    brings. `owned`: what the member says that it has; None: it does not say.
    Raises KafkaError: INVALID_REGULAR_EXPRESSION, FENCED_MEMBER_EPOCH.
    """
    topics_now: frozenset[TopicId] | None = None
    """Of the member's subscription, if that has changed."""
    if after.subscription != before.subscription:
        refuse_too_many(image.subscriptions, after.subscription)
        topics_now = subscribed.topics_of(after.subscription, topics)
    known = image.members.get(after.member_id)
    gone = [member for member in (known, replaced) if member is not None]
    epoch, assignment_epoch = image.epoch, image.assignment_epoch
    fingerprint = image.fingerprint
    others: list[Member] = []
    metadata: SubscriptionMetadata | None = None
    if topics_now is not None or image.is_fresh:
        epoch += 1
    elif epoch == assignment_epoch and subscribed.is_due(topics, now_ms):
        metadata = subscribed.metadata(image.subscriptions_with(gone, after), topics, now_ms)
        epoch += metadata.fingerprint != fingerprint
    if epoch > assignment_epoch and _may_assign(image, subscribed, after, now_ms):
        metadata = metadata or subscribed.metadata(
            image.subscriptions_with(gone, after), topics, now_ms
        )
        assignment_epoch, fingerprint = epoch, metadata.fingerprint
        others = [
            member
            for member in image.members.values()
            if member is not known and member is not replaced
        ]
        others, after = _with_targets(
            others, after, metadata, assignors_served, write_all=image.is_fresh
        )
    elif topics_now is not None:
        after = _with_target_in(topics_now, after)
    is_mine = (None, after.member_id, replaced.member_id if replaced is not None else None)

    def is_free(topic: TopicId, partition: int) -> bool:
        return image.owners.of(topic, partition) in is_mine

    settled = reconcile(
        after,
        epoch=assignment_epoch,
        owned=owned,
        is_free=is_free,
        subscribed=topics_now,
    )
    if settled == known and epoch == image.epoch and assignment_epoch == image.assignment_epoch:
        if metadata is not None:
            subscribed.acted_on(metadata)
        return known, None
    removed = (replaced.member_id,) if replaced is not None else ()
    put = (*others, settled)
    delta = GroupDelta(
        epoch, assignment_epoch, fingerprint, put, removed, heartbeat_of=settled, metadata=metadata
    )
    return settled, delta


def _may_assign(
    image: GroupImage, subscribed: SubscribedTopics, member: Member, now_ms: int
) -> bool:
    """A classic member is told to join again until it is in the newest epoch: for it at once."""
    count = len(image.members)
    return (
        count <= EAGER_MEMBERS_MAX
        or image.is_fresh
        or member.classic is not None
        or subscribed.has_rested(count * REST_MS_PER_MEMBER, now_ms)
    )


def _with_target_in(topics: frozenset[TopicId], member: Member) -> Member:
    """Until there are new targets it gets nothing of what it has unsubscribed from."""
    target = {topic: numbers for topic, numbers in member.target.items() if topic in topics}
    return member._replace(target=target)


def preferred_assignor(members: Iterable[Member], served: Sequence[str]) -> str:
    """The one that most members ask for; the first one served if none does, or of equals."""
    votes = dict.fromkeys(served, 0)
    for member in members:
        if member.server_assignor in votes:
            votes[member.server_assignor] += 1
    return max(served, key=lambda name: votes[name])


def _with_targets(
    others: Sequence[Member],
    after: Member,
    metadata: SubscriptionMetadata,
    assignors_served: Sequence[str],
    *,
    write_all: bool,
) -> tuple[list[Member], Member]:
    """New targets: the others whose row changes by that, and the member that asks."""
    members = [*others, after]
    targets = assignors.assign(
        preferred_assignor(members, assignors_served),
        [
            assignors.Member(
                member.member_id,
                member.instance_id,
                metadata.ids[member.subscription],
                member.target,
            )
            for member in members
        ],
        metadata.partitions,
    )
    changed: list[Member] = []
    for member in others:
        target = targets.get(member.member_id, NOTHING)
        if target != member.target:
            changed.append(member._replace(target=target))
        elif write_all:
            changed.append(member)
    return changed, after._replace(target=targets.get(after.member_id, NOTHING))
