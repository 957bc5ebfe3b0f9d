"""Barrier: a head read that began after the call, shared by all who wait for it (P9)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from coordinator.barrier import Barrier
from coordinator.log.metadata_log import LogReplacedError, LogUnavailableError
from coordinator.stats import LogClientStats
from protocol.types import Position
from tests.coordinator.support import now_s

pytestmark = pytest.mark.schedules(5)


class _Log:
    """Its head is read when the call comes and answered a second later."""

    def __init__(self) -> None:
        self.newest = 1
        self.reads: list[float] = []
        self.failures = 0

    async def head(self) -> int:
        self.reads.append(now_s())
        head = self.newest
        await asyncio.sleep(1)
        if self.failures:
            self.failures -= 1
            raise LogUnavailableError("no answer")
        return head


class _Positions:
    """A replica that only knows which positions are waited for; it has applied up to `applied`."""

    def __init__(self, applied: int = 1 << 40) -> None:
        self.applied = applied
        self.waited: list[int] = []
        self.futures: list[asyncio.Future[None]] = []

    def wait_for(self, position: int) -> asyncio.Future[None]:
        self.waited.append(position)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if position <= self.applied:
            future.set_result(None)
        self.futures.append(future)
        return future


def boot_ms() -> int:
    return int(now_s() * 1000)


@contextlib.asynccontextmanager
async def barrier_on(
    log: _Log, positions: _Positions
) -> AsyncIterator[tuple[Barrier, asyncio.TaskGroup]]:
    """A barrier that runs, and a group for those who wait for it."""
    barrier = Barrier(
        log,
        wait_for=positions.wait_for,
        deadline_ms=5000,
        boot_ms=boot_ms,
        stats=LogClientStats(),
    )
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(barrier.run())
        yield barrier, tasks
        running.cancel()


@pytest.mark.promise("P9")
async def test_barrier_under_way_does_not_count_for_who_comes_later() -> None:
    log, positions = _Log(), _Positions()
    async with barrier_on(log, positions) as (barrier, tasks):
        first = tasks.create_task(barrier.wait())
        await asyncio.sleep(0.5)
        log.newest = 2  # Written before the second call, after the first read.
        await barrier.wait()
        assert first.done()
        assert positions.waited == [1, 2]
        assert log.reads[1] >= 0.5


@pytest.mark.promise("P9")
async def test_all_who_wait_share_the_next_read() -> None:
    log = _Log()
    async with barrier_on(log, _Positions()) as (barrier, tasks):
        waits = [tasks.create_task(barrier.wait())]
        await asyncio.sleep(0.1)
        waits += [tasks.create_task(barrier.wait()) for _ in range(50)]
        await asyncio.wait(waits)
        assert len(log.reads) == 2


@pytest.mark.promise("P9")
async def test_a_read_serves_who_had_come_before_it_was_sent_and_nobody_who_came_since() -> None:
    log = _Log()
    async with barrier_on(log, _Positions()) as (barrier, _):
        await asyncio.sleep(1)
        came_ms = boot_ms()
        await asyncio.sleep(0.5)
        sent_ms = boot_ms()
        await barrier.wait(came_ms)
        assert log.reads == [sent_ms / 1000]
        await barrier.wait(came_ms)
        await barrier.wait(sent_ms - 1)
        assert len(log.reads) == 1
        await barrier.wait(sent_ms)  # Nobody knows which of the two was first.
        await barrier.wait()
        assert len(log.reads) == 3


@pytest.mark.promise("P9")
async def test_a_read_serves_those_who_came_before_only_when_its_head_is_applied() -> None:
    log, positions = _Log(), _Positions(applied=0)
    async with barrier_on(log, positions) as (barrier, tasks):
        await asyncio.sleep(1)
        waits = [tasks.create_task(barrier.wait(0))]
        await asyncio.sleep(2)
        waits.append(tasks.create_task(barrier.wait(0)))
        await asyncio.sleep(2)
        assert not any(wait.done() for wait in waits)
        for future in positions.futures:
            future.set_result(None)
        await asyncio.wait(waits)


@pytest.mark.promise("P9")
async def test_barrier_ends_only_when_the_head_is_applied() -> None:
    log, positions = _Log(), _Positions(applied=0)
    async with barrier_on(log, positions) as (barrier, tasks):
        wait = tasks.create_task(barrier.wait())
        await asyncio.sleep(3)
        assert not wait.done()
        positions.futures[0].set_result(None)
        await wait


async def test_barrier_behind_an_unapplied_one_does_not_wait_for_its_read() -> None:
    log, positions = _Log(), _Positions(applied=0)
    async with barrier_on(log, positions) as (barrier, tasks):
        waits = [tasks.create_task(barrier.wait())]
        await asyncio.sleep(1.5)
        waits.append(tasks.create_task(barrier.wait()))
        await asyncio.sleep(1.5)
        assert len(log.reads) == 2
        for future in positions.futures:
            future.set_result(None)
        await asyncio.wait(waits)


async def test_read_without_answer_is_made_again_within_the_deadline() -> None:
    log = _Log()
    log.failures = 2
    async with barrier_on(log, _Positions()) as (barrier, _):
        await barrier.wait()
        assert len(log.reads) == 3


async def test_barrier_gives_up_at_its_deadline() -> None:
    log = _Log()
    log.failures = 100
    async with barrier_on(log, _Positions()) as (barrier, _):
        with pytest.raises(LogUnavailableError):
            await barrier.wait()
        assert 5 <= now_s() < 5.1


async def test_a_head_before_what_is_applied_is_that_of_another_log() -> None:
    log, stats = _Log(), LogClientStats()
    stats.applied_position = Position(7)
    log.newest = 6
    barrier = Barrier(
        log, wait_for=_Positions().wait_for, deadline_ms=5000, boot_ms=boot_ms, stats=stats
    )
    waiting = asyncio.ensure_future(barrier.wait())
    with pytest.raises(LogReplacedError, match="ends at position 6, before 7"):
        await barrier.run()
    assert not waiting.done()
    waiting.cancel()
