"""The contract of the object store, against every adapter: memory, disk, and S3 on a real server.

What `storage.stores.object_store` promises is tested here once; what only one adapter has is tested in
tests/storage/.
"""

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable, Iterator
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


KEPT = "kept/"
"""What `Run.keeping` does not let anybody delete begins so."""


class Run(NamedTuple):
    """Runs a test against a fresh store, and closes it."""

    open: Callable[[], ObjectStore]
    open_keeping: Callable[[], ObjectStore]

    def __call__(self, test: Callable[[ObjectStore], Awaitable[None]]) -> None:
        self._run(self.open, test)

    def keeping(self, test: Callable[[ObjectStore], Awaitable[None]]) -> None:
        """On a store that refuses to delete some keys, and lets everything else be done."""
        self._run(self.open_keeping, test)

    def _run(
        self, opened: Callable[[], ObjectStore], test: Callable[[ObjectStore], Awaitable[None]]
    ) -> None:
        async def whole() -> None:
            store = opened()
            try:
                await test(store)
            finally:
                await store.aclose()

        asyncio.run(whole())


@pytest.fixture(
    params=[
        "memory",
        "disk",
        pytest.param("s3", marks=pytest.mark.integration),
        pytest.param("s3 with a prefix", marks=pytest.mark.integration),
    ]
)
def run(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Run]:
    if request.param == "memory":
        yield Run(MemoryStore, memory_keeping)
    elif request.param == "disk":

        def disk() -> DiskStore:
            return DiskStore(tmp_path / "store")

        def keeping() -> DiskStore:
            monkeypatch.setattr(Path, "unlink", unlink_keeping)
            return disk()

        yield Run(disk, keeping)
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

        yield Run(lambda: S3Store(address), s3_keeping)


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


def test_object_reads_back_as_the_joined_parts(run: Run) -> None:
    async def test(store: ObjectStore) -> None:
        await store.put_new("a/b", [b"one", bytearray(b""), memoryview(b"-two-")[1:4], b"!"])
        assert bytes(await store.get("a/b")) == b"onetwo!"

    run(test)


def test_object_without_bytes_exists(run: Run) -> None:
    async def test(store: ObjectStore) -> None:
        await store.put_new("empty", [])
        assert len(await store.get("empty")) == 0
        assert [row.key for row in await store.list_after("", "")] == ["empty"]

    run(test)


def test_big_object_of_many_parts_reads_back_the_same(run: Run) -> None:
    view = memoryview(BIG)
    parts = [view[at : at + 7919] for at in range(0, len(BIG), 7919)]

    async def test(store: ObjectStore) -> None:
        await store.put_new("big", parts)
        assert await store.get("big") == BIG
        assert await store.get_range("big", 5_000_000, 100_000) == view[5_000_000:5_100_000]

    run(test)


def test_same_bytes_under_the_same_key_succeed_again(run: Run) -> None:
    async def test(store: ObjectStore) -> None:
        await store.put_new("a", [b"same"])
        await store.put_new("a", [b"sa", b"me"])
        assert await store.get("a") == b"same"

    run(test)


@pytest.mark.parametrize("other", [b"", b"sam", b"samee", b"sane"])
def test_other_bytes_under_a_key_are_refused_and_change_nothing(run: Run, other: bytes) -> None:
    async def test(store: ObjectStore) -> None:
        await store.put_new("a", [b"same"])
        with pytest.raises(ObjectExistsError):
            await store.put_new("a", [other])
        assert await store.get("a") == b"same"

    run(test)


def test_of_many_that_put_one_key_at_once_exactly_one_wins(run: Run) -> None:
    async def test(store: ObjectStore) -> None:
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

    run(test)


def test_equal_puts_at_once_all_succeed(run: Run) -> None:
    async def test(store: ObjectStore) -> None:
        await asyncio.gather(*(store.put_new("same", [b"x" * 100_000]) for _ in range(6)))
        assert await store.get("same") == b"x" * 100_000

    run(test)


def test_what_is_read_cannot_be_written_to_or_is_nobody_elses(run: Run) -> None:
    async def test(store: ObjectStore) -> None:
        await store.put_new("a", [b"0123456789"])
        for data in (await store.get("a"), await store.get_range("a", 2, 3)):
            if not memoryview(data).readonly:
                memoryview(data)[0:1] = b"x"
        assert await store.get("a") == b"0123456789"
        assert await store.get_range("a", 2, 3) == b"234"

    run(test)


@pytest.mark.parametrize(("start", "length"), [(0, 10), (0, 1), (9, 1), (3, 4)])
def test_range_is_just_the_bytes_asked_for(run: Run, start: int, length: int) -> None:
    async def test(store: ObjectStore) -> None:
        await store.put_new("a", [b"0123456789"])
        assert await store.get_range("a", start, length) == b"0123456789"[start : start + length]

    run(test)


@pytest.mark.parametrize(("start", "length"), [(0, 11), (9, 2), (10, 1), (50, 10)])
def test_range_beyond_the_end_is_refused_and_never_short(run: Run, start: int, length: int) -> None:
    async def test(store: ObjectStore) -> None:
        await store.put_new("a", [b"0123456789"])
        with pytest.raises(StoreRefusedError):
            await store.get_range("a", start, length)

    run(test)


def test_object_that_does_not_exist_is_not_found(run: Run) -> None:
    async def test(store: ObjectStore) -> None:
        await store.put_new("folder/a", [b"x"])
        for key in ("b", "folder", "folder/b", "folder/a/b"):
            with pytest.raises(ObjectNotFoundError):
                await store.get(key)
            with pytest.raises(ObjectNotFoundError):
                await store.get_range(key, 0, 1)

    run(test)


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", "../a", "a/..", "a b", "ä", "x" * 201, ".x"]
)
def test_bad_keys_are_errors_of_the_caller(run: Run, key: str) -> None:
    async def test(store: ObjectStore) -> None:
        with pytest.raises(ValueError, match="cannot be the key"):
            await store.put_new(key, [b"x"])
        with pytest.raises(ValueError, match="cannot be the key"):
            await store.get(key)
        with pytest.raises(ValueError, match="cannot be the key"):
            await store.get_range(key, 0, 1)
        with pytest.raises(ValueError, match="cannot be the key"):
            await store.delete([key])

    run(test)


@pytest.mark.parametrize(("start", "length"), [(-1, 5), (0, 0), (3, -1)])
def test_empty_and_negative_ranges_are_errors_of_the_caller(
    run: Run, start: int, length: int
) -> None:
    async def test(store: ObjectStore) -> None:
        with pytest.raises(ValueError, match="not a range"):
            await store.get_range("a", start, length)

    run(test)


def test_listing_is_in_the_order_of_whole_keys(run: Run) -> None:
    keys = ["a-b", "a.b/c", "a/b", "a/b-c/x", "a/c/d", "a0", "b"]

    async def test(store: ObjectStore) -> None:
        for key in reversed(keys):
            await store.put_new(key, [key.encode()])
        assert [row.key for row in await store.list_after("", "")] == keys

    run(test)


def test_listing_tells_length_and_a_plausible_time(run: Run) -> None:
    async def test(store: ObjectStore) -> None:
        await store.put_new("a", [b"12345"])
        (row,) = await store.list_after("", "")
        assert row == ObjectInfo("a", 5, row.modified_ms)
        assert row.modified_ms == 0 or row.modified_ms > 1_700_000_000_000

    run(test)


def test_listing_keeps_to_the_prefix(run: Run) -> None:
    async def test(store: ObjectStore) -> None:
        for key in ("chunks/1/0", "chunks/1/1", "chunks/10/0", "cluster.json", "d"):
            await store.put_new(key, [b"x"])
        for prefix, expected in {
            "chunks/1/": ["chunks/1/0", "chunks/1/1"],
            "chunks/1": ["chunks/1/0", "chunks/1/1", "chunks/10/0"],
            "c": ["chunks/1/0", "chunks/1/1", "chunks/10/0", "cluster.json"],
            "e": [],
        }.items():
            assert [row.key for row in await store.list_after(prefix, "")] == expected

    run(test)


def test_listing_goes_on_after_any_key_whether_it_exists_or_not(run: Run) -> None:
    async def test(store: ObjectStore) -> None:
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

    run(test)


def test_pages_of_a_long_listing_are_complete_and_end_with_an_empty_one(run: Run) -> None:
    async def test(store: ObjectStore) -> None:
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

    run(test)


def test_deleted_object_is_gone_and_its_key_can_be_used_again(run: Run) -> None:
    async def test(store: ObjectStore) -> None:
        await store.put_new("a/b/c", [b"x"])
        await store.put_new("a/d", [b"x"])
        await store.delete(["a/b/c"])
        with pytest.raises(ObjectNotFoundError):
            await store.get("a/b/c")
        assert await store.get("a/d") == b"x"
        await store.put_new("a/b/c", [b"new"])
        assert await store.get("a/b/c") == b"new"

    run(test)


def test_deleting_what_does_not_exist_is_no_error(run: Run) -> None:
    async def test(store: ObjectStore) -> None:
        await store.put_new("a", [b"x"])
        await store.delete([])
        await store.delete(["b", "c/d", "a", "a"])
        await store.delete(["a"])
        assert await store.list_after("", "") == []

    run(test)


def test_what_cannot_be_deleted_is_told_with_the_reason_and_everything_else_goes(run: Run) -> None:
    async def test(store: ObjectStore) -> None:
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

    run.keeping(test)


def test_closing_twice_is_no_error(run: Run) -> None:
    async def test(store: ObjectStore) -> None:
        await store.put_new("a", [b"x"])
        await store.aclose()
        await store.aclose()

    run(test)


def test_closing_a_store_that_was_never_used_is_no_error(run: Run) -> None:
    async def test(store: ObjectStore) -> None:
        await store.aclose()

    run(test)


def test_objects_outlive_the_store_that_put_them(run: Run) -> None:
    if run.open is MemoryStore:
        shared = MemoryStore()
        run = run._replace(open=lambda: shared)

    async def put(store: ObjectStore) -> None:
        await store.put_new("a/b", [b"x"])

    async def get(store: ObjectStore) -> None:
        assert await store.get("a/b") == b"x"

    run(put)
    run(get)
