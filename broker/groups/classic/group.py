"""A group of the classic protocol: what its members ask, and what they are told. Pure.

JoinGroup, SyncGroup, Heartbeat and LeaveGroup of Kafka 4.3, with static members (KIP-345), ids
before joining (KIP-394), protocol checks (KIP-559), and leaders that skip the assignment
(KIP-814). Cooperative rebalancing (KIP-429) is between the clients: two rebalances. JoinGroup is
in `classic_joins`, what a rebalance does in `classic_phases`.

A group that was taken over goes on as the log has it: in a generation that is whole in the log
nobody has to join again, and every member has a full session timeout. If members are ahead of
their group, or behind it, a write was cut in the middle, and they rebalance.

Not here: transactional commits, the refusal of an empty group id.
"""

from collections.abc import Iterable
from typing import Final, Self

from broker.config.group_settings import GroupSettings
from broker.groups.classic.joins import ClassicJoins
from broker.groups.classic.members import ClassicMember, agree
from broker.groups.classic.phases import State
from broker.groups.classic.requests import leave_all
from broker.groups.classic.rows import decode_group, decode_member
from broker.groups.classic.views import described_member, owners, subscribed_topics
from broker.groups.group.effects import Caller, Effects
from coordinator.tables.groups import GroupRow
from protocol.consumer_protocol import PROTOCOL_TYPE
from protocol.errors import ErrorCode
from protocol.messages import (
    DescribedGroup,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupResponse,
)
from protocol.types import TopicId

_NONE: Final = ErrorCode.NONE
_REBALANCE_IN_PROGRESS: Final = ErrorCode.REBALANCE_IN_PROGRESS
_PREPARING: Final = State.PREPARING


class ClassicGroup(ClassicJoins):
    """What `broker.groups.group.live.LiveGroup` is to classic members; it may become another."""

    @classmethod
    def new(cls, group_id: str, settings: GroupSettings) -> Self:
        """A group that the log does not know."""
        return cls(group_id, settings)

    @classmethod
    def loaded(cls, row: GroupRow, settings: GroupSettings, now_ms: int) -> Self:
        """Take over a group. Raises ValueError for bodies of another version."""
        body = decode_group(row.body)
        members = [
            ClassicMember(member_id=member_id, **decode_member(member.body)._asdict())
            for member_id, member in row.members.items()
        ]
        epochs = {member.epoch for member in row.members.values()}
        generation = max(epochs, default=row.epoch)
        if not agree(members):
            # Some are as they were before the write that was cut. Those ahead agree.
            ahead = {id_ for id_, member in row.members.items() if member.epoch == generation}
            members = [member for member in members if member.member_id in ahead]
        group = cls(
            row.group_id,
            settings,
            row_epoch=row.epoch,
            row_ids=row.members,
            row_generation=generation if len(epochs) == 1 else None,
            generation=generation,
            protocol_type=body.protocol_type,
            protocol_name=body.protocol_name,
            leader_id=body.leader_id,
            members=members,
        )
        group.resume(now_ms, stable=epochs == {row.epoch})
        return group

    @classmethod
    def migrated(
        cls,
        group_id: str,
        settings: GroupSettings,
        *,
        row_epoch: int,
        row_ids: Iterable[str],
        generation: int,
        members: Iterable[ClassicMember],
        now_ms: int,
    ) -> Self:
        """A group of consumers that leaves another protocol, to be written with `save`.

        It rebalances: members of `generation` are told to join again. The row is as it was.
        """
        group = cls(
            group_id,
            settings,
            row_epoch=row_epoch,
            row_ids=row_ids,
            generation=generation,
            protocol_type=PROTOCOL_TYPE,
            members=members,
        )
        group.resume(now_ms, stable=False)
        return group

    # SyncGroup.

    def sync(self, caller: Caller, request: SyncGroupRequest) -> Effects:
        error = self._check_sync(request)
        member = self.members.get(request.member_id)
        if error is not _NONE or member is None:
            self._answer(caller.token, SyncGroupResponse(error_code=error))
            return self._effects()
        self._received_sync(member)
        if self._state is State.STABLE:
            self._hear(member, caller.now_ms)
            self._answer(caller.token, self._synced(member))
            return self._effects()
        # Whoever asked before on another connection has gone, or else may ask again.
        self._answer_sync(member, _REBALANCE_IN_PROGRESS)
        member.sync_token = caller.token
        if self.members.leader_id == member.member_id:
            assignments = {each.member_id: each.assignment for each in request.assignments}
            self._assign(assignments, caller.now_ms)
        return self._effects()

    def _check_sync(self, request: SyncGroupRequest) -> ErrorCode:
        error = self._validate(request.member_id, request.group_instance_id)
        if error is not _NONE:
            return error
        if request.generation_id != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if _differs(request.protocol_type, self.group_protocol_type) or _differs(
            request.protocol_name, self.protocol_name
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return _REBALANCE_IN_PROGRESS if self._state is _PREPARING else _NONE

    # Heartbeat, LeaveGroup.

    def heartbeat(
        self, member_id: str, generation: int, instance_id: str | None, now_ms: int
    ) -> ErrorCode:
        member = self.members.get(member_id)
        if (
            member is None
            or generation != self.generation
            or (instance_id is not None and instance_id != member.instance_id)
        ):
            error = self._validate(member_id, instance_id)
            return ErrorCode.ILLEGAL_GENERATION if error is _NONE else error
        deadline_ms = now_ms + member.session_timeout_ms
        member.deadline_ms = deadline_ms
        if deadline_ms < self._wake_ms:  # noqa: PLR1730 (hot, and `min` is a call)
            self._wake_ms = deadline_ms
        return _REBALANCE_IN_PROGRESS if self._state is _PREPARING else _NONE

    def leave(self, caller: Caller, request: LeaveGroupRequest) -> Effects:
        size = len(self.members)
        response = leave_all(caller, request, self._remove_leaving)
        if self._state is State.PREPARING:
            if not self._initial:
                self._complete_if_joined(caller.now_ms)
        elif len(self.members) < size:
            self._prepare(caller.now_ms)
        self._answer(caller.token, response)
        return self._effects()

    def _remove_leaving(self, identity: MemberIdentity) -> ErrorCode:
        """By id, or as administrators do, by instance id alone (KIP-345)."""
        member_id = identity.member_id
        if member_id == "" and identity.group_instance_id is not None:
            member_id = self.members.id_of(identity.group_instance_id) or ""
        elif self._pending.pop(member_id, None) is not None:
            return _NONE
        else:
            error = self._validate(member_id, identity.group_instance_id)
            if error is not _NONE:
                return error
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self._remove(member)
        return _NONE

    # Offsets.

    def check_commit(
        self, member_id: str, epoch: int, instance_id: str | None, *, version: int, now_ms: int
    ) -> ErrorCode:
        """As Kafka's ClassicGroup.validateOffsetCommit; a commit shows that its member is there."""
        if epoch < 0 and self._state is State.EMPTY:
            return _NONE
        error = self._validate(member_id, instance_id)
        if error is not _NONE:
            return error
        if epoch != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if self._state is State.COMPLETING or self.generation != self._row_generation:
            # Kafka takes commits of an unassigned generation while it prepares the next one. Our
            # log fences with what it knows, and members keep their partitions when asked to wait.
            return _REBALANCE_IN_PROGRESS
        member = self.members.get(member_id)
        assert member is not None
        self._hear(member, now_ms)
        return _NONE

    def check_fetch(self, member_id: str, epoch: int, *, now_ms: int) -> ErrorCode:
        """Anyone may: in this protocol OffsetFetch is not fenced."""
        return _NONE

    def owner_of(self, topic_name: str, topic_id: TopicId, partition: int) -> str | None:
        """Before the next assignment it is still the member that was assigned it."""
        if self.protocol_type != PROTOCOL_TYPE or self._state is State.COMPLETING:
            return None
        if self._owners is None:
            self._owners = owners(self.members)
        return self._owners.get((topic_name, partition))

    def subscribes(self, topic_name: str) -> bool:
        if self._state is State.EMPTY:
            return False
        if self.protocol_type != PROTOCOL_TYPE:
            return True
        if not self._topics_known:
            self._topics = subscribed_topics(self.members, self.protocol_name)
            self._topics_known = True
        return self._topics is None or topic_name in self._topics

    # Descriptions.

    @property
    def protocol_type(self) -> str:
        return self.group_protocol_type or ""

    def describe(self) -> DescribedGroup:
        """Metadata is of the chosen protocol, so only a stable group tells it."""
        name = self.protocol_name if self._state is State.STABLE else None
        return DescribedGroup(
            group_id=self.group_id,
            group_state=self.state(),
            protocol_type=self.protocol_type,
            protocol_data=name or "",
            members=[described_member(member, name) for member in self.members],
        )


def _differs(asked: str | None, chosen: str | None) -> bool:
    """KIP-559; who does not ask does not mind."""
    return asked is not None and chosen is not None and asked != chosen
