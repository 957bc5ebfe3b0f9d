"""What befalls agents besides weather: drawn beforehand from a seed, then done, then taken back.

Each harm has a name, "kill3", and a stream of its own (`tests.kit.chances`), so that one that is left
out changes nothing of the others: not when they come, nor whom they hit.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from typing_extensions import override

from broker.store.truncation import SNAPSHOTS
from coordinator.commands.entries import Tick
from tests.kit.chances import Chances
from tests.kit.faults import Weather
from tests.sim.world import Life, World

LEAVES_S = 2.0
"""How long an agent takes that leaves in peace; it may take longer, and the next harm waits."""
LEAVES_S_MAX = 20.0
GOES_ON_S = 0.02
AWAY_S_MAX = 25.0
"""So long that the log is cut meanwhile, where there are jobs."""
OUTAGE_S = 15.0
"""Longer than a snapshot is asked for at a time."""


@dataclass(frozen=True)
class Harm:
    """One thing that happens to one agent, or to all."""

    name: str
    kind: str
    at_s: float
    """Since the faults began."""
    target: int
    seconds: float = 0.0
    """How long it lasts."""
    amount: float = 0.0
    """A share, or the milliseconds of a clock."""

    @override
    def __str__(self) -> str:
        agent, lasting = f"agent{self.target}", f"for {self.seconds:g} s"
        match self.kind:
            case "kill":
                told = f"{agent} is killed, and started again {self.seconds:g} s later"
            case "outage":
                told = f"{agent} is killed and started again, and its store is away {lasting} from its first look at a snapshot on"
            case "leave":
                told = f"{agent} leaves in peace, and comes back"
            case "pause":
                told = f"{agent} stands still {lasting}"
            case "halt":
                told = f"the machine of {agent} stands still {lasting}, its boot-time clock as well"
            case "expire":
                told = f"{self.amount:.0%} of all sessions expire"
            case "store-away" | "log-away":
                told = f"{agent} gets no answer from its {self.kind.partition('-')[0]} {lasting}"
            case "break":
                told = f"{self.amount:.0%} of all connections break"
            case _:
                told = f"the wall clock of {agent} is {self.amount / 1000:+g} s off from now on"
        return told


def plan(
    chances: Chances,
    kinds: Sequence[str],
    *,
    agents: int,
    until_s: float,
    leaves: bool = False,
    jobs: bool = False,
) -> Iterator[Harm]:
    """One after the other, with rests; the same for the same seed. `jobs`: there are snapshots."""
    at_s, number = 0.0, 0
    while kinds:
        number += 1
        rng = chances.stream(f"harm.{number}")
        at_s += rng.uniform(0.5, 8.0)
        target, kind = rng.randrange(agents), rng.choice(kinds)
        seconds = amount = 0.0
        match kind:
            case "kill" if leaves and rng.random() < 0.5:
                kind, seconds = "leave", LEAVES_S
            case "kill":
                seconds = rng.choice((0.1, 2.0, 12.0))
                if jobs and rng.random() < 0.2:
                    kind, seconds = "outage", OUTAGE_S
            case "pause":
                kind = "halt" if rng.random() < 0.3 else kind
                seconds = rng.choice((0.3, 3.0, 12.0))
            case "expire":
                amount = 0.5
            case "away":
                kind, seconds = rng.choice(("store-away", "log-away")), rng.choice((1.0, 5.0, 15.0))
                if kind == "log-away" and rng.random() < 0.2:
                    seconds = AWAY_S_MAX
            case "break":
                amount = rng.choice((0.2, 1.0))
            case "skew":
                amount = rng.choice((-86_400_000, -1000, 0, 1000, 86_400_000))
            case _:
                raise AssertionError(kind)
        if at_s >= until_s:
            return
        yield Harm(f"{kind}{number}", kind, at_s, target, seconds, amount)
        at_s += seconds


class Nemesis:
    """Does what is planned until it is stopped, then takes it all back."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chances = world.chances
        self.planned: list[Harm] = [
            *plan(
                world.chances,
                sorted(world.shape.kinds),
                agents=world.shape.agents,
                until_s=world.faults_s,
                leaves=world.leaves,
                jobs=world.shape.jobs,
            )
        ]
        world.told = {harm.name: str(harm) for harm in self.planned}

    async def run(self) -> None:
        self._begin_weather()
        began_s = self._world.loop.time()
        for harm in self.planned:
            await asyncio.sleep(began_s + harm.at_s - self._world.loop.time())
            if harm.target >= len(self._world.lives):
                continue
            life = self._world.lives[harm.target]
            if life.agent is not None and self._chances.allows(harm.name):
                await self._harm(harm, life)

    def _begin_weather(self) -> None:
        for life in self._world.lives:
            for what, weather in (("store", life.store_weather), ("log", life.log_weather)):
                rng = self._chances.stream(f"{life.name}.{what}")
                weather.__dict__.update(Weather.drawn(rng).__dict__)

    async def _harm(self, harm: Harm, life: Life) -> None:
        world, rng = self._world, self._chances.stream(harm.name)
        match harm.kind:
            case "leave":
                await self._leave(life)
            case "kill":
                world.kill(life)
                await asyncio.sleep(harm.seconds)
                world.start(life)
            case "outage":
                world.kill(life)
                life.store_weather.away_from = SNAPSHOTS
                world.start(life)
                await asyncio.sleep(harm.seconds)
                life.store_weather.away, life.store_weather.away_from = False, ""
            case "pause" | "halt":
                world.loop.pause(life.owner)
                await asyncio.sleep(harm.seconds)
                if harm.kind == "halt":
                    # The machine was paused, not the process: its boot-time clock stood still.
                    life.stood_still_ms += int(harm.seconds * 1000)
                world.loop.resume(life.owner)
            case "expire":
                for session in list(world.log._leases):
                    if rng.random() < harm.amount:
                        world.revoked.add(session)
                        world.log.expire(session)
            case "store-away" | "log-away":
                weather = life.store_weather if harm.kind == "store-away" else life.log_weather
                weather.away = True
                await asyncio.sleep(harm.seconds)
                weather.away = False
            case "break":
                world.network.break_some(harm.amount, rng)
            case "skew":
                life.skew_ms = int(harm.amount)
            case _:
                raise AssertionError(harm)

    async def _leave(self, life: Life) -> None:
        agent, task, life.agent = life.agent, life.task, None
        assert agent is not None
        assert task is not None
        with self._world.loop.owned(life.owner):
            stopping = self._world.loop.create_task(agent.stop())
        over_s = self._world.loop.time() + LEAVES_S_MAX
        while not (task.done() and stopping.done()) and self._world.loop.time() < over_s:
            # Somebody in it goes on as ever, until it is refused.
            for node in [node for owner, node in self._world.nodes if owner == life.owner]:
                _ = node.log_client.propose(Tick())
            await asyncio.wait([task, stopping], timeout=GOES_ON_S)
        self._world.start_again(life)

    def take_back(self) -> None:
        world = self._world
        for life in world.lives:
            world.loop.resume(life.owner)
            life.store_weather.clear()
            life.log_weather.clear()
            if life.agent is None:  # Or it is still leaving, of which nobody waits for the end.
                world.start_again(life)
        world.network.let_all_go()
