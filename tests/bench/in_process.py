"""What a Produce request and a Fetch request cost an agent, without sockets, disks and other processes.

An agent of tests/kit over a store and a log in memory answers a client in the same process, on virtual
time; only CPU seconds of the thread are counted. Rounds are short, and the cheapest one of a kind counts, so
two checkouts can be told apart by less than a percent.

    PYTHONPATH=CHECKOUT python tests/bench/in_process.py [name=value of a quota of every user …]

prints microseconds a request: of 64 Produce requests of one batch of 16 KiB, of 64 of 1 KiB, of a Fetch of what is
new in 64 partitions, and of one partition. It imports nothing that a checkout of before may lack.
"""

import asyncio
import json
import struct
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from protocol import apis
from tests.kit import loop, requests
from tests.kit.agents import World
from tests.kit.batches import batch, produce_request

PARTITIONS, ROUNDS = 64, 40
FETCHES = 20


def answers(client: Any) -> int:
    """How many frames were written since the last look."""
    data = b"".join(client.transport.writes)
    client.transport.writes.clear()
    count = at = 0
    while at < len(data):
        (length,) = struct.unpack_from(">i", data, at)
        at += 4 + length
        count += 1
    return count


async def cost_us(client: Any, frames: Callable[[], Sequence[bytes]]) -> float:
    """The cheapest round's CPU for each request."""
    least = float("inf")
    for _ in range(ROUNDS):
        made = frames()
        missing = len(made)
        begun = time.thread_time_ns()
        for frame in made:
            client.feed(frame)
        while missing > 0:
            await asyncio.sleep(0.001)
            missing -= answers(client)
        least = min(least, (time.thread_time_ns() - begun) / len(made) / 1_000)
    return least


async def measured(quotas: dict[str, float]) -> dict[str, float]:
    world = World()
    found = {}
    async with world.agents("one") as (one,):
        if quotas:
            await _limit(one, quotas)
        client = one.connect()
        for size in (16_000, 1_000):
            topic = f"t{size}"
            await one.create_topic(topic, PARTITIONS)
            data = batch(bytes(size))

            def produces(topic: str = topic, data: bytes = data) -> list[bytes]:
                wanted = [produce_request(topic, data, partition=at) for at in range(PARTITIONS)]
                return [client.frame(apis.PRODUCE, 9, each) for each in wanted]

            found[f"produce {size}"] = await cost_us(client, produces)
            for count in (PARTITIONS, 1):
                places = {(topic, at): ROUNDS - 1 for at in range(count)}

                def fetches(places: dict[tuple[str, int], int] = places) -> list[bytes]:
                    wanted = requests.fetch(places, max_wait_ms=0, max_bytes=4 << 20)
                    return [client.frame(apis.FETCH, 12, wanted) for _ in range(FETCHES)]

                found[f"fetch {size} x {count}"] = await cost_us(client, fetches)
    return found


async def _limit(one: Any, quotas: dict[str, float]) -> None:
    # Not there in a checkout of before quotas.
    from coordinator.commands.config_commands import (
        AlterClientQuotas,
        EntityPart,
        EntityType,
        Quota,
        QuotaChange,
    )

    entity = (EntityPart(EntityType.USER, None),)
    changes = [QuotaChange(entity, Quota[name.upper()], value) for name, value in quotas.items()]
    await one.log_client.propose(AlterClientQuotas(tuple(changes)))


def main() -> None:
    quotas = {
        name: float(value) for name, _, value in (word.partition("=") for word in sys.argv[1:])
    }
    told: dict[str, float] = {}

    async def body() -> None:
        told.update(await measured(quotas))

    loop.run_test(body)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
