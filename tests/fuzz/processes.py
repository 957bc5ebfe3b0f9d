"""All cores at work: processes that run campaigns, and one that hears of them, counts, and keeps what is found.

A process tells the input before it runs it (in a file that is mapped), so that one that dies or hangs
of it, in something that Python cannot end, is a finding like all others.
"""

import mmap
import multiprocessing
import os
import queue
import random
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from tests.fuzz import corpus
from tests.fuzz.campaign import Campaign
from tests.fuzz.targets import TARGETS
from tests.sim.seeds import cores

TURN_S = 15.0
"""What a target has before the next."""
TOLD_S = 30.0
PATIENCE_S = 180.0
"""A process that tells nothing for so long hangs, in something that no signal reaches."""
CURRENT_BYTES = 1 << 22
LEAK_INPUTS = {
    "agent": 6,
    "logins": 6,
    "tls": 6,
    "machine": 40,
    "http": 0,
    "schemas": 200,
    "batches": 200,
}
"""Of a round; 500 where nothing is said. What is told to an agent by HTTP is told to its log, which lives on."""


class Told(NamedTuple):
    process: int
    target: str
    inputs: int = 0
    seconds: float = 0.0
    sign: str = ""
    text: str = ""
    data: bytes = b""


def work(process: int, names: list[str], seed: int, until: float, file: str, told: Any) -> None:
    """One process: the targets in turn, from another one on than its neighbours."""
    rng = random.Random(seed)
    with Path(file).open("r+b") as opened:
        current = mmap.mmap(opened.fileno(), CURRENT_BYTES)
    campaigns = {
        name: Campaign(TARGETS[name](), rng.getrandbits(40), current=_writer(current))
        for name in names
    }
    order = names[process % len(names) :] + names[: process % len(names)]
    parent = os.getppid()
    while time.monotonic() < until:
        for name in order:
            if os.getppid() != parent:
                return  # Nobody hears any more.
            campaign = campaigns[name]
            told.put(Told(process, name))
            begun, inputs = time.monotonic(), campaign.inputs
            found = campaign.run(until=min(until, begun + TURN_S))
            if begun + TURN_S <= until and (count := LEAK_INPUTS.get(name, 500)):
                leak = campaign.look_for_leaks(count)
                found += [leak] if leak else []
            seconds = time.monotonic() - begun
            told.put(Told(process, name, campaign.inputs - inputs, seconds))
            for finding, data in found:
                told.put(Told(process, name, 0, 0.0, finding.sign, finding.text, data))
            if time.monotonic() >= until:
                break


def _writer(current: mmap.mmap) -> Any:
    def write(data: bytes) -> None:
        data = data[: CURRENT_BYTES - 4]
        current[:4] = len(data).to_bytes(4, "big")
        current[4 : 4 + len(data)] = data

    return write


class Fuzzing:
    """The processes, and what they tell."""

    def __init__(self, names: list[str], seed: int, until: float, folder: Path) -> None:
        self.names, self.seed, self.until, self.folder = names, seed, until, folder
        self.context = multiprocessing.get_context("spawn")
        self.told = self.context.Queue()
        self.running: dict[int, Any] = {}
        self.at: dict[int, tuple[str, float]] = {}
        self.currents: dict[int, str] = {}
        self.inputs: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()
        self.found: dict[tuple[str, str], int] = {}

    def start(self, process: int) -> None:
        descriptor, file = tempfile.mkstemp(prefix="fuzz-")
        os.truncate(descriptor, CURRENT_BYTES)
        os.close(descriptor)
        self.currents[process] = file
        self.at[process] = (self.names[0], time.monotonic())
        seed = self.seed + process + 1000 * len(self.found)
        arguments = (process, self.names, seed, self.until, file, self.told)
        self.running[process] = self.context.Process(target=work, args=arguments, daemon=True)
        self.running[process].start()

    def hear(self, told: Told) -> None:
        self.at[told.process] = (told.target, time.monotonic())
        self.inputs[told.target] += told.inputs
        self.seconds[told.target] += told.seconds
        if told.sign:
            self.find(told)

    def find(self, told: Told) -> None:
        met = self.found.get((told.target, told.sign), 0)
        self.found[told.target, told.sign] = met + 1
        if met:
            return
        print(f"\nFOUND by {told.target}: {told.sign}\n{told.text[-3000:]}", flush=True)
        if told.data:
            file = corpus.keep(told.target, told.sign, told.data, folder=self.folder)
            print(f"replay: python -m tests.fuzz {os.path.relpath(file)}\n", flush=True)

    def look_after(self) -> None:
        for process, child in list(self.running.items()):
            name, heard = self.at[process]
            hangs = time.monotonic() - heard > PATIENCE_S + TURN_S
            if hangs:
                child.kill()
                child.join()
            if child.exitcode is None:
                continue
            del self.running[process]
            raw = Path(self.currents[process]).read_bytes()
            Path(self.currents[process]).unlink()
            if child.exitcode != 0:
                what = "hangs" if hangs else f"the process ends with {child.exitcode}"
                data = raw[4 : 4 + int.from_bytes(raw[:4], "big")]
                self.find(Told(process, name, sign=what, text=what, data=data))
            if time.monotonic() < self.until:
                self.start(process)

    def run(self) -> None:
        for process in range(cores()):
            self.start(process)
        tell_at = time.monotonic() + TOLD_S
        try:
            while self.running or not self.told.empty():
                try:
                    self.hear(self.told.get(timeout=0.5))
                except queue.Empty:
                    self.look_after()
                if time.monotonic() > tell_at:
                    tell_at += TOLD_S
                    self.summarize()
        finally:
            for child in self.running.values():
                child.kill()
                child.join()

    def summarize(self) -> None:
        left = max(0.0, self.until - time.monotonic()) / 60
        rows = [
            f"{name} {self.inputs[name]:,} ({self.inputs[name] / max(1.0, self.seconds[name]):,.0f}/s)"
            for name in self.names
        ]
        total = sum(self.inputs.values())
        print(
            f"{left:.1f} min left; {len(self.found)} found; {total:,} inputs: {', '.join(rows)}",
            flush=True,
        )
