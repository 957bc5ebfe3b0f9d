"""Groups change their protocol while their members stay (KIP-848): upgrades, downgrades, refusals."""

from unittest.mock import patch

import pytest

from broker.groups.consumer import delta
from broker.groups.group import change_commands
from coordinator.commands.group_commands import GroupKind
from protocol.consumer_protocol import write_assignment
from protocol.errors import ErrorCode
from tests.broker.groups.pure import World, world_of_either
from tests.broker.groups.requests import COOPERATIVE, RANGE, SESSION_MS, subscription
from tests.broker.groups.village import Village, leader_alone, three_classic

E = ErrorCode


# From one protocol to the other and back.


@pytest.mark.parametrize("protocol", [RANGE, COOPERATIVE])
@pytest.mark.parametrize("cut", [False, True])
def test_three_members_are_upgraded_one_by_one_and_downgraded_again(
    protocol: str, cut: bool
) -> None:
    village = three_classic(protocol)
    world = village.world
    with (
        patch.object(delta, "GROUP_COMMAND_ROWS_MAX", 1 if cut else 1000),
        patch.object(change_commands, "GROUP_COMMAND_ROWS_MAX", 2 if cut else 1000),
    ):
        for client in list(village.running()):
            client.leave()
            village.go_on(village.consumer("t"))
            village.settle(20)
            assert world.group.kind is GroupKind.CONSUMER
        assert world.kinds == ["CONSUMER"]
        for client in list(village.running()):
            client.leave(for_good=True)
            village.go_on(village.classic("t", protocol=protocol))
            village.settle(20)
        assert world.kinds == ["CONSUMER", "CLASSIC"]
        assert world.group.kind is GroupKind.CLASSIC


@pytest.mark.parametrize("protocol", [RANGE, COOPERATIVE])
def test_static_members_are_upgraded_one_by_one_and_downgraded_again(protocol: str) -> None:
    village = Village()
    world = village.world
    world.create("t", 5)
    instances = ["a", "b", "c"]
    for instance in instances:
        village.classic("t", protocol=protocol, instance_id=instance)
    village.settle(10)
    for client in list(village.running()):
        client.leave()
        village.go_on(village.consumer("t", instance_id=client.instance_id))
        village.settle(10)
    assert world.kinds == ["CONSUMER"]
    for client in list(village.running()):
        client.leave(for_good=False)
        village.go_on(village.classic("t", protocol=protocol, instance_id=client.instance_id))
        village.settle(20)
    assert world.kinds == ["CONSUMER", "CLASSIC"]
    assert [client.instance_id for client in village.running()] == instances


def test_an_upgrade_goes_on_however_often_the_group_is_taken_over() -> None:
    village = three_classic(COOPERATIVE)
    for client in list(village.running()):
        client.leave()
        village.consumer("t")
        for _ in range(5):
            for each in village.running():
                village.world.take_over()
                village.go_on(each)
        village.settle(20)


# Upgrade.


def test_members_keep_their_ids_and_assignments_and_the_generation_becomes_their_epoch() -> None:
    village = three_classic()
    world = village.world
    before = {client.member_id: client for client in village.classics()}
    generation = world.classic.generation
    assert world.subscribe("m", "t").error_code == E.NONE
    image = world.image
    assert image.epoch == image.assignment_epoch == generation + 1
    assert [*image.members] == [*before, "m"]
    (topic,) = world.topics
    for member_id, client in before.items():
        member = image.members[member_id]
        assert member.epoch == generation
        assert member.assigned == {topic.topic_id: frozenset(client.owned["t"])}
        assert member.subscription.names == {"t"}
        assert member.classic is not None
        assert member.classic.session_timeout_ms == SESSION_MS
        assert (member.rebalance_timeout_ms, member.client_id) == (60_000, "c")


def test_classic_members_are_told_to_join_again_and_may_commit_until_then() -> None:
    village = three_classic()
    world = village.world
    world.subscribe("m", "t")
    for client in village.classics():
        generation = client.generation
        for epoch, code in ((generation, E.NONE), (generation + 1, E.ILLEGAL_GENERATION)):
            assert world.check_commit(client.member_id, epoch, version=8) == code
        client.step()
        assert client.must_join


def test_members_that_wait_in_a_rebalance_are_told_to_join_again() -> None:
    village = three_classic()
    world = village.world
    first, second, _ = village.classics()
    first.join()
    second.step()
    second.step()
    assert world.group.state() == "PreparingRebalance"
    assert first.is_waiting
    village.consumer("t").beat()
    assert not first.is_waiting
    assert first.must_join
    village.settle(20)


def test_a_group_is_upgraded_before_its_first_generation() -> None:
    village = Village()
    village.world.create("t", 3)
    village.world.configure(initial_rebalance_delay_ms=3_000)
    village.classic("t").step()
    assert village.world.group.state() == "PreparingRebalance"
    village.go_on(village.consumer("t"))
    assert village.world.kinds == ["CONSUMER"]
    village.settle()


def test_a_member_that_was_gone_from_the_group_and_not_from_the_log_does_not_come_back() -> None:
    village = three_classic()
    world = village.world
    village.running()[0].leave()
    assert world.row is not None
    assert len(world.row.members) == 3
    world.subscribe("m", "t")
    assert len(world.row.members) == len(world.image.members) == 3


def test_who_joins_may_be_a_static_member_of_the_classic_protocol_before() -> None:
    village = Village()
    world = village.world
    world.create("t", 4)
    static = village.classic("t", instance_id="i")
    village.classic("t")
    village.settle(10)
    owned = dict(static.owned)
    old_id = static.member_id
    static.leave()
    world.subscribe("m", "t", instance_id="i")
    (topic,) = world.topics
    member = world.image.members["m"]
    assert member.assigned == {topic.topic_id: frozenset(owned["t"])}
    assert world.heartbeat(old_id, 1, "i") == E.FENCED_INSTANCE_ID
    assert old_id not in world.image.members


def refusal(world: World) -> str:
    """Why the group stays a classic one."""
    response = world.subscribe("m", "t")
    assert response.error_code == E.GROUP_ID_NOT_FOUND
    assert world.group.kind is GroupKind.CLASSIC
    return response.error_message or ""


REFUSED = [
    ({"consumer_migration_policy": "disabled"}, "online upgrade is disabled"),
    ({"consumer_migration_policy": "downgrade"}, "online upgrade is disabled"),
    ({"consumer_max_size": 2}, "exceeds the maximum"),
]


@pytest.mark.parametrize(("settings", "reason"), REFUSED)
def test_a_group_that_may_not_be_upgraded_stays_as_it_is(
    settings: dict[str, object], reason: str
) -> None:
    village = three_classic()
    world = village.world
    world.configure(**settings)
    group, row = world.group, world.row
    message = refusal(world)
    assert message.startswith("Cannot upgrade classic group g to consumer group beca")
    assert reason in message
    assert world.group is group
    assert world.row is row
    village.settle(3)


@pytest.mark.parametrize(
    ("data", "assignment", "reason"),
    [
        (b"\0\1garbage", write_assignment({}), "malformed"),
        (subscription("t"), b"\0\1garbage", "malformed"),
        (subscription("t"), write_assignment({}, user_data=b"mine"), "custom assignor"),
    ],
)
def test_a_group_whose_bytes_would_be_lost_is_not_upgraded(
    data: bytes, assignment: bytes, reason: str
) -> None:
    world = world_of_either()
    world.create("t", 2)
    leader_alone(world, data=data, assignment=assignment)
    assert reason in refusal(world)


def test_a_group_of_another_protocol_type_is_not_upgraded() -> None:
    world = world_of_either()
    world.join(protocol_type="connect", protocols=(("default", b""),), version=3)
    assert "do not use the consumer embedded protocol" in refusal(world)


def test_a_group_with_a_partition_that_two_members_have_is_not_upgraded() -> None:
    village = three_classic()
    world = village.world
    for member in world.classic.members:
        member.assignment = write_assignment({"t": [0]})
    assert "two of its members" in refusal(world)


def test_what_is_assigned_of_topics_that_are_gone_is_left_out() -> None:
    world = world_of_either()
    topic = world.create("t", 2)
    assignment = write_assignment({"gone": [0], "t": [0, 1, 2]})
    member_id = leader_alone(world, assignment=assignment)
    world.subscribe("m", "t")
    assert world.image.members[member_id].assigned == {topic: frozenset({0, 1})}


def test_a_member_that_may_not_join_upgrades_nothing() -> None:
    village = three_classic()
    world = village.world
    group = world.group
    for fields, code in (
        ({"subscribed_topic_regex": "("}, E.INVALID_REGULAR_EXPRESSION),
        ({"server_assignor": "best"}, E.UNSUPPORTED_ASSIGNOR),
        ({"rebalance_timeout_ms": -1}, E.INVALID_REQUEST),
    ):
        whole = {"subscribed_topic_names": ["t"], "rebalance_timeout_ms": 30_000, **fields}
        assert world.beat("m", 0, owned={}, **whole).error_code == code
        assert world.group is group
    village.settle(3)


def test_a_heartbeat_of_a_member_that_is_not_there_upgrades_nothing() -> None:
    village = three_classic()
    world = village.world
    # Beyond Kafka, whose answer would end the consumer: it may join again.
    assert world.beat("m", 5).error_code == E.UNKNOWN_MEMBER_ID
    assert world.beat("m", -1).error_code == E.GROUP_ID_NOT_FOUND
    world.configure(consumer_migration_policy="disabled")
    assert world.beat("m", 5).error_code == E.GROUP_ID_NOT_FOUND
    assert world.kinds == []


def test_a_write_that_fails_leaves_the_group_as_the_log_has_it() -> None:
    village = three_classic()
    world = village.world
    world.fail_after = 0
    assert world.subscribe("m", "t").error_code == E.REQUEST_TIMED_OUT
    assert world.group.kind is GroupKind.CLASSIC
    village.settle(3)


def test_whoever_takes_over_in_the_middle_of_an_upgrade_goes_on_with_it() -> None:
    for count in range(1, 4):
        village = three_classic()
        world = village.world
        with patch.object(delta, "GROUP_COMMAND_ROWS_MAX", 1):
            world.fail_after = count
            world.subscribe("m", "t")
        image = world.image
        ids = [client.member_id for client in village.running()]
        assert [*image.members] == ids
        assert image.epoch > image.assignment_epoch
        for client in village.classics():
            code = world.heartbeat(client.member_id, client.generation)
            assert code == E.REBALANCE_IN_PROGRESS
        village.consumer("t")
        village.settle(20)
