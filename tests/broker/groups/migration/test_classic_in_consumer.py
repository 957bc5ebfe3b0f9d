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
from tests.broker.groups.pure import World, world_of_either
from tests.broker.groups.requests import COOPERATIVE, RANGE, SESSION_MS, subscription
from tests.broker.groups.village import Village, mixed

E = ErrorCode


def with_m(partitions: int = 4) -> World:
    """A KIP-848 group with the member "m", which has all partitions of "t"."""
    world = world_of_either()
    world.create("t", partitions)
    assert world.subscribe("m", "t").error_code == E.NONE
    return world


def joined(world: World, *, instance_id: str | None = None) -> str:
    """The id of a classic member that has joined and asked for its assignment."""
    response = world.join("" if instance_id else "c", instance_id=instance_id)
    assert response.error_code == E.NONE
    told = world.sync(response.member_id, response.generation_id, instance_id=instance_id)
    assert told.error_code == E.NONE
    return response.member_id


def settled() -> tuple[World, str, int]:
    """A group that is stable, with "m" and a classic member: its id and its generation."""
    world = with_m()
    member_id = joined(world)
    (topic,) = world.topics
    world.beat("m", 1, owned={topic.topic_id: {0, 1}})
    assert world.heartbeat(member_id, 2) == E.REBALANCE_IN_PROGRESS
    assert joined(world) == member_id
    assert world.group.state() == "Stable"
    return world, member_id, 2


# JoinGroup.


def test_a_member_joins_with_its_subscription_and_is_told_its_epoch_and_no_leader() -> None:
    world = with_m()
    preferred = Subscription(["t", "more"], b"user", {}, rack_id="zone-1")
    protocols = ((COOPERATIVE, write_subscription(preferred)), (RANGE, subscription("t")))
    response = world.join("c", protocols=protocols)
    assert (response.error_code, response.member_id, response.generation_id) == (E.NONE, "c", 2)
    assert (response.protocol_type, response.protocol_name) == ("consumer", COOPERATIVE)
    assert (response.leader, response.members) == ("", [])
    member = world.image.members["c"]
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
    response = world.join(member_id)
    assert (response.member_id, response.generation_id) == (member_id, generation)
    assert row.changed == changed


def test_another_subscription_raises_the_epoch() -> None:
    world, member_id, generation = settled()
    changed = world.join(member_id, protocols=((RANGE, subscription("t", "u")),))
    assert changed.generation_id == generation + 1
    assert world.image.epoch == generation + 1


@pytest.mark.parametrize("version", [3, 4, 9])
def test_a_member_without_an_id_is_given_one_to_join_with_from_version_4_on(version: int) -> None:
    world = with_m()
    response = world.join(version=version)
    assert response.member_id.startswith("fresh-")
    if version < 4:
        assert response.error_code == E.NONE
        assert response.member_id in world.image.members
    else:
        assert response.error_code == E.MEMBER_ID_REQUIRED
        assert [*world.image.members] == ["m"]
        assert world.join(response.member_id).error_code == E.NONE


def test_the_rebalance_timeout_of_version_0_is_the_session_timeout() -> None:
    world = with_m()
    member_id = world.join(version=0).member_id
    assert world.image.members[member_id].rebalance_timeout_ms == SESSION_MS


@pytest.mark.parametrize(
    ("member_id", "fields", "code"),
    [
        ("c", {"session_ms": 5_999}, E.INVALID_SESSION_TIMEOUT),
        ("c", {"session_ms": 1_800_001}, E.INVALID_SESSION_TIMEOUT),
        ("c", {"protocol_type": "connect"}, E.INCONSISTENT_GROUP_PROTOCOL),
        ("c", {"protocol_type": ""}, E.INCONSISTENT_GROUP_PROTOCOL),
        ("c", {"protocols": ()}, E.INCONSISTENT_GROUP_PROTOCOL),
        ("c", {"protocols": ((RANGE, b"\0\1garbage"),)}, E.INCONSISTENT_GROUP_PROTOCOL),
        ("c", {"protocols": (("other", subscription("t")),)}, E.INCONSISTENT_GROUP_PROTOCOL),
        ("c", {"instance_id": "unknown"}, E.UNKNOWN_MEMBER_ID),
        ("c", {"instance_id": "i"}, E.FENCED_INSTANCE_ID),
        ("", {"instance_id": "x" * 9_000}, E.INVALID_REQUEST),
    ],
)
def test_who_is_refused_is_no_member(
    member_id: str, fields: dict[str, object], code: ErrorCode
) -> None:
    world = with_m()
    joined(world, instance_id="i")
    members = world.image.members.copy()
    response = world.join(member_id, **fields)
    assert (response.error_code, response.generation_id) == (code, -1)
    assert response.member_id == member_id
    assert world.image.members == members


def test_who_would_be_one_too_many_is_refused_and_who_is_in_is_not() -> None:
    world, member_id, _ = settled()
    world.configure(consumer_max_size=2)
    assert world.join("d").error_code == E.GROUP_MAX_SIZE_REACHED
    assert world.join(member_id).error_code == E.NONE


def test_a_static_member_that_comes_back_without_its_id_has_what_it_had() -> None:
    village = mixed()
    static = village.classic("t", instance_id="i")
    village.settle(20)
    world = village.world
    before = world.image.members[static.member_id]
    static.leave()
    village.clients.remove(static)
    returned = village.classic("t", instance_id="i")
    returned.step()
    assert returned.member_id != before.member_id
    after = world.image.members[returned.member_id]
    assert (after.assigned, after.epoch) == (before.assigned, before.epoch)
    assert world.heartbeat(before.member_id, before.epoch, "i") == E.FENCED_INSTANCE_ID
    assert world.heartbeat(before.member_id, before.epoch) == E.UNKNOWN_MEMBER_ID
    village.settle(3)


def test_who_takes_the_place_of_a_member_of_kip_848_has_no_regular_expression() -> None:
    world = with_m()
    world.subscribe("r", subscribed_topic_regex="t.*", instance_id="i")
    assert world.join(instance_id="i").error_code == E.NONE
    member = world.image.static_member("i")
    assert member is not None
    assert member.subscription == ({"t"}, "")


def test_a_write_that_fails_is_told_with_its_error() -> None:
    world = with_m()
    world.fail_after = 0
    assert world.join("c").error_code == E.REQUEST_TIMED_OUT
    assert [*world.image.members] == ["m"]


# SyncGroup.


def test_a_member_is_told_what_it_is_assigned_in_the_version_that_it_speaks() -> None:
    for version in range(4):
        world = with_m()
        world.beat("m", -1)
        world.subscribe("n", "u")
        data = write_subscription(Subscription(["t"], None, {}, version=version))
        response = world.join("c", protocols=((RANGE, data),))
        told = world.sync("c", response.generation_id)
        assert (told.protocol_type, told.protocol_name) == ("consumer", RANGE)
        assert told.assignment == write_assignment({"t": [0, 1, 2, 3]}, version=version)


def test_topics_that_are_gone_are_not_told() -> None:
    village = mixed()
    world = village.world
    client = village.classics()[0]
    topic = world.topics.by_name("t")
    assert topic is not None
    world.topics.remove(topic.topic_id)
    told = world.sync(client.member_id, client.generation)
    assert read_assignment(told.assignment) == {}


NAMED = {"protocol_type": "consumer", "protocol_name": RANGE}


@pytest.mark.parametrize(
    ("who", "behind", "fields", "code"),
    [
        ("x", 0, NAMED, E.UNKNOWN_MEMBER_ID),
        ("m", 0, NAMED, E.UNKNOWN_MEMBER_ID),
        (None, 0, {**NAMED, "instance_id": "i"}, E.UNKNOWN_MEMBER_ID),
        (None, 1, NAMED, E.ILLEGAL_GENERATION),
        (None, 0, {**NAMED, "protocol_type": "x"}, E.INCONSISTENT_GROUP_PROTOCOL),
        (None, 0, {**NAMED, "protocol_name": "x"}, E.INCONSISTENT_GROUP_PROTOCOL),
        (None, 0, NAMED, E.NONE),
        (None, 0, {}, E.NONE),
    ],
)
def test_a_sync_that_does_not_fit_is_refused(
    who: str | None, behind: int, fields: dict[str, str], code: ErrorCode
) -> None:
    world, member_id, generation = settled()
    assert world.sync(who or member_id, generation - behind, **fields).error_code == code


def test_who_is_behind_is_to_join_and_not_to_sync() -> None:
    world, member_id, generation = settled()
    world.subscribe("n", "t")
    assert world.sync(member_id, generation).error_code == E.REBALANCE_IN_PROGRESS


def test_who_has_to_revoke_syncs_in_its_old_generation_and_joins_again() -> None:
    village = mixed(COOPERATIVE)
    world = village.world
    client = village.classics()[0]
    generation, owned = client.generation, len(client.owned["t"])
    for _ in range(3):
        village.consumer("t").beat()
    client.step()
    client.step()
    member = world.image.members[client.member_id]
    assert member.state is MemberState.UNREVOKED_PARTITIONS
    assert client.generation == generation
    assert client.must_join
    assert len(client.owned["t"]) < owned
    client.step()
    assert client.generation == world.image.epoch


# Heartbeat.


def test_a_member_that_has_what_it_is_to_have_is_told_nothing() -> None:
    world, member_id, generation = settled()
    assert world.heartbeat(member_id, generation) == E.NONE


def test_a_heartbeat_that_does_not_fit_is_refused() -> None:
    world, member_id, generation = settled()
    assert world.heartbeat("x", generation) == E.UNKNOWN_MEMBER_ID
    assert world.heartbeat("m", generation) == E.UNKNOWN_MEMBER_ID
    assert world.heartbeat(member_id, generation, "i") == E.UNKNOWN_MEMBER_ID
    assert world.heartbeat(member_id, generation + 1) == E.ILLEGAL_GENERATION


def test_who_waits_for_others_is_told_to_join_when_all_that_it_waits_for_is_free() -> None:
    world = with_m(partitions=4)
    member_id = joined(world)
    (topic,) = world.topics
    member = world.image.members[member_id]
    assert member.state is MemberState.UNRELEASED_PARTITIONS
    assert world.heartbeat(member_id, 2) == E.NONE
    world.beat("m", 1, owned={topic.topic_id: {0, 1, 2, 3}})
    assert world.heartbeat(member_id, 2) == E.NONE
    world.beat("m", 1, owned={topic.topic_id: {0, 1}})
    assert world.heartbeat(member_id, 2) == E.REBALANCE_IN_PROGRESS
    response = world.join(member_id)
    told = world.sync(member_id, response.generation_id)
    assert read_assignment(told.assignment) == {"t": [2, 3]}


def test_when_a_member_has_left_the_others_are_told_to_join() -> None:
    world, member_id, generation = settled()
    joined_other = world.join("d")
    assert joined_other.error_code == E.NONE
    world.beat("m", -1)
    told = world.heartbeat(member_id, generation)
    assert told in (E.REBALANCE_IN_PROGRESS, E.ILLEGAL_GENERATION)


# Time.


def test_a_member_that_is_silent_for_its_session_is_gone() -> None:
    world, member_id, generation = settled()
    for _ in range(3):
        world.wait(SESSION_MS - 1)
        world.beat("m", world.image.members["m"].epoch)
        assert world.heartbeat(member_id, generation) == E.NONE
    world.wait(SESSION_MS)
    assert [*world.image.members] == ["m"]


def test_a_member_that_is_told_to_join_and_does_not_is_gone_after_its_rebalance_timeout() -> None:
    world, member_id, generation = settled()
    world.configure(consumer_session_timeout_ms=10**9)
    world.subscribe("n", "t")
    for _ in range(29):
        assert world.heartbeat(member_id, generation) == E.REBALANCE_IN_PROGRESS
        world.wait(1_000)
    assert member_id in world.image.members
    world.heartbeat(member_id, generation)
    world.wait(1_000)
    assert member_id not in world.image.members


def test_a_member_that_joins_in_time_stays() -> None:
    world, member_id, generation = settled()
    world.configure(consumer_session_timeout_ms=10**9)
    world.subscribe("n", "t")
    world.heartbeat(member_id, generation)
    world.wait(9_000)
    assert joined(world) == member_id
    for _ in range(10):
        world.wait(9_000)
        world.heartbeat(member_id, generation + 1)
        joined(world)
    assert member_id in world.image.members


def test_a_member_that_joins_and_does_not_sync_is_gone_after_its_rebalance_timeout() -> None:
    world = with_m()
    world.configure(consumer_session_timeout_ms=10**9)
    world.join("c", session_ms=60_000)
    world.wait(29_999)
    assert "c" in world.image.members
    world.wait(1)
    assert "c" not in world.image.members


def test_a_member_that_now_speaks_kip_848_is_held_to_no_deadline_of_the_classic_protocol() -> None:
    world = with_m()
    world.configure(consumer_session_timeout_ms=10**9)
    world.join("c")
    assert world.subscribe("c", "t").error_code == E.NONE
    world.wait(100_000)
    assert "c" in world.image.members


def test_who_joins_or_syncs_has_shown_that_it_is_there() -> None:
    world, member_id, generation = settled()
    world.wait(SESSION_MS - 1)
    assert world.join(member_id).error_code == E.NONE
    world.wait(SESSION_MS - 1)
    assert world.sync(member_id, generation).error_code == E.NONE
    world.wait(SESSION_MS - 1)
    assert world.heartbeat(member_id, generation) == E.NONE


def test_nothing_is_due_of_members_that_have_left() -> None:
    world, member_id, generation = settled()
    world.subscribe("n", "t")
    world.heartbeat(member_id, generation)
    world.join("d")
    world.leave(member_id, "d")
    world.beat("m", -1)
    world.beat("n", -1)
    assert world.group.state() == "Empty"
    assert world.group.deadline_ms() is None


def test_after_a_takeover_everybody_has_a_whole_session() -> None:
    world, member_id, generation = settled()
    world.wait(SESSION_MS - 1)
    world.take_over()
    world.wait(SESSION_MS - 1)
    assert world.heartbeat(member_id, generation) == E.NONE


# LeaveGroup.


@pytest.mark.parametrize("version", [0, 2, 3, 5])
def test_members_that_leave_are_gone(version: int) -> None:
    world, member_id, _ = settled()
    left = world.leave(member_id, version=version)
    assert left.error_code == E.NONE
    assert [row.error_code for row in left.members] == ([E.NONE] if version >= 3 else [])
    assert [*world.image.members] == ["m"]


def test_who_cannot_leave_is_told_why_and_the_others_go() -> None:
    world, member_id, _ = settled()
    static_id = joined(world, instance_id="i")
    expected = [
        ("x", E.UNKNOWN_MEMBER_ID),
        ((member_id, "i"), E.FENCED_INSTANCE_ID),
        ((static_id, "j"), E.UNKNOWN_MEMBER_ID),
        (("", "i"), E.NONE),
        (("", "j"), E.UNKNOWN_MEMBER_ID),
        (member_id, E.NONE),
    ]
    left = world.leave(*(who for who, _ in expected))
    assert [row.error_code for row in left.members] == [code for _, code in expected]
    assert [*world.image.members] == ["m"]


@pytest.mark.parametrize("version", [2, 5])
def test_an_administrator_removes_a_member_of_kip_848_as_one_of_the_classic_protocol(
    version: int,
) -> None:
    """As Kafka 4.3: its Admin has one way for both (`removeMembersFromConsumerGroup`)."""
    world, member_id, _ = settled()
    assert world.subscribe("n", "t").error_code == E.NONE
    epoch = world.image.members["m"].epoch
    left = world.leave("m", version=version)
    assert [left.error_code, *(row.error_code for row in left.members)] == [E.NONE] * (
        1 + (version >= 3)
    )
    assert world.beat("m", epoch).error_code == E.UNKNOWN_MEMBER_ID
    assert [*world.image.members] == [member_id, "n"]


def test_an_administrator_removes_static_members_of_kip_848_by_their_instance_ids() -> None:
    world, _, _ = settled()
    for name in ("k", "l"):
        assert world.subscribe(f"m-{name}", "t", instance_id=name).error_code == E.NONE
    assert world.beat("m-l", -2, instance_id="l").error_code == E.NONE
    expected = [
        (("m-k", "l"), E.FENCED_INSTANCE_ID),
        (("", "k"), E.NONE),
        (("", "l"), E.NONE),
        (("", "k"), E.NONE),
    ]
    left = world.leave(*(who for who, _ in expected))
    assert [row.error_code for row in left.members] == [code for _, code in expected]
    assert {"m-k", "m-l"}.isdisjoint(world.image.members)


def test_an_unknown_member_that_leaves_is_told_so_in_old_versions_too() -> None:
    world, _, _ = settled()
    assert world.leave("x", version=1).error_code == E.UNKNOWN_MEMBER_ID


# All of it.


@pytest.mark.parametrize("protocol", [RANGE, COOPERATIVE])
def test_classic_members_come_and_go_in_a_group_of_kip_848(protocol: str) -> None:
    village = Village()
    village.world.create("t", 7)
    village.consumer("t")
    for _ in range(3):
        village.classic("t", protocol=protocol)
        village.settle(20)
    for client in village.classics():
        client.leave()
        village.settle(20)
    assert village.world.kinds == ["CONSUMER"]
