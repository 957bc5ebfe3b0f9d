"""The metadata log, readable."""

import json

import pytest

from broker.log_lines import describe, lines
from coordinator.commands import (
    AllocateProducerIds,
    ChunkSpan,
    Close,
    Command,
    CommitChunk,
    CreateTopic,
    DeleteTopic,
    Entry,
    Item,
    Listener,
    Open,
    Pin,
    PurgePartitions,
    Tick,
    Unpin,
)
from protocol.types import Incarnation, TopicId, position

AT = position(1, 42)
BY = Incarnation(position(1, 7))
TOPIC = TopicId(bytes(15) + b"\x01")

COMMANDS: list[Command] = [
    Open(5, "a", -1, "", (Listener("PLAINTEXT", "h", 9092),), "0.1.0", 0),
    Close(BY, 3),
    Tick(),
    CreateTopic("t", 3, (("retention.ms", "5"),)),
    DeleteTopic(TOPIC),
    PurgePartitions(TOPIC, 0, 3),
    AllocateProducerIds(1000),
    CommitChunk(1, 900, (ChunkSpan(TOPIC, 0, 0, (Item(0, 100, 2, 5), Item(8, 50, 1, 6))),)),
    Pin("export", 60_000),
    Unpin("export"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_every_command_is_told_in_json_and_in_one_line(command: Command) -> None:
    described = describe(AT, 9, Entry(BY, 4, 1000, (command,)))
    head, line = lines(json.loads(json.dumps(described)))
    assert head == "1:42 by 1:7 n=4 clock_ms=1000"
    assert line.split()[0] == type(command).__name__


def test_items_of_a_chunk_are_summed_up_per_span() -> None:
    described = describe(AT, 9, Entry(BY, 4, 1000, (COMMANDS[7],)))
    (span,) = described["commands"][0]["spans"]
    assert (span["items"], span["records"], span["length"]) == (2, 3, 158)


def test_the_entry_that_opens_says_so() -> None:
    described = describe(AT, 9, Entry(Incarnation(0), 0, 1000, (COMMANDS[0],)))
    assert lines(described)[0] == "1:42 opens n=0 clock_ms=1000"
