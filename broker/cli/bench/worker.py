"""A producer, or a consumer, of a benchmark: a process of its own, so that none waits for another's Python.

All begin together (a barrier) once they have found the cluster. A record is a time (ns, of the clock that all
processes of a machine share) and bytes that do not compress. What is counted happened within the time that is measured;
what was still to come is waited for, and only told.
"""

import os
import struct
import threading
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
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
QUIET_S: Final = 2.0
"""Without a record for so long behind the end, a consumer has all."""


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


Job = Callable[[Namespace, Load, Seat], Counted]


def work(job: Job, options: Namespace, load: Load, seat: Seat, to: Connection) -> None:
    """The whole life of a process. What it cannot do is told, and keeps nobody waiting."""
    try:
        counted = job(options, load, seat)
    except KeyboardInterrupt:
        return
    except FailedError as error:
        seat.barrier.abort()
        counted = Counted(0, 0, Counter(), 0.0, str(error))
    to.send(counted)
    to.close()


def produce(options: Namespace, load: Load, seat: Seat) -> Counted:
    """Raises FailedError."""
    events = Events()
    producer = client_of(Producer, _producer_settings(options, load, events))
    partitions_of(producer, load.topic, events, timeout_ms=options.timeout_ms)
    pool = os.urandom(POOL_BYTES + load.bytes)
    times = Histogram()
    counts = [0, 0]
    begin_ns = _begin(seat.barrier)
    end_ns = begin_ns + int(load.seconds * 1e9)

    def told(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            counts[1] += 1
        elif time.perf_counter_ns() <= end_ns:
            counts[0] += 1
            times.add(int((message.latency() or 0) * 1e6))

    sent = 0
    while (now_ns := time.perf_counter_ns()) < end_ns:
        if load.rate and sent >= (now_ns - begin_ns) / 1e9 * load.rate:
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
    return Counted(counts[0], counts[1] + left, times.counts, _cpu_s(), events.refusal)


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
        "fetch.queue.backoff.ms": 10,
        "group.id": f"frazil-bench-{os.getpid()}",
    }
    consumer = client_of(Consumer, found | settings_of(options, events))
    try:
        partitions = partitions_of(consumer, load.topic, events, timeout_ms=options.timeout_ms)
        own = partitions[seat.number :: load.consumers]
        ends = [
            consumer.get_watermark_offsets(TopicPartition(load.topic, one), timeout=10)[1]
            for one in own
        ]
        consumer.assign([TopicPartition(load.topic, *one) for one in zip(own, ends, strict=True)])
        return _read(consumer, load, events, seat.barrier)
    finally:
        consumer.close()


def _read(consumer: Consumer, load: Load, events: Events, barrier: Barrier) -> Counted:
    times = Histogram()
    records = 0
    end_ns = _begin(barrier) + int(load.seconds * 1e9)
    heard_ns = end_ns
    while (now_ns := time.perf_counter_ns()) < heard_ns + int(QUIET_S * 1e9):
        for message in arrived(consumer, BATCH, WAIT_S):
            value = message.value()
            if message.error() is not None or value is None:
                continue
            now_ns = time.perf_counter_ns()
            heard_ns = max(heard_ns, now_ns)
            if now_ns <= end_ns:
                records += 1
                times.add((now_ns - STAMP.unpack_from(value)[0]) // 1000)
    return Counted(records, 0, times.counts, _cpu_s(), events.refusal)


def _begin(barrier: Barrier) -> int:
    """When all have come. Raises FailedError when one of them cannot."""
    try:
        barrier.wait(60)
    except threading.BrokenBarrierError as error:
        raise FailedError("another process of it could not begin") from error
    return time.perf_counter_ns()


def _cpu_s() -> float:
    used = os.times()
    return used.user + used.system
