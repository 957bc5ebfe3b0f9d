"""An object store in a folder of a local (or network) disk.

An object is written to a temporary file, fsynced, and then linked to its name, which never
overwrites; the folders are fsynced before the call returns. So a name has all of its bytes or
does not exist, whatever is cut off. All calls block and run in a few threads of the adapter's
own. Several processes may use one folder.

Left out: file systems without hard links (refused with a clear sentence), and quotas of ours.
"""

import asyncio
import errno
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

from protocol.types import Buffer
from storage.stores.adapter_rules import (
    PAGE_OBJECTS_MAX,
    check_key,
    check_prefix,
    check_range,
    range_refused,
    same_bytes,
)
from storage.stores.object_store import (
    DeleteRefusal,
    ObjectExistsError,
    ObjectInfo,
    ObjectNotFoundError,
    StoreRefusedError,
    StoreUnavailableError,
)

Result = TypeVar("Result")

THREADS: Final = 8
TEMPORARY_FOLDER: Final = ".tmp"
LEFTOVER_SECONDS_MIN: Final = 3600.0
"""A temporary file older than this belongs to a process that died."""
LINK_ATTEMPTS_MAX: Final = 10
"""Another process may remove an empty folder just before it gets its first object."""
PARTS_PER_WRITE_MAX: Final = 512
"""Buffers of one writev; POSIX promises 16, Linux and macOS take 1,024."""

_REFUSALS: Final = {
    errno.EACCES: "is not permitted; give this user the right to it",
    errno.EPERM: "is not permitted; the file system may not know hard links",
    errno.ENOTSUP: "is not supported by this file system, which must know hard links",
    errno.EROFS: "is not possible, the file system is read-only",
    errno.ENOSPC: "is not possible, the disk is full",
    errno.EDQUOT: "is not possible, the disk quota is used up",
    errno.ENOTDIR: "is not possible, a part of the path is a file",
    errno.EISDIR: "is not possible, it is a folder",
    errno.ENAMETOOLONG: "is not possible, the path is too long",
}


class DiskStore:
    """An `ObjectStore` in the folder `root`, which is made if it does not exist."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._temporary = root / TEMPORARY_FOLDER
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="frazil-disk")
        self._lock = threading.Lock()
        self._folders = threading.Lock()
        """Held while folders come or go with their only object."""
        self._ready = False

    async def put_new(self, key: str, parts: Sequence[Buffer]) -> None:
        check_key(key)
        await self._run(f"writing {key}", lambda: self._put(key, parts))

    async def get(self, key: str) -> Buffer:
        check_key(key)
        return await self._run(f"reading {key}", lambda: self._read(key, 0, None))

    async def get_range(self, key: str, start: int, length: int) -> Buffer:
        check_range(key, start, length)
        data = await self._run(f"reading {key}", lambda: self._read(key, start, length))
        if len(data) != length:
            raise range_refused(key, start, length, found=len(data))
        return data

    async def list_after(self, prefix: str, start_after: str) -> Sequence[ObjectInfo]:
        check_prefix(prefix)
        return await self._run(
            "listing",
            lambda: list(islice(self._walk("", prefix, start_after), PAGE_OBJECTS_MAX)),
        )

    async def delete(self, keys: Sequence[str]) -> Sequence[DeleteRefusal]:
        for key in keys:
            check_key(key)
        return await self._run("deleting", lambda: self._delete(keys))

    async def aclose(self) -> None:
        """Calls that are under way end in their threads; nobody waits for them."""
        self._threads.shutdown(wait=False)

    async def _run(self, doing: str, call: Callable[[], Result]) -> Result:
        """Run `call` in a thread and turn the errors of the system into the store's."""

        def guarded() -> Result:
            try:
                self._prepare()
                return call()
            except OSError as error:
                place = f"{doing} in the folder {self._root}"
                refusal = _REFUSALS.get(error.errno or 0)
                if refusal is not None:
                    raise StoreRefusedError(f"{place} {refusal}") from error
                raise StoreUnavailableError(f"{place}: {error}") from error

        return await asyncio.get_running_loop().run_in_executor(self._threads, guarded)

    def _prepare(self) -> None:
        """Make the folders once; later the root must be there (it may be a mount that went)."""
        with self._lock:
            if not self._ready:
                self._root.mkdir(parents=True, exist_ok=True)
                self._temporary.mkdir(exist_ok=True)
                self._sweep()
                self._ready = True
        if not self._temporary.is_dir():
            raise StoreRefusedError(f"the folder {self._root} of the object store is gone")

    def _sweep(self) -> None:
        """Remove temporary files of processes that died. The disk's own clock decides."""
        with tempfile.NamedTemporaryFile(dir=self._temporary) as mine:
            newest = os.fstat(mine.fileno()).st_mtime
            for entry in os.scandir(self._temporary):
                with suppress(FileNotFoundError):
                    if newest - entry.stat().st_mtime > LEFTOVER_SECONDS_MIN:
                        Path(entry.path).unlink()

    def _put(self, key: str, parts: Sequence[Buffer]) -> None:
        path = self._root / key
        handle, temporary = tempfile.mkstemp(dir=self._temporary)
        try:
            try:
                _write_all(handle, parts)
                os.fsync(handle)
                _forget_pages(handle)
            finally:
                os.close(handle)
            try:
                self._link(temporary, path)
            except FileExistsError:
                if not same_bytes(self._read(key, 0, None), parts):
                    raise ObjectExistsError(f"{key} exists with other bytes") from None
            # Also when it was there: whoever wrote it may have died before this.
            _fsync_folder(path.parent)
        finally:
            Path(temporary).unlink(missing_ok=True)

    def _link(self, temporary: str, path: Path) -> None:
        """Give the file its name. `_delete`, here or elsewhere, removes folders that are empty."""
        for attempts_left in reversed(range(LINK_ATTEMPTS_MAX)):
            try:
                with self._folders:
                    self._make_folder(path.parent)
                    os.link(temporary, path)
                return
            except FileNotFoundError:
                if not attempts_left:
                    raise

    def _make_folder(self, folder: Path) -> None:
        """Make the folder and those above it, each durable in the one above."""
        if folder == self._root or folder.is_dir():
            return
        self._make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _fsync_folder(folder.parent)

    def _read(self, key: str, start: int, length: int | None) -> bytearray:
        """Bytes from `start` on, fewer than asked for when the file ends there."""
        try:
            file = (self._root / key).open("rb", buffering=0)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise ObjectNotFoundError(key) from None
        with file:
            status = os.fstat(file.fileno())
            # The length is bounded by the file's before memory is taken for it.
            end = status.st_size if length is None else min(status.st_size, start + length)
            file.seek(start)
            # Writable, so that whoever asked may patch it without another copy.
            data = bytearray(max(0, end - start))
            filled = 0
            with memoryview(data) as view:
                while filled < len(data) and (count := file.readinto(view[filled:])):
                    filled += count
            del data[filled:]
        return data

    def _walk(self, folder: str, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        """Objects below a folder ("" or ending in "/") in the order of their whole keys."""
        names: list[tuple[str, os.DirEntry[str]]] = []
        with suppress(FileNotFoundError), os.scandir(self._root / folder) as entries:
            for entry in entries:
                if not entry.name.startswith("."):
                    # "a/" sorts after "a-": keys are compared whole, not by segments.
                    slash = "/" if entry.is_dir() else ""
                    names.append((folder + entry.name + slash, entry))
        names.sort(key=_first)
        for key, entry in names:
            if key.endswith("/"):
                wanted = key.startswith(prefix) or prefix.startswith(key)
                if wanted and key >= start_after[: len(key)]:
                    yield from self._walk(key, prefix, start_after)
            elif key.startswith(prefix) and key > start_after:
                with suppress(FileNotFoundError):
                    status = entry.stat()
                    modified_ms = status.st_mtime_ns // 1_000_000
                    yield ObjectInfo(key, status.st_size, modified_ms)

    def _delete(self, keys: Sequence[str]) -> list[DeleteRefusal]:
        refused = []
        for key in dict.fromkeys(keys):
            path = self._root / key
            try:
                path.unlink()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                pass
            except OSError as error:
                # Whatever is wrong with one file must not keep the others.
                refused.append(DeleteRefusal(key, error.strerror or type(error).__name__))
                continue
            # Empty folders go; the first that is not empty ends it.
            with suppress(OSError), self._folders:
                for folder in path.relative_to(self._root).parents:
                    if folder.name:
                        (self._root / folder).rmdir()
        return refused


def _first(row: tuple[str, object]) -> str:
    return row[0]


def _write_all(handle: int, parts: Sequence[Buffer]) -> None:
    """Write all parts without joining them; a write may take only some of the bytes."""
    queue = [memoryview(part).cast("B") for part in parts if len(part)]
    at = 0
    while at < len(queue):
        written = os.writev(handle, queue[at : at + PARTS_PER_WRITE_MAX])
        while at < len(queue) and written >= len(queue[at]):
            written -= len(queue[at])
            at += 1
        if written:
            queue[at] = queue[at][written:]


def _forget_pages(handle: int) -> None:
    """Let the kernel use the pages of what was just written for the next write.

    What is new is read from the agent's own cache; a second copy in the page cache costs memory
    that is fresh each time, and in virtual machines a fault of the host for every page.
    """
    if sys.platform == "linux":
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)


def _fsync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
