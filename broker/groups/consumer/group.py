"""A live group of KIP-848: epochs, target assignment, reconciliation. Pure.

    subscriptions, topics ──change──▶ group epoch + 1
    group epoch > assignment epoch ──next heartbeat──▶ new targets: assignment epoch = group epoch
    heartbeat of a member that is not settled ──▶ one step towards its target (`reconciliation`)

A request is decided as a `GroupDelta`: the next image of the group, as what differs. It is written,
and what it is of the group when the log has it (`written`); the answer waits for that. A
heartbeat that changes nothing is answered at once.

Soft: when a member's session ends and how long it may take to revoke, what regular expressions
match. A takeover gives every member a whole session timeout, and those that must revoke their
whole rebalance timeout; epochs stay as they are, so nobody joins again.

Differs from Kafka 4.3, deliberately:
 - a static member that joins again under its own id is itself, as a dynamic one is; Kafka refuses
   it (UNRELEASED_INSTANCE_ID), so a lost answer to a join would end a consumer;
 - regular expressions are resolved in the heartbeat that brings them, and again when there are
   other topics; nobody waits for a background task;
 - members whose sessions end together are one change of the group epoch;
 - topics that changed raise the group epoch only if no raise is waiting for its target anyway;
 - targets are computed at once, except in big groups (`consumer_steps`).

Left out: members that speak the classic protocol are kept and described here, what they may do is
decided in `broker.groups.migration`, as is the conversion from and to a classic group.
"""

from typing import Final

from broker.config.group_settings import GroupSettings
from broker.groups.consumer.delta import GroupDelta, delta_commands
from broker.groups.consumer.description import described
from broker.groups.consumer.image import GroupImage
from broker.groups.consumer.members import EPOCH_AWAY, NOTHING, Member, MemberState
from broker.groups.consumer.requests import (
    accepted,
    check_epoch,
    is_full,
    left,
    owned_by,
    refused,
    validate,
)
from broker.groups.consumer.steps import advance
from broker.groups.consumer.topics import SubscribedTopics, subscribes
from broker.groups.group.deadlines import Deadlines
from broker.groups.group.effects import Answer, Caller, Effects, TopicsSeen
from coordinator.commands.group_commands import GroupKind
from coordinator.tables.groups import MEMBERS_MAX
from coordinator.tables.topics import Topics
from protocol.consumer_protocol import PROTOCOL_TYPE
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedConsumerGroup,
    DescribedGroup,
)
from protocol.types import TopicId

COMMITS_WITH_MEMBER_EPOCH_FROM: Final = 9
"""Version of OffsetCommit."""


class ConsumerGroup:
    """What `broker.groups.group.live.LiveGroup` is to members of KIP-848; `MixedGroup` adds others."""

    kind: Final = GroupKind.CONSUMER
    protocol_type: Final = PROTOCOL_TYPE

    def __init__(
        self, group_id: str, settings: GroupSettings, image: GroupImage, now_ms: int | None = None
    ) -> None:
        """`now_ms` when there are members: all their time begins now."""
        self.group_id: Final = group_id
        self.settings = settings
        self.image: Final = image
        self.subscribed: Final = SubscribedTopics()
        self._sessions = Deadlines()
        self._revocations = Deadlines()
        self._deadlines = [self._sessions, self._revocations]
        """Of members: who misses one of them is no member any more."""
        self._writing: tuple[GroupDelta, list[Answer]] | None = None
        self._is_dead = False
        assert now_ms is not None or not image.members
        for member in image.members.values():
            assert now_ms is not None
            self._restart_session(member, now_ms)
            self._limit_revocation(member, now_ms)

    # KIP-848.

    def is_behind(self, member_id: str, seen: TopicsSeen) -> bool:
        """Whether the next heartbeat of the member has its expression resolved anew, since rights
        have changed."""
        member = self.image.members.get(member_id)
        return bool(member and member.subscription.regex) and self.subscribed.is_behind(seen)

    def consumer_heartbeat(
        self, caller: Caller, request: ConsumerGroupHeartbeatRequest, topics: Topics
    ) -> Effects:
        member = self.image.members.get(request.member_id)
        has_regex = request.subscribed_topic_regex or (member and member.subscription.regex)
        if caller.topics_seen is not None and has_regex:
            self.subscribed.show(caller.topics_seen)
        if member is not None and self._says_nothing_new(member, caller, request, topics):
            self._restart_session(member, caller.now_ms)
            response = accepted(member, self.settings.consumer_heartbeat_interval_ms, None)
            return [Answer(caller.token, response)]
        try:
            validate(request, caller.version, self.settings.consumer_assignors)
            if request.member_epoch < 0:
                response, delta = self._leave(request)
            else:
                response, delta = self._heartbeat(caller, request, topics)
            return self.write_delta(delta, [Answer(caller.token, response)])
        except KafkaError as error:
            return [Answer(caller.token, refused(error))]

    def _says_nothing_new(
        self,
        member: Member,
        caller: Caller,
        request: ConsumerGroupHeartbeatRequest,
        topics: Topics,
    ) -> bool:
        """Most heartbeats: of a member that has what it is to have and knows it."""
        image = self.image
        return (
            request.member_epoch == member.epoch == image.assignment_epoch == image.epoch
            and member.state is MemberState.STABLE
            and request.topic_partitions is None
            and request.subscribed_topic_names is None
            and request.subscribed_topic_regex is None
            and request.server_assignor is None
            and request.rebalance_timeout_ms == -1
            and request.rack_id is None
            and (request.instance_id is None or request.instance_id == member.instance_id)
            and caller.client_id == member.client_id
            and caller.client_host == member.client_host
            and member.classic is None
            and not self.subscribed.is_due(topics, caller.now_ms)
        )

    def _heartbeat(
        self, caller: Caller, request: ConsumerGroupHeartbeatRequest, topics: Topics
    ) -> tuple[ConsumerGroupHeartbeatResponse, GroupDelta | None]:
        is_join = request.member_epoch == 0
        if self.image.is_fresh and not is_join:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {self.group_id} not found."
            )
        self.refuse_when_full(request.member_id)
        member_id = request.member_id or caller.fresh_id
        owned = owned_by(request)
        before, replaced = self._find(member_id, request)
        if replaced is None:
            check_epoch(before, request.member_epoch, owned)
        settled, delta = advance(
            self.image,
            self.subscribed,
            before=before,
            after=_updated(before, request, caller),
            replaced=replaced,
            owned=owned,
            topics=topics,
            assignors_served=self.settings.consumer_assignors,
            now_ms=caller.now_ms,
        )
        if delta is None:
            self._restart_session(settled, caller.now_ms)
        tell_all = is_join or is_full(request) or settled.assigned != before.assigned
        response = accepted(
            settled,
            self.settings.consumer_heartbeat_interval_ms,
            settled.assigned if tell_all else None,
        )
        return response, delta

    def refuse_when_full(self, member_id: str) -> None:
        """Raises KafkaError (GROUP_MAX_SIZE_REACHED) for a member that would be one too many."""
        most = min(self.settings.consumer_max_size, MEMBERS_MAX)
        if len(self.image.members) >= most and member_id not in self.image.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {most} members.",
            )

    def _find(
        self, member_id: str, request: ConsumerGroupHeartbeatRequest
    ) -> tuple[Member, Member | None]:
        """The member that asks, and the static member that it replaces under a new id."""
        is_join = request.member_epoch == 0
        instance_id = request.instance_id
        if instance_id is None:
            return self._known(member_id, or_new=is_join), None
        existing = self.image.static_member(instance_id)
        if not is_join:
            return self._of_instance(existing, member_id, instance_id), None
        if existing is None:
            return self._known(member_id, or_new=True), None
        if existing.epoch != EPOCH_AWAY:
            if existing.member_id == member_id:
                return existing, None
            if existing.classic is None:
                raise KafkaError(
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                    f"Static member {member_id} with instance id {instance_id} cannot join the "
                    f"group because the instance id is owned by {existing.member_id} member.",
                )
        returned = existing._replace(member_id=member_id, epoch=0, previous_epoch=0)
        return returned, existing if existing.member_id != member_id else None

    def _known(self, member_id: str, *, or_new: bool = False) -> Member:
        member = self.image.members.get(member_id)
        if member is not None:
            return member
        if or_new:
            return Member(member_id)
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Member {member_id} is not a member of group {self.group_id}.",
        )

    def _of_instance(self, existing: Member | None, member_id: str, instance_id: str) -> Member:
        if existing is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if existing.member_id != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member "
                f"{existing.member_id}.",
            )
        return existing

    def _leave(
        self, request: ConsumerGroupHeartbeatRequest
    ) -> tuple[ConsumerGroupHeartbeatResponse, GroupDelta | None]:
        if self.image.is_fresh:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} not found.")
        response = left(request.member_id, request.member_epoch)
        if request.instance_id is None:
            member = self._known(request.member_id)
        else:
            existing = self.image.static_member(request.instance_id)
            member = self._of_instance(existing, request.member_id, request.instance_id)
        if request.member_epoch != EPOCH_AWAY:
            return response, self.image.without((member.member_id,))
        # It keeps what it is assigned for when it is back; what it was giving up is free. Its
        # session goes on to end when it would have ended.
        away = member._replace(epoch=EPOCH_AWAY, revoking=NOTHING)
        if away == member:
            return response, None
        epoch, assignment_epoch = self.image.epoch, self.image.assignment_epoch
        return response, GroupDelta(epoch, assignment_epoch, self.image.fingerprint, (away,))

    # The log, the clock.

    def write_delta(self, delta: GroupDelta | None, answers: list[Answer]) -> Effects:
        """Write the change, with the answers behind it; without one answer at once.

        Raises KafkaError when it cannot be written; the group is as before.
        """
        if delta is None:
            return [*answers]
        assert self._writing is None
        image = self.image
        row_ids = image.row_ids if image.is_fresh else None
        write = delta_commands(self.group_id, image.body, image.row_epoch, delta, row_ids)
        self._writing = delta, answers
        return [write]

    def written(self, now_ms: int) -> Effects:
        assert self._writing is not None
        delta, answers = self._writing
        self._writing = None
        members_before = {
            member.member_id: self.image.members.get(member.member_id) for member in delta.put
        }
        self.image.apply(delta)
        for member_id in delta.removed:
            for deadlines in self._deadlines:
                deadlines.drop(member_id)
        for member in delta.put:
            before = members_before[member.member_id]
            if before is None or _current(member) != _current(before):
                self._limit_revocation(member, now_ms)
        if delta.heartbeat_of is not None:
            self._restart_session(delta.heartbeat_of, now_ms)
        if delta.metadata is not None:
            self.subscribed.acted_on(delta.metadata)
        return [*answers]

    def abandon(self, code: ErrorCode) -> list[Answer]:
        self._is_dead = True
        answers = self._writing[1] if self._writing is not None else []
        self._writing = None
        return [Answer(token, type(response)(error_code=code)) for token, response in answers]

    def tick(self, now_ms: int) -> Effects:
        """Members whose session has ended, and those that do not revoke, are no longer members."""
        expired = dict.fromkeys(id_ for each in self._deadlines for id_ in each.take_due(now_ms))
        return self.write_delta(self.image.without(expired), []) if expired else []

    def deadline_ms(self) -> int | None:
        found = [each.next_ms for each in self._deadlines if each.next_ms is not None]
        return min(found, default=None)

    def _restart_session(self, member: Member, now_ms: int) -> None:
        timeout_ms = self.settings.consumer_session_timeout_ms
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        self._sessions.set(member.member_id, now_ms + timeout_ms)

    def _limit_revocation(self, member: Member, now_ms: int) -> None:
        """A member that must revoke has its rebalance timeout for that (KIP-848).

        Not one of the classic protocol, which has to join again in that time, and not one that is
        away, whose session limits it.
        """
        if (
            member.state is MemberState.UNREVOKED_PARTITIONS
            and member.epoch != EPOCH_AWAY
            and member.classic is None
        ):
            self._revocations.set(member.member_id, now_ms + member.rebalance_timeout_ms)
        else:
            self._revocations.drop(member.member_id)

    # Offsets.

    def check_commit(
        self, member_id: str, epoch: int, instance_id: str | None, *, version: int, now_ms: int
    ) -> ErrorCode:
        """Kafka's `ConsumerGroup.validateOffsetCommit`; a commit is no sign of life (KIP-848)."""
        if epoch < 0 and not self.image.members:
            return ErrorCode.NONE
        member = self.image.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member.classic is None and version < COMMITS_WITH_MEMBER_EPOCH_FROM:
            return ErrorCode.UNSUPPORTED_VERSION
        return _compare_epoch(member, epoch)

    def check_fetch(self, member_id: str | None, epoch: int, *, now_ms: int) -> ErrorCode:
        if member_id is None and epoch < 0:
            return ErrorCode.NONE
        member = self.image.members.get(member_id) if member_id is not None else None
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return _compare_epoch(member, epoch)

    def owner_of(self, topic_name: str, topic_id: TopicId, partition: int) -> str | None:
        """A partition that is being revoked is nobody's: who gives it up may still commit."""
        member_id = self.image.owners.of(topic_id, partition)
        if member_id is None:
            return None
        assigned = self.image.members[member_id].assigned.get(topic_id, frozenset())
        return member_id if partition in assigned else None

    def subscribes(self, topic_name: str) -> bool:
        return subscribes(self.image.subscriptions, topic_name)

    # Descriptions.

    def state(self) -> str:
        return "Dead" if self._is_dead else self.image.state()

    def has_members(self) -> bool:
        return bool(self.image.members) or self._writing is not None

    def member_size(self, member_id: str) -> int:
        """A member is written before it hears that it is one."""
        return 0

    def describe(self) -> DescribedGroup:
        """DescribeGroups is for classic groups; this is what Kafka says of others."""
        return DescribedGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {self.group_id} is not a classic group.",
            group_id=self.group_id,
            group_state="Dead",
        )

    def describe_consumer(self, topics: Topics) -> DescribedConsumerGroup:
        served = self.settings.consumer_assignors
        return described(self.group_id, self.state(), self.image, served, topics)


def _updated(member: Member, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> Member:
    """The member with what the request brings; what is null or -1 stays."""
    subscription = member.subscription
    if request.subscribed_topic_names is not None:
        subscription = subscription._replace(names=frozenset(request.subscribed_topic_names))
    if request.subscribed_topic_regex is not None:
        subscription = subscription._replace(regex=request.subscribed_topic_regex)
    rebalance_timeout_ms = member.rebalance_timeout_ms
    if request.rebalance_timeout_ms != -1:
        rebalance_timeout_ms = request.rebalance_timeout_ms
    return member._replace(
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        server_assignor=request.server_assignor or member.server_assignor,
        rebalance_timeout_ms=rebalance_timeout_ms,
        subscription=subscription,
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=None,
    )


def _current(member: Member) -> tuple[object, ...]:
    """Its current assignment, as Kafka has it in a record of its own."""
    return member.epoch, member.state, member.assigned, member.revoking, member.classic


def _compare_epoch(member: Member, epoch: int) -> ErrorCode:
    if member.epoch == epoch:
        return ErrorCode.NONE
    if member.classic is not None:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.STALE_MEMBER_EPOCH
