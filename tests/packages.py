"""`python -m tests.packages agent | exporter | tests`: installs packages into this environment (Makefile).

One at a time: an exclusive lock on a file in the environment is held while pip works, by pip too, so that
nobody has to ask whether who holds it is alive (`iceberg_export.installation` tells who waits). A stamp says
that a step is done; whoever is interrupted leaves none, and the next one repairs what was left half done.

`--behind` an agent that runs already: what pip says goes into the log, what is told is two lines, and
Ctrl-C in the terminal ends both. Imports nothing that has to be installed.
"""

import argparse
import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TextIO

from iceberg_export.installation import LOG

AGAIN_S: Final = 15.0
"""Downloads break off now and then."""
TIDY_S: Final = 5.0
NICENESS: Final = 10
INTERRUPTED: Final = 130

# What is downloaded must be one of the files that constraints.txt has the hashes of. Frazil itself has
# none, so not everything can be required to have some.
PINNED: Final = (
    *("--no-require-hashes", "--constraint", "constraints.txt"),
    *("--build-constraint", "constraints.txt"),
)


class Step(NamedTuple):
    """Packages that are installed together."""

    stamp: str
    what: str
    installs: tuple[tuple[str, ...], ...]
    """Arguments of pip, one run after the other."""


STEPS: Final = {
    "agent": Step(".agent", "Frazil", (("pip>=26.3",), (*PINNED, "--editable", "."))),
    # Without Frazil itself, which an agent may be running from.
    "exporter": Step(".run", "the exporter's packages", ((*PINNED, "--only-deps", ".[export]"),)),
    "tests": Step(".test", "what the tests need", ((*PINNED, "--group", "dev"),)),
}

Run = Callable[[Sequence[str], TextIO, bool], bool]
"""Runs a module of Python with arguments; the lock, and whether to talk into it. Whether it worked."""


class Environment(NamedTuple):
    """A folder that packages are installed into."""

    folder: Path
    packages: Path
    """Where they are in it."""

    def is_done(self, step: str) -> bool:
        """Whether its packages are those of the agent that is installed: stamps have their order."""
        stamps = [self.folder / STEPS[each].stamp for each in ("agent", step)]
        if not all(stamp.exists() for stamp in stamps):
            return False
        base, done = (stamp.stat().st_mtime_ns for stamp in stamps)
        return done >= base

    def forget_halves(self) -> None:
        """What was being unpacked when pip was killed would count as there: pip writes RECORD last."""
        for info in self.packages.glob("*.dist-info"):
            if not (info / "RECORD").exists():
                shutil.rmtree(info)

    def has_pip(self) -> bool:
        return any(self.packages.glob("pip-*.dist-info"))


@contextlib.contextmanager
def locked(environment: Environment, say: Callable[[str], None]) -> Iterator[TextIO]:
    """The log, empty; nobody else has it."""
    with (environment.folder / LOG).open("a", encoding="utf-8") as log:
        try:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another installation into {environment.folder} is at work; waiting for it ...")
            fcntl.flock(log, fcntl.LOCK_EX)
        log.truncate(0)
        yield log


class Installer:
    """Does a step. `behind` an agent, or before all else."""

    def __init__(
        self,
        environment: Environment,
        *,
        behind: bool,
        run: Run,
        pause: Callable[[float], None],
        say: Callable[[str], None],
    ) -> None:
        self._environment = environment
        self._behind = behind
        self._run = run
        self._pause = pause
        self._say = say

    def install(self, name: str) -> bool:
        """Whether it is done, by whomever."""
        step, environment = STEPS[name], self._environment
        if self._behind and environment.is_done(name):
            return True
        with locked(environment, self._say) as log:
            # Whom we waited for may have done it.
            if name == "exporter" and environment.is_done(name):
                return True
            if self._behind:
                self._say(f"{step.what} are being installed meanwhile ({environment.folder / LOG})")
            else:
                self._say(f"installing {step.what} into {environment.folder} ...")
            environment.forget_halves()
            if not environment.has_pip() and not self._run(["ensurepip"], log, self._behind):
                return False
            if not all(self._patiently(arguments, log) for arguments in step.installs):
                return False
            (environment.folder / step.stamp).touch()
        if self._behind:
            self._say(f"{step.what} are there: frazil export can be used")
        return True

    def _patiently(self, arguments: Sequence[str], log: TextIO) -> bool:
        quiet = () if self._behind else ("--quiet",)
        command = ("pip", "install", "--no-input", *quiet, *arguments)
        if self._run(command, log, self._behind):
            return True
        self._say(f"again in {AGAIN_S:.0f} s ...")
        self._pause(AGAIN_S)
        return self._run(command, log, self._behind)


def run_module(arguments: Sequence[str], log: TextIO, into_log: bool) -> bool:
    """The process has the lock, too, so that it is held until both have ended."""
    to = log if into_log else None
    with subprocess.Popen(
        [sys.executable, "-m", *arguments], stdout=to, stderr=to, pass_fds=(log.fileno(),)
    ) as process:
        try:
            return process.wait() == 0
        except KeyboardInterrupt:
            # It was interrupted, too; it takes what it has downloaded away.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(TIDY_S)
            raise


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.packages")
    parser.add_argument("step", choices=tuple(STEPS))
    parser.add_argument("--behind", action="store_true", help="an agent that runs")
    options = parser.parse_args(arguments)
    if options.behind:
        # The shell has what runs in the background ignore it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.nice(NICENESS)
    folder = Path(os.path.relpath(sys.prefix))
    installer = Installer(
        Environment(folder, Path(sysconfig.get_path("purelib"))),
        behind=options.behind,
        run=run_module,
        pause=time.sleep,
        say=lambda sentence: print(sentence, flush=True),
    )
    try:
        if installer.install(options.step):
            return 0
    except KeyboardInterrupt:
        return INTERRUPTED
    step = STEPS[options.step]
    seen = f" (see {folder / LOG})" if options.behind else ""
    print(f"{step.what} could not be installed{seen}; `make {folder / step.stamp}` tries again")
    return 1


if __name__ == "__main__":
    sys.exit(main())
