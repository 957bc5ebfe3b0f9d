"""What is a finding: more than a crash.

Of each input: an error that the target does not expect; an error in the log, by whatever logger; the
thread that serves busy for too long (its CPU time, so that what else runs on the machine does not
count); the process larger by too much. Of many inputs: memory that does not come back (`leak`).
What only a target can know it says itself (`WrongError`): a canary that is not served, copies that
differ.
"""

import gc
import logging
import os
import re
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from tests.fuzz.target import Target

ROOT = Path(__file__).parent.parent.parent
STUCK_S = 20.0
"""Of CPU: an input that takes longer is ended."""
TO_MIB = 1 << 20 if sys.platform == "darwin" else 1 << 10

ROUNDS = 30
LEAK_BLOCKS_MIN = 300


class StuckError(KeyboardInterrupt):
    """The input does not end. Of all errors asyncio lets this kind through."""


class Finding(NamedTuple):
    sign: str
    """Findings of one sign are one."""
    text: str


class Verdict(NamedTuple):
    outcome: Hashable
    finding: Finding | None


class _Errors(logging.Handler):
    """What was logged that nobody wants to read: tracebacks, and errors."""

    def __init__(self, ignored: tuple[type[BaseException], ...]) -> None:
        super().__init__(logging.WARNING)
        self.ignored = ignored
        self.found: list[Finding] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, self.ignored):
            return
        if error is not None or record.levelno >= logging.ERROR:
            sign = f"log: {str(record.msg)[:60]} {_sign(error) if error else ''}".strip()
            self.found.append(Finding(sign, logging.Formatter().format(record)))


class Checker:
    """Runs inputs of one target."""

    def __init__(self, target: Target, current: Callable[[bytes], object] = id) -> None:
        """`current` is told each input before it runs."""
        self.target = target
        self.current = current
        self._errors = _Errors(target.ignored_errors)
        self._begun = 0.0

    @contextmanager
    def listening(self) -> Iterator[None]:
        root = logging.getLogger()
        level = root.level
        root.setLevel(min(level, logging.WARNING))
        root.addHandler(self._errors)
        before = signal.signal(signal.SIGVTALRM, self._alarm)
        signal.setitimer(signal.ITIMER_VIRTUAL, STUCK_S / 4, STUCK_S / 4)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)
            root.removeHandler(self._errors)
            root.setLevel(level)

    def _alarm(self, _number: int, _frame: FrameType | None) -> None:
        if self._begun and time.process_time() - self._begun > STUCK_S:
            self._begun = time.process_time()
            raise StuckError

    def check(self, data: bytes, *, strict: bool) -> Verdict:
        """`strict`: CPU and memory count; else only what is the same on every machine, traced or not."""
        verdict, cpu_ms, grown = self._run(data)
        if verdict.finding or not strict:
            return verdict
        if cpu_ms > self.target.cpu_ms_max:
            # The collector may have come by; whoever is slow is slow again.
            cpu_ms = min(cpu_ms, *(self._run(data)[1] for _ in range(2)))
            if cpu_ms > self.target.cpu_ms_max:
                words = (
                    f"stands still: {cpu_ms:.0f} ms of CPU, at most {self.target.cpu_ms_max:.0f}"
                )
                return Verdict(None, Finding("stands still", words))
        if grown > self.target.memory_mib_max:
            words = f"the process is larger by {grown} MiB, at most {self.target.memory_mib_max}"
            return Verdict(None, Finding("memory", words))
        return verdict

    def _run(self, data: bytes) -> tuple[Verdict, float, int]:
        self.current(data)
        self._errors.found.clear()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        outcome, finding = None, None
        begun = time.thread_time()
        self._begun = time.process_time()
        try:
            outcome = self.target.run(data)
        except StuckError as error:
            finding = Finding(
                "does not end", f"not ended after {STUCK_S} s of CPU, at\n{_told(error)}"
            )
        except Exception as error:  # noqa: BLE001 - Whatever it is, it is found.
            finding = Finding(_sign(error), _told(error))
        self._begun = 0.0
        cpu_ms = (time.thread_time() - begun) * 1000
        if self.target.stood_ms is not None:
            cpu_ms = self.target.stood_ms
        if self._errors.found:
            finding = self._errors.found[0]
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        return Verdict(outcome, finding), cpu_ms, grown // TO_MIB


def leak(checker: Checker, batch: Callable[[], list[bytes]]) -> Finding | None:
    """Whether memory comes back: blocks that Python's allocator has, after rounds of other inputs.

    What is kept of some inputs is a cache, and full sooner or later; who keeps something of every
    input, in every round, has no bound.
    """
    blocks: list[int] = []
    for _ in range(ROUNDS):
        inputs = batch()
        for data in inputs:
            checker.check(data, strict=False)
        count = len(inputs)
        del inputs
        gc.collect()
        blocks.append(sys.getallocatedblocks())
        if len(blocks) > 1 and blocks[-1] - blocks[-2] <= max(LEAK_BLOCKS_MIN, count):
            return None
    words = f"blocks of memory after rounds of {count} inputs: {blocks}"
    return Finding("memory does not come back", words)


def _sign(error: BaseException) -> str:
    """The kind of an error, and where in our code it was raised."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    frames = traceback.extract_tb(error.__traceback__)
    ours = [each for each in frames if each.filename.startswith(str(ROOT))]
    place = f"{os.path.relpath(ours[-1].filename, ROOT)}:{ours[-1].name}" if ours else ""
    said = "" if not place.startswith("tests/") else re.sub(r"[0-9]+", "0", str(error))[:80]
    return f"{type(error).__name__} {place} {said}".strip()


def _told(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))
