"""What the hot paths remember is bounded (P15)."""

import asyncio

import pytest

from broker.produce.failed_batches import FailedBatches
from coordinator.commands.codec import encoded_size
from coordinator.commands.entries import ChunkSpan, CommitChunk
from protocol.records import read_header
from protocol.types import TopicId
from storage.accumulator import ITEM_ENTRY_BYTES
from storage.formats.spans import Item
from tests.kit.agents import World
from tests.kit.batches import batch


def test_the_batches_that_failed_are_remembered_up_to_a_bound_the_newest_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("broker.produce.failed_batches.FAILED_BATCHES_MAX", 3)
    topic_id, gaps = TopicId(bytes(16)), FailedBatches()
    for producer_id in range(5):
        failed = read_header(batch(producer_id=producer_id, epoch=0, sequence=0))
        gaps.note_refused(topic_id, 0, failed, now_ms=producer_id)
    assert len(gaps) == 3
    later = read_header(batch(producer_id=4, epoch=0, sequence=1))
    assert gaps.overtakes(topic_id, 0, later, now_ms=5)


async def test_the_chunks_worth_reading_whole_are_remembered_up_to_half_of_the_cache(
    world: World,
) -> None:
    async with world.with_topic("a", cache_bytes="1MiB") as (agent,):
        for _ in range(10):
            await agent.produce("t", batch(bytes(100_000))).wait()
        await asyncio.sleep(1)
        assert agent.row("t").row_count == 10
        assert 0 < len(agent.fetching._recent) <= 5


def test_a_batch_takes_no_more_of_an_entry_than_is_estimated() -> None:
    """With the widest numbers that a client may send, and more transactions than there will be."""
    items = tuple(
        Item(
            skip=1 << 23,
            length=1 << 23,
            records=1 << 21,
            timestamp_max=[-(1 << 63), (1 << 63) - 1][index % 2],
            producer_id=(1 << 63) - 1 - index,
            producer_epoch=-(1 << 15),
            first_sequence=-(1 << 31),
            instance=(1 << 35) - 1,
        )
        for index in range(101)
    )

    def size(count: int) -> int:
        spans = (ChunkSpan(TopicId(bytes(16)), 0, 16, items[:count]),)
        return encoded_size(CommitChunk(1, 1 << 30, spans))

    assert size(101) - size(1) <= 100 * ITEM_ENTRY_BYTES
