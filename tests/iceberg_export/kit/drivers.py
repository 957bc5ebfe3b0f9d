"""Drivers as processes of their own, on a catalog and files on disk, and SIGKILL at a step.

Processes are forked from one that has imported everything, so that each takes a fraction of a
second.
"""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path

from iceberg_export.runs.export import export_topic
from iceberg_export.steps import Step
from tests.iceberg_export.kit.hooks import Once
from tests.iceberg_export.kit.world import make_job

NEVER = (Step.INIT_LOADED, 99)
"""No step at which a run dies."""


def kills(again: int) -> list[tuple[Step, int]]:
    """Steps, and at which passing: a run of small commits passes the last ones, `again`, twice."""
    return [(step, 1) for step in Step] + [(step, 2) for step in list(Step)[-again:]]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def drive(
    address: str, data: Path, run_id: str, at: tuple[Step, int], commit_bytes: int = 1
) -> None:
    """A whole driver: its own catalog connection, agents over HTTP; dies at that step."""
    job = make_job(address, data, run_id, (f"commit.bytes.max={commit_bytes}",))
    (topic,) = job.client.topics().topics
    step, nth = at
    export_topic(job._replace(hook=Once(step, die, nth)), topic)


class Drivers:
    def __init__(self, context: ForkServerContext) -> None:
        self._context = context

    def run(
        self,
        address: str,
        data: Path,
        run_id: str,
        at: tuple[Step, int] = NEVER,
        *,
        commit_bytes: int = 1,
        kill_after_s: float | None = None,
    ) -> int:
        """The exit code of a driver: minus the signal that ended it."""
        process = self._context.Process(
            target=drive, args=(address, data, run_id, at, commit_bytes)
        )
        process.start()
        if kill_after_s is not None:
            process.join(kill_after_s)
            process.kill()
        process.join(600)
        assert process.exitcode is not None
        return process.exitcode


@contextmanager
def drivers_ready() -> Iterator[Drivers]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    yield Drivers(context)
    # It would stay until this process ends.
    forkserver._forkserver._stop()  # type: ignore[attr-defined]
