"""What members of the classic protocol ask in a KIP-848 group, and what they are told."""

import pytest

from broker.groups.consumer.members import MemberState
from protocol.consumer_protocol import (
    Subscription,
    read_assignment,
    write_assignment,
    write_subscription,
)
from protocol.errors import ErrorCode
from protocol.messages import MemberIdentity
from tests.broker.groups.consumer.clients import Client as ConsumerClient
from tests.broker.groups.migration.asks import (
    consumer_joins,
    join,
    join_request,
    leave,
    metadata,
    sync,
)
from tests.broker.groups.migration.clients import COOPERATIVE, RANGE, SESSION_MS, ClassicClient
from tests.broker.groups.migration.village import Village, mixed
from tests.broker.groups.migration.world import World

E = ErrorCode


def consumer_world(partitions: int = 4) -> World:
    """A KIP-848 group with the member "m", which has all partitions of "t"."""
    world = World()
    world.create("t", partitions)
    assert consumer_joins(world).error_code == E.NONE
    return world


def joined(world: World, *, instance_id: str | None = None, session_ms: int = SESSION_MS) -> str:
    """The id of a classic member that has joined and asked for its assignment."""
    request = join_request("" if instance_id else "c", instance_id=instance_id)
    request.session_timeout_ms = session_ms
    response = join(world, request)
    assert response.error_code == E.NONE
    told = sync(world, response.member_id, response.generation_id, instance_id=instance_id)
    assert told.error_code == E.NONE
    return response.member_id


def settled() -> tuple[World, str, int]:
    """A group that is stable, with "m" and a classic member: its id and its generation."""
    world = consumer_world()
    member_id = joined(world)
    (topic,) = world.topics
    world.beat("m", 1, owned={topic.topic_id: {0, 1}})
    assert world.group.heartbeat(member_id, 2, None, world.now_ms) == E.REBALANCE_IN_PROGRESS
    assert joined(world) == member_id
    assert world.group.state() == "Stable"
    return world, member_id, 2


# JoinGroup.


def test_a_member_joins_with_its_subscription_and_is_told_its_epoch_and_no_leader() -> None:
    world = consumer_world()
    subscription = Subscription(["t", "more"], b"user", {}, rack_id="zone-1")
    protocols = ((COOPERATIVE, write_subscription(subscription)), (RANGE, metadata("t")))
    response = join(world, join_request("c", protocols=protocols))
    assert (response.error_code, response.member_id, response.generation_id) == (E.NONE, "c", 2)
    assert (response.protocol_type, response.protocol_name) == ("consumer", COOPERATIVE)
    assert (response.leader, response.members) == ("", [])
    member = world.consumer.image.members["c"]
    assert member.subscription.names == {"t", "more"}
    assert (member.rack_id, member.client_id, member.client_host) == ("zone-1", "c", "/10.0.0.1")
    assert member.rebalance_timeout_ms == 30_000
    assert member.classic is not None
    assert member.classic == (SESSION_MS, protocols)


def test_joining_as_before_changes_nothing() -> None:
    world, member_id, generation = settled()
    row = world.row
    assert row is not None
    changed = row.changed
    response = join(world, join_request(member_id))
    assert (response.member_id, response.generation_id) == (member_id, generation)
    assert row.changed == changed


def test_another_subscription_raises_the_epoch() -> None:
    world, member_id, generation = settled()
    request = join_request(member_id, protocols=((RANGE, metadata("t", "u")),))
    assert join(world, request).generation_id == generation + 1
    assert world.consumer.image.epoch == generation + 1


@pytest.mark.parametrize("version", [3, 4, 9])
def test_a_member_without_an_id_is_given_one_to_join_with_from_version_4_on(version: int) -> None:
    world = consumer_world()
    response = join(world, join_request(), version=version)
    assert response.member_id.startswith("fresh-")
    if version < 4:
        assert response.error_code == E.NONE
        assert response.member_id in world.consumer.image.members
    else:
        assert response.error_code == E.MEMBER_ID_REQUIRED
        assert [*world.consumer.image.members] == ["m"]
        assert join(world, join_request(response.member_id)).error_code == E.NONE


def test_the_rebalance_timeout_of_version_0_is_the_session_timeout() -> None:
    world = consumer_world()
    member_id = join(world, join_request(), version=0).member_id
    assert world.consumer.image.members[member_id].rebalance_timeout_ms == SESSION_MS


BROKEN = ((RANGE, b"\0\1garbage"),)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (join_request("c", session_ms=5_999), E.INVALID_SESSION_TIMEOUT),
        (join_request("c", session_ms=1_800_001), E.INVALID_SESSION_TIMEOUT),
        (join_request("c", protocol_type="connect"), E.INCONSISTENT_GROUP_PROTOCOL),
        (join_request("c", protocol_type=""), E.INCONSISTENT_GROUP_PROTOCOL),
        (join_request("c", protocols=()), E.INCONSISTENT_GROUP_PROTOCOL),
        (join_request("c", protocols=BROKEN), E.INCONSISTENT_GROUP_PROTOCOL),
        (join_request("c", protocols=(("other", metadata("t")),)), E.INCONSISTENT_GROUP_PROTOCOL),
        (join_request("c", instance_id="unknown"), E.UNKNOWN_MEMBER_ID),
        (join_request("c", instance_id="i"), E.FENCED_INSTANCE_ID),
        (join_request("", instance_id="x" * 9_000), E.INVALID_REQUEST),
    ],
)
def test_who_is_refused_is_no_member(request_: object, code: ErrorCode) -> None:
    world = consumer_world()
    joined(world, instance_id="i")
    members = world.consumer.image.members.copy()
    response = join(world, request_)
    assert (response.error_code, response.generation_id) == (code, -1)
    assert response.member_id == request_.member_id
    assert world.consumer.image.members == members


def test_who_would_be_one_too_many_is_refused_and_who_is_in_is_not() -> None:
    world, member_id, _ = settled()
    world.configure(consumer_max_size=2)
    assert join(world, join_request("d")).error_code == E.GROUP_MAX_SIZE_REACHED
    assert join(world, join_request(member_id)).error_code == E.NONE


def test_a_static_member_that_comes_back_without_its_id_has_what_it_had() -> None:
    village = mixed()
    static = village.classic("t", instance_id="i")
    village.settle(20)
    world = village.world
    before = world.consumer.image.members[static.member_id]
    static.leave()
    village.clients.remove(static)
    returned = village.classic("t", instance_id="i")
    returned.step()
    assert returned.member_id != before.member_id
    after = world.consumer.image.members[returned.member_id]
    assert (after.assigned, after.epoch) == (before.assigned, before.epoch)
    assert world.group.heartbeat(before.member_id, before.epoch, "i", 0) == E.FENCED_INSTANCE_ID
    assert world.group.heartbeat(before.member_id, before.epoch, None, 0) == E.UNKNOWN_MEMBER_ID
    village.settle(3)


def test_who_takes_the_place_of_a_member_of_kip_848_has_no_regular_expression() -> None:
    world = consumer_world()
    fields = {"rebalance_timeout_ms": 30_000, "owned": {}, "instance_id": "i"}
    world.beat("r", 0, subscribed_topic_regex="t.*", **fields)
    assert join(world, join_request(instance_id="i")).error_code == E.NONE
    member = world.consumer.image.static_member("i")
    assert member is not None
    assert member.subscription == ({"t"}, "")


def test_a_write_that_fails_is_told_with_its_error() -> None:
    world = consumer_world()
    world.fail_after = 0
    assert join(world, join_request("c")).error_code == E.REQUEST_TIMED_OUT
    assert [*world.consumer.image.members] == ["m"]


# SyncGroup.


def test_a_member_is_told_what_it_is_assigned_in_the_version_that_it_speaks() -> None:
    for version in range(4):
        world = consumer_world()
        world.beat("m", -1)
        consumer_joins(world, "n", "u")
        data = write_subscription(Subscription(["t"], None, {}, version=version))
        response = join(world, join_request("c", protocols=((RANGE, data),)))
        told = sync(world, "c", response.generation_id)
        assert (told.protocol_type, told.protocol_name) == ("consumer", RANGE)
        assert told.assignment == write_assignment({"t": [0, 1, 2, 3]}, version=version)


def test_topics_that_are_gone_are_not_told() -> None:
    village = mixed()
    world = village.world
    client = village.running()[0]
    assert isinstance(client, ClassicClient)
    topic = world.topics.by_name("t")
    assert topic is not None
    world.topics.remove(topic.topic_id)
    told = sync(world, client.member_id, client.generation)
    assert read_assignment(told.assignment) == {}


def test_a_sync_that_does_not_fit_is_refused() -> None:
    world, member_id, generation = settled()
    for told, code in (
        (sync(world, "x", generation), E.UNKNOWN_MEMBER_ID),
        (sync(world, "m", generation), E.UNKNOWN_MEMBER_ID),
        (sync(world, member_id, generation, instance_id="i"), E.UNKNOWN_MEMBER_ID),
        (sync(world, member_id, generation - 1), E.ILLEGAL_GENERATION),
        (sync(world, member_id, generation, protocol_type="x"), E.INCONSISTENT_GROUP_PROTOCOL),
        (sync(world, member_id, generation, protocol_name="x"), E.INCONSISTENT_GROUP_PROTOCOL),
        (sync(world, member_id, generation, protocol_name=None, protocol_type=None), E.NONE),
    ):
        assert told.error_code == code


def test_who_is_behind_is_to_join_and_not_to_sync() -> None:
    world, member_id, generation = settled()
    consumer_joins(world, "n")
    assert sync(world, member_id, generation).error_code == E.REBALANCE_IN_PROGRESS


def test_who_has_to_revoke_syncs_in_its_old_generation_and_joins_again() -> None:
    village = mixed(COOPERATIVE)
    world = village.world
    client = village.running()[0]
    assert isinstance(client, ClassicClient)
    generation, owned = client.generation, len(client.owned["t"])
    for _ in range(3):
        village.consumer("t").beat()
    client.step()
    client.step()
    member = world.consumer.image.members[client.member_id]
    assert member.state is MemberState.UNREVOKED_PARTITIONS
    assert client.generation == generation
    assert client.must_join
    assert len(client.owned["t"]) < owned
    client.step()
    assert client.generation == world.consumer.image.epoch


# Heartbeat.


def test_a_member_that_has_what_it_is_to_have_is_told_nothing() -> None:
    world, member_id, generation = settled()
    assert world.group.heartbeat(member_id, generation, None, world.now_ms) == E.NONE


def test_a_heartbeat_that_does_not_fit_is_refused() -> None:
    world, member_id, generation = settled()
    beat = world.group.heartbeat
    assert beat("x", generation, None, 0) == E.UNKNOWN_MEMBER_ID
    assert beat("m", generation, None, 0) == E.UNKNOWN_MEMBER_ID
    assert beat(member_id, generation, "i", 0) == E.UNKNOWN_MEMBER_ID
    assert beat(member_id, generation + 1, None, 0) == E.ILLEGAL_GENERATION


def test_who_waits_for_others_is_told_to_join_when_all_that_it_waits_for_is_free() -> None:
    world = consumer_world(partitions=4)
    member_id = joined(world)
    (topic,) = world.topics
    member = world.consumer.image.members[member_id]
    assert member.state is MemberState.UNRELEASED_PARTITIONS
    beat = world.group.heartbeat
    assert beat(member_id, 2, None, world.now_ms) == E.NONE
    world.beat("m", 1, owned={topic.topic_id: {0, 1, 2, 3}})
    assert beat(member_id, 2, None, world.now_ms) == E.NONE
    world.beat("m", 1, owned={topic.topic_id: {0, 1}})
    assert beat(member_id, 2, None, world.now_ms) == E.REBALANCE_IN_PROGRESS
    response = join(world, join_request(member_id))
    told = sync(world, member_id, response.generation_id)
    assert read_assignment(told.assignment) == {"t": [2, 3]}


def test_when_a_member_has_left_the_others_are_told_to_join() -> None:
    world, member_id, generation = settled()
    joined_other = join(world, join_request("d"))
    assert joined_other.error_code == E.NONE
    world.beat("m", -1)
    assert world.group.heartbeat(member_id, generation, None, world.now_ms) in (
        E.REBALANCE_IN_PROGRESS,
        E.ILLEGAL_GENERATION,
    )


# Time.


def test_a_member_that_is_silent_for_its_session_is_gone() -> None:
    world, member_id, generation = settled()
    for _ in range(3):
        world.wait(SESSION_MS - 1)
        world.beat("m", world.consumer.image.members["m"].epoch)
        assert world.group.heartbeat(member_id, generation, None, world.now_ms) == E.NONE
    world.wait(SESSION_MS)
    assert [*world.consumer.image.members] == ["m"]


def test_a_member_that_is_told_to_join_and_does_not_is_gone_after_its_rebalance_timeout() -> None:
    world, member_id, generation = settled()
    world.configure(consumer_session_timeout_ms=10**9)
    consumer_joins(world, "n")
    for _ in range(29):
        assert world.group.heartbeat(member_id, generation, None, world.now_ms) == (
            E.REBALANCE_IN_PROGRESS
        )
        world.wait(1_000)
    assert member_id in world.consumer.image.members
    world.group.heartbeat(member_id, generation, None, world.now_ms)
    world.wait(1_000)
    assert member_id not in world.consumer.image.members


def test_a_member_that_joins_in_time_stays() -> None:
    world, member_id, generation = settled()
    world.configure(consumer_session_timeout_ms=10**9)
    consumer_joins(world, "n")
    world.group.heartbeat(member_id, generation, None, world.now_ms)
    world.wait(9_000)
    assert joined(world) == member_id
    for _ in range(10):
        world.wait(9_000)
        world.group.heartbeat(member_id, generation + 1, None, world.now_ms)
        joined(world)
    assert member_id in world.consumer.image.members


def test_a_member_that_joins_and_does_not_sync_is_gone_after_its_rebalance_timeout() -> None:
    world = consumer_world()
    world.configure(consumer_session_timeout_ms=10**9)
    join(world, join_request("c", session_ms=60_000))
    world.wait(29_999)
    assert "c" in world.consumer.image.members
    world.wait(1)
    assert "c" not in world.consumer.image.members


def test_a_member_that_now_speaks_kip_848_is_held_to_no_deadline_of_the_classic_protocol() -> None:
    world = consumer_world()
    world.configure(consumer_session_timeout_ms=10**9)
    join(world, join_request("c"))
    assert consumer_joins(world, "c").error_code == E.NONE
    world.wait(100_000)
    assert "c" in world.consumer.image.members


def test_who_joins_or_syncs_has_shown_that_it_is_there() -> None:
    world, member_id, generation = settled()
    world.wait(SESSION_MS - 1)
    assert join(world, join_request(member_id)).error_code == E.NONE
    world.wait(SESSION_MS - 1)
    assert sync(world, member_id, generation).error_code == E.NONE
    world.wait(SESSION_MS - 1)
    assert world.group.heartbeat(member_id, generation, None, world.now_ms) == E.NONE


def test_nothing_is_due_of_members_that_have_left() -> None:
    world, member_id, generation = settled()
    consumer_joins(world, "n")
    world.group.heartbeat(member_id, generation, None, world.now_ms)
    join(world, join_request("d"))
    leave(world, MemberIdentity(member_id=member_id), MemberIdentity(member_id="d"))
    world.beat("m", -1)
    world.beat("n", -1)
    assert world.group.state() == "Empty"
    assert world.group.deadline_ms() is None


def test_after_a_takeover_everybody_has_a_whole_session() -> None:
    world, member_id, generation = settled()
    world.wait(SESSION_MS - 1)
    world.take_over()
    world.wait(SESSION_MS - 1)
    assert world.group.heartbeat(member_id, generation, None, world.now_ms) == E.NONE


# LeaveGroup.


@pytest.mark.parametrize("version", [0, 2, 3, 5])
def test_members_that_leave_are_gone(version: int) -> None:
    world, member_id, _ = settled()
    left = leave(world, MemberIdentity(member_id=member_id), version=version)
    assert left.error_code == E.NONE
    assert [row.error_code for row in left.members] == ([E.NONE] if version >= 3 else [])
    assert [*world.consumer.image.members] == ["m"]


def test_who_cannot_leave_is_told_why_and_the_others_go() -> None:
    world, member_id, _ = settled()
    static_id = joined(world, instance_id="i")
    left = leave(
        world,
        MemberIdentity(member_id="x"),
        MemberIdentity(member_id="m"),
        MemberIdentity(member_id=member_id, group_instance_id="i"),
        MemberIdentity(member_id=static_id, group_instance_id="j"),
        MemberIdentity(member_id="", group_instance_id="i"),
        MemberIdentity(member_id="", group_instance_id="j"),
        MemberIdentity(member_id=member_id),
    )
    assert [row.error_code for row in left.members] == [
        E.UNKNOWN_MEMBER_ID,
        E.UNKNOWN_MEMBER_ID,
        E.FENCED_INSTANCE_ID,
        E.UNKNOWN_MEMBER_ID,
        E.NONE,
        E.UNKNOWN_MEMBER_ID,
        E.NONE,
    ]
    assert [*world.consumer.image.members] == ["m"]


def test_an_unknown_member_that_leaves_is_told_so_in_old_versions_too() -> None:
    world, _, _ = settled()
    assert leave(world, MemberIdentity(member_id="x"), version=1).error_code == E.UNKNOWN_MEMBER_ID


# All of it.


@pytest.mark.parametrize("protocol", [RANGE, COOPERATIVE])
def test_classic_members_come_and_go_in_a_group_of_kip_848(protocol: str) -> None:
    village = Village()
    village.world.create("t", 7)
    village.consumer("t")
    for _ in range(3):
        village.classic("t", protocol=protocol)
        village.settle(20)
    for client in village.running():
        if not isinstance(client, ConsumerClient):
            client.leave()
            village.settle(20)
    assert village.world.kinds == ["CONSUMER"]
