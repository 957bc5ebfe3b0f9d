"""The contract of the object store, against every adapter: memory, disk, and S3 on a real server.

What `storage.stores.object_store` promises is tested here once; what only one adapter has is tested in
tests/storage/.
"""

import asyncio
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from storage.stores.disk import DiskStore
from storage.stores.memory import MemoryStore
from storage.stores.object_store import (
    ObjectExistsError,
    ObjectInfo,
    ObjectNotFoundError,
    ObjectStore,
    StoreRefusedError,
)
from storage.stores.s3 import S3Address, S3Store

BIG = bytes(range(256)) * 4096 * 9  # 9 MiB: above the size at which S3 clients go multipart.


pytestmark = pytest.mark.real_loop

KEPT = "kept/"
"""What `Stores.open_keeping` does not let anybody delete begins so."""


class Stores(NamedTuple):
    """Opens stores of one place."""

    open: Callable[[], ObjectStore]
    open_keeping: Callable[[], ObjectStore]
    """One that refuses to delete some keys, and lets everything else be done."""


@pytest.fixture(
    params=[
        "memory",
        "disk",
        pytest.param("s3", marks=pytest.mark.integration),
        pytest.param("s3 with a prefix", marks=pytest.mark.integration),
    ]
)
def stores(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stores]:
    if request.param == "memory":
        yield Stores(MemoryStore, memory_keeping)
    elif request.param == "disk":

        def disk() -> DiskStore:
            return DiskStore(tmp_path / "store")

        def keeping() -> DiskStore:
            monkeypatch.setattr(Path, "unlink", unlink_keeping)
            return disk()

        yield Stores(disk, keeping)
    else:
        minio = request.getfixturevalue("minio")
        address = S3Address(
            bucket=minio.new_bucket(),
            prefix="some/where" if "prefix" in request.param else "",
            endpoint=minio.endpoint,
            access_key=minio.access_key,
            secret_key=minio.secret_key,
        )

        def s3_keeping() -> S3Store:
            folder = f"{address.prefix}/{KEPT}" if address.prefix else KEPT
            for name, value in minio.keeping(f"{address.bucket}/{folder}*").items():
                monkeypatch.setenv(name, value)
            return S3Store(replace(address, access_key=None, secret_key=None))

        yield Stores(lambda: S3Store(address), s3_keeping)


def memory_keeping() -> MemoryStore:
    store = MemoryStore()
    store.kept[KEPT] = "told so"
    return store


unlink = Path.unlink


def unlink_keeping(path: Path, *, missing_ok: bool = False) -> None:
    """What the system answers for a file that was made immutable, to whoever asks."""
    if path.parent.name == KEPT.strip("/"):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
    unlink(path, missing_ok=missing_ok)


async def test_object_reads_back_as_the_joined_parts(stores: Stores) -> None:
    async with aclosing(stores.open()) as store:
        await store.put_new("a/b", [b"one", bytearray(b""), memoryview(b"-two-")[1:4], b"!"])
        assert bytes(await store.get("a/b")) == b"onetwo!"


async def test_object_without_bytes_exists(stores: Stores) -> None:
    async with aclosing(stores.open()) as store:
        await store.put_new("empty", [])
        assert len(await store.get("empty")) == 0
        assert [row.key for row in await store.list_after("", "")] == ["empty"]


async def test_big_object_of_many_parts_reads_back_the_same(stores: Stores) -> None:
    view = memoryview(BIG)
    parts = [view[at : at + 7919] for at in range(0, len(BIG), 7919)]

    async with aclosing(stores.open()) as store:
        await store.put_new("big", parts)
        assert await store.get("big") == BIG
        assert await store.get_range("big", 5_000_000, 100_000) == view[5_000_000:5_100_000]


async def test_same_bytes_under_the_same_key_succeed_again(stores: Stores) -> None:
    async with aclosing(stores.open()) as store:
        await store.put_new("a", [b"same"])
        await store.put_new("a", [b"sa", b"me"])
        assert await store.get("a") == b"same"


@pytest.mark.parametrize("other", [b"", b"sam", b"samee", b"sane"])
async def test_other_bytes_under_a_key_are_refused_and_change_nothing(
    stores: Stores, other: bytes
) -> None:
    async with aclosing(stores.open()) as store:
        await store.put_new("a", [b"same"])
        with pytest.raises(ObjectExistsError):
            await store.put_new("a", [other])
        assert await store.get("a") == b"same"


async def test_of_many_that_put_one_key_at_once_exactly_one_wins(stores: Stores) -> None:
    async with aclosing(stores.open()) as store:
        contents = [b"content %d" % number for number in range(12)]
        results = await asyncio.gather(
            *(store.put_new("race", [content]) for content in contents), return_exceptions=True
        )
        winners = [number for number, result in enumerate(results) if result is None]
        assert len(winners) == 1
        assert all(
            isinstance(result, ObjectExistsError)
            for number, result in enumerate(results)
            if number not in winners
        )
        assert await store.get("race") == contents[winners[0]]


async def test_equal_puts_at_once_all_succeed(stores: Stores) -> None:
    async with aclosing(stores.open()) as store:
        await asyncio.gather(*(store.put_new("same", [b"x" * 100_000]) for _ in range(6)))
        assert await store.get("same") == b"x" * 100_000


async def test_what_is_read_cannot_be_written_to_or_is_nobody_elses(stores: Stores) -> None:
    async with aclosing(stores.open()) as store:
        await store.put_new("a", [b"0123456789"])
        for data in (await store.get("a"), await store.get_range("a", 2, 3)):
            if not memoryview(data).readonly:
                memoryview(data)[0:1] = b"x"
        assert await store.get("a") == b"0123456789"
        assert await store.get_range("a", 2, 3) == b"234"


@pytest.mark.parametrize(("start", "length"), [(0, 10), (0, 1), (9, 1), (3, 4)])
async def test_range_is_just_the_bytes_asked_for(stores: Stores, start: int, length: int) -> None:
    async with aclosing(stores.open()) as store:
        await store.put_new("a", [b"0123456789"])
        assert await store.get_range("a", start, length) == b"0123456789"[start : start + length]


@pytest.mark.parametrize(("start", "length"), [(0, 11), (9, 2), (10, 1), (50, 10)])
async def test_range_beyond_the_end_is_refused_and_never_short(
    stores: Stores, start: int, length: int
) -> None:
    async with aclosing(stores.open()) as store:
        await store.put_new("a", [b"0123456789"])
        with pytest.raises(StoreRefusedError):
            await store.get_range("a", start, length)


async def test_object_that_does_not_exist_is_not_found(stores: Stores) -> None:
    async with aclosing(stores.open()) as store:
        await store.put_new("folder/a", [b"x"])
        for key in ("b", "folder", "folder/b", "folder/a/b"):
            with pytest.raises(ObjectNotFoundError):
                await store.get(key)
            with pytest.raises(ObjectNotFoundError):
                await store.get_range(key, 0, 1)


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", "../a", "a/..", "a b", "ä", "x" * 201, ".x"]
)
async def test_bad_keys_are_errors_of_the_caller(stores: Stores, key: str) -> None:
    async with aclosing(stores.open()) as store:
        with pytest.raises(ValueError, match="cannot be the key"):
            await store.put_new(key, [b"x"])
        with pytest.raises(ValueError, match="cannot be the key"):
            await store.get(key)
        with pytest.raises(ValueError, match="cannot be the key"):
            await store.get_range(key, 0, 1)
        with pytest.raises(ValueError, match="cannot be the key"):
            await store.delete([key])


@pytest.mark.parametrize(("start", "length"), [(-1, 5), (0, 0), (3, -1)])
async def test_empty_and_negative_ranges_are_errors_of_the_caller(
    stores: Stores, start: int, length: int
) -> None:
    async with aclosing(stores.open()) as store:
        with pytest.raises(ValueError, match="not a range"):
            await store.get_range("a", start, length)


async def test_listing_is_in_the_order_of_whole_keys(stores: Stores) -> None:
    keys = ["a-b", "a.b/c", "a/b", "a/b-c/x", "a/c/d", "a0", "b"]

    async with aclosing(stores.open()) as store:
        for key in reversed(keys):
            await store.put_new(key, [key.encode()])
        assert [row.key for row in await store.list_after("", "")] == keys


async def test_listing_tells_length_and_a_plausible_time(stores: Stores) -> None:
    async with aclosing(stores.open()) as store:
        await store.put_new("a", [b"12345"])
        (row,) = await store.list_after("", "")
        assert row == ObjectInfo("a", 5, row.modified_ms)
        assert row.modified_ms == 0 or row.modified_ms > 1_700_000_000_000


async def test_listing_keeps_to_the_prefix(stores: Stores) -> None:
    async with aclosing(stores.open()) as store:
        for key in ("chunks/1/0", "chunks/1/1", "chunks/10/0", "cluster.json", "d"):
            await store.put_new(key, [b"x"])
        for prefix, expected in {
            "chunks/1/": ["chunks/1/0", "chunks/1/1"],
            "chunks/1": ["chunks/1/0", "chunks/1/1", "chunks/10/0"],
            "c": ["chunks/1/0", "chunks/1/1", "chunks/10/0", "cluster.json"],
            "e": [],
        }.items():
            assert [row.key for row in await store.list_after(prefix, "")] == expected


async def test_listing_goes_on_after_any_key_whether_it_exists_or_not(stores: Stores) -> None:
    async with aclosing(stores.open()) as store:
        for key in ("a/1", "a/2", "b/1", "c"):
            await store.put_new(key, [b"x"])
        for after, expected in {
            "a/1": ["a/2", "b/1", "c"],
            "a/15": ["a/2", "b/1", "c"],
            "a/2": ["b/1", "c"],
            "a0": ["b/1", "c"],
            "b": ["b/1", "c"],
            "b/1": ["c"],
            "c": [],
        }.items():
            assert [row.key for row in await store.list_after("", after)] == expected
        assert [row.key for row in await store.list_after("a/", "a/1")] == ["a/2"]


async def test_pages_of_a_long_listing_are_complete_and_end_with_an_empty_one(
    stores: Stores,
) -> None:
    async with aclosing(stores.open()) as store:
        keys = [f"n/{number:05d}" for number in range(1100)]
        for at in range(0, len(keys), 50):
            await asyncio.gather(*(store.put_new(key, [b"x"]) for key in keys[at : at + 50]))
        found: list[str] = []
        pages = 0
        while page := await store.list_after("n/", found[-1] if found else ""):
            assert len(page) <= 1000
            found.extend(row.key for row in page)
            pages += 1
        assert found == keys
        assert pages >= 2
        await store.delete(keys)
        assert await store.list_after("", "") == []


async def test_deleted_object_is_gone_and_its_key_can_be_used_again(stores: Stores) -> None:
    async with aclosing(stores.open()) as store:
        await store.put_new("a/b/c", [b"x"])
        await store.put_new("a/d", [b"x"])
        await store.delete(["a/b/c"])
        with pytest.raises(ObjectNotFoundError):
            await store.get("a/b/c")
        assert await store.get("a/d") == b"x"
        await store.put_new("a/b/c", [b"new"])
        assert await store.get("a/b/c") == b"new"


async def test_deleting_what_does_not_exist_is_no_error(stores: Stores) -> None:
    async with aclosing(stores.open()) as store:
        await store.put_new("a", [b"x"])
        await store.delete([])
        await store.delete(["b", "c/d", "a", "a"])
        await store.delete(["a"])
        assert await store.list_after("", "") == []


async def test_what_cannot_be_deleted_is_told_with_the_reason_and_everything_else_goes(
    stores: Stores,
) -> None:
    async with aclosing(stores.open_keeping()) as store:
        kept = [f"{KEPT}{number:02d}" for number in range(12)]
        going = [f"going/{number:04d}" for number in range(1010)]
        for some in (kept, going):
            await asyncio.gather(*(store.put_new(key, [b"x"]) for key in some))
        refused = await store.delete([*kept[:6], *going, *kept[6:], *kept])
        assert sorted(each.key for each in refused) == kept
        assert all(each.reason for each in refused)
        assert not any("\n" in each.reason for each in refused)
        assert [row.key for row in await store.list_after("", "")] == kept
        assert await store.delete(going) == []


async def test_closing_twice_is_no_error(stores: Stores) -> None:
    async with aclosing(stores.open()) as store:
        await store.put_new("a", [b"x"])
        await store.aclose()
        await store.aclose()


async def test_closing_a_store_that_was_never_used_is_no_error(stores: Stores) -> None:
    async with aclosing(stores.open()) as store:
        await store.aclose()


async def test_objects_outlive_the_store_that_put_them(stores: Stores) -> None:
    shared = MemoryStore()
    opened = (lambda: shared) if stores.open is MemoryStore else stores.open
    async with aclosing(opened()) as store:
        await store.put_new("a/b", [b"x"])
    async with aclosing(opened()) as store:
        assert await store.get("a/b") == b"x"
