"""`python -m tests.packages agent | exporter | tests`: installs packages into this environment (Makefile).

By uv, where there is one: it takes a third of the time; else by pip, and by pip, too, when uv did not manage.
One at a time: an exclusive lock on a file in the environment is held while it works, by itself too, so that
nobody has to ask whether who holds it is alive (`iceberg_export.installation` tells who waits). A stamp says
that a step is done; whoever is interrupted leaves none, and the next one repairs what was left half done.

What it says goes into the log, whose end is told when it fails; meanwhile a line says how much it has downloaded.
`--behind` an agent that runs already only two lines are told, and Ctrl-C in the terminal ends both. Imports nothing
that has to be installed.
"""

import argparse
import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TextIO

from iceberg_export.installation import LOG, last_step
from tests.screen import Screen

AGAIN_S: Final = 15.0
"""Downloads break off now and then."""
TIDY_S: Final = 5.0
NICENESS: Final = 10
INTERRUPTED: Final = 130
LOOK_S: Final = 0.5
TAIL_LINES: Final = 20

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
    download_mb: int
    """About, where pip has none of it in its cache."""
    installs: tuple[tuple[str, ...], ...]
    """Arguments of `pip install`, one run after the other."""


STEPS: Final = {
    "agent": Step(".agent", "Frazil", 58, (("pip>=26.3",), (*PINNED, "--editable", "."))),
    # Without Frazil itself, which an agent may be running from.
    "exporter": Step(
        ".run", "the exporter's packages", 630, ((*PINNED, "--only-deps", ".[export]"),)
    ),
    "tests": Step(".test", "what the tests need", 350, ((*PINNED, "--group", "dev"),)),
}

UV_WORDS: Final = {
    "--no-require-hashes": (),
    "--only-deps": ("--requirements", "pyproject.toml"),
    ".[export]": ("--extra", "export"),
}
"""What `uv pip install` calls otherwise than `pip install`. It compares the hashes of constraints, too."""

Run = Callable[[Sequence[str], TextIO], bool]
"""Runs a program, which talks into the log, and has its lock. Whether it worked."""


def by_pip(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "pip", "install", "--no-input", *arguments]


def by_uv(uv: str, arguments: Sequence[str]) -> list[str]:
    words = [word for one in arguments for word in UV_WORDS.get(one, (one,))]
    return [uv, "pip", "install", "--python", sys.executable, *words]


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
        """What was being unpacked when pip or uv was killed would count as there. Both write RECORD last, and name in
        it the file INSTALLER, which no wheel brings."""
        for info in self.packages.glob("*.dist-info"):
            record = info / "RECORD"
            if not record.exists() or "/INSTALLER," not in record.read_text(encoding="utf-8"):
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
        uv: str | None,
        run: Run,
        pause: Callable[[float], None],
        say: Callable[[str], None],
    ) -> None:
        self._environment = environment
        self._behind = behind
        self._uv = uv
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
                self._say(
                    f"installing {step.what} into {environment.folder}"
                    f" (up to {step.download_mb} MB to download) ..."
                )
            environment.forget_halves()
            ensure = [sys.executable, "-m", "ensurepip"]
            if not environment.has_pip() and not self._run(ensure, log):
                return False
            if not all(self._patiently(arguments, log) for arguments in step.installs):
                return False
            (environment.folder / step.stamp).touch()
        if self._behind:
            self._say(f"{step.what} are there: frazil export can be used")
        return True

    def _patiently(self, arguments: Sequence[str], log: TextIO) -> bool:
        again = by_pip(arguments)
        if self._run(again if self._uv is None else by_uv(self._uv, arguments), log):
            return True
        self._say(f"{self._end_of_log()}again in {AGAIN_S:.0f} s ...")
        self._pause(AGAIN_S)
        if self._run(again, log):
            return True
        if end := self._end_of_log():
            self._say(end)
        return False

    def _end_of_log(self) -> str:
        """Behind an agent nothing, since a user looks at its terminal."""
        if self._behind:
            return ""
        lines = (self._environment.folder / LOG).read_text(errors="replace").splitlines(True)
        return "".join(lines[-TAIL_LINES:])


def progress(text: str) -> str:
    """How far pip or uv is, by what it has said: uv downloads many side by side, and does not tell of all."""
    units = {"k": 1e3, "M": 1e6, "G": 1e9}
    sizes = re.findall(r"^ *Downloading .*\(([0-9.]+) ([kMG])B\)$", text, re.MULTILINE)
    got = sum(float(number) * units[unit] for number, unit in sizes)
    step = last_step(text.splitlines())
    return f"{got / 1e6:,.0f} MB so far; {step}" if got else step


def run_program(argv: Sequence[str], log: TextIO, show: Callable[[str], None]) -> bool:
    """The process has the lock, too, so that it is held until both have ended. `show`: how far it is."""
    with subprocess.Popen(argv, stdout=log, stderr=log, pass_fds=(log.fileno(),)) as process:
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(LOOK_S) == 0
                if told := progress(Path(log.name).read_text(errors="replace")):
                    show(told)
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
    screen = Screen(sys.stdout, rewrites=sys.stdout.isatty(), clock=time.monotonic)
    show = (lambda _: None) if options.behind else screen.show
    installer = Installer(
        Environment(folder, Path(sysconfig.get_path("purelib"))),
        behind=options.behind,
        uv=shutil.which("uv"),
        run=lambda argv, log: run_program(argv, log, show),
        pause=time.sleep,
        say=lambda sentence: print(sentence, file=screen, flush=True),
    )
    try:
        if installer.install(options.step):
            return 0
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        screen.clear()
    step = STEPS[options.step]
    seen = f" (see {folder / LOG})" if options.behind else ""
    print(f"{step.what} could not be installed{seen}; `make {folder / step.stamp}` tries again")
    return 1


if __name__ == "__main__":
    sys.exit(main())
