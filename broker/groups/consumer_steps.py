"""What a member's request makes of a KIP-848 group: epoch, targets, one step of the member. Pure.

    1. another subscription, or other topics than the targets were computed from: group epoch + 1
    2. group epoch above the assignment epoch: targets for all members
    3. the member takes one step towards its target

As in Kafka's `consumerGroupHeartbeat`, all three in one request, for members of either protocol.
"""

from collections.abc import Iterable, Sequence

from broker.groups import assignors
from broker.groups.consumer_changes import Change
from broker.groups.consumer_members import NOTHING, Member, Partitions
from broker.groups.consumer_picture import Picture
from broker.groups.consumer_topics import Look, SubscribedTopics, check_regex
from broker.groups.reconciliation import reconcile
from coordinator.topics import Topics
from protocol.types import TopicId


def advance(
    picture: Picture,
    subscribed: SubscribedTopics,
    *,
    before: Member,
    after: Member,
    replaced: Member | None,
    owned: Partitions | None,
    topics: Topics,
    assignors_served: Sequence[str],
    now_ms: int,
) -> tuple[Member, Change | None]:
    """The member when its request is carried out, and the change to write, if there is one.

    `before`: the member as it was; with defaults when it joins, and in place of `replaced`, a
    static member under another id, that one under the new id. `after`: with what the request
    brings. `owned`: what the member says that it has; None: it does not say.
    Raises KafkaError: INVALID_REGULAR_EXPRESSION, FENCED_MEMBER_EPOCH.
    """
    subscription_changed = after.subscription != before.subscription
    if subscription_changed and after.subscription.regex not in ("", before.subscription.regex):
        check_regex(after.subscription.regex)
    known = picture.members.get(after.member_id)
    gone = [member for member in (known, replaced) if member is not None]
    epoch, assignment_epoch = picture.epoch, picture.assignment_epoch
    fingerprint = picture.fingerprint
    must_raise = subscription_changed or picture.is_fresh
    others: list[Member] = []
    look: Look | None = None
    if must_raise or epoch > assignment_epoch or subscribed.is_due(topics, now_ms):
        look = subscribed.look(picture.subscriptions_with(gone, after), topics, now_ms)
        if must_raise or (epoch == assignment_epoch and look.fingerprint != fingerprint):
            epoch += 1
        if epoch > assignment_epoch:
            assignment_epoch, fingerprint = epoch, look.fingerprint
            others = [
                member
                for member in picture.members.values()
                if member is not known and member is not replaced
            ]
            others, after = _with_targets(
                others, after, look, assignors_served, write_all=picture.is_fresh
            )
    is_mine = (None, after.member_id, replaced.member_id if replaced is not None else None)

    def is_free(topic: TopicId, partition: int) -> bool:
        return picture.owners.of(topic, partition) in is_mine

    settled = reconcile(
        after,
        epoch=assignment_epoch,
        owned=owned,
        is_free=is_free,
        subscribed=look.ids[after.subscription] if look and subscription_changed else None,
    )
    if settled == known and epoch == picture.epoch and assignment_epoch == picture.assignment_epoch:
        if look is not None:
            subscribed.saw(look)
        return known, None
    removed = (replaced.member_id,) if replaced is not None else ()
    put = (*others, settled)
    change = Change(epoch, assignment_epoch, fingerprint, put, removed, beats=settled, look=look)
    return settled, change


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
    look: Look,
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
                member.member_id, member.instance_id, look.ids[member.subscription], member.target
            )
            for member in members
        ],
        look.partitions,
    )
    changed: list[Member] = []
    for member in others:
        target = targets.get(member.member_id, NOTHING)
        if target != member.target:
            changed.append(member._replace(target=target))
        elif write_all:
            changed.append(member)
    return changed, after._replace(target=targets.get(after.member_id, NOTHING))
