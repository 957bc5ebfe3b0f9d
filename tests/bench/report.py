"""BENCHMARKS.md: one section for each benchmark, which replaces its own and no other."""

import os
import platform
import re
import time
from pathlib import Path

PATH = Path(__file__).parents[2] / "BENCHMARKS.md"
ORDER = (
    "Brokers",
    "Produce",
    "Catch-up",
    "Head",
    "Acknowledgements",
    "Transactions",
    "Heartbeats",
    "Restart",
    "Idle",
    "Idle afterwards",
    "Archive",
    "Exports",
    "Typed values",
    "Typed exports",
    "Fresh reads",
    "Through a pipe",
    "Harm",
    "Overload",
    "Rights",
    "Quotas",
)
PREAMBLE = """# Benchmarks

Each section is written by its own command, on one machine in one run, and says when. Figures of one
run on a shared machine are worth their ratios, not their absolute values.
"""


def machine() -> str:
    """When and on what a run was made."""
    date = time.strftime("%Y-%m-%d")
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return f"{date} · {system}, Python {platform.python_version()}"


def with_section(text: str, title: str, body: str) -> str:
    """The report `text` ("" for none yet) with that section, in the order of all sections."""
    assert title in ORDER
    _, *parts = re.split(r"^## (.*)\n", text, flags=re.MULTILINE)
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    sections[title] = f"\n{body.strip()}\n"
    kept = [f"## {name}\n{sections[name].rstrip()}\n" for name in ORDER if name in sections]
    return "\n".join([PREAMBLE, *kept])


def write_section(title: str, body: str, path: Path = PATH) -> None:
    """Replace a benchmark's section of the report, or add it."""
    text = path.read_text() if path.exists() else ""
    path.write_text(with_section(text, title, body))
    print(f"written to {path.name}")
