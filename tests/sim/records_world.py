"""A run of records: producers, idempotent and plain, and readers, some of them in zones."""

import asyncio
import random
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from typing_extensions import override

from tests.kit.agents import NOW_MS
from tests.kit.loop import SimLoop
from tests.kit.requests import EARLIEST, LATEST, Partition
from tests.sim.account import Shown
from tests.sim.cut import WHOLE, Cut
from tests.sim.workload import (
    OF_2020_MS,
    TOPIC,
    ZONES,
    Asker,
    Producer,
    Reader,
    RecordsCluster,
)
from tests.sim.world import SETTLE_S, Life, Shape, Worker

HALF_A_DAY_MS = 43_200_000
LONG_AGO_MS = 1_000 * 365 * HALF_A_DAY_MS


class RecordsWorld(RecordsCluster):
    """Has one topic, from which nothing goes. Other worlds of records have other topics and loads."""

    def __init__(self, loop: SimLoop, rng: random.Random, cut: Cut = WHOLE) -> None:
        super().__init__(loop, rng, cut)
        self._large = 0.05 if self.draw("large").random() < 0.25 else 0.0
        """Of the batches, how many are opened away from an agent's loop."""

    @override
    def drawn_shape(self) -> Shape:
        shape = super().drawn_shape()
        if self.rng.random() < 0.5:
            shape.zones = tuple(self.rng.choice(ZONES) for _ in range(shape.agents))
        if self.draw("puts in flight").random() < 0.33:
            shape.settings["puts.in.flight"] = "1"
        return shape

    @override
    async def make_topics(self) -> None:
        self.account.dense = {TOPIC}
        # Where a clock is a day ahead, records are old by that one and by no other.
        kept_ms = -1 if self.is_in_time else NOW_MS - OF_2020_MS + HALF_A_DAY_MS
        self.account.retention_ms[TOPIC] = kept_ms
        config = {"retention.ms": str(kept_ms)}
        if self._large:  # So their records are looked at.
            config["message.timestamp.before.max.ms"] = str(LONG_AGO_MS)
        await self.client("setup").create_topics({TOPIC: self.shape.partitions}, config)

    @override
    def workers(self) -> Sequence[Worker]:
        plain = 2 if self.draw("plain").random() < 0.33 else 4
        return [
            Producer(
                self,
                f"producer{index}",
                (TOPIC, index % self.shape.partitions),
                idempotent=index % plain != plain - 1,
                pauses_s=(0.0, 0.01, 0.3),
                in_flight=self.rng.choice((1, 3, 5)),
                large=self._large,
            )
            for index in range(self.shape.producers)
        ]

    @override
    def watchers(self) -> Iterable[Coroutine[Any, Any, None]]:
        for index in range(self.shape.readers):
            rack = self.rng.choice(("", *ZONES))
            yield Reader(self, f"reader{index}", self.partitions(), rack).run()
        yield Asker(self, "asker").run()

    @override
    async def settle(self) -> list[str]:
        """Every agent shows the whole log, and the same."""
        found = []
        if not self.account.places:
            found.append("nothing was acknowledged in the whole run")
        final = {}
        for life in self.lives:
            try:
                async with asyncio.timeout(SETTLE_S):
                    final[life.name] = await self._read_all(life)
            except TimeoutError:
                found.append(f"{life.name} did not show the whole log in {SETTLE_S:g} s")
        return [*found, *self.account.verdict(final)]

    async def _read_all(self, life: Life) -> dict[Partition, Shown]:
        """Everything that one agent has, from log start to end."""
        reader = Reader(self, f"final{life.index}", self.partitions())
        ends: dict[Partition, int] = {}
        for partition in self.partitions():
            for timestamp, told in ((LATEST, ends), (EARLIEST, reader.offsets)):
                while (offset := await reader.limit(partition, timestamp, life.address)) is None:
                    await asyncio.sleep(0.3)
                told[partition] = offset
        starts = dict(reader.offsets)
        await reader.read_to(ends, life.address)
        return {p: Shown(starts[p], ends[p], reader.lines[p]) for p in ends}
