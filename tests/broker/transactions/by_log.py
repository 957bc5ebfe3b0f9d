"""Transactions made by the log alone, without requests: for what looks at them."""

from coordinator.commands.entries import ChunkSpan, CommitChunk
from coordinator.commands.transaction_commands import (
    AddToTransaction,
    ClientProof,
    EndTransaction,
    InitProducer,
)
from protocol.errors import ErrorCode
from storage.formats.spans import Item
from txn.transactions import NO_TRANSACTION

TIMEOUT_MS = 60_000
CONNECTION = 7


async def init(agent, transactional_id: str, *, timeout_ms: int = TIMEOUT_MS) -> tuple[int, int]:
    """Id and epoch of a new producer."""
    told = await agent.log_client.propose(InitProducer(transactional_id, timeout_ms, -1, -1))
    return told.producer_id, told.producer_epoch


async def add(agent, transactional_id: str, producer, *, partitions=(), group_ids=()) -> int:
    """The instance that is open now."""
    row = agent.machine.transactions.get(transactional_id)
    instance = row.txn_metadata.instance + (0 if row.is_ongoing else 1)
    await agent.log_client.propose(
        AddToTransaction(
            transactional_id, *producer, instance, CONNECTION, tuple(partitions), tuple(group_ids)
        )
    )
    assert row.is_ongoing
    return instance


async def end(agent, transactional_id: str, producer, *, commit: bool) -> None:
    row = agent.machine.transactions.get(transactional_id)
    proof = ClientProof(
        row.txn_metadata.instance, CONNECTION, agent.machine.position, challenged=False
    )
    await agent.log_client.propose(EndTransaction(transactional_id, *producer, commit, proof))
    assert not row.is_ongoing


async def write(
    agent,
    topic: str,
    *,
    producer_id: int,
    partition: int = 0,
    epoch: int = 0,
    sequence: int = 0,
    records: int = 1,
    timestamp: int = 0,
    instance: int = NO_TRANSACTION,
) -> None:
    """A batch, by the log alone."""
    item = Item(0, 100, records, timestamp, producer_id, epoch, sequence, instance)
    span = ChunkSpan(agent.machine.topics.by_name(topic).topic_id, partition, 0, (item,))
    incarnation = agent.log_client.incarnation()
    number = agent.machine.incarnations.get(incarnation).chunk_last + 1
    told = await agent.log_client.propose(CommitChunk(number, 100, (span,)), incarnation)
    assert [result.error for result in told.results] == [ErrorCode.NONE]
