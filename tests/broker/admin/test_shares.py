"""What one client may hold of the admin listener: pins, and places for streams of the log."""

import asyncio

import pytest

from broker.admin.log_stream import while_wanted, within
from broker.admin.shares import PINS_OF_ADDRESS, PINS_RESERVED, PinShares, Places
from coordinator.commands.entries import Pin
from coordinator.tables.pins import PINS_MAX
from tests.broker.agents import serving

MOST = 1000


def filled(shares: PinShares, count: int, address: str) -> set[str]:
    names = {f"{address}-{index}" for index in range(count)}
    for name in names:
        shares.note(name, address)
    return names


def test_an_address_that_holds_many_pins_gets_no_more_when_they_are_nearly_used_up() -> None:
    shares = PinShares()
    living = filled(shares, MOST - PINS_RESERVED - 1, "hoarder")
    assert shares.objection("one", "hoarder", living, most=MOST) is None
    living.add("one")
    assert shares.objection("two", "hoarder", living, most=MOST) is not None
    assert shares.objection("one", "hoarder", living, most=MOST) is None, "a renewal"
    for index in range(PINS_OF_ADDRESS):
        assert shares.objection(f"other-{index}", "other", living, most=MOST) is None
        living.add(f"other-{index}")
        shares.note(f"other-{index}", "other")
    assert shares.objection("other", "other", living, most=MOST) is not None


def test_pins_that_expired_count_no_more() -> None:
    shares = PinShares()
    filled(shares, 800, "hoarder")
    living = {f"somebody-{index}" for index in range(800)}
    assert shares.objection("one", "hoarder", living, most=MOST) is None


def test_the_last_place_is_for_an_address_that_has_none() -> None:
    places = Places(3)
    assert [places.take("a") for _ in range(3)] == [True, True, False]
    assert [places.take("b"), places.take("c")] == [True, False]
    places.give("a")
    assert [places.take("b"), places.take("c")] == [False, True]


async def test_a_reader_that_takes_nothing_is_given_up() -> None:
    async def never(_data: bytes) -> None:
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await within(never, 30.0)(b"line")


async def test_what_is_written_for_somebody_who_has_gone_ends() -> None:
    ended = asyncio.Event()

    async def follow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    answers = iter([True, True, False])
    await while_wanted(follow(), lambda: next(answers))
    assert ended.is_set()


async def test_what_goes_wrong_with_the_writing_is_told_as_it_is() -> None:
    async def slow() -> None:
        await asyncio.sleep(3)
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await while_wanted(slow(), lambda: True)


@pytest.mark.real_loop
async def test_the_store_is_listed_for_one_at_a_time() -> None:
    async with serving() as running:
        async with running.agent._view.listing:
            assert (await running.http("GET", "/objects/unnamed"))[0] == 503
        assert (await running.http("GET", "/objects/unnamed"))[0] == 200


@pytest.mark.real_loop
async def test_a_pin_over_the_share_is_refused_for_now() -> None:
    async with serving() as running:
        node = running.agent.node
        filled(running.agent._view.pins, 10, "127.0.0.1")
        rows = [f"127.0.0.1-{index}" for index in range(10)]
        rows += [f"other-{index}" for index in range(PINS_MAX - PINS_RESERVED)]
        futures = [node.log_client.propose(Pin(name, 60_000)) for name in rows]
        await asyncio.gather(*futures)
        pin = {"name": "more", "lifetime_ms": 60_000}
        status, body = await running.http("POST", "/export/pin", json=pin)
        assert (status, "wait until they expire" in body["error"]) == (429, True)
        pin = {"name": rows[0], "lifetime_ms": 60_000}
        assert (await running.http("POST", "/export/pin", json=pin))[0] == 200
