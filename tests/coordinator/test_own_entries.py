"""Entries that an agent appended itself are applied from memory, and are what their bytes say (P13)."""

import pytest

from coordinator import replica
from coordinator.commands.codec import decode_entry, encode_entry
from coordinator.commands.entries import (
    ChunkSpan,
    Command,
    CommitChunk,
    CreateTopic,
    Entry,
    TopicCreated,
)
from coordinator.log.metadata_log import LogEntry
from coordinator.own_entries import KEPT_MAX, OwnEntries
from protocol.types import Incarnation, Position, TopicId
from storage.formats.spans import Item
from tests.coordinator.support import Agent, running, serving

TOPIC = TopicId(b"0123456789abcdef")


def chunk(number: int, topic_id: TopicId = TOPIC) -> CommitChunk:
    return CommitChunk(number, 500, (ChunkSpan(topic_id, 0, 16, (Item(0, 100, 3, 1_000),)),))


def kept(own: OwnEntries, n: int, *commands: Command) -> LogEntry:
    """The entry as it comes back from the log."""
    entry = Entry(Incarnation(7), n, 1_000, commands)
    payload = encode_entry(entry)
    own.keep(3, payload, incarnation=entry.incarnation, n=n, clock_ms=1_000, commands=commands)
    return LogEntry(Position(100 + n), 3, n, payload)


@pytest.mark.promise("P13")
def test_entry_of_a_chunk_comes_back_as_its_bytes_say_once() -> None:
    own = OwnEntries()
    logged = kept(own, 1, chunk(1), chunk(2))
    assert own.take(logged) == decode_entry(logged.payload)
    assert own.take(logged) is None


@pytest.mark.promise("P13")
@pytest.mark.parametrize("change", ["payload", "session", "n"])
def test_entry_that_is_not_what_was_appended_is_not_known(change: str) -> None:
    own = OwnEntries()
    logged = kept(own, 1, chunk(1))
    other = encode_entry(Entry(Incarnation(7), 1, 2_000, (chunk(1),)))
    changed: dict[str, LogEntry] = {
        "payload": logged._replace(payload=other),
        "session": logged._replace(session=4),
        "n": logged._replace(n=2),
    }
    assert own.take(changed[change]) is None


def test_entry_with_anything_but_chunks_is_decoded() -> None:
    own = OwnEntries()
    assert own.take(kept(own, 1, chunk(1), CreateTopic("t", 1, ()))) is None


def test_of_very_many_that_do_not_come_back_the_oldest_are_forgotten() -> None:
    own = OwnEntries()
    entries = [kept(own, n, chunk(n)) for n in range(KEPT_MAX + 1)]
    assert own.take(entries[0]) is None
    assert own.take(entries[1]) is not None


async def test_agent_decodes_only_what_others_appended(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as agent:
        created = await agent.log_client.propose(CreateTopic("t", 1, ()))
        assert isinstance(created, TopicCreated)
        decoded: list[Position] = []

        def decoding(payload: bytes) -> Entry:
            decoded.append(agent.machine.position)
            return decode_entry(payload)

        monkeypatch.setattr(replica, "decode_entry", decoding)
        await agent.log_client.propose(chunk(1, created.topic_id))
        row = agent.machine.partitions.get(created.topic_id, 0)
        assert row is not None
        assert row.end_offset == 3
        assert decoded == []
        other = Agent(agent.cluster, "b")
        async with running(other):
            await other.ready()
            await agent.log_client.barrier()
            assert other.machine.digest() == agent.machine.digest()
        # All that there are: it has appended nothing of them but its own beginning, which is no chunk.
        assert len(decoded) >= len(agent.cluster.entries)
