"""Agents whose rows jobs move while clients fetch: pages, objects that go, logs that begin later."""

import asyncio
import contextlib

import pytest

from coordinator.commands.job_commands import ClaimJobs, Trim, TrimLogs
from protocol.errors import ErrorCode
from protocol.records import read_header
from tests.broker.agents import World
from tests.broker.fetch import jobs_by_hand
from tests.broker.produce.transactional import Client
from tests.kit.batches import batch, records_of
from tests.kit.client import caught_up
from tests.kit.faults import held

COMMITTED = 1


def _records(data: bytes) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for record in records_of(data)]


@contextlib.asynccontextmanager
async def _filled(world: World, *names: str, count: int = 6, partitions: int = 1):
    """A partition with records 0, 1, ... in a chunk each, and agents, of whom the first has jobs."""
    async with world.with_topic(*names, partitions=partitions) as everybody:
        for number in range(count):
            await everybody[0].produce("t", batch(b"%d" % number)).wait()
        await jobs_by_hand.claim(everybody[0])
        for agent in everybody:
            await agent.log_client.barrier()
        yield [everybody[0].row("t"), *everybody]


def _numbered(first: int, end: int) -> list[tuple[int, bytes]]:
    return [(number, b"%d" % number) for number in range(first, end)]


async def test_records_of_a_page_are_served_and_the_page_is_read_once(world: World) -> None:
    async with _filled(world, "a", "b") as (row, a, b):
        index = await jobs_by_hand.spill(a, row, limit=4)
        await b.log_client.barrier()
        for first in (2, 3):
            answer = await b.fetch("t", first).partition()
            assert _records(answer.records) == _numbered(first, 6)
        assert world.store.reads.count(index.key) == 1


async def test_pages_and_spans_of_many_partitions_come_in_two_rounds(world: World) -> None:
    async with world.with_topic("a", "b", partitions=3) as (a, b):
        for partition in range(3):
            await a.produce("t", batch(b"x"), partition=partition).wait()
        await jobs_by_hand.claim(a)
        for partition in range(2):
            await jobs_by_hand.spill(a, a.row("t", partition))
        await b.log_client.barrier()
        begun = world.loop.time()
        answer = await b.fetch("t", 0, 0, 0).wait()
        assert [len(_records(row.records)) for row in answer.responses[0].partitions] == [1] * 3
        assert b.fetching.stats.loads == 1
        assert world.loop.time() - begun < 0.05


async def test_an_agent_that_lags_behind_a_merge_looks_again_behind_a_barrier(world: World) -> None:
    async with _filled(world, "a", "b") as (row, a, b):
        await b.log_client.barrier()
        b.lag()
        await jobs_by_hand.delete(a, *await jobs_by_hand.merge(a, row))
        answer = await caught_up(b, b.fetch("t", 3).partition())
        assert _records(answer.records) == _numbered(3, 6)
        assert b.fetching.stats.storage_errors == 0


async def test_rows_that_move_twice_while_they_are_read_are_found_all_the_same(
    world: World,
) -> None:
    async with _filled(world, "a", "b") as (row, a, b):
        index = await jobs_by_hand.spill(a, row, limit=4)
        await b.log_client.barrier()
        b.lag()
        # The index object goes, and what takes its place goes as well while it is read.
        body = await world.store.inner.get_range(index.key, 8, row.row(0).length)
        await jobs_by_hand.recall(a, row, bytes(body))
        segment = await jobs_by_hand.merge(a, row)
        await jobs_by_hand.delete(a, index, *segment)
        fetched = b.fetch("t", 1)
        await asyncio.sleep(1)
        b.catch_up()
        answer = await fetched.partition()
        assert _records(answer.records) == _numbered(1, 6)


async def test_a_page_that_is_gone_for_good_is_an_error_of_its_partition_alone(
    world: World,
) -> None:
    async with _filled(world, "a", "b", partitions=2) as (row, a, b):
        await a.produce("t", batch(b"other"), partition=1).wait()
        index = await jobs_by_hand.spill(a, row, limit=4)
        await jobs_by_hand.delete(a, index)
        await b.log_client.barrier()
        answer = await b.fetch("t", 0, 0).wait()
        lost, other = answer.responses[0].partitions
        assert (lost.error_code, lost.records) == (ErrorCode.KAFKA_STORAGE_ERROR, b"")
        assert _records(other.records) == [(0, b"other")]
        assert b.fetching.stats.objects_gone == 1
        behind = await b.fetch("t", 4).partition()
        assert _records(behind.records) == _numbered(4, 6)


async def test_a_page_with_other_bytes_than_the_log_says_is_never_believed(world: World) -> None:
    async with _filled(world, "a", "b") as (row, a, b):
        index = await jobs_by_hand.spill(a, row, limit=4)
        body = await world.store.inner.get(index.key)
        await jobs_by_hand.delete(a, index)
        await world.store.inner.put_new(index.key, [bytes(body)[:-1] + b"\xff"])
        await b.log_client.barrier()
        assert await b.fetch("t", 0).code() == ErrorCode.KAFKA_STORAGE_ERROR


async def test_who_cannot_ask_the_log_where_records_went_sends_clients_to_others(
    world: World,
) -> None:
    async with _filled(world, "a", "b") as (row, a, b):
        await b.log_client.barrier()
        b.lag()
        b.log.down = True
        await jobs_by_hand.delete(a, *await jobs_by_hand.merge(a, row))
        assert await b.fetch("t", 0).code() == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert b.fetching.stats.objects_gone == 0
        b.catch_up()


async def test_a_log_that_begins_later_while_records_are_read_gives_none_of_them(
    world: World,
) -> None:
    async with _filled(world, "a", "b") as (row, a, b):
        await b.log_client.barrier()
        fetched = b.fetch("t", 1)
        await jobs_by_hand.trim(a, row, 3)
        await b.log_client.barrier()
        assert not fetched.there
        answer = await fetched.partition()
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert not answer.records
        again = await b.fetch("t", 3).partition()
        assert (again.log_start_offset, _records(again.records)) == (3, _numbered(3, 6))


@pytest.mark.parametrize(
    "cut", [jobs_by_hand.trim, jobs_by_hand.expire, jobs_by_hand.expire_exported]
)
async def test_a_poll_whose_offset_is_deleted_is_told_at_once_and_its_neighbour_waits_on(
    cut, world: World
) -> None:
    async with _filled(world, "a") as (row, a):
        for isolation in (0, COMMITTED):
            for _ in range(2):
                await a.produce("t", batch(b"small")).wait()
            polls = [
                a.fetch("t", offset, max_wait_ms=60_000, min_bytes=10_000, isolation=isolation)
                for offset in (row.end_offset - 2, row.end_offset)
            ]
            await asyncio.sleep(1)
            assert not any(poll.there for poll in polls)
            await cut(a, row, row.end_offset - 1)
            await asyncio.sleep(0.1)
            assert [poll.there for poll in polls] == [True, False]
            assert await polls[0].code() == ErrorCode.OFFSET_OUT_OF_RANGE
            await a.produce("t", batch(bytes(10_000))).wait()
            assert await polls[1].code() == 0
        assert len(a.fetching.parked) == 0


async def test_an_incremental_answer_tells_that_the_log_begins_later(world: World) -> None:
    async with _filled(world, "a") as (row, a):
        full = await a.fetch("t", row.end_offset, session_epoch=0).wait()
        session = {"session_id": full.session_id}
        quiet = await a.fetch("t", session_epoch=1, **session).wait()
        assert not quiet.responses
        await jobs_by_hand.trim(a, row, 3)
        told = await a.fetch("t", session_epoch=2, **session).wait()
        (answer,) = told.responses[0].partitions
        assert (answer.error_code, answer.log_start_offset, answer.records) == (0, 3, b"")


async def test_a_consumer_in_a_hole_at_the_end_of_what_is_left_gets_past_it(world: World) -> None:
    async with _filled(world, "a", "b") as (row, a, b):
        await jobs_by_hand.merge(a, row, keep=lambda header: header.base_offset < 2)
        await b.log_client.barrier()
        for min_bytes in (1, 100_000):
            begun = world.loop.time()
            answer = await b.fetch("t", 3, max_wait_ms=500, min_bytes=min_bytes).partition()
            assert world.loop.time() - begun < 1
            header = read_header(answer.records)
            assert (header.record_count, header.last_offset + 1) == (0, row.end_offset)
        whole = await b.fetch("t", 0).partition()
        assert _records(whole.records) == _numbered(0, 2)


async def test_a_poll_that_counted_bytes_which_are_gone_is_answered_and_does_not_spin(
    world: World,
) -> None:
    async with _filled(world, "a", count=20) as (row, a):
        there = row.bytes_between(0, 20, 1 << 20)
        poll = a.fetch("t", 0, max_wait_ms=60_000, min_bytes=there + 1)
        await poll.waits()
        await jobs_by_hand.merge(a, row, keep=lambda header: header.base_offset < 2)
        await a.produce("t", batch(b"20")).wait()
        answer = await poll.partition()
        assert _records(answer.records) == [*_numbered(0, 2), (20, b"20")]
        assert a.fetching.stats.parked == 1


async def test_records_that_are_deleted_under_an_open_transaction_hold_nobody_back(
    world: World,
) -> None:
    async with _filled(world, "a") as (row, a):
        client = Client()
        await client.init(a)
        await client.add(a, "t", 0)
        await client.produce(a, client.batch(0, b"6", b"7")).wait()
        await client.produce(a, client.batch(2, b"8")).wait()
        await jobs_by_hand.trim(a, row, 8)
        assert row.last_stable == 8
        poll = a.fetch("t", 8, max_wait_ms=60_000, isolation=COMMITTED)
        await poll.waits()
        await client.end(a)
        answer = await poll.partition()
        assert (answer.log_start_offset, _records(answer.records)) == (8, [(8, b"8")])


async def test_a_chunk_whose_records_its_entry_deletes_is_acknowledged(world: World) -> None:
    async with _filled(world, "a") as (row, a):
        entries: list[list[str]] = []
        a.log_client.on_applied(
            lambda applied: entries.append([type(one).__name__ for one in applied.outcomes])
        )
        # While one append is under way, what comes waits for the next.
        gate = asyncio.Event()
        a.log.before["append"] = held(gate)
        first = a.log_client.propose(ClaimJobs(()))
        await asyncio.sleep(0.1)
        answer = a.produce("t", batch(b"6"))
        await asyncio.sleep(0.1)
        trimmed = a.log_client.propose(TrimLogs((Trim(row.topic_id, 0, -1),)))
        gate.set()
        assert (await answer.partition()).base_offset == 6
        await asyncio.gather(first, trimmed)
        assert ["ChunkCommitted", "LogsTrimmed"] in entries
        assert (row.log_start, row.row_count) == (7, 0)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans of a segment are read 300 bytes at a time, about three batches."""
    monkeypatch.setattr("broker.fetch.answers.LONG_BYTES", 1)
    monkeypatch.setattr("storage.span_parts.PART_BYTES", 300)


@pytest.mark.usefixtures("small_parts")
async def test_a_long_span_is_read_part_by_part_as_far_as_the_client_goes(world: World) -> None:
    async with _filled(world, "a", "b", count=30) as (row, a, b):
        await jobs_by_hand.merge(a, row)
        await b.log_client.barrier()
        offset = 0
        while offset < 12:
            answer = await b.fetch("t", offset, partition_max_bytes=300).partition()
            got = _records(answer.records)
            assert got == _numbered(offset, offset + len(got))
            offset += len(got)
        assert b.node.reader.stats.read_bytes < row.data_bytes


@pytest.mark.promise("P7")
@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("first", [0, 7])
async def test_all_of_a_long_span_is_read_from_wherever_a_client_begins(
    first: int, world: World
) -> None:
    async with _filled(world, "a", "b", count=30) as (row, a, b):
        await jobs_by_hand.merge(a, row, keep=lambda header: header.base_offset % 5 != 3)
        await b.log_client.barrier()
        got: list[tuple[int, bytes | None]] = []
        while (offset := got[-1][0] + 1 if got else first) < 30:
            answer = await b.fetch("t", offset, partition_max_bytes=300).partition()
            if not answer.records:
                break
            got += _records(answer.records)
        left = [one for one in _numbered(first, 30) if one[0] % 5 != 3]
        assert [one for one in got if one[1]] == left


@pytest.mark.promise("P7")
@pytest.mark.usefixtures("small_parts")
async def test_damage_in_a_long_span_is_an_error_where_it_lies_and_not_before(world: World) -> None:
    async with _filled(world, "a", "b", count=30) as (row, a, b):
        await jobs_by_hand.merge(a, row)
        await b.log_client.barrier()
        span = row.row(0)
        key = span.object_id.key
        data = bytearray(await world.store.inner.get(key))
        data[span.start + span.length // 2] ^= 1
        await world.store.inner.delete([key])
        await world.store.inner.put_new(key, [data])
        offset, error = 0, ErrorCode.NONE
        while not error:
            answer = await b.fetch("t", offset, partition_max_bytes=300).partition()
            error = answer.error_code
            got = _records(answer.records) if answer.records else []
            assert got == _numbered(offset, offset + len(got))
            offset += len(got)
        assert error == ErrorCode.KAFKA_STORAGE_ERROR
        assert 6 < offset < 15
