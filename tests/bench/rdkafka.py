"""`python -m tests.bench.rdkafka WORK …`: librdkafka's part of a turn, in a process of its own.

It prints "ready" when its clients are connected and the work begins, then one line of JSON: what
the client saw. Records are of 1 KiB that do not compress.
"""

import argparse
import itertools
import json
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

RECORD_BYTES = 1024
VALUES = [os.urandom(RECORD_BYTES) for _ in range(64)]
BATCH_BYTES = 1_000_000
"""librdkafka's default: with smaller ones, five requests in flight would bound the rate on S3."""
TRANSACTION_RECORDS = 10
TRANSACTION_PARTITIONS = 4
HEAD_PER_SECOND = 20_000
HEAD_LINGER_MS = 100
"""A record of each partition comes every 3 ms: so long does a batch of 16 KiB need."""
WAIT_S = 30.0
Seen = dict[str, float]


def common(port: int) -> dict[str, object]:
    return {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "broker.address.family": "v4",
        "log_level": 2,
    }


def producer(options: argparse.Namespace, **more: object) -> Producer:
    return Producer(
        {
            **common(options.port),
            "acks": "all",
            "batch.size": options.batch,
            "message.max.bytes": max(1_000_000, options.batch + 1000),
            "queue.buffering.max.kbytes": 256 << 10,
            "queue.buffering.max.messages": 1_000_000,
            **more,
        }
    )


def consumer(options: argparse.Namespace) -> Consumer:
    return Consumer(
        {
            **common(options.port),
            "group.id": f"bench-{os.getpid()}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )


def started() -> float:
    """What the work costs the broker, costs it from now on."""
    print("ready", flush=True)
    return time.perf_counter()


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def produce(options: argparse.Namespace) -> Seen:
    """As fast as it goes, for so many seconds or records at most."""
    failed: list[KafkaError] = []

    def told(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    made = producer(options, **{"linger.ms": 5, "delivery.report.only.error": True})
    made.list_topics(timeout=WAIT_S)
    begun, count = started(), 0
    while count < options.records and time.perf_counter() - begun < options.seconds:
        for index in range(count, count + 500):
            partition, value = index % options.partitions, VALUES[index & 63]
            while True:
                try:
                    made.produce(options.topic, value, partition=partition, on_delivery=told)
                    break
                except BufferError:
                    made.poll(0.02)
        count += 500
        made.poll(0)
    assert made.flush(WAIT_S) == 0, "records were left over"
    assert not failed, failed[0]
    took_s = time.perf_counter() - begun
    return {"bytes": count * RECORD_BYTES, "records": count, "seconds": took_s}


def consume(options: argparse.Namespace) -> Seen:
    """So many records, from the beginning of all partitions on, `rounds` times."""
    total, seconds = 0, 0.0
    started()
    for _ in range(options.rounds):
        reader = consumer(options)
        reader.assign([TopicPartition(options.topic, n, 0) for n in range(options.partitions)])
        begun, count = time.perf_counter(), 0
        while count < options.records:
            # Not more than there is: it would wait for what never comes.
            got = reader.consume(min(10_000, options.records - count), 1.0)
            for message in got:
                assert message.error() is None, message.error()
            count += len(got)
            assert time.perf_counter() - begun < WAIT_S, f"only {count} of {options.records} came"
        seconds += time.perf_counter() - begun
        total += count
        reader.close()
    return {"bytes": total * RECORD_BYTES, "records": total, "seconds": seconds}


def ticks(made: Producer, per_second: int, seconds: float) -> Iterator[int]:
    """Numbers of records, each when it is due; what is told of others is heard meanwhile."""
    begun = time.perf_counter()
    for number in range(int(per_second * seconds)):
        due = begun + number / per_second
        while (wait_s := due - time.perf_counter()) > 0:
            made.poll(0)
            time.sleep(min(wait_s, 0.002))
        yield number


def paced(options: argparse.Namespace) -> Seen:
    """Single records at a rate, over all partitions in turn; how long until each is acknowledged."""
    taken_ms: list[float] = []

    def told(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        taken_ms.append(message.latency() * 1000)

    made = producer(
        options, **{"linger.ms": 0, "enable.idempotence": True, "socket.nagle.disable": True}
    )
    for partition in range(options.partitions):  # Connected, and an id and metadata are there.
        made.produce(options.topic, VALUES[0], partition=partition)
    made.flush(WAIT_S)
    begun = started()
    for number in ticks(made, options.rate, options.seconds):
        partition = number % options.partitions
        made.produce(options.topic, VALUES[0], partition=partition, on_delivery=told)
    assert made.flush(WAIT_S) == 0, "records were left over"
    took_s = time.perf_counter() - begun
    return {
        "records": len(taken_ms),
        "seconds": took_s,
        "p50_ms": statistics.median(taken_ms),
        "p99_ms": percentile(taken_ms, 0.99),
    }


def gap(options: argparse.Namespace) -> Seen:
    """Single records at a rate, and the longest time between two acknowledgements."""
    told_s: list[float] = []

    def told(error: KafkaError | None, _: Message) -> None:
        assert error is None, error
        told_s.append(time.perf_counter())

    made = producer(options, **{"linger.ms": 5, "enable.idempotence": True})
    made.produce(options.topic, VALUES[0], partition=0, on_delivery=told)
    made.flush(WAIT_S)
    begun = started()
    for _ in ticks(made, options.rate, options.seconds):
        made.produce(options.topic, VALUES[0], partition=0, on_delivery=told)
    assert made.flush(WAIT_S) == 0, "records were left over"
    longest_s = max(after - before for before, after in itertools.pairwise(told_s))
    return {
        "records": len(told_s),
        "seconds": time.perf_counter() - begun,
        "gap_s": longest_s,
    }


def head(options: argparse.Namespace) -> Seen:
    """A producer at a rate and a consumer that keeps up with it, one of each."""
    reader = consumer(options)
    ends = [TopicPartition(options.topic, n, 0) for n in range(options.partitions)]
    for end in ends:
        end.offset = reader.get_watermark_offsets(end, timeout=WAIT_S)[1]
    reader.assign(ends)
    made = producer(options, **{"linger.ms": HEAD_LINGER_MS, "delivery.report.only.error": True})
    made.list_topics(timeout=WAIT_S)
    wanted = int(options.rate * options.seconds)
    begun = started()

    def write() -> None:
        pad = VALUES[0][16:]
        for number in ticks(made, options.rate, options.seconds):
            value = b"%16d" % time.perf_counter_ns() + pad
            made.produce(options.topic, value, partition=number % options.partitions)
        made.flush(WAIT_S)

    writer = threading.Thread(target=write)
    writer.start()
    taken_ms: list[float] = []
    deadline = begun + 2 * options.seconds + 5
    while len(taken_ms) < wanted and time.perf_counter() < deadline:
        got = reader.consume(10_000, 0.05)
        now_ns = time.perf_counter_ns()
        for message in got:
            value = message.value()
            assert value is not None, message.error()
            taken_ms.append((now_ns - int(value[:16])) / 1e6)
    took_s = time.perf_counter() - begun
    writer.join()
    reader.close()
    return {
        "bytes": len(taken_ms) * RECORD_BYTES,
        "records": len(taken_ms),
        "seconds": took_s,
        "behind": wanted - len(taken_ms),
        "p50_ms": percentile(taken_ms, 0.5),
        "p99_ms": percentile(taken_ms, 0.99),
    }


def transactions(options: argparse.Namespace) -> Seen:
    """Producers that each commit one transaction after the other, of ten records over four of the
    partitions."""
    taken_ms: list[float] = []
    ready = threading.Barrier(options.producers + 1)
    failed: list[Exception] = []

    def work(index: int) -> None:
        name = f"bench-{os.getpid()}-{index}"
        made = producer(options, **{"transactional.id": name, "linger.ms": 0})
        made.init_transactions(WAIT_S)
        ready.wait(WAIT_S)
        end = time.perf_counter() + options.seconds
        first = index
        while time.perf_counter() < end:
            begun = time.perf_counter()
            made.begin_transaction()
            for number in range(TRANSACTION_RECORDS):
                partition = (first + number % TRANSACTION_PARTITIONS) % options.partitions
                made.produce(options.topic, VALUES[number], partition=partition)
            made.commit_transaction(WAIT_S)
            taken_ms.append((time.perf_counter() - begun) * 1000)
            first += TRANSACTION_PARTITIONS

    def watched(index: int) -> None:
        try:
            work(index)
        except (KafkaException, threading.BrokenBarrierError) as error:
            failed.append(error)
            ready.abort()

    threads = [threading.Thread(target=watched, args=(n,)) for n in range(options.producers)]
    for thread in threads:
        thread.start()
    ready.wait(WAIT_S)
    begun = started()
    for thread in threads:
        thread.join()
    assert not failed, failed[0]
    return {
        "records": len(taken_ms),
        "seconds": time.perf_counter() - begun,
        "p50_ms": percentile(taken_ms, 0.5),
        "p99_ms": percentile(taken_ms, 0.99),
    }


WORKS: dict[str, Callable[[argparse.Namespace], Seen]] = {
    work.__name__: work for work in (produce, consume, paced, gap, head, transactions)
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.rdkafka")
    parser.add_argument("work", choices=WORKS)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--batch", type=int, default=BATCH_BYTES, help="bytes at most")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rate", type=int, default=HEAD_PER_SECOND, help="records a second")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--producers", type=int, default=1)
    options = parser.parse_args()
    print(json.dumps(WORKS[options.work](options)), flush=True)


if __name__ == "__main__":
    main()
