"""`python -m tests.iceberg_export.kills`: real Spark exports, killed at random, until all is proven.

Each round produces records and starts `frazil export run --once` as a process of its own, with
real Spark; at a random moment SIGKILL ends the driver, its JVM, one of the Python workers, or all
of them at once. At the end one run is let through and `frazil export verify` must say exact. Prints
what was killed and when, and the seed, so that a run can be repeated (as far as chance goes). With
`--mode upsert` the topic is of that mode, its keys are few, and some records have no key; with `--mode
typed` values are decoded as text, which half of them are not, so each commit has dead letters.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from protocol.records import Record
from tests.iceberg_export.kit.http import served
from tests.iceberg_export.kit.world import World, some_records

PARTITIONS = 4
SPARK = ("--set", "spark.master=local[2]", "--set", "spark.ui.enabled=false")
SMALL = ("--set", "commit.bytes.max=200000", "--set", "split.bytes.max=50000")


def descendants(pid: int) -> dict[int, str]:
    """Processes below `pid`, with their command lines."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                told = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                parents[int(entry.name)] = int(told[1])
    found: dict[int, str] = {}
    below = {pid}
    while below:
        below = {child for child, parent in parents.items() if parent in below} - set(found)
        for child in below:
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ")
                found[child] = command.decode("utf-8", "replace")
    return found


def victims(pid: int, kind: str) -> list[int]:
    """Ids of the processes to be killed; none when there is none of that kind at the moment."""
    below = descendants(pid)
    java = [one for one, command in below.items() if "java" in command.split(" ")[0]]
    workers = [one for one, text in below.items() if "-m iceberg_export.spark_daemon" in text]
    return {
        "driver": [pid],
        "jvm": java[:1],
        "worker": workers[-1:],
        "all": [pid, *below],
    }[kind]


def newest(records: list[Record]) -> dict[bytes, Record]:
    """What a table of mode upsert should have of one partition, by key."""
    last = {one.key: one for one in records if one.key is not None}
    return {key: one for key, one in last.items() if one.value is not None}


def is_text(record: Record) -> bool:
    """Is it a row of a table of mode typed? Else it is a dead letter: half of the records are."""
    try:
        (record.value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


class Kills:
    def __init__(self, folder: Path, rng: random.Random, mode: str = "append"):
        self.world = World(folder / "store")
        self.world.create("orders", PARTITIONS)
        self.world.configs["orders"] = (
            {"value.mode": "string"} if mode == "typed" else {"mode": mode}
        )
        self.mode = mode
        self.folder = folder
        self.rng = rng
        self.address = ""

    def records(self, partition: int) -> list[Record]:
        made = some_records(self.rng.randint(1, 900))
        if self.mode != "upsert":
            return made
        keys = [self.rng.randrange(5000) for _ in made]
        return [
            one._replace(key=b"%d-%d" % (partition, key) if key % 500 else None)
            for one, key in zip(made, keys, strict=True)
        ]

    def produce(self) -> None:
        for _ in range(self.rng.randint(1, 3)):
            some = {p: [self.records(p)] for p in range(PARTITIONS)}
            self.world.commit("orders", some)

    def wanted(self) -> int:
        """How many rows the table should have."""
        logs = [log.wanted for log in self.world.topics["orders"][1]]
        if self.mode == "typed":
            return sum(is_text(one) for log in logs for one in log)
        return sum(map(len, logs if self.mode == "append" else map(newest, logs)))

    def start(self, command: str, *more: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "iceberg_export", command, *more),
                *("--agent", self.address, "--data", str(self.folder / "data"), *SPARK, *SMALL),
            ],
            stdout=subprocess.PIPE,
            stderr=(self.folder / "log").open("ab"),
            start_new_session=True,
        )

    def end(self, process: subprocess.Popen[bytes]) -> tuple[int, str]:
        """Wait for it; whatever it has left behind is killed, too."""
        left = descendants(process.pid)
        out, _ = process.communicate(timeout=600)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return process.returncode, out.decode()

    def round(self, longest_s: float) -> tuple[str, float, int]:
        """One export that meets a kill; (what was killed, after how long, exit code)."""
        self.produce()
        process = self.start("run", "--once")
        # Spark takes most of a run to start, during which there is little to break.
        after_s = self.rng.uniform(self.rng.choice([0.1, 0.5, 0.5, 0.5]), 1.0) * longest_s
        kind = self.rng.choice(["driver", "driver", "jvm", "worker", "worker", "all"])
        began = time.monotonic()
        killed = "nothing"
        while process.poll() is None:
            if killed == "nothing" and time.monotonic() - began >= after_s:
                for pid in victims(process.pid, kind):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                        killed = kind
            time.sleep(0.02)
        code, _ = self.end(process)
        return killed, after_s, code


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.iceberg_export.kills")
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--mode", choices=["append", "typed", "upsert"], default="append")
    parser.add_argument("--seconds", type=float, default=3600.0, help="no new round after that")
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        kills = Kills(Path(name), random.Random(arguments.seed), arguments.mode)
        with served(kills.world) as kills.address:
            kills.produce()
            began = time.monotonic()
            code, out = kills.end(kills.start("run", "--once"))
            longest_s = time.monotonic() - began
            print(
                f"seed {arguments.seed}; unhindered: exit {code}, {longest_s:.1f} s; {out.strip()}"
            )
            while counts.total() - counts["nothing"] < arguments.kills:
                if time.monotonic() - began > arguments.seconds:
                    break
                killed, after_s, code = kills.round(longest_s)
                counts[killed] += 1
                print(f"killed {killed} after {after_s:.1f} s, exit {code}", flush=True)
            code, out = kills.end(kills.start("run", "--once"))
            print(f"last run: exit {code}; {out.strip()}")
            code, out = kills.end(kills.start("verify", "--topic", "orders"))
            print(out.strip())
        wanted = kills.wanted()
        print(f"kills: {dict(counts)}; the table should have {wanted} records")
        exact = code == 0 and f" {wanted} records, each exactly once" in out
        return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
