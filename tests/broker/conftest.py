"""Fixtures of the tests of an agent."""

import pytest

from tests.broker.agents import World


@pytest.fixture
def world() -> World:
    """A log and a store in memory; its agents are whole but for sockets."""
    return World()
