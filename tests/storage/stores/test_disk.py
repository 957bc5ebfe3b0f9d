"""The disk adapter: what a crash leaves behind, and clear sentences for what a disk refuses."""

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from storage.stores.disk import TEMPORARY_FOLDER, DiskStore
from storage.stores.object_store import (
    ObjectNotFoundError,
    StoreRefusedError,
    StoreUnavailableError,
)


def use(root: Path, test: Callable[[DiskStore], Awaitable[None]]) -> None:
    async def whole() -> None:
        store = DiskStore(root)
        try:
            await test(store)
        finally:
            await store.aclose()

    asyncio.run(whole())


def temporary_files(root: Path) -> list[Path]:
    return list((root / TEMPORARY_FOLDER).iterdir())


def failing(number: int) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_folder_is_made_on_first_use_and_not_before(tmp_path: Path) -> None:
    root = tmp_path / "some" / "where"

    async def test(store: DiskStore) -> None:
        assert not root.exists()
        await store.put_new("a", [b"x"])
        assert (root / "a").read_bytes() == b"x"

    use(root, test)


def test_put_leaves_no_temporary_file(tmp_path: Path) -> None:
    async def test(store: DiskStore) -> None:
        await store.put_new("a", [b"x"])
        await store.put_new("a", [b"x"])
        assert temporary_files(tmp_path) == []

    use(tmp_path, test)


def test_temporary_files_are_never_listed(tmp_path: Path) -> None:
    async def test(store: DiskStore) -> None:
        await store.put_new("a", [b"x"])
        (tmp_path / TEMPORARY_FOLDER / "half").write_bytes(b"half")
        assert [row.key for row in await store.list_after("", "")] == ["a"]

    use(tmp_path, test)


def test_old_temporary_files_of_dead_processes_are_removed_and_young_ones_kept(
    tmp_path: Path,
) -> None:
    folder = tmp_path / TEMPORARY_FOLDER
    folder.mkdir()
    (folder / "old").write_bytes(b"half")
    (folder / "young").write_bytes(b"half")
    os.utime(folder / "old", (1_000_000_000, 1_000_000_000))

    async def test(store: DiskStore) -> None:
        await store.list_after("", "")
        assert [file.name for file in temporary_files(tmp_path)] == ["young"]

    use(tmp_path, test)


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "not permitted"),
    ],
)
def test_write_that_the_disk_refuses_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, sentence: str
) -> None:
    async def test(store: DiskStore) -> None:
        await store.put_new("before", [b"x"])
        with monkeypatch.context() as patched:
            patched.setattr(os, "writev", failing(number))
            with pytest.raises(StoreRefusedError, match=sentence):
                await store.put_new("a", [b"x"])
        assert temporary_files(tmp_path) == []
        with pytest.raises(ObjectNotFoundError):
            await store.get("a")

    use(tmp_path, test)


def test_fault_of_the_disk_may_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(store: DiskStore) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", failing(errno.EIO))
            with pytest.raises(StoreUnavailableError, match="Input/output error"):
                await store.put_new("a", [b"x"])
        await store.put_new("a", [b"x"])

    use(tmp_path, test)


def test_file_system_without_hard_links_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", failing(errno.EPERM))

    async def test(store: DiskStore) -> None:
        with pytest.raises(StoreRefusedError, match="hard links"):
            await store.put_new("a", [b"x"])

    use(tmp_path, test)


def test_root_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    async def test(store: DiskStore) -> None:
        with pytest.raises(StoreRefusedError):
            await store.put_new("a", [b"x"])

    use(tmp_path / "file" / "root", test)


def test_root_that_went_away_is_refused_and_not_made_anew(tmp_path: Path) -> None:
    root = tmp_path / "mount"

    async def test(store: DiskStore) -> None:
        await store.put_new("a", [b"x"])
        root.rename(tmp_path / "gone")
        for call in (store.get("a"), store.put_new("b", [b"x"]), store.list_after("", "")):
            with pytest.raises(StoreRefusedError, match="is gone"):
                await call
        assert not root.exists()

    use(root, test)


def test_short_writes_of_the_system_are_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.writev

    def short(handle: int, parts: list[memoryview]) -> int:
        return real(handle, [parts[0][:3]])

    monkeypatch.setattr(os, "writev", short)
    parts = [b"0123456789", b"", b"ab", memoryview(b"cdefg")]

    async def test(store: DiskStore) -> None:
        await store.put_new("a", parts)
        assert await store.get("a") == b"0123456789abcdefg"

    use(tmp_path, test)


def test_more_parts_than_one_system_call_takes_are_written_in_order(tmp_path: Path) -> None:
    parts = [number.to_bytes(2, "big") for number in range(3000)]

    async def test(store: DiskStore) -> None:
        await store.put_new("a", parts)
        assert await store.get("a") == b"".join(parts)

    use(tmp_path, test)


@pytest.mark.promise("P1")
def test_everything_is_synced_before_a_put_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync
    synced: list[str] = []

    def recording(handle: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        real(handle)

    async def test(store: DiskStore) -> None:
        await store.put_new("other", [b"x"])
        monkeypatch.setattr(os, "fsync", recording)
        await store.put_new("a/b/c", [b"x"])
        root = str(tmp_path)
        assert synced[0].startswith(f"{root}/{TEMPORARY_FOLDER}/")
        assert synced[1:] == [root, f"{root}/a", f"{root}/a/b"]
        # The one before may have died between the link and this.
        synced.clear()
        await store.put_new("a/b/c", [b"x"])
        assert synced[-1] == f"{root}/a/b"

    use(tmp_path, test)


def test_folders_go_with_their_last_object_while_others_write(tmp_path: Path) -> None:
    async def test(store: DiskStore) -> None:
        async def come_and_go(name: str) -> None:
            for _ in range(30):
                await store.put_new(f"deep/er/{name}", [b"x"])
                await store.delete([f"deep/er/{name}"])

        async with asyncio.TaskGroup() as tasks:
            for name in "abcd":
                tasks.create_task(come_and_go(name))
        assert not (tmp_path / "deep").exists()

    use(tmp_path, test)


def test_link_of_the_users_inside_the_folder_does_not_hide_objects(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "chunks").symlink_to(elsewhere)

    async def test(store: DiskStore) -> None:
        await store.put_new("chunks/a", [b"x"])
        assert [row.key for row in await store.list_after("", "")] == ["chunks/a"]
        assert (elsewhere / "a").read_bytes() == b"x"

    use(tmp_path / "root", test)
