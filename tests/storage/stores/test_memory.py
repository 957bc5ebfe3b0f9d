"""Where the memory store is stricter than the contract."""

import asyncio

import pytest

from storage.stores.memory import MemoryStore
from storage.stores.object_store import StoreRefusedError


def test_parts_that_change_during_a_put_are_noticed() -> None:
    part = bytearray(b"before")

    async def test() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(MemoryStore().put_new("a", [part]))
            await asyncio.sleep(0)
            part[0] = 0

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(test())
    assert caught.group_contains(AssertionError, match="changed during the PUT")


async def test_object_beside_a_folder_of_its_name_is_refused() -> None:
    store = MemoryStore()
    await store.put_new("a/b", [b"x"])
    with pytest.raises(StoreRefusedError, match="cannot exist beside"):
        await store.put_new("a", [b"x"])
    with pytest.raises(StoreRefusedError, match="cannot exist beside"):
        await store.put_new("a/b/c", [b"x"])


async def test_objects_are_dated_by_the_clock_that_was_given() -> None:
    store = MemoryStore(lambda: 1234)
    await store.put_new("a", [b"x"])
    assert [row.modified_ms for row in await store.list_after("", "")] == [1234]


@pytest.mark.real_loop
async def test_every_call_gives_way_to_others() -> None:
    store = MemoryStore()
    await store.put_new("a", [b"x"])
    for call in (
        store.put_new("b", [b"x"]),
        store.get("a"),
        store.get_range("a", 0, 1),
        store.list_after("", ""),
        store.delete(["b"]),
    ):
        others: list[int] = []
        asyncio.get_running_loop().call_soon(others.append, 1)
        await call
        assert others == [1]
