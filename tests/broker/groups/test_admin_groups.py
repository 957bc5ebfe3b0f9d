"""ListGroups, DescribeGroups, ConsumerGroupDescribe, DeleteGroups."""

import asyncio

import pytest

from coordinator.commands.entries import Rejected
from coordinator.commands.group_commands import GROUP_NEW, ChangeGroup, GroupKind, GroupMember
from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import (
    NOT_ASKED,
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from tests.broker.groups.members import (
    classic_group,
    consumer_group,
    fetched,
    join_request,
    put,
    settle,
)
from tests.broker.groups.world import agents, group_of

OPERATIONS = 3400
"""READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS."""


async def some_groups(one) -> None:
    """Of both kinds, with and without members, and one that nobody has finished joining."""
    await put(one, "simple", {"logs": {0: 1}})
    await classic_group(one, "classic", {"logs": [0]})
    (left,) = await classic_group(one, "left", {"logs": [0]}, protocol_type="connect")
    await left.leave()
    await consumer_group(one, "modern")
    one.connect().send(apis.JOIN_GROUP, 3, join_request("joining"))
    await asyncio.sleep(0.1)


async def listed(agent, version: int = 5, **filters) -> list[tuple]:
    answer = await agent.call(apis.LIST_GROUPS, ListGroupsRequest(**filters), version=version)
    assert answer.error_code == 0
    return sorted(
        (group.group_id, group.protocol_type, group.group_state, group.group_type)
        for group in answer.groups
    )


@pytest.mark.parametrize("version", range(6))
async def test_groups_of_all_kinds_are_listed_in_every_version(version):
    async with agents() as (one,):
        await some_groups(one)
        rows = [
            ("classic", "consumer", "Stable", "classic"),
            ("joining", "consumer", "PreparingRebalance", "classic"),
            ("left", "connect", "Empty", "classic"),
            ("modern", "consumer", "Stable", "consumer"),
            ("simple", "", "Empty", "classic"),
        ]
        shown = 2 + (version >= 4) + (version >= 5)
        assert [row[:shown] for row in await listed(one, version)] == [row[:shown] for row in rows]


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({"states_filter": ["Empty"]}, ["left", "simple"]),
        ({"states_filter": [" eMPTY ", "preparingrebalance"]}, ["joining", "left", "simple"]),
        ({"states_filter": ["Reconciling"]}, []),
        ({"states_filter": ["NoSuchState"]}, []),
        ({"types_filter": ["Consumer"]}, ["modern"]),
        ({"types_filter": ["CLASSIC"], "states_filter": ["stable"]}, ["classic"]),
        ({"types_filter": ["share"]}, []),
        ({"types_filter": ["nonsense"]}, []),
    ],
)
async def test_groups_are_listed_by_state_and_type_in_any_case(filters, names):
    async with agents() as (one,):
        await some_groups(one)
        assert [row[0] for row in await listed(one, **filters)] == names


async def test_each_agent_lists_the_groups_that_it_coordinates():
    async with agents("one", "two") as (one, two):
        names = {agent: group_of(agent) for agent in (one, two)}
        for agent, name in names.items():
            await put(agent, name, {"logs": {0: 1}})
        for agent, name in names.items():
            assert [row[0] for row in await listed(agent)] == [name]


async def test_without_a_session_nothing_is_listed():
    """P5."""
    async with agents() as (one,):
        await put(one, "g", {"logs": {0: 1}})
        one.log.down = True
        answer = await one.call(apis.LIST_GROUPS, ListGroupsRequest())
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await one.lose_session()
        answer = await one.call(apis.LIST_GROUPS, ListGroupsRequest())
        assert (answer.error_code, answer.groups) == (14, [])


async def test_an_agent_that_leaves_lists_nothing():
    async with agents("one", "two") as (one, _two):
        await one.node.groups.depart(2.0)
        answer = await one.call(apis.LIST_GROUPS, ListGroupsRequest())
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def put_unreadable(agent, group_id: str, *, members: bool) -> None:
    """A group whose row a newer version has written."""
    put_members = (GroupMember("m", 1, b"\xff"),) if members else ()
    command = ChangeGroup(group_id, GroupKind.CLASSIC, GROUP_NEW, 1, b"\xff", put_members, ())
    outcome = await agent.log_client.propose(command, agent.log_client.incarnation())
    assert not isinstance(outcome, Rejected)


@pytest.mark.parametrize("members", [True, False])
async def test_a_group_that_cannot_be_read_is_listed_and_hinders_no_other(members):
    async with agents() as (one,):
        await put(one, "g", {"logs": {0: 1}})
        await put_unreadable(one, "newer", members=members)
        assert await listed(one) == [
            ("g", "", "Empty", "classic"),
            ("newer", "", "Dead", "classic"),
        ]
        rows = await described(one, "g", "newer")
        assert [row.error_code for row in rows] == [0, ErrorCode.UNKNOWN_SERVER_ERROR]
        answer = await deleted(one, "newer", "g")
        assert answer == {"newer": ErrorCode.UNKNOWN_SERVER_ERROR, "g": 0}


async def test_many_groups_are_listed_without_holding_up_the_loop():
    async with agents() as (one,):
        await asyncio.gather(*[put(one, f"g{n:03d}", {"logs": {0: 1}}) for n in range(450)])
        assert [row[0] for row in await listed(one)] == [f"g{n:03d}" for n in range(450)]


# DescribeGroups.


async def described(agent, *group_ids: str, version: int = 6, **more):
    request = DescribeGroupsRequest(groups=list(group_ids), **more)
    return (await agent.call(apis.DESCRIBE_GROUPS, request, version=version)).groups


@pytest.mark.parametrize("version", range(7))
async def test_a_classic_group_is_described_in_every_version(version):
    async with agents() as (one,):
        (member,) = await classic_group(one, "g", {"logs": [0, 1]}, instance_ids=["i"])
        (group,) = await described(
            one, "g", version=version, include_authorized_operations=version >= 3
        )
        assert (group.error_code, group.group_id, group.group_state) == (0, "g", "Stable")
        assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
        assert group.authorized_operations == (OPERATIONS if version >= 3 else NOT_ASKED)
        (row,) = group.members
        assert (row.member_id, row.client_id) == (member.member_id, "test")
        assert row.client_host == "/127.0.0.1"
        assert row.group_instance_id == ("i" if version >= 4 else None)
        assert len(row.member_metadata) > 0
        assert len(row.member_assignment) > 0


async def test_operations_are_told_only_to_who_asks():
    async with agents() as (one,):
        await classic_group(one, "g", {"logs": [0]})
        (group,) = await described(one, "g")
        assert group.authorized_operations == NOT_ASKED


@pytest.mark.parametrize("version", range(7))
async def test_a_group_that_is_not_there_is_dead_and_from_version_6_on_not_found(version):
    """KIP-1043."""
    async with agents() as (one,):
        (group,) = await described(
            one, "g", version=version, include_authorized_operations=version >= 3
        )
        assert (group.group_id, group.group_state, group.members) == ("g", "Dead", [])
        assert group.authorized_operations == NOT_ASKED or version < 6
        if version >= 6:
            assert group.error_code == ErrorCode.GROUP_ID_NOT_FOUND
            assert group.error_message == "Group g not found."
        else:
            assert group.error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [5, 6])
async def test_a_group_of_kip_848_is_no_classic_group(version):
    async with agents() as (one,):
        await consumer_group(one, "g")
        (group,) = await described(one, "g", version=version)
        assert (group.group_state, group.members) == ("Dead", [])
        if version >= 6:
            assert group.error_code == ErrorCode.GROUP_ID_NOT_FOUND
            assert group.error_message == "Group g is not a classic group."
        else:
            assert group.error_code == ErrorCode.NONE


async def test_several_groups_are_described_each_with_its_own_error():
    async with agents("one", "two") as (one, two):
        mine, other = group_of(one), group_of(two)
        await put(one, mine, {"logs": {0: 1}})
        rows = await described(one, mine, other, "")
        assert [(row.error_code, row.group_state) for row in rows] == [
            (0, "Empty"),
            (ErrorCode.NOT_COORDINATOR, ""),
            (ErrorCode.INVALID_GROUP_ID, ""),
        ]


# ConsumerGroupDescribe.


async def consumers_described(agent, *group_ids: str, version: int = 1, **more):
    request = ConsumerGroupDescribeRequest(group_ids=list(group_ids), **more)
    return (await agent.call(apis.CONSUMER_GROUP_DESCRIBE, request, version=version)).groups


@pytest.mark.parametrize("version", range(2))
async def test_a_group_of_kip_848_is_described_with_its_assignments(version):
    async with agents() as (one,):
        members = await consumer_group(one, "g", 2)
        (group,) = await consumers_described(
            one, "g", version=version, include_authorized_operations=True
        )
        assert (group.error_code, group.group_state) == (0, "Stable")
        assert group.group_epoch == group.assignment_epoch == members[0].epoch
        assert (group.assignor_name, group.authorized_operations) == ("uniform", OPERATIONS)
        assert [row.member_id for row in group.members] == ["member-0", "member-1"]
        for row, member in zip(group.members, members, strict=True):
            (topic,) = row.assignment.topic_partitions
            assert topic.topic_name == "logs"
            assert topic.partitions == member.owned[0].partitions
            assert row.target_assignment == row.assignment
            assert row.subscribed_topic_names == ["logs"]
            assert row.member_type == (1 if version >= 1 else -1)


async def test_what_is_no_group_of_kip_848_is_not_found():
    async with agents("one", "two") as (one, two):
        mine, other = group_of(one), group_of(two)
        await put(one, mine, {"logs": {0: 1}})
        gone = group_of(one, "gone")
        rows = await consumers_described(one, mine, gone, other, "")
        assert [(row.error_code, row.error_message) for row in rows][:2] == [
            (ErrorCode.GROUP_ID_NOT_FOUND, f"Group {mine} is not a consumer group."),
            (ErrorCode.GROUP_ID_NOT_FOUND, f"Group {gone} not found."),
        ]
        assert [row.error_code for row in rows][2:] == [
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.INVALID_GROUP_ID,
        ]


async def test_with_the_protocol_switched_off_there_are_no_such_groups():
    async with agents(group_coordinator_rebalance_protocols="classic") as (one,):
        (row,) = await consumers_described(one, "g")
        assert row.error_code == ErrorCode.UNSUPPORTED_VERSION


# DeleteGroups.


async def deleted(agent, *group_ids: str, version: int = 2) -> dict[str, int]:
    request = DeleteGroupsRequest(groups_names=list(group_ids))
    answer = await agent.call(apis.DELETE_GROUPS, request, version=version)
    return {row.group_id: row.error_code for row in answer.results}


@pytest.mark.parametrize("version", range(3))
async def test_groups_without_members_are_deleted_with_their_offsets(version):
    async with agents() as (one,):
        await some_groups(one)
        assert await deleted(one, "simple", "left", "gone", "", version=version) == {
            "simple": 0,
            "left": 0,
            "gone": ErrorCode.GROUP_ID_NOT_FOUND,
            "": ErrorCode.INVALID_GROUP_ID,
        }
        assert [row[0] for row in await listed(one)] == ["classic", "joining", "modern"]
        assert await fetched(one, "simple", None) == {}


async def test_groups_with_members_stay():
    async with agents() as (one,):
        await some_groups(one)
        assert await deleted(one, "classic", "modern", "joining") == {
            "classic": ErrorCode.NON_EMPTY_GROUP,
            "modern": ErrorCode.NON_EMPTY_GROUP,
            "joining": ErrorCode.NON_EMPTY_GROUP,
        }


async def test_a_group_of_kip_848_is_deleted_when_its_members_have_left():
    async with agents() as (one,):
        members = await consumer_group(one, "g", 2)
        await members[0].commit({"logs": {0: 1}})
        await members[0].go()
        await settle(members[1:])
        assert await deleted(one, "g") == {"g": ErrorCode.NON_EMPTY_GROUP}
        await members[1].go()
        assert await deleted(one, "g") == {"g": 0}
        assert await listed(one) == []


async def test_a_group_that_is_named_twice_is_deleted_once():
    async with agents() as (one,):
        await put(one, "g", {"logs": {0: 1}})
        request = DeleteGroupsRequest(groups_names=["g", "g"])
        answer = await one.call(apis.DELETE_GROUPS, request)
        assert [(row.group_id, row.error_code) for row in answer.results] == [("g", 0)]


async def test_another_agents_group_is_not_deleted_here():
    async with agents("one", "two") as (one, two):
        assert await deleted(one, group_of(two)) == {group_of(two): ErrorCode.NOT_COORDINATOR}


async def test_many_groups_are_deleted_at_a_time():
    async with agents() as (one,):
        names = [f"g{n:03d}" for n in range(250)]
        await asyncio.gather(*[put(one, name, {"logs": {0: 1}}) for name in names])
        entries = one.log_client.stats.entries_appended
        assert await deleted(one, *names) == dict.fromkeys(names, 0)
        assert one.log_client.stats.entries_appended - entries < 20
        assert len(one.machine.groups) == 0


async def test_a_deleted_group_begins_anew():
    async with agents() as (one,):
        (member,) = await classic_group(one, "g", {"logs": [0]})
        await member.commit({"logs": {0: 1}})
        await member.leave()
        assert await deleted(one, "g") == {"g": 0}
        (member,) = await classic_group(one, "g", {"logs": [0]})
        assert member.epoch == 1
        assert await fetched(one, "g", None) == {}


@pytest.mark.parametrize("has_row", [True, False])
async def test_who_was_told_an_id_and_has_not_joined_does_not_keep_a_group(has_row):
    """KIP-394: a pending member is no member."""
    async with agents() as (one,):
        if has_row:
            await put(one, "g", {"logs": {0: 1}})
        asked = await one.call(apis.JOIN_GROUP, join_request("g"), version=4)
        assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert await deleted(one, "g") == {"g": 0}
        joined = await one.call(
            apis.JOIN_GROUP, join_request("g", member_id=asked.member_id), version=4
        )
        assert joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_group_that_somebody_has_joined_meanwhile_stays(monkeypatch):
    async with agents() as (one,):
        await put(one, "g", {"logs": {0: 1}})

        async def refuse(command):
            return Rejected(ErrorCode.NON_EMPTY_GROUP)

        monkeypatch.setattr(one.node.groups, "propose", refuse)
        assert await deleted(one, "g") == {"g": ErrorCode.NON_EMPTY_GROUP}


async def test_a_deletion_whose_fate_is_open_is_said_to_have_timed_out():
    """P4."""
    async with agents(offsets_commit_timeout_ms="500") as (one,):
        await put(one, "g", {"logs": {0: 1}})
        one.lag()
        assert await deleted(one, "g") == {"g": ErrorCode.REQUEST_TIMED_OUT}
        one.catch_up()
