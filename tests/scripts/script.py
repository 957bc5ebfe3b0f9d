"""The language of the scripts: steps in text, and what the machine answers, in text.

    agent NAME [zone=Z] [node=N] [level=L]    NAME opens an incarnation
    NAME[@CLOCK]: COMMAND [&& COMMAND ...]    an entry of NAME, at the wall clock CLOCK (ms)
    show agents | topics | time | pins | chunks | digest | TOPIC/PARTITION

    tick · ids COUNT · pin NAME MS · unpin NAME · close NAME [LAST]
    topic NAME PARTITIONS · delete TOPIC · purge [TOPIC FIRST COUNT]
    chunk [#NUMBER] PLACE ITEM ... [| PLACE ITEM ...]

What is said about groups, and about configs, is in `group_words`; about transactions, in
`transaction_words`; about jobs, in `job_words`.

PLACE is TOPIC/PARTITION. ITEM is xRECORDS (plain) or ID:EPOCH:SEQUENCExRECORDS (idempotent), then
#INSTANCE (in a transaction of a TV1 client) or #epoch (TV2), @TIMESTAMP and +BYTES to be skipped
before it if wanted; every item has 100 bytes. A topic that was deleted keeps its name here until
the name is created again; NAME' is the incarnation of NAME before its newest one. Lines that begin
with # are comments; lines that are indented are the outcomes.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from coordinator.commands.entries import (
    AllocateProducerIds,
    ChunkCommitted,
    ChunkSpan,
    Close,
    Command,
    CommitChunk,
    CreateTopic,
    DeleteTopic,
    Done,
    ItemResult,
    Opened,
    Outcome,
    Pin,
    Pinned,
    ProducerIdsAllocated,
    PurgePartitions,
    Rejected,
    Tick,
    TopicCreated,
    Unpin,
)
from protocol.errors import ErrorCode
from protocol.types import Incarnation, revision_of
from storage.formats.spans import Item, Marker, Page
from tests.coordinator.machine.story import Story, opening
from tests.kit.script import meaning, options
from tests.scripts.group_words import GroupWords
from tests.scripts.job_words import JobWords
from tests.scripts.names import Names
from tests.scripts.transaction_words import TransactionWords
from txn.transactions import NO_TRANSACTION, OF_EPOCH

ITEM = re.compile(r"(?:(\d+):(\d+):(\d+))?x(\d+)(?:#(\d+|epoch))?(?:@(-?\d+))?(?:\+(\d+))?")
ITEM_BYTES = 100


@dataclass
class Script:
    story: Story = field(default_factory=Story)
    names: Names = field(default_factory=Names)
    numbers: dict[Incarnation, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        machine = self.story.machine
        self.groups = GroupWords(machine, self.names)
        self.transactions = TransactionWords(machine, self.names)
        self.jobs = JobWords(machine, self.names)

    def step(self, line: str) -> Iterable[str]:
        """Carries out one line; a line for each outcome."""
        head, is_entry, rest = line.partition(": ")
        if not is_entry:
            return meaning(line, {"agent": self._open, **self._tables()})
        name, _, clock_ms = head.partition("@")
        agent = self.names.agents[name]
        phrases = self._commands(agent)
        texts = [text.strip() for text in rest.split("&&")]
        commands = [meaning(text, phrases) for text in texts]
        outcomes = self.story.do_all(agent, *commands, clock_ms=int(clock_ms) if clock_ms else None)
        return [self._told(*each) for each in zip(texts, commands, outcomes, strict=True)]

    def _open(self, name: str, *words: str) -> list[str]:
        _, given = options(words)
        outcome = self.story.try_open(
            opening(
                name,
                node_id=int(given.get("node", -1)),
                zone=given.get("zone", ""),
                level=int(given.get("level", 1)),
            )
        )
        if not isinstance(outcome, Opened):
            return [self._told("", Tick(), outcome)]
        if name in self.names.agents:
            self.names.agents[name + "'"] = self.names.agents[name]
        self.names.agents[name] = outcome.incarnation
        return [f"opened: node {outcome.node_id}, rank {outcome.rank}"]

    def _commands(self, agent: Incarnation) -> Mapping[str, Callable[..., Command]]:
        return {
            "tick": Tick,
            "ids": lambda count: AllocateProducerIds(int(count)),
            "pin": lambda name, lifetime_ms: Pin(name, int(lifetime_ms)),
            "unpin": Unpin,
            "close": self._close,
            "topic": lambda name, count: CreateTopic(name, int(count), ()),
            "delete": lambda name: DeleteTopic(self.names.topics[name]),
            "purge": self._purge,
            "chunk": lambda *words: self._chunk(agent, list(words)),
            **self.groups.commands(),
            **self.transactions.commands(),
            **self.jobs.commands(agent),
        }

    def _close(self, name: str, last: str = "") -> Close:
        incarnation = self.names.agents[name]
        row = self.story.machine.incarnations.get(incarnation)
        return Close(incarnation, int(last) if last else row.last_n if row else 0)

    def _purge(self, *words: str) -> PurgePartitions:
        if words:
            name, first, count = words
            return PurgePartitions(self.names.topics[name], int(first), int(count))
        command = self.story.machine.next_purge()
        assert command is not None, "nothing is left to purge"
        return command

    def _chunk(self, agent: Incarnation, words: list[str]) -> CommitChunk:
        number = self.numbers.get(agent, 0)
        if words[0].startswith("#"):
            number = int(words.pop(0)[1:])
        self.numbers[agent] = number + 1
        spans, at = [], 0
        for place, *texts in (part.split() for part in " ".join(words).split("|")):
            items = tuple(_item(text) for text in texts)
            spans.append(ChunkSpan(*self.names.place(place), at, items))
            at += sum(item.skip + item.length for item in items)
        return CommitChunk(number, at, tuple(spans))

    # What is told of an outcome.

    def _told(self, text: str, command: Command, outcome: Outcome) -> str:
        match outcome:
            case Done():
                return "done"
            case Rejected(error, message):
                return f"refused: {error.name}: {self._named(message)}"
            case TopicCreated(topic_id):
                self.names.topics[text.split()[1]] = topic_id
                return f"created: {text.split()[1]}"
            case ProducerIdsAllocated(first, count):
                return f"producer ids {first} to {first + count - 1}"
            case Pinned(position, expires_ms):
                return f"pinned: at {revision_of(position)}, until {expires_ms}"
            case ChunkCommitted(results):
                assert isinstance(command, CommitChunk)
                return f"committed: {self._results(command, results)}"
            case _:
                words = (self.groups, self.transactions, self.jobs)
                told = next(filter(None, (each.told(command, outcome) for each in words)), None)
                assert told is not None, outcome
                return told

    def _results(self, command: CommitChunk, results: tuple[ItemResult, ...]) -> str:
        rest = iter(results)
        return " | ".join(
            f"{self.names.of_place(span.topic_id, span.partition)} "
            + ", ".join(_result(next(rest)) for _ in span.items)
            for span in command.spans
        )

    def _named(self, message: str) -> str:
        for name, topic_id in self.names.topics.items():
            message = message.replace(topic_id.hex(), name)
        return message

    # What is shown.

    def _tables(self) -> Mapping[str, Callable[..., Iterable[str]]]:
        machine = self.story.machine
        return {
            "show": self._show_partition,
            "show agents": lambda: (
                f"{row.node_name}: node {row.node_id}, rank {row.rank}"
                + (f", zone {row.zone}" if row.zone else "")
                for row in machine.incarnations
            ),
            "show topics": lambda: (
                f"{topic.name}: {topic.partition_count} partitions" for topic in machine.topics
            ),
            "show time": lambda: [f"{machine.time_ms}"],
            "show pins": lambda: (
                f"{pin.name}: at {revision_of(pin.position)}, until {pin.expires_ms}"
                for pin in machine.pins.alive(machine.time_ms)
            ),
            "show chunks": self._show_chunks,
            "show digest": lambda: [machine.digest().hex()],
            **self.groups.tables(),
            **self.transactions.tables(),
            **self.jobs.tables(),
        }

    def _show_chunks(self) -> Iterator[str]:
        objects = self.story.machine.objects
        yield f"{len(objects)} in use"
        for object_id, since, _ in objects.unreferenced():
            yield f"{self.jobs.object_name(object_id)} unreferenced since {revision_of(since)}"
        for object_id in objects.doomed():
            yield f"{self.jobs.object_name(object_id)} doomed"

    def _show_partition(self, place: str) -> Iterator[str]:
        partition = self.story.machine.partitions.get(*self.names.place(place))
        if partition is None:
            yield "none"
            return
        producers = ", ".join(str(producer) for producer in partition.windows or ())
        of = f", producers {producers}" if producers else ""
        end = f"{partition.end_offset}"
        if partition.open_transactions:
            end += f", stable to {partition.last_stable}"
        clean = f", clean to {partition.clean_to}" if partition.clean_to else ""
        yield f"offsets {partition.log_start} to {end}{clean}{of}"
        for span in partition.rows_from(0, partition.row_count):
            if isinstance(span, Page):
                yield self.jobs.page(span)
                continue
            if isinstance(span, Marker):
                told = "commit" if span.commit else "abort"
                producer = f"{span.producer_id}:{span.producer_epoch}"
                yield f"{span.base_offset}: {told} of {producer}, at {span.timestamp}"
                continue
            yield (
                f"{span.base_offset} to {span.next_offset}: {self.jobs.object_name(span.object_id)}"
                f" at {span.start}, {span.length} bytes, newest {span.timestamp_max}"
            )


def _item(text: str) -> Item:
    found = ITEM.fullmatch(text)
    assert found is not None, f"{text!r} is no item"
    instance = found[5]
    producer_id, epoch, sequence, records, _, timestamp, skip = (
        None if group in {None, "epoch"} else int(group) for group in found.groups()
    )
    return Item(
        skip=skip or 0,
        length=ITEM_BYTES,
        records=records or 0,
        timestamp_max=0 if timestamp is None else timestamp,
        producer_id=-1 if producer_id is None else producer_id,
        producer_epoch=-1 if epoch is None else epoch,
        first_sequence=-1 if sequence is None else sequence,
        instance=OF_EPOCH if instance == "epoch" else int(instance or NO_TRANSACTION),
    )


def _result(result: ItemResult) -> str:
    if result.error != ErrorCode.NONE:
        return result.error.name
    return f"duplicate of {result.base_offset}" if result.duplicate else f"{result.base_offset}"
