"""What a store is asked for, by cause."""

import asyncio

import pytest

from storage.stores.counted import StoreCalls, StoreUse
from storage.stores.memory import MemoryStore
from storage.stores.object_store import ObjectNotFoundError


def test_each_call_counts_for_its_cause_and_bytes_when_they_have_moved() -> None:
    async def story() -> dict[str, StoreCalls]:
        use = StoreUse(MemoryStore())
        clock, probe = use.by("clock"), use.by("probe")
        await clock.put_new("clock/a", [b"ab", b"cd"])
        await clock.list_after("clock/", "")
        assert await probe.get("clock/a") == b"abcd"
        assert await probe.get_range("clock/a", 1, 2) == b"bc"
        with pytest.raises(ObjectNotFoundError):
            await probe.get("clock/b")
        await clock.delete(["clock/a"])
        return use.calls

    assert asyncio.run(story()) == {
        "clock": StoreCalls(puts=1, lists=1, deletes=1, bytes_written=4),
        "probe": StoreCalls(gets=3, bytes_read=6),
    }


def test_whoever_asks_for_the_same_cause_again_counts_on() -> None:
    async def story() -> StoreCalls:
        use = StoreUse(MemoryStore())
        await use.by("start").list_after("", "")
        await use.by("start").list_after("", "")
        return use.calls["start"]

    assert asyncio.run(story()).lists == 2
