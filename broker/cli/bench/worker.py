"""A producer, or a consumer, of a benchmark: a process of its own, so that none waits for another's Python.

All begin together (a barrier) once they have found the cluster. A record is a time (ns, of the clock that all
processes of a machine share) and bytes that do not compress. What is counted happened within the time that is
measured, which lasts until the first record where none came sooner; what was still to come is waited for, and only
told.
"""

import os
import struct
import threading
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier, Event
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from broker.cli.arguments import FailedError
from broker.cli.bench.histogram import Histogram
from broker.cli.records.client import Events, arrived, client_of, partitions_of, settings_of

STAMP: Final = struct.Struct("<q")
BYTES_MIN: Final = STAMP.size
POOL_BYTES: Final = 1 << 20
TURN: Final = 100
BATCH: Final = 5000
WAIT_S: Final = 0.05
FLUSH_S: Final = 60.0
QUIET_S: Final = 10.0
"""Without a record for so long when all is written, a consumer stops short of the end."""


class Load(NamedTuple):
    """What all processes of a run do."""

    topic: str
    seconds: float
    bytes: int
    """Of a record's value."""
    acks: str
    compression: str
    rate: float
    """Records a second of each producer; 0: as many as go."""
    producers: int
    consumers: int


class Counted(NamedTuple):
    """What a process saw."""

    records: int
    """Acknowledged, or read, within the time."""
    seconds: float
    """That time."""
    failed: int
    times: Counter[int]
    """From being sent to being acknowledged, or read (`Histogram`)."""
    cpu_s: float
    error: str = ""


class Seat(NamedTuple):
    """Of a process among its like."""

    number: int
    barrier: Barrier
    """Of all processes."""
    written: Event
    """No producer sends any more, and what they sent has its answers."""


class Measured:
    """Counts what happens from now until its time is over, and the first of it however late that is."""

    def __init__(self, seconds: float) -> None:
        self.begin_ns = time.perf_counter_ns()
        self.end_ns = self.begin_ns + int(seconds * 1e9)
        self.records = 0
        self.times = Histogram()

    def counts(self, now_ns: int) -> bool:
        """Whether what happened then is counted."""
        if now_ns > self.end_ns:
            if self.records:
                return False
            self.end_ns = now_ns
        self.records += 1
        return True

    def counted(self, failed: int, error: str) -> Counted:
        """All of it, and what this process used."""
        seconds = (self.end_ns - self.begin_ns) / 1e9
        return Counted(self.records, seconds, failed, self.times.counts, _cpu_s(), error)


Job = Callable[[Namespace, Load, Seat], Counted]


def work(job: Job, options: Namespace, load: Load, seat: Seat, to: Connection) -> None:
    """The whole life of a process. What it cannot do is told, and keeps nobody waiting."""
    try:
        counted = job(options, load, seat)
    except KeyboardInterrupt:
        return
    except FailedError as error:
        seat.barrier.abort()
        counted = Counted(0, load.seconds, 0, Counter(), 0.0, str(error))
    to.send(counted)
    to.close()


def produce(options: Namespace, load: Load, seat: Seat) -> Counted:
    """Raises FailedError."""
    events = Events()
    producer = client_of(Producer, _producer_settings(options, load, events))
    partitions_of(producer, load.topic, events, timeout_ms=options.timeout_ms)
    pool = os.urandom(POOL_BYTES + load.bytes)
    measured = _begin(load, seat.barrier)
    stop_ns = measured.end_ns
    failed = 0

    def told(error: KafkaError | None, message: Message) -> None:
        nonlocal failed
        if error is not None:
            failed += 1
        elif measured.counts(time.perf_counter_ns()):
            measured.times.add(int((message.latency() or 0) * 1e6))

    sent = 0
    while (now_ns := time.perf_counter_ns()) < stop_ns:
        if load.rate and sent >= (now_ns - measured.begin_ns) / 1e9 * load.rate:
            producer.poll(0.001)
            continue
        at = sent * 997 % POOL_BYTES
        value = STAMP.pack(now_ns) + pool[at : at + load.bytes - STAMP.size]
        try:
            producer.produce(load.topic, value, on_delivery=told)
        except BufferError:
            producer.poll(WAIT_S)
            continue
        sent += 1
        if sent % TURN == 0 or load.rate:
            producer.poll(0)
    left = producer.flush(FLUSH_S)
    return measured.counted(failed + left, events.refusal)


def _producer_settings(options: Namespace, load: Load, events: Events) -> dict[str, Any]:
    found = {
        "acks": load.acks,
        "allow.auto.create.topics": False,
        "compression.type": load.compression,
        "enable.idempotence": load.acks == "all",
        "enable.metrics.push": False,
        "linger.ms": 5,
        "message.max.bytes": 100_000_000,
        "queue.buffering.max.kbytes": 64 * 1024,
    }
    return found | settings_of(options, events)


def consume(options: Namespace, load: Load, seat: Seat) -> Counted:
    """Each consumer has its share of the partitions. Raises FailedError."""
    events = Events()
    found = {
        "enable.auto.commit": False,
        "enable.metrics.push": False,
        "enable.partition.eof": True,
        "fetch.queue.backoff.ms": 10,
        "group.id": f"frazil-bench-{os.getpid()}",
    }
    consumer = client_of(Consumer, found | settings_of(options, events))
    try:
        partitions = partitions_of(consumer, load.topic, events, timeout_ms=options.timeout_ms)
        begins = _ends(consumer, load.topic, partitions[seat.number :: load.consumers])
        consumer.assign([TopicPartition(load.topic, *one) for one in begins.items()])
        return _read(consumer, load, events, seat)
    finally:
        consumer.close()


def _ends(consumer: Consumer, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    return {
        one: consumer.get_watermark_offsets(TopicPartition(topic, one), timeout=10)[1]
        for one in partitions
    }


def _read(consumer: Consumer, load: Load, events: Events, seat: Seat) -> Counted:
    """Until all is read that the producers wrote, if need be after the time that is measured."""
    measured = _begin(load, seat.barrier)
    left: dict[int, int] | None = None
    reached: dict[int, int] = {}
    quiet_ns = 0
    while left is None or (left and time.perf_counter_ns() < quiet_ns):
        found = arrived(consumer, BATCH, WAIT_S)
        for message in found:
            _take(message, measured, reached)
        if left is None and seat.written.is_set():
            left = _ends(consumer, load.topic, (one.partition for one in consumer.assignment()))
        if found or not quiet_ns:
            quiet_ns = time.perf_counter_ns() + int(QUIET_S * 1e9)
        left = left and {one: end for one, end in left.items() if reached.get(one, 0) < end}
    return measured.counted(0, events.refusal)


def _take(message: Message, measured: Measured, reached: dict[int, int]) -> None:
    """Counts a record, and keeps how far its partition is read."""
    partition, offset, error = message.partition(), message.offset(), message.error()
    if partition is None or offset is None:
        return
    if error is None:
        reached[partition] = offset + 1
        now_ns = time.perf_counter_ns()
        value = message.value()
        if value is not None and measured.counts(now_ns):
            measured.times.add((now_ns - STAMP.unpack_from(value)[0]) // 1000)
    elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
        reached[partition] = offset


def _begin(load: Load, barrier: Barrier) -> Measured:
    """When all have come. Raises FailedError when one of them cannot."""
    try:
        barrier.wait(60)
    except threading.BrokenBarrierError as error:
        raise FailedError("another process of it could not begin") from error
    return Measured(load.seconds)


def _cpu_s() -> float:
    used = os.times()
    return used.user + used.system
