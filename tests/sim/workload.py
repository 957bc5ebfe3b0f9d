"""What simulated clients do: idempotent and plain producers, readers, and askers of end offsets.

A producer keeps several batches of a partition in flight on one connection, as Java's does, and
after a failure sends what is not acknowledged again, in order. All values are unique.
"""

import asyncio
import random
from dataclasses import dataclass

from protocol import apis, messages
from protocol.errors import ErrorCode
from protocol.messages import hot
from protocol.records import Record, build_batch, iterate, read_header
from tests.sim.checkers import Account
from tests.sim.client import Client, LostError

TOPIC = "t"
PRODUCE_VERSIONS = (3, 7, 8, 9, 11)
FETCH_VERSIONS = (4, 7, 11, 12)
RACK_FROM = 11
ZONES = ("a", "b")
UNDECIDED = {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION}
"""What leaves open whether it happened, besides no answer at all."""


@dataclass
class Batch:
    values: list[bytes]
    first_sequence: int
    maybe_written: bool = False
    """An attempt of it ended without a definite answer."""


class Addresses:
    """The agents' addresses, as a client knows them; any agent serves any partition."""

    def __init__(self, addresses: list[tuple[str, int]], rng: random.Random) -> None:
        self.all = addresses
        self.zones: dict[tuple[str, int], str] = {}
        """Of those that have one."""
        self._rng = rng

    def any(self) -> tuple[str, int]:
        return self._rng.choice(self.all)

    def any_in(self, zone: str) -> tuple[str, int]:
        return self._rng.choice([each for each in self.all if self.zones.get(each) == zone])


async def until_topic(client: Client, addresses: Addresses, partitions: int) -> None:
    """Create the topic, from whichever agent answers."""
    request = messages.CreateTopicsRequest(
        topics=[
            messages.CreatableTopic(name=TOPIC, num_partitions=partitions, replication_factor=1)
        ],
        timeout_ms=5000,
    )
    while True:
        try:
            answer = await client.ask(addresses.any(), apis.CREATE_TOPICS, 5, request)
            if answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return
        except LostError:
            pass
        await asyncio.sleep(0.5)


class Producer:
    """Writes to one partition until told to stop; then finishes what it began."""

    def __init__(
        self,
        client: Client,
        addresses: Addresses,
        account: Account,
        rng: random.Random,
        *,
        partition: int,
        idempotent: bool,
    ) -> None:
        self._client = client
        self._addresses = addresses
        self._account = account
        self._rng = rng
        self._partition = partition
        self._idempotent = idempotent
        self._producer = (-1, -1)
        self._sequence = 0
        self._number = 0
        self._backlog: list[Batch] = []
        self._in_flight_max = rng.choice((1, 3, 5))
        self.stopping = False

    async def run(self) -> None:
        if self._idempotent:
            await self._init()
        while not self.stopping or self._backlog:
            if not self._backlog and not self.stopping:
                # Nothing new before all that was sent is settled: as in Java, a batch is never
                # more than the window of five behind the newest.
                self._backlog = [self._next() for _ in range(self._in_flight_max)]
            await self._round()
            await asyncio.sleep(self._rng.choice((0.0, 0.01, 0.3)))

    async def _init(self) -> None:
        request = messages.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        while True:
            try:
                answer = await self._client.ask(
                    self._addresses.any(), apis.INIT_PRODUCER_ID, 3, request
                )
                if answer.error_code == ErrorCode.NONE:
                    self._producer = (answer.producer_id, answer.producer_epoch)
                    return
            except LostError:
                pass
            await asyncio.sleep(0.5)

    def _next(self) -> Batch:
        values = []
        for _ in range(self._rng.choice((1, 1, 3, 20))):
            values.append(f"{self._client.name}-{self._number}".encode())
            self._number += 1
        if self._idempotent:
            self._account.exactly_once.update(values)
        batch = Batch(values, self._sequence)
        self._sequence += len(values)
        return batch

    async def _round(self) -> None:
        """Send all of the backlog on one connection, look at the answers in order."""
        try:
            connection = await self._client.connect(self._addresses.any())
        except LostError:
            await asyncio.sleep(0.2)
            return
        version = self._rng.choice(PRODUCE_VERSIONS)
        sent = [
            (batch, self._client.send(connection, apis.PRODUCE, version, self._request(batch)))
            for batch in self._backlog
        ]
        for batch, future in sent:
            try:
                answer = await self._client.answer(connection, future)
            except LostError:
                self._lost(batch)
            else:
                self._answered(batch, answer.responses[0].partition_responses[0])

    def _request(self, batch: Batch) -> hot.ProduceRequest:
        producer_id, epoch = self._producer
        records = build_batch(
            [Record(value=value, timestamp=1_600_000_000_000) for value in batch.values],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=batch.first_sequence if self._idempotent else -1,
        )
        data = hot.PartitionProduceData(index=self._partition, records=records)
        topic = hot.TopicProduceData(name=TOPIC, partition_data=[data])
        return hot.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic])

    def _lost(self, batch: Batch) -> None:
        batch.maybe_written = True
        if not self._idempotent:  # Sending it again could write it twice, so it stays unknown.
            self._backlog.remove(batch)

    def _answered(self, batch: Batch, answer: hot.PartitionProduceResponse) -> None:
        if answer.error_code == ErrorCode.NONE:
            for index, value in enumerate(batch.values):
                self._account.acknowledge(value, (self._partition, answer.base_offset + index))
            self._backlog.remove(batch)
            return
        if answer.base_offset != -1:
            self._account.violations.append(f"error {answer.error_code} with a base offset (P2)")
        if answer.error_code in UNDECIDED:
            self._lost(batch)
        elif not self._idempotent:
            self._account.refused.update(batch.values)
            self._backlog.remove(batch)
        elif answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH:
            self._account.violations.append("a producer that nobody fenced was fenced")


class Reader:
    """Follows all partitions from offset 0, from one agent after the other; when it tells a rack, from
    one of that zone whenever it is sent there."""

    def __init__(
        self,
        client: Client,
        addresses: Addresses,
        account: Account,
        rng: random.Random,
        *,
        rack: str = "",
    ) -> None:
        self._client = client
        self._addresses = addresses
        self._account = account
        self._rng = rng
        self._rack = rack
        self._sent_on = False
        """By the newest answer."""
        self.offsets: dict[int, int] = {}
        self.log: dict[tuple[int, int], bytes] = {}

    def follow(self, partitions: int) -> None:
        self.offsets = dict.fromkeys(range(partitions), 0)

    async def run(self) -> None:
        while True:
            addresses = self._addresses
            address = addresses.any_in(self._rack) if self._sent_on else addresses.any()
            await self.poll(address, max_wait_ms=self._rng.choice((0, 100, 1000)))
            await asyncio.sleep(self._rng.choice((0.0, 0.05)))

    async def poll(self, address: tuple[str, int], *, max_wait_ms: int) -> None:
        """One fetch; every record goes into the account. Nothing when there is no answer."""
        bytes_max = self._rng.choice((1, 300, 1 << 20))
        partitions = [
            hot.FetchPartition(
                partition=partition, fetch_offset=offset, partition_max_bytes=bytes_max
            )
            for partition, offset in self.offsets.items()
        ]
        self._rng.shuffle(partitions)
        request = hot.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=self._rng.choice((1, 1 << 20)),
            topics=[hot.FetchTopic(topic=TOPIC, partitions=partitions)],
        )
        version = self._rng.choice(FETCH_VERSIONS)
        if version >= RACK_FROM:
            request.rack_id = self._rack
        self._sent_on = False
        try:
            answer = await self._client.ask(address, apis.FETCH, version, request)
        except LostError:
            await asyncio.sleep(0.2)
            return
        for topic in answer.responses:
            for partition in topic.partitions:
                self._take(partition)
                if partition.preferred_read_replica != -1:
                    self._go_on_elsewhere(address, partition)

    def _go_on_elsewhere(self, address: tuple[str, int], answer: hot.PartitionData) -> None:
        self._sent_on = True
        if answer.records or answer.error_code or self._addresses.zones.get(address) == self._rack:
            self._account.violations.append(
                f"{self._client.name} of rack {self._rack} was sent on by {address} with error "
                f"{answer.error_code} and {len(answer.records or b'')} bytes of records"
            )

    def _take(self, answer: hot.PartitionData) -> None:
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._account.violations.append(
                f"{self._client.name} at {self.offsets[answer.partition_index]} of partition "
                f"{answer.partition_index} was told OFFSET_OUT_OF_RANGE (P8)"
            )
        records = bytes(answer.records or b"")
        at, partition = 0, answer.partition_index
        while at < len(records):
            header = read_header(records, at)
            for record in iterate(records, at):
                if record.offset < self.offsets[partition]:
                    continue
                if record.offset != self.offsets[partition]:
                    self._account.violations.append(
                        f"{self._client.name} was given ({partition}, {record.offset}) "
                        f"when it wanted {self.offsets[partition]} (P7)"
                    )
                self._account.saw(self._client.name, (partition, record.offset), record.value)
                self.log[partition, record.offset] = record.value
                self.offsets[partition] = record.offset + 1
            at += 12 + header.length


async def end_offsets(client: Client, address: tuple[str, int], partitions: int) -> dict[int, int]:
    """The end offsets that one agent tells. Raises LostError; partitions in error are left out."""
    wanted = [
        messages.ListOffsetsPartition(partition_index=index, timestamp=-1)
        for index in range(partitions)
    ]
    request = messages.ListOffsetsRequest(
        replica_id=-1, topics=[messages.ListOffsetsTopic(name=TOPIC, partitions=wanted)]
    )
    answer = await client.ask(address, apis.LIST_OFFSETS, 2, request)
    return {
        partition.partition_index: partition.offset
        for partition in answer.topics[0].partitions
        if partition.error_code == ErrorCode.NONE
    }


async def ask_ends(client: Client, addresses: Addresses, account: Account, partitions: int) -> None:
    """For ever: what was acknowledged before the question lies below every answer (P8)."""
    while True:
        least: dict[int, int] = {}
        for partition, offset in account.acknowledged.values():
            least[partition] = max(least.get(partition, 0), offset + 1)
        try:
            ends = await end_offsets(client, addresses.any(), partitions)
        except LostError:
            ends = {}
        for partition, end in ends.items():
            if end < least.get(partition, 0):
                account.violations.append(
                    f"the end of partition {partition} was told as {end} after offset "
                    f"{least[partition] - 1} had been acknowledged (P8)"
                )
        await asyncio.sleep(0.5)
