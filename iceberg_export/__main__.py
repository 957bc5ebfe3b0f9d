"""`python -m iceberg_export`: the exporter's own entry, which `frazil export` starts.

A process of its own, since the agent needs none of the exporter's packages. While they are being
installed it waits for that; when they are not installed it says so in one sentence. Help, mistakes and
completion need none of them, and are not waited for.
"""

import sys
import time

from iceberg_export import installation
from iceberg_export.cli.parser import parse

INTERRUPTED = 130


def main() -> int:
    """Runs the command line and returns its exit code."""
    if not __debug__:
        print("frazil export: assertions guard the tables, do not run with -O", file=sys.stderr)
        return 2
    arguments = parse(None)
    try:
        _wait()
    except KeyboardInterrupt:
        return INTERRUPTED
    missing = installation.missing()
    if missing:
        return _refuse(missing[0])
    try:
        from iceberg_export.cli import main as cli
    except ModuleNotFoundError as error:
        return _refuse(error.name)
    return cli.run(arguments)


def _refuse(package: str | None) -> int:
    print(
        f"frazil export: the package {package} is missing; install the exporter with:"
        " pip install 'frazil[export]' (in a checkout: make .venv/.run)",
        file=sys.stderr,
    )
    return 2


def _wait() -> None:
    """Until no installation is at work."""
    for step in installation.steps(installation.log_file(), pause=time.sleep):
        said = step or "packages are being installed (make run does that); waiting for them ..."
        print(f"frazil export: {said}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
