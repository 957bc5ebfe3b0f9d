"""`python -m broker`, and the console script `frazil`: refuses `python -O` and strangers, then the command line.

Assertions are part of how the agent stays right (they stop it before it does harm), so it does
not run without them. Frazil's packages have short names (`storage`, `protocol`, …): where another package of such a
name comes first, half of what runs would be somebody else's.
"""

import os
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

MISUSED: Final = 2
FIRST_PROCESS: Final = 1
"""Of a container: signals that it does not handle do nothing to it."""
PACKAGES: Final = ("broker", "coordinator", "iceberg_export", "protocol", "storage", "txn")
FOLDER: Final = Path(__file__).resolve().parents[1]

# An agent starts its worker by fork and exec; gRPC would only say that it does nothing about it.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")


def main() -> int:
    """Entry point of the console script."""
    if os.getpid() == FIRST_PROCESS:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _end)
    if not __debug__:
        return _refuse("run it without -O and PYTHONOPTIMIZE: it needs its assertions")
    for name in PACKAGES:
        place = _place_of(name)
        if place != FOLDER / name:
            return _refuse(
                f"{place or name} is not Frazil's {FOLDER / name}: install Frazil into an environment of its own"
                " (pipx install, or python -m venv)"
            )
    from broker.cli import main as cli

    return cli.main()


def _end(number: int, _frame: object) -> None:
    """There is nothing to leave yet: an agent takes its signals itself, later. Until then the kernel would keep
    them from the first process of a container, which would go on, serve, and be killed without having left."""
    os._exit(128 + number)


def _place_of(package: str) -> Path | None:
    """The folder that an import would take; a module of that name has none."""
    spec = find_spec(package)
    folders = None if spec is None else spec.submodule_search_locations
    return Path(folders[0]).resolve() if folders else None


def _refuse(sentence: str) -> int:
    print(f"frazil: {sentence}", file=sys.stderr)
    return MISUSED


if __name__ == "__main__":
    sys.exit(main())
