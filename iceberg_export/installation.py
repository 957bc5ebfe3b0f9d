"""Whether the exporter's packages are there, being installed, or missing.

`make run` starts an agent before they are: they are half a GB, and an agent needs none of them. Who
installs packages into an environment (`tests.packages`) holds an exclusive lock on the file `LOG` in it,
for as long as pip or uv works, and what they say of these packages is in that file. A process that dies lets
go of its lock.

Imports nothing that has to be installed. Leaves out: installing.
"""

import fcntl
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Final, TextIO

LOG: Final = "installation.log"
"""In the environment's folder."""
PACKAGES: Final = ("fastavro", "numba", "numpy", "pandas", "pyarrow", "pyiceberg", "pyspark")
"""The extra `export`, by names of imports."""
LOOK_S: Final = 0.2

_TOLD: Final = (
    *("Downloading ", "Building ", "Installing collected packages"),
    *("Resolved ", "Downloaded ", "Prepared "),
)
"""What lines of pip and uv begin with that say how far they are; those that say what pip considers are many."""
_CHARACTERS_MAX: Final = 100


def log_file() -> Path:
    """Of the environment of this process."""
    return Path(sys.prefix) / LOG


def missing() -> list[str]:
    """Those of `PACKAGES` that cannot be imported."""
    return [name for name in PACKAGES if find_spec(name) is None]


def steps(file: Path, *, pause: Callable[[float], None]) -> Iterator[str]:
    """What an installation does, while there is one; nothing when there is none. The first text is empty."""
    try:
        log = file.open(encoding="utf-8", errors="replace")
    except OSError:
        return
    with closing(log):
        if not _is_locked(log):
            return
        yield ""
        while _is_locked(log):
            if told := last_step(log):
                yield told
            pause(LOOK_S)


def last_step(log: Iterable[str]) -> str:
    """What pip or uv did last of those things that take time; "" before the first."""
    told = [line.strip() for line in log if line.strip().startswith(_TOLD)]
    return _shown(told[-1]) if told else ""


def _is_locked(log: TextIO) -> bool:
    try:
        fcntl.flock(log, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(log, fcntl.LOCK_UN)
    return False


def _shown(line: str) -> str:
    """As short as a line, and nothing in it that a terminal would obey."""
    return "".join(one if one.isprintable() else "?" for one in line[:_CHARACTERS_MAX])
