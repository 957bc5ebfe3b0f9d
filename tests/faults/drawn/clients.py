"""The steady load with the time of each acknowledgement, transactions, and one that stays open; and a group that
reads what the steady load writes."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from typing_extensions import override

from tests.faults.drawn.recorded import Ack, Found
from tests.faults.load import Load
from tests.faults.txn_load import Workers
from tests.parts.topics import create_topic

PER_SECOND = 200
WORKERS, KEYS = 3, 4

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
        create_topic(AdminClient({"bootstrap.servers": bootstrap}), topic, 1)
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


class Act:
    """Producers that go on by themselves, from the beginning or from a recovery on: then they are started anew."""

    def __init__(self, bootstrap: str, number: int, steady: str, seconds: float) -> None:
        """`steady`: a topic that is there; `seconds`: until it is over, at most."""
        admin = AdminClient({"bootstrap.servers": bootstrap})
        transactions = f"transactions{number}"
        create_topic(admin, transactions, KEYS)
        self.load = TimedLoad(
            bootstrap, steady, per_second=PER_SECOND, topic_is_there=True, name=f"act{number}-"
        )
        self.load.start()
        self.workers = Workers(bootstrap, transactions, KEYS, WORKERS)
        self.patient = Patient(bootstrap, f"waiting{number}", seconds)

    @property
    def is_at_work(self) -> bool:
        return bool(self.load.acks and self.workers.counts["ok"])

    def end(self) -> None:
        """Begin nothing more; wait for nothing."""
        self.load.end()
        self.workers.end()


class Readers:
    """Members of one group, each in a thread of its own, that commit what they have read."""

    def __init__(self, bootstrap: str, topic: str, count: int) -> None:
        self.again = 0
        """Records that were given to one after the other."""
        self._given: defaultdict[tuple[int, int], set[bytes]] = defaultdict(set)
        """By partition and offset; one value each, unless the log was lost and begun anew."""
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

    @property
    def count(self) -> int:
        """How many places in the log they were given."""
        return len(self._given)

    def lacks(self, acknowledged: Mapping[bytes, tuple[int, int]]) -> list[bytes]:
        """What was acknowledged and given to none of them."""
        with self._lock:
            return [
                value
                for value, place in acknowledged.items()
                if value not in self._given.get(place, ())
            ]

    def told_of(self, value: bytes, place: tuple[int, int]) -> str:
        """A sentence about what they lack."""
        with self._lock:
            return f"{value!r} at {place}, where they were given {self._given.get(place)}"

    def wrong(self, found: Found, *, log_was_lost: bool) -> Iterator[str]:
        """What they were given and is not there. What a log had that was lost may be nowhere."""
        there = set(found.values())
        for place, values in self._given.items():
            for value in values:
                if value != found.get(place) and (value in there or not log_was_lost):
                    yield f"the group was given {value!r} at {place}, where {found.get(place)!r} is"

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
        with self._lock:
            given = self._given[message.partition(), message.offset()]
            self.again += message.value() in given
            given.add(message.value())

    def _commit(self, consumer: Consumer) -> None:
        """If it cannot, somebody is given it again."""
        try:
            consumer.commit(asynchronous=True)
        except KafkaException:
            return
