"""A group that does what its requests say: for tests of the shell, which must not care.

JoinGroup names by its protocol type what is to happen:

    write     the member is put into the row, with the session timeout; answered when written
    park      kept until the next "release" answers all that are parked
    answer    answered at once; nothing is kept
    split     two commands, the second of which removes a member that is not there: fenced
    large     a member that fits into no entry
    bug       raises in the call;  late-bug  raises in `written`

SyncGroup is answered at once with the generation. LeaveGroup of a member writes. Generation: the
row's epoch. `FakeGroup.made` has every object that was made.
"""

import asyncio
import struct
from typing import ClassVar

from broker.groups.group.effects import Answer, Write
from broker.groups.group.live import GroupFactory
from coordinator.commands.group_commands import GROUP_NEW, ChangeGroup, GroupMember
from protocol.errors import ErrorCode
from protocol.messages import (
    ConsumerGroupHeartbeatResponse,
    DescribedGroup,
    JoinGroupResponse,
    LeaveGroupResponse,
    SyncGroupResponse,
)


class BugError(RuntimeError):
    """What a group must never raise, and the shell must outlive."""


class FakeGroup:
    made: ClassVar[list["FakeGroup"]] = []

    def __init__(self, kind, group_id, settings, *, row=None, now_ms=0):
        self.kind = kind
        self.group_id = group_id
        self.settings = settings
        self.protocol_type = "fake"
        self.loaded_ms = now_ms
        self.epoch = GROUP_NEW if row is None else row.epoch
        self.members = {}
        """Id to (session timeout, deadline)."""
        for member_id, member in () if row is None else row.members.items():
            (timeout_ms,) = struct.unpack(">I", member.body[:4])
            self.members[member_id] = (timeout_ms, now_ms + timeout_ms)
        self.parked = {}
        self.then = None
        self.dead = False
        self.calls = []
        self.made_in = asyncio.get_running_loop().steps
        """The callback of the loop that made it."""
        FakeGroup.made.append(self)

    def _call(self, what):
        assert not self.dead, f"{what} after the end"
        assert self.then is None, f"{what} while writing"
        self.calls.append(what)

    def join(self, caller, request):
        self._call("join")
        match request.protocol_type:
            case "park":
                self.parked[caller.token] = request.member_id
                return []
            case "release":
                parked, self.parked = {**self.parked, caller.token: request.member_id}, {}
                return [
                    Answer(token, JoinGroupResponse(generation_id=self.epoch, member_id=member_id))
                    for token, member_id in parked.items()
                ]
            case "answer":
                answer = JoinGroupResponse(
                    generation_id=self.epoch, member_id=request.member_id, leader=caller.client_host
                )
                return [Answer(caller.token, answer)]
            case "bug":
                raise BugError("in the call")
        member_id = request.member_id or caller.fresh_id
        timeout_ms = request.session_timeout_ms
        body = struct.pack(">I", timeout_ms)
        if request.protocol_type == "large":
            body += bytes(70_000)
        self.members[member_id] = (timeout_ms, caller.now_ms + timeout_ms)
        put = (GroupMember(member_id, self.epoch + 1, body),)
        commands = [self._change(put=put)]
        if request.protocol_type == "split":
            commands.append(self._change(removed=("nobody",)))
        self.parked[caller.token] = member_id

        def then():
            if request.protocol_type == "late-bug":
                raise BugError("in written")
            del self.parked[caller.token]
            answer = JoinGroupResponse(generation_id=self.epoch, member_id=member_id)
            return [Answer(caller.token, answer)]

        self.then = then
        return [Write(tuple(commands))]

    def _change(self, *, put=(), removed=()):
        before, self.epoch = self.epoch, max(self.epoch, 0) + 1
        return ChangeGroup(self.group_id, self.kind, before, self.epoch, b"fake", put, removed)

    def sync(self, caller, request):
        self._call("sync")
        return [Answer(caller.token, SyncGroupResponse(assignment=b"%d" % self.epoch))]

    def leave(self, caller, request):
        self._call("leave")
        (identity,) = request.members
        if identity.member_id not in self.members:
            response = LeaveGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
            return [Answer(caller.token, response)]
        del self.members[identity.member_id]
        self.parked[caller.token] = identity.member_id

        def then():
            del self.parked[caller.token]
            return [Answer(caller.token, LeaveGroupResponse())]

        self.then = then
        return [Write((self._change(removed=(identity.member_id,)),))]

    def is_behind(self, member_id, seen):
        return False

    def consumer_heartbeat(self, caller, request, topics):
        self._call("consumer_heartbeat")
        response = ConsumerGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=self.epoch, error_message=str(len(topics))
        )
        return [Answer(caller.token, response)]

    def heartbeat(self, member_id, generation, instance_id, now_ms):
        self._call("heartbeat")
        if instance_id == "bug":
            raise BugError("in a heartbeat")
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation != self.epoch:
            return ErrorCode.ILLEGAL_GENERATION
        timeout_ms, _ = self.members[member_id]
        self.members[member_id] = (timeout_ms, now_ms + timeout_ms)
        return ErrorCode.NONE

    def written(self, now_ms):
        then, self.then = self.then, None
        assert then is not None
        assert not self.dead
        return then()

    def abandon(self, code):
        assert not self.dead
        self.dead = True
        parked, self.parked = self.parked, {}
        return [Answer(token, JoinGroupResponse(error_code=code)) for token in parked]

    def tick(self, now_ms):
        self._call("tick")
        expired = tuple(each for each, (_, due_ms) in self.members.items() if due_ms <= now_ms)
        if not expired:
            return []
        for member_id in expired:
            del self.members[member_id]
        self.then = list
        return [Write((self._change(removed=expired),))]

    def deadline_ms(self):
        return min((due_ms for _, due_ms in self.members.values()), default=None)

    def state(self):
        if self.parked:
            return "PreparingRebalance"
        return "Stable" if self.members else "Empty"

    def member_size(self, member_id: str) -> int:
        return 0

    def has_members(self):
        return bool(self.members or self.parked)

    def describe(self):
        return DescribedGroup(group_id=self.group_id, group_state=self.state())


def _new(kind, group_id, settings, topics):
    return FakeGroup(kind, group_id, settings)


def _loaded(row, settings, topics, now_ms):
    if row.body == b"of tomorrow":
        raise ValueError("version 200")
    return FakeGroup(row.kind, row.group_id, settings, row=row, now_ms=now_ms)


KINDS = GroupFactory(_new, _loaded)
