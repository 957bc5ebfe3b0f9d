"""What the machine's rows cost in memory, and connections: `python -m tests.bench.bench_machine_memory`.

Prints bytes per partition, per span, per window, per group and per committed offset, as the process
grows, against the budgets of docs/design/bounded.md §9; how long a full garbage collection takes with
all of them; and what connections cost an agent, each of which has asked for something.
"""

import gc
import struct
import tempfile
import time
from pathlib import Path

from coordinator.commands.entries import (
    ChunkSpan,
    Command,
    CommitChunk,
    CreateTopic,
    Entry,
    Open,
    TopicCreated,
)
from coordinator.commands.group_commands import (
    EPOCH_NONE,
    GROUP_NEW,
    GROUP_SHARDS,
    ChangeGroup,
    ClaimShards,
    CommitOffsets,
    CommittedOffset,
    GroupKind,
    GroupMember,
    OffsetsCommitted,
)
from coordinator.machine.machine import Machine
from protocol.types import INCARNATION_NONE, Incarnation, Position, TopicId, position
from storage.formats.spans import Item
from tests.bench import load
from tests.parts.servers import FrazilDev

PARTITIONS = 10_000
WINDOWS_PER_PARTITION = 10
SPANS_PER_PARTITION = 100
SPANS_PER_CHUNK = 100
GROUPS = 2_000
MEMBERS_PER_GROUP = 5
OFFSETS_PER_GROUP = 100
CONNECTIONS = 4_000


class Filled:
    """A machine with one topic, and the entries that fill it."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.position = position(1, 1)
        self.agent = Incarnation(self.position)
        self.n = 0
        self.chunks = 0
        command = Open(1, "agent-0", -1, "zone-a", (), "0.1.0", 1)
        self.machine.apply(self.position, Entry(INCARNATION_NONE, 0, 0, (command,)))

    def apply(self, command: Command) -> object:
        self.n += 1
        self.position = Position(self.position + 1)
        (outcome,) = self.machine.apply(
            self.position, Entry(self.agent, self.n, self.n, (command,))
        )
        return outcome

    def commit(self, topic_id: TopicId, item: Item) -> None:
        """One span in every partition."""
        for first in range(0, PARTITIONS, SPANS_PER_CHUNK):
            numbers = range(first, first + SPANS_PER_CHUNK)
            spans = tuple(ChunkSpan(topic_id, number, 0, (item,)) for number in numbers)
            self.apply(CommitChunk(self.chunks, item.length, spans))
            self.chunks += 1

    def groups(self) -> None:
        """Groups with members whose bodies are of the size of a subscription."""
        self.apply(ClaimShards(tuple(range(GROUP_SHARDS))))
        for group in range(GROUPS):
            members = tuple(
                GroupMember(f"consumer-{group}-{index}-{'0' * 36}", 1, bytes(100))
                for index in range(MEMBERS_PER_GROUP)
            )
            change = ChangeGroup(
                f"group-{group}", GroupKind.CLASSIC, GROUP_NEW, 1, bytes(20), members, ()
            )
            self.apply(change)

    def offsets(self, topic_id: TopicId, name: str, count: int, *, metadata: bool) -> None:
        """Commits of simple groups, each of partitions in no order."""
        for group in range(count // OFFSETS_PER_GROUP):
            numbers = [(group * 37 + index * 71) % PARTITIONS for index in range(OFFSETS_PER_GROUP)]
            rows = tuple(
                CommittedOffset(topic_id, at, 10**10 + at, 0, f"{group:06}{at:06}" * metadata)
                for at in numbers
            )
            outcome = self.apply(CommitOffsets(f"{name}-{group}", "", EPOCH_NONE, rows))
            assert isinstance(outcome, OffsetsCommitted)


def resident_bytes(process: int | str = "self") -> int:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * 4096


def connections() -> None:
    """What they cost an agent."""
    with tempfile.TemporaryDirectory() as name, FrazilDev(Path(name)) as agent:
        opened = [load.Connection(agent.port)]
        load.create_topic(agent.port, "events", 1)
        before = resident_bytes(agent.child.pid)
        for _ in range(CONNECTIONS):
            connection = load.Connection(agent.port)
            connection.send(load.METADATA, 8, [struct.pack(">i???", -1, False, False, False)])
            connection.receive()
            connection.shrink()
            opened.append(connection)
        grown = resident_bytes(agent.child.pid) - before
        print(f"{grown / CONNECTIONS:8.1f} bytes per connection ({CONNECTIONS} of them)")
        for connection in opened:
            connection.close()


def main() -> None:
    filled = Filled()
    before = resident_bytes()

    def told(what: str, count: int) -> None:
        nonlocal before
        gc.collect()
        now = resident_bytes()
        print(f"{(now - before) / count:8.1f} bytes per {what} ({count} of them)")
        before = now

    outcome = filled.apply(CreateTopic("events", PARTITIONS, ()))
    assert isinstance(outcome, TopicCreated)
    told("partition never written", PARTITIONS)
    filled.commit(outcome.topic_id, Item(0, 9000, 20, 1_700_000_000_000))
    told("partition with its first span", PARTITIONS)
    for index in range(SPANS_PER_PARTITION):
        filled.commit(outcome.topic_id, Item(0, 9000, 20, 1_700_000_000_000 + index))
    told("span", PARTITIONS * SPANS_PER_PARTITION)
    for producer_id in range(1000, 1000 + WINDOWS_PER_PARTITION):
        for batch in range(5):
            filled.commit(
                outcome.topic_id, Item(0, 9000, 20, 1_700_000_000_000, producer_id, 0, 20 * batch)
            )
    told("window of five batches, with its five spans", PARTITIONS * WINDOWS_PER_PARTITION)
    filled.groups()
    told(f"group of {MEMBERS_PER_GROUP} members", GROUPS)
    for name, metadata in (("plain", False), ("with 12 characters of metadata", True)):
        count = 400_000
        filled.offsets(outcome.topic_id, name, count, metadata=metadata)
        told(f"committed offset, {name}, of {OFFSETS_PER_GROUP} in a group", count)
    assert filled.machine.groups.offset_rows == 800_000
    began = time.perf_counter()
    gc.collect()
    print(f"{(time.perf_counter() - began) * 1e3:8.1f} ms for a full garbage collection")
    connections()


if __name__ == "__main__":
    main()
