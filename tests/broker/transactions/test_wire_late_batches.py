"""Producers with several batches in flight whose frames are read late, elsewhere, or twice."""

import asyncio
import random
from collections import deque

import pytest

from protocol.errors import ErrorCode
from tests.broker.groups.world import agents
from tests.broker.transactions.test_wire_produce import code_of, frame
from tests.broker.transactions.world import LateClient, Producer, partition, records

AGAIN = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}
IN_FLIGHT_MAX = 4


class Writer(LateClient):
    """A client as in docs/design/kafka-semantics.md §4 and §6.1.

    What is not answered is sent again, on a new connection. When it gives up a batch whose fate it
    does not know it aborts and takes the next epoch (KIP-360), or gets it by the end itself
    (KIP-890): else an old frame could pass for a new one.
    """

    def __init__(self, agents, producer: Producer, rng: random.Random, *, version: int) -> None:
        super().__init__(agents, producer, rng)
        self.version = version
        self.sequences = {0: 0, 1: 0}

    @property
    def bumping(self) -> bool:
        return self.version >= 12

    async def pause(self) -> None:
        """Time passes; agents lag and catch up, somebody reads an old connection at last."""
        if self.left and self.rng.random() < 0.4:
            self.left.pop(self.rng.randrange(len(self.left))).pump()
        agent = self.rng.choice(self.agents)
        if self.rng.random() < 0.15:
            agent.lag()
            asyncio.get_running_loop().call_later(self.rng.random() * 2, agent.catch_up)
        await asyncio.sleep(self.rng.random() * 0.05)

    async def insist(self, ask) -> None:
        for _ in range(50):
            await self.pause()
            code = await ask()
            if code == 0:
                return
            assert code in (51, 14), code
        raise AssertionError("asked in vain")

    async def begin(self) -> None:
        if not self.bumping:

            async def add() -> int:
                codes = await self.producer.add({"logs": [0, 1]})
                return next(iter(codes.values()))

            await self.insist(add)

    async def write(self, index: int, values: list[bytes]) -> bool:
        """Whether all of it is known to be in the log; else some may be, or may come to be."""
        first = self.sequences[index]
        pending = deque(enumerate(values, first))
        for _ in range(100):
            if not pending:
                self.sequences[index] = first + len(values)
                return True
            await self.pause()
            peer = self.producer.peer
            some = list(pending)[: self.rng.randint(1, IN_FLIGHT_MAX)]
            frames = [
                frame(
                    self.producer,
                    peer,
                    index,
                    value=value,
                    sequence=sequence,
                    version=self.version,
                )
                for sequence, value in some
            ]
            if self.rng.random() < 0.2:
                self.give_up(frames)
                if self.rng.random() < 0.3:
                    return False
                continue
            peer.feed(b"".join(frames))
            codes = [code_of(await peer.answer()) for _ in frames]
            while codes and codes[0] == 0:
                pending.popleft()
                codes.pop(0)
            for at, code in enumerate(codes):
                # One behind another that failed is out of order, or was a repetition.
                behind = at > 0 and code in (0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
                assert code in AGAIN or behind, (at, code)
        raise AssertionError("written in vain")

    def give_up(self, frames: list[bytes]) -> None:
        """The frames, or the first of them, are on a connection that is the client's no more."""
        data = b"".join(frames[: self.rng.randint(1, len(frames))])
        cut = self.rng.randint(1, len(data)) if self.rng.random() < 0.5 else 0
        self.producer.peer.feed(data[:cut])
        self.leave_unread(data[cut:])

    async def end(self, *, commit: bool, known: bool) -> None:
        version = 5 if self.bumping else 3
        await self.insist(lambda: self.producer.end(commit=commit, version=version))
        if not known and not self.bumping:
            await self.insist(lambda: self.producer.init(given=True))
        if self.bumping or not known:
            self.sequences = {0: 0, 1: 0}


@pytest.mark.parametrize("version", [9, 12])
@pytest.mark.parametrize("seed", range(30))
async def test_whatever_is_read_late_every_batch_is_in_its_own_transaction_once(seed, version):
    async with agents("one", "two") as (one, two):
        rng = random.Random(seed)
        producer = await Producer.begin(one)
        writer = Writer((one, two), producer, rng, version=version)
        committed: list[bytes] = []
        for number in range(8):
            values = [b"%d.%d" % (number, each) for each in range(rng.randint(1, 6))]
            await writer.begin()
            known = await writer.write(0, values) and await writer.write(1, values)
            commit = known and rng.random() < 0.6
            await writer.end(commit=commit, known=known)
            if commit:
                committed += values
        for peer in writer.left:
            peer.pump()
        for agent in (one, two):
            agent.catch_up()
        await asyncio.sleep(5)
        for agent in (one, two):
            assert await records(agent, 0) == await records(agent, 1) == committed
            # Nothing hangs: all that is in the log is decided.
            for index in (0, 1):
                assert partition(agent, index).last_stable == partition(agent, index).end_offset
