"""JoinGroup and LeaveGroup: what is the same in groups of either protocol, and needs no group. Pure."""

from collections.abc import Callable
from typing import Final

from broker.config.group_settings import GroupSettings
from broker.groups.classic.members import Protocols
from broker.groups.group.effects import Caller
from protocol.errors import ErrorCode
from protocol.messages import (
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

NAME_BYTES_MAX: Final = 8 * 1024
"""Of a protocol type, an instance id and what is left of a client id in a member id, so that ids
of members always fit into an entry beside that of their group."""
MEMBER_ID_REQUIRED_FROM: Final = 4
"""Version of JoinGroup (KIP-394)."""

_BATCHES_FROM: Final = 3
"""Version of LeaveGroup (KIP-345)."""


def is_session_timeout(timeout_ms: int, settings: GroupSettings) -> bool:
    return settings.min_session_timeout_ms <= timeout_ms <= settings.max_session_timeout_ms


def protocols_of(request: JoinGroupRequest) -> Protocols:
    return tuple([(protocol.name, protocol.metadata) for protocol in request.protocols])


def rebalance_timeout_ms_of(request: JoinGroupRequest, version: int) -> int:
    """Version 0 has none: it is the session timeout."""
    return request.session_timeout_ms if version == 0 else request.rebalance_timeout_ms


def leave_all(
    caller: Caller, request: LeaveGroupRequest, leave: Callable[[MemberIdentity], ErrorCode]
) -> LeaveGroupResponse:
    """Has every member leave that the request names; the answer says what came of it."""
    batch = caller.version >= _BATCHES_FROM
    leaving = request.members if batch else [MemberIdentity(member_id=request.member_id)]
    told = [
        MemberResponse(
            member_id=identity.member_id,
            group_instance_id=identity.group_instance_id,
            error_code=leave(identity),
        )
        for identity in leaving
    ]
    if batch:
        return LeaveGroupResponse(members=told)
    return LeaveGroupResponse(error_code=told[0].error_code)
