"""For how many connections there is room, and who gives up his place."""

import asyncio
import contextlib

import pytest

from broker.edge.limits import (
    ServerLimits,
    changed_limits,
    connections_within,
    limits_of,
    told_of_connections,
)
from broker.edge.places import Pace
from protocol import apis
from tests.broker.edge.stage import Stage, staged
from tests.kit.client import settle

FETCH = (apis.FETCH, 12)


@contextlib.asynccontextmanager
async def edge(connections_max: int = 10, **changes):
    limits = ServerLimits(
        connections_max=connections_max, idle_ms_max=600_000, held_bytes_max=1 << 30, **changes
    )
    async with staged(limits=limits) as stage:
        yield stage


async def show(stage, *peers) -> None:
    for peer in peers:
        peer.send(*FETCH)
        await stage.answer(-1)


def closed(peers) -> list[bool]:
    return [peer.closed for peer in peers]


async def test_an_address_over_its_bound_is_refused_and_others_are_not():
    overrides = {"10.0.0.9": 3, "10.0.0.8": 0}
    async with edge(connections_per_address_max=2, connections_per_address=overrides) as stage:
        assert closed(stage.connect("10.0.0.1") for _ in range(3)) == [False, False, True]
        assert closed(stage.connect("10.0.0.9") for _ in range(4)) == [False] * 3 + [True]
        assert stage.connect("10.0.0.8").closed
        assert not stage.connect("10.0.0.2").closed
        assert stage.node.stats.connections_refused == {"address": 3}


async def test_a_connection_that_ends_gives_its_place_to_the_next_of_its_address():
    async with edge(connections_per_address_max=1) as stage:
        first = stage.connect("10.0.0.1")
        assert stage.connect("10.0.0.1").closed
        first.hang_up()
        assert not stage.connect("10.0.0.1").closed


async def test_five_hundred_connections_of_one_address_are_all_served():
    async with edge(connections_max=768) as stage:
        peers = [stage.connect("10.0.0.1") for _ in range(500)]
        for peer in peers:
            peer.send(*FETCH)
        for call in stage.started:
            call.answer([b"x"])
        await asyncio.sleep(60)
        assert len(stage.started) == 500
        assert all(peer.correlation_ids() == [1] for peer in peers)
        assert not any(closed(peers))


async def test_at_the_bound_the_address_with_the_most_gives_way_to_another_one():
    async with edge() as stage:
        crowd = [stage.connect("10.0.0.1") for _ in range(10)]
        await show(stage, *crowd)
        await asyncio.sleep(5)
        await show(stage, *(peer for peer in crowd if peer is not crowd[3]))
        newcomer = stage.connect("10.0.0.2")
        assert not newcomer.closed
        assert [index for index, peer in enumerate(crowd) if peer.closed] == [3], "idle for longest"
        assert stage.node.stats.connections_closed == {"crowded": 1}


async def test_at_the_bound_the_address_with_the_most_gets_no_more():
    async with edge() as stage:
        few = [stage.connect("10.0.0.2") for _ in range(4)]
        crowd = [stage.connect("10.0.0.1") for _ in range(6)]
        await show(stage, *few, *crowd)
        assert stage.connect("10.0.0.1").closed
        assert not any(closed([*few, *crowd]))
        assert stage.node.stats.connections_refused == {"full": 1}


async def test_addresses_with_the_same_number_take_nothing_from_each_other():
    async with edge() as stage:
        peers = [stage.connect(f"10.0.0.{index % 2}") for index in range(10)]
        await show(stage, *peers)
        assert stage.connect("10.0.0.0").closed
        assert not any(closed(peers))


async def test_at_the_bound_who_has_not_shown_itself_for_a_second_goes_first():
    async with edge() as stage:
        crowd = [stage.connect("10.0.0.1") for _ in range(9)]
        silent = stage.connect("10.0.0.2")
        await show(stage, *crowd)
        await asyncio.sleep(2)
        assert not stage.connect("10.0.0.1").closed
        assert silent.closed
        assert not any(closed(crowd))


async def test_each_of_many_that_come_at_once_takes_a_place_of_its_own():
    """Whoever was evicted is gone in a later turn of the loop only."""
    async with edge() as stage:
        crowd = [stage.connect("10.0.0.1") for _ in range(10)]
        await asyncio.sleep(2)
        newcomers = [stage.connect(f"10.0.1.{index}") for index in range(8)]
        assert sum(closed(crowd)) == 8
        await settle()
        assert not any(closed(newcomers))
        assert stage.node.stats.connections_open == 10


async def test_while_places_are_scarce_who_asks_nothing_for_ten_seconds_is_closed():
    async with edge() as stage:
        shown = [stage.connect("10.0.0.1") for _ in range(4)]
        await show(stage, *shown)
        asking = stage.connect("10.0.0.2")
        asking.send(*FETCH)
        silent = [stage.connect("10.0.0.2") for _ in range(4)]
        await asyncio.sleep(9)
        assert not any(closed(silent))
        await asyncio.sleep(10)
        assert all(closed(silent))
        assert not any(closed([*shown, asking]))
        assert stage.node.stats.connections_closed == {"silent": 4}


async def test_while_there_is_room_a_silent_connection_stays():
    async with edge() as stage:
        silent = [stage.connect() for _ in range(7)]
        await asyncio.sleep(300)
        assert not any(closed(silent))


async def test_connections_beyond_the_rate_are_let_in_later_and_none_is_refused():
    async with edge(connections_max=100, connection_rate_max=5) as stage:
        peers = [stage.connect() for _ in range(15)]
        for peer in peers:
            peer.put(peer.frame(*FETCH))
            peer.pump()
        assert len(stage.started) == 5, "a second's worth"
        await asyncio.sleep(1.05)
        assert len(stage.started) == 10
        await asyncio.sleep(1)
        assert len(stage.started) == 15
        assert not any(closed(peers))


async def test_who_waits_for_its_turn_at_the_rate_does_not_count_as_silent():
    async with edge(connections_max=15, connection_rate_max=1) as stage:
        peers = [stage.connect() for _ in range(14)]
        for peer in peers:
            peer.put(peer.frame(*FETCH))
            peer.pump()
        await asyncio.sleep(16)
        assert not any(closed(peers))
        assert len(stage.started) == 14


def test_the_rate_spaces_connections_out_beyond_a_second_s_worth():
    pace = Pace(2)
    assert [pace.delay_ms(1_000) for _ in range(5)] == [0, 0, 500, 1_000, 1_500]
    assert pace.delay_ms(10_000) == 0


@pytest.mark.parametrize(
    ("descriptors", "connections"), [(1024, 768), (256, 128), (20_000, 19_744), (2, 1)]
)
def test_descriptors_are_kept_back_for_store_log_and_http(descriptors, connections):
    assert connections_within(descriptors) == connections


async def test_the_smaller_of_the_setting_and_the_descriptors_binds():
    loop = asyncio.get_running_loop()
    many, few = Stage(loop), Stage(loop, max_connections="100")
    within = limits_of(many.node, descriptors=1024)
    assert within.connections_max == 768
    assert "ulimit -n" in told_of_connections(within, 1024)
    told = limits_of(few.node, descriptors=1024)
    assert told.connections_max == 100
    assert told_of_connections(told, 1024) == "100 connections at once"
    assert limits_of(many.node).connections_max == 2147483647


async def test_what_a_first_frame_may_be_follows_the_greatest_batch():
    loop = asyncio.get_running_loop()
    usual = limits_of(Stage(loop).node).connection
    assert usual.first_frame_bytes_max == 16 << 20
    raised = limits_of(Stage(loop, message_max_bytes="20000000").node).connection
    assert raised.first_frame_bytes_max == 40_000_000
    lowered = limits_of(Stage(loop, socket_request_max_bytes="2000000").node).connection
    assert lowered.first_frame_bytes_max == 2_000_000


async def test_bounds_that_change_at_run_time_stay_within_the_descriptors():
    loop = asyncio.get_running_loop()
    stage = Stage(loop)
    within = limits_of(stage.node, descriptors=1024)
    kafka = Stage(
        loop, max_connections="5000", max_connection_creation_rate="3", message_max_bytes="20000000"
    ).node.kafka
    changed = changed_limits(within, kafka)
    assert (changed.connections_max, changed.connection_rate_max) == (768, 3)
    assert changed.connection.first_frame_bytes_max == 40_000_000
    assert changed.held_bytes_max == within.held_bytes_max


def test_a_pace_that_changes_spaces_out_who_comes_from_then_on():
    pace = Pace(1000)
    assert [pace.delay_ms(0) for _ in range(3)] == [0, 0, 0]
    pace.rate = 1
    assert [pace.delay_ms(0) for _ in range(3)] == [3, 1003, 2003]
