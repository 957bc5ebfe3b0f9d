"""The server-side assignors of KIP-848: range and uniform. Pure.

    uniform   even and sticky (`broker.groups.consumer.uniform`)
    range     of every topic, adjacent partitions to each subscriber, and the subscribers in the
              same order for all topics: where topics have as many partitions and the same
              subscribers, partition n of each goes to the same member (co-partitioning)

Every partition of every topic that somebody subscribes to goes to exactly one of its
subscribers. What comes out depends on what goes in and on nothing else: members count in the
order of their instance ids, those without one behind, by member id (Kafka's RangeAssignor), so a
static member that returns under a new member id has its old place. Range, as in Kafka 4, does not
look at what was assigned; that order is all that is sticky about it.

Racks: any agent serves any partition, in every zone, so no assignment is nearer to a member than
another, and an assignor that does not ask for racks is all the rack awareness there is to have.
A member's rack id is kept and described; which agent it fetches from is decided when it fetches
(`broker.fetch.fetch_path`).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from broker.groups.consumer.uniform import Assignment, assign_uniformly, same_subscribers
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicId


class Member(NamedTuple):
    """The fields of a member that assignors read."""

    member_id: str
    instance_id: str | None
    subscribed: frozenset[TopicId]
    """Of a topic that `partitions` lacks nobody gets anything."""
    assigned: Mapping[TopicId, frozenset[int]]
    """What it has in the target assignment so far."""


def assign(
    name: str, members: Sequence[Member], partitions: Mapping[TopicId, int]
) -> dict[str, Assignment]:
    """The partitions of every member by its id; `partitions` are the sizes of the topics.

    Raises KafkaError (UNSUPPORTED_ASSIGNOR) for a name that is not one.
    """
    ordered = sorted(members, key=_place)
    subscribed = [member.subscribed for member in ordered]
    if name == "uniform":
        found = assign_uniformly(subscribed, [member.assigned for member in ordered], partitions)
    elif name == "range":
        found = _assign_ranges(subscribed, partitions)
    else:
        raise KafkaError(ErrorCode.UNSUPPORTED_ASSIGNOR, f"There is no assignor {name!r}.")
    return {member.member_id: assignment for member, assignment in zip(ordered, found, strict=True)}


def _place(member: Member) -> tuple[bool, str, str]:
    return (member.instance_id is None, member.instance_id or "", member.member_id)


def _assign_ranges(
    subscribed: Sequence[frozenset[TopicId]], partitions: Mapping[TopicId, int]
) -> list[Assignment]:
    found: list[Assignment] = [{} for _ in subscribed]
    for topics, places in same_subscribers(subscribed, partitions):
        for topic in topics:
            each, extra = divmod(partitions[topic], len(places))
            start = 0
            for nth, place in enumerate(places if each else places[:extra]):
                end = start + each + (nth < extra)
                found[place][topic] = frozenset(range(start, end))
                start = end
    return found
