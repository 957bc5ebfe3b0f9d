"""OffsetFetch where a transaction is open: unstable for who asks for stability (KIP-447)."""

import pytest

from protocol import apis
from protocol.errors import ErrorCode
from tests.broker.groups.members import fetch, put
from tests.broker.transactions.world import Producer, producing

UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
STABLE_VERSIONS = range(7, 11)


async def told(agent, topics, *, stable: bool, version: int = 9) -> dict:
    """(Offset, error) by partition, of the group "g"."""
    if topics is not None and version >= 10:
        by_name = agent.machine.topics.by_name
        topics = {by_name(name).topic_id: rows for name, rows in topics.items()}
    request = fetch("g", topics, require_stable=stable)
    answer = await agent.call(apis.OFFSET_FETCH, request, version=version)
    group = answer.groups[0] if version >= 8 else answer
    assert group.error_code == 0
    return {
        row.partition_index: (row.committed_offset, row.error_code)
        for topic in group.topics
        for row in topic.partitions
    }


async def pending(one) -> Producer:
    """Committed: 0 at 5, 1 at 6. Pending: 1 at 16, 2 at 17."""
    assert set((await put(one, "g", {"logs": {0: 5, 1: 6}})).values()) == {0}
    producer = await Producer.begin(one)
    assert await producer.add_offsets("g") == 0
    wanted = {("logs", 1): 16, ("logs", 2): 17}
    assert set((await producer.commit_offsets(one, "g", wanted)).values()) == {0}
    return producer


@pytest.mark.parametrize("version", STABLE_VERSIONS)
async def test_places_with_an_offset_pending_are_unstable(version):
    async with producing(begin=pending) as (_producer, one):
        topics = {"logs": [0, 1, 2, 3]}
        assert await told(one, topics, stable=True, version=version) == {
            0: (5, 0),
            1: (-1, UNSTABLE),
            2: (-1, UNSTABLE),
            3: (-1, 0),
        }
        assert await told(one, topics, stable=False, version=version) == {
            0: (5, 0),
            1: (6, 0),
            2: (-1, 0),
            3: (-1, 0),
        }


@pytest.mark.parametrize("version", [1, 6])
async def test_old_clients_are_told_what_was_committed_before(version):
    async with producing(begin=pending) as (_producer, one):
        expected = {0: (5, 0), 1: (6, 0), 2: (-1, 0)}
        assert await told(one, {"logs": [0, 1, 2]}, stable=False, version=version) == expected


@pytest.mark.parametrize("version", STABLE_VERSIONS)
async def test_who_asks_for_all_places_is_told_which_committed_ones_are_unstable(version):
    async with producing(begin=pending) as (_producer, one):
        expected = {0: (5, 0), 1: (-1, UNSTABLE)}
        assert await told(one, None, stable=True, version=version) == expected
        assert await told(one, None, stable=False, version=version) == {0: (5, 0), 1: (6, 0)}


@pytest.mark.parametrize(("commit", "ends"), [(True, (16, 17)), (False, (6, -1))])
async def test_with_the_end_of_the_transaction_everything_is_stable(commit, ends):
    async with producing(begin=pending) as (producer, one):
        assert await producer.end(commit=commit) == 0
        expected = {1: (ends[0], 0), 2: (ends[1], 0)}
        assert await told(one, {"logs": [1, 2]}, stable=True) == expected


async def test_a_group_that_has_nothing_but_pending_offsets_is_unstable_too():
    async with producing() as (producer, one):
        assert await producer.add_offsets("g") == 0
        await producer.commit_offsets(one, "g", {("logs", 0): 3})
        assert await told(one, {"logs": [0]}, stable=True) == {0: (-1, UNSTABLE)}
        assert await told(one, None, stable=True) == {}
