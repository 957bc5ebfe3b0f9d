"""What stories of a classic group tell badly: sizes, cut writes, other ways into a group."""

import pytest

from broker.config.group_settings import GroupSettings
from broker.groups.classic.group import ClassicGroup
from broker.groups.classic.joins import NAME_BYTES_MAX
from broker.groups.classic.members import ClassicMember
from broker.groups.classic.rows import GroupBody, MemberBody, encode_group, encode_member
from broker.groups.group.effects import Answer, Caller, Write
from coordinator.commands.group_commands import GROUP_NEW, ChangeGroup, GroupKind, GroupMember
from coordinator.tables.groups import MEMBERS_MAX
from coordinator.tables.topics import Topics
from protocol.consumer_protocol import write_assignment
from protocol.errors import ErrorCode
from protocol.messages import (
    ConsumerGroupHeartbeatRequest,
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
from protocol.types import TOPIC_ID_ZERO
from tests.broker.groups.classic.clients import NOISE, Client, Crowd
from tests.broker.groups.classic.world import GROUP, World

SETTINGS = GroupSettings(initial_rebalance_delay_ms=0)
RANGE = (("range", b"r"),)


def join_request(
    member_id: str = "",
    *,
    instance_id: str | None = None,
    protocols: tuple[tuple[str, bytes], ...] = RANGE,
    protocol_type: str = "consumer",
    group_id: str = GROUP,
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=[
            JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols
        ],
    )


def caller(token: int = 1, *, version: int = 3, client_id: str = "c", now_ms: int = 0) -> Caller:
    return Caller(token, version, client_id, "/10.0.0.1", now_ms, f"{token}")


def only(effects: list[Answer | Write]) -> JoinGroupResponse:
    (answer,) = effects
    assert isinstance(answer, Answer)
    assert isinstance(answer.response, JoinGroupResponse)
    return answer.response


def member(
    member_id: str, instance_id: str | None = None, assignment: bytes = b""
) -> ClassicMember:
    return ClassicMember(
        member_id=member_id,
        instance_id=instance_id,
        client_id="c",
        client_host="/10.0.0.1",
        rebalance_timeout_ms=60_000,
        session_timeout_ms=10_000,
        protocols=RANGE,
        assignment=assignment,
    )


def row_of(member_id: str, epoch: int, *protocols: str) -> GroupMember:
    body = MemberBody(
        instance_id=None,
        client_id="c",
        client_host="/10.0.0.1",
        rebalance_timeout_ms=60_000,
        session_timeout_ms=10_000,
        protocols=tuple((name, b"") for name in protocols),
        assignment=b"",
    )
    return GroupMember(member_id, epoch, encode_member(body))


def world_with(*members: GroupMember, epoch: int) -> World:
    """A world whose log has a group with these members."""
    world = World(settings=SETTINGS)
    body = encode_group(GroupBody("consumer", "range", None))
    world.apply(
        (
            ChangeGroup(
                group_id=GROUP,
                kind=GroupKind.CLASSIC,
                epoch_before=GROUP_NEW,
                epoch=epoch,
                body=body,
                put=members,
                removed=(),
            ),
        )
    )
    world.group = world.loaded()
    return world


# Large groups.


def test_a_large_generation_is_written_in_parts_and_told_when_all_are_in():
    crowd = Crowd(*(Client(f"c{n}", version=3) for n in range(1_200)))
    for client in crowd.clients:
        crowd.join(client)
    crowd.advance(0)
    for client in reversed(crowd.clients):
        crowd.sync(client)
    assert crowd.world.writing is not None
    rows = [len(command.put) for command in crowd.world.writing.commands]
    assert len(rows) > 1
    assert sum(rows) == 1_200
    assert all(client.assignment is None for client in crowd.clients)
    crowd.write()
    assert all(client.assignment for client in crowd.clients)
    crowd.check()


@pytest.mark.parametrize("applied", [1, 2])
def test_whoever_takes_over_in_the_middle_of_a_write_lets_the_members_rebalance(applied: int):
    clients = [Client(f"c{n}", version=3, protocols=(("range", NOISE),)) for n in range(3)]
    crowd = Crowd(*clients)
    for client in clients:
        crowd.join(client)
    crowd.advance(0)
    for client in reversed(clients):
        crowd.sync(client)
    crowd.write()
    assert crowd.world.group.generation == 1
    for client in clients:
        crowd.join(client)
    for client in reversed(clients):
        crowd.sync(client)
    assert crowd.world.writing is not None
    assert len(crowd.world.writing.commands) == 3
    crowd.fail(ErrorCode.NOT_COORDINATOR, applied=applied)
    group = crowd.world.group
    assert (group.state(), group.generation) == ("PreparingRebalance", 2)
    # They believe in the generation that was half written, and are told to join again.
    for client in clients:
        assert crowd.beat(client) is ErrorCode.REBALANCE_IN_PROGRESS
        assert crowd.commit(client) is ErrorCode.REBALANCE_IN_PROGRESS
    for client in clients:
        crowd.join(client)
    assert {client.generation for client in clients} == {3}
    for client in reversed(clients):
        crowd.sync(client)
    crowd.write()
    row = crowd.world.row
    assert row is not None
    assert row.epoch == 3
    assert {member.epoch for member in row.members.values()} == {3}


def test_a_group_of_which_nobody_comes_back_after_a_cut_write_becomes_empty():
    world = world_with(row_of("a", 8, "range"), row_of("b", 7, "range"), epoch=7)
    assert world.group.state() == "PreparingRebalance"
    world.now_ms = 60_000
    while world.writing is None:
        world.tick()
    world.write()
    row = world.row
    assert row is not None
    assert (row.epoch, row.members) == (9, {})


def test_members_behind_who_agree_upon_no_protocol_with_those_ahead_begin_anew():
    world = world_with(
        row_of("old", 7, "range"), row_of("a", 8, "sticky", "x"), row_of("b", 8, "sticky"), epoch=7
    )
    assert world.group.members.ids() == ("a", "b")
    assert world.group.heartbeat("old", 7, None, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    for member_id in ("a", "b"):
        world.ask("join", join_request(member_id, protocols=(("sticky", b""),)), version=9)
    request = SyncGroupRequest(group_id=GROUP, generation_id=9, member_id="a")
    world.ask("sync", request, version=5)
    world.write()
    row = world.row
    assert row is not None
    assert (row.epoch, [*row.members]) == (9, ["a", "b"])


def test_members_behind_their_group_rebalance_and_may_commit_in_their_generation():
    world = world_with(row_of("a", 7, "range"), row_of("b", 7, "range"), epoch=8)
    assert world.group.state() == "PreparingRebalance"
    assert world.group.heartbeat("a", 7, None, 0) is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.group.check_commit("a", 7, None, version=9, now_ms=0) is ErrorCode.NONE
    for member_id in ("a", "b"):
        world.ask("join", join_request(member_id), version=9)
    assert world.group.generation == 9


def test_a_group_has_no_more_members_than_the_table_takes():
    group = ClassicGroup.new(GROUP, SETTINGS)
    for token in range(MEMBERS_MAX):
        assert not group.join(caller(token), join_request())
    answer = only(group.join(caller(MEMBERS_MAX), join_request()))
    assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert len(group.members) == MEMBERS_MAX


def test_no_more_ids_are_given_than_there_may_be_members():
    group = ClassicGroup.new(GROUP, SETTINGS)
    for token in range(MEMBERS_MAX):
        answer = only(group.join(caller(token, version=4), join_request()))
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    answer = only(group.join(caller(version=4), join_request()))
    assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert not group.join(caller(version=4), join_request("c-7"))
    assert only(group.join(caller(version=4), join_request())).member_id


# Names.


def test_names_that_leave_no_room_in_an_entry_are_refused():
    group = ClassicGroup.new(GROUP, SETTINGS)
    long = "n" * (NAME_BYTES_MAX + 1)
    for request, error in (
        (join_request(instance_id=long), ErrorCode.INVALID_REQUEST),
        (join_request(protocol_type=long), ErrorCode.INVALID_REQUEST),
        (join_request(group_id="g" * 32_768), ErrorCode.INVALID_GROUP_ID),
    ):
        assert only(group.join(caller(version=5), request)).error_code == error
    assert not group.has_members()


@pytest.mark.parametrize("letter", ["c", "ß", "語", "𝄞"])
def test_the_longest_names_make_a_group_that_can_be_written_and_emptied(letter: str):
    def name(size: int) -> str:
        return letter * (size // len(letter.encode()))

    longest = "g" * 32_767
    group = ClassicGroup.new(longest, SETTINGS)
    request = join_request(protocol_type=name(NAME_BYTES_MAX), group_id=longest)
    group.join(caller(1, client_id=name(32_767)), request)
    request = join_request(
        protocol_type=name(NAME_BYTES_MAX), group_id=longest, instance_id=name(NAME_BYTES_MAX)
    )
    group.join(caller(2, version=5), request)
    group.tick(0)
    answers = group.tick(0)
    leader = next(a.response for a in answers if isinstance(a, Answer) and a.response.members)
    assert len(leader.members[0].member_id.encode()) <= NAME_BYTES_MAX + 2
    sync = SyncGroupRequest(group_id=longest, generation_id=1, member_id=leader.member_id)
    (effect,) = group.sync(caller(3), sync)
    # A client id of 32 KiB beside all that may not fit; then all hear so. It can leave anyhow.
    if isinstance(effect, Write):
        group.written(0)
    everybody = [MemberIdentity(member_id=member_id) for member_id in group.members.ids()]
    effects = group.leave(
        caller(4, version=5), LeaveGroupRequest(group_id=longest, members=everybody)
    )
    assert isinstance(effects[-1], Write)


def test_a_protocol_that_is_named_twice_counts_once():
    group = ClassicGroup.new(GROUP, SETTINGS)
    group.join(caller(1), join_request(protocols=(("range", b"1"), ("range", b"2"))))
    group.join(caller(2), join_request(protocols=(("sticky", b""), ("range", b"3"))))
    refused = only(group.join(caller(3), join_request(protocols=(("sticky", b""),))))
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    group.tick(0)
    answers = [answer for answer in group.tick(0) if isinstance(answer, Answer)]
    assert [answer.response.protocol_name for answer in answers] == ["range", "range"]
    assert [told.metadata for told in answers[0].response.members] == [b"1", b"3"]


# Timers.


def test_a_group_without_members_waits_for_nothing():
    group = ClassicGroup.new(GROUP, SETTINGS)
    assert group.deadline_ms() is None
    assert group.tick(1 << 40) == []


def test_a_heartbeat_can_bring_a_deadline_forward():
    group = ClassicGroup.new(GROUP, GroupSettings(initial_rebalance_delay_ms=120_000))
    group.join(caller(), join_request())
    assert group.deadline_ms() == 120_000
    assert group.heartbeat("c-1", 0, None, 5_000) is ErrorCode.REBALANCE_IN_PROGRESS
    assert group.deadline_ms() == 15_000
    assert group.tick(14_999) == []
    (answer, write) = group.tick(15_000)
    assert isinstance(answer, Answer)
    assert answer.response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert isinstance(write, Write)


def test_many_sessions_that_end_at_once_are_one_call():
    world = world_with(*(row_of(f"m{n}", 7, "range") for n in range(900)), epoch=7)
    world.now_ms = 10_000
    world.tick()
    assert world.writing is not None
    assert len(world.writing.commands[0].removed) == 900


def test_what_is_due_behind_a_write_is_done_after_it():
    world = world_with(row_of("a", 7, "range"), epoch=7)
    changed = join_request("a", protocols=(("range", b"2"),))
    world.ask("join", join_request(), version=3)  # c-1: a begins to be waited for, until 60 s.
    world.now_ms = 55_000
    world.ask("join", join_request(), version=4)
    leave = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id="c-1")])
    world.ask("leave", leave, version=5)
    world.now_ms = 100_000
    world.tick()
    assert world.writing is not None
    world.write()
    assert world.group.has_members()
    assert world.next_tick_ms(world.now_ms) == world.now_ms
    world.tick()
    assert not world.group.has_members()
    assert world.group.deadline_ms() is None
    (_, answers) = world.ask("join", changed, version=9)
    assert answers[0].response.error_code == ErrorCode.UNKNOWN_MEMBER_ID


# The ways in and out of a group.


def test_a_body_of_another_version_is_not_taken_over():
    world = world_with(row_of("a", 7, "range"), epoch=7)
    row = world.row
    assert row is not None
    row.body = b"\x7f" + row.body[1:]
    with pytest.raises(ValueError, match="version 127"):
        world.loaded()


def test_abandoned_a_group_answers_all_who_wait_and_is_dead():
    group = ClassicGroup.new(GROUP, SETTINGS)
    group.join(caller(1), join_request())
    group.join(caller(2, version=5), join_request(instance_id="i"))
    group.tick(0)
    group.tick(0)
    group.sync(caller(3), SyncGroupRequest(group_id=GROUP, generation_id=1, member_id="i-2"))
    (write,) = group.sync(
        caller(4), SyncGroupRequest(group_id=GROUP, generation_id=1, member_id="c-1")
    )
    assert isinstance(write, Write)
    answers = group.abandon(ErrorCode.REQUEST_TIMED_OUT)
    error = SyncGroupResponse(error_code=ErrorCode.REQUEST_TIMED_OUT)
    assert sorted(answers) == [Answer(3, error), Answer(4, error)]
    assert group.state() == "Dead"
    assert group.deadline_ms() is None


def test_abandoned_a_leave_is_refused_as_a_whole():
    group = ClassicGroup.new(GROUP, SETTINGS)
    group.join(caller(1), join_request())
    group.tick(0)
    group.tick(0)
    request = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id="c-1")])
    (write,) = group.leave(caller(2, version=5), request)
    assert isinstance(write, Write)
    (answer,) = group.abandon(ErrorCode.NOT_COORDINATOR)
    assert answer == Answer(2, LeaveGroupResponse(error_code=ErrorCode.NOT_COORDINATOR))


def test_a_member_of_the_new_protocol_is_told_that_this_is_no_such_group():
    group = ClassicGroup.new(GROUP, SETTINGS)
    (answer,) = group.consumer_heartbeat(
        caller(5), ConsumerGroupHeartbeatRequest(group_id=GROUP), Topics()
    )
    assert isinstance(answer, Answer)
    assert isinstance(answer.response, ConsumerGroupHeartbeatResponse)
    assert (answer.token, answer.response.error_code) == (5, ErrorCode.GROUP_ID_NOT_FOUND)


def test_offsets_of_a_classic_group_are_fetched_by_anyone():
    world = world_with(row_of("a", 7, "range"), epoch=7)
    assert world.group.check_fetch("b", 3, now_ms=0) is ErrorCode.NONE


# From another protocol.


def test_a_group_that_comes_from_another_protocol_and_rebalances_does_so_after_a_takeover():
    world = world_with(row_of("x", 7, "range"), row_of("a", 7, "range"), epoch=7)
    assert world.row is not None
    assigned = write_assignment({"t": [0]})
    world.group = ClassicGroup.migrated(
        GROUP,
        SETTINGS,
        row_epoch=world.row.epoch,
        row_ids=world.row.members,
        generation=7,
        members=[member("a", assignment=assigned), member("b")],
        now_ms=0,
    )
    world.open[77] = "leave"
    answer = Answer(77, LeaveGroupResponse())
    assert world.take(world.group.save([answer])) == []
    assert world.write() == [answer]
    for group in (world.group, world.loaded()):
        assert (group.state(), group.generation) == ("PreparingRebalance", 7)
        assert (group.members.leader_id, group.members.ids()) == ("a", ("a", "b"))
        assert group.owner_of("t", TOPIC_ID_ZERO, 0) == "a"
        assert group.heartbeat("b", 7, None, 0) is ErrorCode.REBALANCE_IN_PROGRESS
        assert group.check_commit("b", 7, None, version=9, now_ms=0) is ErrorCode.NONE
        answers = [
            *group.join(caller(1, version=9), join_request("a")),
            *group.join(caller(2, version=9), join_request("b")),
        ]
        assert [a.response.generation_id for a in answers if isinstance(a, Answer)] == [9, 9]
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=9,
            member_id="a",
            assignments=[SyncGroupRequestAssignment(member_id="a", assignment=b"x")],
        )
        (write,) = group.sync(caller(3), request)
        assert isinstance(write, Write)
        (command,) = write.commands
        assert isinstance(command, ChangeGroup)
        assert (command.epoch_before, command.epoch) == (8, 9)
