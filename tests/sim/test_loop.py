"""The simulator's own floor: virtual time, drawn order, owners, and a network that keeps order."""

import asyncio
import random

import pytest

from tests.sim.loop import DeadlockError, run
from tests.sim.network import Network


def test_an_hour_of_waiting_passes_at_once_on_the_virtual_clock() -> None:
    async def main(loop, rng):
        await asyncio.sleep(3600)
        return loop.time()

    assert run(main, seed=1) == pytest.approx(3600)


def test_waiting_for_what_cannot_come_is_reported_as_a_deadlock() -> None:
    async def main(loop, rng):
        await loop.create_future()

    with pytest.raises(DeadlockError):
        run(main, seed=1)


def _lost_updates(seed: int) -> int:
    async def main(loop, rng):
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
    async def main(loop, rng):
        ticks = []

        async def tick() -> None:
            while True:
                await asyncio.sleep(1)
                ticks.append(loop.time())

        with loop.owned("a"):
            task = loop.create_task(tick())
        await asyncio.sleep(2.5)
        loop.pause("a")
        await asyncio.sleep(10)
        standing = len(ticks)
        loop.resume("a")
        await asyncio.sleep(2)
        task.cancel()
        return standing, len(ticks)

    standing, after = run(main, seed=3)
    assert standing == 2
    assert after > standing


def test_a_killed_owner_runs_nothing_more_not_even_its_finally() -> None:
    async def main(loop, rng):
        ran = []

        async def body() -> None:
            try:
                await asyncio.sleep(5)
            finally:
                ran.append("finally")

        with loop.owned("a"):
            loop.create_task(body())
        await asyncio.sleep(1)
        loop.kill("a")
        await asyncio.sleep(60)
        return list(ran)

    assert run(main, seed=3) == []


class _Collect(asyncio.Protocol):
    def __init__(self) -> None:
        self.data = b""
        self.lost = False

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


@pytest.mark.parametrize("seed", range(20))
def test_bytes_of_a_connection_arrive_in_order_and_whole(seed: int) -> None:
    async def main(loop, rng):
        Network(loop, rng)
        accepted: list[_Collect] = []

        def factory() -> _Collect:
            accepted.append(_Collect())
            return accepted[-1]

        with loop.owned("server"):
            await loop.create_server(factory, "a", 1)
        transport, _ = await loop.create_connection(asyncio.Protocol, "a", 1)
        sent = b""
        for index in range(30):
            piece = bytes([index]) * rng.randrange(1, 3000)
            transport.write(piece)
            sent += piece
        transport.close()
        await asyncio.sleep(60)
        return accepted[0].data == sent and accepted[0].lost

    assert run(main, seed=seed)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_held_back_arrives_after_its_sender_has_gone(seed: int) -> None:
    async def main(loop, rng):
        network = Network(loop, rng)
        accepted: list[_Collect] = []

        def factory() -> _Collect:
            accepted.append(_Collect())
            return accepted[-1]

        with loop.owned("server"):
            await loop.create_server(factory, "a", 1)
        transport, _ = await loop.create_connection(asyncio.Protocol, "a", 1)
        transport.write(b"before ")
        await asyncio.sleep(0.1)
        network.hold(transport.peer, 10.0)
        transport.write(b"held ")
        transport.write(b"back")
        transport.close()
        await asyncio.sleep(5)
        meanwhile = (accepted[0].data, accepted[0].lost)
        await asyncio.sleep(10)
        return meanwhile, (accepted[0].data, accepted[0].lost)

    assert run(main, seed=seed) == ((b"before ", False), (b"before held back", True))


def test_nobody_listening_refuses_the_connection() -> None:
    async def main(loop, rng):
        Network(loop, rng)
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(asyncio.Protocol, "a", 1)
        return True

    assert run(main, seed=random.Random(1).randrange(100))
