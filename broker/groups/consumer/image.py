"""The image of a KIP-848 group: its state in the log, advanced by deltas as they are written. Pure.

Invariants: the assignment epoch is not above the group epoch; no partition has two owners; an
instance id is of one member; `subscriptions` counts those of all members.
"""

from collections.abc import Iterable, Sequence
from typing import Self

from broker.groups.consumer.delta import GroupDelta
from broker.groups.consumer.members import Member, Owners, Subscription
from broker.groups.consumer.rows import GroupBody, decode_group, decode_member
from coordinator.commands.group_commands import GROUP_NEW
from coordinator.tables.groups import GroupRow


class GroupImage:
    def __init__(self, row_epoch: int = GROUP_NEW, row_ids: Sequence[str] = ()) -> None:
        """A group without members, of which nothing is in the log but `row_epoch` and these ids."""
        self.row_epoch = row_epoch
        """What ChangeGroup names as the epoch before."""
        self.row_ids = row_ids
        """While `is_fresh`: ids that the log has, of members of another protocol."""
        self.is_fresh = True
        """The next change writes all members, whatever the log has of them."""
        self.epoch = max(row_epoch, 0)
        self.assignment_epoch = self.epoch
        """The group epoch for which the members' targets were computed."""
        self.fingerprint = b""
        """Of the topics that they were computed from."""
        self.members: dict[str, Member] = {}
        self.instances: dict[str, str] = {}
        """Ids of static members by instance id."""
        self.owners = Owners()
        self.subscriptions: dict[Subscription, int] = {}
        """How many members have each."""

    @classmethod
    def of(cls, row: GroupRow) -> Self:
        """Raises ValueError."""
        image = cls(row.epoch)
        image.is_fresh = False
        image.assignment_epoch, image.fingerprint = decode_group(row.body)
        for member_id, (epoch, body) in row.members.items():
            image._add(decode_member(member_id, epoch, body))
        return image

    @classmethod
    def converted(
        cls, row_epoch: int, row_ids: Sequence[str], epoch: int, members: Iterable[Member]
    ) -> Self:
        """A group that has been of another protocol; its members have the targets of `epoch`."""
        image = cls(row_epoch, row_ids)
        image.epoch = image.assignment_epoch = epoch
        for member in members:
            image._add(member)
        return image

    @property
    def body(self) -> GroupBody:
        return GroupBody(self.assignment_epoch, self.fingerprint)

    def static_member(self, instance_id: str) -> Member | None:
        member_id = self.instances.get(instance_id)
        return self.members[member_id] if member_id is not None else None

    def subscriptions_with(self, gone: Iterable[Member], come: Member) -> list[Subscription]:
        """What the members subscribe to once these are gone and that one has come."""
        counts = dict(self.subscriptions)
        for member in gone:
            counts[member.subscription] -= 1
        counts[come.subscription] = counts.get(come.subscription, 0) + 1
        return [subscription for subscription, count in counts.items() if count]

    def without(self, member_ids: Iterable[str]) -> GroupDelta:
        """The group when these members are gone. Its targets wait for the next heartbeat."""
        return GroupDelta(
            self.epoch + 1, self.assignment_epoch, self.fingerprint, removed=tuple(member_ids)
        )

    def apply(self, delta: GroupDelta) -> None:
        """The log has the change."""
        assert delta.assignment_epoch <= delta.epoch
        assert delta.epoch >= self.epoch
        for member_id in delta.removed:
            self._forget(self.members.pop(member_id))
        added: list[Member] = []
        for member in delta.put:
            before = self.members.get(member.member_id)
            if before is not None and before == member._replace(target=before.target):
                self.members[member.member_id] = member  # Most of a big group: cheaply.
                continue
            if before is not None:
                self._forget(before)
            added.append(member)
        for member in added:
            self._add(member)
        self.row_epoch = self.epoch = delta.epoch
        self.assignment_epoch = delta.assignment_epoch
        self.fingerprint = delta.fingerprint
        self.is_fresh = False

    def state(self) -> str:
        """Kafka's names (`ConsumerGroupState`)."""
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if all(member.is_settled(self.assignment_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    def _add(self, member: Member) -> None:
        self.members[member.member_id] = member
        self.owners.take(member)
        self.subscriptions[member.subscription] = self.subscriptions.get(member.subscription, 0) + 1
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id

    def _forget(self, member: Member) -> None:
        """All but its place among the members."""
        self.owners.release(member)
        self.subscriptions[member.subscription] -= 1
        if not self.subscriptions[member.subscription]:
            del self.subscriptions[member.subscription]
        if member.instance_id is not None:
            del self.instances[member.instance_id]
