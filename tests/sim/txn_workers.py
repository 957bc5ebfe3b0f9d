"""What transactional clients of simulated worlds are for: writers, and processors of an input.

A `Writer` fills transactions with records of several partitions, and with an offset of a group of
its own that is the transaction's number; it commits or aborts, pauses for longer than its
timeout, and comes back under the same transactional id when it was fenced or crashed. Two of them
with one id are each other's zombies.

A `Processor` consumes, transforms and produces: for every record of an input partition one of the
output, exactly once. In the simple kind a partition belongs to a transactional id, which fences
(Kafka's "exactly once v1"); in the other kind it is dealt out by a group, and the generation that
goes with the offsets fences (KIP-447).
"""

import asyncio

from typing_extensions import override

from protocol.errors import ErrorCode
from tests.kit.requests import Partition
from tests.sim.client import LostError, offsets_in
from tests.sim.group_account import GroupAccount
from tests.sim.group_members import HEARTBEAT_S, ClassicMember
from tests.sim.txn_account import DOOMED, KEYS
from tests.sim.txn_client import AbortError, FencedError, TxnCluster, TxnProducer
from tests.sim.txn_readers import TxnReader
from tests.sim.workload import TOPIC
from tests.sim.world import Worker

WRITTEN: list[Partition] = KEYS[:3]
OUTPUT = "out"
OUTPUT_PARTITIONS = 2
INPUT_PARTITIONS = 2
PROCESSOR_TIMEOUT_MS = 10_000


class TxnWorker(Worker):
    """Has one producer after the other, each until it is fenced or forgotten."""

    is_spare = False
    world: TxnCluster
    _lives = 0

    def producer(
        self, transactional_id: str, group_id: str, timeout_ms: int, *, tv2: bool
    ) -> TxnProducer:
        """A new one."""
        self._lives += 1
        return TxnProducer(
            self.world,
            f"{self.name}.{self._lives}",
            transactional_id,
            tv2=tv2,
            timeout_ms=timeout_ms,
            group_id=group_id,
        )


class Writer(TxnWorker):
    """All lives of a writer with one transactional id. It stops with a last transaction that is
    committed."""

    def __init__(self, world: TxnCluster, name: str, transactional_id: str) -> None:
        super().__init__(world, name)
        self.transactional_id = transactional_id
        self.group_id = f"of-{transactional_id}"
        self._tv2 = self.rng.choice((False, False, True))
        self._timeout_ms = self.rng.choice((2500, 6000, 20_000))
        self.committed_last = False

    @override
    async def run(self) -> None:
        while not self.committed_last:
            await self._live()
            await asyncio.sleep(self.rng.choice((0.1, 1.0, 3.0)))

    async def _live(self) -> None:
        producer = self.producer(
            self.transactional_id, self.group_id, self._timeout_ms, tv2=self._tv2
        )
        try:
            await producer.init()
            while not self.committed_last:
                last = self.stopping
                if await self._transact(producer, last=last) and last:
                    self.committed_last = True
                elif not self.stopping and self.rng.random() < 0.05:
                    return  # It crashes, with or without an open transaction.
                elif not producer.tv2 and self.rng.random() < 0.1:
                    producer.become_tv2()
        except FencedError:
            pass
        finally:
            producer.close()

    async def _transact(self, producer: TxnProducer, *, last: bool) -> bool:
        """One transaction; True when it was committed."""
        told = await producer.begin()
        chance = self.rng.random
        commit = last or chance() < 0.7
        written = 0
        try:
            for _ in range(1 if last else self.rng.choice((1, 1, 2, 3))):
                for partition in self._some(last=last):
                    values = [
                        f"{told.number}.{written + i}".encode()
                        for i in range(self.rng.choice((1, 1, 2, 6)))
                    ]
                    written += len(values)
                    producer.queue(partition, values)
                if not commit and chance() < 0.4 and await producer.add_and_abort():
                    return False
                await producer.flush()
                await self._pause(last=last)
            if chance() < 0.5:
                await producer.send_offsets({0: told.number})
            if not last and chance() < 0.03:
                raise FencedError  # It dies here: of no use any more, and nobody ends it.
            await producer.end(commit=commit)
        except AbortError:
            await producer.end(commit=False)
            return False
        return commit

    def _some(self, *, last: bool) -> list[Partition]:
        count = self.rng.choice((1, 2, 3))
        chosen = self.rng.sample(WRITTEN, count)
        if not last and not self.world.doomed_is_gone and self.rng.random() < 0.3:
            chosen.append((DOOMED, 0))
        return chosen

    async def _pause(self, *, last: bool) -> None:
        if last:
            return
        if self.rng.random() < 0.04:
            await asyncio.sleep(self._timeout_ms / 1000 * self.rng.choice((0.9, 1.3, 2.0)))
        else:
            await asyncio.sleep(self.rng.choice((0.0, 0.05, 0.4)))


class Transformer(TxnWorker):
    """What both kinds of processors do with some records of the input."""

    async def transform(
        self,
        producer: TxnProducer,
        lines: list[tuple[int, int]],
        *,
        member_id: str = "",
        generation: int = -1,
    ) -> bool:
        """One transaction from input to output; True when it was committed."""
        told = await producer.begin()
        ends: dict[int, int] = {}
        try:
            for index, (partition, offset) in enumerate(lines):
                place = (OUTPUT, self.rng.randrange(OUTPUT_PARTITIONS))
                value = f"{told.number}.{index}:{partition}.{offset}".encode()
                producer.queue(place, [value])
                ends[partition] = offset + 1
            await producer.flush()
            await asyncio.sleep(self.rng.choice((0.0, 0.1, 0.6)))
            await producer.send_offsets(ends, member_id=member_id, generation=generation)
            if self.rng.random() < 0.1:
                raise AbortError
            await producer.end(commit=True)
        except AbortError:
            await producer.end(commit=False)
            return False
        return True

    async def position(self, producer: TxnProducer, group_id: str, partition: int) -> int | None:
        """Where to go on: behind what is committed. None: ask again, since an offset is open
        (KIP-447), or nobody says."""
        request = self.client.offset_fetch(group_id, [(TOPIC, partition)], stable=True)
        try:
            address = await producer.group_coordinator()
            told = offsets_in(await self.client.ask(*request, at=address))
        except LostError:
            told = None
        if told is None:
            producer.not_group_coordinator()
            return None
        return max(told[TOPIC, partition], 0)

    async def read_input(self, partition: int, at: int) -> list[tuple[int, int]]:
        """Some input records, from `at` on: partition and offset."""
        place = (TOPIC, partition)
        reader = TxnReader(
            self.world, "input", [place], committed=True, recorded=False, timeout_s=3.0
        )
        reader.seek(place, at)
        while not (seen := reader.passes[-1][1].seen):
            await reader.poll(self.client.anybody(), max_wait_ms=500)
        reader.client.close()
        return [(partition, offset) for offset, _ in seen[: self.rng.choice((1, 2, 4))]]


class Processor(Transformer):
    """Of one input partition, with a transactional id of that partition."""

    GROUP_ID = "simple"

    def __init__(self, world: TxnCluster, name: str, partition: int) -> None:
        super().__init__(world, name, 3.0)
        self._partition = partition
        self._tv2 = self.rng.choice((False, True))

    @override
    async def run(self) -> None:
        """Until all of the input is done."""
        while not await self._live():
            await asyncio.sleep(self.rng.choice((0.1, 1.0)))

    async def _live(self) -> bool:
        producer = self.producer(
            f"processor-{self._partition}", self.GROUP_ID, PROCESSOR_TIMEOUT_MS, tv2=self._tv2
        )
        try:
            await producer.init()
            while True:
                while (at := await self.position(producer, self.GROUP_ID, self._partition)) is None:
                    await asyncio.sleep(0.3)
                if at >= self.world.input_records:
                    return True
                await self.transform(producer, await self.read_input(self._partition, at))
                await asyncio.sleep(self.rng.choice((0.1, 0.5, 1.5)))
        except FencedError:
            return False
        finally:
            producer.close()


class GroupProcessor(ClassicMember, Transformer):
    """A member of a group; what it is dealt it processes, until the group changes."""

    def __init__(self, world: TxnCluster, name: str, account: GroupAccount) -> None:
        super().__init__(world, name, account, partitions=INPUT_PARTITIONS, timeout_s=5.0)
        self._tv2 = self.rng.choice((False, True))
        self.done = False

    @override
    async def run(self) -> None:
        while not self.done:
            if await self._join():
                await self._process()
            self.hold(set())
            await self.rest(self.rng.choice((0.1, 0.5)))
        await self._leave()

    @override
    async def fetch_offsets(self, partitions: set[int]) -> bool:
        return True  # Asked for in each round, since a transaction may have failed.

    async def _process(self) -> None:
        """Until fenced, or the group rebalances."""
        producer = self.producer(
            f"of-{self.name}", self.account.group_id, PROCESSOR_TIMEOUT_MS, tv2=self._tv2
        )
        beats = asyncio.create_task(self._until_changed())
        try:
            await producer.init()
            while not beats.done() and await self._round(producer):
                await asyncio.sleep(self.rng.choice((0.1, 0.5, 1.5)))
        except FencedError:
            pass
        finally:
            beats.cancel()
            producer.close()

    async def _round(self, producer: TxnProducer) -> bool:
        """Some records of one partition; False when all partitions of all members are done."""
        open_ones = []
        for partition in range(self.partitions):
            at = await self.position(producer, self.account.group_id, partition)
            if at is None:
                return True
            if at < self.world.input_records:
                open_ones.append((partition, at))
        if not open_ones:
            self.done = True
            return False
        mine = [(partition, at) for partition, at in open_ones if partition in self.owned]
        if mine:
            lines = await self.read_input(*self.rng.choice(mine))
            await self.transform(producer, lines, member_id=self.member_id, generation=self.epoch)
        return True

    async def _until_changed(self) -> None:
        """Heartbeats until one says that the group has changed."""
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            error = await self._beat()
            if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                self.member_id = ""
            if error is not None and error != ErrorCode.NONE:
                return
