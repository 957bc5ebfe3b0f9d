"""Fetches that were woken, many at once: each is looked at, a slice at a time, and clients take turns."""

import asyncio
from types import SimpleNamespace

import pytest

from broker.calls.shares import Owner
from broker.fetch.woken import AT_ONCE, FETCH_COST, WokenFetches
from protocol import apis
from protocol.records import Record, build_batch
from tests.kit import requests
from tests.kit.agents import World
from tests.kit.client import settle


class Woken:
    """As much of a fetch as is looked at."""

    def __init__(self, address: str, number: int, places: int) -> None:
        self.owner = Owner(address)
        self.call = SimpleNamespace(connection=SimpleNamespace(number=number))
        self.fetched = SimpleNamespace(places=[None] * places)


class Looks:
    """What is looked at, and when."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.seen: list[tuple[float, Woken]] = []
        self.woken = WokenFetches(lambda fetch: self.seen.append((self.loop.time(), fetch)))

    async def all(self) -> None:
        while self.woken:
            await asyncio.sleep(0.001)

    def slices(self) -> list[list[Woken]]:
        """What was looked at in one go each."""
        times = sorted({at for at, _ in self.seen})
        return [[fetch for at, fetch in self.seen if at == time] for time in times]


async def test_a_few_are_looked_at_in_the_call() -> None:
    looks = Looks()
    few = [Woken("10.0.0.1", number, 5) for number in range(20)]
    looks.woken.look_at(few)
    assert [fetch for _, fetch in looks.seen] == few
    assert not looks.woken


@pytest.mark.promise("P15")
async def test_of_many_each_is_looked_at_once_and_never_too_much_in_a_turn() -> None:
    looks = Looks()
    many = [Woken("10.0.0.1", number, 400) for number in range(100)]
    looks.woken.look_at(many)
    await looks.all()
    assert sorted(fetch.call.connection.number for _, fetch in looks.seen) == [*range(100)]
    counts = [sum(len(fetch.fetched.places) for fetch in each) for each in looks.slices()]
    assert max(counts) <= AT_ONCE + 400


async def test_thousands_of_one_partition_are_soon_looked_at() -> None:
    looks = Looks()
    looks.woken.look_at([Woken("10.0.0.1", number, 1) for number in range(5_000)])
    await looks.all()
    assert len(looks.slices()) <= 5_000 * (FETCH_COST + 1) // AT_ONCE + 2


@pytest.mark.promise("P15")
async def test_who_has_one_waits_for_no_more_than_a_turn_of_who_has_many() -> None:
    looks = Looks()
    mine = Woken("10.0.0.2", 999, 1)
    looks.woken.look_at([*(Woken("10.0.0.1", number, 500) for number in range(100)), mine])
    await looks.all()
    assert mine in looks.slices()[1]


async def test_a_record_that_wakes_all_connections_of_a_client_stops_nobody_for_long() -> None:
    """Of a whole agent: what is looked at between two turns of the loop."""
    async with World().agents("one") as (one,):
        await one.create_topic("t", 400)
        clients = [one.connect(address="10.0.0.1") for _ in range(20)]
        for client in clients:
            wanted = requests.fetch({("t", index): 0 for index in range(400)}, max_wait_ms=60_000)
            client.send(apis.FETCH, 12, wanted)
        await settle()
        fetching = one.node.fetching
        assert len(fetching.parked) == 20
        looked: list[int] = []
        check = fetching._check_partitions

        def counted(fetch, places):
            looked.append(len(places))
            return check(fetch, places)

        fetching._check_partitions = counted
        wake = fetching._wake
        at_once: list[int] = []

        def woken() -> None:
            looked.clear()
            wake()
            at_once.append(sum(looked))

        fetching._wake = woken
        batch = build_batch([Record(timestamp=1_700_000_000_000, key=None, value=b"value")])
        await one.produce("t", batch, partition=7)
        for client in clients:
            rows = requests.rows_of(await client.answer())
            assert bytes(rows["t", 7].records)
        assert at_once == [800]
