"""The loop: inputs are made or changed, run, checked; those of which something new comes are kept to be changed on.

New is an outcome that no input had (`Target.run` says it in few words: which refusal, which answers), or,
of every sixteenth input, a line of the product that none reached. The words are for nothing, and tell
refusals apart as branches do; lines cost ten times the run, so they are a sample.

Weighed, by trying them on the requests of `grammar`: Hypothesis makes four hundred inputs in a second of
CPU where this loop makes eight thousand, and finds no way from the bytes of one to another under a right
checksum (properties of each parser are tested by it, one at a time); atheris, with our code instrumented,
came to a quarter of this loop, since the inputs are made and run in Python whoever mutates them, and it has
wheels for Linux on x86-64 alone (for macOS until Python 3.11). sys.monitoring would make lines
cheap, but begins with Python 3.12. What feedback adds is little beside a good grammar: a twentieth more
lines of the readers of objects, half as many outcomes again of schemas.
"""

import random
import time
from collections.abc import Callable, Hashable
from contextlib import ExitStack
from typing import NamedTuple

from tests.fuzz.coverage import Lines
from tests.fuzz.minimise import minimised
from tests.fuzz.target import Target
from tests.fuzz.verdict import Checker, Finding, leak

KEPT_MAX = 3000
TRACED = 16
WARMING = 30
"""First inputs, whose CPU and memory are not counted: libraries are loaded with the first that needs them."""
FRESH = 0.5
"""How often an input is made, and not a kept one changed."""
OUTCOMES_MAX = 200_000
ILL_MAX = 5
"""Findings one after the other, after which a target's life begins anew."""
INPUT_BYTES_MAX = 1 << 17
"""What is larger takes its time for nothing: harm by size is what attacks are for (tests/harm)."""


class Found(NamedTuple):
    finding: Finding
    data: bytes
    """Made as small as it gets; empty of a leak, which has no single input."""


class Campaign:
    """Runs inputs of one target. `current` is told each input before it runs: whoever watches may need it."""

    def __init__(
        self,
        target: Target,
        seed: int,
        *,
        strict: bool = True,
        current: Callable[[bytes], object] = id,
    ) -> None:
        self.target = target
        self.rng = random.Random(seed)
        self.checker = Checker(target, current)
        self.strict = strict
        self.kept: list[bytes] = []
        self.outcomes: set[Hashable] = set()
        self.lines = Lines()
        self.inputs = 0
        self.found: dict[str, Found] = {}

    def run(self, *, until: float, count_max: int = 1 << 60, traced: bool = True) -> list[Found]:
        """What was found that was not before; `until` is by time.monotonic()."""
        before = set(self.found)
        count = 0
        while count < count_max and time.monotonic() < until:
            with self._living():
                ill = 0
                for _ in range(min(self.target.life, count_max - count)):
                    count += 1
                    ill = 0 if self._one(traced=traced) else ill + 1
                    if ill == ILL_MAX or time.monotonic() > until:
                        break
        return [found for sign, found in self.found.items() if sign not in before]

    def _living(self) -> ExitStack:
        stack = ExitStack()
        stack.enter_context(self.checker.listening())
        self.target.open()
        stack.callback(self.target.close)
        return stack

    def next_input(self) -> bytes:
        rng = self.rng
        if not self.kept or rng.random() < FRESH:
            return self.target.generate(rng)
        # Later ones got further, mostly.
        at = max(rng.randrange(len(self.kept)), rng.randrange(len(self.kept)))
        return self.target.mutate(rng, self.kept[at], rng.choice(self.kept))

    def _one(self, *, traced: bool) -> bool:
        """Whether nothing was found."""
        data = self.next_input()[:INPUT_BYTES_MAX]
        self.inputs += self.target.inputs_in(data)
        is_new = False
        if traced and self.rng.randrange(TRACED) == 0:
            verdict, is_new = self.lines.tracing(lambda: self.checker.check(data, strict=False))
        else:
            verdict = self.checker.check(data, strict=self.strict and self.inputs > WARMING)
        if verdict.finding is not None:
            self._find(verdict.finding, data)
            return False
        if verdict.outcome not in self.outcomes and len(self.outcomes) < OUTCOMES_MAX:
            self.outcomes.add(verdict.outcome)
            is_new = True
        if is_new:
            self._keep(data)
        return True

    def _keep(self, data: bytes) -> None:
        if len(self.kept) < KEPT_MAX:
            self.kept.append(data)
        else:
            self.kept[self.rng.randrange(KEPT_MAX)] = data

    def _find(self, finding: Finding, data: bytes) -> None:
        if finding.sign in self.found:
            return

        def is_same(smaller: bytes) -> bool:
            seen = self.checker.check(smaller, strict=self.strict).finding
            return seen is not None and seen.sign == finding.sign

        self.found[finding.sign] = Found(finding, minimised(self.target, data, is_same))

    def look_for_leaks(self, count: int) -> Found | None:
        """Whether memory comes back, over rounds of so many inputs."""
        with self._living():
            finding = leak(self.checker, lambda: self._harmless(count))
        if finding is None or finding.sign in self.found:
            return None
        found = self.found[finding.sign] = Found(finding, b"")
        return found

    def _harmless(self, count: int) -> list[bytes]:
        """Inputs of which nothing is found: an error would keep what it met."""
        inputs: list[bytes] = []
        while len(inputs) < count:
            data = self.next_input()[:INPUT_BYTES_MAX]
            if self.checker.check(data, strict=False).finding is None:
                inputs.append(data)
        return inputs
