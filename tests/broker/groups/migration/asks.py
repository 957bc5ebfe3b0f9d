"""Single requests to a group of either protocol, and its answers."""

from protocol.consumer_protocol import Subscription, write_assignment, write_subscription
from protocol.errors import ErrorCode
from protocol.messages import (
    ConsumerGroupHeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.broker.groups.migration.clients import RANGE, SESSION_MS
from tests.broker.groups.migration.world import GROUP, World

E = ErrorCode


def metadata(*names: str) -> bytes:
    return write_subscription(Subscription([*names], None, {}))


def join_request(
    member_id: str = "",
    *,
    instance_id: str | None = None,
    session_ms: int = SESSION_MS,
    protocol_type: str = "consumer",
    protocols: tuple[tuple[str, bytes], ...] = ((RANGE, metadata("t")),),
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
    )


def join(world: World, request: JoinGroupRequest, *, version: int = 9) -> JoinGroupResponse:
    heard: list[JoinGroupResponse] = []
    world.ask("join", request, heard.append, version=version)
    (response,) = heard
    return response


def sync(
    world: World,
    member_id: str,
    generation: int,
    *,
    instance_id: str | None = None,
    protocol_type: str | None = "consumer",
    protocol_name: str | None = RANGE,
    assignments: dict[str, bytes] | None = None,
) -> SyncGroupResponse:
    request = SyncGroupRequest(
        group_id=GROUP,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignments=[
            SyncGroupRequestAssignment(member_id=name, assignment=data)
            for name, data in (assignments or {}).items()
        ],
    )
    heard: list[SyncGroupResponse] = []
    world.ask("sync", request, heard.append, version=5)
    (response,) = heard
    return response


def consumer_joins(
    world: World, member_id: str = "m", *names: str, instance_id: str | None = None
) -> ConsumerGroupHeartbeatResponse:
    return world.beat(
        member_id,
        0,
        owned={},
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=[*(names or ("t",))],
        instance_id=instance_id,
    )


def leader_alone(
    world: World, *, assignment: bytes | None = None, data: bytes | None = None
) -> str:
    """A classic group of one member, with what it is assigned; its id."""
    request = join_request(protocols=((RANGE, metadata("t") if data is None else data),))
    heard: list[JoinGroupResponse] = []
    world.ask("join", request, heard.append, version=3)
    world.wait(0)
    (joined,) = heard
    assert joined.error_code == E.NONE
    if assignment is None:
        assignment = write_assignment({"t": [0, 1]})
    synced = sync(world, joined.member_id, 1, assignments={joined.member_id: assignment})
    assert synced.error_code == E.NONE
    return joined.member_id


def leave(world: World, *identities: MemberIdentity, version: int = 5) -> LeaveGroupResponse:
    member_id = identities[0].member_id if version < 3 else ""
    request = LeaveGroupRequest(group_id=GROUP, members=[*identities], member_id=member_id)
    heard: list[LeaveGroupResponse] = []
    world.ask("leave", request, heard.append, version=version)
    (response,) = heard
    return response
