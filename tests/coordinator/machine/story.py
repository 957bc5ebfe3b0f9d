"""A machine and the log in front of it, for tests: agents open, then append commands."""

from typing import Any

from coordinator.commands.entries import (
    ChunkCommitted,
    ChunkSpan,
    Command,
    CommitChunk,
    CreateTopic,
    Entry,
    ItemResult,
    Listener,
    Open,
    Opened,
    Outcome,
    TopicCreated,
)
from coordinator.commands.transaction_commands import InitProducer, ProducerInitialized
from coordinator.machine.machine import Machine
from coordinator.tables.partitions import Partition
from protocol.types import INCARNATION_NONE, Incarnation, Position, TopicId, position
from storage.formats.spans import Item
from txn.transactions import NO_TRANSACTION

REVISIONS_PER_ENTRY = 3
"""Positions leave holes, as they do on etcd."""
LISTENERS = (Listener("PLAINTEXT", "127.0.0.1", 9092),)


def opening(
    node_name: str = "agent-0", *, node_id: int = -1, zone: str = "zone-a", level: int = 1
) -> Open:
    return Open(
        session=77,
        node_name=node_name,
        node_id=node_id,
        zone=zone,
        listeners=LISTENERS,
        software_version="0.1.0",
        feature_level_max=level,
    )


class Story:
    """Every entry goes through here."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.era = 1
        self.revision = 0
        self.clock_ms = 1_000
        self.log: list[tuple[Position, Entry]] = []
        self.chunks = 0
        self._n: dict[Incarnation, int] = {}

    def append(self, entry: Entry) -> tuple[Outcome, ...]:
        self.revision += REVISIONS_PER_ENTRY
        place = position(self.era, self.revision)
        self.log.append((place, entry))
        return self.machine.apply(place, entry)

    def open_in_era(self, era: int) -> Incarnation:
        """An agent, the first of an era that the machine has begun."""
        self.era, self.revision, self.chunks = era, 1, 0
        return self.open()

    def try_open(self, command: Open, *, clock_ms: int | None = None) -> Outcome:
        entry = Entry(INCARNATION_NONE, 0, self._clock(clock_ms), (command,))
        (outcome,) = self.append(entry)
        if isinstance(outcome, Opened):
            self._n[outcome.incarnation] = 0
        return outcome

    def open(
        self,
        node_name: str = "agent-0",
        *,
        node_id: int = -1,
        zone: str = "zone-a",
        clock_ms: int | None = None,
    ) -> Incarnation:
        outcome = self.try_open(opening(node_name, node_id=node_id, zone=zone), clock_ms=clock_ms)
        assert isinstance(outcome, Opened)
        return outcome.incarnation

    def do_all(
        self, incarnation: Incarnation, *commands: Command, clock_ms: int | None = None
    ) -> tuple[Outcome, ...]:
        self._n[incarnation] += 1
        entry = Entry(incarnation, self._n[incarnation], self._clock(clock_ms), commands)
        return self.append(entry)

    def do(
        self, incarnation: Incarnation, command: Command, *, clock_ms: int | None = None
    ) -> Outcome:
        (outcome,) = self.do_all(incarnation, command, clock_ms=clock_ms)
        return outcome

    def topic(self, incarnation: Incarnation, name: str = "events", partitions: int = 1) -> TopicId:
        outcome = self.do(incarnation, CreateTopic(name, partitions, ()))
        assert isinstance(outcome, TopicCreated)
        return outcome.topic_id

    def commit(self, incarnation: Incarnation, *spans: ChunkSpan) -> list[ItemResult]:
        """A chunk of the next number that holds `spans`."""
        outcome = self.do(incarnation, self.chunk(*spans))
        assert isinstance(outcome, ChunkCommitted)
        return list(outcome.results)

    def chunk(self, *spans: ChunkSpan) -> CommitChunk:
        number = self.chunks
        self.chunks += 1
        length = max(
            (span.start + sum(item.skip + item.length for item in span.items) for span in spans),
            default=0,
        )
        return CommitChunk(number, length, spans)

    def producer(self, incarnation: Incarnation, transactional_id: str) -> tuple[int, int]:
        """Id and epoch of a new producer."""
        outcome = self.do(incarnation, InitProducer(transactional_id, 60_000, -1, -1))
        assert isinstance(outcome, ProducerInitialized)
        return outcome.producer_id, outcome.producer_epoch

    def partition(self, topic_id: TopicId, partition: int = 0) -> Partition:
        row = self.machine.partitions.get(topic_id, partition)
        assert row is not None
        return row

    def replayed(self) -> Machine:
        machine = Machine()
        for place, entry in self.log:
            machine.apply(place, entry)
        return machine

    def _clock(self, clock_ms: int | None) -> int:
        if clock_ms is not None:
            return clock_ms
        self.clock_ms += 10
        return self.clock_ms


def with_agents(*names: str) -> tuple[Any, ...]:
    """A story, and the incarnations of agents that opened in this order."""
    story = Story()
    return (story, *[story.open(name) for name in names or ("agent-0",)])


def begun(name: str = "events", partitions: int = 1) -> tuple[Story, Incarnation, TopicId]:
    """An agent, and a topic that it made."""
    story = Story()
    agent = story.open()
    return story, agent, story.topic(agent, name, partitions)


def plain(length: int = 100, records: int = 10, timestamp: int = 500, *, skip: int = 0) -> Item:
    return Item(skip, length, records, timestamp)


def batch(
    producer_id: int,
    sequence: int,
    records: int = 10,
    *,
    epoch: int = 0,
    length: int = 100,
    timestamp: int = 500,
    instance: int = NO_TRANSACTION,
) -> Item:
    return Item(0, length, records, timestamp, producer_id, epoch, sequence, instance)


def span(topic_id: TopicId, *items: Item, partition: int = 0, start: int = 0) -> ChunkSpan:
    return ChunkSpan(topic_id, partition, start, items)
