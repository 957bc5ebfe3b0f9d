"""Here a world is that of jobs, and a check reads what is in it."""

from collections.abc import Callable, Iterator

import pytest

from broker.check.check_report import Checked
from broker.check.checking import Check
from coordinator.machine.machine import Machine
from protocol.types import ERA
from storage.formats.cluster_identity import ClusterIdentity
from tests.broker.jobs.world import World


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


Checking = Callable[..., Checked]


@pytest.fixture
def checked(world: World) -> Checking:
    """A check of the world. `meanwhile` is done whenever the log's end is asked for again."""

    def check(
        *,
        deep: bool = False,
        meanwhile: Callable[[], object] = lambda: None,
        tell: Callable[[str], object] = lambda _line: None,
    ) -> Checked:
        asked: list[None] = []

        async def current() -> Machine:
            if asked:
                meanwhile()
            asked.append(None)
            return world.machine

        async def told(line: str) -> None:
            tell(line)

        checking = Check(
            world.store,
            ClusterIdentity("jobs", ERA),
            current,
            deep=deep,
            bytes_per_second=1e9,
            tell=told,
        )
        return world.runner.run(checking.run())

    return check
