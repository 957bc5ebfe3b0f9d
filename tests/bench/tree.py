"""What a command and all that it starts costs: CPU seconds and memory of its whole process tree.

A process that has ended counts through the parent that waited for it, as the kernel keeps it.
Linux only (/proc). Marks are taken while the tree lives, so that start-up and steady work can be
told apart; what a sampler sees of memory is what was there every fifth of a second.
"""

import os
import threading
from pathlib import Path
from typing import NamedTuple

TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SAMPLE_S = 0.2
DRIVERS = 2
"""Levels of the tree that are the driver: the command and its JVM; workers are below."""


class Process(NamedTuple):
    name: str
    """Of its program, as the kernel keeps it."""
    parent: int
    cpu_seconds: float
    """Its own and that of its children that have ended."""
    rss_bytes: int


def processes() -> dict[int, Process]:
    """All processes of the machine that can be read."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text()
        except OSError:
            continue
        fields = text[text.rindex(")") + 2 :].split()
        ticks = sum(int(field) for field in fields[11:15])
        found[int(entry.name)] = Process(
            text[text.index("(") + 1 : text.rindex(")")],
            int(fields[1]),
            ticks / TICKS,
            int(fields[21]) * PAGE_BYTES,
        )
    return found


def tree(root: int) -> list[tuple[int, Process]]:
    """(level, process) of the root and all below it."""
    known = processes()
    children: dict[int, list[int]] = {}
    for pid, process in known.items():
        children.setdefault(process.parent, []).append(pid)
    found, level = [], [root] if root in known else []
    depth = 0
    while level:
        found += [(depth, known[pid]) for pid in level]
        level = [child for pid in level for child in children.get(pid, ())]
        depth += 1
    return found


def cpu_by_kind(root: int) -> dict[str, float]:
    """CPU seconds that the tree has used until now: of the command, of JVMs, of what these start."""
    seconds = {"command": 0.0, "JVM": 0.0, "workers": 0.0}
    for depth, process in tree(root):
        kind = "JVM" if process.name == "java" else "workers" if depth else "command"
        seconds[kind] += process.cpu_seconds
    return seconds


class MemorySampler:
    """The most memory that a tree, and that the driver in it, was seen with."""

    def __init__(self, root: int) -> None:
        self.tree_bytes = 0
        self.driver_bytes = 0
        self._root = root
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._over.wait(SAMPLE_S):
            seen = tree(self._root)
            self.tree_bytes = max(self.tree_bytes, sum(one.rss_bytes for _, one in seen))
            driver = sum(one.rss_bytes for depth, one in seen if depth < DRIVERS)
            self.driver_bytes = max(self.driver_bytes, driver)
