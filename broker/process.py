"""One agent as a process: the loop, the clocks, the signals, the memory allocator.

Everything below it would run as well in a simulator.
"""

import asyncio
import ctypes
import gc
import logging
import os
import secrets
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, NamedTuple, TypeVar

from broker import logs
from broker.agent import Agent, AgentError
from broker.calls.pauses import PauseClock
from broker.calls.rests import Rests
from broker.composition import Parts
from broker.config.settings import Loaded, Settings
from broker.doors import Reserved
from broker.environment import (
    boot_ms,
    ignore_hangups,
    loop_factory,
    loop_ns,
    now_ms,
    open_adapters,
    raise_descriptors,
    signals_to_leave,
    software_version,
)
from coordinator.log.metadata_log import MetadataLog
from storage.stores.object_store import ObjectStore

logger = logging.getLogger(__name__)

T = TypeVar("T")

MALLOC_TRIM_THRESHOLD = -1
MALLOC_TOP_PAD = -2
MALLOC_MMAP_THRESHOLD = -3
MALLOC_ARENA_MAX = -8
"""Numbers of glibc's <malloc.h>."""


class OneOfSeveral(NamedTuple):
    """What an agent is told that shares its machine, and ports, with others (`broker.workers`)."""

    name: str
    """For log lines."""
    own_ports: Mapping[str, int]
    """By Kafka listener."""
    beside: Callable[[Agent], Coroutine[Any, Any, None]]
    """Done as long as the agent lives."""


def host_name() -> str:
    return socket.gethostname()


async def nothing(_agent: Agent) -> None:
    """What is done before an agent is announced, most often."""


def run(
    loaded: Loaded,
    *,
    announce: Callable[[Agent], None],
    prepare: Callable[[Agent], Awaitable[None]] = nothing,
    reserved: Reserved | None = None,
    one_of: OneOfSeveral | None = None,
) -> int:
    """Run an agent until a signal ends it; the exit code.

    `reserved`: its ports, so far as they are ajar already. `announce` is called when clients are
    served, and `prepare` has ended, which may ask the agent for something and raise AgentError.
    SIGTERM, SIGINT and SIGHUP make it leave; a second one of the first two ends it at once, unless
    it is one of several, whose supervisor says so.
    Raises AgentError and ValueError, each with a sentence.
    """
    settings = loaded.settings
    worker = None if one_of is None else one_of.name
    logs.set_up(level=settings.logs_level, form=settings.logs_format, worker=worker)
    if loaded.warnings:
        logger.warning("settings that have no effect: %s", "; ".join(loaded.warnings))
    _tune_malloc()
    adapters = open_adapters(settings)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(
            _main(settings, adapters, prepare, announce, reserved=reserved, one_of=one_of)
        )


def run_once(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a loop like the agent's, quietly, for commands that look at something."""
    logs.set_up(level="error", form="text")
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(work)


async def _main(
    settings: Settings,
    adapters: tuple[ObjectStore, MetadataLog],
    prepare: Callable[[Agent], Awaitable[None]],
    announce: Callable[[Agent], None],
    *,
    reserved: Reserved | None,
    one_of: OneOfSeveral | None,
) -> int:
    store, log = adapters
    parts = Parts(
        store=store,
        log=log,
        now_ms=now_ms,
        boot_ms=PauseClock(wall_ms=now_ms, boot_ms=boot_ms),
        steady_ms=boot_ms,
        loop_ns=loop_ns,
        rng=secrets.SystemRandom(),  # Ids of members and sessions are drawn from it: nobody guesses the next.
        rests=Rests(boot_ms).look,
    )
    agent = Agent(
        settings,
        parts,
        host_name=host_name(),
        software_version=software_version(),
        descriptors=raise_descriptors(),
        reserved=reserved,
        own_ports=None if one_of is None else one_of.own_ports,
    )
    try:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(agent.run())
            _on_signals(agent, tasks, patient=one_of is not None)
            if one_of is not None:
                beside = tasks.create_task(one_of.beside(agent))
                running.add_done_callback(lambda _: beside.cancel())
            await agent.serving()
            if not running.done():
                await prepare(agent)
                announce(agent)
                # What lives now lives for ever: the collector need not look at it again, nor now,
                # which would keep clients waiting for a tenth of a second.
                gc.freeze()
    except BaseExceptionGroup as group:
        if isinstance(group.exceptions[0], AgentError):
            raise group.exceptions[0] from group
        raise
    finally:
        await store.aclose()
        await log.aclose()
    return 0


def _on_signals(agent: Agent, tasks: asyncio.TaskGroup, *, patient: bool) -> None:
    """`patient`: a service's SIGTERM reaches all its processes, and is said again by the supervisor."""
    loop = asyncio.get_running_loop()
    asked = False

    def leave(number: int) -> None:
        nonlocal asked
        if asked and patient:
            return
        if asked:
            os._exit(128 + number)
        asked = True
        ignore_hangups(loop)
        logger.info("%s: leaving", signal.Signals(number).name)
        tasks.create_task(agent.stop())

    for number in signals_to_leave():
        loop.add_signal_handler(number, leave, number)


def _tune_malloc() -> None:
    """Keep freed memory: giving it back and taking it again costs more than receiving the bytes.

    Only glibc has these; elsewhere nothing happens.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    if not mallopt(MALLOC_MMAP_THRESHOLD, 1 << 30):
        mallopt(MALLOC_MMAP_THRESHOLD, 32 << 20)  # All that older versions allow.
    mallopt(MALLOC_TRIM_THRESHOLD, (1 << 31) - 1)
    mallopt(MALLOC_TOP_PAD, 64 << 20)
    # Threads that read the disk have arenas of their own else, to which none of this applies.
    mallopt(MALLOC_ARENA_MAX, 1)
