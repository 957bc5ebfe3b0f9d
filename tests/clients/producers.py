"""Transactional producers of each client.

Every call waits until it is done, so that tests are scripts. What runs in the process of another
language obeys lines of words between tabs, as java/Transactions.java and js/transactions.js say.
"""

import asyncio
import contextlib
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import aiokafka
import confluent_kafka
import kafka

from tests.clients.host import Host, java, javascript

CALL_S = 40.0
ANSWER_S = 90.0
"""Of a host: longer than any call of a client takes to give up."""
TRANSACTION_TIMEOUT_MS = 30_000


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
        begun: Future[asyncio.AbstractEventLoop] = Future()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=asyncio.run, args=[self._wait(begun)], daemon=True)
        self._thread.start()
        self._loop = begun.result(CALL_S)

    async def _wait(self, begun: Future[asyncio.AbstractEventLoop]) -> None:
        begun.set_result(asyncio.get_running_loop())
        await self._ended.wait()

    def run(self, make: Callable[[], Any]) -> Any:
        """The result of the awaitable that `make`, called in the loop, gives."""

        async def made() -> Any:
            return await make()

        return asyncio.run_coroutine_threadsafe(made(), self._loop).result(CALL_S)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(CALL_S)


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
        # It reports the error that it died of once more, and leaves its connections open then.
        with contextlib.suppress(TransactionError):
            self._do(self.client.stop)
        self._do(self.client.client.close)
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


class TxnHost(Host):
    """A process with producers and pipes of another language."""

    def __init__(self, argv: list[str]) -> None:
        self._answers: queue.SimpleQueue[Sequence[str] | None] = queue.SimpleQueue()
        self._names = 0
        super().__init__(argv)

    def fresh(self) -> str:
        """A name for what is made there next."""
        self._names += 1
        return f"it{self._names}"

    def ask(self, *words: str) -> list[str]:
        """Have it done; the words of the answer. TransactionError if it failed."""
        self.say(*words)
        try:
            answer = self._answers.get(timeout=ANSWER_S)
        except queue.Empty:
            raise AssertionError(f"no answer to {words[:2]}\n{self.noise()}") from None
        assert answer is not None, f"the host has ended:\n{self.noise()}"
        kind, *rest = answer
        if kind == "failed":
            raise TransactionError(*rest)
        return rest

    def heard(self, *words: str) -> None:
        self._answers.put(words)

    def ended(self) -> None:
        self._answers.put(None)


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
    return TxnHost(java("Transactions.java"))


def kafkajs_txn_host() -> TxnHost:
    return TxnHost(javascript("transactions.js"))
