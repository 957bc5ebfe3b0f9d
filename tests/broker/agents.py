"""Agents that are further than the kit's: with a topic in a world, or on sockets and ready."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Any

from coordinator.commands.entries import Command
from tests.kit import agents as kit
from tests.kit.faults import lost
from tests.kit.sockets import Place, Running, agent_of

Propose = Callable[[Command], Any]


class World(kit.World):
    """As the kit's. `topic`: what a topic is called unless told."""

    def __init__(
        self, agent: type[kit.Agent] = kit.Agent, topic: str = "logs", *, embedded: bool = False
    ) -> None:
        super().__init__(agent, embedded=embedded)
        self.topic = topic

    @contextlib.asynccontextmanager
    async def with_topic(
        self,
        *names: str,
        partitions: int = 1,
        configs: dict[str, str] | None = None,
        **settings: str,
    ) -> AsyncGenerator[list[Any], None]:
        """Agents ("one" when none is named) that all know of a topic with these configs."""
        async with self.agents(*(names or ("one",)), **settings) as everybody:
            await everybody[0].create_topic(self.topic, partitions, **(configs or {}))
            for agent in everybody[1:]:
                await agent.log_client.barrier()
            yield everybody


async def lapse(agent: kit.Agent) -> None:
    """Renewals are lost, all else gets through: the lease lives on when its proof has ended."""
    agent.log.before["keep_alive"] = lost()
    while agent.log_client.incarnation() is not None:
        await asyncio.sleep(0.1)
    assert agent.world.cluster._leases, "the agent's own deadline counts"


def before_proposing(agent: kit.Agent, act: Callable[[Command, Propose], object]) -> None:
    """`act` gets each command of this agent before it is proposed, and a way to propose others."""
    propose = agent.log_client.propose

    def proposing(command: Command, *more: Any, **named: Any) -> Any:
        act(command, propose)
        return propose(command, *more, **named)

    agent.log_client.propose = proposing


@contextlib.asynccontextmanager
async def serving(
    place: Place | None = None, *flags: str, **ports: Any
) -> AsyncGenerator[Running, None]:
    """An agent on sockets, as `agent_of`, which is ready."""
    async with agent_of(place or Place(), *flags, **ports) as running:
        await running.until(ready=True)
        yield running
