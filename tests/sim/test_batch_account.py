"""The account of batches sees what overtakes another, and nothing else."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from broker.produce.commit_queue import Ticket
from coordinator.commands.entries import ItemResult
from protocol.errors import ErrorCode
from protocol.produce import PartitionResult
from protocol.records import Record, build_batch
from protocol.types import Incarnation, TopicId
from storage.accumulator import PendingBatch
from storage.formats.spans import ObjectId
from tests.kit.agents import Agent, World
from tests.sim.batch_account import BatchAccount

TOPIC_ID = TopicId(bytes(16))
CHUNK = ObjectId(Incarnation(1), 0)


class _Nobody:
    def settle(self, index: int, result: PartitionResult) -> None:
        """It does not listen."""


class Path:
    """What an agent does with batches, told to the account."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.account = BatchAccount(self.violations)

    def take(self, sender: int, partition: int = 0) -> PendingBatch:
        ticket = Ticket(_Nobody(), 0, sender=sender)
        self.account._add("one", lambda *_arguments: None, ticket, TOPIC_ID, partition)
        return PendingBatch(
            TOPIC_ID,
            partition,
            b"",
            records=1,
            timestamp_max=0,
            producer_id=-1,
            producer_epoch=-1,
            first_sequence=-1,
            instance=-1,
            token=ticket,
        )

    def append(self, *batches: PendingBatch, duplicate: bool = False) -> None:
        item = ItemResult(ErrorCode.NONE, 0, 0, duplicate=duplicate)
        rows = [(batch, item, PartitionResult(0, ErrorCode.NONE, 0)) for batch in batches]
        self.account._publish("one", lambda *_arguments: None, CHUNK, rows)

    def give_up(self, *batches: PendingBatch) -> None:
        self.account._refuse("one", lambda *_arguments: None, [*batches])


def test_batches_in_the_order_of_coming_are_well_and_senders_and_partitions_have_orders_of_their_own() -> (
    None
):
    path = Path()
    first, second, third = path.take(-1), path.take(-1), path.take(-1)
    of_another, elsewhere = path.take(-2), path.take(-1, partition=1)
    path.give_up(path.take(-2))
    path.append(first, second)
    path.append(elsewhere)
    path.append(third)
    path.append(of_another)
    assert path.violations == []


def test_a_batch_behind_one_that_came_later_is_seen() -> None:
    path = Path()
    first, second = path.take(-1), path.take(-1)
    path.append(second)
    path.append(first)
    assert path.violations == [
        "batch 1 of sender -1 in partition 0 of one is in the log behind 2 (P11)"
    ]


def test_a_repetition_that_is_in_the_log_already_overtakes_nothing() -> None:
    path = Path()
    first, second = path.take(7), path.take(7)
    path.give_up(first)
    path.append(second, duplicate=True)
    assert path.violations == []


def test_what_was_behind_a_batch_that_was_given_up_may_not_be_appended_and_what_comes_later_may() -> (
    None
):
    path = Path()
    before, lost = path.take(-1), path.take(-1)
    path.give_up(lost)
    later = path.take(-1)
    path.append(before, later)
    assert path.violations == []
    path = Path()
    lost, behind = path.take(-1), path.take(-1)
    path.give_up(lost)
    path.append(behind)
    assert path.violations == [
        "batch 2 of sender -1 in partition 0 of one is in the log, and 1 before it was given up (P11)"
    ]


@asynccontextmanager
async def watched() -> AsyncGenerator[tuple[Agent, BatchAccount], None]:
    world = World()
    async with world.agents("one") as (agent,):
        account = BatchAccount([])
        account.begins("one", agent.node)
        await agent.create_topic("t")
        yield agent, account


async def test_it_sees_what_an_agent_takes_appends_and_gives_up() -> None:
    async with watched() as (agent, account):
        await agent.produce("t", build_batch([Record(value=b"1")]))
        (order,) = account._orders.values()
        assert (order.taken, order.appended, order.given_up) == (1, 1, [])
        agent.world.store.down = True
        writing = asyncio.create_task(agent.produce("t", build_batch([Record(value=b"2")])))
        await asyncio.wait([writing])
        (_, order) = account._orders.values()
        assert (order.taken, order.appended, order.given_up) == (1, 0, [(1, 1)])
        assert account._numbers == {}
        assert isinstance(writing.exception(), AssertionError)  # It wants a success.
