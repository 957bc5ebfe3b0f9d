"""The faults that other tests rely on happen."""

import asyncio
import contextlib
import functools

import pytest

from coordinator.log.memory import LocalMemoryLog, MemoryLog, MemoryLogCluster
from coordinator.log.metadata_log import LogRefusedError, LogUnavailableError
from storage.stores.memory import MemoryStore
from storage.stores.object_store import ObjectNotFoundError, StoreUnavailableError
from tests.kit.chances import Chances
from tests.kit.faults import FaultyLocalLog, FaultyLog, FaultyStore, Weather, late
from tests.kit.loop import current


async def test_a_late_put_lands_after_its_caller_gave_up_with_the_bytes_that_were_sent() -> None:
    store = FaultyStore(MemoryStore())
    store.before["put_new"] = late(20, 1)
    part = bytearray(b"sent")
    with pytest.raises(StoreUnavailableError):
        await store.put_new("a", [part])
    part[:] = b"else"
    await asyncio.sleep(19)
    with pytest.raises(ObjectNotFoundError):
        await store.get("a")
    await asyncio.sleep(2)
    assert bytes(await store.get("a")) == b"sent"


async def test_a_late_append_lands_in_the_log_or_is_refused_there() -> None:
    cluster = MemoryLogCluster()
    log = FaultyLog(MemoryLog(cluster))
    session = await log.open(await log.grant(60_000), b"open")
    log.before["append"] = late(20, 2)
    for n in (1, 3):
        with pytest.raises(LogUnavailableError):
            await log.append(session, n, b"late")
    await asyncio.sleep(21)
    assert [entry.n for entry in cluster.entries] == [0, 1]


async def test_late_appends_to_a_log_on_this_machine_take_effect_before_those_made_after_them() -> (
    None
):
    cluster, done = MemoryLogCluster(), list[int]()
    log = FaultyLocalLog(LocalMemoryLog(cluster))
    session = await log.open(await log.grant(60_000), b"open")
    log.before["append"] = late(20, 2)
    for n in (1, 2):
        with pytest.raises(LogUnavailableError):
            await log.append_after(functools.partial(done.append, n), session, n, b"late")
    assert done == [1]
    await log.append_after(functools.partial(done.append, 3), session, 2, b"late")
    assert done == [1, 2, 3]
    await asyncio.sleep(21)
    assert [entry.n for entry in cluster.entries] == [0, 1, 2]


async def test_in_some_weather_calls_that_change_something_come_late() -> None:
    weather, inner = Weather(late=0.5, late_s_max=10.0), MemoryStore()
    faulty, chances = FaultyStore(inner), Chances(7, current().time)
    weather.befall(faulty, chances, "store")
    given_up = []
    for number in range(20):
        try:
            await faulty.put_new(f"{number}", [b"x"])
        except StoreUnavailableError:
            given_up.append(f"{number}")
    assert 5 < len(given_up) < 15
    await asyncio.sleep(11)
    assert len(await inner.list_after("", "")) == 20
    assert chances.noted == {"late put_new": len(given_up)}


async def test_in_some_weather_a_call_takes_effect_long_before_its_answer_comes() -> None:
    weather, inner = Weather(slow_answer=1.0, delay_s_max=3.0), MemoryStore()
    faulty = FaultyStore(inner)
    weather.befall(faulty, Chances(7, current().time), "store")
    putting = asyncio.create_task(faulty.put_new("a", [b"x"]))
    await asyncio.sleep(0.01)
    assert bytes(await inner.get("a")) == b"x"
    assert not putting.done()
    await asyncio.wait_for(putting, 3.0)


async def test_in_some_weather_the_log_refuses_an_append_and_nothing_else() -> None:
    cluster, weather = MemoryLogCluster(), Weather(refused=1.0)
    log = FaultyLog(MemoryLog(cluster))
    weather.befall(log, Chances(7, current().time), "log")
    session = await log.open(await log.grant(60_000), b"open")
    with pytest.raises(LogRefusedError):
        await log.append(session, 1, b"refused")
    weather.clear()
    await log.append(session, 1, b"taken")
    assert [entry.payload for entry in cluster.entries] == [b"open", b"taken"]


async def test_in_some_weather_some_objects_are_taken_at_no_attempt_and_all_others_are() -> None:
    weather, inner = Weather(stuck=0.5), MemoryStore()
    faulty = FaultyStore(inner)
    weather.befall(faulty, Chances(7, current().time), "store")
    taken: list[set[str]] = []
    for _ in range(3):
        taken.append(set())
        for key in map(str, range(20)):
            with contextlib.suppress(StoreUnavailableError):
                await faulty.put_new(key, [b"x"])
                taken[-1].add(key)
    assert 5 < len(taken[0]) < 15
    assert taken[0] == taken[1] == taken[2]
    weather.clear()
    for key in map(str, range(20)):
        await faulty.put_new(key, [b"x"])
    assert len(await inner.list_after("", "")) == 20


async def test_a_store_can_go_away_when_something_is_looked_for_in_a_folder() -> None:
    weather, inner = Weather(away_from="snapshots/"), MemoryStore()
    await inner.put_new("snapshots/1", [b"x"])
    await inner.put_new("other", [b"y"])
    store = FaultyStore(inner)
    weather.befall(store, Chances(7, current().time), "store")
    assert bytes(await store.get("other")) == b"y"
    for key in ("snapshots/1", "other"):
        with pytest.raises(StoreUnavailableError):
            await store.get(key)
    weather.away = False
    assert bytes(await store.get("snapshots/1")) == b"x"
