"""Clients of bounded topics: those who hold transactions open, and who delete records and topics."""

import asyncio
from typing import Any

from typing_extensions import override

from protocol import apis, messages
from protocol.errors import ErrorCode
from protocol.records import TRANSACTIONAL, build_batch
from protocol.types import TopicId
from tests.kit import requests
from tests.kit.requests import LATEST, Partition, error_of
from tests.sim.account import Line, RecordAccount
from tests.sim.client import Address
from tests.sim.workload import Producer, Reader, RecordsCluster, RecordWorker, record_of

TXN_HOLDS_S = (0.5, 3.0, 8.0)


class Transactor(RecordWorker):
    """Has transactions open for a while, and ends them; what went wrong is begun anew. Its
    records are in no acknowledgement: they stand in the way, that is all."""

    def __init__(self, world: RecordsCluster, name: str, partition: Partition) -> None:
        super().__init__(world, name)
        self._partition = partition
        self._number = 0

    @override
    async def run(self) -> None:
        while not self.stopping:
            producer, address = await self._begin()
            sequence = 0
            while await self._transact(producer, sequence, address):
                sequence += 1
        # Whatever is open is ended by that.
        await self._begin()

    async def _begin(self) -> tuple[requests.Producer, Address]:
        """A producer and the address of its coordinator, for now."""
        request = requests.init_producer_id(self.name, timeout_ms=20_000)
        while True:
            address = self.client.anybody()
            answer = await self.client.try_ask(apis.INIT_PRODUCER_ID, 4, request, at=address)
            if answer is not None and answer.error_code == ErrorCode.NONE:
                return (answer.producer_id, answer.producer_epoch), address
            await asyncio.sleep(0.1)

    async def _went_well(
        self, key: int, version: int, request: Any, at: Address | None = None
    ) -> bool:
        answer = await self.client.try_ask(key, version, request, at=at)
        return answer is not None and error_of(answer) == ErrorCode.NONE

    async def _transact(self, producer: requests.Producer, sequence: int, address: Address) -> bool:
        """One record in a transaction; whether all went well."""
        self._number += 1
        ident = f"{self.name}-{self._number}".encode()
        line = Line(ident, None, ident, self.world.now_ms())
        self.account.sent[self._partition][ident] = line
        data = build_batch(
            [record_of(line)],
            attributes=TRANSACTIONAL,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
        )
        added = requests.add_partitions(self.name, producer, [self._partition])
        if not await self._went_well(apis.ADD_PARTITIONS_TO_TXN, 3, added, address):
            await asyncio.sleep(0.3)
            return False
        produced = requests.produce({self._partition: data}, transactional_id=self.name)
        if not await self._went_well(apis.PRODUCE, 11, produced):
            return False
        self.account.counts["transactions"] += 1
        await asyncio.sleep(self.rng.choice(TXN_HOLDS_S))
        end = requests.end_txn(self.name, producer, commit=self.rng.random() < 0.5)
        return await self._went_well(apis.END_TXN, 3, end, address) and not self.stopping


class Deleter(RecordWorker):
    """Deletes records at random offsets."""

    def __init__(
        self, world: RecordsCluster, name: str, partitions: list[Partition], *, to_the_end: bool
    ) -> None:
        super().__init__(world, name)
        self._partitions = partitions
        self._to_the_end = to_the_end

    @override
    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.rng.uniform(0.5, 6.0))
            await self._delete(self.rng.choice(self._partitions))

    async def _delete(self, partition: Partition) -> None:
        account = self.account
        end = await self.limit(partition, LATEST)
        if end is None:
            return
        least = account.starts[partition]
        offset = self.rng.randrange(end + 1)
        if self._to_the_end and self.rng.random() < 0.2:
            offset = -1
        wished = account.wished[partition]
        account.wished[partition] = None if offset == -1 or wished is None else max(wished, offset)
        rows = [messages.DeleteRecordsPartition(partition_index=partition[1], offset=offset)]
        request = messages.DeleteRecordsRequest(
            topics=[messages.DeleteRecordsTopic(name=partition[0], partitions=rows)],
            timeout_ms=8000,
        )
        version = self.rng.choice((0, 1, 2))
        answer = await self.client.try_ask(apis.DELETE_RECORDS, version, request)
        if answer is None:
            return
        row = answer.topics[0].partitions[0]
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.wrong(f"may not delete to {offset}, the end was {end}")
        if row.error_code == ErrorCode.NONE:
            account.counts["deletes"] += 1
            start = row.low_watermark
            if start < offset:
                self.wrong(f"deleted to {offset} of {partition}, it starts at {start}")
            now_ms = self.world.now_ms()
            account.starts_at(self.name, partition, start, least=least, now_ms=now_ms)


class Configurer(RecordWorker):
    """Sets configs of topics until they are so, and changes some while they are in use."""

    async def until_set(self, topic: str, configs: dict[str, str]) -> None:
        """Agents of an older release may stand in its way for as long as one lives."""
        self._note(topic, configs)
        request = requests.alter_configs(topic, configs)
        await self.client.until_done(apis.INCREMENTAL_ALTER_CONFIGS, 1, request)

    async def keep_changing(self, topic: str, choices: list[dict[str, str]]) -> None:
        while True:
            await asyncio.sleep(self.rng.uniform(2.0, 12.0))
            configs = self.rng.choice(choices)
            self._note(topic, configs)
            request = requests.alter_configs(topic, configs)
            await self.client.try_ask(apis.INCREMENTAL_ALTER_CONFIGS, 1, request)

    def _note(self, topic: str, configs: dict[str, str]) -> None:
        """From now on records may go that are so old, where retention is judged."""
        value, known = int(configs.get("retention.ms", "-1")), self.account.retention_ms
        if value >= 0 and topic in known:
            known[topic] = value if known[topic] < 0 else min(known[topic], value)


class Remaker(RecordWorker):
    """Makes a topic, writes to it, reads it, deletes it, and so on; in the end it is gone."""

    NAME = "again"

    def __init__(self, world: RecordsCluster, name: str) -> None:
        super().__init__(world, name)
        self._known: set[TopicId] = set()
        """Ids of all lives."""

    @override
    async def run(self) -> None:
        while not self.stopping:
            await self.client.create_topics({self.NAME: 1})
            topic_id = await self._topic_id()
            await self._live(topic_id)
            await self._delete(topic_id)
            self.account.counts["topics deleted"] += 1
            await asyncio.sleep(self.rng.choice((0.0, 1.0)))

    async def _topic_id(self) -> TopicId:
        """Of the new life; an agent that is behind may still tell the one before."""
        request = requests.metadata(self.NAME)
        while True:
            answer = await self.client.until_done(apis.METADATA, 12, request)
            topic_id: TopicId = answer.topics[0].topic_id
            if topic_id not in self._known:
                self._known.add(topic_id)
                return topic_id
            await asyncio.sleep(0.2)

    async def _live(self, topic_id: TopicId) -> None:
        """Nobody else writes to the topic, so what was acknowledged is all there, at its place."""
        partition = (self.NAME, 0)
        account = RecordAccount(self.account.violations, self.account.counts, dense={self.NAME})
        # A frame that was long under way may reach a later life.
        account.sent = self.account.sent
        producer = Producer(self.world, self.name, partition)
        reader = Reader(self.world, self.name, [partition])
        producer.account = reader.account = account
        producer.number = 1000 * len(self._known)
        reader.topic_id = topic_id
        for _ in range(self.rng.choice((1, 4, 8))):
            await producer.write()
            await asyncio.sleep(self.rng.choice((0.0, 0.3, 1.0)))
        await reader.read_to({partition: account.end_least(partition)})
        producer.client.close()
        reader.client.close()

    async def _delete(self, topic_id: TopicId) -> None:
        request = messages.DeleteTopicsRequest(
            topics=[messages.DeleteTopicState(topic_id=topic_id)], timeout_ms=5000
        )
        await self.client.until_done(apis.DELETE_TOPICS, 6, request, [ErrorCode.UNKNOWN_TOPIC_ID])
