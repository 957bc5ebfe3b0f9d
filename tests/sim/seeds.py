"""What a seed is a run of, and many seeds on all cores.

The rest of a seed by five says which kind of world it is: of records, of groups, of transactions,
of topics that lose records, or of tables. A seed gives the same run wherever and after whatever it is run.
"""

import gc
import multiprocessing
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from dataclasses import dataclass

from broker.cli.main import COLLECTED_AFTER
from tests.kit.loop import DeadlockError, LivelockError, SimLoop, run
from tests.sim.bounded_world import BoundedWorld
from tests.sim.cut import WHOLE, Cut
from tests.sim.group_world import GroupWorld
from tests.sim.records_world import RecordsWorld
from tests.sim.shrink import SECONDS_MAX, Observed, Shrinking
from tests.sim.simulation import simulate
from tests.sim.tables_world import TablesWorld
from tests.sim.txn_world import TxnWorld
from tests.sim.world import World

KINDS: tuple[type[World], ...] = (RecordsWorld, GroupWorld, TxnWorld, BoundedWorld, TablesWorld)
NAMES = ("records", "groups", "transactions", "bounded", "tables")
"""Of the kinds, on command lines."""
STEPS_MAX = 1_000_000
"""Of a run; the longest take a tenth of that."""


def observe(
    seed: int, kind: type[World] | None = None, cut: Cut = WHOLE, *, brief: bool = False
) -> Observed:
    """One run, of the seed's own kind unless told. `brief`: it may end when it has gone wrong."""
    kind = kind or KINDS[seed % len(KINDS)]
    worlds: list[World] = []

    async def main(loop: SimLoop, rng: random.Random) -> list[str]:
        worlds.append(kind(loop, rng, cut))
        loop.steps_max = STEPS_MAX
        return await simulate(worlds[0], brief=brief)

    try:
        found = run(main, seed=seed)
    except DeadlockError as error:
        found = [f"deadlock: {error}"]
    except LivelockError as error:
        found = [f"livelock: {error}"]
    (world,) = worlds
    times = {"steps": world.loop.steps, "virtual_ms": int(world.loop.time() * 1000)}
    return Observed(
        violations=found,
        happened=world.chances.happened,
        told=world.told,
        clients=world.clients,
        agents=cut.agents_of(world.shape.agents),
        until_s=world.until_s,
        counts={**world.counts, **world.chances.noted, **times},
    )


def violations(
    seed: int, kind: type[World] | None = None, counts: Counter[str] | None = None
) -> list[str]:
    """What a run violated; none is a pass. `counts` gets what happened how often."""
    seen = observe(seed, kind)
    if counts is not None:
        counts.update(seen.counts)
    return list(seen.violations)


def shrunk(seed: int, kind: type[World] | None = None, *, tell: Callable[[str], None]) -> Shrinking:
    """The run of a seed that fails, made as short as may be in some minutes."""
    over_s = time.monotonic() + SECONDS_MAX
    shrinking = Shrinking(
        lambda cut: observe(seed, kind, cut),
        observe(seed, kind),
        is_over=lambda: time.monotonic() > over_s,
        tell=tell,
    )
    shrinking.shrink()
    return shrinking


def violations_of(seeds: Iterable[int], counts: Counter[str] | None = None) -> dict[int, list[str]]:
    """Of those seeds that have any. `counts` gets what happened how often in all."""
    found = {seed: violations(seed, counts=counts) for seed in seeds}
    return {seed: some for seed, some in found.items() if some}


@dataclass(frozen=True)
class Block:
    """Some seeds that were run."""

    seeds: int
    failed: dict[int, list[str]]
    counts: Counter[str]
    cpu_s: float


def _run_block(seeds: list[int]) -> Block:
    counts: Counter[str] = Counter()
    begun = time.process_time()
    failed = violations_of(seeds, counts)
    return Block(len(seeds), failed, counts, time.process_time() - begun)


def cores() -> int:
    """That this process may have; macOS does not tell which."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def pool() -> Executor:
    """A process for each core; they begin afresh, so nothing of this one is in them."""
    return ProcessPoolExecutor(
        cores(), mp_context=multiprocessing.get_context("spawn"), initializer=_collect_seldom
    )


def _collect_seldom() -> None:
    """As an agent does: of a run's CPU, looking for garbage took a fifteenth, to find hardly any."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)


def run_all(seeds: Iterable[int], at_a_time: int) -> Iterator[Block]:
    """On all cores: what came of them, as it comes."""
    seeds = list(seeds)
    blocks = [seeds[at : at + at_a_time] for at in range(0, len(seeds), at_a_time)]
    with pool() as workers:
        for future in as_completed([workers.submit(_run_block, block) for block in blocks]):
            yield future.result()
