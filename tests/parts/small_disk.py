"""A disk of its own for a program, which can be full: a file system in memory, in a mount namespace.

The namespace and what lies in the file system live as long as a process of ours that does nothing else; the
program may end and begin again meanwhile. Linux only, and only where namespaces may be made.
"""

import functools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

from tests.parts.process import Child

SIZE = "4g"
"""At most; it takes what lies in it."""
FULL_WITHIN_S = 10.0
OWN_NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")


@functools.cache
def is_possible() -> bool:
    if sys.platform != "linux" or not all(map(shutil.which, ("unshare", "nsenter", "mount"))):
        return False
    mount = [*OWN_NAMESPACE, "mount", "-t", "tmpfs", "none", tempfile.gettempdir()]
    return subprocess.run(mount, capture_output=True, check=False).returncode == 0


class SmallDisk:
    """In place of `folder`, for programs that are started `inside`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        mount = f'mount -t tmpfs -o size={SIZE} none "$0" && exec sleep infinity'
        self._keeper = Child(
            [*OWN_NAMESPACE, "sh", "-c", mount, str(folder)], log=folder.with_suffix(".log")
        )

    def __enter__(self) -> Self:
        self._keeper.start(lambda: f" {self._folder} tmpfs " in self._mounts())
        return self

    def __exit__(self, *_: object) -> None:
        self._keeper.kill()

    def inside(self, argv: list[str]) -> list[str]:
        """What starts the program there: it becomes that program."""
        keeper = str(self._keeper.pid)
        enter = ["nsenter", "--target", keeper, "--user", "--preserve-credentials", "--mount"]
        return [*enter, "--", *argv]

    def fill(self) -> None:
        """Not a byte is left, until `heal`."""
        deadline = time.monotonic() + FULL_WITHIN_S
        while not self._resize(str(self._used_bytes())):
            # Somebody wrote meanwhile.
            assert time.monotonic() < deadline, "the disk is not full"

    def heal(self) -> None:
        assert self._resize(SIZE), "the disk stays full"

    def _mounts(self) -> str:
        try:
            return Path(f"/proc/{self._keeper.pid}/mounts").read_text()
        except OSError:
            return ""

    def _used_bytes(self) -> int:
        disk = os.statvfs(f"/proc/{self._keeper.pid}/root{self._folder}")
        # Of none at all the system makes a disk without a bound.
        return max(1, disk.f_blocks - disk.f_bfree) * disk.f_frsize

    def _resize(self, size: str) -> bool:
        remount = ["mount", "-o", f"remount,size={size}", str(self._folder)]
        done = subprocess.run(self.inside(remount), capture_output=True, check=False)
        return done.returncode == 0
