"""A group goes back to the classic protocol (KIP-848), and groups without members go either way."""

from unittest.mock import patch

import pytest

from broker.groups.group import change_commands
from coordinator.commands.group_commands import GroupKind
from protocol.consumer_protocol import read_assignment
from protocol.errors import ErrorCode
from tests.broker.groups.consumer.clients import Client as ConsumerClient
from tests.broker.groups.pure import World, world_of_either
from tests.broker.groups.requests import COOPERATIVE, RANGE
from tests.broker.groups.village import Village, leader_alone, mixed, mixed_with_static

E = ErrorCode


def the_consumer(village: Village) -> ConsumerClient:
    (client,) = village.consumers()
    return client


def emptied() -> World:
    """A KIP-848 group whose only member has left."""
    world = world_of_either()
    world.create("t", 2)
    world.subscribe("m", "t")
    world.beat("m", -1)
    assert world.row is not None
    return world


def alone() -> tuple[Village, ConsumerClient]:
    """A KIP-848 group with one static member."""
    village = Village()
    village.world.create("t", 3)
    static = village.consumer("t", instance_id="i")
    village.settle(5)
    return village, static


@pytest.mark.parametrize("protocol", [RANGE, COOPERATIVE])
def test_when_the_last_member_of_kip_848_leaves_the_others_rebalance(protocol: str) -> None:
    village = mixed(protocol)
    world = village.world
    epoch = world.image.epoch
    owned = {client.member_id: dict(client.owned) for client in village.classics()}
    the_consumer(village).leave(for_good=True)
    assert world.kinds == ["CONSUMER", "CLASSIC"]
    group = world.classic
    assert group.state() == "PreparingRebalance"
    assert (group.generation, group.protocol_type) == (epoch, "consumer")
    for member in group.members:
        assert {
            name: {*parts} for name, parts in read_assignment(member.assignment).items()
        } == owned[member.member_id]
        assert world.heartbeat(member.member_id, epoch) == E.REBALANCE_IN_PROGRESS
        assert world.check_commit(member.member_id, epoch, version=8) == E.NONE
    village.settle(10)


def test_when_an_administrator_removes_the_last_member_of_kip_848_the_others_rebalance() -> None:
    village = mixed()
    world = village.world
    world.now_ms += 2_000
    left = world.leave(the_consumer(village).member_id)
    assert [row.error_code for row in left.members] == [E.NONE]
    assert world.kinds == ["CONSUMER", "CLASSIC"]
    group = world.classic
    assert group.state() == "PreparingRebalance"
    for member in group.members:
        # Its session begins anew, now.
        assert member.deadline_ms == world.now_ms + member.session_timeout_ms
    village.settle(10)


def test_the_log_has_the_classic_group_before_the_last_member_hears_that_it_may_go() -> None:
    village = mixed()
    world = village.world
    world.fail_after = 0
    consumer = the_consumer(village)
    response = world.beat(consumer.member_id, -1)
    assert response.error_code == E.REQUEST_TIMED_OUT
    assert world.group.kind is GroupKind.CONSUMER
    assert world.beat(consumer.member_id, -1).member_epoch == -1
    assert world.row is not None
    assert world.row.kind is GroupKind.CLASSIC
    assert consumer.member_id not in world.row.members


def test_whoever_takes_over_after_a_downgrade_lets_the_members_rebalance() -> None:
    village = mixed()
    the_consumer(village).leave(for_good=True)
    village.world.take_over()
    assert village.world.group.state() == "PreparingRebalance"
    village.settle(10)


@pytest.mark.parametrize("count", [1, 2])
def test_whoever_takes_over_in_the_middle_of_a_downgrade_goes_on_with_it(count: int) -> None:
    village = mixed()
    world = village.world
    ids = {client.member_id for client in village.classics()}
    consumer = the_consumer(village)
    with patch.object(change_commands, "GROUP_COMMAND_ROWS_MAX", 1):
        world.fail_after = count
        consumer.leave(for_good=True)
    assert world.classic.state() == "PreparingRebalance"
    assert {*world.classic.members.ids()} == ids
    village.settle(10)
    assert world.row is not None
    assert world.row.members.keys() == ids


def test_a_member_that_is_given_up_ends_the_protocol_as_well() -> None:
    village = mixed()
    the_consumer(village).crash()
    village.settle(30)
    assert village.world.kinds == ["CONSUMER", "CLASSIC"]


def test_a_static_member_that_will_be_back_keeps_the_protocol() -> None:
    village = mixed()
    village.consumer("t", instance_id="i")
    village.settle(10)
    for client in village.consumers():
        client.leave(for_good=False)
    assert village.world.kinds == ["CONSUMER"]
    village.settle(40)  # It does not come back.
    assert village.world.kinds == ["CONSUMER", "CLASSIC"]


def test_a_static_member_of_the_classic_protocol_that_replaces_the_last_one_joins_the_rebalance() -> (
    None
):
    village = mixed()
    world = village.world
    the_consumer(village).leave(for_good=True)
    village.settle(10)
    static = village.consumer("t", instance_id="i")
    village.settle(20)
    static.leave(for_good=False)
    returned = village.classic("t", instance_id="i")
    returned.step()
    assert world.kinds == ["CONSUMER", "CLASSIC"] * 2
    assert returned.is_waiting
    assert world.group.state() == "PreparingRebalance"
    village.settle(10)


def test_the_only_member_may_be_replaced_by_one_of_the_classic_protocol() -> None:
    village, static = alone()
    static.leave(for_good=False)
    village.classic("t", instance_id="i")
    village.settle(10)
    assert village.world.kinds == ["CONSUMER", "CLASSIC"]


def test_a_replacement_that_is_refused_downgrades_nothing() -> None:
    village, static = mixed_with_static()
    world = village.world
    refused = world.join(instance_id="i", session_ms=1)
    assert refused.error_code == E.INVALID_SESSION_TIMEOUT
    assert world.kinds == ["CONSUMER"]
    assert static.is_running


def test_a_member_that_was_replaced_across_a_downgrade_ends() -> None:
    village, static = alone()
    world = village.world
    village.classic("t", instance_id="i").step()
    assert world.kinds == ["CONSUMER", "CLASSIC"]
    refused = world.beat(static.member_id, static.epoch, instance_id="i")
    assert refused.error_code == E.FENCED_INSTANCE_ID


@pytest.mark.parametrize(
    "settings",
    [
        {"consumer_migration_policy": "disabled"},
        {"consumer_migration_policy": "upgrade"},
        {"max_size": 1},
    ],
)
def test_a_group_that_may_not_be_downgraded_goes_on_with_classic_members_alone(
    settings: dict[str, object],
) -> None:
    village = mixed()
    world = village.world
    world.configure(**settings)
    the_consumer(village).leave(for_good=True)
    for _ in range(10):
        world.wait(2_000)
        for client in village.running():
            village.go_on(client)
    assert world.kinds == ["CONSUMER"]
    assert world.group.state() == "Stable"
    held = [part for client in village.running() for _, part in village.held(client)]
    assert sorted(held) == [*range(6)]
    first, second = village.classics()
    first.leave()
    assert world.group.kind is GroupKind.CONSUMER
    second.leave()
    assert world.group.state() == "Empty"


def test_a_classic_member_that_leaves_downgrades_nothing() -> None:
    village = mixed()
    for client in village.classics():
        client.leave()
    village.settle(10)
    assert village.world.kinds == ["CONSUMER"]


def test_who_is_behind_the_group_is_fenced_and_joins_the_rebalance() -> None:
    village = mixed(COOPERATIVE)
    world = village.world
    village.consumer("t").beat()
    behind = village.classics()[0]
    for client in village.consumers():
        client.leave(for_good=True)
    assert world.kinds == ["CONSUMER", "CLASSIC"]
    assert behind.generation < world.classic.generation
    code = world.heartbeat(behind.member_id, behind.generation)
    assert code == E.ILLEGAL_GENERATION
    village.settle(10)


def test_a_static_member_that_comes_back_as_it_was_keeps_the_protocol() -> None:
    village, static = mixed_with_static()
    static.leave(for_good=False)
    village.consumer("t", instance_id="i")
    village.settle(20)
    assert village.world.kinds == ["CONSUMER"]


def test_what_a_member_still_has_to_give_up_is_its_own_until_the_rebalance_ends() -> None:
    village = mixed(COOPERATIVE)
    world = village.world
    client = village.classics()[0]
    for _ in range(3):
        village.consumer("t").beat()
    client.step()
    client.step()
    member = world.image.members[client.member_id]
    (revoking,) = member.revoking.values()
    (assigned,) = member.assigned.values()
    for each in village.consumers():
        each.leave(for_good=True)
    found = world.classic.members.get(client.member_id)
    assert found is not None
    assert {*read_assignment(found.assignment)["t"]} == revoking | assigned
    epoch = world.row.epoch if world.row is not None else 0
    village.consumer("t").beat()
    assert world.image.epoch > epoch
    (assigned,) = world.image.members[client.member_id].assigned.values()
    assert revoking < assigned
    village.settle(20)


# Nobody in it: whatever the policy.


def test_a_classic_group_without_members_is_what_its_first_member_wants() -> None:
    world = world_of_either(consumer_migration_policy="disabled")
    topic = world.create("t", 2)
    member_id = leader_alone(world)
    world.commit(topic, member_id, 1)
    world.leave(member_id)
    assert world.group.state() == "Empty"
    assert world.row is not None
    epoch = world.row.epoch
    joined = world.subscribe("m", "t")
    assert (joined.error_code, joined.member_epoch) == (E.NONE, epoch + 1)
    assert world.row.kind is GroupKind.CONSUMER
    assert [*world.row.members] == ["m"]
    assert len(world.row.offsets) == 1


def test_a_group_that_has_only_committed_offsets_is_what_its_first_member_wants() -> None:
    world = world_of_either()
    world.commit(world.create("t", 2))
    world.take_over()
    assert world.subscribe("m", "t").member_epoch == 1


def test_who_was_only_given_an_id_is_nobody() -> None:
    world = world_of_either()
    world.create("t", 2)
    assert world.join().error_code == E.MEMBER_ID_REQUIRED
    world.configure(consumer_migration_policy="disabled")
    assert world.subscribe("m", "t").error_code == E.NONE


def test_a_consumer_group_without_members_is_what_its_first_member_wants() -> None:
    world = emptied()
    world.configure(consumer_migration_policy="disabled")
    epoch = world.row.epoch
    village = Village(world)
    client = village.classic("t")
    village.settle(5)
    assert client.generation > epoch
    assert world.row.kind is GroupKind.CLASSIC
    assert [*world.row.members] == [client.member_id]


def test_a_classic_member_that_does_not_finish_joining_leaves_the_row_as_it_is() -> None:
    world = emptied()
    row = world.row
    epoch = row.epoch
    assert world.join().error_code == E.MEMBER_ID_REQUIRED
    world.take_over()
    assert (row.kind, row.epoch) == (GroupKind.CONSUMER, epoch)
    assert world.subscribe("m", "t").member_epoch == epoch + 1


def test_an_id_from_before_is_unknown_in_a_group_without_members() -> None:
    world = emptied()
    assert world.join("m").error_code == E.UNKNOWN_MEMBER_ID
