"""Runs what makes parts: tools of the build, which are run again when they fail, and the system's package manager."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.parts.cache import absent

PAUSES_S = (10.0, 30.0)
"""Before a tool of the build is run again."""


def run(argv: Sequence[str], *, folder: Path, env: dict[str, str] | None = None) -> None:
    """Run a tool of the build; its output is shown only when it fails.

    Run again when it fails, since downloads break off; all these tools go on with what they have.
    """
    for pause_s in (*PAUSES_S, None):
        done = subprocess.run(
            list(argv),
            cwd=folder,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            return
        told = f"{' '.join(argv)} failed:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        if pause_s is None:
            sys.exit(told)
        print(f"{told}\nagain in {pause_s:.0f} s …", flush=True)
        time.sleep(pause_s)


def system_packages(*, debian: Sequence[str], brew: Sequence[str]) -> None:
    """Install by the system's package manager: apt on Debian and Ubuntu, brew on macOS."""
    absent(debian[0])
    print(f"installing {', '.join(debian)} by the system's package manager …", flush=True)
    if shutil.which("apt-get") is not None:
        sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
        quiet = {"DEBIAN_FRONTEND": "noninteractive"}
        run([*sudo, "apt-get", "update"], folder=Path("/"), env=quiet)
        run(
            [*sudo, "apt-get", "install", "-y", "--no-install-recommends", *debian],
            folder=Path("/"),
            env=quiet,
        )
    elif shutil.which("brew") is not None:
        run(["brew", "install", *brew], folder=Path("/"))
    else:
        sys.exit(f"neither apt-get nor brew is here; install {', '.join(debian)} by hand")
