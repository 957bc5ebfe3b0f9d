"""Clients of bounded topics: writers, readers that lag, and those who delete records and topics."""

import asyncio
import random
from collections.abc import Callable

from protocol import apis, messages
from protocol.errors import ErrorCode
from protocol.messages import hot
from protocol.records import TRANSACTIONAL, Record, build_batch, iterate, read_header
from tests.sim.bounded_account import BoundedAccount, Line, Partition
from tests.sim.client import Client, LostError
from tests.sim.workload import (
    FETCH_VERSIONS,
    PRODUCE_VERSIONS,
    UNDECIDED,
    Addresses,
)

EARLIEST, LATEST = -2, -1
TXN_HOLDS_S = (0.5, 3.0, 8.0)


class Bounded:
    """What all these clients have: a connection, an account, chance, and the time."""

    def __init__(
        self,
        client: Client,
        addresses: Addresses,
        account: BoundedAccount,
        rng: random.Random,
        now_ms: Callable[[], int],
    ) -> None:
        self.client = client
        self.addresses = addresses
        self.account = account
        self.rng = rng
        self.now_ms = now_ms
        self.stopping = False

    async def ask(self, key: int, version: int, request):
        """From whichever agent; None when there is no answer."""
        try:
            return await self.client.ask(self.addresses.any(), key, version, request)
        except LostError:
            await asyncio.sleep(0.2)
            return None

    async def until_done(self, key: int, version: int, request, error_of, done) -> object:
        """Ask until it has happened."""
        while True:
            answer = await self.ask(key, version, request)
            if answer is not None and error_of(answer) in done:
                return answer
            await asyncio.sleep(0.3)

    async def limit(self, partition: Partition, timestamp: int, address=None) -> int | None:
        """What ListOffsets tells of an end; None when it tells nothing. `address`: ask there."""
        name, index = partition
        wanted = messages.ListOffsetsPartition(partition_index=index, timestamp=timestamp)
        request = messages.ListOffsetsRequest(
            replica_id=-1, topics=[messages.ListOffsetsTopic(name=name, partitions=[wanted])]
        )
        least = self.account.starts[partition]
        try:
            to = self.addresses.any() if address is None else address
            answer = await self.client.ask(to, apis.LIST_OFFSETS, 2, request)
        except LostError:
            await asyncio.sleep(0.2)
            return None
        row = answer.topics[0].partitions[0]
        if row.error_code != ErrorCode.NONE:
            return None
        if timestamp == EARLIEST:
            self.account.starts_at(
                self.client.name, partition, row.offset, least=least, now_ms=self.now_ms()
            )
        return row.offset


async def create_topic(
    worker: Bounded, name: str, partitions: int, configs: dict[str, str]
) -> None:
    """Until it is there."""
    request = messages.CreateTopicsRequest(
        topics=[
            messages.CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=1,
                configs=[
                    messages.CreatableTopicConfig(name=key, value=value)
                    for key, value in configs.items()
                ],
            )
        ],
        timeout_ms=5000,
    )
    await worker.until_done(
        apis.CREATE_TOPICS,
        5,
        request,
        lambda answer: answer.topics[0].error_code,
        (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS),
    )


class Writer(Bounded):
    """Writes to one partition, a batch at a time, until told to stop; then finishes."""

    def __init__(
        self,
        *given,
        partition: Partition,
        keys: int = 0,
        idempotent: bool = True,
        pauses_s: tuple[float, ...] = (0.0, 0.2, 1.0),
    ) -> None:
        """`keys`: how many; 0: records have none."""
        super().__init__(*given)
        self.partition = partition
        self._keys = keys
        self._idempotent = idempotent
        self._pauses_s = pauses_s
        self._producer = (-1, -1)
        self._sequence = 0
        self.number = 0

    async def run(self) -> None:
        while not self.stopping:
            await self.write()
            await asyncio.sleep(self.rng.choice(self._pauses_s))

    async def write(self) -> None:
        """One batch, until its fate is known or will never be."""
        if self._idempotent and self._producer[0] < 0:
            self._producer = await init_producer(self)
        lines = [self._line() for _ in range(self.rng.choice((1, 1, 3, 20)))]
        data = self._batch(lines)
        self._sequence += len(lines)
        while await self._send(lines, data):
            await asyncio.sleep(0.1)

    def _line(self) -> Line:
        self.number += 1
        ident = f"{self.client.name}-{self.number}".encode()
        key = f"k{self.rng.randrange(self._keys)}".encode() if self._keys else None
        value: bytes | None = ident * self.rng.choice((1, 4, 10))
        if self._keys and self.rng.random() < 0.2:
            value = None
        line = Line(ident, key, value, self.now_ms() - self.rng.choice((0, 0, 5, 400)))
        self.account.sent[self.partition][ident] = line
        return line

    def _batch(self, lines: list[Line]) -> bytes:
        producer_id, epoch = self._producer
        return build_batch(
            [record_of(line) for line in lines],
            codec=self.rng.choice((0, 0, 1)),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self._sequence if self._idempotent else -1,
        )

    async def _send(self, lines: list[Line], data: bytes) -> bool:
        """Whether to send it again."""
        version = self.rng.choice(PRODUCE_VERSIONS)
        answer = await self.ask(apis.PRODUCE, version, produce(self.partition, data))
        if answer is None:
            return self._idempotent
        row = answer.responses[0].partition_responses[0]
        if row.error_code == ErrorCode.NONE:
            self.account.acknowledge(self.partition, row.base_offset, lines)
            return False
        if not self._idempotent:
            if row.error_code not in UNDECIDED:
                self.account.refused[self.partition].update(line.ident for line in lines)
            return False
        if row.error_code in (
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            ErrorCode.UNKNOWN_PRODUCER_ID,
            ErrorCode.INVALID_PRODUCER_EPOCH,
        ):
            self.account.violations.append(f"{self.client.name} was told {row.error_code}")
            return False
        return True


def record_of(line: Line) -> Record:
    headers = (("i", line.ident),)
    return Record(timestamp=line.timestamp, key=line.key, value=line.value, headers=headers)


def produce(partition: Partition, data: bytes, transactional_id=None) -> hot.ProduceRequest:
    name, index = partition
    rows = [hot.PartitionProduceData(index=index, records=data)]
    return hot.ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[hot.TopicProduceData(name=name, partition_data=rows)],
    )


async def init_producer(worker: Bounded) -> tuple[int, int]:
    """A producer without transactions."""
    request = messages.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    answer = await worker.until_done(
        apis.INIT_PRODUCER_ID, 4, request, lambda answer: answer.error_code, (ErrorCode.NONE,)
    )
    return answer.producer_id, answer.producer_epoch


class Transactor(Bounded):
    """Has transactions open for a while, and ends them; what went wrong is begun anew. Its
    records are in no acknowledgement: they stand in the way, that is all."""

    def __init__(self, *given, partition: Partition) -> None:
        super().__init__(*given)
        self.partition = partition
        self._number = 0

    async def run(self) -> None:
        while not self.stopping:
            producer_id, epoch, address = await self._begin()
            sequence = 0
            while not self.stopping and await self._transact(producer_id, epoch, sequence, address):
                sequence += 1
        # Whatever is open is ended by that.
        await self._begin()

    async def _begin(self) -> tuple[int, int, tuple[str, int]]:
        """A producer and the address of its coordinator, for now."""
        request = messages.InitProducerIdRequest(
            transactional_id=self.client.name, transaction_timeout_ms=20_000
        )
        while True:
            address = self.addresses.any()
            answer = await self._ask(address, apis.INIT_PRODUCER_ID, 4, request)
            if answer is not None and answer.error_code == ErrorCode.NONE:
                return answer.producer_id, answer.producer_epoch, address
            await asyncio.sleep(0.1)

    async def _ask(self, address: tuple[str, int], key: int, version: int, request):
        try:
            return await self.client.ask(address, key, version, request)
        except LostError:
            await asyncio.sleep(0.2)
            return None

    async def _transact(
        self, producer_id: int, epoch: int, sequence: int, address: tuple[str, int]
    ) -> bool:
        """One record in a transaction; whether all went well."""
        self._number += 1
        ident = f"{self.client.name}-{self._number}".encode()
        line = Line(ident, None, ident, self.now_ms())
        self.account.sent[self.partition][ident] = line
        data = build_batch(
            [record_of(line)],
            attributes=TRANSACTIONAL,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        name, index = self.partition
        added = messages.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.client.name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[messages.AddPartitionsToTxnTopic(name=name, partitions=[index])],
        )
        answer = await self._ask(address, apis.ADD_PARTITIONS_TO_TXN, 3, added)
        if answer is None or any(
            row.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for row in topic.results_by_partition
        ):
            await asyncio.sleep(0.3)
            return False
        answer = await self.ask(apis.PRODUCE, 11, produce(self.partition, data, self.client.name))
        if answer is None or answer.responses[0].partition_responses[0].error_code:
            return False
        self.account.counts["transactions"] += 1
        await asyncio.sleep(self.rng.choice(TXN_HOLDS_S))
        end = messages.EndTxnRequest(
            transactional_id=self.client.name,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=self.rng.random() < 0.5,
        )
        answer = await self._ask(address, apis.END_TXN, 3, end)
        return answer is not None and answer.error_code == ErrorCode.NONE


class LaggingReader(Bounded):
    """Reads some partitions, with long rests; now and then it begins anew somewhere."""

    def __init__(self, *given, partitions: list[Partition], topic_id: bytes | None = None) -> None:
        """`topic_id`: of the one topic, asked for by id; it may be one of several of that name."""
        super().__init__(*given)
        self.offsets = dict.fromkeys(partitions, 0)
        self.lines: dict[Partition, dict[int, Line]] = {each: {} for each in partitions}
        self._topic_id = topic_id

    async def run(self) -> None:
        while True:
            await self.poll(self.addresses.any(), max_wait_ms=self.rng.choice((0, 100, 1000)))
            await asyncio.sleep(self.rng.choice((0.05, 0.3, 1.0, 6.0)))
            if self.rng.random() < 0.15:
                partition = self.rng.choice(sorted(self.offsets))
                self.offsets[partition] = self.rng.randrange(self.offsets[partition] + 1)

    async def poll(self, address: tuple[str, int], *, max_wait_ms: int) -> None:
        bytes_max = self.rng.choice((1, 300, 1 << 20))
        wanted: dict[str, list[hot.FetchPartition]] = {}
        for (name, index), offset in self.offsets.items():
            wanted.setdefault(name, []).append(
                hot.FetchPartition(
                    partition=index, fetch_offset=offset, partition_max_bytes=bytes_max
                )
            )
        version = self.rng.choice(FETCH_VERSIONS)
        topics = [hot.FetchTopic(topic=name, partitions=rows) for name, rows in wanted.items()]
        if self._topic_id is not None:
            version = 13
            topics = [
                hot.FetchTopic(topic_id=self._topic_id, partitions=next(iter(wanted.values())))
            ]
        request = hot.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=self.rng.choice((1, 1 << 20)),
            topics=topics,
        )
        try:
            answer = await self.client.ask(address, apis.FETCH, version, request)
        except LostError:
            await asyncio.sleep(0.2)
            return
        beyond = []
        for topic in answer.responses:
            name = topic.topic if self._topic_id is None else next(iter(wanted))
            for row in topic.partitions:
                partition = (name, row.partition_index)
                if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    beyond.append(partition)
                else:
                    self._take(partition, bytes(row.records or b""))
        for partition in beyond:
            await self._jump(partition, address)

    async def _jump(self, partition: Partition, address: tuple[str, int]) -> None:
        """To the log start, as `auto.offset.reset=earliest` has it."""
        start = await self.limit(partition, EARLIEST, address)
        if start is None:
            return
        if start <= self.offsets[partition]:
            self.account.violations.append(
                f"{self.client.name} at {self.offsets[partition]} of {partition} was told "
                f"OFFSET_OUT_OF_RANGE, and it starts at {start} (P8)"
            )
        self.account.counts["jumps"] += 1
        self.offsets[partition] = start

    def _take(self, partition: Partition, records: bytes) -> None:
        name = self.client.name
        at = 0
        while at < len(records):
            header = read_header(records, at)
            if not header.is_control:
                for record in iterate(records, at):
                    if record.offset >= self.offsets[partition]:
                        self._see(partition, record)
            if header.last_offset + 1 > self.offsets[partition]:
                if partition[0] in self.account.dense:
                    self.account.violations.append(
                        f"{name} was given an end {header.last_offset} of {partition} without records"
                    )
                self.offsets[partition] = header.last_offset + 1
            at += header.size

    def _see(self, partition: Partition, record: Record) -> None:
        name, here = self.client.name, self.offsets[partition]
        if partition[0] in self.account.dense and record.offset != here:
            self.account.violations.append(
                f"{name} was given {record.offset} of {partition} when it wanted {here} (P7)"
            )
        line = Line(record.headers[0][1], record.key, record.value, record.timestamp)
        self.account.saw(name, partition, record.offset, line)
        self.lines[partition][record.offset] = line
        self.offsets[partition] = record.offset + 1


class Deleter(Bounded):
    """Deletes records at random offsets."""

    def __init__(self, *given, partitions: list[Partition], to_the_end: bool) -> None:
        super().__init__(*given)
        self._partitions = partitions
        self._to_the_end = to_the_end

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.rng.uniform(0.5, 6.0))
            await self._delete(self.rng.choice(self._partitions))

    async def _delete(self, partition: Partition) -> None:
        account, name = self.account, self.client.name
        end = await self.limit(partition, LATEST)
        if end is None:
            return
        least = account.starts[partition]
        offset = self.rng.randrange(end + 1)
        if self._to_the_end and self.rng.random() < 0.2:
            offset = -1
        wished = account.wished[partition]
        to_end = offset == -1 or wished is None
        account.wished[partition] = None if to_end else max(wished, offset)
        rows = [messages.DeleteRecordsPartition(partition_index=partition[1], offset=offset)]
        request = messages.DeleteRecordsRequest(
            topics=[messages.DeleteRecordsTopic(name=partition[0], partitions=rows)],
            timeout_ms=8000,
        )
        answer = await self.ask(apis.DELETE_RECORDS, self.rng.choice((0, 1, 2)), request)
        if answer is None:
            return
        row = answer.topics[0].partitions[0]
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            account.violations.append(f"{name} may not delete to {offset}, the end was {end}")
        if row.error_code == ErrorCode.NONE:
            account.counts["deletes"] += 1
            if row.low_watermark < offset:
                account.violations.append(
                    f"{name} deleted to {offset} of {partition}, it starts at {row.low_watermark}"
                )
            account.starts_at(name, partition, row.low_watermark, least=least, now_ms=self.now_ms())


class Asker(Bounded):
    """Asks where logs start: no answer is below what anybody was told before the question."""

    def __init__(self, *given, partitions: list[Partition]) -> None:
        super().__init__(*given)
        self._partitions = partitions

    async def run(self) -> None:
        while True:
            await self.limit(self.rng.choice(self._partitions), EARLIEST)
            await asyncio.sleep(self.rng.choice((0.1, 0.7)))


class Configurer(Bounded):
    """Changes a topic's retention while it is in use."""

    def __init__(self, *given, topic: str, choices: list[str]) -> None:
        super().__init__(*given)
        self._topic = topic
        self._choices = choices

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.rng.uniform(2.0, 12.0))
            await self.ask(
                apis.INCREMENTAL_ALTER_CONFIGS, 1, self._request(self.rng.choice(self._choices))
            )

    async def settle(self, retention_ms: str) -> None:
        """Until it is so."""
        await self.until_done(
            apis.INCREMENTAL_ALTER_CONFIGS,
            1,
            self._request(retention_ms),
            lambda answer: answer.responses[0].error_code,
            (ErrorCode.NONE,),
        )

    def _request(self, retention_ms: str):
        value = int(retention_ms)
        least = self.account.retention_ms[self._topic]
        if value >= 0:
            self.account.retention_ms[self._topic] = value if least < 0 else min(least, value)
        config = messages.IncrementalAlterableConfig(
            name="retention.ms", config_operation=0, value=retention_ms
        )
        resource = messages.IncrementalAlterConfigsResource(
            resource_type=2, resource_name=self._topic, configs=[config]
        )
        return messages.IncrementalAlterConfigsRequest(resources=[resource])


class Remaker(Bounded):
    """Makes a topic, writes to it, reads it, deletes it, and so on; in the end it is gone."""

    NAME = "again"

    def __init__(self, *given) -> None:
        super().__init__(*given)
        self._known: set = set()
        """Ids of all lives."""

    async def run(self) -> None:
        while not self.stopping:
            await create_topic(self, self.NAME, 1, {})
            topic_id = await self._topic_id()
            await self._live(topic_id)
            await self._delete(topic_id)
            self.account.counts["topics deleted"] += 1
            await asyncio.sleep(self.rng.choice((0.0, 1.0)))

    async def _topic_id(self):
        """Of the new life; an agent that is behind may still tell the one before."""
        request = messages.MetadataRequest(
            topics=[messages.MetadataRequestTopic(name=self.NAME)], allow_auto_topic_creation=False
        )
        while True:
            answer = await self.until_done(
                apis.METADATA, 12, request, lambda answer: answer.topics[0].error_code, (0,)
            )
            topic_id = answer.topics[0].topic_id
            if topic_id not in self._known:
                self._known.add(topic_id)
                return topic_id
            await asyncio.sleep(0.2)

    async def _live(self, topic_id) -> None:
        """Nobody else writes to the topic, so what was acknowledged is all there, at its place."""
        partition = (self.NAME, 0)
        account = BoundedAccount({self.NAME})
        # A frame that was long under way may reach a later life.
        account.sent = self.account.sent
        given = (self.client, self.addresses, account, self.rng, self.now_ms)
        writer = Writer(*given, partition=partition)
        writer.number = 1000 * len(self._known)
        reader = LaggingReader(*given, partitions=[partition], topic_id=topic_id)
        for _ in range(self.rng.choice((1, 4, 8))):
            await writer.write()
            await asyncio.sleep(self.rng.choice((0.0, 0.3, 1.0)))
        end = max(account.acked[partition], default=-1) + 1
        while reader.offsets[partition] < end:
            await reader.poll(self.addresses.any(), max_wait_ms=100)
        self.account.violations += account.violations

    async def _delete(self, topic_id) -> None:
        request = messages.DeleteTopicsRequest(
            topics=[messages.DeleteTopicState(topic_id=topic_id)], timeout_ms=5000
        )
        await self.until_done(
            apis.DELETE_TOPICS,
            6,
            request,
            lambda answer: answer.responses[0].error_code,
            (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID),
        )
