"""A small overload: honest clients lose nothing but time, health says why, and it passes."""

from pathlib import Path

import pytest

from tests.harm.overload.load import Crowd
from tests.harm.overload.steps import SETTINGS, Run, agent_of, run

pytestmark = [pytest.mark.integration, pytest.mark.alone]

PRODUCERS = 300
RECOVERED_S_MAX = 10.0
SMALL = ("chunk.bytes=256KiB", "produce.buffer.bytes=1MiB")
"""Less than what all producers together have in flight."""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder: Path = tmp_path_factory.mktemp("overload")
    with agent_of("dev", folder, (*SETTINGS, *SMALL)) as agent:
        crowd = Crowd(
            port=agent.port,
            producers=PRODUCERS,
            addresses=["127.0.1.1", "127.0.1.2"],
            groups=20,
            readers=2,
            old_bytes=2 << 20,
            topics=10,
        )
        return run("dev", agent, crowd, ramp=(2000,), ladder=(1.0, 10.0), seconds=3.0)


def test_nothing_is_refused_and_nobody_is_cut_off_when_ten_times_too_much_is_offered(
    seen: Run,
) -> None:
    assert seen.steps[-1].offered > 1.2 * seen.steps[-1].served
    for step in seen.steps:
        assert not step.errors
        assert not step.canary.lost


def test_memory_stays_under_the_bound_that_the_agent_tells(seen: Run) -> None:
    assert seen.memory_bound is not None
    assert max(step.memory for step in seen.steps) < seen.memory_bound


def test_probes_are_answered_and_told_by_what_the_agent_is_overloaded(seen: Run) -> None:
    probes = seen.steps[-1].probes
    assert probes.count > 0
    assert not probes.failed
    assert "request_queue" in probes.overloaded


def test_all_is_as_before_within_ten_seconds_of_the_end_of_the_load(seen: Run) -> None:
    assert seen.recovered_s is not None, seen.recovery
    assert seen.recovered_s <= RECOVERED_S_MAX
