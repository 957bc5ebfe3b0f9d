"""ListOffsets and OffsetForLeaderEpoch: never behind what another agent says (P8)."""

import asyncio

import pytest

from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.records import Record, build_batch
from tests.broker.fetch import jobs_by_hand
from tests.kit.agents import NOW_MS
from tests.kit.client import caught_up
from tests.storage.lies import saying

GZIP = 1


def at(timestamp: int, *, topic: str = "logs", partition: int = 0, epoch: int = -1, isolation=0):
    wanted = ListOffsetsPartition(
        partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch
    )
    return ListOffsetsRequest(
        isolation_level=isolation, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])]
    )


def stamped(*timestamps: int, codec: int = 0) -> bytes:
    """A batch whose records have these timestamps, in ms after NOW_MS."""
    rows = [Record(timestamp=NOW_MS + each, value=b"v") for each in timestamps]
    return build_batch(rows, codec=codec)


async def place(agent, request, version: int = 11) -> tuple[int, int]:
    """Offset and timestamp (after NOW_MS) that are answered."""
    answer = await agent.call(apis.LIST_OFFSETS, request, version=version)
    (row,) = answer.topics[0].partitions
    assert row.error_code == 0
    return row.offset, row.timestamp - NOW_MS if row.timestamp >= 0 else -1


async def code(agent, request, version: int = 11) -> int:
    answer = await agent.call(apis.LIST_OFFSETS, request, version=version)
    (row,) = answer.topics[0].partitions
    assert (row.offset, row.timestamp) == (-1, -1)
    return row.error_code


async def filled(agent) -> None:
    await agent.create_topic("logs")
    await agent.produce("logs", stamped(0, 10, 20))
    await agent.produce("logs", stamped(50, 40, 60, codec=GZIP))
    await agent.produce("logs", stamped(30, 70))


@pytest.mark.parametrize("version", range(1, 12))
@pytest.mark.parametrize("isolation", [0, 1])
async def test_the_ends_are_told_in_every_version(version, isolation, world):
    async with world.agents("one") as (one,):
        await filled(one)
        assert await place(one, at(-1, isolation=isolation), version) == (8, -1)
        assert await place(one, at(-2, isolation=isolation), version) == (0, -1)


@pytest.mark.parametrize(
    ("timestamp", "found"),
    [
        (-1_000, (0, 0)),
        (0, (0, 0)),
        (1, (1, 10)),
        (20, (2, 20)),
        (21, (3, 50)),
        (45, (3, 50)),
        (51, (5, 60)),
        (61, (7, 70)),
        (70, (7, 70)),
        (71, (-1, -1)),
    ],
)
async def test_a_time_finds_the_first_record_at_or_after_it(timestamp, found, world):
    async with world.agents("one") as (one,):
        await filled(one)
        assert await place(one, at(NOW_MS + timestamp)) == found


async def test_an_agent_that_did_not_write_the_records_reads_them_to_find_a_time(world):
    async with world.agents("one", "two") as (one, two):
        await filled(one)
        assert await place(two, at(NOW_MS + 45)) == (3, 50)
        assert world.store.reads


async def test_the_newest_timestamp_is_found_with_its_offset(world):
    async with world.agents("one") as (one,):
        await filled(one)
        assert await place(one, at(-3)) == (7, 70)
        await one.produce("logs", stamped(5))
        assert await place(one, at(-3)) == (7, 70)


async def test_records_stamped_by_the_agent_are_found_by_that_time(world):
    async with world.agents("one") as (one,):
        await one.create_topic("logs", message_timestamp_type="LogAppendTime")
        await asyncio.sleep(100)
        await one.produce("logs", stamped(0, 1, 2))
        offset, timestamp = await place(one, at(NOW_MS + 50_000))
        assert offset == 0
        assert timestamp >= 100_000


@pytest.mark.parametrize("timestamp", [-3, -5, -6, NOW_MS])
async def test_nothing_is_found_in_an_empty_partition(timestamp, world):
    async with world.with_topic() as (one,):
        assert await place(one, at(timestamp)) == (-1, -1)


async def test_the_local_log_begins_where_the_log_begins(world):
    async with world.agents("one") as (one,):
        await filled(one)
        assert await place(one, at(-4)) == (0, -1)


@pytest.mark.parametrize(("timestamp", "since"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11), (-7, 12)])
async def test_a_special_timestamp_is_refused_before_its_version(timestamp, since, world):
    async with world.agents("one") as (one,):
        await filled(one)
        assert await code(one, at(timestamp), since - 1) == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (at(-1, topic="nothing"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (at(-1, partition=5), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (at(-1, partition=-1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (at(-1, epoch=1), ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
async def test_what_cannot_be_answered_is_refused_per_partition(request_, expected, world):
    async with world.agents("one") as (one,):
        await filled(one)
        assert await code(one, request_) == expected


async def test_a_partition_named_twice_is_refused(world):
    async with world.with_topic(partitions=2) as (one,):
        wanted = [ListOffsetsPartition(partition_index=i, timestamp=-1) for i in (0, 1, 0)]
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="logs", partitions=wanted)])
        answer = await one.call(apis.LIST_OFFSETS, request)
        rows = [(row.partition_index, row.error_code) for row in answer.topics[0].partitions]
        assert rows == [
            (0, ErrorCode.INVALID_REQUEST),
            (1, 0),
            (0, ErrorCode.INVALID_REQUEST),
        ]


@pytest.mark.promise("P8")
@pytest.mark.parametrize("timestamp", [-1, -2, -3, NOW_MS])
async def test_a_lagging_agent_waits_for_what_another_agent_has_told(timestamp, world):
    """P8."""
    async with world.with_topic("one", "lagging") as (one, lagging):
        lagging.lag()
        await one.produce("logs", stamped(0, 10))
        told = await place(one, at(timestamp))
        assert await caught_up(lagging, place(lagging, at(timestamp))) == told


async def test_a_store_that_is_away_is_an_error_not_an_offset(world):
    """P7."""
    async with world.agents("one", "two") as (one, two):
        await filled(one)
        world.store.down = True
        assert await code(two, at(NOW_MS + 45)) == ErrorCode.KAFKA_STORAGE_ERROR
        assert await place(two, at(-1)) == (8, -1)


async def test_an_object_that_is_gone_is_looked_for_again_behind_a_barrier(world):
    async with world.agents("one", "two") as (one, two):
        await filled(one)
        await place(two, at(-1))
        world.store.lose(*world.store.puts)
        before = two.log_client.stats.barriers
        assert await code(two, at(NOW_MS + 45)) == ErrorCode.KAFKA_STORAGE_ERROR
        assert two.log_client.stats.barriers == before + 2


def epoch_of(partition: int = 0, *, epoch: int = 0, current: int = -1, topic: str = "logs"):
    wanted = OffsetForLeaderPartition(
        partition=partition, leader_epoch=epoch, current_leader_epoch=current
    )
    return OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])]
    )


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (epoch_of(), (0, 0, 8)),
        (epoch_of(current=0), (0, 0, 8)),
        (epoch_of(epoch=3), (0, -1, -1)),
        (epoch_of(current=1), (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)),
        (epoch_of(7), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)),
        (epoch_of(topic="nothing"), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)),
    ],
)
async def test_the_only_epoch_ends_at_the_end_offset(version, request_, expected, world):
    async with world.agents("one") as (one,):
        await filled(one)
        answer = await one.call(apis.OFFSET_FOR_LEADER_EPOCH, request_, version=version)
        (row,) = answer.topics[0].partitions
        assert (row.error_code, row.leader_epoch, row.end_offset) == expected


async def test_a_lagging_agent_does_not_report_a_truncation_that_never_was(world):
    """P8: an end offset below a consumer's position would make it jump back."""
    async with world.with_topic("one", "lagging") as (one, lagging):
        lagging.lag()
        await one.produce("logs", stamped(0, 10))
        asked = lagging.call(apis.OFFSET_FOR_LEADER_EPOCH, epoch_of())
        answer = await caught_up(lagging, asked)
        (row,) = answer.topics[0].partitions
        assert row.end_offset == 2


async def layered(agent) -> None:
    """As `filled`, in a segment without the second batch; that and a chunk in a page, and another
    chunk behind it."""
    await filled(agent)
    await jobs_by_hand.claim(agent)
    row = agent.row("logs")
    await jobs_by_hand.merge(agent, row, keep=lambda header: header.base_offset != 3)
    for timestamp in (80, 90):
        await agent.produce("logs", stamped(timestamp))
    await jobs_by_hand.spill(agent, row, limit=2)


@pytest.mark.parametrize(
    ("timestamp", "found"),
    [
        (0, (0, 0)),
        (20, (2, 20)),
        (21, (6, 30)),
        (31, (7, 70)),
        (71, (8, 80)),
        (81, (9, 90)),
        (91, (-1, -1)),
    ],
)
async def test_times_are_found_through_pages_and_segments_over_holes(timestamp, found, world):
    async with world.agents("one", "two") as (one, two):
        await layered(one)
        for agent in (one, two):
            assert await place(agent, at(NOW_MS + timestamp)) == found


async def test_the_newest_timestamp_is_found_in_a_page(world):
    async with world.agents("one", "two") as (one, two):
        await layered(one)
        await jobs_by_hand.spill(one, one.row("logs"))
        await one.produce("logs", stamped(5))
        assert await place(two, at(-3)) == (9, 90)


async def test_what_was_deleted_is_not_found_by_its_time(world):
    async with world.agents("one", "two") as (one, two):
        await layered(one)
        await jobs_by_hand.trim(one, one.row("logs"), 7)
        assert await place(two, at(-2)) == (7, -1)
        assert await place(two, at(NOW_MS)) == (7, 70)
        await jobs_by_hand.trim(one, one.row("logs"), 8)
        assert await place(two, at(NOW_MS)) == (8, 80)


async def falling(agent) -> None:
    """0-2: 95, 50, 20; 3: 60; 4-5: 30, 60; 6: 10. As written, one row each."""
    await agent.create_topic("logs")
    for row in ((95, 50, 20), (60,), (30, 60), (10,)):
        await agent.produce("logs", stamped(*row))
    await jobs_by_hand.claim(agent)


@pytest.mark.parametrize("isolation", [0, 1])
@pytest.mark.parametrize("layer", ["chunks", "segment", "page", "page of two", "segment in a page"])
async def test_the_newest_timestamp_is_of_what_is_left(layer, isolation, world):
    """Also when it is deleted in part: a row, or a page, says what it had when it was whole."""
    async with world.agents("one", "two") as (one, two):
        await falling(one)
        row = one.row("logs")
        if layer.startswith("segment"):
            await jobs_by_hand.merge(one, row)
        if "page" in layer:
            await jobs_by_hand.spill(one, row, limit=2 if layer == "page of two" else 1000)
        expected = [(0, 95), (3, 60), (3, 60), (3, 60), (5, 60), (5, 60), (6, 10), (-1, -1)]
        for log_start, found in enumerate(expected):
            if log_start:
                await jobs_by_hand.trim(one, row, log_start)
            for agent in (one, two):
                assert await place(agent, at(-3, isolation=isolation)) == found


async def test_the_newest_of_a_row_is_found_behind_its_deleted_part(world):
    """Neither its first record that is new enough nor another row's: 70, 80 and 40 are left."""
    async with world.with_topic() as (one,):
        await one.produce("logs", stamped(90, 70, 80))
        await one.produce("logs", stamped(40))
        await jobs_by_hand.claim(one)
        await jobs_by_hand.trim(one, one.row("logs"), 1)
        assert await place(one, at(-3)) == (2, 80)


def lying(timestamp: int, said: int) -> bytes:
    """A compressed batch whose header says a later time than its record has."""
    return saying(stamped(timestamp, codec=GZIP), NOW_MS + said)


async def test_a_row_is_not_believed_to_have_the_newest_record(world):
    """The producer's word counts for compressed batches, until somebody looks."""
    async with world.with_topic("one", "two") as (one, two):
        for batch in (lying(10, 80), stamped(40, 70), lying(70, 90), stamped(5)):
            await one.produce("logs", batch)
        for agent in (one, two):
            assert await place(agent, at(-3)) == (2, 70)
        await jobs_by_hand.claim(one)
        await jobs_by_hand.spill(one, one.row("logs"), limit=3)
        assert await place(two, at(-3)) == (2, 70)
        await jobs_by_hand.trim(one, one.row("logs"), 3)
        assert await place(two, at(-3)) == (3, 70)


async def test_of_records_without_timestamps_none_is_the_newest(world):
    async with world.with_topic() as (one,):
        await one.produce("logs", build_batch([Record(timestamp=-1, value=b"v")] * 3))
        assert await place(one, at(-3)) == (-1, -1)
        await one.produce("logs", stamped(3))
        assert await place(one, at(-3)) == (3, 3)
        await jobs_by_hand.claim(one)
        await jobs_by_hand.trim(one, one.row("logs"), 2)
        assert await place(one, at(-3)) == (3, 3)


async def test_only_one_row_is_read_for_the_newest_when_nothing_is_deleted(world):
    async with world.agents("one", "two") as (one, two):
        await falling(one)
        assert await place(two, at(-3)) == (0, 95)
        assert len(world.store.reads) == 1


async def test_the_newest_of_many_rows_is_found_behind_a_deleted_one_with_few_reads(world):
    """Rows later than the newest by offset, or older than it, are left alone."""
    async with world.with_topic("one", "two") as (one, two):
        await one.produce("logs", stamped(90, 1))
        for timestamp in range(2, 30):
            await one.produce("logs", stamped(timestamp))
        await jobs_by_hand.claim(one)
        await jobs_by_hand.trim(one, one.row("logs"), 1)
        assert await place(two, at(-3)) == (29, 29)
        assert len(set(world.store.reads)) == 2


async def test_rows_that_move_while_the_newest_is_looked_for_are_found_where_they_are(world):
    async with world.agents("one", "two") as (one, two):
        await falling(one)
        row = one.row("logs")
        await jobs_by_hand.trim(one, row, 1)
        (first, second, *_) = row.rows_from(0, 9)
        await two.log_client.barrier()
        peer = two.connect()
        peer.send(apis.LIST_OFFSETS, 11, at(-3))
        while first.object_id.key not in world.store.reads:
            await asyncio.sleep(0)
        assert second.object_id.key not in world.store.reads
        await jobs_by_hand.delete(one, *await jobs_by_hand.merge(one, row))
        (found,) = (await peer.answer()).topics[0].partitions
        assert (found.error_code, found.offset) == (0, 3)


async def test_rows_that_move_while_a_time_is_looked_for_are_found_where_they_are(world):
    async with world.agents("one", "two") as (one, two):
        await filled(one)
        await jobs_by_hand.claim(one)
        row = one.row("logs")
        index = await jobs_by_hand.spill(one, row)
        await two.log_client.barrier()
        peer = two.connect()
        peer.send(apis.LIST_OFFSETS, 11, at(NOW_MS + 45))
        while index.key not in world.store.reads:
            await asyncio.sleep(0)
        body = await world.store.inner.get_range(index.key, 8, row.row(0).length)
        await jobs_by_hand.recall(one, row, bytes(body))
        await jobs_by_hand.delete(one, index, *await jobs_by_hand.merge(one, row))
        (found,) = (await peer.answer()).topics[0].partitions
        assert (found.error_code, found.offset) == (0, 3)


async def test_a_page_that_is_gone_is_an_error_and_not_an_offset(world):
    """P7."""
    async with world.agents("one", "two") as (one, two):
        await filled(one)
        await jobs_by_hand.claim(one)
        await jobs_by_hand.delete(one, await jobs_by_hand.spill(one, one.row("logs")))
        assert await code(two, at(NOW_MS + 45)) == ErrorCode.KAFKA_STORAGE_ERROR
