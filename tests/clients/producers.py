"""Transactional producers of each client, and pipes: consume, transform, produce, exactly once.

Every call waits until it is done, so that tests are scripts. What runs in the process of another
language obeys lines of words between tabs, as java/Transactions.java and js/transactions.js say.
"""

import asyncio
import atexit
import contextlib
import queue
import random
import signal
import subprocess
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
from aiokafka.structs import TopicPartition as AiokafkaPartition
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaPythonPartition

from tests.clients.groups import Got, Place
from tests.clients.members import JOINING_POLL_MS, POLL_MS
from tests.parts import install

CALL_S = 40.0
ANSWER_S = 90.0
"""Of a host: longer than any call of a client takes to give up."""
TRANSACTION_TIMEOUT_MS = 30_000
ABORTS = 0.25
"""How often a pipe aborts what it could commit."""
HERE = Path(__file__).parent


class TransactionError(Exception):
    """The client says that it did not work, in its own words."""


class TxnProducer(ABC):
    """A producer with a transactional id, ready to begin when it has been made."""

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def send(self, topic: str, values: Sequence[tuple[int, str]]) -> None:
        """Write values, each to its partition, and wait until all are acknowledged."""

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def abort(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class ConfluentProducer(TxnProducer):
    """librdkafka."""

    def __init__(
        self, bootstrap: str, transactional_id: str, timeout_ms: int = TRANSACTION_TIMEOUT_MS
    ) -> None:
        self.client = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 5,
                "reconnect.backoff.max.ms": 500,
                "log_level": 2,
            }
        )
        with _told(confluent_kafka.KafkaException):
            self.client.init_transactions(CALL_S)

    def begin(self) -> None:
        with _told(confluent_kafka.KafkaException):
            self.client.begin_transaction()

    def send(self, topic: str, values: Sequence[tuple[int, str]]) -> None:
        failures: list[object] = []
        for partition, value in values:
            self.client.produce(
                topic,
                value=value,
                partition=partition,
                on_delivery=lambda error, _: error is not None and failures.append(error),
            )
        left = self.client.flush(CALL_S)
        if failures or left:
            raise TransactionError(failures[:1] or "not acknowledged in time")

    def commit(self) -> None:
        with _told(confluent_kafka.KafkaException):
            self.client.commit_transaction(CALL_S)

    def abort(self) -> None:
        with _told(confluent_kafka.KafkaException):
            self.client.abort_transaction(CALL_S)

    def close(self) -> None:
        # It reports the error that it died of once more.
        with contextlib.suppress(confluent_kafka.KafkaException):
            self.client.flush(CALL_S)


class KafkaPythonProducer(TxnProducer):
    """kafka-python."""

    def __init__(
        self, bootstrap: str, transactional_id: str, timeout_ms: int = TRANSACTION_TIMEOUT_MS
    ) -> None:
        self.client = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            linger_ms=5,
        )
        with _told(kafka.errors.KafkaError):
            self.client.init_transactions()

    def begin(self) -> None:
        with _told(kafka.errors.KafkaError):
            self.client.begin_transaction()

    def send(self, topic: str, values: Sequence[tuple[int, str]]) -> None:
        with _told(kafka.errors.KafkaError):
            futures = [
                self.client.send(topic, value=value.encode(), partition=partition)
                for partition, value in values
            ]
            self.client.flush(CALL_S)
            for future in futures:
                future.get(CALL_S)

    def commit(self) -> None:
        with _told(kafka.errors.KafkaError):
            self.client.commit_transaction()

    def abort(self) -> None:
        with _told(kafka.errors.KafkaError):
            self.client.abort_transaction()

    def close(self) -> None:
        self.client.close(timeout=CALL_S)


class Loop:
    """An event loop in a thread, for aiokafka."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, make: Callable[[], Any]) -> Any:
        """The result of the awaitable that `make`, called in the loop, gives."""

        async def made() -> Any:
            return await make()

        return asyncio.run_coroutine_threadsafe(made(), self._loop).result(CALL_S)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


class AiokafkaProducer(TxnProducer):
    """aiokafka, on a loop of its own unless it shares one with a consumer."""

    def __init__(
        self,
        bootstrap: str,
        transactional_id: str,
        timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        loop: Loop | None = None,
    ) -> None:
        self._own = loop is None
        self.loop = loop or Loop()

        async def start() -> aiokafka.AIOKafkaProducer:
            client = aiokafka.AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
                enable_idempotence=True,
                linger_ms=5,
            )
            await client.start()
            return client

        self.client = self.loop.run(start)

    def begin(self) -> None:
        self._do(self.client.begin_transaction)

    def send(self, topic: str, values: Sequence[tuple[int, str]]) -> None:
        async def send() -> None:
            futures = [
                await self.client.send(topic, value=value.encode(), partition=partition)
                for partition, value in values
            ]
            await asyncio.gather(*futures)

        self._do(send)

    def commit(self) -> None:
        self._do(self.client.commit_transaction)

    def abort(self) -> None:
        self._do(self.client.abort_transaction)

    def close(self) -> None:
        # It reports the error that it died of once more.
        with contextlib.suppress(TransactionError):
            self._do(self.client.stop)
        if self._own:
            self.loop.stop()

    def _do(self, make: Callable[[], Any]) -> None:
        with _told(aiokafka.errors.KafkaError):
            self.loop.run(make)


@contextlib.contextmanager
def _told(*kinds: type[Exception]) -> Any:
    """Errors of a client become ours, with its words."""
    try:
        yield
    except kinds as error:
        raise TransactionError(repr(error)) from error


class Pipe(ABC):
    """A worker that reads a topic in a group, and writes each value with a "!" to another one.

    It aborts at random what it could commit, and then reads it again.
    """

    @abstractmethod
    def stop(self) -> tuple[int, int]:
        """End it; how often it committed, and how often it aborted. TransactionError if it died."""


class ThreadedPipe(Pipe):
    """A pipe of a client in Python, in a thread of its own."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._ending = threading.Event()
        self._failure: Exception | None = None
        self._counts = [0, 0]
        self._thread = threading.Thread(target=self._guarded, daemon=True)

    @abstractmethod
    def _open(self) -> TxnProducer:
        """In the thread: make consumer and producer."""

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
        producer = self._open()
        while not self._ending.is_set():
            records = self._poll()
            if not records:
                continue
            ends = {(it.topic, it.partition): it.offset + 1 for it in records}
            starts = {(it.topic, it.partition): it.offset for it in reversed(records)}
            producer.begin()
            producer.send(self.sink, [(it.partition, f"{it.value}!") for it in records])
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

    sink: str


BATCH = 20
"""Records per transaction, at most, where a client lets one say so."""


class ConfluentPipe(ThreadedPipe):
    def __init__(
        self, bootstrap: str, transactional_id: str, source: str, sink: str, *, seed: int
    ) -> None:
        super().__init__(seed)
        self.sink = sink
        self._make = lambda: ConfluentProducer(bootstrap, transactional_id)
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

    def _open(self) -> TxnProducer:
        self._producer = self._make()
        return self._producer

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


class KafkaPythonPipe(ThreadedPipe):
    def __init__(
        self, bootstrap: str, transactional_id: str, source: str, sink: str, *, seed: int
    ) -> None:
        super().__init__(seed)
        self.sink = sink
        self._make = lambda: KafkaPythonProducer(bootstrap, transactional_id)
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

    def _open(self) -> TxnProducer:
        self._producer = self._make()
        return self._producer

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


class AiokafkaPipe(ThreadedPipe):
    def __init__(
        self, bootstrap: str, transactional_id: str, source: str, sink: str, *, seed: int
    ) -> None:
        super().__init__(seed)
        self.sink = sink
        self._loop = Loop()
        self._make = lambda: AiokafkaProducer(bootstrap, transactional_id, loop=self._loop)

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

    def _open(self) -> TxnProducer:
        self._producer = self._make()
        return self._producer

    def _poll(self) -> list[Got]:
        polled = self._loop.run(lambda: self._consumer.getmany(timeout_ms=50, max_records=BATCH))
        return [
            Got(it.topic, it.partition, it.offset, it.value.decode())
            for batch in polled.values()
            for it in batch
        ]

    def _send_offsets(self, offsets: dict[Place, int]) -> None:
        rows = {AiokafkaPartition(*place): end for place, end in offsets.items()}
        self._loop.run(lambda: self._producer.client.send_offsets_to_transaction(rows, self.sink))

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


class TxnHost:
    """A process with producers and pipes of another language."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=None if env is None else dict(env),
            text=True,
            bufsize=1,
        )
        # A host ends with its input, so also when the tests are killed.
        atexit.register(self.stop)
        self._noise: deque[str] = deque(maxlen=60)
        self._answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._names = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def fresh(self) -> str:
        """A name for what is made there next."""
        self._names += 1
        return f"it{self._names}"

    def noise(self) -> str:
        """The last lines that it wrote besides its answers."""
        return "\n".join(self._noise.copy())

    def ask(self, *words: str) -> list[str]:
        """Have it done; the words of the answer. TransactionError if it failed."""
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(words) + "\n")
        self._process.stdin.flush()
        try:
            line = self._answers.get(timeout=ANSWER_S)
        except queue.Empty:
            raise AssertionError(f"no answer to {words[:2]}\n{self.noise()}") from None
        assert line is not None, f"the host has ended:\n{self.noise()}"
        kind, *rest = line.split("\t")
        if kind == "failed":
            raise TransactionError(*rest)
        return rest

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.startswith("@"):
                    self._answers.put(line[1:].rstrip("\n"))
                else:
                    self._noise.append(line.rstrip())
        self._answers.put(None)

    def pause(self) -> None:
        """It stands still, with all that it has open."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        if self._process.poll() is None:
            self.resume()
            assert self._process.stdin is not None
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
            self._process.kill()
            self._process.wait(10)
            self._reader.join(10)


class HostedProducer(TxnProducer):
    """A producer in a host."""

    def __init__(
        self,
        host: TxnHost,
        bootstrap: str,
        transactional_id: str,
        timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    ) -> None:
        self._host = host
        self._name = host.fresh()
        host.ask("producer", self._name, bootstrap, transactional_id, str(timeout_ms))

    def begin(self) -> None:
        self._host.ask("begin", self._name)

    def send(self, topic: str, values: Sequence[tuple[int, str]]) -> None:
        words = [word for partition, value in values for word in (str(partition), value)]
        self._host.ask("send", self._name, topic, *words)

    def commit(self) -> None:
        self._host.ask("commit", self._name)

    def abort(self) -> None:
        self._host.ask("abort", self._name)

    def close(self) -> None:
        self._host.ask("close", self._name)


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


def java_txn_host() -> TxnHost:
    java = [install.java(), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    classes = f"{install.kafka_jars()}/*"
    return TxnHost([*java, "-cp", classes, str(HERE / "java" / "Transactions.java")])


def kafkajs_txn_host() -> TxnHost:
    return TxnHost(
        [install.node(), str(HERE / "js" / "transactions.js")],
        env={"NODE_PATH": str(install.kafkajs() / "node_modules")},
    )
