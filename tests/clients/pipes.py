"""Pipes of each client: consume, transform, produce, exactly once.

A pipe is a member of a group that commits its offsets in the transactions of its producer.
"""

import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

import aiokafka
import confluent_kafka
import kafka
from aiokafka.structs import TopicPartition as AiokafkaPartition
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaPythonPartition

from tests.clients.groups import Got, Place
from tests.clients.members import JOINING_POLL_MS, POLL_MS
from tests.clients.producers import (
    CALL_S,
    AiokafkaProducer,
    ConfluentProducer,
    KafkaPythonProducer,
    Loop,
    TransactionError,
    TxnHost,
    TxnProducer,
)

ABORTS = 0.25
"""How often a pipe aborts what it could commit."""


class Pipe(ABC):
    """A worker that reads a topic in a group, and writes each value with a "!" to another one.

    It aborts at random what it could commit, and then reads it again.
    """

    @abstractmethod
    def stop(self) -> tuple[int, int]:
        """End it; how often it committed, and how often it aborted. TransactionError if it died."""


P = TypeVar("P", bound=TxnProducer)


class ThreadedPipe(Pipe, Generic[P]):
    """A pipe of a client in Python, in a thread of its own, which makes the producer there."""

    def __init__(self, make: Callable[[], P], sink: str, seed: int) -> None:
        self._make = make
        self._sink = sink
        self._producer: P
        self._random = random.Random(seed)
        self._ending = threading.Event()
        self._failure: Exception | None = None
        self._counts = [0, 0]
        self._thread = threading.Thread(target=self._guarded, daemon=True)

    @abstractmethod
    def _poll(self) -> list[Got]: ...

    @abstractmethod
    def _send_offsets(self, offsets: dict[Place, int]) -> None: ...

    @abstractmethod
    def _seek(self, offsets: dict[Place, int]) -> None: ...

    @abstractmethod
    def _close(self) -> None:
        """The consumer."""

    def stop(self) -> tuple[int, int]:
        self._ending.set()
        self._thread.join(CALL_S)
        assert not self._thread.is_alive(), "a pipe does not end"
        if self._failure is not None:
            raise TransactionError(repr(self._failure)) from self._failure
        return self._counts[0], self._counts[1]

    def _guarded(self) -> None:
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - A pipe that died is told of by the test.
            self._failure = error

    def _run(self) -> None:
        self._producer = producer = self._make()
        while not self._ending.is_set():
            records = self._poll()
            if not records:
                continue
            ends = {(it.topic, it.partition): it.offset + 1 for it in records}
            starts = {(it.topic, it.partition): it.offset for it in reversed(records)}
            producer.begin()
            producer.send(self._sink, [(it.partition, f"{it.value}!") for it in records])
            self._send_offsets(ends)
            if self._random.random() < ABORTS:
                producer.abort()
                self._seek(starts)
                self._counts[1] += 1
            else:
                producer.commit()
                self._counts[0] += 1
        self._close()
        producer.close()


BATCH = 20
"""Records per transaction, at most, where a client lets one say so."""


class ConfluentPipe(ThreadedPipe[ConfluentProducer]):
    def __init__(
        self, bootstrap: str, transactional_id: str, source: str, sink: str, *, seed: int
    ) -> None:
        super().__init__(lambda: ConfluentProducer(bootstrap, transactional_id), sink, seed)
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": sink,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 100,
            }
        )
        self._consumer.subscribe([source])
        self._thread.start()

    def _poll(self) -> list[Got]:
        found = self._consumer.consume(BATCH, timeout=0.1)
        for message in found:
            assert message.error() is None, message.error()
        return [Got(it.topic(), it.partition(), it.offset(), it.value().decode()) for it in found]

    def _send_offsets(self, offsets: dict[Place, int]) -> None:
        rows = [confluent_kafka.TopicPartition(*place, end) for place, end in offsets.items()]
        metadata = self._consumer.consumer_group_metadata()
        self._producer.client.send_offsets_to_transaction(rows, metadata, CALL_S)

    def _seek(self, offsets: dict[Place, int]) -> None:
        for place, start in offsets.items():
            self._consumer.seek(confluent_kafka.TopicPartition(*place, start))

    def _close(self) -> None:
        self._consumer.close()


class KafkaPythonPipe(ThreadedPipe[KafkaPythonProducer]):
    def __init__(
        self, bootstrap: str, transactional_id: str, source: str, sink: str, *, seed: int
    ) -> None:
        super().__init__(lambda: KafkaPythonProducer(bootstrap, transactional_id), sink, seed)
        self._consumer = kafka.KafkaConsumer(
            source,
            bootstrap_servers=bootstrap,
            group_id=sink,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            fetch_max_wait_ms=100,
            max_poll_records=BATCH,
        )
        self._thread.start()

    def _poll(self) -> list[Got]:
        joins = self._consumer._coordinator.need_rejoin()
        polled = self._consumer.poll(timeout_ms=JOINING_POLL_MS if joins else POLL_MS)
        return [
            Got(it.topic, it.partition, it.offset, it.value.decode())
            for batch in polled.values()
            for it in batch
        ]

    def _send_offsets(self, offsets: dict[Place, int]) -> None:
        rows = {
            KafkaPythonPartition(*place): OffsetAndMetadata(end, "", -1)
            for place, end in offsets.items()
        }
        self._producer.client.send_offsets_to_transaction(rows, self._consumer.group_metadata())

    def _seek(self, offsets: dict[Place, int]) -> None:
        for place, start in offsets.items():
            self._consumer.seek(KafkaPythonPartition(*place), start)

    def _close(self) -> None:
        self._consumer.close()


class AiokafkaPipe(ThreadedPipe[AiokafkaProducer]):
    def __init__(
        self, bootstrap: str, transactional_id: str, source: str, sink: str, *, seed: int
    ) -> None:
        self._loop = loop = Loop()
        super().__init__(
            lambda: AiokafkaProducer(bootstrap, transactional_id, loop=loop), sink, seed
        )

        async def start() -> aiokafka.AIOKafkaConsumer:
            consumer = aiokafka.AIOKafkaConsumer(
                source,
                bootstrap_servers=bootstrap,
                group_id=sink,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed",
                fetch_max_wait_ms=100,
            )
            await consumer.start()
            return consumer

        self._consumer = self._loop.run(start)
        self._thread.start()

    def _poll(self) -> list[Got]:
        polled = self._loop.run(lambda: self._consumer.getmany(timeout_ms=50, max_records=BATCH))
        return [
            Got(it.topic, it.partition, it.offset, it.value.decode())
            for batch in polled.values()
            for it in batch
        ]

    def _send_offsets(self, offsets: dict[Place, int]) -> None:
        rows = {AiokafkaPartition(*place): end for place, end in offsets.items()}
        self._loop.run(lambda: self._producer.client.send_offsets_to_transaction(rows, self._sink))

    def _seek(self, offsets: dict[Place, int]) -> None:
        for place, start in offsets.items():
            self._consumer.seek(AiokafkaPartition(*place), start)

    def stop(self) -> tuple[int, int]:
        try:
            return super().stop()
        finally:
            self._loop.stop()

    def _close(self) -> None:
        self._loop.run(self._consumer.stop)


class HostedPipe(Pipe):
    """A pipe in a host."""

    def __init__(
        self,
        host: TxnHost,
        bootstrap: str,
        transactional_id: str,
        source: str,
        sink: str,
        *,
        seed: int,
    ) -> None:
        self._host = host
        self._name = host.fresh()
        host.ask("pipe", self._name, bootstrap, transactional_id, source, sink, str(seed))

    def stop(self) -> tuple[int, int]:
        commits, aborts = self._host.ask("stop", self._name)
        return int(commits), int(aborts)
