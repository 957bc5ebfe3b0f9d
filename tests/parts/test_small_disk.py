"""A program's own disk is full for a while, and holds what it held."""

import errno
import os
import sys
from pathlib import Path

import pytest

from tests.parts import small_disk
from tests.parts.etcd_cluster import until
from tests.parts.process import Child
from tests.parts.small_disk import SmallDisk

pytestmark = pytest.mark.integration

WRITES = """
import itertools, os, pathlib, sys, time
for number in itertools.count():
    try:
        (pathlib.Path(sys.argv[1]) / str(number)).write_bytes(bytes(10_000))
    except OSError as error:
        print(os.strerror(error.errno), flush=True)
    else:
        print("written", flush=True)
    time.sleep(0.01)
"""


def test_a_disk_is_full_for_those_inside_and_is_not_any_more_when_it_is_over(
    tmp_path: Path,
) -> None:
    if not small_disk.is_possible():
        return
    with SmallDisk(tmp_path / "disk") as disk:
        program = [sys.executable, "-c", WRITES, str(tmp_path / "disk")]
        child = Child(disk.inside(program), log=tmp_path / "log")
        seen: list[str] = []

        def sees(what: str) -> bool:
            """Since the last look at it."""
            new = child.log.read_text().splitlines()[len(seen) :]
            seen.extend(new)
            return what in new

        child.start(lambda: sees("written"))
        disk.fill()
        until(lambda: sees(os.strerror(errno.ENOSPC)), "the disk is full")
        disk.heal()
        until(lambda: sees("written"), "the disk is not full any more")
        child.kill()
    assert list((tmp_path / "disk").iterdir()) == []
