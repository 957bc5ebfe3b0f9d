"""ListOffsets answers by the records, whatever their header says of the newest; as Kafka, whose
broker computes that (`tests/clients/test_said_times_kafka.py` has its answers)."""

import pytest

from protocol import apis
from protocol.records import Record, build_batch, read_header
from tests.broker.fetch import jobs_by_hand
from tests.broker.handlers.test_offsets import GZIP, at, filled, place, stamped
from tests.kit.agents import NOW_MS
from tests.kit.batches import fetch_request
from tests.storage.lies import FAR_MS, saying

NONE = 0
LYING = (30, 50, 40)
"""The records between others of 0, 10 and 45, 60; offsets 2 to 4."""
SAID = {
    "none": -1,
    "zero": 0,
    "below the base": NOW_MS + 29,
    "too much": NOW_MS + 70,
    "far future": NOW_MS + FAR_MS,
}
BY_RECORDS = {
    -1: (7, -1),
    -2: (0, -1),
    -3: (6, 60),
    -4: (0, -1),
    -5: (-1, -1),
    -6: (-1, -1),
    NOW_MS: (0, 0),
    NOW_MS + 11: (2, 30),
    NOW_MS + 31: (3, 50),
    NOW_MS + 50: (3, 50),
    NOW_MS + 51: (6, 60),
    NOW_MS + 61: (-1, -1),
    NOW_MS + 71: (-1, -1),
}

said_times = pytest.mark.parametrize("said", SAID.values(), ids=SAID)
codecs = pytest.mark.parametrize("codec", [NONE, GZIP])
layers = pytest.mark.parametrize("layer", ["chunks", "segment", "page", "segment in a page"])


async def into(layer: str, agent) -> None:
    """All records of the topic."""
    await jobs_by_hand.claim(agent)
    if layer.startswith("segment"):
        await jobs_by_hand.merge(agent, agent.row("logs"))
    if "page" in layer:
        await jobs_by_hand.spill(agent, agent.row("logs"))


async def places(agent, wanted) -> dict[int, tuple[int, int]]:
    return {each: await place(agent, at(each)) for each in wanted}


@pytest.mark.promise("P14")
@layers
@codecs
@said_times
async def test_times_are_those_of_the_records_whatever_the_header_says(said, codec, layer, world):
    async with world.with_topic("one", "two") as (one, two):
        await one.produce("logs", stamped(0, 10))
        await one.produce("logs", saying(stamped(*LYING, codec=codec), said))
        await one.produce("logs", stamped(45, 60))
        await into(layer, one)
        for agent in (one, two):
            assert await places(agent, BY_RECORDS) == BY_RECORDS


@layers
@codecs
@said_times
async def test_the_newest_record_is_found_in_a_batch_that_says_something_else(
    said, codec, layer, world
):
    async with world.with_topic("one", "two") as (one, two):
        await one.produce("logs", stamped(0, 10))
        await one.produce("logs", saying(stamped(*LYING, codec=codec), said))
        await one.produce("logs", stamped(15))
        await into(layer, one)
        expected = {-3: (3, 50), NOW_MS + 50: (3, 50), NOW_MS + 51: (-1, -1)}
        for agent in (one, two):
            assert await places(agent, expected) == expected


@codecs
@said_times
@pytest.mark.parametrize("age_ms", [0, 10**9], ids=["young", "old"])
async def test_a_record_is_found_by_its_own_time(age_ms, said, codec, world):
    async with world.with_topic() as (one,):
        batch = saying(stamped(-age_ms, codec=codec), said if said < NOW_MS else said - age_ms)
        await one.produce("logs", batch)
        time = NOW_MS - age_ms
        expected = {-3: (0, -age_ms), time: (0, -age_ms), time + 1: (-1, -1)}
        assert await places(one, expected) == expected


async def test_records_of_a_batch_whose_base_says_no_time_have_theirs_when_they_are_merged(world):
    """The base is the first record's: until then nobody knows of the second."""
    async with world.with_topic() as (one,):
        rows = [Record(timestamp=-1, value=b"v"), Record(timestamp=NOW_MS + 5, value=b"w")]
        await one.produce("logs", saying(build_batch(rows), -1))
        await into("segment", one)
        expected = {-3: (1, 5), NOW_MS + 5: (1, 5), NOW_MS + 6: (-1, -1)}
        assert await places(one, expected) == expected


async def test_a_header_that_says_too_little_is_believed_until_its_batch_is_merged_if_it_can_be_so(
    world,
):
    """Else every time that is newer than all records would have all chunks read."""
    async with world.with_topic() as (one,):
        await one.produce("logs", saying(stamped(*LYING), NOW_MS + 30))
        assert await place(one, at(NOW_MS + 31)) == (-1, -1)
        await into("segment", one)
        assert await place(one, at(NOW_MS + 31)) == (1, 50)


async def test_the_newest_record_is_found_when_its_own_row_says_too_little_but_is_looked_into(
    world,
):
    async with world.with_topic() as (one,):
        await one.produce("logs", saying(stamped(30, 40, 50), NOW_MS + 35))
        assert await place(one, at(-3)) == (2, 50)


@codecs
@said_times
async def test_what_consumers_get_of_a_merged_batch_says_the_newest_timestamp_of_its_records(
    said, codec, world
):
    async with world.with_topic() as (one,):
        true = stamped(*LYING, codec=codec)
        await one.produce("logs", saying(true, said))
        await into("segment", one)
        answer = await one.call(apis.FETCH, fetch_request("logs", 0), version=11)
        (row,) = answer.responses[0].partitions
        assert bytes(row.records)[17:] == true[17:]
        assert read_header(row.records).max_timestamp == NOW_MS + 50


async def test_only_what_contradicts_itself_is_looked_into_for_a_time_that_nothing_has(world):
    async with world.agents("one", "two") as (one, two):
        await filled(one)
        await one.produce("logs", saying(stamped(*LYING), -1))
        assert await place(two, at(NOW_MS + 71)) == (-1, -1)
        assert len(world.store.reads) == 1
