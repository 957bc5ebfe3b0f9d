"""One agent's live groups: writes, queues, refusals, deadlines; groups are fakes."""

import asyncio
import contextlib

import pytest

from broker.groups import coordinator_runtime
from coordinator.commands.group_commands import (
    CommitOffsets,
    CommittedOffset,
    DeleteGroup,
    SetGroupConfigs,
)
from protocol import apis
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import ConsumerGroupHeartbeatRequest
from tests.broker.groups.fake import BugError, FakeGroup
from tests.broker.groups.world import Member, alone, join_request
from tests.kit.client import settle
from tests.kit.loop import take_failures

GROUP = "g"


def stats(agent):
    return agent.node.groups.stats


async def test_a_member_is_told_that_it_joined_when_the_log_has_it() -> None:
    async with alone() as one:
        member = Member(one, GROUP)
        one.log.tail_gate.clear()
        member.send_join("write")
        await asyncio.sleep(1)
        assert member.peer.frames() == []
        assert one.machine.groups.get(GROUP) is None
        one.log.tail_gate.set()
        assert await member.joined() == 0
        assert list(one.machine.groups.get(GROUP).members) == [member.member_id]
        assert await member.heartbeat() == 0


@pytest.mark.promise("P10")
@pytest.mark.parametrize("seed", range(10))
async def test_what_comes_while_a_group_is_written_waits_and_keeps_its_order(seed: int) -> None:
    async with alone() as one:
        first, second, third = (Member(one, GROUP) for _ in range(3))
        assert await first.join() == 0
        one.log.tail_gate.clear()
        for member in (second, third):
            member.send_join("write")
            await settle()
        beat = asyncio.ensure_future(first.heartbeat())
        await asyncio.sleep(1)
        assert (first.peer.frames()[1:], third.peer.frames()) == ([], [])
        assert stats(one).parked == 3
        one.log.tail_gate.set()
        assert (await second.joined(), await third.joined()) == (0, 0)
        assert (second.generation, third.generation) == (2, 3)
        assert await beat == ErrorCode.ILLEGAL_GENERATION
        (group,) = FakeGroup.made
        assert group.calls == ["join", "join", "join", "heartbeat"]
        assert stats(one).parked == 0


async def test_a_change_in_several_commands_is_proposed_one_after_the_other() -> None:
    """Were all proposed at once, a later one could be in although an earlier one is not."""
    async with alone() as one:
        before = len(one.world.cluster.entries)
        assert await Member(one, GROUP).join("split") == ErrorCode.NOT_COORDINATOR
        row = one.machine.groups.get(GROUP)
        assert (row.epoch, len(row.members)) == (1, 1)
        assert len(one.world.cluster.entries) == before + 2


@pytest.mark.promise("P13")
async def test_a_write_that_the_log_fences_is_a_bug_that_is_counted_and_the_group_is_made_anew() -> (
    None
):
    async with alone() as one:
        assert await Member(one, GROUP).join("split") == ErrorCode.NOT_COORDINATOR
        assert (stats(one).writes_fenced, stats(one).writes_failed) == (1, 1)
        await settle()
        broken, anew = FakeGroup.made
        assert (broken.dead, anew.dead, anew.epoch) == (True, False, 1)
        assert await Member(one, GROUP).join() == 0


async def test_what_fits_into_no_entry_is_refused_and_others_are_not_to_blame() -> None:
    async with alone() as one:
        member, other = Member(one, GROUP), Member(one, GROUP)
        assert await member.join() == 0
        large, writer = Member(one, GROUP), Member(one, GROUP)
        one.log.tail_gate.clear()
        for each, what in ((writer, "write"), (large, "large"), (other, "write")):
            each.send_join(what)
            await settle()
        one.log.tail_gate.set()
        assert await writer.joined() == 0
        member.generation = 2
        assert await large.joined() == ErrorCode.UNKNOWN_SERVER_ERROR
        assert await other.joined() == ErrorCode.NOT_COORDINATOR
        assert await member.heartbeat() == 0
        assert await other.join() == 0
        assert stats(one).writes_fenced == 0


@pytest.mark.promise("P15")
async def test_the_queue_of_a_group_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr(coordinator_runtime, "QUEUE_MAX", 3)

    async with alone() as one:
        one.log.tail_gate.clear()
        members = [Member(one, GROUP) for _ in range(6)]
        for member in members:
            member.send_join("write")
        await asyncio.sleep(1)
        refused = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert [len(each.peer.frames()) for each in members] == [0, 0, 0, 0, 1, 1]
        assert [await each.joined() for each in members[4:]] == [refused] * 2
        assert stats(one).overflows == 2
        one.log.tail_gate.set()
        assert [await each.joined() for each in members[:4]] == [0] * 4


@pytest.mark.promise("P15")
async def test_requests_that_wait_are_bounded_over_all_groups(monkeypatch) -> None:
    monkeypatch.setattr(coordinator_runtime, "PARKED_MAX", 3)

    async with alone() as one:
        for number in range(3):
            Member(one, f"g{number}", "x").send_join("park")
        assert stats(one).parked == 3
        more = Member(one, "g3", "x")
        assert await more.join("park") == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await Member(one, "g0").join("release") == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert stats(one).overflows == 2


async def test_groups_that_have_no_row_are_bounded(monkeypatch) -> None:
    monkeypatch.setattr(coordinator_runtime, "SOFT_GROUPS_MAX", 3)

    async with alone() as one:
        with_row = Member(one, "row")
        assert await with_row.join() == 0
        for number in range(3):
            Member(one, f"g{number}", "x").send_join("park")
        assert await Member(one, "g3", "x").join("park") == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await Member(one, "g0").join("release") == 0
        assert await Member(one, "row").join() == 0
        assert await Member(one, "g3", "x").join("answer") == 0


async def test_no_overflow_is_told_in_words_that_are_final_for_a_client(monkeypatch) -> None:
    """Java's consumers end by a 14 in answer to SyncGroup or Heartbeat."""
    monkeypatch.setattr(coordinator_runtime, "QUEUE_MAX", 0)

    async with alone() as one:
        member = Member(one, GROUP)
        assert await member.join() == 0
        one.log.tail_gate.clear()
        Member(one, GROUP).send_join("write")
        assert await Member(one, GROUP).join() == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await member.sync() == ErrorCode.REBALANCE_IN_PROGRESS
        assert await member.heartbeat() == ErrorCode.NONE
        assert await member.leave() == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.promise("P17")
async def test_after_a_stall_requests_that_change_something_are_refused() -> None:
    """P17; a late heartbeat does no harm."""
    async with alone(lease_ttl_ms="120000", session_deadline_ms="90000") as one:
        member = Member(one, GROUP)
        assert await member.join() == 0
        for ask, code in (
            (member.join, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
            (member.sync, ErrorCode.REBALANCE_IN_PROGRESS),
            (member.leave, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
            (member.heartbeat, ErrorCode.NONE),
        ):
            one.world.loop._now += 5
            assert await ask() == code
            assert await member.heartbeat() == 0
            await asyncio.sleep(0.5)
        request = ConsumerGroupHeartbeatRequest(group_id="other", member_id="m")
        one.world.loop._now += 5
        answer = await member.peer.call(apis.CONSUMER_GROUP_HEARTBEAT, 1, request)
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert len(one.machine.groups.get(GROUP).members) == 1


async def test_many_that_waited_for_a_write_do_not_keep_the_loop_to_themselves() -> None:
    async with alone() as one:
        one.log.tail_gate.clear()
        writer = Member(one, GROUP)
        writer.send_join("write")
        await settle()
        members = [
            Member(one, GROUP, f"m{n}") for n in range(3 * coordinator_runtime.EVENTS_PER_TURN_MAX)
        ]
        for member in members:
            member.send_join("answer")
        one.log.tail_gate.set()
        (group,) = FakeGroup.made
        while group.calls.count("join") == 1:
            await asyncio.sleep(0)
        assert group.calls.count("join") <= 1 + 2 * coordinator_runtime.EVENTS_PER_TURN_MAX
        # Whoever comes in between does not overtake.
        late, done = Member(one, GROUP, "late"), group.calls.count("join")
        late.send_join("answer")
        assert group.calls.count("join") == done
        assert await late.joined() == 0
        assert [await member.joined() for member in members] == [0] * len(members)
        assert await writer.joined() == 0


async def test_a_join_stays_parked_when_its_connection_closes() -> None:
    async with alone() as one:
        gone = Member(one, GROUP, "gone")
        gone.send_join("park")
        await settle()
        gone.peer.hang_up()
        await settle()
        assert FakeGroup.made[0].parked
        assert await Member(one, GROUP, "last").join("release") == 0
        assert not FakeGroup.made[0].parked
        assert one.node.stats.failed_handlers == 0


async def test_a_group_of_which_nothing_is_left_is_not_kept() -> None:
    async with alone() as one:
        for number in range(20):
            assert await Member(one, f"other{number}").join("answer") == 0
        assert list(one.node.groups.runtime) == []
        member = Member(one, GROUP)
        assert await member.join() == 0
        assert [each.group_id for each in one.node.groups.runtime] == [GROUP]
        assert await member.leave() == 0
        assert list(one.node.groups.runtime) == []
        assert len(one.node.groups.runtime._timers) <= 2


async def test_members_of_groups_that_do_not_exist_are_unknown() -> None:
    async with alone() as one:
        member = Member(one, "nowhere", "somebody", 1)
        assert await member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
        assert await member.sync() == ErrorCode.UNKNOWN_MEMBER_ID
        assert await member.leave() == ErrorCode.NONE  # And each of the members is unknown.
        assert FakeGroup.made == []


async def test_an_empty_group_id_is_refused() -> None:
    async with alone() as one:
        member = Member(one, "", "somebody", 1)
        assert await member.join() == ErrorCode.INVALID_GROUP_ID
        assert await member.heartbeat() == ErrorCode.INVALID_GROUP_ID
        assert await member.sync() == ErrorCode.INVALID_GROUP_ID
        assert await member.leave() == ErrorCode.INVALID_GROUP_ID


async def test_a_silent_member_is_expired_by_its_session_timeout_and_a_lively_one_is_not() -> None:
    async with alone() as one:
        silent, lively = Member(one, GROUP), Member(one, GROUP)
        assert (await silent.join(session_ms=6_000), await lively.join()) == (0, 0)
        begun_s = one.world.loop.time()
        while silent.member_id in one.machine.groups.get(GROUP).members:
            await lively.heartbeat()
            await asyncio.sleep(0.1)
        assert 5.9 < one.world.loop.time() - begun_s < 6.2
        await asyncio.sleep(5)
        assert list(one.machine.groups.get(GROUP).members) == [lively.member_id]
        assert stats(one).expired_members == 1


async def test_timers_neither_spin_nor_fire_for_every_heartbeat() -> None:
    async with alone() as one:
        member = Member(one, GROUP)
        assert await member.join() == 0
        for _ in range(60):
            await asyncio.sleep(1)
            assert await member.heartbeat() == 0
        (group,) = FakeGroup.made
        assert group.calls.count("tick") <= 60 / 9 + 1
        await asyncio.sleep(11)
        assert group.calls.count("tick") <= 60 / 9 + 3
        assert not one.machine.groups.get(GROUP).members


@pytest.mark.promise("P6")
async def test_a_stall_of_the_agent_expires_nobody() -> None:
    """What its members sent meanwhile lies unread in the kernel."""
    async with alone(lease_ttl_ms="120000", session_deadline_ms="90000") as one:
        members = [Member(one, GROUP), Member(one, GROUP)]
        for member in members:
            assert await member.join(session_ms=6_000) == 0
        for member in members:
            member.generation = 2
        one.world.loop._now += 30  # SIGSTOP, SIGCONT.
        assert [await member.heartbeat() for member in members] == [0, 0]
        await asyncio.sleep(5)
        assert len(one.machine.groups.get(GROUP).members) == 2
        await asyncio.sleep(1.5)
        assert len(one.machine.groups.get(GROUP).members) == 0

    # Its session outlives the stall here, or else members would have a new timeout anyway.


@pytest.mark.parametrize("what", ["bug", "late-bug"])
async def test_a_bug_in_a_group_ends_the_group_and_nobody_waits_for_it(what) -> None:
    async with alone() as one:
        parked = Member(one, GROUP)
        assert await parked.join() == 0
        parked.send_join("park")
        await settle()
        culprit = Member(one, GROUP)
        with contextlib.suppress(BugError):  # There is no loop between the peer and the agent.
            culprit.send_join(what)
        assert await parked.joined() == ErrorCode.UNKNOWN_SERVER_ERROR
        await settle()
        assert culprit.peer.closed or await culprit.joined() == ErrorCode.UNKNOWN_SERVER_ERROR
        assert await Member(one, GROUP).join() == 0
        assert stats(one).parked == 0
        one.node.stats.failed_handlers = 0
        take_failures()


async def test_a_bug_in_a_heartbeat_that_waited_ends_the_group_too() -> None:
    async with alone() as one:
        member, writer, later = (Member(one, GROUP) for _ in range(3))
        assert await member.join() == 0
        one.log.tail_gate.clear()
        writer.send_join("write")
        await settle()
        codes = []
        one.node.groups.heartbeat(GROUP, member.member_id, 1, "bug", codes.append)
        later.send_join("answer")
        await settle()
        await asyncio.sleep(1)
        one.log.tail_gate.set()
        assert await later.joined() == ErrorCode.UNKNOWN_SERVER_ERROR
        assert codes == [ErrorCode.UNKNOWN_SERVER_ERROR]
        assert await Member(one, GROUP).join() == 0
        take_failures()


async def test_a_row_of_another_version_is_told_to_whoever_asks_and_harms_nobody_else() -> None:
    async with alone() as one:
        member = Member(one, GROUP)
        assert await member.join() == 0
        one.machine.groups.get(GROUP).body = b"of tomorrow"
        coordinator_runtime = one.node.groups.runtime
        incarnation, shards = coordinator_runtime.incarnation, coordinator_runtime.shards
        coordinator_runtime.end()
        coordinator_runtime.serve(incarnation, shards)
        await settle()
        assert await member.heartbeat() == ErrorCode.UNKNOWN_SERVER_ERROR
        assert await member.join() == ErrorCode.UNKNOWN_SERVER_ERROR
        with pytest.raises(KafkaError):
            one.node.groups.live(GROUP)
        assert stats(one).unreadable >= 3
        assert await Member(one, "another").join() == 0


async def test_a_member_is_told_its_host_and_ids_come_from_the_agents_own_chance() -> None:
    ids: list[str] = []
    for _ in range(2):
        async with alone() as one:
            peer = one.connect()
            answer = await peer.call(apis.JOIN_GROUP, 5, join_request(GROUP, "answer"))
            assert answer.leader == "/127.0.0.1"
            member = Member(one, GROUP)
            await member.join()
            ids.append(member.member_id)
    assert ids[0] == ids[1]
    first, second, third, fourth, fifth = ids[0].split("-")
    assert [len(part) for part in (first, second, third, fourth, fifth)] == [8, 4, 4, 4, 12]
    assert third[0] == "4"
    assert fourth[0] in "89ab"


async def test_heartbeats_of_the_consumer_protocol_are_answered_in_the_call() -> None:
    async with alone() as one:
        request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="m")
        peer = one.connect()
        tasks = len(asyncio.all_tasks())
        peer.send(apis.CONSUMER_GROUP_HEARTBEAT, 1, request)
        assert len(asyncio.all_tasks()) == tasks
        assert (await peer.answer()).member_id == "m"
        assert stats(one).heartbeats == 1


async def test_the_consumer_protocol_can_be_switched_off() -> None:
    async with alone(group_coordinator_rebalance_protocols="classic") as one:
        request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="m")
        answer = await one.call(apis.CONSUMER_GROUP_HEARTBEAT, request)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_configs_of_a_group_hold_for_the_live_group_at_once() -> None:
    async with alone() as one:
        assert await Member(one, GROUP).join() == 0
        (group,) = FakeGroup.made
        assert group.settings.consumer_session_timeout_ms == 45_000
        configs = (("consumer.session.timeout.ms", "50000"),)
        await one.node.groups.propose(SetGroupConfigs(GROUP, configs))
        assert group.settings.consumer_session_timeout_ms == 50_000
        assert one.node.groups.settings_for(GROUP).consumer_session_timeout_ms == 50_000


def commit(topic, group_id: str = GROUP) -> CommitOffsets:
    return CommitOffsets(group_id, "", -1, (CommittedOffset(topic.topic_id, 0, 5, -1, ""),))


@pytest.mark.parametrize("seed", range(5))
async def test_a_commit_that_creates_a_group_and_a_join_do_not_know_two_different_groups(
    seed: int,
) -> None:
    async with alone() as one:
        topic = await one.create_topic("t")
        one.log.tail_gate.clear()
        committed = asyncio.ensure_future(one.node.groups.propose(commit(topic)))
        await settle()
        member = Member(one, GROUP)
        member.send_join("write")
        await asyncio.sleep(1)
        assert FakeGroup.made == []
        one.log.tail_gate.set()
        assert await member.joined() == 0
        await committed
        assert stats(one).writes_fenced == 0
        assert len(one.machine.groups.get(GROUP).offsets) == 1


async def test_soft_state_of_before_a_row_ends_with_the_commit_that_makes_the_row() -> None:
    async with alone() as one:
        topic = await one.create_topic("t")
        parked = Member(one, GROUP, "parked")
        parked.send_join("park")
        await settle()
        one.log.tail_gate.clear()
        committed = asyncio.ensure_future(one.node.groups.propose(commit(topic)))
        await settle()
        later = Member(one, GROUP)
        later.send_join("write")
        one.log.tail_gate.set()
        await committed
        assert await parked.joined() == ErrorCode.NOT_COORDINATOR
        assert await later.joined() == 0
        assert [group.dead for group in FakeGroup.made] == [True, False]


@pytest.mark.parametrize("seed", range(5))
async def test_a_group_is_deleted_between_its_own_writes(seed: int) -> None:
    async with alone() as one:
        topic = await one.create_topic("t")
        await one.node.groups.propose(commit(topic))
        one.log.tail_gate.clear()
        deleted = asyncio.ensure_future(
            one.node.groups.propose(DeleteGroup(GROUP, only_without_offsets=False))
        )
        await settle()
        member = Member(one, GROUP)
        member.send_join("write")
        waited = asyncio.ensure_future(one.node.groups.settled(GROUP))
        await asyncio.sleep(1)
        assert not waited.done()
        one.log.tail_gate.set()
        await deleted
        await waited
        assert await member.joined() == 0
        assert len(one.machine.groups.get(GROUP).offsets) == 0
        assert stats(one).writes_fenced == 0


async def test_a_deletion_that_the_log_refuses_leaves_the_group_as_it_was() -> None:
    async with alone() as one:
        member = Member(one, GROUP)
        assert await member.join() == 0
        outcome = await one.node.groups.propose(DeleteGroup(GROUP, only_without_offsets=False))
        assert outcome.error == ErrorCode.NON_EMPTY_GROUP
        assert await member.heartbeat() == 0
        assert len(FakeGroup.made) == 1


async def test_who_asks_for_a_settled_group_waits_while_it_is_written() -> None:
    async with alone() as one:
        one.log.tail_gate.clear()
        member = Member(one, GROUP)
        member.send_join("write")
        await settle()
        waited = asyncio.ensure_future(one.node.groups.settled(GROUP))
        await asyncio.sleep(1)
        assert not waited.done()
        one.log.tail_gate.set()
        await waited
        assert one.node.groups.live(GROUP).state() == "Stable"


async def test_a_proposal_whose_fate_is_open_for_too_long_is_said_to_have_timed_out() -> None:
    async with alone(offsets_commit_timeout_ms="1000") as one:
        topic = await one.create_topic("t")
        one.log.tail_gate.clear()
        with pytest.raises(KafkaError) as caught:
            await one.node.groups.propose(commit(topic))
        assert caught.value.code == ErrorCode.REQUEST_TIMED_OUT
        one.log.tail_gate.set()
        await asyncio.sleep(1)
        assert len(one.machine.groups.get(GROUP).offsets) == 1


async def test_groups_are_listed_whether_or_not_they_have_a_row() -> None:
    async with alone() as one:
        assert await Member(one, "b").join() == 0
        Member(one, "a", "x").send_join("park")
        await settle()
        assert one.node.groups.coordinated() == ["a", "b"]
