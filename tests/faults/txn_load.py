"""Transactions of sends and polls by several librdkafka clients, as a history to be judged.

As Jepsen's workload: every operation is one transaction of one to four steps over a few keys (a
key is a partition); some are aborted for no reason. What is not known to have been committed or
not is "info", and its client goes on as a new process with a new producer of the same id.
"""

import random
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.anomalies import Recorder
from tests.parts.secured import Identity, librdkafka

ABORTS = 0.1
STEPS_MAX = 4
CALL_S = 20.0
Step = list[Any]


class Workers:
    """So many clients, each in a thread of its own, until `stop`."""

    def __init__(
        self, bootstrap: str, topic: str, keys: int, count: int, who: Identity | None = None
    ) -> None:
        self.recorder = Recorder()
        self._login = librdkafka(who)
        self._bootstrap, self._topic, self._keys = bootstrap, topic, keys
        self._lock = threading.Lock()
        self._processes = 0
        self._values = 0
        self._ending = threading.Event()
        self.failures: list[str] = []
        self.counts = {"ok": 0, "fail": 0, "info": 0}
        self.errors: list[str] = []
        """What the clients' calls raised, whether it could be gone on after it or not."""
        self.longest_s = 0.0
        """Of all calls by which something was to be written, or ended."""
        self._threads = [
            threading.Thread(target=self._guarded, args=[index], daemon=True)
            for index in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Each client ends what it is at, and does no more; wait for nothing."""
        self._ending.set()

    def stop(self, seconds: float = 60.0) -> None:
        self.end()
        for thread in self._threads:
            thread.join(seconds)
            assert not thread.is_alive(), (
                f"a worker does not end; it is at {_where(thread)}; last told: {self.errors[-3:]}"
            )
        assert not self.failures, self.failures

    def read_all(self) -> None:
        """A last operation: everything that is committed, by a reader that has seen nothing yet."""
        process = self._new_process()
        self.recorder.invoke(process, "poll", [["poll"]])
        consumer = self._consumer({"enable.partition.eof": True})
        found: dict[int, list[list[int]]] = {key: [] for key in range(self._keys)}
        ended: set[int] = set()
        while len(ended) < self._keys:
            message = consumer.poll(30)
            assert message is not None, f"only {sorted(ended)} could be read to the end"
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
            else:
                found[message.partition()].append([message.offset(), int(message.value())])
        consumer.close()
        self.recorder.complete(process, "ok", "poll", [["poll", found]])

    def _new_process(self) -> int:
        with self._lock:
            self._processes += 1
            return self._processes

    def _new_value(self) -> int:
        with self._lock:
            self._values += 1
            return self._values

    def _consumer(self, more: dict[str, Any]) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                **self._login,
                "group.id": f"{self._topic}-readers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
                "socket.timeout.ms": 5_000,
                "reconnect.backoff.max.ms": 500,
                **more,
            }
        )
        consumer.assign([TopicPartition(self._topic, key, 0) for key in range(self._keys)])
        return consumer

    def _guarded(self, index: int) -> None:
        try:
            worker = _Worker(self, index)
            while not self._ending.is_set():
                worker.operate()
        except Exception as error:  # noqa: BLE001 - A worker that died is told of by the test.
            self.failures.append(repr(error))


def _where(thread: threading.Thread) -> str:
    """The innermost line of these files that the thread is at."""
    frames = traceback.extract_stack(sys._current_frames()[thread.ident or 0])
    return f"{frames[-1].name}, line {frames[-1].lineno}: {frames[-1].line}"


class _Worker:
    def __init__(self, all_: Workers, index: int) -> None:
        self._all = all_
        self._random = random.Random(index)
        self._id = f"{all_._topic}-{index}"
        self._process = all_._new_process()
        self._consumer = all_._consumer({})
        self._producer: Producer | None = None

    def operate(self) -> None:
        """One transaction, recorded."""
        if self._producer is None:
            self._producer = self._open()
            if self._producer is None:
                return
        steps = [self._step() for _ in range(self._random.randint(1, STEPS_MAX))]
        f = {("send",): "send", ("poll",): "poll"}.get(tuple({step[0] for step in steps}), "txn")
        done: list[Step] = [list(step) for step in steps]
        polled: dict[int, int] = {}
        self._all.recorder.invoke(self._process, f, [list(step) for step in steps])
        type_ = self._perform(done, polled)
        self._all.recorder.complete(self._process, type_, f, done)
        self._all.counts[type_] += 1
        if type_ != "ok":
            for key, offset in polled.items():
                self._consumer.seek(TopicPartition(self._all._topic, key, offset))
        if type_ == "info":
            self._process = self._all._new_process()
            self._consumer.close()
            self._consumer = self._all._consumer({})

    def _step(self) -> Step:
        if self._random.random() < 0.5:
            return ["poll"]
        return ["send", self._random.randrange(self._all._keys), self._all._new_value()]

    def _open(self) -> Producer | None:
        producer = Producer(
            {
                "bootstrap.servers": self._all._bootstrap,
                **self._all._login,
                "transactional.id": self._id,
                "transaction.timeout.ms": 10_000,
                "message.timeout.ms": 10_000,
                "socket.timeout.ms": 5_000,
                "reconnect.backoff.max.ms": 500,
                "linger.ms": 1,
                "log_level": 0,
            }
        )
        try:
            producer.init_transactions(CALL_S)
        except KafkaException as error:
            self._all.errors.append(str(error))
            return None
        return producer

    def _perform(self, done: list[Step], polled: dict[int, int]) -> str:
        producer = self._producer
        assert producer is not None
        try:
            producer.begin_transaction()
            for step in done:
                if step[0] == "send":
                    with self._timed():
                        self._send(producer, step)
                else:
                    self._poll(step, polled)
            if self._random.random() < ABORTS:
                with self._timed():
                    producer.abort_transaction(CALL_S)
                return "fail"
        except KafkaException as error:
            self._all.errors.append(str(error))
            self._give_up(producer)
            return "fail"
        with self._timed():
            return self._commit(producer)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began_s = time.monotonic()
        yield
        self._all.longest_s = max(self._all.longest_s, time.monotonic() - began_s)

    def _commit(self, producer: Producer) -> str:
        for _ in range(3):
            try:
                producer.commit_transaction(CALL_S)
            except KafkaException as error:
                self._all.errors.append(str(error))
                if error.args[0].retriable():
                    continue
                # Only before its EndTxn can librdkafka ask for this: some record was not written.
                aborts = error.args[0].txn_requires_abort()
                self._give_up(producer)
                return "fail" if aborts and self._producer is not None else "info"
            else:
                return "ok"
        self._producer = None
        return "info"

    def _give_up(self, producer: Producer) -> None:
        """Nothing of it has been committed, or will be: abort it, or let the next producer."""
        try:
            producer.abort_transaction(CALL_S)
        except KafkaException as error:
            self._all.errors.append(str(error))
            self._producer = None

    def _send(self, producer: Producer, step: Step) -> None:
        _, key, value = step

        def delivered(error: KafkaError | None, message: Any) -> None:
            step[2] = [message.offset() if error is None else None, value]

        producer.produce(self._all._topic, str(value), partition=key, on_delivery=delivered)
        producer.flush(CALL_S)

    def _poll(self, step: Step, polled: dict[int, int]) -> None:
        found: dict[int, list[Sequence[int]]] = {}
        for message in self._consumer.consume(50, timeout=0.1):
            if message.error() is not None:
                continue
            key, offset = message.partition(), message.offset()
            polled.setdefault(key, offset)
            found.setdefault(key, []).append([offset, int(message.value())])
        step.append(found)
