"""A run of groups: members of both protocols, agents that die in the middle of everything.

The cluster, its weather and its faults are those of `tests.sim.world`; instead of records there
are members. After the faults every group must become stable within a bound: all members that are
left agree, and every partition belongs to exactly one of them.
"""

import asyncio
import logging
import random
from dataclasses import dataclass

from broker.node import Node
from tests.kit.faults import Weather
from tests.kit.loop import SimLoop
from tests.sim.group_account import GroupAccount
from tests.sim.group_members import ClassicMember, ConsumerMember, Member
from tests.sim.workload import until_topic
from tests.sim.world import SETTLE_S, Nemesis, Shape, World

FAULTS_S = 60.0
STABLE_S = 150.0
"""Leases, session and rebalance time-outs, one after the other, and then some."""


@dataclass
class Group:
    """One group of a run."""

    account: GroupAccount
    kinds: tuple[type[Member], ...]
    """What its members are drawn from; both: the group changes its protocol now and then."""
    static: bool
    members: list[Member]
    tasks: dict[Member, asyncio.Task]
    made: int = 0


async def simulate_groups(loop: SimLoop, rng: random.Random) -> list[str]:
    """One run. The violations found; none is a pass."""
    logging.getLogger().setLevel(logging.CRITICAL)
    world = World(loop, rng, _shape(rng))
    groups = _groups(rng)
    world.watch = lambda node: _watch(node, groups)
    for life in world.lives:
        world.start(life)
    try:
        async with asyncio.timeout(SETTLE_S):
            await until_topic(world.client("setup"), world.addresses, world.shape.partitions)
    except TimeoutError:
        return [*world.failures(), "no topic could be created in fine weather"]
    for group in groups:
        for _ in range(rng.choice((1, 2, 3))):
            _add(world, group)
    for life in world.lives:
        life.store_weather.__dict__.update(Weather.drawn(rng).__dict__)
        life.log_weather.__dict__.update(Weather.drawn(rng).__dict__)
    nemesis = Nemesis(world)
    harm = [loop.create_task(nemesis.run()), loop.create_task(_come_and_go(world, groups))]
    await asyncio.sleep(FAULTS_S)
    for task in harm:
        task.cancel()
    nemesis.take_back()
    world.network.let_all_go()
    found: list[str] = []
    for group in groups:
        for member in group.members:
            member.calm = True
        found += await _until_stable(world, group)
    for group in groups:
        found += [
            f"{m.name}: {task.exception()!r}" for m, task in group.tasks.items() if _failed(task)
        ]
        found += group.account.violations
        for task in group.tasks.values():
            task.cancel()
    return [*found, *world.failures(), *world.account.violations]


def _shape(rng: random.Random) -> Shape:
    shape = Shape.drawn(rng)
    shape.agents = rng.choice((1, 2, 3, 3))
    shape.partitions = rng.choice((2, 4, 5))
    shape.settings = {
        "kafka.group.initial.rebalance.delay.ms": rng.choice(("0", "1000")),
        "kafka.group.consumer.min.session.timeout.ms": "6000",
        "kafka.group.consumer.session.timeout.ms": "6000",
        "kafka.group.consumer.min.heartbeat.interval.ms": "1000",
        "kafka.group.consumer.heartbeat.interval.ms": "1000",
        "kafka.group.consumer.assignors": rng.choice(("uniform", "range", "uniform,range")),
    }
    return shape


def _groups(rng: random.Random) -> list[Group]:
    kinds = ((ClassicMember,), (ConsumerMember,), (ClassicMember, ConsumerMember))
    return [
        Group(GroupAccount(f"g{index}"), rng.choice(kinds), rng.random() < 0.3, [], {})
        for index in range(rng.choice((1, 2)))
    ]


def _watch(node: Node, groups: list[Group]) -> None:
    for group in groups:
        node.log_client.on_applied(group.account.applied)


def _add(world: World, group: Group) -> None:
    rng = random.Random(world.rng.getrandbits(64))
    group.made += 1
    name = f"{group.account.group_id}.m{group.made}"
    instance_id = None
    if group.static:
        taken = {member.instance_id for member in group.members}
        instance_id = next(f"i{i}" for i in range(10) if f"i{i}" not in taken)
    member = rng.choice(group.kinds)(
        world.client(name),
        world.addresses,
        group.account,
        rng,
        partitions=world.shape.partitions,
        instance_id=instance_id,
    )
    group.members.append(member)
    group.tasks[member] = world.loop.create_task(member.run(), name=name)


async def _come_and_go(world: World, groups: list[Group]) -> None:
    """Members join, leave, crash."""
    rng = random.Random(world.rng.getrandbits(64))
    while True:
        await asyncio.sleep(rng.uniform(1.0, 12.0))
        group = rng.choice(groups)
        match rng.choice(("add", "leave", "crash")):
            case "add" if len(group.members) < 5:
                _add(world, group)
            case "leave" if len(group.members) > 1:
                member = group.members.pop(rng.randrange(len(group.members)))
                member.stopping = True
            case "crash" if len(group.members) > 1:
                member = group.members.pop(rng.randrange(len(group.members)))
                group.tasks.pop(member).cancel()
                member.crash()
                member.client.close()
            case _:
                pass


async def _until_stable(world: World, group: Group) -> list[str]:
    """Liveness: everybody is content, and every partition is somebody's."""
    deadline_s = world.loop.time() + STABLE_S
    while world.loop.time() < deadline_s:
        owned = sorted(partition for member in group.members for partition in member.owned)
        if all(member.settled for member in group.members) and owned == list(
            range(world.shape.partitions)
        ):
            return []
        await asyncio.sleep(1.0)
    states = [(m.name, m.member_id, m.epoch, sorted(m.owned), m.settled) for m in group.members]
    return [f"{group.account.group_id} is not stable {STABLE_S:g} s after the faults: {states}"]


def _failed(task: asyncio.Task) -> bool:
    return task.done() and not task.cancelled() and task.exception() is not None
