"""A group changes its protocol while its members stay (KIP-848, "Online Upgrade"). Pure.

    classic   ──the first member of KIP-848 joins──▶                                  consumer
    consumer  ──the last member of KIP-848 leaves, is given up, or is replaced──▶     classic
    either    ──the first member of the other kind joins, when there is nobody in it──▶ the other

The first two as `group.consumer.migration.policy` allows, the third always. Members keep their
ids, and the group's epoch goes on: a generation becomes an epoch, and the other way round.

Upgrade: every classic member becomes a member of its generation's epoch which is assigned what its
leader gave it; the one that joins raises the epoch, so they are all behind and told to join again
(`classic_in_consumer`). Those that are parked in a rebalance are told so at once.

Downgrade: the group rebalances, and is in that state in the log, too. As assignment each member
has what it *owns*, not its target as in Kafka: nobody is told it before the rebalance ends, and a
group that is upgraded again in the middle must not give away what somebody still has. A static
member that replaces the last one of KIP-848 joins that rebalance; in Kafka there is none then, and
a member that was behind may share a partition with its next owner until its next heartbeat.

Refused with GROUP_ID_NOT_FOUND, as in Kafka: groups of other protocol types, larger than a
KIP-848 group may be, with a custom assignor (its user data would be lost) or metadata that cannot
be read; and, beyond Kafka, with a partition that two members have. Also beyond Kafka: a member
that was given up before a downgrade is told UNKNOWN_MEMBER_ID, so that it comes back.
"""

from collections.abc import Iterable
from typing import Final, Self

from typing_extensions import override

from broker.config.group_settings import GroupSettings
from broker.groups.classic.group import ClassicGroup
from broker.groups.classic.phases import State
from broker.groups.consumer.delta import GroupDelta
from broker.groups.consumer.image import GroupImage
from broker.groups.consumer.members import Member
from broker.groups.consumer.requests import refused, validate
from broker.groups.group.effects import Answer, Caller, Effects, ReplaceGroup, TopicsSeen, Write
from broker.groups.group.live import LiveGroup
from broker.groups.migration.classic_in_consumer import MixedGroup
from broker.groups.migration.members import (
    as_classic,
    as_classic_member,
    as_consumer,
    as_member,
    places,
)
from coordinator.commands.encoding import CodecError
from coordinator.commands.group_commands import GroupKind
from coordinator.tables.groups import GroupRow
from coordinator.tables.topics import Topics
from protocol.consumer_protocol import PROTOCOL_TYPE, read_assignment_user_data
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
)
from protocol.types import TopicPartition

UPGRADES: Final = frozenset({"upgrade", "bidirectional"})
DOWNGRADES: Final = frozenset({"downgrade", "bidirectional"})
"""Values of `group.consumer.migration.policy`."""


def new(kind: GroupKind, group_id: str, settings: GroupSettings, topics: Topics) -> LiveGroup:
    """A group that the log does not know."""
    if kind is GroupKind.CLASSIC:
        return MigratingClassicGroup.new(group_id, settings)
    return MigratingConsumerGroup(group_id, settings, GroupImage(), topics=topics)


def loaded(row: GroupRow, settings: GroupSettings, topics: Topics, now_ms: int) -> LiveGroup:
    """After a takeover. Raises ValueError for bodies of an unknown version."""
    if row.kind is GroupKind.CLASSIC:
        return MigratingClassicGroup.taken_over(row, settings, topics, now_ms)
    image = GroupImage.of(as_consumer(row, topics))
    return MigratingConsumerGroup(row.group_id, settings, image, now_ms, topics=topics)


class MigratingClassicGroup(ClassicGroup):
    """A classic group that members of KIP-848 may join."""

    @classmethod
    def taken_over(
        cls, row: GroupRow, settings: GroupSettings, topics: Topics, now_ms: int
    ) -> Self:
        """Raises ValueError."""
        read = as_classic(row, topics)
        group = cls.loaded(read, settings, now_ms)
        if read is not row:
            group.rebalance(row, now_ms)
        return group

    def rebalance(self, row: GroupRow, now_ms: int) -> None:
        """The row was cut in the middle of a downgrade, and has members that are not."""
        self._row_ids = tuple(row.members)
        if self._state is State.STABLE:
            self._prepare(now_ms)

    def is_behind(self, member_id: str, seen: TopicsSeen) -> bool:
        return False

    def consumer_heartbeat(
        self, caller: Caller, request: ConsumerGroupHeartbeatRequest, topics: Topics
    ) -> Effects:
        try:
            validate(request, caller.version, self.settings.consumer_assignors)
            if request.member_epoch != 0:
                raise self._not_a_member(request)
            group = self._upgraded(topics, caller.now_ms)
        except KafkaError as error:
            return [Answer(caller.token, refused(error))]
        effects = group.consumer_heartbeat(caller, request, topics)
        if not any(isinstance(effect, Write) for effect in effects):
            return effects  # It may not join; nothing has happened here.
        parked = self.abandon(ErrorCode.REBALANCE_IN_PROGRESS)
        return [*parked, ReplaceGroup(group), *effects]

    def _not_a_member(self, request: ConsumerGroupHeartbeatRequest) -> KafkaError:
        """It was given up before the group went back to the classic protocol, or replaced.

        Kafka's GROUP_ID_NOT_FOUND would end the consumer for good. Unknown, it joins again, and
        the group with it, if that is allowed. A static member that was replaced is to end.
        """
        instance_id = request.instance_id
        if instance_id is not None and self.members.id_of(instance_id) is not None:
            message = f"Static member {request.member_id} ({instance_id}) was replaced."
            return KafkaError(ErrorCode.FENCED_INSTANCE_ID, message)
        may_join = self._state is State.EMPTY or (
            self.protocol_type == PROTOCOL_TYPE
            and self.settings.consumer_migration_policy in UPGRADES
        )
        if request.member_epoch > 0 and may_join:
            message = f"Member {request.member_id} is not a member of group {self.group_id}."
            return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, message)
        return _not_found(f"Group {self.group_id} is not a consumer group.")

    def _upgraded(self, topics: Topics, now_ms: int) -> "MigratingConsumerGroup":
        """The group in which that member is to join. Raises KafkaError."""
        members = []
        if len(self.members):
            self._check_upgrade()
            members = self._as_members(topics)
        epoch = max(self.generation, self._row_epoch, 0)
        image = GroupImage.converted(self._row_epoch, self._row_ids, epoch, members)
        return MigratingConsumerGroup(self.group_id, self.settings, image, now_ms, topics=topics)

    def _check_upgrade(self) -> None:
        """Kafka's validateOnlineUpgrade. Raises KafkaError."""
        settings = self.settings
        if settings.consumer_migration_policy not in UPGRADES:
            reason = "online upgrade is disabled"
        elif self.protocol_type != PROTOCOL_TYPE:
            reason = "its members do not use the consumer embedded protocol"
        elif len(self.members) > settings.consumer_max_size:
            reason = "its size exceeds the maximum of a consumer group"
        else:
            return
        raise self._cannot(reason)

    def _as_members(self, topics: Topics) -> list[Member]:
        """Raises KafkaError."""
        protocol_name = self.protocol_name or self.members.select_protocol()
        taken: set[TopicPartition] = set()
        converted = []
        try:
            for member in self.members:
                if member.assignment and read_assignment_user_data(member.assignment):
                    raise self._cannot("an unsupported custom assignor is in use")
                one = as_member(member, self.generation, protocol_name, topics)
                owned = places(one.assigned)
                if taken & owned:
                    raise self._cannot("a partition is assigned to two of its members")
                taken |= owned
                converted.append(one)
        except ProtocolError as error:
            raise self._cannot("the embedded consumer protocol is malformed") from error
        return converted

    def _cannot(self, reason: str) -> KafkaError:
        return _not_found(
            f"Cannot upgrade classic group {self.group_id} to consumer group because {reason}."
        )


class MigratingConsumerGroup(MixedGroup):
    """A KIP-848 group that becomes a classic one when only classic members are left."""

    _now_ms = 0
    """Of the call that is under way."""

    @override
    def consumer_heartbeat(
        self, caller: Caller, request: ConsumerGroupHeartbeatRequest, topics: Topics
    ) -> Effects:
        self._now_ms = caller.now_ms
        return super().consumer_heartbeat(caller, request, topics)

    @override
    def tick(self, now_ms: int) -> Effects:
        self._now_ms = now_ms
        return super().tick(now_ms)

    @override
    def join(self, caller: Caller, request: JoinGroupRequest) -> Effects:
        self._now_ms = caller.now_ms
        if not self.image.members:
            group = self._downgraded(())
            return [ReplaceGroup(group), *group.join(caller, request)]
        replaced = self._replaced_by(request)
        if replaced is None or not self._may_downgrade({replaced}):
            return super().join(caller, request)
        group = self._downgraded({replaced})
        if refusal := group.join(caller, request):
            return refusal
        return [ReplaceGroup(group), *group.save()]

    @override
    def leave(self, caller: Caller, request: LeaveGroupRequest) -> Effects:
        self._now_ms = caller.now_ms
        return super().leave(caller, request)

    def _replaced_by(self, request: JoinGroupRequest) -> str | None:
        """The member of KIP-848 whose place a static member of the classic protocol takes."""
        if request.group_instance_id is None or request.member_id:
            return None
        existing = self.image.static_member(request.group_instance_id)
        return existing.member_id if existing is not None and existing.classic is None else None

    @override
    def write_delta(self, delta: GroupDelta | None, answers: list[Answer]) -> Effects:
        """A change after which only classic members are left makes it a classic group."""
        if delta is None or delta.put or not self._may_downgrade(delta.removed):
            return super().write_delta(delta, answers)
        if all(member_id in delta.removed for member_id in self.image.members):
            return super().write_delta(delta, answers)
        group = self._downgraded(delta.removed)
        try:
            return [ReplaceGroup(group), *group.save(answers)]
        except CodecError:
            # A member fits into no entry, as a classic one: it stays what it is.
            return super().write_delta(delta, answers)

    def _may_downgrade(self, removed: Iterable[str]) -> bool:
        """Kafka's validateOnlineDowngrade: are those the last members of KIP-848?"""
        members = self.image.members
        speakers = {member.member_id for member in members.values() if member.classic is None}
        return (
            bool(speakers)
            and speakers <= {*removed}
            and self.settings.consumer_migration_policy in DOWNGRADES
            and len(members) - len({*removed}) <= self.settings.max_size
        )

    def _downgraded(self, removed: Iterable[str]) -> MigratingClassicGroup:
        """The classic group without these members."""
        gone = {*removed}
        members = [
            as_classic_member(member, self.topics)
            for member in self.image.members.values()
            if member.member_id not in gone
        ]
        return MigratingClassicGroup.migrated(
            self.group_id,
            self.settings,
            row_epoch=self.image.row_epoch,
            row_ids=self.image.members,
            generation=self.image.epoch,
            members=members,
            now_ms=self._now_ms,
        )


def _not_found(message: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)
