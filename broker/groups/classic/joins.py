"""JoinGroup in a classic group: who is let in, who begins a rebalance. Pure.

Refusals come in Kafka's order: session timeout, a place in the group, protocols, the member.

Left out: the refusal of an empty group id, which is the same for all requests.
"""

from dataclasses import replace
from typing import Final

from broker.groups.classic.members import ClassicMember
from broker.groups.classic.phases import NEW_MEMBER_MS, ClassicPhases, State
from broker.groups.classic.requests import (
    MEMBER_ID_REQUIRED_FROM,
    NAME_BYTES_MAX,
    is_session_timeout,
    protocols_of,
    rebalance_timeout_ms_of,
)
from broker.groups.group.effects import Caller, Effects
from coordinator.commands.encoding import CodecError
from coordinator.tables.groups import GROUP_ID_BYTES_MAX, MEMBERS_MAX
from protocol.errors import ErrorCode
from protocol.messages import JoinGroupRequest, JoinGroupResponse

_SKIP_ASSIGNMENT_FROM: Final = 9
"""Version (KIP-814)."""

_NONE: Final = ErrorCode.NONE


class ClassicJoins(ClassicPhases):
    """A classic group that can be joined."""

    def join(self, caller: Caller, request: JoinGroupRequest) -> Effects:
        error = self._check_join(request)
        if error is not _NONE:
            self._refuse_join(caller, error, request.member_id)
        elif not self._has_place_for(request.member_id):
            self._turn_away(caller, request.member_id)
        elif not self._agrees(request):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            self._refuse_join(caller, error, request.member_id)
        elif request.member_id == "":
            self._join_new(caller, request)
        else:
            self._join_known(caller, request)
        return self._effects()

    def _check_join(self, request: JoinGroupRequest) -> ErrorCode:
        """What can be said without looking at the members."""
        if len(request.group_id.encode()) > GROUP_ID_BYTES_MAX:
            return ErrorCode.INVALID_GROUP_ID
        if not is_session_timeout(request.session_timeout_ms, self.settings):
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if request.member_id != "" and self._row_epoch < 0 and not self.has_members():
            return ErrorCode.UNKNOWN_MEMBER_ID  # There is no such group.
        for name in (request.protocol_type, request.group_instance_id or ""):
            if len(name.encode()) > NAME_BYTES_MAX:
                return ErrorCode.INVALID_REQUEST
        return _NONE

    def _has_place_for(self, member_id: str) -> bool:
        """As Kafka's acceptJoiningMember."""
        member = self.members.get(member_id)
        if member is None and len(self.members) >= MEMBERS_MAX:
            return False
        if member_id == "" and len(self._pending) >= MEMBERS_MAX:
            return False
        size_max = self.size_max()
        match self._state:
            case State.EMPTY:
                return True
            case State.PREPARING:
                # Who has joined, not who was in: the maximum may have become less, and then the
                # last ones to join again are sent away.
                joined = member is not None and member.join_token is not None
                return joined or self.members.awaiting_join < size_max
            case _:
                return member is not None or len(self.members) < size_max

    def _turn_away(self, caller: Caller, member_id: str) -> None:
        self._refuse_join(caller, ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        self._pending.pop(member_id, None)
        member = self.members.get(member_id)
        if member is not None:
            self._remove(member)
        if not self._initial:
            self._complete_if_joined(caller.now_ms)

    def _agrees(self, request: JoinGroupRequest) -> bool:
        """Could the group choose a protocol with this member in it?"""
        names = [protocol.name for protocol in request.protocols]
        if self._state is State.EMPTY:
            return request.protocol_type != "" and bool(names)
        return request.protocol_type == self.group_protocol_type and self.members.supports(names)

    def _join_new(self, caller: Caller, request: JoinGroupRequest) -> None:
        instance_id = request.group_instance_id
        if instance_id is not None:
            member_id = f"{instance_id}-{caller.fresh_id}"
            known_id = self.members.id_of(instance_id)
            if known_id is None:
                self._add(caller, request, member_id)
            else:
                old = self.members.get(known_id)
                assert old is not None
                self._replace(caller, request, old, member_id)
            return
        member_id = f"{_beginning(caller.client_id)}-{caller.fresh_id}"
        if caller.version < MEMBER_ID_REQUIRED_FROM:
            self._add(caller, request, member_id)
        else:
            deadline_ms = caller.now_ms + request.session_timeout_ms
            self._pending[member_id] = self._wake_at(deadline_ms)
            self._refuse_join(caller, ErrorCode.MEMBER_ID_REQUIRED, member_id)

    def _join_known(self, caller: Caller, request: JoinGroupRequest) -> None:
        member_id = request.member_id
        if member_id in self._pending:
            if request.group_instance_id is None:
                self._add(caller, request, member_id)
            else:
                # No client does that: a static member is not made to ask for an id first.
                self._refuse_join(caller, ErrorCode.UNKNOWN_SERVER_ERROR, member_id)
            return
        error = self._validate(member_id, request.group_instance_id)
        member = self.members.get(member_id)
        if error is not _NONE or member is None:
            self._refuse_join(caller, error, member_id)
            return
        unchanged = member.protocols == protocols_of(request)
        leads = self.members.leader_id == member_id
        if (self._state is State.COMPLETING and unchanged) or (
            self._state is State.STABLE and unchanged and not leads
        ):
            # It has not got the answer of this generation; nothing has changed.
            self._answer(caller.token, self._joined(member))
            return
        # A leader that joins again wants a rebalance: the topics may have changed.
        self._update(member, request, caller)
        self._park_join(member, caller.token)
        self._prepare_or_complete(caller.now_ms)

    def _add(self, caller: Caller, request: JoinGroupRequest, member_id: str) -> None:
        member = ClassicMember(
            member_id=member_id,
            instance_id=request.group_instance_id,
            client_id=caller.client_id,
            client_host=caller.client_host,
            rebalance_timeout_ms=rebalance_timeout_ms_of(request, caller.version),
            session_timeout_ms=request.session_timeout_ms,
            protocols=protocols_of(request),
        )
        member.is_new = True
        member.deadline_ms = self._wake_at(caller.now_ms + NEW_MEMBER_MS)
        if not len(self.members):
            self.group_protocol_type = request.protocol_type
        self._newcomer = self._newcomer or self._initial
        self._pending.pop(member_id, None)
        self.members.add(member)
        self._park_join(member, caller.token)
        self._prepare_or_complete(caller.now_ms)

    def _update(self, member: ClassicMember, request: JoinGroupRequest, caller: Caller) -> None:
        self.members.update(
            member,
            protocols=protocols_of(request),
            rebalance_timeout_ms=rebalance_timeout_ms_of(request, caller.version),
            session_timeout_ms=request.session_timeout_ms,
        )

    def _park_join(self, member: ClassicMember, token: int) -> None:
        before = self.members.park_join(member, token)
        if before is not None:
            refusal = JoinGroupResponse(
                error_code=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id
            )
            self._answer(before, refusal)

    def _replace(
        self, caller: Caller, request: JoinGroupRequest, old: ClassicMember, member_id: str
    ) -> None:
        """A static member comes back without its id: whoever had the old one is fenced."""
        leader_before = self.members.leader_id or ""
        self._answer_join(old, ErrorCode.FENCED_INSTANCE_ID)
        self._answer_sync(old, ErrorCode.FENCED_INSTANCE_ID)
        self._unsynced.discard(old.member_id)
        member = replace(old, member_id=member_id)
        self.members.replace(old, member)
        self._update(member, request, caller)
        self._hear(member, caller.now_ms)
        self._forget_views()
        stays = self._state is State.STABLE and (
            self.members.select_protocol() == self.protocol_name
        )
        if stays:
            self._write_replacement(caller, old, member, leader_before)
            return
        self._park_join(member, caller.token)
        # While members wait for the leader's assignment a rebalance is due as well: the leader
        # has been told the old id.
        self._prepare_or_complete(caller.now_ms)

    def _write_replacement(
        self, caller: Caller, old: ClassicMember, member: ClassicMember, leader_before: str
    ) -> None:
        """The member goes on in the generation, under its new id, once the log knows it."""

        def then(written_ms: int) -> None:
            token = self.members.unpark_join(member)
            assert token is not None
            self._hear(member, written_ms)
            response = self._joined(member)
            if caller.version >= _SKIP_ASSIGNMENT_FROM:
                response.skip_assignment = self.members.leader_id == member.member_id
            else:
                # Let it not take itself for the leader, whose assignment nobody waits for.
                response.leader = leader_before
                response.members = []
            self._answer(token, response)

        try:
            write = self._change_member(old, member)
        except CodecError:
            self.members.replace(member, old)
            self._refuse_join(caller, ErrorCode.UNKNOWN_SERVER_ERROR, "")
        else:
            self._park_join(member, caller.token)
            self._begin_write(write, then)

    def _refuse_join(self, caller: Caller, error: ErrorCode, member_id: str) -> None:
        self._answer(caller.token, JoinGroupResponse(error_code=error, member_id=member_id))


def _beginning(client_id: str) -> str:
    """What of a client id is in the ids of its members: nearly always all."""
    if len(client_id) * 4 <= NAME_BYTES_MAX:
        return client_id
    return client_id.encode()[:NAME_BYTES_MAX].decode(errors="ignore")
