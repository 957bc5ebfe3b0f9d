"""One step of a member from what it is assigned towards its target (KIP-848). Pure.

    STABLE ──new target──▶ does it have what the target does not give it?
                             yes: UNREVOKED_PARTITIONS, in its old epoch, until it no longer
                                  reports them as its own
                             no:  the target's epoch, and what of the target is free:
                                  all of it: STABLE · else: UNRELEASED_PARTITIONS, asks again

What a member takes nobody else may own; what it gives up is its own until it says that it has
revoked it. So partitions change hands one by one, and nobody who keeps what he has stops working.

As Kafka's CurrentAssignmentBuilder, but that a step which would only make the previous epoch
equal to the present one is none: a heartbeat that changes nothing writes nothing.
"""

from collections.abc import Callable, Container

from broker.groups.consumer.members import NOTHING, Member, MemberState, Partitions, share, union
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicId

_NONE: frozenset[int] = frozenset()


def reconcile(
    member: Member,
    *,
    epoch: int,
    owned: Partitions | None,
    is_free: Callable[[TopicId, int], bool],
    subscribed: Container[TopicId] | None = None,
) -> Member:
    """The member after one step towards its target, which is that of `epoch`.

    `owned`: what the member says that it has; None: it does not say. `is_free`: no other member
    owns the partition. `subscribed`: the topics of its subscription, if that has just changed.
    Raises KafkaError (FENCED_MEMBER_EPOCH) when nothing can be known of the member.
    """
    match member.state:
        case MemberState.STABLE if member.epoch == epoch:
            return member
        case MemberState.UNREVOKED_PARTITIONS if _still_has(member.revoking, owned):
            return member if subscribed is None else _revoke_unsubscribed(member, subscribed)
        case MemberState.UNKNOWN if owned is None or owned:
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The consumer group member is in a unknown state. "
                "The member must abandon all its partitions and rejoin.",
            )
        case _:
            return _next(member, epoch, owned, is_free)


def _still_has(revoking: Partitions, owned: Partitions | None) -> bool:
    return owned is None or share(owned, revoking)


def _next(
    member: Member,
    epoch: int,
    owned: Partitions | None,
    is_free: Callable[[TopicId, int], bool],
) -> Member:
    kept: dict[TopicId, frozenset[int]] = {}
    surplus: dict[TopicId, frozenset[int]] = {}
    for topic, numbers in member.assigned.items():
        target = member.target.get(topic, _NONE)
        if keeps := numbers & target:
            kept[topic] = keeps
        if keeps != numbers:
            surplus[topic] = numbers - target
    if surplus and _still_has(surplus, owned):
        return _after(member, MemberState.UNREVOKED_PARTITIONS, member.epoch, kept, surplus)
    waits = False
    for topic, target in member.target.items():
        missing = target - kept.get(topic, _NONE)
        if not missing:
            continue
        free = frozenset([number for number in missing if is_free(topic, number)])
        waits = waits or len(free) < len(missing)
        if free:
            kept[topic] = kept.get(topic, _NONE) | free
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return _after(member, state, epoch, kept, NOTHING)


def _revoke_unsubscribed(member: Member, subscribed: Container[TopicId]) -> Member:
    """It revokes already; topics that it has just unsubscribed from join what it must give up."""
    surplus = {
        topic: numbers for topic, numbers in member.assigned.items() if topic not in subscribed
    }
    if not surplus:
        return member
    kept = {topic: numbers for topic, numbers in member.assigned.items() if topic in subscribed}
    revoking = union(member.revoking, surplus)
    return _after(member, MemberState.UNREVOKED_PARTITIONS, member.epoch, kept, revoking)


def _after(
    member: Member, state: MemberState, epoch: int, assigned: Partitions, revoking: Partitions
) -> Member:
    if (state, epoch, assigned, revoking) == (
        member.state,
        member.epoch,
        member.assigned,
        member.revoking,
    ):
        return member
    return member._replace(
        state=state,
        epoch=epoch,
        previous_epoch=member.epoch,
        assigned=assigned,
        revoking=revoking,
    )
