"""The worker of the jobs as a process: `python -m broker.jobs`, started by an agent and by nobody else.

Standard input is one end of a socket whose other end the agent has; everything comes through it,
also the settings. The process ends when that does. It gives way to whatever else wants the
processor, and is the first to go when the machine is out of memory: another one is started then,
while an agent's clients would have noticed.

Exit codes: 0 the agent is gone; 1 the worker cannot go on, and its last log line says why; 3 it neared its memory
budget and gave up, which it has told its agent.
"""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, NoReturn

from broker import logs
from broker.environment import loop_factory, now_ms, software_version, store_options
from broker.jobs.kinds.job_table import JOBS
from broker.jobs.worker.budget import Budget
from broker.jobs.worker.channel import AgentGoneError, Channel
from broker.jobs.worker.memory import (
    EXIT_CODE,
    WorkerMemory,
    WorkerMemoryError,
    give_back_blocks,
    resident_bytes,
)
from broker.jobs.worker.orders import Orders
from broker.jobs.worker.pipe_frames import FrameError, settings_of_json
from broker.jobs.worker.worker import Worker
from coordinator.replica import ReplicaStoppedError, first_error
from protocol.fault_codes import coded
from protocol.types import Incarnation
from storage.stores.object_store import StoreError
from storage.stores.open_store import open_store

logger = logging.getLogger(__name__)

NICE: Final = 10
OOM_SCORE: Final = 1000
"""Added to the share of memory, in thousandths, by which Linux chooses whom to kill: before an agent, also
where Kubernetes has given all of a pod a score."""
STATUS_S: Final = 2.0


def main() -> int:
    """Be a worker until the agent is gone; the exit code."""
    _give_way()
    give_back_blocks()
    try:
        connection = socket.socket(fileno=os.dup(0))
        connection.getpeername()
    except OSError:
        sys.stderr.write("this is started by an agent, not by hand\n")
        return 2
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_main(connection))


def _give_way() -> None:
    # Ctrl-C reaches all processes of a terminal, and SIGTERM all of a service: what ends the worker
    # is the agent, by closing the socket.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(NICE)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(f"{OOM_SCORE}\n")


async def _main(connection: socket.socket) -> NoReturn:
    channel = Channel(*await asyncio.open_unix_connection(sock=connection))
    code = 1
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(channel.run())
            tasks.create_task(_work(channel, await channel.hello()))
    except* AgentGoneError:
        code = 0
    except* WorkerMemoryError as group:
        code, error = EXIT_CODE, first_error(group)
        # The agent tells it, and what follows.
        logger.info("the worker of the jobs gives up: %s", error)
        await channel.give_up(str(error))
    except* (ReplicaStoppedError, StoreError, FrameError, ValueError) as group:
        text, error = "the worker of the jobs ends: %s", first_error(group)
        logger.error(text, error, extra=coded(error))  # noqa: TRY400 - A sentence.
    # Here and now: a thread that waits for a disk must not keep the process.
    logging.shutdown()
    os._exit(code)


async def _work(channel: Channel, hello: dict[str, Any]) -> None:
    settings = settings_of_json(hello["settings"])
    # The agent writes to the same place.
    logs.set_up(level=settings.logs_level, form=settings.logs_format, worker=os.getpid())
    if hello["version"] != software_version():
        raise FrameError(
            f"the agent is version {hello['version']}, and what is installed is now"
            f" {software_version()}: restart the agent"
        )
    budget = hello["memory"]
    store = open_store(settings.store_url, store_options(settings), now_ms=now_ms)
    worker = Worker(
        channel,
        store=store,
        settings=settings,
        incarnation=Incarnation(hello["incarnation"]),
        jobs=JOBS,
        memory=WorkerMemory(None if budget is None else Budget(*budget)),
        orders=Orders(int(hello["rounds_in_ms"]), channel.last_archive),
        now_ms=now_ms,
    )
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_tell_status(channel, worker))
            tasks.create_task(_tell_last_archive(channel))
            tasks.create_task(worker.run())
    finally:
        await store.aclose()


async def _tell_last_archive(channel: Channel) -> None:
    await channel.last_archive.until_made()
    channel.last_archive_made()


async def _tell_status(channel: Channel, worker: Worker) -> None:
    frozen = False
    while True:
        stats = worker.stats
        channel.status(
            {
                "jobs": {kind.name: asdict(each) for kind, each in stats.jobs.items()},
                "archive": asdict(stats.archive),
                "memory_bytes": resident_bytes(),
                "position": stats.replica.applied_position,
            }
        )
        await asyncio.sleep(STATUS_S)
        if not frozen and worker.started:
            # What lives now lives for ever: the collector need not look at it again.
            frozen = True
            gc.collect()
            gc.freeze()


if __name__ == "__main__":
    sys.exit(main())
