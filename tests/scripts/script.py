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
from collections.abc import Callable, Iterator
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
from coordinator.commands.group_commands import CommitOffsets, OffsetsCommitted, ShardsClaimed
from coordinator.commands.transaction_commands import CommitTransactionOffsets
from protocol.errors import ErrorCode
from protocol.types import Incarnation, TopicId, revision_of
from storage.formats.spans import Item, Marker, Page
from tests.coordinator.machine.story import Story, opening
from tests.scripts.group_words import group_command, show_groups, told_commit, told_shards
from tests.scripts.job_words import JobWords
from tests.scripts.transaction_words import (
    show_transactions,
    told_transaction,
    transaction_command,
)
from txn.transactions import NO_TRANSACTION, OF_EPOCH

ITEM = re.compile(r"(?:(\d+):(\d+):(\d+))?x(\d+)(?:#(\d+|epoch))?(?:@(-?\d+))?(?:\+(\d+))?")
ITEM_BYTES = 100


@dataclass
class Script:
    story: Story = field(default_factory=Story)
    agents: dict[str, Incarnation] = field(default_factory=dict)
    topics: dict[str, TopicId] = field(default_factory=dict)
    numbers: dict[Incarnation, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.jobs = JobWords(self.story.machine, self.topics, self.agents)

    def step(self, line: str) -> list[str]:
        """Carry out one line; what came of it, a line for each outcome."""
        if line.startswith("agent "):
            return [self._open(*line.split()[1:])]
        if line.startswith("show "):
            return list(self._show(line.removeprefix("show ")))
        head, _, rest = line.partition(": ")
        name, _, clock_ms = head.partition("@")
        agent = self.agents[name]
        texts = [text.strip() for text in rest.split("&&")]
        commands = [self._command(agent, text) for text in texts]
        outcomes = self.story.do_all(agent, *commands, clock_ms=int(clock_ms) if clock_ms else None)
        return [
            self._told(text, command, outcome)
            for text, command, outcome in zip(texts, commands, outcomes, strict=True)
        ]

    def _open(self, name: str, *options: str) -> str:
        given = dict(option.split("=") for option in options)
        outcome = self.story.try_open(
            opening(
                name,
                node_id=int(given.get("node", -1)),
                zone=given.get("zone", ""),
                level=int(given.get("level", 1)),
            )
        )
        if not isinstance(outcome, Opened):
            return self._told("", Tick(), outcome)
        if name in self.agents:
            self.agents[name + "'"] = self.agents[name]
        self.agents[name] = outcome.incarnation
        return f"opened: node {outcome.node_id}, rank {outcome.rank}"

    def _command(self, agent: Incarnation, text: str) -> Command:
        if (of_job := self.jobs.command(text, agent)) is not None:
            return of_job
        command = group_command(text, topics=self.topics, agents=self.agents)
        if command is not None:
            return command
        of_transaction = transaction_command(text, topics=self.topics, machine=self.story.machine)
        if of_transaction is not None:
            return of_transaction
        word, *words = text.split()
        makers: dict[str, Callable[..., Command]] = {
            "tick": Tick,
            "ids": lambda count: AllocateProducerIds(int(count)),
            "pin": lambda name, lifetime_ms: Pin(name, int(lifetime_ms)),
            "unpin": Unpin,
            "close": self._close,
            "topic": lambda name, count: CreateTopic(name, int(count), ()),
            "delete": lambda name: DeleteTopic(self.topics[name]),
            "purge": self._purge,
            "chunk": lambda *words: self._chunk(agent, list(words)),
        }
        return makers[word](*words)

    def _close(self, name: str, last: str = "") -> Close:
        incarnation = self.agents[name]
        row = self.story.machine.incarnations.get(incarnation)
        return Close(incarnation, int(last) if last else row.last_n if row else 0)

    def _purge(self, *words: str) -> PurgePartitions:
        if words:
            name, first, count = words
            return PurgePartitions(self.topics[name], int(first), int(count))
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
            name, _, partition = place.rpartition("/")
            items = tuple(_item(text) for text in texts)
            spans.append(ChunkSpan(self.topics[name], int(partition), at, items))
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
                self.topics[text.split()[1]] = topic_id
                return f"created: {text.split()[1]}"
            case ProducerIdsAllocated(first, count):
                return f"producer ids {first} to {first + count - 1}"
            case Pinned(position, expires_ms):
                return f"pinned: at {revision_of(position)}, until {expires_ms}"
            case ChunkCommitted(results):
                assert isinstance(command, CommitChunk)
                return f"committed: {self._results(command, results)}"
            case ShardsClaimed(shards):
                return f"holds: {told_shards(shards)}"
            case OffsetsCommitted():
                assert isinstance(command, CommitOffsets | CommitTransactionOffsets)
                return f"committed: {told_commit(command, outcome, self.topics)}"
            case _:
                told = told_transaction(outcome, self.topics) or self.jobs.told(command, outcome)
                assert told is not None, outcome
                return told

    def _results(self, command: CommitChunk, results: tuple[ItemResult, ...]) -> str:
        rest = iter(results)
        names = {topic_id: name for name, topic_id in self.topics.items()}
        return " | ".join(
            f"{names[span.topic_id]}/{span.partition} "
            + ", ".join(_result(next(rest)) for _ in span.items)
            for span in command.spans
        )

    def _named(self, message: str) -> str:
        for name, topic_id in self.topics.items():
            message = message.replace(topic_id.hex(), name)
        return message

    def _show(self, what: str) -> Iterator[str]:
        machine = self.story.machine
        match what:
            case "agents":
                for row in machine.incarnations:
                    zone = f", zone {row.zone}" if row.zone else ""
                    yield f"{row.node_name}: node {row.node_id}, rank {row.rank}{zone}"
            case "topics":
                for topic in machine.topics:
                    yield f"{topic.name}: {topic.partition_count} partitions"
            case "time":
                yield f"{machine.time_ms}"
            case "pins":
                for pin in machine.pins.alive(machine.time_ms):
                    yield f"{pin.name}: at {revision_of(pin.position)}, until {pin.expires_ms}"
            case "chunks":
                yield f"{len(machine.objects)} in use"
                for object_id, since, _ in machine.objects.unreferenced():
                    name = self.jobs.object_name(object_id)
                    yield f"{name} unreferenced since {revision_of(since)}"
                for object_id in machine.objects.doomed():
                    yield f"{self.jobs.object_name(object_id)} doomed"
            case "digest":
                yield machine.digest().hex()
            case _:
                rows = show_groups(what, machine, topics=self.topics, agents=self.agents)
                rows = rows or show_transactions(what, machine, topics=self.topics)
                rows = rows or self.jobs.show(what)
                yield from self._show_partition(what) if rows is None else rows

    def _show_partition(self, place: str) -> Iterator[str]:
        name, _, number = place.rpartition("/")
        partition = self.story.machine.partitions.get(self.topics[name], int(number))
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


def run(text: str) -> str:
    """The script with its outcomes as they are now."""
    script = Script()
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(" "):
            continue
        lines.append(line)
        if line and not line.startswith("#"):
            lines += [f"    {outcome}" for outcome in script.step(line)]
    return "\n".join(lines) + "\n"
