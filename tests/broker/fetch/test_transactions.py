"""Transactions as fetches see them: what is given, what is named, and when a long poll wakes."""

import asyncio
import contextlib
from collections.abc import Sequence

import pytest

from coordinator.commands.entries import ChunkSpan, CommitChunk
from coordinator.commands.transaction_commands import EndTransaction
from protocol.errors import ErrorCode
from protocol.records import batch_positions, iterate, read_header
from storage.formats.spans import MARKER_BYTES, Item, ObjectId
from tests.broker.agents import World
from tests.broker.produce.transactional import Client, transacting
from tests.broker.produce.world import Agent
from tests.kit.batches import batch
from txn.transactions import OF_EPOCH

COMMITTED = 1


def given(records: bytes) -> list[int | str]:
    """Lengths of values; of markers, what they say."""
    found: list[int | str] = []
    starts, _ = batch_positions(records)
    for start in starts:
        (*_, last) = rows = list(iterate(records, start))
        if read_header(records, start).is_control:
            found.append("commit" if last.key == b"\0\0\0\1" else "abort")
        else:
            found += [len(row.value) for row in rows]
    return found


def aborted(answer) -> list[tuple[int, int]]:
    return [(one.producer_id, one.first_offset) for one in answer.aborted_transactions]


async def opened(agent: Agent, client: Client, *sizes: int, topic: str = "t") -> None:
    """The client has a transaction open, with batches of one record of these sizes."""
    await client.init(agent)
    await client.add(agent, topic, 0)
    for sequence, size in enumerate(sizes):
        sent = client.produce(agent, client.batch(sequence, bytes(size)), topic=topic)
        assert await sent.code() == 0


@contextlib.asynccontextmanager
async def in_transaction(world: World, *names: str, sizes: Sequence[int]):
    """A client that has a transaction open, as by `opened`, at the first of these agents; all of them."""
    async with world.with_topic(*names) as everybody:
        client = Client()
        await opened(everybody[0], client, *sizes)
        yield [client, *everybody]


@pytest.mark.promise("P7")
async def test_who_reads_committed_records_stops_at_the_first_open_transaction(
    world: World,
) -> None:
    async with world.with_topic("a", "b") as (a, b):
        await a.produce("t", batch(bytes(1))).wait()
        await opened(a, Client(), 2, 3)
        await a.produce("t", batch(bytes(4))).wait()
        await opened(a, Client("another"), 5)
        await b.log_client.barrier()
        for agent in (a, b):
            answer = await agent.fetch("t", 0, isolation=COMMITTED).partition()
            assert given(answer.records) == [1]
            assert (answer.high_watermark, answer.last_stable_offset) == (5, 1)
            assert aborted(answer) == []
            answer = await agent.fetch("t", 0).partition()
            assert given(answer.records) == [1, 2, 3, 4, 5]
            assert (answer.high_watermark, answer.last_stable_offset) == (5, 1)
            assert answer.aborted_transactions is None


async def test_the_bound_may_lie_within_what_was_written_together(world: World) -> None:
    async with transacting(world, "a", "b") as (client, a, b):
        together = [
            a.produce("t", batch(bytes(1))),
            a.produce("t", batch(bytes(2))),
            client.produce(a, client.batch(0, bytes(3))),
            a.produce("t", batch(bytes(4))),
        ]
        for answer in together:
            await answer.wait()
        assert a.row("t").row_count == 1
        await b.log_client.barrier()
        for agent in (a, b):
            answer = await agent.fetch("t", 0, isolation=COMMITTED).partition()
            assert given(answer.records) == [1, 2]


async def test_the_end_of_a_transaction_is_given_to_everybody_at_its_offset(world: World) -> None:
    async with in_transaction(world, "a", "b", sizes=[1]) as (client, a, b):
        await client.end(a)
        await b.log_client.barrier()
        for agent in (a, b):
            for isolation in (0, 1):
                answer = await agent.fetch("t", 0, isolation=isolation).partition()
                assert given(answer.records) == [1, "commit"]
                answer = await agent.fetch("t", 1, max_bytes=0, isolation=isolation).partition()
                assert given(answer.records) == ["commit"]
                header = read_header(answer.records)
                assert (header.base_offset, header.producer_id) == (1, client.producer_id)
        assert world.store.reads.count(a.row("t").row(0).object_id.key) == 1


@pytest.mark.parametrize("end", ["end", "end_bumping"])
async def test_the_marker_of_a_client_that_bumps_has_the_next_epoch_kip_890(
    end: str, world: World
) -> None:
    async with in_transaction(world, "a", sizes=[1]) as (client, a):
        before = client.epoch
        await getattr(client, end)(a)
        answer = await a.fetch("t", 1).partition()
        expected = before + (end == "end_bumping")
        assert read_header(answer.records).producer_epoch == expected


async def test_exactly_the_transactions_aborted_in_what_is_given_are_named(world: World) -> None:
    async with world.with_topic("a") as (a,):
        first, second = Client("first"), Client("second")
        await opened(a, first, 1)  # 0
        await opened(a, second, 2, 3)  # 1, 2
        await second.end_bumping(a, commit=False)  # 3
        await opened(a, second, 4)  # 4
        await first.end_bumping(a, commit=False)  # 5
        await second.end_bumping(a)  # 6
        one, two = (first.producer_id, 0), (second.producer_id, 1)
        everything = [1, 2, 3, "abort", 4, "abort", "commit"]
        size = len(batch(bytes(1)))
        for offset, max_bytes, expected, named in (
            (0, 1 << 20, everything, [one, two]),
            (0, 0, [1], [one]),
            (0, 2 * size + 1, [1, 2], [one, two]),
            (1, 0, [2], [one, two]),
            (3, 0, ["abort"], [one, two]),
            (4, 0, [4], [one]),
            (5, 0, ["abort"], [one]),
            (6, 0, ["commit"], []),
            (7, 0, [], []),
        ):
            answer = await a.fetch(
                "t", offset, max_bytes=max_bytes, isolation=COMMITTED
            ).partition()
            assert given(answer.records) == expected
            assert aborted(answer) == named
        answer = await a.fetch("t", 0).partition()
        assert given(answer.records) == everything
        assert answer.aborted_transactions is None


async def test_a_range_of_nothing_but_aborted_records_is_given_so_that_clients_advance(
    world: World,
) -> None:
    async with in_transaction(world, "a", sizes=[1, 2, 3]) as (client, a):
        await client.end_bumping(a, commit=False)
        offset, seen = 0, []
        while offset < 4:
            answer = await a.fetch("t", offset, max_bytes=1, isolation=COMMITTED).partition()
            seen += given(answer.records)
            assert aborted(answer) == [(client.producer_id, 0)]
            offset = read_header(answer.records).last_offset + 1
        assert seen == [1, 2, 3, "abort"]


async def test_partitions_behind_one_with_open_transactions_are_given_their_share(
    world: World,
) -> None:
    async with world.with_topic("a", partitions=2) as (a,):
        await opened(a, Client(), 5_000)
        await a.produce("t", batch(bytes(7)), partition=1).wait()
        answers = await a.fetch("t", 0, 0, max_bytes=1, isolation=COMMITTED).partitions()
        assert [given(one.records or b"") for one in answers] == [[], [7]]


async def test_an_offset_in_the_open_part_of_the_log_is_not_out_of_range(world: World) -> None:
    async with world.with_topic("a") as (a,):
        await opened(a, Client(), 1, 2)
        answer = await a.fetch("t", 1, isolation=COMMITTED).partition()
        assert (answer.error_code, answer.records or b"") == (0, b"")
        assert await a.fetch("t", 3, isolation=COMMITTED).code() == ErrorCode.OFFSET_OUT_OF_RANGE


async def commit(client: Client, agent: Agent) -> None:
    await client.end(agent)


async def abort(client: Client, agent: Agent) -> None:
    await client.end_bumping(agent, commit=False)


async def take_over(client: Client, agent: Agent) -> None:
    await Client(client.transactional_id).init(agent)


async def time_out(client: Client, agent: Agent) -> None:
    await client.time_out(agent)


ENDS = [commit, abort, take_over, time_out]


@pytest.mark.parametrize("end", ENDS)
async def test_a_poll_for_committed_records_wakes_when_the_transaction_ends(
    end, world: World
) -> None:
    async with transacting(world, "a", "b", added=()) as (client, a, b):
        await b.log_client.barrier()
        polls = [
            one.fetch("t", 0, max_wait_ms=60_000, isolation=COMMITTED, min_bytes=5)
            for one in (a, b)
        ]
        await client.add(a, "t", 0)
        for sequence in range(3):
            await client.produce(a, client.batch(sequence, bytes(100))).wait()
        await asyncio.sleep(30)
        assert not any(poll.there for poll in polls)
        begun = world.loop.time()
        await end(client, a)
        for poll in polls:
            answer = await poll.partition()
            outcome = "commit" if end is commit else "abort"
            assert given(answer.records) == [100, 100, 100, outcome]
            listed = [] if end is commit else [(client.producer_id, 0)]
            assert aborted(answer) == listed
        assert world.loop.time() - begun < 1
        assert len(a.fetching.parked) == len(b.fetching.parked) == 0


async def test_a_poll_that_waits_for_more_than_became_stable_goes_on_waiting(world: World) -> None:
    async with world.with_topic("a") as (a,):
        client = Client()
        poll = a.fetch("t", 0, max_wait_ms=60_000, isolation=COMMITTED, min_bytes=2_000)
        await opened(a, client, 500, 500)
        await client.end(a)
        await poll.waits()
        await client.add(a, "t", 0)
        await client.produce(a, client.batch(2, bytes(500))).wait()
        await poll.waits()
        # Nothing that is behind an open transaction counts, whoever wrote it.
        await a.produce("t", batch(bytes(5_000))).wait()
        await poll.waits()
        await client.end(a)
        answer = await poll.partition()
        assert given(answer.records) == [500, 500, "commit", 500, 5_000, "commit"]


async def test_of_what_was_written_together_only_the_stable_part_counts(world: World) -> None:
    async with transacting(world, "a") as (client, a):
        size = len(batch(bytes(500)))
        polls = [
            a.fetch("t", 0, max_wait_ms=60_000, isolation=COMMITTED, min_bytes=min_bytes)
            for min_bytes in (size, size + 1)
        ]
        together = [
            a.produce("t", batch(bytes(500))),
            client.produce(a, client.batch(0, bytes(500))),
        ]
        for answer in together:
            await answer.wait()
        assert a.row("t").row_count == 1
        await asyncio.sleep(1)
        assert [poll.there for poll in polls] == [True, False]
        assert given((await polls[0].partition()).records) == [500]
        await client.end(a)
        await asyncio.sleep(1)
        assert given((await polls[1].partition()).records) == [500, 500, "commit"]


async def test_bytes_are_counted_once_when_one_entry_holds_a_batch_and_its_end(
    world: World,
) -> None:
    async with world.agents("a") as (a,):
        topic = await a.create_topic("t")
        client = Client()
        await client.init(a)
        entries: list[int] = []
        a.log_client.on_applied(lambda applied: entries.append(len(applied.outcomes)))
        data = client.batch(0, bytes(500))
        there = len(data) + MARKER_BYTES
        polls = [
            a.fetch("t", 0, max_wait_ms=5_000, isolation=COMMITTED, min_bytes=min_bytes)
            for min_bytes in (there, there + 1)
        ]
        incarnation = a.log_client.incarnation()
        assert incarnation is not None
        await world.store.put_new(ObjectId(incarnation, 0).key, [data])
        item = Item(0, len(data), 1, 1, client.producer_id, client.epoch, 0, OF_EPOCH)
        chunk = CommitChunk(0, len(data), (ChunkSpan(topic.topic_id, 0, 0, (item,)),))
        end = EndTransaction(
            client.transactional_id, client.producer_id, client.epoch, commit=True, proof=None
        )
        # What is proposed in one turn of the loop shares an entry.
        await asyncio.gather(*map(a.log_client.propose, (chunk, end)))
        assert entries[-1] == 2
        assert given((await polls[0].partition()).records) == [500, "commit"]
        await polls[1].waits()
        await asyncio.sleep(5)
        assert polls[1].there


@pytest.mark.parametrize("end", ENDS)
async def test_a_poll_for_everything_wakes_by_a_marker_alone(end, world: World) -> None:
    async with in_transaction(world, "a", sizes=[1]) as (client, a):
        poll = a.fetch("t", 1, max_wait_ms=60_000, min_bytes=MARKER_BYTES)
        await poll.waits()
        await end(client, a)
        await asyncio.sleep(1)
        assert poll.there
        answer = await poll.partition()
        assert given(answer.records) == ["commit" if end is commit else "abort"]


async def test_a_marker_that_is_there_already_is_enough_for_a_poll(world: World) -> None:
    async with in_transaction(world, "a", sizes=[1]) as (client, a):
        await client.end(a)
        for isolation in (0, 1):
            poll = a.fetch("t", 1, max_wait_ms=60_000, min_bytes=1, isolation=isolation)
            assert poll.there


async def test_a_poll_on_a_topic_without_transactions_wakes_as_ever(world: World) -> None:
    async with world.with_topic("a") as (a,):
        for _ in range(5):
            await a.produce("t", batch(bytes(100))).wait()
        size = len(batch(bytes(100)))
        poll = a.fetch("t", 5, max_wait_ms=60_000, min_bytes=3 * size, isolation=COMMITTED)
        for _ in range(2):
            await a.produce("t", batch(bytes(100))).wait()
            await poll.waits()
        await a.produce("t", batch(bytes(100))).wait()
        await asyncio.sleep(1)
        assert poll.there
        assert given((await poll.partition()).records) == [100] * 3


async def test_at_the_last_stable_offset_a_consumer_is_sent_elsewhere_without_a_session(
    world: World,
) -> None:
    """P16: this agent would not see the transaction end."""
    async with world.with_topic("a") as (a,):
        await a.produce("t", batch(bytes(1))).wait()
        await opened(a, Client(), 2)
        a.log.down = True
        await asyncio.sleep(30)
        assert await a.fetch("t", 1, isolation=COMMITTED).code() == ErrorCode.NOT_LEADER_OR_FOLLOWER
        for offset, isolation in ((0, COMMITTED), (1, 0)):
            answer = await a.fetch("t", offset, isolation=isolation).partition()
            assert answer.error_code == 0
            assert answer.records


async def test_one_that_reads_from_the_store_is_told_what_was_aborted_while_it_read(
    world: World,
) -> None:
    async with world.with_topic("a", "b") as (a, b):
        client, other = Client("x"), Client("y")
        for one in (client, other):
            await one.init(a)
            await one.add(a, "t", 0)
        together = [one.produce(a, one.batch(0, bytes(1))) for one in (client, other)]
        for answer in together:
            await answer.wait()
        assert a.row("t").row_count == 1
        await client.end_bumping(a, commit=False)
        await b.log_client.barrier()
        assert b.row("t").last_stable == 1
        poll = b.fetch("t", 0, isolation=COMMITTED)
        await other.end_bumping(a, commit=False)
        await b.log_client.barrier()
        assert not poll.there  # It reads.
        answer = await poll.partition()
        assert answer.last_stable_offset == 4
        assert given(answer.records) == [1, 1, "abort", "abort"]
        assert aborted(answer) == [(client.producer_id, 0), (other.producer_id, 1)]
