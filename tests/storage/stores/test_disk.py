"""The disk adapter: what a crash leaves behind, and clear sentences for what a disk refuses."""

import asyncio
import errno
import os
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from storage.stores import disk
from storage.stores.disk import TEMPORARY_FOLDER, DiskStore
from storage.stores.object_store import (
    ObjectNotFoundError,
    StoreRefusedError,
    StoreUnavailableError,
)

pytestmark = pytest.mark.real_loop


@pytest.fixture(autouse=True, params=["nameless files", "temporary names"])
def _files(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Linux, and as where the system knows no files without names."""
    if request.param == "temporary names":
        monkeypatch.setattr(disk, "_knows_nameless_files", lambda _: False)


def temporary_files(root: Path) -> list[Path]:
    return list((root / TEMPORARY_FOLDER).iterdir())


def failing(number: int) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


async def test_folder_is_made_on_first_use_and_not_before(tmp_path: Path) -> None:
    root = tmp_path / "some" / "where"

    async with aclosing(DiskStore(root)) as store:
        assert not root.exists()
        await store.put_new("a", [b"x"])
        assert (root / "a").read_bytes() == b"x"


async def test_put_leaves_no_temporary_file(tmp_path: Path) -> None:
    async with aclosing(DiskStore(tmp_path)) as store:
        await store.put_new("a", [b"x"])
        await store.put_new("a", [b"x"])
        assert temporary_files(tmp_path) == []


async def test_temporary_files_are_never_listed(tmp_path: Path) -> None:
    async with aclosing(DiskStore(tmp_path)) as store:
        await store.put_new("a", [b"x"])
        (tmp_path / TEMPORARY_FOLDER / "half").write_bytes(b"half")
        assert [row.key for row in await store.list_after("", "")] == ["a"]


async def test_old_temporary_files_of_dead_processes_are_removed_and_young_ones_kept(
    tmp_path: Path,
) -> None:
    folder = tmp_path / TEMPORARY_FOLDER
    folder.mkdir()
    (folder / "old").write_bytes(b"half")
    (folder / "young").write_bytes(b"half")
    os.utime(folder / "old", (1_000_000_000, 1_000_000_000))

    async with aclosing(DiskStore(tmp_path)) as store:
        await store.list_after("", "")
        assert [file.name for file in temporary_files(tmp_path)] == ["young"]


@pytest.mark.parametrize(
    ("number", "sentence", "code"),
    [
        (errno.ENOSPC, "the disk is full", "disk-full"),
        (errno.EDQUOT, "quota", "disk-full"),
        (errno.EFBIG, "no file may be so large", "disk-full"),
        (errno.EROFS, "read-only", "data-folder-denied"),
        (errno.EACCES, "not permitted", "data-folder-denied"),
    ],
)
async def test_write_that_the_disk_refuses_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, sentence: str, code: str
) -> None:
    async with aclosing(DiskStore(tmp_path)) as store:
        await store.put_new("before", [b"x"])
        with monkeypatch.context() as patched:
            patched.setattr(os, "writev", failing(number))
            with pytest.raises(StoreRefusedError, match=sentence) as refused:
                await store.put_new("a", [b"x"])
            assert refused.value.fault == code
        assert temporary_files(tmp_path) == []
        with pytest.raises(ObjectNotFoundError):
            await store.get("a")


async def test_fault_of_the_disk_may_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with aclosing(DiskStore(tmp_path)) as store:
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", failing(errno.EIO))
            with pytest.raises(StoreUnavailableError, match="Input/output error"):
                await store.put_new("a", [b"x"])
        await store.put_new("a", [b"x"])


async def test_file_system_without_hard_links_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", failing(errno.EPERM))

    async with aclosing(DiskStore(tmp_path)) as store:
        with pytest.raises(StoreRefusedError, match="hard links"):
            await store.put_new("a", [b"x"])


async def test_root_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    async with aclosing(DiskStore(tmp_path / "file" / "root")) as store:
        with pytest.raises(StoreRefusedError):
            await store.put_new("a", [b"x"])


async def test_root_that_went_away_is_refused_and_not_made_anew(tmp_path: Path) -> None:
    root = tmp_path / "mount"

    async with aclosing(DiskStore(root)) as store:
        await store.put_new("a", [b"x"])
        root.rename(tmp_path / "gone")
        for call in (store.get("a"), store.put_new("b", [b"x"]), store.list_after("", "")):
            with pytest.raises(StoreRefusedError, match="is gone"):
                await call
        assert not root.exists()


async def test_short_writes_of_the_system_are_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.writev

    def short(handle: int, parts: list[memoryview]) -> int:
        return real(handle, [parts[0][:3]])

    monkeypatch.setattr(os, "writev", short)
    parts = [b"0123456789", b"", b"ab", memoryview(b"cdefg")]

    async with aclosing(DiskStore(tmp_path)) as store:
        await store.put_new("a", parts)
        assert await store.get("a") == b"0123456789abcdefg"


async def test_more_parts_than_one_system_call_takes_are_written_in_order(tmp_path: Path) -> None:
    parts = [number.to_bytes(2, "big") for number in range(3000)]

    async with aclosing(DiskStore(tmp_path)) as store:
        await store.put_new("a", parts)
        assert await store.get("a") == b"".join(parts)


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is synced from now on, in this order."""
    real = os.fsync
    synced: list[str] = []

    def recording(handle: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        real(handle)

    monkeypatch.setattr(os, "fsync", recording)
    return synced


@pytest.mark.promise("P1")
async def test_a_folder_that_somebody_else_made_is_synced_into_the_one_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who made it may have died before that; with it goes, when power does, what was put into it."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    async with aclosing(DiskStore(tmp_path)) as store:
        await store.put_new("other", [b"x"])
        synced = recorded(monkeypatch)
        await store.put_new("a/b/c", [b"x"])
        assert synced[1:] == [str(tmp_path), f"{tmp_path}/a", f"{tmp_path}/a/b"]
        synced.clear()
        await store.put_new("a/b/d", [b"x"])
        assert synced[1:] == [f"{tmp_path}/a/b"], "once is enough"
        await store.delete(["a/b/c", "a/b/d"])
        synced.clear()
        await store.put_new("a/b/c", [b"x"])
        assert synced[1:] == [str(tmp_path), f"{tmp_path}/a", f"{tmp_path}/a/b"]


async def test_a_folder_that_another_process_removed_is_made_anew(tmp_path: Path) -> None:
    async with aclosing(DiskStore(tmp_path)) as one, aclosing(DiskStore(tmp_path)) as other:
        await one.put_new("a/b/c", [b"x"])
        await other.delete(["a/b/c"])
        assert not (tmp_path / "a").exists()
        await one.put_new("a/b/c", [b"x"])
        assert await other.get("a/b/c") == b"x"


@pytest.mark.promise("P1")
async def test_everything_is_synced_before_a_put_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with aclosing(DiskStore(tmp_path)) as store:
        await store.put_new("other", [b"x"])
        synced = recorded(monkeypatch)
        await store.put_new("a/b/c", [b"x"])
        root = str(tmp_path)
        assert synced[0].startswith(f"{root}/{TEMPORARY_FOLDER}/")
        assert synced[1:] == [root, f"{root}/a", f"{root}/a/b"]
        # The one before may have died between the link and this.
        synced.clear()
        await store.put_new("a/b/c", [b"x"])
        assert synced[-1] == f"{root}/a/b"


@pytest.mark.promise("P1")
async def test_the_folder_of_a_store_and_those_made_above_it_are_synced_before_a_put_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = recorded(monkeypatch)
    root = tmp_path / "made" / "store"
    async with aclosing(DiskStore(root)) as store:
        await store.put_new("a", [b"x"])
    assert synced[:2] == [str(tmp_path), str(root.parent)]
    # Whoever made it may have died before that.
    synced.clear()
    async with aclosing(DiskStore(root)) as store:
        await store.get("a")
    assert synced == [str(root.parent)]


async def test_folders_go_with_their_last_object_while_others_write(tmp_path: Path) -> None:
    async with aclosing(DiskStore(tmp_path)) as store:

        async def come_and_go(name: str) -> None:
            for _ in range(30):
                await store.put_new(f"deep/er/{name}", [b"x"])
                await store.delete([f"deep/er/{name}"])

        async with asyncio.TaskGroup() as tasks:
            for name in "abcd":
                tasks.create_task(come_and_go(name))
        assert not (tmp_path / "deep").exists()


async def test_link_of_the_users_inside_the_folder_does_not_hide_objects(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "chunks").symlink_to(elsewhere)

    async with aclosing(DiskStore(tmp_path / "root")) as store:
        await store.put_new("chunks/a", [b"x"])
        assert [row.key for row in await store.list_after("", "")] == ["chunks/a"]
        assert (elsewhere / "a").read_bytes() == b"x"


async def test_no_temporary_file_can_be_left_where_files_may_have_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[list[Path]] = []
    real = os.fsync

    def looking(handle: int) -> None:
        found.append(temporary_files(tmp_path))
        real(handle)

    async with aclosing(DiskStore(tmp_path)) as store:
        await store.put_new("before", [b"x"])
        monkeypatch.setattr(os, "fsync", looking)
        await store.put_new("a", [b"x"])
        nameless = disk._knows_nameless_files(tmp_path / TEMPORARY_FOLDER)
        assert [len(files) for files in found] == [0 if nameless else 1, 0 if nameless else 1]
