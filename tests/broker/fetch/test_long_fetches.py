"""Fetches of many partitions: looked at in slices, woken like others, and bounded."""

import asyncio
from dataclasses import replace

import pytest

from broker.calls import slices
from broker.calls.slices import PAUSE_S
from broker.fetch.fetch_path import PLACES_AT_ONCE, PLACES_PER_SLICE
from broker.fetch.sessions import CHANGES_MAX, SESSION_PLACES_MAX, FetchSessions
from protocol import apis
from protocol.errors import ErrorCode
from protocol.fetch import FetchPartition, FetchRequest
from protocol.messages.budgets import ELEMENTS_MAX
from protocol.primitives import uvarint
from protocol.records import Record, build_batch
from tests.kit import requests
from tests.kit.agents import World
from tests.kit.client import settle

MANY = 10_000
VERSION = 12
LONG_MS = 60_000


def offsets(count: int = MANY) -> dict:
    return {("t", index): 0 for index in range(count)}


def batch(value: bytes = b"value") -> bytes:
    return build_batch([Record(timestamp=1_700_000_000_000, key=None, value=value)])


@pytest.fixture
def world() -> World:
    """Whole agents: long requests come through the dispatcher."""
    return World()


@pytest.fixture
def turns(monkeypatch) -> list:
    """The calls whose turns there were."""
    seen = []
    turn = slices.Slices.turn

    async def noted(self, call) -> None:
        seen.append(call)
        await turn(self, call)

    monkeypatch.setattr(slices.Slices, "turn", noted)
    return seen


async def until(what) -> None:
    """As many pauses as it takes."""
    for _ in range(10_000):
        if what():
            return
        await asyncio.sleep(PAUSE_S)
    raise AssertionError("it never was")


def nothing_is_left(agent) -> bool:
    fetching = agent.node.fetching
    return not (len(fetching.parked) or fetching.parked.watches_count or agent.node.slices.held)


async def test_ten_thousand_partitions_are_fetched_in_slices(world, turns):
    async with world.agents("one") as (one,):
        await one.create_topic("t", MANY)
        await one.produce("t", batch(), partition=7)
        await one.produce("t", batch(), partition=MANY - 1)
        wanted = requests.fetch(offsets(), max_wait_ms=0)
        answer = await one.call(apis.FETCH, wanted, version=VERSION)
        rows = requests.rows_of(answer)
        assert len(rows) == MANY
        assert {index for (_, index), row in rows.items() if row.records} == {7, MANY - 1}
        assert not any(row.error_code for row in rows.values())
        assert len(turns) >= 2 * MANY // PLACES_PER_SLICE
        assert nothing_is_left(one)


@pytest.mark.parametrize("version", [4, 5, 11, 12])
async def test_every_version_of_a_long_fetch_is_answered(version, world):
    async with world.agents("one") as (one,):
        await one.create_topic("t", 1_100)
        await one.produce("t", batch(), partition=1_000)
        wanted = requests.fetch(offsets(1_100), max_wait_ms=0)
        rows = requests.rows_of(await one.call(apis.FETCH, wanted, version=version))
        assert len(rows) == 1_100
        assert bytes(rows["t", 1_000].records)


async def test_a_fetch_of_few_partitions_takes_no_turn(world, turns):
    async with world.agents("one") as (one,):
        await one.create_topic("t", PLACES_AT_ONCE)
        wanted = requests.fetch(offsets(400), max_wait_ms=100)
        rows = requests.rows_of(await one.call(apis.FETCH, wanted, version=VERSION))
        assert len(rows) == 400
        assert turns == []


async def test_a_fetch_that_waits_is_let_go_of_as_soon_as_its_client_is_gone(world):
    async with world.agents("one") as (one,):
        await one.create_topic("t", 300)
        parked = one.node.fetching.parked
        for _ in range(3):
            client = one.connect()
            client.send(apis.FETCH, VERSION, requests.fetch(offsets(300), max_wait_ms=LONG_MS))
            await until(lambda: parked.watches_count == 300)
            client.hang_up()
            assert nothing_is_left(one)
        await one.produce("t", batch(), partition=7)


async def test_a_long_fetch_that_waits_is_woken_by_a_record(world):
    async with world.agents("one") as (one,):
        await one.create_topic("t", MANY)
        client = one.connect()
        client.send(apis.FETCH, VERSION, requests.fetch(offsets(), max_wait_ms=LONG_MS))
        parked = one.node.fetching.parked
        await until(lambda: parked.watches_count == MANY)
        began = world.loop.time()
        await one.produce("t", batch(), partition=5_000)
        rows = requests.rows_of(await client.answer())
        assert world.loop.time() - began < 1
        assert bytes(rows["t", 5_000].records)
        await until(lambda: nothing_is_left(one))


async def test_a_record_that_comes_between_two_slices_wakes_a_long_fetch(world):
    """Its partition was looked at already, and others were not yet."""
    async with world.agents("one") as (one,):
        await one.create_topic("t", MANY)
        client = one.connect()
        client.send(apis.FETCH, VERSION, requests.fetch(offsets(), max_wait_ms=LONG_MS))
        parked = one.node.fetching.parked
        turn = one.node.slices.turn

        async def late(call) -> None:
            await asyncio.sleep(0.1)  # So that a record can be written meanwhile.
            await turn(call)

        one.node.slices.turn = late
        while not parked.watches_count:
            await asyncio.sleep(0.01)
        await one.produce("t", batch(), partition=0)
        assert parked.watches_count < MANY
        began = world.loop.time()
        rows = requests.rows_of(await client.answer())
        assert world.loop.time() - began < 20
        assert bytes(rows["t", 0].records)
        await until(lambda: nothing_is_left(one))


async def test_a_long_fetch_that_waits_is_answered_when_its_time_is_up(world):
    async with world.agents("one") as (one,):
        await one.create_topic("t", MANY)
        wanted = requests.fetch(offsets(), max_wait_ms=25_000)
        began = world.loop.time()
        answer = await one.call(apis.FETCH, wanted, version=VERSION)
        assert 24.9 < world.loop.time() - began < 26
        assert len(requests.rows_of(answer)) == MANY
        assert nothing_is_left(one)


@pytest.mark.parametrize("waits", [False, True])
async def test_nothing_is_left_of_a_long_fetch_whose_client_is_gone(waits, world):
    async with world.agents("one") as (one,):
        await one.create_topic("t", MANY)
        client = one.connect()
        client.send(apis.FETCH, VERSION, requests.fetch(offsets(), max_wait_ms=LONG_MS))
        parked = one.node.fetching.parked
        await until(lambda: parked.watches_count >= (MANY if waits else 1))
        client.hang_up()
        await asyncio.sleep(30)  # Long polls look whether their client is there.
        await until(lambda: nothing_is_left(one))


async def test_a_session_of_many_partitions_is_gone_on_with_in_slices(world, turns):
    async with world.agents("one") as (one,):
        await one.create_topic("t", 2_000)
        client = one.connect()
        full = replace(requests.fetch(offsets(2_000), max_wait_ms=0), session_epoch=0)
        opened = await client.call(apis.FETCH, VERSION, full)
        assert opened.session_id
        await one.produce("t", batch(), partition=1_999)
        turns.clear()
        more = replace(
            requests.fetch({}, max_wait_ms=0), session_id=opened.session_id, session_epoch=1
        )
        answer = await client.call(apis.FETCH, VERSION, more)
        assert list(requests.rows_of(answer)) == [("t", 1_999)]
        assert len(turns) >= 2_000 // PLACES_PER_SLICE


async def test_an_unknown_partition_among_many_is_told_behind_a_barrier(world):
    async with world.agents("one") as (one,):
        await one.create_topic("t", 1_500)
        before = one.node.fetching.stats.barriers
        wanted = requests.fetch(offsets(1_501), max_wait_ms=LONG_MS)
        rows = requests.rows_of(await one.call(apis.FETCH, wanted, version=VERSION))
        errors = {key[1] for key, row in rows.items() if row.error_code}
        assert errors == {1_500}
        assert one.node.fetching.stats.barriers == before + 1
        assert nothing_is_left(one)


async def test_many_partitions_are_read_from_the_store(world):
    async with world.agents("one", "two") as (one, two):
        await one.create_topic("t", 1_000)
        for partition in (3, 999):
            await one.produce("t", batch(), partition=partition)
        wanted = requests.fetch(offsets(1_000), max_wait_ms=0)
        rows = requests.rows_of(await two.call(apis.FETCH, wanted, version=VERSION))
        assert {index for (_, index), row in rows.items() if row.records} == {3, 999}
        assert two.node.fetching.stats.loads == 1
        assert nothing_is_left(two)


def over_budget(version: int) -> bytes:
    """A request of topics without partitions."""
    count = ELEMENTS_MAX[apis.FETCH] + 1
    head = bytes(17)
    if version >= 12:
        session = bytes(4) + b"\xff\xff\xff\xff"
        return head + session + uvarint(count + 1) + b"\2t\1\0" * count + b"\1\1\0"
    return head + count.to_bytes(4) + b"\0\1t\0\0\0\0" * count


async def test_a_fetch_over_its_budget_is_told_so_from_version_7_on(world):
    async with world.agents("one") as (one,):
        client = one.connect()
        client.feed(client.frame(apis.FETCH, VERSION, body=over_budget(VERSION)))
        answer = await client.answer()
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert nothing_is_left(one)


async def test_a_fetch_over_its_budget_ends_its_connection_before_version_7(world, caplog):
    caplog.set_level("INFO")
    async with world.agents("one") as (one,):
        client = one.connect()
        client.feed(client.frame(apis.FETCH, 6, body=over_budget(6)))
        await until(lambda: client.closed)
        assert "elements" in caplog.text
        assert nothing_is_left(one)
        await settle()


# Sessions.


def full(count: int, *, session_id: int = 0, epoch: int = 0, first: int = 0) -> FetchRequest:
    rows = [FetchPartition(first + index, 0, 1_000) for index in range(count)]
    request = FetchRequest(0, 1, 1 << 20, 0, [("t", None, rows)])
    request.session_id, request.session_epoch = session_id, epoch
    return request


def sessions(**limits: int) -> FetchSessions:
    return FetchSessions(slots=10, draw_id=iter(range(1, 100)).__next__, **limits)


@pytest.mark.promise("P15")
def test_a_session_cannot_be_grown_beyond_its_bound():
    held = sessions()
    step = CHANGES_MAX
    assert held.open(VERSION, full(step), 0).session_id == 1
    for number in range(1, SESSION_PLACES_MAX // step):
        more = full(step, session_id=1, epoch=number, first=number * step)
        assert held.open(VERSION, more, 0).session_id == 1
    assert held.places_count == SESSION_PLACES_MAX
    over = full(1, session_id=1, epoch=SESSION_PLACES_MAX // step, first=SESSION_PLACES_MAX)
    assert held.open(VERSION, over, 0) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert held.places_count == len(held) == 0


def test_sessions_together_cannot_be_grown_beyond_their_bound():
    held = sessions(places_max=10)
    held.open(VERSION, full(4), 0)
    held.open(VERSION, full(4), 0)
    over = held.open(VERSION, full(3, session_id=1, epoch=1, first=9), 0)
    assert over is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert held.places_count == 4


def test_an_incremental_request_of_very_many_partitions_starts_over():
    held = sessions()
    held.open(VERSION, full(1), 0)
    over = held.open(VERSION, full(CHANGES_MAX + 1, session_id=1, epoch=1), 0)
    assert over is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_more_partitions_than_a_session_may_have_are_fetched_without_one():
    assert sessions().open(VERSION, full(SESSION_PLACES_MAX + 1), 0).session_id == 0
