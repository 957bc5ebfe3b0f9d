"""Transactional producers of each client.

Every call waits until it is done, so that tests are scripts. What runs in the process of another
language obeys lines of words between tabs, as java/Transactions.java and js/transactions.js say.
"""

import asyncio
import atexit
import contextlib
import queue
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

from tests.parts import install

CALL_S = 40.0
ANSWER_S = 90.0
"""Of a host: longer than any call of a client takes to give up."""
TRANSACTION_TIMEOUT_MS = 30_000
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


def java_txn_host() -> TxnHost:
    classes = f"{install.kafka_jars()}/*"
    return TxnHost([*install.jvm("512m"), "-cp", classes, str(HERE / "java" / "Transactions.java")])


def kafkajs_txn_host() -> TxnHost:
    return TxnHost(
        [install.node(), str(HERE / "js" / "transactions.js")],
        env={"NODE_PATH": str(install.kafkajs() / "node_modules")},
    )
