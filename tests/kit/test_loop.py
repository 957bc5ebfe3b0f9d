"""Virtual time, drawn order, and owners."""

import asyncio
import random

import pytest

from tests.kit.loop import DeadlockError, SimLoop, run


def test_an_hour_of_waiting_passes_at_once_on_the_virtual_clock() -> None:
    async def main(loop: SimLoop, rng: random.Random) -> float:
        await asyncio.sleep(3600)
        return loop.time()

    assert run(main, seed=1) == pytest.approx(3600)


def test_waiting_for_what_cannot_come_is_reported_as_a_deadlock() -> None:
    async def main(loop: SimLoop, rng: random.Random) -> None:
        await loop.create_future()

    with pytest.raises(DeadlockError):
        run(main, seed=1)


def test_a_timer_that_was_cancelled_neither_fires_nor_moves_the_clock() -> None:
    fired: list[str] = []

    async def main(loop: SimLoop, rng: random.Random) -> None:
        loop.call_later(5, fired.append, "early").cancel()
        loop.call_later(9, fired.append, "kept")
        loop.call_later(20, fired.append, "late").cancel()
        await loop.create_future()

    with pytest.raises(DeadlockError, match=r"at 9\.000 s"):
        run(main, seed=1)
    assert fired == ["kept"]


def test_timers_that_fall_due_together_run_in_an_order_that_the_seed_draws() -> None:
    async def main(loop: SimLoop, rng: random.Random) -> tuple[int, ...]:
        fired: list[int] = []
        for number in range(4):
            loop.call_at(5.0, fired.append, number)
        await asyncio.sleep(6)
        return tuple(fired)

    orders = {run(main, seed=seed) for seed in range(300)}
    assert len(orders) == 24


def _lost_updates(seed: int) -> int:
    async def main(loop: SimLoop, rng: random.Random) -> int:
        count = 0

        async def worker() -> None:
            nonlocal count
            for _ in range(3):
                seen = count
                await asyncio.sleep(0)
                count = seen + 1

        async with asyncio.TaskGroup() as tasks:
            for _ in range(4):
                tasks.create_task(worker())
        return count

    return run(main, seed=seed)


def test_the_seed_draws_the_order_so_that_races_show() -> None:
    assert len({_lost_updates(seed) for seed in range(50)}) > 3


def test_the_same_seed_gives_the_same_run() -> None:
    assert [_lost_updates(7) for _ in range(5)] == [_lost_updates(7)] * 5


def test_a_paused_owner_stands_still_until_it_is_resumed() -> None:
    async def main(loop: SimLoop, rng: random.Random) -> tuple[int, int]:
        ticks: list[float] = []

        async def tick() -> None:
            while True:
                await asyncio.sleep(1)
                ticks.append(loop.time())

        with loop.owned("a"):
            task = loop.create_task(tick())
        await asyncio.sleep(2.5)
        loop.pause("a")
        await asyncio.sleep(10)
        txn_metadata = len(ticks)
        loop.resume("a")
        await asyncio.sleep(2)
        task.cancel()
        return txn_metadata, len(ticks)

    txn_metadata, after = run(main, seed=3)
    assert txn_metadata == 2
    assert after > txn_metadata


def test_a_killed_owner_runs_nothing_more_not_even_its_finally() -> None:
    async def main(loop: SimLoop, rng: random.Random) -> list[str]:
        ran: list[str] = []

        async def body() -> None:
            try:
                await asyncio.sleep(5)
            finally:
                ran.append("finally")

        with loop.owned("a"):
            task = loop.create_task(body())
        await asyncio.sleep(1)
        loop.kill("a")
        await asyncio.sleep(60)
        assert not task.done()
        return list(ran)

    assert run(main, seed=3) == []
