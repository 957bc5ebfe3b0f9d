"""All connections together: how many, how much memory, how long, and how they end (P15)."""

import asyncio
import contextlib
import functools

import pytest

from broker.api import Cold, Hot
from broker.edge.limits import ConnectionLimits, ServerLimits
from broker.edge.server import HEAVY_MS
from broker.edge.starts import TURN_MS
from protocol import apis, messages
from tests.broker.edge.stage import Stage, connected, staged
from tests.kit.client import settle

PRODUCE = (apis.PRODUCE, 9)
FETCH = (apis.FETCH, 12)
SMALL = ConnectionLimits(frame_bytes_max=1 << 20, write_buffer_bytes=1000)


def limits(**changes) -> ServerLimits:
    told = {"connections_max": 100, "idle_ms_max": 600_000, "held_bytes_max": 1 << 30}
    small = ConnectionLimits(frame_bytes_max=1 << 20)
    return ServerLimits(**(told | {"connection": small} | changes))


async def test_a_connection_over_the_limit_is_closed_at_once():
    async with staged(limits=limits(connections_max=2)) as stage:
        peers = [stage.connect() for _ in range(3)]
        assert [peer.closed for peer in peers] == [False, False, True]
        assert stage.node.stats.connections_refused == {"full": 1}
        peers[0].hang_up()
        assert not stage.connect().closed


@pytest.mark.promise("P15")
@pytest.mark.real_loop  # Whose order of callbacks is that of agents.
async def test_requests_of_many_connections_begin_in_several_turns_of_the_loop():
    begun_by_turn = []

    def slow(node, call) -> None:
        stage.skew_ms += 1
        begun_by_turn[-1] += 1

    def turn() -> None:
        begun_by_turn.append(0)
        if running:
            asyncio.get_running_loop().call_soon(turn)

    running = True
    turn()
    async with staged(handlers={apis.FETCH: Hot(slow)}) as stage:
        peers = [stage.connect() for _ in range(50)]
        for peer in peers:
            peer.send(*FETCH)
        waiting = sum(peer.transport.read_paused for peer in peers)
        assert waiting == 50 - sum(begun_by_turn), "who waits is not read from"
        await settle()
        running = False
        assert not any(peer.transport.read_paused for peer in peers)
        assert sum(begun_by_turn) == 50
        assert max(begun_by_turn) <= 2 * TURN_MS


async def test_an_idle_connection_is_closed_and_one_that_speaks_is_not():
    async with staged(limits=limits(idle_ms_max=10000)) as stage:
        idle, busy = stage.connect(), stage.connect()
        for _ in range(10):
            await asyncio.sleep(2)
            busy.send(*FETCH)
            stage.started[-1].answer([b"x"])
        assert idle.closed
        assert not busy.closed
        assert stage.node.stats.connections_closed == {"idle": 1}


async def test_a_connection_that_waits_for_an_answer_is_not_idle():
    async with connected(limits=limits(idle_ms_max=10000)) as (_stage, peer):
        peer.send(*FETCH)
        await asyncio.sleep(60)
        assert not peer.closed


async def test_a_client_that_never_takes_its_answers_is_cut_off():
    async with connected(limits=limits(idle_ms_max=10000)) as (stage, peer):
        peer.transport.stuck = True
        peer.send(*FETCH)
        stage.started[0].answer([bytes(1 << 20)])
        await asyncio.sleep(60)
        assert peer.transport.aborted


async def test_a_negative_idle_time_closes_nobody():
    async with connected(limits=limits(idle_ms_max=-1)) as (_stage, peer):
        await asyncio.sleep(10_000)
        assert not peer.closed


async def test_over_the_memory_bound_nobody_reads_until_there_is_room_again():
    async with staged(limits=limits(held_bytes_max=1 << 20)) as stage:
        peers = [stage.connect() for _ in range(3)]
        for peer in peers[:2]:
            peer.send(*PRODUCE, body=bytes(600_000))
        await settle()
        assert all(peer.transport.read_paused for peer in peers)
        peers[2].put(peers[2].frame(*PRODUCE))
        await settle()
        assert len(stage.started) == 2
        await stage.answer()
        assert not any(peer.transport.read_paused for peer in peers)
        peers[2].pump()
        assert len(stage.started) == 3


@pytest.mark.promise("P15")
async def test_over_the_memory_bound_the_oldest_frame_under_way_is_still_received():
    async with staged(limits=limits(held_bytes_max=1 << 20)) as stage:
        peers = [stage.connect() for _ in range(4)]
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


async def test_a_frame_that_pauses_while_others_wait_for_memory_loses_its_connection():
    async with staged(limits=limits(held_bytes_max=1 << 20)) as stage:
        slow, other = stage.connect(), stage.connect()
        frames = [peer.frame(*PRODUCE, body=bytes(1_000_000)) for peer in (slow, other)]
        for peer, frame in zip((slow, other), frames, strict=True):
            peer.feed(frame[:700_000])
            await settle()
        other.put(frames[1][700_000:])
        assert other.transport.read_paused
        await asyncio.sleep(60)
        assert slow.closed
        assert not other.closed
        assert len(stage.started) == 1


async def test_who_is_given_much_keeps_others_waiting_for_a_few_ms_only():
    async with staged(limits=limits()) as stage:
        greedy, modest = [stage.connect() for _ in range(50)], stage.connect()

        def slowly(write, data) -> None:
            stage.skew_ms += 2  # The kernel copies.
            write(data)

        for peer in greedy:
            peer.transport.write = functools.partial(slowly, peer.transport.write)
            peer.send(*FETCH)
            await stage.answer(-1, bytes(1 << 20))
            peer.send(*FETCH)
        modest.send(*FETCH)
        begun_ms = stage.skew_ms
        for call in [call for call in stage.started if not call.answered]:
            call.answer([bytes(1 << 20) if call.connection is not modest.protocol else b"x"])
        while not modest.transport.writes:
            await asyncio.sleep(0)
        assert stage.skew_ms - begun_ms <= HEAVY_MS + 2
        await settle(100)
        assert all(len(peer.correlation_ids()) == 2 for peer in greedy)


async def all_fetching(stage, count: int) -> list:
    """Clients that will take of their answers what the test says, and whose fetches have begun."""
    peers = [stage.connect() for _ in range(count)]
    for peer in peers:
        peer.transport.stuck = True
        peer.send(*FETCH)
    await settle(100)
    assert len(stage.started) == count
    return peers


async def pass_time(seconds: int, takers: list, each: int) -> None:
    """Every second each takes so many bytes."""
    for _ in range(seconds):
        await asyncio.sleep(1)
        for peer in takers:
            transport = peer.transport
            if not peer.closed and transport.stuck:
                transport.writes[0] = transport.writes[0][each:]
                if not transport.writes[0]:
                    transport.stuck = False
                    peer.protocol.resume_writing()


async def test_at_the_memory_bound_a_fetch_begins_when_who_takes_answers_slowly_was_cut_off():
    """4 KiB a second each is more than nothing, and would keep others out for minutes."""
    async with staged(limits=limits(connection=SMALL, held_bytes_max=4 << 20)) as stage:
        slow = await all_fetching(stage, 4)
        for index in range(4):
            await stage.answer(index, bytes(1 << 20))
        other = stage.connect()
        other.send(*FETCH)
        await settle()
        assert len(stage.started) == 4, "there is no room for its answer"
        await pass_time(11, slow, 4_096)
        assert len(stage.started) == 5
        assert 1 <= [peer.closed for peer in slow].count(True) <= 2
        await stage.answer(4)
        assert other.correlation_ids() == [1]


async def test_at_the_memory_bound_who_takes_answers_steadily_is_waited_for():
    async with staged(limits=limits(connection=SMALL, held_bytes_max=4 << 20)) as stage:
        steady = await all_fetching(stage, 4)
        for index in range(4):
            await stage.answer(index, bytes(1 << 20))
        stage.connect().send(*FETCH)
        await pass_time(30, steady, 60_000)
        assert not any(peer.closed for peer in steady)
        assert len(stage.started) == 5
        assert stage.node.fetching.untaken.total < 4 << 20


async def test_an_answer_counts_also_where_its_way_is_known_to_be_full_only_later():
    """As on uvloop and on TLS, which pause whoever writes in a turn behind the write."""
    async with staged(limits=limits(connection=SMALL)) as stage:
        (peer,) = await all_fetching(stage, 1)
        peer.transport.high = 1 << 30
        await stage.answer(0, bytes(1 << 20))
        peer.protocol.pause_writing()
        assert stage.node.fetching.untaken.total > 1 << 20
        peer.protocol.resume_writing()
        assert stage.node.fetching.untaken.total == 0


async def test_over_the_memory_bound_who_takes_no_answers_is_cut_off_and_who_takes_some_is_not():
    async with staged(limits=limits(connection=SMALL, held_bytes_max=4 << 20)) as stage:
        stuck, slow = await all_fetching(stage, 5), stage.connect()
        slow.transport.stuck = True
        slow.send(*FETCH)
        for index, peer in enumerate([*stuck, slow]):
            await stage.answer(index, bytes(2 << 20 if peer is slow else 1 << 20))
            assert peer.transport.read_paused
        for _ in range(11):
            await asyncio.sleep(1)
            slow.transport.writes[0] = slow.transport.writes[0][50_000:]
        assert [peer.closed for peer in stuck].count(True) == 4, "until there is room"
        assert not slow.closed
        assert stage.node.stats.connections_closed == {"unread": 4}


async def test_over_the_memory_bound_who_takes_a_byte_now_and_then_is_cut_off_too():
    async with staged(limits=limits(connection=SMALL, held_bytes_max=4 << 20)) as stage:
        trickling = await all_fetching(stage, 6)
        for index in range(6):
            await stage.answer(index, bytes(1 << 20))
        for _ in range(60):
            await asyncio.sleep(1)
            for peer in trickling:
                peer.transport.writes[0] = peer.transport.writes[0][1_000:]
        assert [peer.closed for peer in trickling].count(True) == 3, "until there is room"
        assert stage.node.stats.connections_closed == {"unread": 3}


async def test_draining_answers_what_was_asked_and_then_closes():
    async with staged() as stage:
        producer, quiet, parked = stage.connect(), stage.connect(), stage.connect()
        producer.send(*PRODUCE)
        parked.send(*FETCH)
        begun = asyncio.get_running_loop().time()
        drain = asyncio.get_running_loop().create_task(stage.server.drain(10_000))
        await settle()
        assert quiet.closed
        assert parked.closed, "a parked fetch is no reason to stay"
        assert not producer.closed
        assert stage.connect().closed
        await asyncio.sleep(1)
        stage.started[0].answer([b"x"])
        await drain
        assert producer.correlation_ids() == [1]
        assert producer.was_lost
        assert asyncio.get_running_loop().time() - begun < 2


async def test_connections_stay_until_the_agent_has_left_and_nothing_more_is_read_of_them():
    """Whose connection ends asks another agent at once where to go: it must know."""
    async with staged() as stage:
        producer, quiet, parked = stage.connect(), stage.connect(), stage.connect()
        producer.send(*PRODUCE)
        parked.send(*FETCH)
        left = asyncio.Event()
        drain = asyncio.get_running_loop().create_task(stage.server.drain(10_000, left))
        await settle()
        stage.started[0].answer([b"x"])
        quiet.send(*PRODUCE)
        await settle()
        assert producer.correlation_ids() == [1]
        assert len(stage.started) == 2
        assert not any(peer.closed for peer in (producer, quiet, parked))
        left.set()
        await drain
        assert all(peer.was_lost for peer in (producer, quiet, parked))


async def test_draining_ends_although_the_agent_cannot_leave():
    async with connected() as (stage, peer):
        await stage.server.drain(3_000, asyncio.Event())
        assert peer.transport.aborted


async def test_draining_ends_although_a_request_is_never_answered():
    async with connected() as (stage, peer):
        peer.send(*PRODUCE)
        await stage.server.drain(3_000)
        assert peer.transport.aborted


async def test_requests_waiting_their_turn_are_served_while_draining():
    async with connected() as (stage, peer):
        peer.feed(peer.frame(*PRODUCE) + peer.frame(apis.METADATA, 9))
        drain = asyncio.get_running_loop().create_task(stage.server.drain(10_000))
        await settle()
        await stage.answer(0)
        stage.started[1].answer([b"2"])
        await drain
        assert peer.correlation_ids() == [1, 2]


async def test_a_server_that_stops_cuts_its_connections():
    async with connected() as (_, peer):
        pass
    assert peer.transport.aborted


async def test_a_request_that_comes_while_tasks_of_a_stopping_server_end_ends_its_connection():
    ending, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(_node, _call, _request):
        try:
            await asyncio.Event().wait()
        finally:
            ending.set()
            await go_on.wait()

    stage = Stage(asyncio.get_running_loop(), handlers={apis.LIST_GROUPS: Cold(slowly, None)})
    server = asyncio.get_running_loop().create_task(stage.server.run())
    await settle()
    first, second = stage.connect(), stage.connect()
    first.send(apis.LIST_GROUPS, 4, messages.ListGroupsRequest())
    await settle()
    server.cancel()
    await ending.wait()
    second.send(apis.LIST_GROUPS, 4, messages.ListGroupsRequest())
    await settle()
    assert second.closed
    go_on.set()
    with contextlib.suppress(asyncio.CancelledError):
        await server
    assert first.closed
