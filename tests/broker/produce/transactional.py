"""A transactional client for tests of the hot paths: its requests but Produce go into the log
directly, through any agent. `transacting` has one, with its transaction open."""

import contextlib
from collections.abc import AsyncGenerator, Iterable
from typing import Any

from coordinator.commands.transaction_commands import (
    ClientProof,
    EndTransaction,
    GiveUpTransaction,
    TransactionEnded,
)
from protocol.records import TRANSACTIONAL
from tests.broker.agents import World
from tests.broker.produce.world import Agent, Answer
from tests.broker.transactions import by_log
from tests.kit.batches import batch


class Client:
    """A producer with a transactional id; `producer_id` and `epoch` are what it was told."""

    def __init__(self, transactional_id: str = "x") -> None:
        self.transactional_id = transactional_id
        self.producer_id = -1
        self.epoch = -1

    async def init(self, agent: Agent) -> None:
        """InitProducerId: take over, whoever had the id before."""
        self.producer_id, self.epoch = await by_log.init(agent, self.transactional_id)

    async def add(self, agent: Agent, topic: str, *partitions: int) -> None:
        """AddPartitionsToTxn: begins a transaction, or adds to the open one."""
        await agent.log_client.barrier()
        places = {(agent.row(topic).topic_id, partition) for partition in partitions}
        producer = self.producer_id, self.epoch
        await by_log.add(agent, self.transactional_id, producer, partitions=places)
        await agent.log_client.barrier()
        row = agent.machine.transactions.get(self.transactional_id)
        assert row is not None
        assert places <= set(row.partitions)

    async def end(self, agent: Agent, *, commit: bool = True) -> None:
        """EndTxn v4: the epoch stays."""
        proof = ClientProof(
            self.instance(agent),
            by_log.CONNECTION,
            agent.log_client.machine.position,
            challenged=True,
        )
        await self._end(agent, commit, proof)

    async def end_bumping(self, agent: Agent, *, commit: bool = True) -> None:
        """EndTxn v5: the next transaction has the next epoch."""
        await self._end(agent, commit, None)

    async def _end(self, agent: Agent, commit: bool, proof: ClientProof | None) -> None:
        outcome = await agent.log_client.propose(
            EndTransaction(
                self.transactional_id, self.producer_id, self.epoch, commit=commit, proof=proof
            )
        )
        assert isinstance(outcome, TransactionEnded), outcome
        self.producer_id, self.epoch = outcome.producer_id, outcome.producer_epoch

    async def time_out(self, agent: Agent) -> None:
        """The cluster gives up the open transaction; the client does not know it."""
        outcome = await agent.log_client.propose(
            GiveUpTransaction(
                self.transactional_id,
                self.producer_id,
                self.epoch,
                self.instance(agent),
                timed_out=True,
            )
        )
        assert isinstance(outcome, TransactionEnded), outcome

    def instance(self, agent: Agent) -> int:
        row = agent.log_client.machine.transactions.get(self.transactional_id)
        assert row is not None
        return row.txn_metadata.instance

    def batch(self, sequence: int = 0, *values: bytes, **changes: int) -> bytes:
        fields = {"producer_id": self.producer_id, "epoch": self.epoch, "attributes": TRANSACTIONAL}
        return batch(*values, sequence=sequence, **(fields | changes))

    def produce(self, agent: Agent, *batches: bytes, topic: str = "t", **how) -> Answer:
        """One batch for each of the partitions from 0 on."""
        given = {"version": 11, "transactional_id": self.transactional_id} | how
        return agent.produce(topic, *batches, **given)


@contextlib.asynccontextmanager
async def transacting(
    world: World, *names: str, added: Iterable[int] = (0,), **settings: str
) -> AsyncGenerator[list[Any], None]:
    """A client at the first of these agents ("a" when none is named), and all of them.

    Its transaction is open in these partitions of a topic of two, unless there are none.
    """
    async with world.with_topic(*(names or ("a",)), partitions=2, **settings) as everybody:
        client = Client()
        await client.init(everybody[0])
        if added:
            await client.add(everybody[0], "t", *added)
        yield [client, *everybody]
