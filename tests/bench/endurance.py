"""`python -m tests.bench.endurance --minutes 60`: does everything stay bounded, and is nothing lost?

One agent over etcd and an S3 server, its memory limited where the system lets us (a cgroup), under a
steady load of four kinds: records that retention deletes, a compacted topic whose keys are written over
and over, transactions of which some are aborted, and a queue that its reader empties with
DeleteRecords. Every few seconds it is noted what agent, worker, etcd and bucket take; in the end slopes
are told, everything that may be read is read and compared with what was acknowledged, and the bucket is
listed and held against the live bytes that the agent counts.
"""

import argparse
import os
import random
import re
import tempfile
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import botocore.session
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from tests.parts.servers import EtcdServer, Frazil, FrazilCluster, MinioServer, get_text
from tests.parts.topics import NotNowError, patiently, told

EVENTS, STATE, ORDERS, QUEUE = "events", "state", "orders", "queue"
PARTITIONS = 4
KEYS = 20_000


@dataclass(frozen=True)
class Rates:
    """Records per second of each kind, and their sizes in bytes."""

    events: int = 1000
    event_bytes: int = 1000
    state: int = 400
    state_bytes: int = 300
    orders: int = 100
    queue: int = 100


@dataclass
class Sample:
    seconds: float
    agent_rss: int
    worker_rss: int
    etcd_bytes: int
    etcd_in_use: int
    etcd_keys: int
    bucket_bytes: int
    live_bytes: int
    objects: int


@dataclass
class Account:
    """What was acknowledged."""

    events: "list[array[int]]" = field(default_factory=list)
    """Per partition, in the order of offsets from 0 on: the number of the record."""
    state: dict[bytes, tuple[int, bytes | None]] = field(default_factory=dict)
    """Per key: the offset of its newest record and its value; None: a tombstone."""
    orders: list[list[int]] = field(default_factory=list)
    """Per partition: numbers of committed records, in order."""
    failed: list[str] = field(default_factory=list)


class Load:
    """Four writers and a reader, each a thread from `start` to `stop`. A rate of 0: not that one."""

    def __init__(self, bootstrap: str, rates: Rates) -> None:
        self.account = Account(
            events=[array("q") for _ in range(PARTITIONS)], orders=[[] for _ in range(PARTITIONS)]
        )
        self._bootstrap = bootstrap
        self._rates = rates
        self._stop = threading.Event()
        self._deleted_to: dict[int, int] = {}
        self._threads = [
            threading.Thread(target=self._told, args=(work,), daemon=True)
            for work, rate in (
                (self._events, rates.events),
                (self._tail, rates.events),
                (self._state, rates.state),
                (self._orders, rates.orders),
                (self._queue, rates.queue),
            )
            if rate > 0
        ]

    def create_topics(self, *, retention_ms: int) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        topics = {
            EVENTS: {"retention.ms": str(retention_ms)},
            STATE: {
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": "0.3",
                "delete.retention.ms": str(retention_ms),
            },
            ORDERS: {"retention.ms": str(retention_ms)},
            QUEUE: {"retention.ms": "-1"},
        }
        created = admin.create_topics(
            [NewTopic(name, PARTITIONS, config=configs) for name, configs in topics.items()]
        )
        for future in created.values():
            future.result(30)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive(), "a load did not end"
        assert not self.account.failed, self.account.failed[:5]

    def _told(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # It must not be lost with its thread.
            self.account.failed.append(f"{work.__name__}: {error!r}")
            raise

    def _producer(self, **more: object) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "linger.ms": 20,
                "message.timeout.ms": 60_000,
                **more,
            }
        )

    def _consumer(self, **more: object) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "endurance",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                **more,
            }
        )

    def _paced(self, per_second: int) -> Iterator[int]:
        """Numbers from 0 on, at that pace, until the end."""
        begun = time.monotonic()
        number = 0
        while not self._stop.is_set():
            yield number
            number += 1
            ahead = begun + number / per_second - time.monotonic()
            if ahead > 0.005:
                time.sleep(ahead)

    def _note(
        self, note: Callable[[Message], None]
    ) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.account.failed.append(str(error))
            else:
                note(message)

        return delivered

    def _events(self) -> None:
        producer = self._producer()
        filler = random.Random(1).randbytes(self._rates.event_bytes)

        def note(message: Message) -> None:
            number = int(message.value()[:12])
            numbers = self.account.events[message.partition()]
            assert message.offset() == len(numbers), "offsets of one producer have a hole"
            numbers.append(number)

        for number in self._paced(self._rates.events):
            producer.produce(
                EVENTS,
                b"%012d" % number + filler[12:],
                partition=number % PARTITIONS,
                on_delivery=self._note(note),
            )
            producer.poll(0)
        assert producer.flush(60) == 0

    def _state(self) -> None:
        producer = self._producer()
        rng = random.Random(2)

        def note(message: Message) -> None:
            self.account.state[message.key()] = (message.offset(), message.value())

        for number in self._paced(self._rates.state):
            key = b"key-%06d" % rng.randrange(KEYS)
            value = (
                None if rng.random() < 0.05 else b"%012d" % number * (self._rates.state_bytes // 12)
            )
            # The partition follows from the key, so the newest record of a key is the last one.
            producer.produce(STATE, value, key, on_delivery=self._note(note))
            producer.poll(0)
        assert producer.flush(60) == 0

    def _orders(self) -> None:
        producer = self._producer(**{"transactional.id": "endurance"})
        producer.init_transactions(60)
        rng = random.Random(3)
        begun: list[int] = []
        per_transaction = max(1, self._rates.orders // 4)
        for number in self._paced(self._rates.orders):
            if not begun:
                producer.begin_transaction()
            begun.append(number)
            producer.produce(ORDERS, b"%012d" % number * 20, partition=number % PARTITIONS)
            if len(begun) == per_transaction:
                # What an abort purges from librdkafka's queue would break its own sequence.
                assert producer.flush(60) == 0
                if rng.random() < 0.2:
                    producer.abort_transaction(60)
                else:
                    producer.commit_transaction(60)
                    for each in begun:
                        self.account.orders[each % PARTITIONS].append(each)
                begun = []
        if begun:
            assert producer.flush(60) == 0
            producer.abort_transaction(60)

    def _queue(self) -> None:
        """Write, and let go of what is older than a few seconds, as Streams does."""
        producer = self._producer()
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        newest: dict[int, int] = {}
        cut_s = time.monotonic()

        def note(message: Message) -> None:
            newest[message.partition()] = message.offset()

        for number in self._paced(self._rates.queue):
            producer.produce(
                QUEUE,
                b"%012d" % number * 10,
                partition=number % PARTITIONS,
                on_delivery=self._note(note),
            )
            producer.poll(0)
            if time.monotonic() - cut_s > 5:
                cut_s = time.monotonic()
                before = [TopicPartition(QUEUE, at, offset) for at, offset in newest.items()]
                for place, future in admin.delete_records(before).items():
                    # An agent that has stood still refuses, and librdkafka leaves it to us.
                    with suppress(KafkaException):
                        self._deleted_to[place.partition] = future.result(30).low_watermark
        assert producer.flush(60) == 0

    def _tail(self) -> None:
        """Follow the events from their beginning: each offset once, in order, the record acknowledged."""
        consumer = self._consumer()
        consumer.assign([TopicPartition(EVENTS, at, 0) for at in range(PARTITIONS)])
        expected = [0] * PARTITIONS
        while not self._stop.is_set():
            for message in consumer.consume(1000, timeout=0.5):
                if message.error() is not None:
                    self.account.failed.append(f"the reader: {message.error()}")
                    return
                at = message.partition()
                if message.offset() != expected[at]:
                    self.account.failed.append(f"offset {message.offset()}, not {expected[at]}")
                    return
                expected[at] += 1
        consumer.close()

    # The audit.

    def audit(self) -> dict[str, int]:
        """Read everything that may be read, compare it; what was counted. Raises AssertionError."""
        self._keep()
        consumer = self._consumer(**{"isolation.level": "read_committed"})
        found = {
            "events": self._audit_events(consumer),
            "keys": self._audit_state(consumer),
            "orders": self._audit_orders(consumer),
        }
        for partition, low in self._deleted_to.items():
            first, _ = consumer.get_watermark_offsets(TopicPartition(QUEUE, partition), 30)
            # What was answered has happened; what was not may have.
            assert first >= low, f"{QUEUE}/{partition} begins at {first}, not at {low}"
        consumer.close()
        return found

    def _keep(self) -> None:
        """From here on nothing goes by its age: not between a look at the log's start and the read."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        entry = ConfigEntry("retention.ms", "-1", incremental_operation=AlterConfigOpType.SET)
        for name in (EVENTS, ORDERS):
            kept = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])
            patiently(lambda to=kept: told(admin.incremental_alter_configs([to])[to]), NotNowError)

    def _read(self, consumer: Consumer, topic: str, partition: int) -> Iterator[Message]:
        """Everything from the log's start to its end."""
        first, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), 30)
        consumer.assign([TopicPartition(topic, partition, first)])
        deadline_s = time.monotonic() + 300
        while True:
            (place,) = consumer.position([TopicPartition(topic, partition)])
            if max(place.offset, first) >= end:
                return
            assert time.monotonic() < deadline_s, f"{topic}/{partition} was not read to {end}"
            for message in consumer.consume(1000, timeout=0.2):
                assert message.error() is None, message.error()
                yield message

    def _audit_events(self, consumer: Consumer) -> int:
        count = 0
        for partition, acknowledged in enumerate(self.account.events):
            read = [
                (message.offset(), int(message.value()[:12]))
                for message in self._read(consumer, EVENTS, partition)
            ]
            first = len(acknowledged) - len(read)
            wanted = list(enumerate(acknowledged[first:], start=first))
            assert read == wanted, f"{EVENTS}/{partition} differs from what was acknowledged"
            count += len(read)
        return count

    def _audit_state(self, consumer: Consumer) -> int:
        ended: dict[bytes, bytes] = {}
        for partition in range(PARTITIONS):
            for message in self._read(consumer, STATE, partition):
                if message.value() is None:
                    ended.pop(message.key(), None)
                else:
                    ended[message.key()] = message.value()
        wanted = {key: value for key, (_, value) in self.account.state.items() if value is not None}
        assert ended == wanted, (
            f"{STATE} ends up with {len(ended)} keys, not {len(wanted)}, or others"
        )
        return len(ended)

    def _audit_orders(self, consumer: Consumer) -> int:
        count = 0
        for partition, committed in enumerate(self.account.orders):
            read = [
                int(message.value()[:12]) for message in self._read(consumer, ORDERS, partition)
            ]
            assert read == committed[len(committed) - len(read) :], f"{ORDERS}/{partition} differs"
            count += len(read)
        return count


class Watch:
    """What everything takes, noted now and then."""

    def __init__(self, agent: Frazil, etcd: EtcdServer, minio: MinioServer, bucket: str) -> None:
        self.samples: list[Sample] = []
        self._agent = agent
        self._etcd = etcd
        self._bucket = bucket
        self._begun = time.monotonic()
        self._s3 = botocore.session.get_session().create_client(
            "s3",
            endpoint_url=minio.endpoint,
            region_name=minio.region,
            aws_access_key_id=minio.access_key,
            aws_secret_access_key=minio.secret_key,
        )

    def sample(self) -> Sample:
        ours, theirs = (
            get_text(self._agent.http_port, "/metrics"),
            get_text(self._etcd.port, "/metrics"),
        )
        objects, size = self.bucket()
        sample = Sample(
            seconds=time.monotonic() - self._begun,
            agent_rss=_rss(self._agent.child.pid),
            worker_rss=sum(_rss(pid) for pid in children(self._agent.child.pid)),
            etcd_bytes=metric(theirs, "etcd_mvcc_db_total_size_in_bytes"),
            etcd_in_use=metric(theirs, "etcd_mvcc_db_total_size_in_use_in_bytes"),
            etcd_keys=metric(theirs, "etcd_debugging_mvcc_keys_total"),
            bucket_bytes=size,
            live_bytes=metric(ours, r"frazil_record_bytes\{[^}]*\}"),
            objects=objects,
        )
        self.samples.append(sample)
        return sample

    def bucket(self, *, snapshots: bool = True) -> tuple[int, int]:
        """Objects and bytes, listed, of snapshots too or not."""
        count = size = 0
        for page in self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket):
            for each in page.get("Contents", ()):
                if snapshots or "/snapshots/" not in each["Key"]:
                    count += 1
                    size += each["Size"]
        return count, size

    def slope_per_hour(self, value: Callable[[Sample], int]) -> float:
        """By least squares over the last two thirds."""
        samples = self.samples[len(self.samples) // 3 :]
        mean_x = sum(each.seconds for each in samples) / len(samples)
        mean_y = sum(value(each) for each in samples) / len(samples)
        across = sum((each.seconds - mean_x) ** 2 for each in samples)
        along = sum((each.seconds - mean_x) * (value(each) - mean_y) for each in samples)
        return along / across * 3600 if across else 0.0


def metric(text: str, name: str) -> int:
    """The sum of all lines of a metric."""
    return int(sum(float(each) for each in re.findall(rf"^{name} (\S+)$", text, re.MULTILINE)))


def _rss(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    return 0


def children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


@contextmanager
def memory_limit(bytes_max: int) -> Iterator[Callable[[int], bool]]:
    """A cgroup with that limit: what it yields puts a process there; False: there is no cgroup."""
    for root, file in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        group = root / f"frazil-endurance-{os.getpid()}"
        with suppress(OSError):
            group.mkdir()
            try:
                (group / file).write_text(str(bytes_max))
            except OSError:
                group.rmdir()
                continue

            def put(pid: int, group: Path = group) -> bool:
                (group / "cgroup.procs").write_text(str(pid))
                return True

            yield put
            group.rmdir()
            return
    yield lambda _: False


def settings(*, quick: bool) -> list[str]:
    """Of the agent: jobs often enough that a run sees many rounds of each."""
    every_ms = 5_000 if quick else 30_000
    return [
        "cache.bytes=64MiB",
        "jobs.start.delay.ms=1000",
        f"snapshot.interval.ms={every_ms}",
        f"merge.interval.ms={every_ms}",
        f"merge.age.ms={every_ms}",
        f"collect.interval.ms={every_ms}",
        f"log.retention.check.interval.ms={every_ms}",
        f"log.cleaner.backoff.ms={every_ms}",
        f"log.segment.delete.delay.ms={every_ms}",
    ]


def run(
    folder: Path, *, seconds: float, memory_bytes: int, rates: Rates, quick: bool
) -> tuple[Watch, dict[str, int]]:
    """The whole run; samples, and what the audit counted. Raises AssertionError when it is wrong."""
    etcd, minio = EtcdServer(folder / "etcd"), MinioServer(folder / "minio")
    etcd.start()
    minio.start()
    cluster = FrazilCluster(folder / "frazil", etcd, minio, *settings(quick=quick), agents=1)
    agent = cluster.agents[0]
    bucket = next(each for each in agent.child.argv if each.startswith("store=s3://")).split("/")[2]
    try:
        with memory_limit(memory_bytes) as limit, cluster:
            limited = limit(agent.child.pid)
            print(f"memory of agent and worker: {'limited' if limited else 'not limited here'}")
            load = Load(cluster.bootstrap, rates)
            load.create_topics(retention_ms=max(20_000, int(seconds * 1000 / 6)))
            watch = Watch(agent, etcd, minio, bucket)
            load.start()
            while watch.sample().seconds < seconds:
                print(_line(watch.samples[-1]), flush=True)
                time.sleep(min(10.0, seconds / 12))
            load.stop()
            settle(watch)
            found = load.audit()
            return watch, found
    finally:
        minio.stop()
        etcd.stop()


def settle(watch: Watch, *, seconds: float = 180.0) -> None:
    """With nothing written any more, what the bucket has beside live records goes, but for a tenth.

    Snapshots, which stay ten minutes, are not counted: here they are made as often as nowhere.
    """
    deadline_s = time.monotonic() + seconds
    while True:
        sample = watch.sample()
        print(_line(sample), flush=True)
        if watch.bucket(snapshots=False)[1] <= 1.1 * sample.live_bytes:
            return
        assert time.monotonic() < deadline_s, "the bucket holds more than live records and a tenth"
        time.sleep(5.0)


def _line(sample: Sample) -> str:
    mib = 1 << 20
    return (
        f"{sample.seconds:6.0f} s  agent {sample.agent_rss // mib} MiB  worker"
        f" {sample.worker_rss // mib} MiB  etcd {sample.etcd_in_use // 1024} of"
        f" {sample.etcd_bytes // 1024} KiB, {sample.etcd_keys} keys  bucket {sample.bucket_bytes / mib:.1f}"
        f" MiB in {sample.objects}  live {sample.live_bytes / mib:.1f} MiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--memory", type=int, default=1024, metavar="MiB")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="frazil-endurance-") as folder:
        watch, found = run(
            Path(folder),
            seconds=options.minutes * 60,
            memory_bytes=options.memory << 20,
            rates=Rates(),
            quick=False,
        )
    mib = 1 << 20
    for name in (
        "agent_rss",
        "worker_rss",
        "etcd_in_use",
        "etcd_bytes",
        "bucket_bytes",
        "live_bytes",
    ):
        slope = watch.slope_per_hour(lambda sample, name=name: getattr(sample, name))
        print(f"{name}: {slope / mib:+.2f} MiB per hour over the last two thirds")
    slope = watch.slope_per_hour(lambda sample: sample.etcd_keys)
    print(f"etcd_keys: {slope:+.0f} per hour")
    print(f"read back and equal to what was acknowledged: {found}")


if __name__ == "__main__":
    main()
