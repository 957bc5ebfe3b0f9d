"""Whether the exporter's packages are there, being installed, or missing.

`make run` starts an agent before they are: they are half a GB, and an agent needs none of them. Who
installs packages into an environment (`tests.packages`) holds an exclusive lock on the file `LOG` in it,
for as long as pip works, and what pip says of these packages is in that file. A process that dies lets
go of its lock.

Imports nothing that has to be installed. Leaves out: installing.
"""

import fcntl
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Final, TextIO

LOG: Final = "installation.log"
"""In the environment's folder."""
PACKAGES: Final = ("fastavro", "numba", "numpy", "pandas", "pyarrow", "pyiceberg", "pyspark")
"""The extra `export`, by names of imports."""
LOOK_S: Final = 0.2

_TOLD: Final = ("Downloading ", "Building wheels for ", "Installing collected packages")
"""What lines of pip begin with that say how far it is; those that say what it considers are many."""
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
            told = [line.strip() for line in log if line.strip().startswith(_TOLD)]
            if told:
                yield _shown(told[-1])
            pause(LOOK_S)


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
