"""Memory of all requests together: who may go on when it is scarce, and who goes (P15)."""

import asyncio
import contextlib

import pytest

from broker.edge import pressure
from broker.edge.limits import REQUEST_BYTES, ConnectionLimits, ServerLimits
from broker.edge.pressure import Level
from protocol import apis
from tests.broker.edge.stage import staged
from tests.kit.client import settle

PRODUCE = (apis.PRODUCE, 9)
FETCH = (apis.FETCH, 12)
MiB = 1 << 20
BOUND = 8 * MiB
STALLED = 70_000
"""For so much of a frame of 2 MiB there is a buffer of 1152 KiB; six are more than three quarters."""


@contextlib.asynccontextmanager
async def edge(**changes):
    limits = ServerLimits(
        connections_max=5000,
        idle_ms_max=600_000,
        held_bytes_max=BOUND,
        connection=ConnectionLimits(frame_bytes_max=4 * MiB),
        **changes,
    )
    async with staged(limits=limits) as stage:
        yield stage


def big(peer, length=2 * MiB) -> bytes:
    return peer.frame(*PRODUCE, body=bytes(length))


def begin(peer, length=2 * MiB, *, arrived: int) -> bytes:
    """Send that much of a frame; the rest of it."""
    frame = big(peer, length)
    peer.feed(frame[:arrived])
    return frame[arrived:]


async def show(stage, peer) -> None:
    """Have a request of it answered."""
    peer.send(*FETCH)
    await stage.answer(-1)


@pytest.mark.promise("P15")
async def test_lengths_of_frames_that_never_come_take_no_memory():
    async with edge() as stage:
        for _ in range(2_000):
            stage.connect().feed((1 << 20).to_bytes(4))
        other = stage.connect()
        other.send(*FETCH)
        assert len(stage.started) == 1
        assert stage.node.stats.held_bytes < 1000 + REQUEST_BYTES


async def test_small_requests_are_read_while_big_ones_wait_for_memory():
    async with edge() as stage:
        for _ in range(6):
            begin(stage.connect(), arrived=STALLED)
        await settle()
        assert stage.server.memory.level is not Level.EASY
        small = stage.connect()
        small.send(*FETCH)
        assert len(stage.started) == 1
        assert not small.transport.read_paused


async def test_when_memory_is_scarce_frames_get_no_more_room_than_they_need():
    async with edge() as stage:
        for _ in range(12):
            begin(stage.connect(), arrived=STALLED)
        await settle()
        assert stage.server.memory.level is Level.TIGHT, "the small ones still go on"


async def test_great_frames_begin_with_less_while_much_is_held(monkeypatch):
    monkeypatch.setattr(pressure, "ONE_STEP_BYTES", 2 * MiB)
    async with edge() as stage:
        peers = [stage.connect() for _ in range(3)]
        grown = []
        for peer in peers:
            before = stage.node.stats.held_bytes
            begin(peer, arrived=STALLED)
            await settle()
            grown.append(stage.node.stats.held_bytes - before)
        # Two of 1152 KiB are more than 2 MiB; there is no pressure, and the third has twice what arrived.
        assert stage.server.memory.level is Level.EASY
        assert grown[0] == grown[1] > MiB
        assert grown[2] < 4 * STALLED


async def test_of_the_great_frames_that_begin_in_one_turn_only_the_first_get_room_at_once(
    monkeypatch,
):
    monkeypatch.setattr(pressure, "TURN_STEPS_BYTES", 2 * MiB)
    async with edge() as stage:
        stage.server.memory.begin_turn()
        peers = [stage.connect() for _ in range(4)]
        grown = []
        for peer in peers[:3]:
            before = stage.node.stats.held_bytes
            begin(peer, arrived=STALLED)
            grown.append(stage.node.stats.held_bytes - before)
        assert grown[0] == grown[1] > MiB
        assert grown[2] < 4 * STALLED
        await show(stage, peers[3])  # That is another turn.
        before = stage.node.stats.held_bytes
        begin(peers[3], arrived=STALLED)
        assert stage.node.stats.held_bytes - before == grown[0]


async def test_all_that_stall_while_others_wait_are_evicted_within_five_seconds():
    async with edge() as stage:
        slow = [stage.connect() for _ in range(6)]
        for peer in slow:
            await show(stage, peer)
            begin(peer, arrived=STALLED)
        other = stage.connect()
        rest = begin(other, arrived=MiB)
        await settle()
        assert other.transport.read_paused
        other.put(rest)
        await asyncio.sleep(4.5)
        assert not any(peer.closed for peer in slow)
        await asyncio.sleep(1.5)
        evicted = stage.node.stats.connections_closed["stalled"]
        assert evicted >= 2
        assert len(stage.started) == 7, "the frame that waited was read"
        assert not other.closed


async def test_those_that_have_not_shown_themselves_are_evicted_first_and_sooner():
    async with edge() as stage:
        shown, new = ([stage.connect() for _ in range(3)] for _ in range(2))
        for peer in shown:
            await show(stage, peer)
            begin(peer, arrived=STALLED)
        for peer in new:
            begin(peer, arrived=STALLED)
        other = stage.connect()
        await show(stage, other)
        other.put(begin(other, arrived=MiB))
        await asyncio.sleep(1.5)
        assert all(peer.closed for peer in new)
        assert not any(peer.closed for peer in [*shown, other])


async def test_of_those_that_have_stalled_for_long_the_ones_that_have_shown_themselves_go_last():
    async with edge() as stage:
        shown, new = ([stage.connect() for _ in range(count)] for count in (2, 4))
        for peer in shown:
            await show(stage, peer)
        for peer in [*shown, *new]:
            begin(peer, arrived=STALLED)
        await asyncio.sleep(20)
        other = stage.connect()
        other.put(begin(other, arrived=MiB))
        await asyncio.sleep(0.5)
        assert sum(peer.closed for peer in new) >= 2
        assert not any(peer.closed for peer in [*shown, other])


async def test_nobody_is_evicted_while_nobody_waits():
    async with edge() as stage:
        slow = [stage.connect() for _ in range(6)]
        for peer in slow:
            begin(peer, arrived=STALLED)
        await asyncio.sleep(60)
        assert stage.server.memory.level is Level.TIGHT
        assert not any(peer.closed for peer in slow)


async def test_when_memory_is_easy_nobody_looks_and_nobody_is_evicted():
    async with edge() as stage:
        slow = stage.connect()
        begin(slow, arrived=MiB)
        await asyncio.sleep(300)
        assert not slow.closed
        assert stage.server.memory._timer is None


async def test_a_frame_that_drips_stalls():
    async with edge() as stage:
        slow = [stage.connect() for _ in range(6)]
        rests = [begin(peer, arrived=STALLED) for peer in slow]
        other = stage.connect()
        other.put(begin(other, arrived=MiB))
        for at in range(60):
            await asyncio.sleep(0.1)
            for peer, rest in zip(slow, rests, strict=True):
                if not peer.closed:
                    peer.feed(rest[at : at + 1])
        assert stage.node.stats.connections_closed["stalled"] >= 2
        assert len(stage.started) == 1


async def test_honest_frames_that_come_steadily_all_get_their_turn():
    """Five times what there is memory for, 500 KB a second each."""
    async with edge() as stage:
        peers = [stage.connect() for _ in range(40)]
        rests = [big(peer, MiB) for peer in peers]
        answered = 0
        for _ in range(400):
            for index, peer in enumerate(peers):
                if len(peer.kernel) < 100_000:  # What a kernel would take.
                    piece, rests[index] = rests[index][:50_000], rests[index][50_000:]
                    peer.put(piece)
                    peer.pump_soon()
            await asyncio.sleep(0.1)
            for call in stage.started[answered:]:
                call.answer([b"x"])
            answered = len(stage.started)
        assert answered == 40
        assert not any(peer.closed for peer in peers)


async def test_a_frame_in_its_turn_that_comes_too_slowly_makes_way():
    async with edge() as stage:
        slow = stage.connect()
        await show(stage, slow)
        rest = begin(slow, 3 * MiB, arrived=STALLED)
        others = [stage.connect() for _ in range(6)]
        for peer in others:
            peer.put(begin(peer, 3 * MiB, arrived=STALLED))
        for at in range(10):
            await asyncio.sleep(1)
            if not slow.closed:
                slow.feed(rest[at * 20_000 : (at + 1) * 20_000])
        assert slow.closed


async def test_requests_that_wait_for_long_and_hold_more_than_their_share_make_way():
    async with edge() as stage:
        parked = [stage.connect() for _ in range(3)]
        for peer in parked:
            peer.feed(peer.frame(*FETCH, body=bytes(3 * MiB)))
            await settle()
        other = stage.connect()
        assert other.transport.read_paused
        other.put(other.frame(*PRODUCE))
        await asyncio.sleep(1.5)
        assert [peer.closed for peer in parked].count(True) == 2, "until memory is easy"
        assert len(stage.started) == 4
        assert not other.closed


async def test_produce_requests_that_wait_for_the_store_are_not_evicted():
    async with edge() as stage:
        waiting = [stage.connect() for _ in range(4)]
        for peer in waiting:
            peer.feed(big(peer, 3 * MiB))
            await settle()
        assert stage.server.memory.level is Level.CHOKED
        await asyncio.sleep(120)
        assert not any(peer.closed for peer in waiting)


@pytest.mark.promise("P15")
async def test_a_frame_that_lacks_little_has_its_turn_beside_the_oldest_one():
    async with edge() as stage:
        peers = [stage.connect() for _ in range(7)]
        lengths = [4 * MiB - 100, *([MiB + 300_000] * 6)]
        for peer, length in zip(peers, lengths, strict=True):
            begin(peer, length, arrived=STALLED)
            await settle()
        reading = [not peer.transport.read_paused for peer in peers]
        assert reading[0]
        assert sum(reading) > 1


async def test_a_first_frame_is_small_and_later_ones_may_be_big():
    small = ConnectionLimits(frame_bytes_max=4 * MiB, first_frame_bytes_max=MiB)
    limits = ServerLimits(
        connections_max=10, idle_ms_max=-1, held_bytes_max=BOUND, connection=small
    )
    async with staged(limits=limits) as stage:
        hasty, honest, plain = (stage.connect() for _ in range(3))
        hasty.feed((2 * MiB).to_bytes(4))
        assert hasty.closed
        assert stage.node.stats.connections_closed == {"malformed": 1}
        await show(stage, honest)
        honest.feed(big(honest))
        plain.feed(big(plain, MiB - 1000))  # Not all clients begin with ApiVersions.
        for _ in range(20):
            await settle()
        assert len(stage.started) == 3
        assert not honest.closed
