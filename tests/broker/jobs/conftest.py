"""Here a world is a machine, a store, and the jobs themselves."""

from collections.abc import Iterator

import pytest

from tests.broker.jobs.world import World


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()
