"""A connection that is over a quota is not heard for a while, and nothing else happens to it (KIP-219)."""

import asyncio

import pytest

from broker.edge.limits import ConnectionLimits
from protocol import apis
from tests.broker.edge.stage import connected, staged
from tests.broker.edge.test_server import limits
from tests.kit.client import settle

PRODUCE = (apis.PRODUCE, 9)
FETCH = (apis.FETCH, 12)
METADATA = (apis.METADATA, 9)


async def throttled(stage, index: int = 0, ms: int = 5_000) -> None:
    """Answer that call, whose client is over a quota."""
    stage.started[index].throttle_ms = ms
    await stage.answer(index)


async def test_the_answer_leaves_at_once_and_then_nothing_is_read_for_the_time():
    async with connected() as (stage, peer):
        peer.send(*PRODUCE)
        await throttled(stage)
        assert peer.correlation_ids() == [1]
        peer.put(peer.frame(*FETCH))
        await asyncio.sleep(4.9)
        assert peer.transport.read_paused
        assert len(stage.started) == 1
        await asyncio.sleep(0.2)
        assert len(stage.started) == 2


async def test_what_was_read_before_begins_when_the_time_is_over_in_order():
    async with connected() as (stage, peer):
        peer.feed(b"".join(peer.frame(*each) for each in (PRODUCE, FETCH, METADATA)))
        await settle()
        await throttled(stage)
        await asyncio.sleep(4.9)
        assert [call.api_key for call in stage.started] == [apis.PRODUCE]
        await asyncio.sleep(0.2)
        assert [call.api_key for call in stage.started] == [apis.PRODUCE, apis.FETCH]
        await stage.answer(1)
        await stage.answer(2)
        assert peer.correlation_ids() == [1, 2, 3]


async def test_answers_to_what_has_begun_leave_meanwhile():
    async with connected() as (stage, peer):
        for _ in range(3):
            peer.send(*PRODUCE)
        await throttled(stage, 0)
        await stage.answer(1)
        await stage.answer(2)
        assert peer.correlation_ids() == [1, 2, 3]
        assert peer.transport.read_paused


async def test_the_longer_of_two_times_counts():
    async with connected() as (stage, peer):
        for _ in range(3):
            peer.send(*PRODUCE)
        await throttled(stage, 0, 5_000)
        await throttled(stage, 1, 1_000)
        await throttled(stage, 2, 3_000)
        await asyncio.sleep(4.9)
        assert peer.transport.read_paused
        await asyncio.sleep(0.2)
        assert not peer.transport.read_paused


async def test_nobody_is_muted_for_longer_than_the_window():
    async with connected() as (stage, peer):
        peer.send(*PRODUCE)
        await throttled(stage, ms=3_600_000)
        await asyncio.sleep(10.9)
        assert peer.transport.read_paused
        await asyncio.sleep(0.2)
        assert not peer.transport.read_paused


async def test_a_request_without_an_answer_mutes_its_connection_too():
    async with connected() as (stage, peer):
        peer.send(*PRODUCE)
        stage.started[0].throttle_ms = 5_000
        stage.started[0].answer(None)
        await settle()
        assert peer.frames() == []
        assert peer.transport.read_paused


async def test_other_connections_are_heard():
    async with staged() as stage:
        one, other = stage.connect(), stage.connect()
        one.send(*PRODUCE)
        await throttled(stage)
        other.send(*FETCH)
        await stage.answer(1)
        assert other.correlation_ids() == [1]


async def test_a_muted_connection_is_not_idle_and_its_time_counts_anew_afterwards():
    async with connected(limits=limits(idle_ms_max=6_000)) as (stage, peer):
        peer.send(*PRODUCE)
        await throttled(stage, ms=10_000)
        await asyncio.sleep(15)
        assert not peer.closed
        await asyncio.sleep(3)
        assert peer.closed
        assert stage.node.stats.connections_closed == {"idle": 1}


@pytest.mark.promise("P17")
async def test_what_waited_for_a_quota_is_not_stale_and_what_waited_through_a_stall_is():
    async with staged() as stage:
        patient, stalled = stage.connect(), stage.connect()
        for peer in (patient, stalled):
            peer.feed(peer.frame(*PRODUCE) + peer.frame(*METADATA))
        await settle()
        await throttled(stage, 0, 10_000)
        await asyncio.sleep(10.1)
        assert not stage.started[-1].stale
        await throttled(stage, 1, 10_000)
        await asyncio.sleep(5)
        stage.stall()
        await asyncio.sleep(5.1)
        assert stage.started[-1].connection is stalled.protocol
        assert stage.started[-1].stale


@pytest.mark.promise("P15")
async def test_a_muted_frame_under_way_is_no_stall_and_keeps_nobody_from_its_turn():
    async with staged(limits=limits(held_bytes_max=1 << 20)) as stage:
        muted, other = stage.connect(), stage.connect()
        muted.send(*PRODUCE)
        frames = [peer.frame(*PRODUCE, body=bytes(1_000_000)) for peer in (muted, other)]
        muted.feed(frames[0][:700_000])
        await throttled(stage, ms=10_000)
        other.feed(frames[1][:500_000])
        other.put(frames[1][500_000:])
        other.pump_soon()
        await asyncio.sleep(8)
        assert len(stage.started) == 2, "the other one's frame came in"
        await stage.answer(1)
        muted.put(frames[0][700_000:])
        await asyncio.sleep(3)
        assert not muted.closed
        assert len(stage.started) == 3


@pytest.mark.promise("P15")
async def test_nobody_is_cut_off_for_a_muted_connection_that_has_sent_more():
    async with staged(limits=limits(held_bytes_max=1 << 20)) as stage:
        muted, *slow = [stage.connect() for _ in range(3)]
        muted.send(*PRODUCE)
        for peer in slow:
            peer.feed(peer.frame(*PRODUCE, body=bytes(1_000_000))[:700_000])
        await throttled(stage, ms=10_000)
        muted.put(muted.frame(*PRODUCE))
        await asyncio.sleep(9)
        assert not any(peer.closed for peer in (muted, *slow))
        await asyncio.sleep(8)
        assert any(peer.closed for peer in slow), "now it waits for them"
        assert not muted.closed


async def test_who_was_muted_is_read_no_further_than_what_it_was_answered():
    small = ConnectionLimits(frame_bytes_max=1 << 20)
    async with connected(limits=limits(connection=small)) as (stage, peer):
        peer.send(*PRODUCE)
        await throttled(stage, ms=1_000)
        await asyncio.sleep(1.1)
        peer.send(*PRODUCE)
        assert peer.transport.read_paused, "until that is answered"
        await throttled(stage, 1, 1_000)
        await asyncio.sleep(1.1)
        peer.send(*PRODUCE)
        await stage.answer(2)
        peer.send(*PRODUCE)
        assert not peer.transport.read_paused


async def test_who_is_over_its_quota_has_one_request_at_a_time():
    async with connected() as (stage, peer):
        stage.over_quota = True
        peer.feed(b"".join(peer.frame(*PRODUCE) for _ in range(3)))
        await settle()
        assert len(stage.started) == 1
        stage.over_quota = False
        await throttled(stage, 0, 1_000)
        await asyncio.sleep(1.1)
        assert len(stage.started) == 2, "until an answer leaves that does not mute"
        await stage.answer(1)
        assert len(stage.started) == 3


async def test_an_agent_that_leaves_waits_for_no_quota():
    async with connected() as (stage, peer):
        peer.feed(peer.frame(*PRODUCE) + peer.frame(*METADATA))
        await settle()
        await throttled(stage, ms=10_000)
        drain = asyncio.get_running_loop().create_task(stage.server.drain(60_000))
        await settle()
        await throttled(stage, 1, ms=10_000)
        async with asyncio.timeout(1):
            await drain
        assert peer.correlation_ids() == [1, 2]


async def test_nothing_is_kept_of_a_connection_that_ends_while_it_is_muted():
    async with connected() as (stage, peer):
        peer.send(*PRODUCE)
        await throttled(stage, ms=10_000)
        assert len(stage.server.mutes) == 1
        peer.hang_up()
        assert len(stage.server.mutes) == 0
        await asyncio.sleep(20)
