"""Commands about agents, topics, chunks and pins for the tests of codecs: one of each kind."""

from coordinator.commands.entries import (
    AllocateProducerIds,
    ChunkSpan,
    Close,
    Command,
    CommitChunk,
    CreateTopic,
    DeleteTopic,
    Listener,
    Open,
    Pin,
    PurgePartitions,
    Tick,
    Unpin,
)
from storage.formats.spans import Item
from tests.coordinator.commands.group_values import INCARNATION, OTHER, TOPIC
from txn.transactions import NO_TRANSACTION, OF_EPOCH

PLAIN_COMMANDS: tuple[Command, ...] = (
    Open(7587, "agent-0", -1, "eu-1a", (Listener("PLAIN", "10.0.0.1", 9092),), "0.1.0", 1),
    Close(INCARNATION, 41),
    Tick(),
    CreateTopic("events", 12, (("retention.ms", "1000"),)),
    DeleteTopic(TOPIC),
    PurgePartitions(TOPIC, 1000, 500),
    AllocateProducerIds(1000),
    CommitChunk(
        7,
        1000,
        (
            ChunkSpan(
                TOPIC,
                0,
                40,
                (
                    Item(0, 100, 10, 1_700_000_000_000, 5, 1, 20),
                    Item(0, 200, 300, 1_700_000_000_000, 5, 1, 30),
                    Item(5, 100, 1, 1_699_999_999_990, 6, 0, 2**31 - 1),
                    Item(0, 100, 1, -1),
                ),
            ),
            ChunkSpan(OTHER, 3, 0, (Item(0, 40, 2, -1),)),
        ),
    ),
    Pin("export-1", 600_000),
    Unpin("export-1"),
)
TRANSACTIONAL_CHUNK = CommitChunk(
    8,
    900,
    (
        ChunkSpan(
            TOPIC,
            0,
            0,
            (
                Item(0, 100, 10, 1_700_000_000_000, 5, 1, 0, OF_EPOCH),
                Item(0, 100, 10, 1_700_000_000_000, 5, 1, 10, OF_EPOCH),
                Item(0, 100, 10, 1_700_000_000_000, 5, 1, 20, NO_TRANSACTION),
                Item(0, 100, 10, 1_700_000_000_000, 6, 0, 0, 7),
                Item(0, 100, 10, 1_700_000_000_000, 6, 0, 10, 7),
                Item(0, 100, 10, 1_700_000_000_000, 6, 0, 20, 300),
            ),
        ),
        ChunkSpan(OTHER, 3, 600, (Item(0, 40, 2, -1, 6, 0, 0, 0),)),
    ),
)

MORE_COMMANDS: tuple[Command, ...] = (
    TRANSACTIONAL_CHUNK,
    Open(
        2**63 - 1,
        "agent-ß",
        300,
        "",
        (Listener("PLAINTEXT", "::1", 65_535), Listener("", "", 0)),
        "",
        2**31 - 1,
    ),
    CreateTopic("t", -1, ()),
    CreateTopic("t", 10_000, (("cleanup.policy", "compact"), ("empty", ""), ("ß", "\N{SNOWMAN}"))),
    Pin("", -1),
)
"""Others of the same kinds."""
