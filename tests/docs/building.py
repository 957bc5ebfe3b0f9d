"""Builds the site, as mkdocs.yml says, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def build(
    folder: str | Path = ROOT / "build" / "site", *, root: Path = ROOT
) -> "subprocess.CompletedProcess[str]":
    """Whatever is wrong with a page, a link or an anchor makes the exit code 1 (with `--quiet` nothing would)."""
    command = ["-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    # The theme would tell of its successor each time.
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(
        [sys.executable, *command], cwd=root, env=env, capture_output=True, text=True, check=False
    )
