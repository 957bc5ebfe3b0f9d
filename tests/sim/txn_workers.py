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
import random

from protocol.errors import ErrorCode
from tests.sim.client import Client, LostError
from tests.sim.group_members import HEARTBEAT_S, ClassicMember
from tests.sim.txn_account import DOOMED, KEYS, Partition, TxnAccount
from tests.sim.txn_client import AbortError, FencedError, TxnProducer
from tests.sim.txn_readers import TxnReader, fetch_offset
from tests.sim.workload import TOPIC

WRITTEN: list[Partition] = KEYS[:3]
OUTPUT = "out"
OUTPUT_PARTITIONS = 2


class Writer:
    """All lives of a writer with one transactional id."""

    def __init__(
        self, world, account: TxnAccount, rng: random.Random, *, name: str, transactional_id: str
    ) -> None:
        self._world = world
        self._account = account
        self._rng = rng
        self._name = name
        self.transactional_id = transactional_id
        self.group_id = f"of-{transactional_id}"
        self._lives = 0
        self._tv2 = rng.choice((False, False, True))
        self._timeout_ms = rng.choice((2500, 6000, 20_000))
        self.stopping = False
        """To end with a last transaction that is committed."""
        self.committed_last = False

    async def run(self) -> None:
        while not self.committed_last:
            await self._live()
            await asyncio.sleep(self._rng.choice((0.1, 1.0, 3.0)))

    async def _live(self) -> None:
        self._lives += 1
        producer = TxnProducer(
            self._world,
            self._account,
            random.Random(self._rng.getrandbits(64)),
            name=f"{self._name}.{self._lives}",
            transactional_id=self.transactional_id,
            tv2=self._tv2,
            timeout_ms=self._timeout_ms,
            group_id=self.group_id,
        )
        try:
            await producer.init()
            while not self.committed_last:
                last = self.stopping
                if await self._transact(producer, last=last) and last:
                    self.committed_last = True
                elif not self.stopping and self._rng.random() < 0.05:
                    return  # It crashes, with or without an open transaction.
                elif not producer.tv2 and self._rng.random() < 0.1:
                    producer.become_tv2()
        except FencedError:
            pass
        finally:
            producer.close()

    async def _transact(self, producer: TxnProducer, *, last: bool) -> bool:
        """One transaction; True when it was committed."""
        told = await producer.begin()
        chance = self._rng.random
        commit = last or chance() < 0.7
        written = 0
        try:
            for _ in range(1 if last else self._rng.choice((1, 1, 2, 3))):
                for partition in self._some(last=last):
                    values = [
                        f"{told.number}.{written + i}".encode()
                        for i in range(self._rng.choice((1, 1, 2, 6)))
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
        count = self._rng.choice((1, 2, 3))
        chosen = self._rng.sample(WRITTEN, count)
        if not last and not self._world.doomed_is_gone and self._rng.random() < 0.3:
            chosen.append((DOOMED, 0))
        return chosen

    async def _pause(self, *, last: bool) -> None:
        if last:
            return
        if self._rng.random() < 0.04:
            await asyncio.sleep(self._timeout_ms / 1000 * self._rng.choice((0.9, 1.3, 2.0)))
        else:
            await asyncio.sleep(self._rng.choice((0.0, 0.05, 0.4)))


class _Transforming:
    """What both kinds of processors do with some records of the input."""

    _world: object
    _rng: random.Random

    async def transform(
        self, producer: TxnProducer, lines, *, member_id: str = "", generation: int = -1
    ) -> bool:
        """One transaction from input to output; True when it was committed."""
        told = await producer.begin()
        ends: dict[int, int] = {}
        try:
            for index, (partition, offset) in enumerate(lines):
                place = (OUTPUT, self._rng.randrange(OUTPUT_PARTITIONS))
                value = f"{told.number}.{index}:{partition}.{offset}".encode()
                producer.queue(place, [value])
                ends[partition] = offset + 1
            await producer.flush()
            await asyncio.sleep(self._rng.choice((0.0, 0.1, 0.6)))
            await producer.send_offsets(ends, member_id=member_id, generation=generation)
            if self._rng.random() < 0.1:
                raise AbortError
            await producer.end(commit=True)
        except AbortError:
            await producer.end(commit=False)
            return False
        return True


class Processor(_Transforming):
    """Of one input partition, with a transactional id of that partition."""

    group_id = "simple"

    def __init__(
        self, world, account: TxnAccount, rng: random.Random, *, name: str, partition: int
    ) -> None:
        self._world = world
        self._account = account
        self._rng = rng
        self._name = name
        self._partition = partition
        self._lives = 0
        self._tv2 = rng.choice((False, True))

    async def run(self) -> None:
        """Until all of the input is done."""
        while not await self._live():
            await asyncio.sleep(self._rng.choice((0.1, 1.0)))

    async def _live(self) -> bool:
        self._lives += 1
        rng = random.Random(self._rng.getrandbits(64))
        name = f"{self._name}.{self._lives}"
        producer = TxnProducer(
            self._world,
            self._account,
            rng,
            name=name,
            transactional_id=f"processor-{self._partition}",
            tv2=self._tv2,
            timeout_ms=10_000,
            group_id=self.group_id,
        )
        client = Client(self._world.loop, name, 3.0)
        try:
            await producer.init()
            while True:
                at = await self._position(producer, client)
                if at >= self._world.input_records:
                    return True
                lines = await read_input(self._world, self._account, rng, self._partition, at)
                await self.transform(producer, lines)
                await asyncio.sleep(rng.choice((0.1, 0.5, 1.5)))
        except FencedError:
            return False
        finally:
            producer.close()
            client.close()

    async def _position(self, producer: TxnProducer, client: Client) -> int:
        """Behind what is committed. An open offset is waited for (KIP-447)."""
        while True:
            try:
                address = await producer.group_coordinator()
                offset = await fetch_offset(
                    client,
                    address,
                    self.group_id,
                    (TOPIC, self._partition),
                    self._rng,
                    stable=True,
                )
            except LostError:
                offset = None
            if offset is not None:
                return max(offset, 0)
            producer.not_group_coordinator()
            await asyncio.sleep(0.3)


async def read_input(
    world, account: TxnAccount, rng: random.Random, partition: int, at: int
) -> list[tuple[int, int]]:
    """Some input records, from `at` on: partition and offset."""
    reader = TxnReader(
        Client(world.loop, "input", 3.0),
        account,
        rng,
        [(TOPIC, partition)],
        committed=True,
        recorded=False,
    )
    reader.seek((TOPIC, partition), at)
    while not reader.passes[-1][1].seen:
        await reader.poll(world.addresses.any(), max_wait_ms=500)
    reader._client.close()
    seen = reader.passes[-1][1].seen
    return [(partition, offset) for offset, _ in seen[: rng.choice((1, 2, 4))]]


class GroupProcessor(ClassicMember, _Transforming):
    """A member of a group; what it is dealt it processes, until the group changes."""

    def __init__(self, world, account: TxnAccount, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self._world = world
        self._txn_account = account
        self._rng = self.rng
        self._lives = 0
        self._tv2 = self.rng.choice((False, True))
        self.done = False

    async def run(self) -> None:
        while not self.done and not self.stopping:
            if await self._join():
                await self._process()
            self.hold(set())
            await self.rest(self.rng.choice((0.1, 0.5)))
        await self._leave()

    async def fetch_offsets(self, partitions: set[int]) -> bool:
        return True  # Asked for in each round, since a transaction may have failed.

    async def _process(self) -> None:
        """Until fenced, or the group rebalances."""
        self._lives += 1
        name = f"{self.name}.{self._lives}"
        producer = TxnProducer(
            self._world,
            self._txn_account,
            random.Random(self.rng.getrandbits(64)),
            name=name,
            transactional_id=f"of-{self.name}",
            tv2=self._tv2,
            timeout_ms=10_000,
            group_id=self.account.group_id,
        )
        beats = asyncio.create_task(self._until_changed())
        try:
            await producer.init()
            while not self.stopping and not beats.done():
                if not await self._round(producer):
                    break
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
            try:
                address = await producer.group_coordinator()
                offset = await fetch_offset(
                    self.client,
                    address,
                    self.account.group_id,
                    (TOPIC, partition),
                    self.rng,
                    stable=True,
                )
            except LostError:
                offset = None
            if offset is None:
                producer.not_group_coordinator()
                return True
            if offset < self._world.input_records:
                open_ones.append((partition, max(offset, 0)))
        if not open_ones:
            self.done = True
            return False
        mine = [(partition, at) for partition, at in open_ones if partition in self.owned]
        if mine:
            partition, at = self.rng.choice(mine)
            lines = await read_input(self._world, self._txn_account, self.rng, partition, at)
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
