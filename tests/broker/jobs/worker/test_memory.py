"""The budget that a worker keeps itself: what it asks before, what it notices, and what it says."""

import asyncio
from pathlib import Path

import pytest

from broker.jobs.worker.budget import NEAR_BYTES, SNAPSHOT_COPIES, Budget, Limit, MiB
from broker.jobs.worker.memory import WorkerMemory, WorkerMemoryError, resident_bytes
from protocol.fault_codes import FaultCode, fault_of

KEY = "snapshots/0000000000000007/manifest"
RESIDENT = 80 * MiB


class Process:
    """What it has resident is what a test says."""

    def __init__(self, budget: int | None) -> None:
        self.resident = RESIDENT
        given = None if budget is None else Budget(budget, "by jobs.memory.bytes")
        self.limit = Limit(1 << 60, 0, "a limit")
        self.memory = WorkerMemory(
            given, resident=lambda: self.resident, limits=lambda: [self.limit]
        )


def with_room_for(length: int) -> Process:
    return Process(RESIDENT + NEAR_BYTES + length)


def test_a_snapshot_that_fits_with_all_that_is_made_of_it_may_be_loaded() -> None:
    with_room_for(SNAPSHOT_COPIES * 10 * MiB).memory.load(KEY, 10 * MiB)


def test_one_that_does_not_is_refused_before_it_is_read_with_all_the_numbers() -> None:
    memory = with_room_for(SNAPSHOT_COPIES * 10 * MiB - 1).memory
    with pytest.raises(WorkerMemoryError) as refused:
        memory.load(KEY, 10 * MiB)
    assert str(refused.value) == (
        "the worker of the jobs takes 80 MiB of memory, and needs 30 MiB more for loading"
        f" {KEY}, of a snapshot of 10 MiB; it may take 134 MiB (by jobs.memory.bytes), of which 24 MiB"
        " are kept free: raise jobs.memory.bytes, or the memory limit of the agent"
    )
    assert fault_of(refused.value) is FaultCode.MEMORY_SHORT


def test_a_snapshot_that_is_read_once_more_needs_its_own_bytes() -> None:
    memory = with_room_for(10 * MiB).memory
    memory.read(KEY, 10 * MiB)
    with pytest.raises(WorkerMemoryError, match="11 MiB more"):
        memory.read(KEY, 10 * MiB + 1)


def test_a_dump_needs_as_much_as_the_newest_snapshot_had() -> None:
    process = with_room_for(30 * MiB)
    process.memory.dump()
    process.memory.load(KEY, 10 * MiB)
    process.resident += 20 * MiB
    process.memory.dump()
    process.resident += 1
    with pytest.raises(WorkerMemoryError, match="for writing the machine down"):
        process.memory.dump()


@pytest.mark.schedules(3)
async def test_what_grows_is_noticed_before_the_budget_is_used_up_and_said_with_what_was_done() -> (
    None
):
    process = with_room_for(100 * MiB)
    process.memory.load(KEY, 10 * MiB)
    watching = asyncio.ensure_future(process.memory.run())
    await asyncio.sleep(100)
    assert not watching.done()
    process.resident += 100 * MiB
    await asyncio.sleep(100)
    assert not watching.done()
    process.resident += 1
    with pytest.raises(WorkerMemoryError, match=f"takes 181 MiB of memory while loading {KEY}"):
        await watching


@pytest.mark.schedules(3)
async def test_when_the_agent_grows_so_that_their_limit_is_near_it_is_the_worker_that_gives_up() -> (
    None
):
    process = with_room_for(1000 * MiB)
    process.limit = Limit(500 * MiB, 500 * MiB - NEAR_BYTES, "the cgroup's limit of 500 MiB")
    watching = asyncio.ensure_future(process.memory.run())
    await asyncio.sleep(100)
    assert not watching.done()
    process.limit = process.limit._replace(used=process.limit.used + 1)
    with pytest.raises(
        WorkerMemoryError, match="all together have 477 MiB of the cgroup's limit of 500 MiB, of"
    ):
        await watching
    with pytest.raises(WorkerMemoryError, match="needs 1 MiB more"):
        process.memory.read(KEY, 1)


@pytest.mark.schedules(3)
async def test_without_a_budget_everything_has_room() -> None:
    process = Process(None)
    process.resident = 1 << 50
    process.memory.load(KEY, 1 << 50)
    process.memory.read(KEY, 1 << 50)
    process.memory.dump()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(100):
            await process.memory.run()


def test_what_this_process_has_resident_is_known_where_the_system_says_it() -> None:
    before = resident_bytes()
    taken = bytearray(b"x" * (64 * MiB))
    grown = resident_bytes() - before
    assert grown >= len(taken) // 2 if Path("/proc/self/statm").exists() else grown == 0
