"""`frazil.commit.owner.only`: a late commit cannot move a group past what its owner has not read."""

from coordinator.commands.group_commands import GroupKind, SetGroupConfigs
from protocol.errors import ErrorCode
from tests.broker.groups.members import (
    Consumer,
    classic_group,
    consumer_group,
    fetched,
    put,
    rows,
)
from tests.broker.groups.world import agents

LOGS0 = ("logs", 0)


async def owner_only(agent, group_id: str, value: str = "true") -> None:
    configs = (("frazil.commit.owner.only", value),)
    await agent.log_client.propose(SetGroupConfigs(group_id, configs))


async def test_with_owner_only_a_commit_of_anothers_partition_is_refused_and_the_rest_taken():
    async with agents() as (one,):
        await owner_only(one, "g")
        first, second = await classic_group(one, "g", {"logs": [0, 1]}, {"logs": [2]})
        answer = await first.commit({"logs": {0: 7, 2: 8, 3: 9}})
        # Partition 3 is nobody's.
        assert [*answer.values()] == [0, ErrorCode.REBALANCE_IN_PROGRESS, 0]
        assert [*rows(one, "g")] == [0, 3]
        assert await second.commit({"logs": {2: 5}}) == {("logs", 2): 0}
        assert [*(await second.commit({"logs": {1: 5}})).values()] == [27]


async def test_without_owner_only_any_member_may_commit_anything():
    async with agents() as (one,):
        first, _ = await classic_group(one, "g", {"logs": [0]}, {"logs": [1]})
        assert await first.commit({"logs": {1: 7}}) == {("logs", 1): 0}
        await owner_only(one, "g", "false")
        assert await first.commit({"logs": {1: 8}}) == {("logs", 1): 0}


async def test_owner_only_may_be_switched_on_while_the_group_is_at_work():
    async with agents() as (one,):
        first, _ = await classic_group(one, "g", {"logs": [0]}, {"logs": [1]})
        await owner_only(one, "g")
        assert [*(await first.commit({"logs": {1: 7}})).values()] == [27]


async def test_the_late_commit_of_a_partition_that_was_given_up_cannot_skip_records():
    """The loss of Redpanda Connect #4010: a batch in flight while its partition moves on."""
    async with agents() as (one,):
        await owner_only(one, "g")
        (old,) = await classic_group(one, "g", {"logs": [0, 1]})
        # Cooperative: first the partition is taken from its owner, and is nobody's …
        (old, new) = await classic_group(one, "g", {"logs": [0]}, {}, before=[old])
        assert await old.commit({"logs": {1: 100}}) == {("logs", 1): 0}
        # … then it is the other's, while the first has rejoined and has the newest generation.
        (old, new) = await classic_group(one, "g", {"logs": [0]}, {"logs": [1]}, before=[old, new])
        assert [*(await old.commit({"logs": {1: 500}})).values()] == [27]
        assert await fetched(one, "g", {"logs": [1]}) == {("logs", 1): 100}
        assert await new.commit({"logs": {1: 150}}) == {("logs", 1): 0}


async def test_with_owner_only_members_of_kip_848_hear_that_their_epoch_is_stale():
    async with agents() as (one,):
        await owner_only(one, "g")
        members = await consumer_group(one, "g", 2)
        first = next(member for member in members if member.owns(0))
        foreign = next(index for index in range(4) if not first.owns(index))
        answer = await first.commit({"logs": {0: 7, foreign: 8}})
        assert answer == {LOGS0: 0, ("logs", foreign): ErrorCode.STALE_MEMBER_EPOCH}
        assert [*rows(one, "g")] == [0]


async def test_with_owner_only_classic_members_of_a_group_that_is_migrated_hear_their_own_error():
    async with agents() as (one,):
        await owner_only(one, "g")
        first, second = await classic_group(one, "g", {"logs": [0, 1]}, {"logs": [2, 3]})
        newcomer = Consumer(one, one.connect(), "g", "newcomer", 0)
        assert await newcomer.beat() == 0
        assert one.machine.groups.get("g").kind is GroupKind.CONSUMER
        answer = await first.commit({"logs": {0: 7, 2: 8}})
        assert answer == {LOGS0: 0, ("logs", 2): ErrorCode.REBALANCE_IN_PROGRESS}
        answer = await second.commit({"logs": {3: 9}}, epoch=second.epoch + 1)
        assert answer == {("logs", 3): ErrorCode.ILLEGAL_GENERATION}
        foreign = await newcomer.commit({"logs": {0: 7}})
        assert foreign == {LOGS0: ErrorCode.STALE_MEMBER_EPOCH}


async def test_with_owner_only_tools_may_still_commit_to_a_group_without_members():
    async with agents() as (one,):
        await owner_only(one, "g")
        (joined,) = await classic_group(one, "g", {"logs": [0]})
        await joined.leave()
        assert await put(one, "g", {"logs": {0: 1}}) == {LOGS0: 0}
