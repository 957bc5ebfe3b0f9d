"""What a shell is told when somebody presses Tab."""

import os
import subprocess
import sys
from pathlib import Path


def completed(line: str, tmp_path: Path, **environ: str) -> list[str]:
    """As the script of the shell asks."""
    answer = tmp_path / "answer"
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_SHELL": "bash",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    command = [sys.executable, "-m", "broker"]
    subprocess.run(command, env={**os.environ, **asked, **environ}, check=True, timeout=60)
    return [word.strip() for word in answer.read_text().split("\n") if word.strip()]
