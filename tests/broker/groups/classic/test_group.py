"""What stories of a classic group tell badly: sizes, cut writes, other ways into a group."""

import pytest

from broker.groups.classic.group import ClassicGroup
from broker.groups.classic.joins import NAME_BYTES_MAX
from broker.groups.classic.members import ClassicMember
from broker.groups.classic.rows import GroupBody, MemberBody, encode_group, encode_member
from broker.groups.group.effects import Answer, Caller, Write
from coordinator.commands.group_commands import GROUP_NEW, ChangeGroup, GroupKind, GroupMember
from coordinator.tables.groups import MEMBERS_MAX
from protocol.consumer_protocol import write_assignment
from protocol.errors import ErrorCode
from protocol.messages import LeaveGroupResponse, SyncGroupResponse
from protocol.types import TOPIC_ID_ZERO
from tests.broker.groups import requests
from tests.broker.groups.classic.clients import NOISE, Client, Crowd
from tests.broker.groups.pure import GROUP, Asked, World, classic_world

E = ErrorCode


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
        protocols=(("range", b"r"),),
        assignment=assignment,
    )


def row_of(member_id: str, epoch: int, *protocols: str) -> GroupMember:
    named = tuple((name, b"") for name in protocols)
    body = MemberBody(None, "c", "/10.0.0.1", 60_000, 10_000, named, b"")
    return GroupMember(member_id, epoch, encode_member(body))


def world_with(*members: GroupMember, epoch: int) -> World:
    """A world whose log has a group with these members."""
    world = classic_world()
    body = encode_group(GroupBody("consumer", "range", None))
    change = ChangeGroup(GROUP, GroupKind.CLASSIC, GROUP_NEW, epoch, body, members, ())
    world.apply((change,))
    world.take_over()
    return world


def row_is(world: World, epoch: int, *member_ids: str) -> bool:
    assert world.row is not None
    return (world.row.epoch, [*world.row.members]) == (epoch, [*member_ids])


def all_sync(crowd: Crowd, clients: list[Client]) -> None:
    """The leader, which was the first to join, comes last, so that all are in one write."""
    for client in reversed(clients):
        crowd.sync(client)
    assert crowd.world.writing is not None


# Large groups.


def test_a_large_generation_is_written_in_parts_and_told_when_all_are_in():
    clients = [Client(f"c{n}", version=3) for n in range(1_200)]
    crowd = Crowd(*clients)
    for client in clients:
        crowd.join(client)
    crowd.advance(0)
    all_sync(crowd, clients)
    rows = [len(command.put) for command in crowd.world.writing.commands]
    assert len(rows) > 1
    assert sum(rows) == 1_200
    assert all(client.assignment is None for client in clients)
    crowd.write()
    assert all(client.assignment for client in clients)
    crowd.check()


@pytest.mark.parametrize("applied", [1, 2])
def test_whoever_takes_over_in_the_middle_of_a_write_lets_the_members_rebalance(applied: int):
    clients = [Client(f"c{n}", version=3, protocols=(("range", NOISE),)) for n in range(3)]
    crowd = Crowd(*clients)
    for client in clients:
        crowd.join(client)
    crowd.advance(0)
    all_sync(crowd, clients)
    crowd.write()
    assert crowd.world.group.generation == 1
    for client in clients:
        crowd.join(client)
    all_sync(crowd, clients)
    assert len(crowd.world.writing.commands) == 3
    crowd.fail(E.NOT_COORDINATOR, applied=applied)
    group = crowd.world.group
    assert (group.state(), group.generation) == ("PreparingRebalance", 2)
    # They believe in the generation that was half written, and are told to join again.
    for client in clients:
        assert crowd.beat(client) is E.REBALANCE_IN_PROGRESS
        assert crowd.commit(client) is E.REBALANCE_IN_PROGRESS
    for client in clients:
        crowd.join(client)
    assert {client.generation for client in clients} == {3}
    all_sync(crowd, clients)
    crowd.write()
    assert row_is(crowd.world, 3, *crowd.world.group.members.ids())
    assert {member.epoch for member in crowd.world.row.members.values()} == {3}


def test_a_group_of_which_nobody_comes_back_after_a_cut_write_becomes_empty():
    world = world_with(row_of("a", 8, "range"), row_of("b", 7, "range"), epoch=7)
    assert world.group.state() == "PreparingRebalance"
    world.wait(60_000)
    world.write()
    assert row_is(world, 9)


def test_members_behind_who_agree_upon_no_protocol_with_those_ahead_begin_anew():
    world = world_with(
        row_of("old", 7, "range"), row_of("a", 8, "sticky", "x"), row_of("b", 8, "sticky"), epoch=7
    )
    assert world.group.members.ids() == ("a", "b")
    assert world.heartbeat("old", 7) is E.UNKNOWN_MEMBER_ID
    for member_id in ("a", "b"):
        world.join(member_id, protocols=(("sticky", b""),))
    world.sync("a", 9)
    world.write()
    assert row_is(world, 9, "a", "b")


def test_members_behind_their_group_rebalance_and_may_commit_in_their_generation():
    world = world_with(row_of("a", 7, "range"), row_of("b", 7, "range"), epoch=8)
    assert world.group.state() == "PreparingRebalance"
    assert world.heartbeat("a", 7) is E.REBALANCE_IN_PROGRESS
    assert world.check_commit("a", 7) is E.NONE
    for member_id in ("a", "b"):
        world.join(member_id)
    assert world.group.generation == 9


def test_a_group_has_no_more_members_than_the_table_takes():
    world = classic_world()
    for _ in range(MEMBERS_MAX):
        assert world.join(version=3) is None
    assert world.join(version=3).error_code == E.GROUP_MAX_SIZE_REACHED
    assert len(world.group.members) == MEMBERS_MAX


def test_no_more_ids_are_given_than_there_may_be_members():
    world = classic_world()
    for _ in range(MEMBERS_MAX):
        assert world.join(version=4).error_code == E.MEMBER_ID_REQUIRED
    assert world.join(version=4).error_code == E.GROUP_MAX_SIZE_REACHED
    assert world.join("c-7", version=4) is None
    assert world.join(version=4).member_id


# Names.


LONG = "n" * (NAME_BYTES_MAX + 1)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (requests.join(GROUP, instance_id=LONG), E.INVALID_REQUEST),
        (requests.join(GROUP, protocol_type=LONG), E.INVALID_REQUEST),
        (requests.join("g" * 32_768), E.INVALID_GROUP_ID),
    ],
    ids=["instance id", "protocol type", "group id"],
)
def test_names_that_leave_no_room_in_an_entry_are_refused(request_, code):
    world = classic_world()
    assert world.ask("join", request_, version=5).response.error_code == code
    assert not world.group.has_members()


@pytest.mark.parametrize("letter", ["c", "ß", "語", "𝄞"])
def test_the_longest_names_make_a_group_that_can_be_written_and_emptied(letter: str):
    def name(size: int) -> str:
        return letter * (size // len(letter.encode()))

    def caller(token: int, *, version: int = 3, client_id: str = "c") -> Caller:
        return Caller(token, version, client_id, "/10.0.0.1", 0, f"{token}")

    longest, kind, instance = "g" * 32_767, name(NAME_BYTES_MAX), name(NAME_BYTES_MAX)
    group = ClassicGroup.new(longest, classic_world().settings)
    request = requests.join(longest, protocol_type=kind)
    group.join(caller(1, client_id=name(32_767)), request)
    request = requests.join(longest, protocol_type=kind, instance_id=instance)
    group.join(caller(2, version=5), request)
    group.tick(0)
    answers = group.tick(0)
    leader = next(a.response for a in answers if isinstance(a, Answer) and a.response.members)
    assert len(leader.members[0].member_id.encode()) <= NAME_BYTES_MAX + 2
    (effect,) = group.sync(caller(3), requests.sync(longest, leader.member_id, 1))
    # A client id of 32 KiB beside all that may not fit; then all hear so. It can leave anyhow.
    if isinstance(effect, Write):
        group.written(0)
    leaving = requests.leave(longest, *group.members.ids())
    assert isinstance(group.leave(caller(4, version=5), leaving)[-1], Write)


def test_a_protocol_that_is_named_twice_counts_once():
    world = classic_world()
    world.join(version=3, protocols=(("range", b"1"), ("range", b"2")))
    world.join(version=3, protocols=(("sticky", b""), ("range", b"3")))
    refused = world.join(version=3, protocols=(("sticky", b""),))
    assert refused.error_code == E.INCONSISTENT_GROUP_PROTOCOL
    world.heard()
    world.wait(0)
    answers = [asked.response for asked in world.heard()]
    assert [answer.protocol_name for answer in answers] == ["range", "range"]
    assert [told.metadata for told in answers[0].members] == [b"1", b"3"]


# Timers.


def test_a_group_without_members_waits_for_nothing():
    group = classic_world().group
    assert group.deadline_ms() is None
    assert group.tick(1 << 40) == []


def test_a_heartbeat_can_bring_a_deadline_forward():
    world = classic_world(initial_rebalance_delay_ms=120_000)
    joining = world.ask("join", requests.join(GROUP, rebalance_ms=60_000), version=3)
    assert world.group.deadline_ms() == 120_000
    world.now_ms = 5_000
    assert world.heartbeat("c-1", 0) is E.REBALANCE_IN_PROGRESS
    assert world.group.deadline_ms() == 15_000
    assert world.group.tick(14_999) == []
    world.now_ms = 15_000
    world.tick()
    assert joining.response.error_code == E.UNKNOWN_MEMBER_ID
    assert world.writing is not None


def test_many_sessions_that_end_at_once_are_one_call():
    world = world_with(*(row_of(f"m{n}", 7, "range") for n in range(900)), epoch=7)
    world.now_ms = 10_000
    world.tick()
    assert world.writing is not None
    assert len(world.writing.commands[0].removed) == 900


def test_what_is_due_behind_a_write_is_done_after_it():
    world = world_with(row_of("a", 7, "range"), epoch=7)
    # c-1: a begins to be waited for, until 60 s.
    world.join(version=3, rebalance_ms=60_000)
    world.now_ms = 55_000
    world.join(version=4)
    world.leave("c-1")
    world.now_ms = 100_000
    world.tick()
    assert world.writing is not None
    world.write()
    assert world.group.has_members()
    assert world.next_tick_ms(world.now_ms) == world.now_ms
    world.tick()
    assert not world.group.has_members()
    assert world.group.deadline_ms() is None
    changed = world.join("a", protocols=(("range", b"2"),))
    assert changed.error_code == E.UNKNOWN_MEMBER_ID


# The ways in and out of a group.


def test_a_body_of_another_version_is_not_taken_over():
    world = world_with(row_of("a", 7, "range"), epoch=7)
    assert world.row is not None
    world.row.body = b"\x7f" + world.row.body[1:]
    with pytest.raises(ValueError, match="version 127"):
        world.loaded()


def test_abandoned_a_group_answers_all_who_wait_and_is_dead():
    world = classic_world()
    world.join(version=3)
    world.join(version=5, instance_id="i")
    world.wait(0)
    syncs = [world.ask("sync", requests.sync(GROUP, each, 1), version=3) for each in ("i-2", "c-1")]
    assert world.writing is not None
    group = world.group
    world.fail(E.REQUEST_TIMED_OUT)
    error = SyncGroupResponse(error_code=E.REQUEST_TIMED_OUT)
    assert [asked.response for asked in syncs] == [error, error]
    assert group.state() == "Dead"
    assert group.deadline_ms() is None


def test_abandoned_a_leave_is_refused_as_a_whole():
    world = classic_world()
    world.join(version=3)
    world.wait(0)
    leaving = world.ask("leave", requests.leave(GROUP, "c-1"), version=5)
    assert world.writing is not None
    world.fail(E.NOT_COORDINATOR)
    assert leaving.response == LeaveGroupResponse(error_code=E.NOT_COORDINATOR)


def test_offsets_of_a_classic_group_are_fetched_by_anyone():
    world = world_with(row_of("a", 7, "range"), epoch=7)
    assert world.group.check_fetch("b", 3, now_ms=0) is E.NONE


# From another protocol.


@pytest.mark.parametrize("takes_over", [False, True])
def test_a_group_that_comes_from_another_protocol_and_rebalances_does_so_after_a_takeover(
    takes_over: bool,
):
    world = world_with(row_of("x", 7, "range"), row_of("a", 7, "range"), epoch=7)
    assert world.row is not None
    world.group = ClassicGroup.migrated(
        GROUP,
        world.settings,
        row_epoch=world.row.epoch,
        row_ids=world.row.members,
        generation=7,
        members=[member("a", assignment=write_assignment({"t": [0]})), member("b")],
        now_ms=0,
    )
    # Whoever waits for the change of protocol is answered when it is written.
    asked = world.waiting[77] = Asked(77, "leave", None, 0, lambda response: None)
    world.perform(world.group.save([Answer(77, LeaveGroupResponse())]))
    assert asked.response is None
    world.write()
    assert asked.response == LeaveGroupResponse()
    if takes_over:
        world.take_over()
    group = world.group
    assert (group.state(), group.generation) == ("PreparingRebalance", 7)
    assert (group.members.leader_id, group.members.ids()) == ("a", ("a", "b"))
    assert group.owner_of("t", TOPIC_ID_ZERO, 0) == "a"
    assert world.heartbeat("b", 7) is E.REBALANCE_IN_PROGRESS
    assert world.check_commit("b", 7) is E.NONE
    world.heard()
    for member_id in ("a", "b"):
        world.join(member_id, protocols=(("range", b"r"),))
    assert [asked.response.generation_id for asked in world.heard()] == [9, 9]
    world.sync("a", 9, assignments={"a": b"x"})
    assert world.writing is not None
    (command,) = world.writing.commands
    assert isinstance(command, ChangeGroup)
    assert (command.epoch_before, command.epoch) == (8, 9)
