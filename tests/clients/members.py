"""Members of each client: librdkafka, kafka-python, aiokafka in threads; Java and kafkajs outside.

Settings have Kafka's names everywhere. Members hear of rebalances soon (heartbeats of 300 ms) and
commit only when they are told to, unless a test says otherwise.
"""

import asyncio
import contextlib
import queue
import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import aiokafka
import confluent_kafka
import kafka
from aiokafka.structs import TopicPartition as AiokafkaPartition
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaPythonPartition

from tests.clients.groups import CommitError, Got, Member, Owners, Place
from tests.clients.host import Host, java, javascript

ANSWER_S = 30.0
HEARTBEAT_MS = 300
POLL_MS, JOINING_POLL_MS = 50, 5_000
"""Of kafka-python. Version 3.0.12 takes itself for joined when JoinGroup is answered; if its poll
ends before SyncGroup is, it waits for that answer no more and has no partitions ever after."""


class ThreadedMember(Member):
    """A member whose client runs in a thread of its own, and is touched by that thread only."""

    def __init__(self, name: str, owners: Owners | None = None) -> None:
        super().__init__(name, owners)
        self._asked: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)
        self._closing = threading.Event()

    @abstractmethod
    def run(self) -> None:
        """Poll until closing, then close the client; calls `obey` between polls."""

    @abstractmethod
    def commit_now(self, offsets: dict[Place, int] | None) -> None:
        """In the member's thread."""

    def commit(self, offsets: dict[Place, int] | None = None) -> None:
        future: Future[Any] = Future()
        self._asked.put((lambda: self.commit_now(offsets), future))
        future.result(ANSWER_S)

    def leave(self) -> None:
        self._closing.set()

    def close(self) -> None:
        self.leave()
        self._thread.join(ANSWER_S)
        assert not self._thread.is_alive(), f"{self.name} does not close\n{self.told()}"

    def obey(self) -> None:
        """Do what was asked for meanwhile."""
        with contextlib.suppress(queue.Empty):
            while True:
                do, future = self._asked.get_nowait()
                try:
                    future.set_result(do())
                except Exception as error:  # noqa: BLE001 - Whatever it is, the test is told.
                    future.set_exception(error)

    def _guarded(self) -> None:
        try:
            self.run()
        except Exception as error:  # noqa: BLE001 - A member that died is told of by the test.
            self.errors.append(repr(error))


class ConfluentMember(ThreadedMember):
    """librdkafka. `config` in its own names, which are Kafka's for all that matters here.

    The one topic "=t" stands for all partitions of t, assigned by hand.
    """

    def __init__(
        self,
        name: str,
        bootstrap: str,
        group: str,
        topics: Sequence[str],
        owners: Owners | None = None,
        **config: Any,
    ) -> None:
        super().__init__(name, owners)
        classic = config.get("group.protocol", "classic") == "classic"
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "client.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                "reconnect.backoff.max.ms": 500,
                **({"heartbeat.interval.ms": HEARTBEAT_MS} if classic else {}),
                **config,
            }
        )
        if topics[0].startswith("="):
            topic = topics[0][1:]
            found = self._consumer.list_topics(topic, timeout=ANSWER_S).topics[topic]
            self._consumer.assign(
                [confluent_kafka.TopicPartition(topic, index) for index in found.partitions]
            )
        else:
            self._consumer.subscribe(
                list(topics), on_assign=self._came, on_revoke=self._went, on_lost=self._lost
            )
        self._thread.start()

    def run(self) -> None:
        while not self._closing.is_set():
            self.obey()
            message = self._consumer.poll(0.05)
            if message is None:
                continue
            if error := message.error():
                self.errors.append(str(error))
                continue
            value = (message.value() or b"").decode()
            self.records.append(Got(message.topic(), message.partition(), message.offset(), value))
        self._consumer.close()

    def commit_now(self, offsets: dict[Place, int] | None) -> None:
        self.member_id = self._consumer.memberid()
        try:
            if offsets is None:
                self._consumer.commit(asynchronous=False)
                return
            rows = [
                confluent_kafka.TopicPartition(*place, offset) for place, offset in offsets.items()
            ]
            for row in self._consumer.commit(offsets=rows, asynchronous=False):
                if row.error is not None:
                    raise CommitError(row.error.name())
        except confluent_kafka.KafkaException as error:
            raise CommitError(error.args[0].name()) from error

    def _came(self, consumer: Any, partitions: Any) -> None:
        self.member_id = consumer.memberid()
        self.assigned((row.topic, row.partition) for row in partitions)

    def _went(self, _consumer: Any, partitions: Any) -> None:
        self.revoked((row.topic, row.partition) for row in partitions)

    def _lost(self, _consumer: Any, partitions: Any) -> None:
        self.revoked(((row.topic, row.partition) for row in partitions), "lost")


class KafkaPythonMember(ThreadedMember, kafka.ConsumerRebalanceListener):
    """kafka-python, whose consumer must stay in one thread."""

    def __init__(
        self, name: str, bootstrap: str, group: str, topics: Sequence[str], **config: Any
    ) -> None:
        super().__init__(name)
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            client_id=name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=HEARTBEAT_MS,
            fetch_max_wait_ms=100,
            **config,
        )
        self._consumer.subscribe(list(topics), listener=self)
        self._thread.start()

    def run(self) -> None:
        while not self._closing.is_set():
            self.obey()
            joins = self._consumer._coordinator.need_rejoin()
            wait_ms = JOINING_POLL_MS if joins else POLL_MS
            for batch in self._consumer.poll(timeout_ms=wait_ms).values():
                for row in batch:
                    value = (row.value or b"").decode()
                    self.records.append(Got(row.topic, row.partition, row.offset, value))
        self._consumer.close()

    def commit_now(self, offsets: dict[Place, int] | None) -> None:
        rows = offsets and {
            KafkaPythonPartition(*place): OffsetAndMetadata(offset, "", -1)
            for place, offset in offsets.items()
        }
        try:
            self._consumer.commit(rows)
        except kafka.errors.KafkaError as error:
            raise CommitError(repr(error)) from error

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.assigned((row.topic, row.partition) for row in assigned)

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.revoked((row.topic, row.partition) for row in revoked)

    def on_partitions_lost(self, lost: Any) -> None:
        self.revoked(((row.topic, row.partition) for row in lost), "lost")


class AiokafkaMember(ThreadedMember, aiokafka.ConsumerRebalanceListener):
    """aiokafka, on an event loop of its own."""

    def __init__(
        self, name: str, bootstrap: str, group: str, topics: Sequence[str], **config: Any
    ) -> None:
        super().__init__(name)
        self._topics = list(topics)
        self._config = {
            "bootstrap_servers": bootstrap,
            "group_id": group,
            "client_id": name,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "heartbeat_interval_ms": HEARTBEAT_MS,
            "fetch_max_wait_ms": 100,
            **config,
        }
        self._commits: list[Any] = []
        self._thread.start()

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        consumer = aiokafka.AIOKafkaConsumer(**self._config)
        consumer.subscribe(self._topics, listener=self)
        await consumer.start()
        try:
            while not self._closing.is_set():
                while not self._asked.empty():
                    asked, future = self._asked.get()
                    await self._commit(consumer, asked(), future)
                for batch in (await consumer.getmany(timeout_ms=50)).values():
                    for row in batch:
                        value = (row.value or b"").decode()
                        self.records.append(Got(row.topic, row.partition, row.offset, value))
        finally:
            await consumer.stop()

    def commit_now(self, offsets: dict[Place, int] | None) -> Any:
        """What `_commit` is to commit: aiokafka's calls are to be awaited."""
        return offsets and {AiokafkaPartition(*place): offset for place, offset in offsets.items()}

    @staticmethod
    async def _commit(consumer: Any, offsets: Any, future: Future[Any]) -> None:
        try:
            await consumer.commit(offsets)
            future.set_result(None)
        except aiokafka.errors.KafkaError as error:
            future.set_exception(CommitError(repr(error)))

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self.assigned((row.topic, row.partition) for row in assigned)

    async def on_partitions_revoked(self, revoked: Any) -> None:
        self.revoked((row.topic, row.partition) for row in revoked)


class HostedMember(Member):
    """A member in a host."""

    def __init__(self, name: str, host: Host, owners: Owners | None) -> None:
        super().__init__(name, owners)
        self._host = host
        self._leaving = False
        self.answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        """"" when what was asked for is done, else why not."""

    def commit(self, offsets: dict[Place, int] | None = None) -> None:
        rows = [
            word
            for (topic, partition), offset in (offsets or {}).items()
            for word in (topic, str(partition), str(offset))
        ]
        self._host.say("commit", self.name, *rows)
        self._answer()

    def leave(self) -> None:
        if not self._leaving:
            self._leaving = True
            self._host.say("close", self.name)

    def close(self) -> None:
        self.leave()
        self._answer()

    def _answer(self) -> None:
        try:
            failed = self.answers.get(timeout=ANSWER_S)
        except queue.Empty:
            raise AssertionError(f"no answer\n{self.told()}\n{self._host.noise()}") from None
        if failed:
            raise CommitError(failed)


class MemberHost(Host):
    """Members of another language; see java/Members.java."""

    def __init__(self, argv: list[str]) -> None:
        self._members: dict[str, HostedMember] = {}
        self._names = 0
        super().__init__(argv)

    def open(
        self,
        name: str,
        bootstrap: str,
        group: str,
        subscription: str,
        owners: Owners | None = None,
        **config: Any,
    ) -> HostedMember:
        """A new member. `subscription`: topics between commas; Java also takes "~pattern", and
        "=topic" for all partitions of a topic, assigned by hand."""
        self._names += 1
        member = HostedMember(f"{name}-{self._names}", self, owners)
        self._members[member.name] = member
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "fetch.max.wait.ms": 100,
            "metadata.max.age.ms": 1000,
            "reconnect.backoff.max.ms": 500,
            **config,
        }
        if settings.get("group.protocol", "classic") == "classic":
            settings.setdefault("heartbeat.interval.ms", HEARTBEAT_MS)
        words = [f"{key}={value}" for key, value in settings.items()]
        self.say("open", member.name, subscription, *words)
        return member

    def ended(self) -> None:
        """Whoever waits for an answer gets none."""

    def heard(self, kind: str, name: str, *words: str) -> None:
        member = self._members[name]
        if kind == "record":
            topic, partition, offset, value = words
            member.records.append(Got(topic, int(partition), int(offset), value))
        elif kind == "assigned":
            member.assigned(_places(words[0]))
        elif kind in ("revoked", "lost"):
            member.revoked(_places(words[0]), kind)
        elif kind == "identity":
            member.member_id, member.generation = words[0], int(words[1])
        elif kind == "error":
            member.errors.append(words[0])
        else:
            member.answers.put("" if kind == "done" else words[0])


def _places(text: str) -> list[Place]:
    found = (place.rpartition("/") for place in text.split(",") if place)
    return [(topic, int(partition)) for topic, _, partition in found]


def java_host() -> MemberHost:
    """A JVM for any number of members."""
    return MemberHost(java("Members.java"))


def kafkajs_host() -> MemberHost:
    return MemberHost(javascript("members.js"))
