"""All connections together: how many, how much memory, how long, and how they end (P15)."""

import asyncio

import pytest

from broker.edge.limits import ConnectionLimits, ServerLimits
from protocol import apis
from tests.broker.edge.wire import perform, settle

PRODUCE = (apis.PRODUCE, 9)
FETCH = (apis.FETCH, 12)


def limits(**changes) -> ServerLimits:
    told = {"connections_max": 100, "idle_ms_max": 600_000, "held_bytes_max": 1 << 30}
    small = ConnectionLimits(frame_bytes_max=1 << 20)
    return ServerLimits(**(told | {"connection": small} | changes))


def test_a_connection_over_the_limit_is_closed_at_once():
    async def play(stage):
        peers = [stage.peer() for _ in range(3)]
        assert [peer.closed for peer in peers] == [False, False, True]
        assert stage.node.stats.connections_refused == 1
        peers[0].hang_up()
        assert not stage.peer().closed

    perform(play, limits=limits(connections_max=2))


def test_an_idle_connection_is_closed_and_one_that_speaks_is_not():
    async def play(stage):
        idle, busy = stage.peer(), stage.peer()
        for _ in range(10):
            await asyncio.sleep(2)
            busy.send(*FETCH)
            stage.started[-1].answer([b"x"])
        assert idle.closed
        assert not busy.closed
        assert stage.node.stats.connections_closed == {"idle": 1}

    perform(play, limits=limits(idle_ms_max=10_000))


def test_a_connection_that_waits_for_an_answer_is_not_idle():
    async def play(stage):
        peer = stage.peer()
        peer.send(*FETCH)
        await asyncio.sleep(60)
        assert not peer.closed

    perform(play, limits=limits(idle_ms_max=10_000))


def test_a_client_that_never_takes_its_answers_is_cut_off():
    async def play(stage):
        peer = stage.peer()
        peer.transport.stuck = True
        peer.send(*FETCH)
        stage.started[0].answer([bytes(1 << 20)])
        await asyncio.sleep(60)
        assert peer.transport.aborted

    perform(play, limits=limits(idle_ms_max=10_000))


def test_a_negative_idle_time_closes_nobody():
    async def play(stage):
        peer = stage.peer()
        await asyncio.sleep(10_000)
        assert not peer.closed

    perform(play, limits=limits(idle_ms_max=-1))


def test_over_the_memory_bound_nobody_reads_until_there_is_room_again():
    async def play(stage):
        peers = [stage.peer() for _ in range(3)]
        for peer in peers[:2]:
            peer.send(*PRODUCE, body=bytes(600_000))
        await settle()
        assert all(peer.transport.read_paused for peer in peers)
        peers[2].put(peers[2].frame(*PRODUCE))
        await settle()
        assert len(stage.started) == 2
        stage.started[0].answer([b"x"])
        await settle()
        assert not any(peer.transport.read_paused for peer in peers)
        peers[2].pump()
        assert len(stage.started) == 3

    perform(play, limits=limits(held_bytes_max=1 << 20))


@pytest.mark.promise("P15")
def test_over_the_memory_bound_the_oldest_frame_under_way_is_still_received():
    async def play(stage):
        peers = [stage.peer() for _ in range(4)]
        frames = [peer.frame(*PRODUCE, body=bytes(800_000)) for peer in peers]
        for peer, frame in zip(peers, frames, strict=True):
            peer.feed(frame[:400_000])
            await settle()
        reading = [not peer.transport.read_paused for peer in peers]
        assert reading == [True, False, False, False]
        for peer, frame in zip(peers, frames, strict=True):
            peer.put(frame[400_000:])
            peer.pump_soon()
        for count in range(1, 5):
            for _ in range(20):
                await settle()
                if len(stage.started) == count:
                    break
            assert len(stage.started) >= count
            stage.started[count - 1].answer([b"x"])
        await settle()
        assert stage.node.stats.held_bytes == 0

    perform(play, limits=limits(held_bytes_max=1 << 20))


def test_a_frame_that_pauses_while_others_wait_for_memory_loses_its_connection():
    async def play(stage):
        slow, other = stage.peer(), stage.peer()
        for peer in (slow, other):
            peer.feed(peer.frame(*PRODUCE, body=bytes(1_000_000))[:700_000])
            await settle()
        assert other.transport.read_paused
        await asyncio.sleep(60)
        assert slow.closed
        assert not other.transport.read_paused

    perform(play, limits=limits(held_bytes_max=1 << 20))


def test_draining_answers_what_was_asked_and_then_closes():
    async def play(stage):
        producer, quiet, parked = stage.peer(), stage.peer(), stage.peer()
        producer.send(*PRODUCE)
        parked.send(*FETCH)
        begun = asyncio.get_running_loop().time()
        drain = asyncio.get_running_loop().create_task(stage.server.drain(10_000))
        await settle()
        assert quiet.closed
        assert parked.closed, "a parked fetch is no reason to stay"
        assert not producer.closed
        assert stage.peer().closed
        await asyncio.sleep(1)
        stage.started[0].answer([b"x"])
        await drain
        assert producer.correlation_ids() == [1]
        assert producer.was_lost
        assert asyncio.get_running_loop().time() - begun < 2

    perform(play)


def test_draining_ends_although_a_request_is_never_answered():
    async def play(stage):
        peer = stage.peer()
        peer.send(*PRODUCE)
        await stage.server.drain(3_000)
        assert peer.transport.aborted

    perform(play)


def test_requests_waiting_their_turn_are_served_while_draining():
    async def play(stage):
        peer = stage.peer()
        peer.feed(peer.frame(*PRODUCE) + peer.frame(apis.METADATA, 9))
        drain = asyncio.get_running_loop().create_task(stage.server.drain(10_000))
        await settle()
        stage.started[0].answer([b"1"])
        await settle()
        stage.started[1].answer([b"2"])
        await drain
        assert peer.correlation_ids() == [1, 2]

    perform(play)


def test_a_server_that_stops_cuts_its_connections():
    peers = []

    async def play(stage):
        peers.append(stage.peer())

    perform(play)
    assert peers[0].transport.aborted
