"""Agents with groups, and what the members of fake groups (`tests.broker.groups.fake`) ask."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from typing import TypeVar

from coordinator.commands.group_commands import GROUP_SHARDS
from coordinator.tables.groups import shard_of
from protocol import apis
from protocol.messages import JoinGroupRequest
from tests.broker.groups import requests
from tests.broker.groups.fake import KINDS, FakeGroup
from tests.kit.agents import Agent, World
from tests.kit.client import Client

__all__ = ["Agent", "FakeGroup", "Member", "World"]

T = TypeVar("T")


def world_of_fakes() -> World:
    """The groups of its agents are fakes, so that only the shell is looked at."""
    world = World()
    FakeGroup.made.clear()
    world.factory = KINDS
    return world


@asynccontextmanager
async def alone(**changes: str) -> AsyncGenerator[Agent, None]:
    """The one agent of a world, which holds all shards; groups are fakes."""
    async with world_of_fakes().agents("one", **changes) as (one,):
        await until_held(one)
        yield one


@asynccontextmanager
async def agents(*names: str, **told: str) -> AsyncGenerator[list[Agent], None]:
    """Agents ("one" when none is named) with a topic "logs" of four partitions; each of them has
    its shards of groups, and knows."""
    async with World().agents(*(names or ("one",)), **told) as everybody:
        await everybody[0].create_topic("logs", 4)
        await until_held(*everybody)
        async with asyncio.timeout(60):
            while not all(agent.node.groups.claims.served for agent in everybody):
                await asyncio.sleep(0.1)
        for agent in everybody:
            await agent.log_client.barrier()
        yield everybody


async def until_held(*agents: Agent) -> None:
    """Every shard has a live holder, as each of these agents sees it."""
    for agent in agents:
        groups = agent.machine.groups
        async with asyncio.timeout(60):
            while any(groups.holder(shard) is None for shard in range(GROUP_SHARDS)):
                await asyncio.sleep(0.01)


def group_of(agent: Agent, prefix: str = "g") -> str:
    """A group id that the agent coordinates."""
    groups, session = agent.machine.groups, agent.log_client.incarnation()
    names = (f"{prefix}{number}" for number in range(10_000))
    return next(name for name in names if groups.holder(shard_of(name)) == session)


def holder_of(group_id: str, *agents: Agent) -> Agent | None:
    """Which of the agents serves the group now."""
    serving = [agent for agent in agents if agent.node.groups.runtime.serves(group_id)]
    assert len(serving) <= 1, "two agents coordinate one group"
    return serving[0] if serving else None


async def until_served(group_id: str, *agents: Agent, seconds: float = 30.0) -> Agent:
    async with asyncio.timeout(seconds):
        while (agent := holder_of(group_id, *agents)) is None:
            await asyncio.sleep(0.01)
    return agent


async def answer_of_the_lagging(agent: Agent, asking: Awaitable[T]) -> T:
    """What an agent that lags answers, which is nothing until it has caught up."""
    asked = asyncio.ensure_future(asking)
    await asyncio.sleep(1)
    assert not asked.done()
    agent.catch_up()
    return await asked


def commands_of(agent: Agent, *kinds: type) -> list:
    """The commands of these kinds that are applied from now on."""
    seen: list = []

    def note(applied) -> None:
        seen.extend(each for each in applied.entry.commands if isinstance(each, kinds))

    agent.log_client.on_applied(note)
    return seen


def join_request(
    group_id: str, what: str, member_id: str = "", session_ms: int = requests.SESSION_MS
) -> JoinGroupRequest:
    return requests.join(
        group_id, member_id, session_ms=session_ms, protocol_type=what, protocols=()
    )


class Member:
    """A member of a fake group, on a connection of its own."""

    def __init__(self, agent: Agent, group_id: str, member_id: str = "", generation: int = -1):
        self.group_id = group_id
        self.member_id = member_id
        self.generation = generation
        self.peer: Client = agent.connect()

    def send_join(self, what: str, session_ms: int = requests.SESSION_MS) -> None:
        request = join_request(self.group_id, what, self.member_id, session_ms)
        self.peer.send(apis.JOIN_GROUP, 5, request)

    async def join(self, what: str = "write", session_ms: int = requests.SESSION_MS) -> int:
        """The error code; takes over what the answer gives."""
        self.send_join(what, session_ms)
        return await self.joined()

    async def joined(self) -> int:
        answer = await self.peer.answer()
        if answer.error_code == 0:
            self.member_id = answer.member_id
            self.generation = answer.generation_id
        return answer.error_code

    async def heartbeat(self) -> int:
        request = requests.heartbeat(self.group_id, self.member_id, self.generation)
        return (await self.peer.call(apis.HEARTBEAT, 4, request)).error_code

    async def sync(self) -> int:
        request = requests.sync(self.group_id, self.member_id, self.generation)
        return (await self.peer.call(apis.SYNC_GROUP, 4, request)).error_code

    async def leave(self) -> int:
        request = requests.leave(self.group_id, self.member_id)
        return (await self.peer.call(apis.LEAVE_GROUP, 5, request)).error_code

    def at(self, agent: Agent) -> "Member":
        """The same member, connected to another agent."""
        return Member(agent, self.group_id, self.member_id, self.generation)
