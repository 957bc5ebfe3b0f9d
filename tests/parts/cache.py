"""The user's cache of built and downloaded parts: each made once, whole or not at all.

A part is a file or folder under a name that holds its version. It is made beside its place and
renamed into it, under a lock, so that two test runs at once build it once and a broken build
leaves nothing behind.
"""

import contextlib
import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path

_LOOKS: ContextVar[bool] = ContextVar("looks", default=False)


class AbsentError(Exception):
    """Something is not there, and was only to be looked for."""


@contextlib.contextmanager
def only_looking() -> Iterator[None]:
    """Nothing is made nor installed meanwhile: where something would be, it raises AbsentError."""
    token = _LOOKS.set(True)
    try:
        yield
    finally:
        _LOOKS.reset(token)


def absent(name: str) -> None:
    """Before something is made or installed. Raises AbsentError when it is only looked for."""
    if _LOOKS.get():
        raise AbsentError(name)


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/frazil`, on macOS ~/Library/Caches/frazil, else ~/.cache/frazil."""
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "frazil"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "frazil"
    return Path.home() / ".cache" / "frazil"


@contextlib.contextmanager
def _locked(name: str) -> Iterator[None]:
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def made_once(name: str, make: Callable[[Path, Path], None]) -> Path:
    """The path of part `name`; when absent, `make(result, scratch)` writes it at `result`.

    `scratch` is an empty folder that is deleted afterwards (compiler caches, downloads).
    """
    place = cache_folder() / name
    if place.exists():
        return place
    absent(name)
    with _locked(name):
        if place.exists():
            return place
        print(f"making {name} (once for this user) …", flush=True)
        scratch = Path(tempfile.mkdtemp(dir=cache_folder(), prefix="making-"))
        try:
            result = scratch / "result"
            work = scratch / "work"
            work.mkdir()
            make(result, work)
            result.rename(place)
        finally:
            _remove(scratch)
    return place


def _remove(folder: Path) -> None:
    """Go makes its module cache read-only; give the folders back their write bit first."""
    for parent, _, _ in os.walk(folder):
        Path(parent).chmod(0o700)
    shutil.rmtree(folder)
