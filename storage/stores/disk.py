"""An object store in a folder of a local (or network) disk.

An object is written to a file without a name, fsynced, and then linked to its name, which never
overwrites; the folders are fsynced before the call returns. So a name has all of its bytes or
does not exist, whatever is cut off. Where the system knows no files without names (only Linux does,
and not on every file system) they have temporary ones. All calls block and run in a few threads of
the adapter's own. Several processes may use one folder.

Left out: file systems without hard links (refused with a clear sentence), and quotas of ours.
"""

import errno
import os
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from protocol.fault_codes import FaultCode
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
from storage.stores.threads import Threads

Result = TypeVar("Result")

THREADS: Final = 8
TEMPORARY_FOLDER: Final = ".tmp"
LEFTOVER_SECONDS_MIN: Final = 3600.0
"""A temporary file older than this belongs to a process that died."""
LINK_ATTEMPTS_MAX: Final = 10
"""Another process may remove an empty folder just before it gets its first object."""
FORGOTTEN_BYTES_MIN: Final = 256 * 1024
"""Pages of smaller objects are not worth the call."""
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_CLOEXEC
_NAMELESS: Final = getattr(os, "O_TMPFILE", 0) | os.O_WRONLY | os.O_CLOEXEC
PARTS_PER_WRITE_MAX: Final = 512
"""Buffers of one writev; POSIX promises 16, Linux and macOS take 1,024."""

_REFUSALS: Final = {
    errno.EACCES: "is not permitted; give this user the right to it",
    errno.EPERM: "is not permitted; the file system may not know hard links",
    errno.ENOTSUP: "is not supported by this file system, which must know hard links",
    errno.EROFS: "is not possible, the file system is read-only",
    errno.ENOSPC: "is not possible, the disk is full",
    errno.EDQUOT: "is not possible, the disk quota is used up",
    errno.EFBIG: "is not possible, no file may be so large here (ulimit -f)",
    errno.EEXIST: "is not possible, a part of the path is a file",
    errno.ENOTDIR: "is not possible, a part of the path is a file",
    errno.EISDIR: "is not possible, it is a folder",
    errno.ENAMETOOLONG: "is not possible, the path is too long",
}
_FAULTS: Final = {
    errno.ENOSPC: FaultCode.DISK_FULL,
    errno.EDQUOT: FaultCode.DISK_FULL,
    errno.EFBIG: FaultCode.DISK_FULL,
}
"""Of the refusals; the others are about the right to the folder, or about what the folder is."""


class _Linked(NamedTuple):
    """The folder in which a file got its name, open."""

    handle: int
    had_it: bool
    """The name was taken before."""


class DiskStore:
    """An `ObjectStore` in the folder `root`, which is made if it does not exist."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._root_name = str(root)
        self._temporary = root / TEMPORARY_FOLDER
        self._temporary_name = str(self._temporary)
        self._threads = Threads(THREADS, name="frazil-disk")
        self._lock = threading.Lock()
        self._folders = threading.Lock()
        """Held while folders come or go with their only object."""
        self._durable: set[str] = set()
        """Folders below the root that were synced into the one above by this process: whoever made
        one may have died, or may be about to do it."""
        self._ready = False
        self._nameless = False
        """Files may have no name until they are linked to their own."""

    async def put_new(self, key: str, parts: Sequence[Buffer]) -> None:
        check_key(key)
        await self._run(f"writing {key}", lambda: self._put(key, parts))

    def put_now(self, key: str, parts: Sequence[Buffer]) -> None:
        check_key(key)
        self._guarded(f"writing {key}", lambda: self._put(key, parts))

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
            lambda: self._list(prefix, start_after),
        )

    async def delete(self, keys: Sequence[str]) -> Sequence[DeleteRefusal]:
        for key in keys:
            check_key(key)
        return await self._run("deleting", lambda: self._delete(keys))

    async def aclose(self) -> None:
        """Calls that are under way end in their threads; nobody waits for them."""
        self._threads.shut()

    async def _run(self, doing: str, call: Callable[[], Result]) -> Result:
        """Run `call` in a thread."""
        return await self._threads.run(lambda: self._guarded(doing, call))

    def _guarded(self, doing: str, call: Callable[[], Result]) -> Result:
        """What `call` returns; the errors of the system become the store's."""
        try:
            self._prepare()
            return call()
        except OSError as error:
            place = f"{doing} in the folder {self._root}"
            refusal = _REFUSALS.get(error.errno or 0)
            if refusal is not None:
                fault = _FAULTS.get(error.errno or 0, FaultCode.DATA_FOLDER_DENIED)
                raise StoreRefusedError(f"{place} {refusal}", fault=fault) from error
            raise StoreUnavailableError(f"{place}: {error}") from error

    def _prepare(self) -> None:
        """Make the folders once; later they must be there (`_check_there`)."""
        if not self._ready:
            with self._lock:
                if not self._ready:
                    make_folder(self._root)
                    self._temporary.mkdir(exist_ok=True)
                    self._sweep()
                    self._nameless = _knows_nameless_files(self._temporary)
                    self._ready = True

    def _check_there(self) -> None:
        """What is not found is not there, unless all is gone: the folder may be a mount."""
        if not self._temporary.is_dir():
            raise StoreRefusedError(
                f"the folder {self._root} of the object store is gone",
                fault=FaultCode.DATA_FOLDER_DENIED,
            )

    def _sweep(self) -> None:
        """Remove temporary files of processes that died. The disk's own clock decides."""
        with tempfile.NamedTemporaryFile(dir=self._temporary) as mine:
            newest = os.fstat(mine.fileno()).st_mtime
            for entry in os.scandir(self._temporary):
                with suppress(FileNotFoundError):
                    if newest - entry.stat().st_mtime > LEFTOVER_SECONDS_MIN:
                        Path(entry.path).unlink()

    # Names are text in what follows: a `Path` costs as much as a call of the system.

    def _put(self, key: str, parts: Sequence[Buffer]) -> None:
        temporary = ""
        try:
            if self._nameless:
                handle = os.open(self._temporary_name, _NAMELESS, 0o600)
            else:
                handle, temporary = tempfile.mkstemp(dir=self._temporary)
        except FileNotFoundError:
            self._check_there()
            raise
        try:
            _write_all(handle, parts)
            os.fsync(handle)
            if sum(map(len, parts)) >= FORGOTTEN_BYTES_MIN:
                _forget_pages(handle)
            folder = self._link(temporary or _way_to(handle), key)
            try:
                if folder.had_it and not same_bytes(self._read(key, 0, None), parts):
                    raise ObjectExistsError(f"{key} exists with other bytes")
                # Also when it was there: whoever wrote it may have died before this.
                os.fsync(folder.handle)
            finally:
                os.close(folder.handle)
        finally:
            os.close(handle)
            if temporary:
                Path(temporary).unlink(missing_ok=True)

    def _link(self, source: str, key: str) -> "_Linked":
        """Give the file its name. `_delete`, here or elsewhere, removes folders that are empty."""
        place, _, name = key.rpartition("/")
        for attempts_left in reversed(range(LINK_ATTEMPTS_MAX)):
            try:
                with self._folders:
                    folder = self._open_folder(place)
                    try:
                        # With a folder's handle, `source` is followed to the file that it names.
                        os.link(source, name, dst_dir_fd=folder)
                    except FileExistsError:
                        return _Linked(folder, had_it=True)
                    except OSError:
                        os.close(folder)
                        raise
                return _Linked(folder, had_it=False)
            except FileNotFoundError:
                self._durable.clear()
                if not attempts_left:
                    raise
        raise AssertionError

    def _open_folder(self, place: str) -> int:
        self._make_folder(place)
        return os.open(f"{self._root_name}/{place}", _FOLDER)

    def _make_folder(self, place: str) -> None:
        """Make the folder and those above it, each durable in the one above."""
        if not place or place in self._durable:
            return
        above, _, _ = place.rpartition("/")
        self._make_folder(above)
        (self._root / place).mkdir(exist_ok=True)
        _fsync_folder(self._root / above)
        self._durable.add(place)

    def _read(self, key: str, start: int, length: int | None) -> bytearray:
        """Bytes from `start` on, fewer than asked for when the file ends there."""
        try:
            handle = os.open(f"{self._root_name}/{key}", _READ)
        except (FileNotFoundError, NotADirectoryError):
            self._check_there()
            raise ObjectNotFoundError(key) from None
        try:
            status = os.fstat(handle)
            if stat.S_ISDIR(status.st_mode):
                raise ObjectNotFoundError(key)
            # The length is bounded by the file's before memory is taken for it.
            end = status.st_size if length is None else min(status.st_size, start + length)
            # Writable, so that whoever asked may patch it without another copy.
            data = bytearray(max(0, end - start))
            os.lseek(handle, start, os.SEEK_SET)
            filled = 0
            with memoryview(data) as view:
                while filled < len(data) and (count := os.readv(handle, [view[filled:]])):
                    filled += count
            del data[filled:]
        finally:
            os.close(handle)
        return data

    def _list(self, prefix: str, start_after: str) -> list[ObjectInfo]:
        self._check_there()
        return list(islice(self._walk("", prefix, start_after), PAGE_OBJECTS_MAX))

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
        self._check_there()
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
                        self._durable.discard(str(folder))
        return refused


def _first(row: tuple[str, object]) -> str:
    return row[0]


def _knows_nameless_files(folder: Path) -> bool:
    """Whether a file in the folder may do without a name until it is linked to one."""
    if not hasattr(os, "O_TMPFILE"):
        return False
    name = f"probe-{os.getpid()}"
    try:
        handle = os.open(folder, _NAMELESS, 0o600)
        try:
            into = os.open(folder, _FOLDER)
            try:
                os.link(_way_to(handle), name, dst_dir_fd=into)
                (folder / name).unlink()
            finally:
                os.close(into)
        finally:
            os.close(handle)
    except OSError:
        return False
    return True


def _way_to(handle: int) -> str:
    """A path to a file that has none: linkat follows it, which open(2) recommends to who is not root."""
    return f"/proc/self/fd/{handle}"


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


def make_folder(folder: Path) -> None:
    """The folder is there after a power cut, too, with those above it that were not there. Raises OSError."""
    if not folder.is_dir():
        if not folder.parent.exists():
            make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
    # Also when it was there: whoever made it may have died before this.
    with suppress(PermissionError):  # It may be that we may not read what is above what is ours.
        _fsync_folder(folder.parent)


def _fsync_folder(folder: Path) -> None:
    handle = os.open(folder, _FOLDER)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
