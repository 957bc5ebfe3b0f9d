"""Members of the classic protocol in a KIP-848 group, while it is migrated (KIP-848). Pure.

    JoinGroup    its subscription is the member's, its generation the member epoch; the partitions
                 that it still owns say what it has given up; the answer names no leader
    SyncGroup    what the member is assigned in its epoch, which nobody had to compute for it
    Heartbeat    REBALANCE_IN_PROGRESS when there is a step to take: then it joins again
    LeaveGroup   members of either protocol: administrators remove them so, since Kafka 4.1

So a classic member takes with every JoinGroup the step that a heartbeat is to others. Eager
assignors give up everything before they join; cooperative ones keep what they have, revoke what
SyncGroup does not give them any more, and join again: then it is free for others.

Soft, beside sessions: a member that was told to join again, and one that has joined and is to ask
for its assignment, have their rebalance timeout for it, and are not members after that. After a
takeover this begins anew with the next heartbeat.

As in Kafka (`classicGroupJoinToConsumerGroup` and what is beside it), but that metadata that cannot
be read is INCONSISTENT_GROUP_PROTOCOL, and that a static member which takes the place of one that
spoke KIP-848 does not inherit its regular expression.
"""

from collections.abc import Sequence
from typing import Final

from typing_extensions import override

from broker.config.group_settings import GroupSettings
from broker.groups.classic.requests import (
    MEMBER_ID_REQUIRED_FROM,
    NAME_BYTES_MAX,
    is_session_timeout,
    leave_all,
    protocols_of,
    rebalance_timeout_ms_of,
)
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.image import GroupImage
from broker.groups.consumer.members import (
    ClassicMember,
    Member,
    MemberState,
    Partitions,
    Subscription,
)
from broker.groups.consumer.steps import advance
from broker.groups.group.deadlines import Deadlines
from broker.groups.group.effects import Answer, Caller, Effects
from coordinator.tables.topics import Topics
from protocol import consumer_protocol
from protocol.consumer_protocol import PROTOCOL_TYPE, read_subscription, write_assignment
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.messages import (
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupResponse,
)
from protocol.types import TopicId

_NONE: Final = ErrorCode.NONE


class MixedGroup(ConsumerGroup):
    """A KIP-848 group whose members may speak either protocol."""

    def __init__(
        self,
        group_id: str,
        settings: GroupSettings,
        image: GroupImage,
        now_ms: int | None = None,
        *,
        topics: Topics,
    ) -> None:
        super().__init__(group_id, settings, image, now_ms)
        self.topics: Final = topics
        """The cluster's, whose names and ids change under us."""
        self._joins = Deadlines()
        """Until when members that were told so are to join again."""
        self._syncs = Deadlines()
        """Until when members that have joined are to ask for their assignment."""
        self._deadlines += [self._joins, self._syncs]

    # JoinGroup.

    def join(self, caller: Caller, request: JoinGroupRequest) -> Effects:
        try:
            return self._join(caller, request)
        except KafkaError as error:
            refusal = JoinGroupResponse(error_code=error.code, member_id=request.member_id)
            return [Answer(caller.token, refusal)]

    def _join(self, caller: Caller, request: JoinGroupRequest) -> Effects:
        """Raises KafkaError."""
        self._check_join(request)
        member_id = request.member_id or caller.fresh_id
        self.refuse_when_full(member_id)
        if not self._agrees(request):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        is_dynamic = request.group_instance_id is None
        if is_dynamic and not request.member_id and caller.version >= MEMBER_ID_REQUIRED_FROM:
            told = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
            return [Answer(caller.token, told)]
        subscription = _subscription(request)
        before, replaced = self._find_joining(member_id, request)
        settled, delta = advance(
            self.image,
            self.subscribed,
            before=before,
            after=_joined(before, request, caller, subscription),
            replaced=replaced,
            owned=owned_by_id(subscription.owned, self.topics),
            topics=self.topics,
            assignors_served=self.settings.consumer_assignors,
            now_ms=caller.now_ms,
        )
        response = JoinGroupResponse(
            generation_id=settled.epoch,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=_protocol_name(settled),
            member_id=settled.member_id,
        )
        effects = self.write_delta(delta, [Answer(caller.token, response)])
        if delta is None:
            self._restart_session(settled, caller.now_ms)
        self._joins.drop(settled.member_id)
        self._syncs.set(settled.member_id, caller.now_ms + max(settled.rebalance_timeout_ms, 0))
        return effects

    def _check_join(self, request: JoinGroupRequest) -> None:
        """What can be said without looking at the members. Raises KafkaError."""
        if not is_session_timeout(request.session_timeout_ms, self.settings):
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
        if len((request.group_instance_id or "").encode()) > NAME_BYTES_MAX:
            raise KafkaError(ErrorCode.INVALID_REQUEST)

    def _agrees(self, request: JoinGroupRequest) -> bool:
        """Is one of its protocols known to all classic members, so that they could be a group?"""
        if request.protocol_type != PROTOCOL_TYPE:
            return False
        common = {protocol.name for protocol in request.protocols}
        for member in self.image.members.values():
            if member.classic is not None:
                common.intersection_update(name for name, _ in member.classic.protocols)
        return bool(common)

    def _find_joining(
        self, member_id: str, request: JoinGroupRequest
    ) -> tuple[Member, Member | None]:
        """The member that asks, and the static member that it replaces under a new id."""
        instance_id = request.group_instance_id
        if instance_id is None:
            return self._known(member_id, or_new=True), None
        existing = self.image.static_member(instance_id)
        if request.member_id:
            return self._of_instance(existing, member_id, instance_id), None
        if existing is None:
            return Member(member_id), None
        return existing._replace(member_id=member_id, epoch=0, previous_epoch=0), existing

    # SyncGroup.

    def sync(self, caller: Caller, request: SyncGroupRequest) -> Effects:
        try:
            member = self._classic(request.member_id, request.group_instance_id)
            self._check_sync(member, request, caller.now_ms)
        except KafkaError as error:
            return [Answer(caller.token, SyncGroupResponse(error_code=error.code))]
        self._syncs.drop(member.member_id)
        self._restart_session(member, caller.now_ms)
        response = SyncGroupResponse(
            protocol_type=PROTOCOL_TYPE,
            protocol_name=_protocol_name(member),
            assignment=assignment_of(member, member.assigned, self.topics),
        )
        return [Answer(caller.token, response)]

    def _check_sync(self, member: Member, request: SyncGroupRequest, now_ms: int) -> None:
        """Raises KafkaError."""
        if request.generation_id != member.epoch:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if request.protocol_type not in (None, PROTOCOL_TYPE):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if request.protocol_name not in (None, _protocol_name(member)):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        # Who has to revoke has joined already; it joins again when it has.
        is_behind = member.epoch < self.image.epoch
        if is_behind and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._await_join(member, now_ms)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    # Heartbeat, LeaveGroup.

    def heartbeat(
        self, member_id: str, generation: int, instance_id: str | None, now_ms: int
    ) -> ErrorCode:
        try:
            member = self._classic(member_id, instance_id)
        except KafkaError as error:
            return error.code
        if generation != member.epoch:
            return ErrorCode.ILLEGAL_GENERATION
        self._restart_session(member, now_ms)
        if not self._may_step(member):
            return _NONE
        self._await_join(member, now_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS

    def _may_step(self, member: Member) -> bool:
        """Would it come further if it joined again? Who has to revoke is behind."""
        if member.epoch < self.image.epoch:
            return True
        is_waiting = member.state is MemberState.UNRELEASED_PARTITIONS
        return is_waiting and not self._waits_for_others(member)

    def _waits_for_others(self, member: Member) -> bool:
        """Is a partition of its target owned by another? It joins again when none is."""
        for topic, target in member.target.items():
            for partition in target - member.assigned.get(topic, frozenset()):
                if self.image.owners.of(topic, partition) is not None:
                    return True
        return False

    def _await_join(self, member: Member, now_ms: int) -> None:
        if member.member_id not in self._joins:
            self._joins.set(member.member_id, now_ms + max(member.rebalance_timeout_ms, 0))

    def leave(self, caller: Caller, request: LeaveGroupRequest) -> Effects:
        gone: dict[str, None] = {}
        response = leave_all(caller, request, lambda identity: self._leaves(identity, gone))
        delta = self.image.without(gone) if gone else None
        return self.write_delta(delta, [Answer(caller.token, response)])

    def _leaves(self, identity: MemberIdentity, gone: dict[str, None]) -> ErrorCode:
        """Count a member among those who go; administrators name the instance id alone."""
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if member_id == "" and instance_id is not None:
            member_id = self.image.instances.get(instance_id, "")
        try:
            member = self._named(member_id, instance_id)
        except KafkaError as error:
            return error.code
        gone[member.member_id] = None
        return _NONE

    def _classic(self, member_id: str, instance_id: str | None) -> Member:
        """The classic member of this id. Raises KafkaError."""
        member = self._named(member_id, instance_id)
        if member.classic is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def _named(self, member_id: str, instance_id: str | None) -> Member:
        """The member of this id, of either protocol. Raises KafkaError."""
        member = self.image.members.get(member_id)
        if instance_id is not None:
            static = self.image.static_member(instance_id)
            if static is not None and static.member_id != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
            member = static
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    # The log, the clock.

    @override
    def written(self, now_ms: int) -> Effects:
        assert self._writing is not None
        put = self._writing[0].put
        effects = super().written(now_ms)
        for member in put:
            if member.classic is None:
                self._joins.drop(member.member_id)
                self._syncs.drop(member.member_id)
        return effects


def _subscription(request: JoinGroupRequest) -> consumer_protocol.Subscription:
    """What its first protocol says. Raises KafkaError."""
    try:
        return read_subscription(request.protocols[0].metadata)
    except ProtocolError as error:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error


def _joined(
    member: Member,
    request: JoinGroupRequest,
    caller: Caller,
    subscription: consumer_protocol.Subscription,
) -> Member:
    """The member with what the request says of it."""
    instance_id, rack_id = request.group_instance_id, subscription.rack_id
    return member._replace(
        instance_id=member.instance_id if instance_id is None else instance_id,
        rack_id=member.rack_id if rack_id is None else rack_id,
        rebalance_timeout_ms=rebalance_timeout_ms_of(request, caller.version),
        subscription=Subscription(names=frozenset(subscription.topics)),
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=ClassicMember(request.session_timeout_ms, protocols_of(request)),
    )


def _protocol_name(member: Member) -> str:
    assert member.classic is not None
    return member.classic.protocols[0][0]


def owned_by_id(named: dict[str, list[int]], topics: Topics) -> dict[TopicId, frozenset[int]]:
    """Partitions by the ids of the topics, of those that there are."""
    found: dict[TopicId, frozenset[int]] = {}
    for name, numbers in named.items():
        if (topic := topics.by_name(name)) is not None:
            there = frozenset(number for number in numbers if 0 <= number < topic.partition_count)
            if there:
                found[topic.topic_id] = there
    return found


def assignment_of(member: Member, partitions: Partitions, topics: Topics) -> bytes:
    """For a classic member, in the version that it speaks; topics that are gone are left out."""
    assert member.classic is not None
    named: dict[str, Sequence[int]] = {
        topic.name: sorted(partitions[topic_id])
        for topic_id in sorted(partitions)
        if (topic := topics.by_id(topic_id)) is not None
    }
    try:
        version = read_subscription(member.classic.protocols[0][1]).version
    except ProtocolError:
        version = 0
    return write_assignment(named, version=version)
