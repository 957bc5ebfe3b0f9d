"""The steady load with the time of each acknowledgement, a group that reads what it writes, and a transaction
that stays open."""

import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from typing_extensions import override

from tests.faults.drawn.recorded import Ack
from tests.faults.load import Load

POLL_S = 0.2
COMMIT_S = 10.0
AT_A_TIME = 200


class TimedLoad(Load):
    """Knows when each record was acknowledged, and how long it took."""

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self.acks: list[Ack] = []
        """At times of the monotonic clock."""

    @override
    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        super()._delivered(error, message)
        if error is None:
            self.acks.append(Ack(time.monotonic(), message.latency()))


class Patient:
    """A transaction that is open from the beginning to the end: no clock that jumps may end it."""

    def __init__(self, bootstrap: str, topic: str, seconds: float) -> None:
        """`seconds`: how long it will be open, at most. Its record is there when this returns."""
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"{topic}-patient",
                "transaction.timeout.ms": int(seconds * 1000),
                "socket.timeout.ms": 5_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._producer.init_transactions(60)
        self._producer.begin_transaction()
        self._producer.produce(topic, b"open all the time")
        assert self._producer.flush(60) == 0, "the record of the open transaction is not there"

    def is_committed(self) -> bool:
        """After another try. Raises AssertionError when somebody has ended it."""
        try:
            self._producer.commit_transaction(COMMIT_S)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise AssertionError(str(error)) from error
            return False
        return True


class Readers:
    """Members of one group, each in a thread of its own, that commit what they have read."""

    def __init__(self, bootstrap: str, topic: str, count: int) -> None:
        self.seen: dict[tuple[int, int], bytes] = {}
        """By partition and offset."""
        self.wrong: list[str] = []
        self.again = 0
        """Records that were given to one after the other."""
        self._bootstrap, self._topic = bootstrap, topic
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=[index], daemon=True) for index in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self, seconds: float = 60.0) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(seconds)
            assert not thread.is_alive(), "a member of the group does not end"

    def lacks(self, acknowledged: dict[bytes, tuple[int, int]]) -> list[bytes]:
        """What was acknowledged and given to none of them."""
        return [value for value, place in acknowledged.items() if place not in self.seen]

    def _run(self, index: int) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": f"{self._topic}-group",
                "client.id": f"reader{index}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 1_000,
                "fetch.wait.max.ms": 100,
                "socket.timeout.ms": 5_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        consumer.subscribe([self._topic])
        while not self._ending.is_set():
            messages = consumer.consume(AT_A_TIME, timeout=POLL_S)
            given = [message for message in messages if message.error() is None]
            for message in given:
                self._take(message)
            if given:
                self._commit(consumer)
        consumer.close()

    def _take(self, message: Any) -> None:
        place, value = (message.partition(), message.offset()), message.value()
        with self._lock:
            known = self.seen.setdefault(place, value)
            if known is not value:
                self.again += 1
            if known != value:
                self.wrong.append(f"the group was given {known!r} and {value!r} at {place}")

    def _commit(self, consumer: Consumer) -> None:
        """If it cannot, somebody is given it again."""
        try:
            consumer.commit(asynchronous=True)
        except KafkaException:
            return
