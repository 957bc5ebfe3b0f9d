"""What limits the memory of this process: its cgroup's limit, and the machine's memory. Linux only; elsewhere nothing.

Of cgroups both versions are read: `memory.max` and `memory.limit_in_bytes`. A group that has no limit of its own may
be in one that has, so all groups above count, as far as they are shown. A container shows its own as the uppermost,
whatever /proc/self/cgroup calls it.
"""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from broker.jobs.worker.budget import Limit

PROC: Final = Path("/proc")
GROUPS: Final = Path("/sys/fs/cgroup")
NO_LIMIT_BYTES: Final = 1 << 60
"""How version 1 says that there is none, or more."""


class _Version(NamedTuple):
    """Where a version of cgroups has what, and which counts are memory that nobody can take back."""

    mount: str
    limit: str
    used: tuple[str, ...]


_V1: Final = _Version("memory", "memory.limit_in_bytes", ("total_rss", "total_shmem"))
_V2: Final = _Version(
    "",
    "memory.max",
    ("anon", "shmem", "kernel_stack", "pagetables", "percpu", "sock", "slab_unreclaimable"),
)


def memory_limits(*, proc: Path = PROC, groups: Path = GROUPS) -> list[Limit]:
    """All that limit this process; none where the system does not say."""
    found = list(_machine(_text(proc / "meminfo")))
    for version, path in _groups(_text(proc / "self/cgroup")):
        for parent in (path, *path.parents):
            folder = groups / version.mount / parent.relative_to("/")
            found += _group(version, folder)
    return found


def _groups(listed: str) -> Iterator[tuple[_Version, PurePosixPath]]:
    """The groups of memory that this process is in: `4:memory:/a/b`, `0::/a/b`."""
    for line in listed.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not path.startswith("/") or ".." in PurePosixPath(path).parts:
            continue  # Above what is shown.
        if "memory" in controllers.split(","):
            yield _V1, PurePosixPath(path)
        elif number == "0" and not controllers:
            yield _V2, PurePosixPath(path)


def _group(version: _Version, folder: Path) -> Iterator[Limit]:
    text = _text(folder / version.limit).strip()
    if text.isdecimal() and int(text) < NO_LIMIT_BYTES:
        counts = _counts(_text(folder / "memory.stat"))
        used = sum(counts.get(name, 0) for name in version.used)
        yield Limit(int(text), used, f"the cgroup's limit of {int(text) >> 20} MiB")


def _machine(text: str) -> Iterator[Limit]:
    counts = _counts(text.replace(":", ""))
    if "MemTotal" in counts and "MemAvailable" in counts:
        total, available = (counts[name] << 10 for name in ("MemTotal", "MemAvailable"))
        yield Limit(total, total - available, "the machine's memory")


def _counts(text: str) -> dict[str, int]:
    """Lines of a name and a number, whatever is behind that."""
    words = [line.split() for line in text.splitlines()]
    return {line[0]: int(line[1]) for line in words if len(line) > 1 and line[1].isdecimal()}


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
