"""Here the agents of a world are hot paths, and nothing else."""

import pytest

from tests.broker.agents import World
from tests.broker.produce.world import Agent


@pytest.fixture
def world() -> World:
    return World(Agent, "t")
