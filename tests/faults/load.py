"""A steady idempotent load with an account of every acknowledgement, and its audit.

The producer is librdkafka, unchanged, with its own retries. What it was told is kept: value →
(partition, offset). The audit reads everything back and holds it against that account.
"""

import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.faults import wire
from tests.parts.secured import Identity, librdkafka
from tests.parts.topics import create_topic


@dataclass
class Audit:
    """What reading back found; all three must be empty or zero."""

    missing: list[bytes]
    """Acknowledged and not there, or not at the acknowledged place."""
    twice: list[bytes]
    holes: list[tuple[int, int]]
    """(partition, offset) that should be there and is not."""
    found: dict[tuple[int, int], bytes]
    """All that is there, by partition and offset."""


@dataclass
class Load:
    """Runs in a thread of its own from `start` to `stop`."""

    bootstrap: str
    topic: str
    per_second: int = 500
    partitions: int = 4
    who: Identity | None = None
    """Who writes, where clients have to log in; the topic is somebody else's to create then."""
    topic_is_there: bool = False
    name: str = ""
    """What its values begin with, where there is more than one load of a topic."""
    acknowledged: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    unfinished: int = 0
    """Records without an answer when the producer ended."""
    newest_ack_s: float = 0.0
    """When the newest acknowledgement came, on the monotonic clock."""
    longest_gap_s: float = 0.0
    """The longest time between two acknowledgements of one partition."""

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._newest_acks_s: dict[int, float] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        if self.who is None and not self.topic_is_there:
            admin = AdminClient({"bootstrap.servers": self.bootstrap})
            create_topic(admin, self.topic, self.partitions)
        self._thread.start()

    def stop(self, *, seconds: float = 60.0) -> None:
        """Send no more, and wait until every record is acknowledged; none may have failed."""
        self.end()
        self.wait_until_ended(seconds=seconds)
        assert not self.failed, f"{len(self.failed)} records failed: {self.failed[:3]}"
        assert self.unfinished == 0, f"{self.unfinished} records got no answer"

    def end(self) -> None:
        """Send no more, and wait for nothing."""
        self._stop.set()

    def wait_until_ended(self, *, seconds: float = 60.0) -> None:
        """Until no record has a chance any more; some may have failed."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "the producer did not finish"

    def wait_for_acks(self, count: int, *, seconds: float) -> None:
        """Until `count` more records are acknowledged, their share in each partition."""
        wanted = {
            partition: before + count // self.partitions
            for partition, before in self._acknowledged_of().items()
        }
        deadline = time.monotonic() + seconds
        while any(now < wanted[index] for index, now in self._acknowledged_of().items()):
            told = f"{self._acknowledged_of()} of {wanted} acknowledged; {self.failed[:3]}"
            assert time.monotonic() < deadline, told
            assert self._thread.is_alive(), told
            time.sleep(0.05)

    def _acknowledged_of(self) -> dict[int, int]:
        counts = Counter(partition for partition, _ in self.acknowledged.copy().values())
        return {index: counts[index] for index in range(self.partitions)}

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                **librdkafka(self.who),
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "socket.timeout.ms": 5_000,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 500,
            }
        )
        number = 0
        start = time.monotonic()
        while not self._stop.is_set():
            try:
                producer.produce(
                    self.topic,
                    value=f"{self.name}{number:08d}".encode(),
                    partition=number % self.partitions,
                    on_delivery=self._delivered,
                )
            except KafkaException as error:  # An idempotent producer gives up for good.
                self.failed.append(str(error))
                break
            number += 1
            producer.poll(max(0.0, start + number / self.per_second - time.monotonic()))
        self.unfinished = producer.flush(50)

    def _delivered(self, error: KafkaError | None, message) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.newest_ack_s = now_s = time.monotonic()
            before_s = self._newest_acks_s.get(message.partition(), now_s)
            self.longest_gap_s = max(self.longest_gap_s, now_s - before_s)
            self._newest_acks_s[message.partition()] = now_s
            self.acknowledged[message.value()] = (message.partition(), message.offset())

    def audit(self, port: int, who: Identity | None = None) -> Audit:
        """Read all partitions to their ends from one agent, and compare with the account."""
        ends = [
            wire.end_offset(port, self.topic, index, who=who) for index in range(self.partitions)
        ]
        found = {
            (index, record.offset): bytes(record.value or b"")
            for index, end in enumerate(ends)
            for record in wire.read(port, self.topic, index, end=end, who=who)
        }
        counts = Counter(found.values())
        return Audit(
            missing=[
                value for value, place in self.acknowledged.items() if found.get(place) != value
            ],
            twice=[value for value, count in counts.items() if count > 1],
            holes=[
                (partition, offset)
                for partition, end in enumerate(ends)
                for offset in range(end)
                if (partition, offset) not in found
            ],
            found=found,
        )


def assert_nothing_lost(audit: Audit) -> None:
    assert not audit.missing, f"{len(audit.missing)} acknowledged records are missing"
    assert not audit.twice, f"{len(audit.twice)} records are there twice"
    assert not audit.holes, f"{len(audit.holes)} offsets cannot be read"
