"""Here the agents of a world are hot paths, and nothing else."""

import pytest

from tests.broker.produce.world import Agent
from tests.kit.agents import World


@pytest.fixture
def world() -> World:
    return World(Agent)
