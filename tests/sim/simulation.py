"""A run of a world: faults while clients work, then fine weather until everything is settled."""

import asyncio
import contextlib
import inspect
import logging
from collections import Counter
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from typing import Any
from unittest.mock import patch

from typing_extensions import override

from broker.jobs import worker as job_worker
from broker.jobs.kinds import spill_plan
from tests.sim.nemesis import Nemesis
from tests.sim.world import SETTLE_S, Worker, World


async def simulate(world: World, *, brief: bool = False) -> list[str]:
    """One run. The violations found; none is a pass. `brief`: those at the end of the faults are enough."""
    logging.getLogger().setLevel(logging.CRITICAL)
    # Pages are for hundreds of rows; no run lasts so long.
    with patch.multiple(spill_plan, PAGE_ROWS_MIN=4, ROWS_LEFT=2), _heard() as bugs:
        found = await _simulate(world, brief=brief)
    return [*dict.fromkeys([*found, *bugs, *world.failures(), *world.violations])]


async def _simulate(world: World, *, brief: bool) -> list[str]:
    loop = world.loop
    for life in world.lives:
        world.start(life)
    try:
        async with asyncio.timeout(SETTLE_S):
            await world.make_topics()
    except TimeoutError:
        return ["no topic could be created in fine weather"]
    workers = [each for each in world.workers() if _is_wanted(world, each)]
    working = [loop.create_task(each.run(), name=each.name) for each in workers]
    watching = [loop.create_task(each) for each in _wanted(world, world.watchers())]
    if world.shape.jobs:
        watching.append(loop.create_task(world.watch_archive()))
    harm = [loop.create_task(each) for each in _wanted(world, world.harm())]
    nemesis = Nemesis(world)
    harm.append(loop.create_task(nemesis.run()))
    await asyncio.sleep(world.until_s)
    found = ended(harm)
    if brief and (found or world.violations):
        return found
    nemesis.take_back()
    world.stop(workers)
    found += await finish(working)
    found += await world.settle()
    if world.shape.jobs:
        found += await world.archive_left()
    return found + ended(watching)


def _is_wanted(world: World, worker: Worker) -> bool:
    if not worker.is_spare:
        return True
    world.clients.append(worker.name)
    return worker.name not in world.cut.without


def _wanted(world: World, running: Iterable[Coroutine[Any, Any, None]]) -> Iterator[Any]:
    """Without those that are left out. Workers have names, others that of what they run, and a number."""
    counts: Counter[str] = Counter()
    for each in running:
        me = inspect.getcoroutinelocals(each).get("self")
        what = me.name if isinstance(me, Worker) else str(getattr(each, "__name__", "")).strip("_")
        counts[what] += 1
        name = f"{what}.{counts[what]}"
        world.clients.append(name)
        if name in world.cut.without:
            each.close()
        else:
            yield each


async def finish(working: Sequence[asyncio.Task[None]]) -> list[str]:
    """Liveness: in fine weather all of them come to their end."""
    if not working:
        return []
    _, stuck = await asyncio.wait(working, timeout=SETTLE_S)
    return [
        f"{task.get_name()} is not done {SETTLE_S:g} s after the faults" for task in stuck
    ] + _failed(working)


def ended(tasks: Sequence[asyncio.Task[None]]) -> list[str]:
    """Ends them; what failed before."""
    for task in tasks:
        task.cancel()
    return _failed(tasks)


def _failed(tasks: Iterable[asyncio.Task[None]]) -> list[str]:
    ended = [task for task in tasks if task.done() and not task.cancelled()]
    return [f"{task.get_name()} failed: {task.exception()!r}" for task in ended if task.exception()]


@contextlib.contextmanager
def _heard() -> Iterator[list[str]]:
    """Rounds of jobs, and archives, that failed by a bug: a worker only says so, and goes on."""
    bugs: list[str] = []
    logger = logging.getLogger(job_worker.__name__)

    class Hearing(logging.Handler):
        @override
        def emit(self, record: logging.LogRecord) -> None:
            error = record.exc_info[1] if record.exc_info else None
            bugs.append(f"{record.getMessage()}: {error!r}")

    handler, level, propagate = Hearing(logging.ERROR), logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        yield bugs
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
