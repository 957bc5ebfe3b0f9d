"""An agent's CPU for produce and fetch beside another agent's: two that take slices in turn.

What a machine does meanwhile slows both down, so the ratio of two slices is worth something, and the
median of many ratios more.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.bench import load
from tests.bench.cpu import cpu_seconds
from tests.parts.secured import Identity
from tests.parts.servers import FrazilDev

QUIET = ("--set", "jobs.enabled=false", "--set", "puts.per.second=1000")
WARM_BYTES = 400_000_000
FETCH_BYTES = 200_000_000
FETCHES = 8
"""In a slice: one takes a tenth of a second of CPU, too little to be told from what else goes on."""
PRODUCE_BYTES_MAX = 600_000_000


class Case(NamedTuple):
    batch_bytes: int
    partitions: int

    @property
    def topic(self) -> str:
        return f"rights-{self.batch_bytes}-{self.partitions}"

    @property
    def title(self) -> str:
        s = "s" if self.partitions > 1 else ""
        return f"{self.batch_bytes >> 10} KiB batches, {self.partitions} partition{s}"


CPU_CASES = (Case(16 << 10, 64), Case(1 << 10, 1))
"""Many topics' rights in one request would be asked for once each; these have one topic."""


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Of the median, at 95 % at least: order statistics, whatever the distribution."""
    ordered, count = sorted(ratios), len(ratios)
    outside, at = 0.0, 0
    while at < count // 2:
        outside += 2 * math.comb(count, at) / 2**count
        if outside > 0.05:
            break
        at += 1
    at = max(0, at - 1)
    return ordered[at], ordered[count - 1 - at]


Slice = Callable[[FrazilDev], load.Measured]


def pairs_of_slices(
    agents: tuple[FrazilDev, FrazilDev],
    *,
    prepare: Callable[[], None],
    pairs: int,
    seconds: float,
) -> list[str]:
    """Rows of the table: CPU of the first one by that of the second one. `prepare`: is called once the
    topics of a case are there."""
    rows = []
    for case in CPU_CASES:
        for agent in agents:
            load.create_topic(agent.port, case.topic, case.partitions)
        prepare()
        for agent in agents:
            produce(agent.port, case, seconds=2 * seconds, bytes_max=WARM_BYTES)
            fetch(agent.port, case)

        def produced(agent: FrazilDev, case: Case = case) -> load.Measured:
            return produce(agent.port, case, seconds=seconds, bytes_max=PRODUCE_BYTES_MAX)

        def fetched(agent: FrazilDev, case: Case = case) -> load.Measured:
            return fetch(agent.port, case)

        found: dict[str, list[tuple[float, float]]] = {"produce": [], "fetch": []}
        for number in range(pairs):
            turns = agents if number % 2 == 0 else agents[::-1]
            for name, run, times in (("produce", produced, 1), ("fetch", fetched, FETCHES)):
                took = {agent: _cpu_per_gb(agent, run, times) for agent in turns}
                found[name].append((took[agents[0]], took[agents[1]]))
        for name, both in found.items():
            rows.append(_row(f"{name}, {case.title}", both))
            print(rows[-1], flush=True)
    return rows


def _row(title: str, both: Sequence[tuple[float, float]]) -> str:
    ratios = [one / other for one, other in both]
    low, high = interval(ratios)
    one, other = (statistics.median(each) for each in zip(*both, strict=True))
    return (
        f"| {title} | {one:.2f} / {other:.2f} | **{statistics.median(ratios):.3f}** |"
        f" {low:.3f} to {high:.3f} |"
    )


def _cpu_per_gb(agent: FrazilDev, run: Slice, times: int) -> float:
    before = cpu_seconds(agent.child.pid)
    taken = sum(run(agent).bytes for _ in range(times))
    return (cpu_seconds(agent.child.pid) - before) / (taken / 1e9)


def produce(
    port: int, case: Case, *, seconds: float, bytes_max: int, who: Identity | None = None
) -> load.Measured:
    return load.produce(
        port,
        case.topic,
        partitions=case.partitions,
        batch_bytes=case.batch_bytes,
        seconds=seconds,
        bytes_max=bytes_max,
        who=who,
    )


def fetch(port: int, case: Case, who: Identity | None = None) -> load.Measured:
    return load.fetch(
        port,
        case.topic,
        partitions=case.partitions,
        bytes_max=FETCH_BYTES,
        newest=True,
        who=who,
    )
