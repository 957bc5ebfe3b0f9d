"""Records through a pipe: `python -m tests.bench.bench_pipe [--megabytes 300] [--write]`.

`frazil produce` reads lines from a file, `frazil consume` writes them to another, and Kafka's console tools do the
same, each against the same agent, with the time that they take to start. What comes out is compared with what went in.
"""

import argparse
import filecmp
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.bench.report import machine, write_section
from tests.clients.kafka_tools import CONSOLE_CONSUMER, CONSOLE_PRODUCER
from tests.parts import install
from tests.parts.servers import FrazilDev

LINE_BYTES: Final = 1000
LINES_OF_A_BLOCK: Final = 1000
ROUNDS: Final = 3
INTRODUCTION = """`python -m tests.bench.bench_pipe --write`: {megabytes} MB of lines of {line} bytes through one topic of one partition of
`frazil dev`, from a file and into a file. MB/s of the whole command, best of {rounds}; a million records of JSON are copied with keys
and headers by `consume --json | produce --json`.

{machine}

| | produce | consume |
|---|---|---|
{rows}
"""


class Tool(NamedTuple):
    name: str
    produce: Sequence[str]
    consume: Sequence[str]


def tools(bootstrap: str, topic: str, count: int) -> list[Tool]:
    """Each with the arguments that let it do the same."""
    frazil = (sys.executable, "-m", "broker")
    java = (*install.jvm("1g"), "-cp", f"{install.kafka_jars()}/*")
    where, kafkas = ("--bootstrap", bootstrap), ("--bootstrap-server", bootstrap, "--topic")
    return [
        Tool(
            "`frazil produce`, `consume`",
            (*frazil, "produce", f"{topic}-frazil", *where),
            (*frazil, "consume", f"{topic}-frazil", "-n", str(count), *where),
        ),
        Tool(
            "`kafka-console-producer.sh`, `-consumer.sh`",
            (*java, CONSOLE_PRODUCER, *kafkas, f"{topic}-kafka", "--batch-size", "1000000"),
            (*java, CONSOLE_CONSUMER, *kafkas, f"{topic}-kafka", "--from-beginning", "--max-messages", str(count)),
        ),
    ]  # fmt: skip


def seconds(command: Sequence[str], source: Path, to: Path) -> float:
    with source.open("rb") as read, to.open("wb") as write:
        began = time.perf_counter()
        subprocess.run(command, stdin=read, stdout=write, stderr=subprocess.DEVNULL, check=True)
        return time.perf_counter() - began


def measure(folder: Path, bootstrap: str, megabytes: int) -> list[str]:
    sent, came = folder / "sent", folder / "came"
    count = megabytes * 1_000_000 // LINE_BYTES
    with sent.open("wb") as file:
        for number in range(count // LINES_OF_A_BLOCK):
            line = b"%08d" % number + b"." * (LINE_BYTES - 9) + b"\n"
            file.write(line * LINES_OF_A_BLOCK)
    rows = []
    for place in range(len(tools(bootstrap, "", count))):
        times: tuple[list[float], list[float]] = ([], [])
        for turn in range(ROUNDS):
            tool = tools(bootstrap, f"turn-{turn}", count)[place]
            times[0].append(seconds(tool.produce, sent, folder / "said"))
            times[1].append(seconds(tool.consume, Path("/dev/null"), came))
            assert filecmp.cmp(sent, came, shallow=False), "what came out is not what went in"
        rates = [megabytes / min(some) for some in times]
        rows.append(f"| {tool.name} | {rates[0]:.0f} | {rates[1]:.0f} |")
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_pipe")
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--write", action="store_true", help="write the section of BENCHMARKS.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, FrazilDev(Path(name) / "agent") as agent:
        rows = measure(Path(name), agent.bootstrap, options.megabytes)
    if options.write:
        text = INTRODUCTION.format(
            megabytes=options.megabytes,
            line=LINE_BYTES,
            rounds=ROUNDS,
            machine=machine(),
            rows="\n".join(rows),
        )
        write_section("Through a pipe", text)


if __name__ == "__main__":
    main()
