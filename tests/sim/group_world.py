"""A run of groups: members of both protocols, agents that die in the middle of everything.

Instead of records there are members. After the faults every group must become stable within a
bound: all members that are left agree, and every partition belongs to exactly one of them.
"""

import asyncio
import random
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import override

from broker.node import Node
from tests.kit.loop import SimLoop
from tests.sim.cut import WHOLE, Cut
from tests.sim.group_account import GroupAccount
from tests.sim.group_members import ClassicMember, ConsumerMember, Member
from tests.sim.simulation import ended
from tests.sim.workload import TOPIC
from tests.sim.world import Shape, Worker, World

KINDS: tuple[tuple[type[Member], ...], ...] = (
    (ClassicMember,),
    (ConsumerMember,),
    (ClassicMember, ConsumerMember),
)
STABLE_S = 150.0
"""Leases, session and rebalance time-outs, one after the other, and then some."""


@dataclass
class Group:
    """One group of a run."""

    account: GroupAccount
    kinds: tuple[type[Member], ...]
    """What its members are drawn from; both: the group changes its protocol now and then."""
    static: bool
    members: list[Member] = field(default_factory=list)
    tasks: dict[Member, asyncio.Task[None]] = field(default_factory=dict)
    made: int = 0


class GroupWorld(World):
    faults_s = 60.0

    def __init__(self, loop: SimLoop, rng: random.Random, cut: Cut = WHOLE) -> None:
        super().__init__(loop, rng, cut)
        self.groups = [
            Group(
                GroupAccount(self.violations, self.counts, f"g{index}"),
                rng.choice(KINDS),
                rng.random() < 0.3,
            )
            for index in range(rng.choice((1, 2)))
        ]

    @override
    def drawn_shape(self) -> Shape:
        shape, choice = super().drawn_shape(), self.rng.choice
        shape.partitions = choice((2, 4, 5))
        shape.settings = {
            "kafka.group.initial.rebalance.delay.ms": choice(("0", "1000")),
            "kafka.group.consumer.min.session.timeout.ms": "6000",
            "kafka.group.consumer.session.timeout.ms": "6000",
            "kafka.group.consumer.min.heartbeat.interval.ms": "1000",
            "kafka.group.consumer.heartbeat.interval.ms": "1000",
            "kafka.group.consumer.assignors": choice(("uniform", "range", "uniform,range")),
        }
        return shape

    @override
    async def make_topics(self) -> None:
        await self.client("setup").create_topics({TOPIC: self.shape.partitions})

    @override
    def watch(self, owner: str, node: Node) -> None:
        for group in self.groups:
            node.log_client.on_applied(group.account.applied)

    @override
    def harm(self) -> Iterable[Coroutine[Any, Any, None]]:
        for group in self.groups:
            for _ in range(self.rng.choice((1, 2, 3))):
                self._add(group)
        yield self._come_and_go()

    def _add(self, group: Group) -> None:
        group.made += 1
        name = f"{group.account.group_id}.m{group.made}"
        instance_id = None
        if group.static:
            taken = {member.instance_id for member in group.members}
            instance_id = next(f"i{i}" for i in range(10) if f"i{i}" not in taken)
        kind = self.rng.choice(group.kinds)
        partitions = self.shape.partitions
        member = kind(self, name, group.account, partitions=partitions, instance_id=instance_id)
        group.members.append(member)
        group.tasks[member] = self.loop.create_task(member.run(), name=name)

    async def _come_and_go(self) -> None:
        """Members join, leave, crash."""
        rng = self.draw("come and go")
        while True:
            await asyncio.sleep(rng.uniform(1.0, 12.0))
            group = rng.choice(self.groups)
            match rng.choice(("add", "leave", "crash")):
                case "add" if len(group.members) < 5:
                    self._add(group)
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

    @override
    def stop(self, workers: Sequence[Worker]) -> None:
        for group in self.groups:
            for member in group.members:
                member.calm = True

    @override
    async def settle(self) -> list[str]:
        found = [each for group in self.groups for each in await self._until_stable(group)]
        tasks = [task for group in self.groups for task in group.tasks.values()]
        return found + ended(tasks)

    async def _until_stable(self, group: Group) -> list[str]:
        """Liveness: everybody is content, and every partition is somebody's."""
        deadline_s = self.loop.time() + STABLE_S
        while self.loop.time() < deadline_s:
            owned = sorted(partition for member in group.members for partition in member.owned)
            if all(member.settled for member in group.members) and owned == list(
                range(self.shape.partitions)
            ):
                return []
            await asyncio.sleep(1.0)
        states = [(m.name, m.member_id, m.epoch, sorted(m.owned), m.settled) for m in group.members]
        return [f"{group.account.group_id} is not stable {STABLE_S:g} s after the faults: {states}"]
