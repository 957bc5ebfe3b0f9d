"""What drills of a lost log share: clients under load, what they were told, and what must be there again."""

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from broker.cli.admin_client import AgentPlace, ask
from protocol.types import Position
from storage.formats import log_archive
from tests.faults import wire
from tests.parts.process import Child
from tests.parts.servers import Frazil
from tests.parts.topics import create_topic

EAGER = ("jobs.start.delay.ms=0", "log.archive.ms=100")
PATIENCE_S = 120.0
REFUSED = "the metadata log is older than the object store"
PER_SECOND = 200
Place = tuple[str, int]
Acknowledged = dict[tuple[str, int, int], bytes]
"""By topic, partition and offset."""


def produced(bootstrap: str, topic: str, count: int, first: int) -> Acknowledged:
    """So many records, alternating between two partitions, each acknowledged."""
    found: Acknowledged = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        found[topic, message.partition(), message.offset()] = message.value()

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})
    for number in range(first, first + count):
        producer.produce(topic, f"{number:06d}", partition=number % 2, on_delivery=delivered)
    assert producer.flush(PATIENCE_S) == 0
    return found


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def archived_to(store: Path) -> Position:
    """Where the newest archive in a store on this machine ends."""
    keys = [f"{log_archive.FOLDER}/{path.name}" for path in stored(store, log_archive.FOLDER)]
    return max([log_archive.range_of(key)[1] for key in keys], default=Position(0))


def all_is_archived(store: Path, *agents: Frazil) -> None:
    """What one of the agents has applied by now is in the store, too."""
    head = max(map(position_now, agents))
    until(lambda: archived_to(store) >= head, f"nothing is archived up to {head}")


def run_recover(child: Child, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [child.argv[0], "recover", *flags],
        env=child.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def recover(child: Child, *flags: str) -> str:
    done = run_recover(child, *flags)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ends_refused(child: Child) -> None:
    """Start it and see it end by itself, with the sentence."""
    with pytest.raises(AssertionError, match="ended by itself"):
        child.start(lambda: False, seconds=60)
    assert REFUSED in child.tail()
    assert child.tail().endswith(" [older-log]")


def settings_of(agent: Frazil) -> list[str]:
    """The flags that say what an agent of a cluster was told."""
    return agent.child.argv[2:]


def read_all(port: int, topic: str) -> Acknowledged:
    return {
        (topic, partition, record.offset): bytes(record.value or b"")
        for partition in range(2)
        for record in wire.read(port, topic, partition, end=wire.end_offset(port, topic, partition))
    }


def assert_only_the_listed_is_lost(
    acknowledged: Acknowledged, found: Acknowledged, told: dict[str, Any]
) -> None:
    """What was acknowledged is where it was, or came last in its partition and is listed."""
    lost = {place for place, value in acknowledged.items() if found.get(place) != value}
    listed = {(row["topic"], row["partition"]): row for row in told["unarchived"]}
    for topic, partition in {place[:2] for place in lost}:
        row = listed[topic, partition]
        offsets = sorted(place[2] for place in lost if place[:2] == (topic, partition))
        assert offsets[0] >= row["end_offset"], "what came before the newest archive is there"
        assert len(offsets) <= row["records"]


def committed_offsets(bootstrap: str, group: str) -> dict[Place, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    places = [TopicPartition("t", partition) for partition in range(2)]
    found = {
        (each.topic, each.partition): each.offset for each in consumer.committed(places, PATIENCE_S)
    }
    consumer.close()
    return found


def following(bootstrap: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "followers",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition("t", partition, 0) for partition in range(2)])
    return consumer


def read_to_the_end(consumer: Consumer, wanted: Acknowledged) -> None:
    """Until every one of these has come, at its place."""
    left = dict(wanted)
    deadline = time.monotonic() + PATIENCE_S
    while left:
        assert time.monotonic() < deadline, f"{len(left)} records do not come"
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            place = (message.topic(), message.partition(), message.offset())
            if left.get(place) == message.value():
                del left[place]


def flags_of(settings: tuple[str, ...]) -> list[str]:
    return [word for each in settings for word in ("--set", each)]


def position_now(agent: Frazil) -> Position:
    """How far the agent has applied the log."""
    return Position(ask(place_of(agent), "/jobs")["position"])


def place_of(agent: Frazil) -> AgentPlace:
    return AgentPlace(f"http://127.0.0.1:{agent.http_port}")


def snapshot(agent: Frazil, store: Path) -> None:
    """Have one made, whichever agent makes it."""
    before = newest_snapshot(store)
    ask(place_of(agent), "/jobs/snapshot/run", method="POST")
    until(lambda: newest_snapshot(store) > before, "no snapshot is made")


def newest_snapshot(store: Path) -> int:
    found = [path for path in stored(store, "snapshots") if (path / "manifest").exists()]
    return max((int(path.name, 16) for path in found), default=0)


def stored(store: Path, folder: str) -> Iterator[Path]:
    """What is in that folder of a store that somebody writes meanwhile."""
    for root, folders, files in os.walk(store):
        folders[:] = [name for name in folders if not name.startswith(".")]
        if Path(root).name == folder:
            yield from [Path(root) / name for name in (*folders, *files)]


def recover_when_sessions_are_over(child: Child, *flags: str) -> str:
    """Agents that were killed have sessions for some seconds more, and a log put back has those of then."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        done = run_recover(child, "--yes", *flags)
        if done.returncode == 0:
            return done.stdout
        assert "end all agents first" in done.stderr, done.stderr
        assert time.monotonic() < deadline, done.stderr
        time.sleep(0.5)


def planned(child: Child, *flags: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(recover(child, "--dry-run", "--json", *flags))
    return told


def consumed(bootstrap: str, topic: str) -> Acknowledged:
    """All that a reader of committed records finds, up to the end of each of two partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "auditors",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
    found: Acknowledged = {}
    ended = set()
    while len(ended) < 2:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, "a transaction is open for ever"
        if message.error() is None:
            found[topic, message.partition(), message.offset()] = message.value()
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ended.add(message.partition())
    consumer.close()
    return found


class Mark(NamedTuple):
    """What clients had been told, and had begun, at a moment."""

    records: Acknowledged
    payments: frozenset[int]
    """Committed."""
    offsets: dict[Place, int]
    """Committed by the group."""


class Clients:
    """Under load until `killed`: records of `t`, transactions over both partitions of `paid`, and a group that reads `t`."""

    def __init__(self, bootstrap: str) -> None:
        self.sent = 0
        """Records of `t`: the number of the next one."""
        self.begun = 0
        """Transactions: the number of the next one."""
        self._payer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": "payer", "log_level": 0}
        )
        self._bootstrap = bootstrap
        self._acknowledged: Acknowledged = {}
        self._paid: set[int] = set()
        self._offsets: dict[Place, int] = {}
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self.failures: list[str] = []
        """While all agents lived."""
        for topic in ("t", "paid"):
            create_topic(AdminClient({"bootstrap.servers": bootstrap}), topic, 2)
        follower, *self._writers = [
            threading.Thread(target=self._guarded, args=[work], daemon=True)
            for work in (self._follow, self._send, self._pay)
        ]
        for thread in (follower, *self._writers):
            thread.start()

    def mark(self) -> Mark:
        with self._lock:
            return Mark({**self._acknowledged}, frozenset(self._paid), {**self._offsets})

    def until_more(self, records: int = 60, payments: int = 3) -> None:
        """So much more is acknowledged, and the group has committed offsets again."""
        before = self.mark()

        def more() -> bool:
            assert not self.failures, self.failures
            now = self.mark()
            return (
                len(now.records) >= len(before.records) + records
                and len(now.payments) >= len(before.payments) + payments
                and len(now.offsets) == 2
                and all(now.offsets[place] > at for place, at in before.offsets.items())
            )

        until(more, "clients do not get on")

    def killed(self, agents: Iterable[Frazil]) -> Mark:
        """The agents die under the load; what had been acknowledged when nobody could any more.

        The reader leaves when there is an agent again: its commits wait for one.
        """
        dying = [threading.Thread(target=agent.child.kill) for agent in agents]
        for thread in dying:
            thread.start()
        self._ending.set()
        for thread in [*dying, *self._writers]:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        return self.mark()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except KafkaException as error:
            if not self._ending.is_set():
                self.failures.append(repr(error))

    def _send(self) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                with self._lock:
                    place = ("t", message.partition(), message.offset())
                    self._acknowledged[place] = message.value()

        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        start = time.monotonic()
        while not self._ending.is_set():
            number, self.sent = self.sent, self.sent + 1
            producer.produce("t", f"{number:06d}", partition=number % 2, on_delivery=delivered)
            producer.poll(max(0.0, start + number / PER_SECOND - time.monotonic()))
        producer.poll(0.5)
        producer.purge()
        producer.flush(PATIENCE_S)

    def _pay(self) -> None:
        self._payer.init_transactions(PATIENCE_S)
        while not self._ending.is_set():
            number, self.begun = self.begun, self.begun + 1
            self._payer.begin_transaction()
            for partition in range(2):
                self._payer.produce("paid", f"{number}-{partition}", partition=partition)
            self._ended(number)

    def _ended(self, number: int) -> None:
        while True:
            try:
                self._payer.commit_transaction(1)
            except KafkaException as error:
                if self._ending.is_set():
                    raise
                if error.args[0].txn_requires_abort():
                    self._payer.abort_transaction(PATIENCE_S)
                    return
                if not error.args[0].retriable():
                    raise
            else:
                with self._lock:
                    self._paid.add(number)
                return

    def _follow(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "readers",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "socket.timeout.ms": 2_000,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition("t", partition, 0) for partition in range(2)])
        while not self._ending.is_set():
            if not consumer.consume(50, timeout=0.2):
                continue
            try:
                committed = consumer.commit(
                    offsets=consumer.position(consumer.assignment()), asynchronous=False
                )
            except KafkaException:
                continue  # The group moves to another agent: it commits again with the next ones.
            with self._lock:
                self._offsets |= {
                    (each.topic, each.partition): each.offset
                    for each in committed
                    if each.offset >= 0
                }
        consumer.close()


def assert_recovered(
    agent: Frazil, archived: Mark, all_: Mark, told: dict[str, Any], *, sent: int
) -> Acknowledged:
    """What was archived is there, every transaction whole or not at all; what else is not was listed. The records.

    `sent`: how many records there were, acknowledged or not.
    """
    found = read_all(agent.port, "t")
    assert archived.records.items() <= found.items(), "it was archived"
    assert_only_the_listed_is_lost(all_.records, found, told)
    for row in told["unarchived"]:
        before = [
            place for place in archived.records if place[:2] == (row["topic"], row["partition"])
        ]
        if row["topic"] == "t":
            assert row["records"] <= (sent + 1) // 2 - len(before), "nothing archived is listed"
    assert archived.payments <= whole_payments(agent.bootstrap)
    offsets = committed_offsets(agent.bootstrap, "readers")
    assert all(offsets[place] >= offset for place, offset in archived.offsets.items())
    return found


def whole_payments(bootstrap: str) -> set[int]:
    """The transactions that are there; each is in both partitions, once."""
    values = sorted(consumed(bootstrap, "paid").values())
    numbers = {int(value.split(b"-")[0]) for value in values}
    halves = sorted(
        f"{number}-{partition}".encode() for number in numbers for partition in range(2)
    )
    assert values == halves
    return numbers
