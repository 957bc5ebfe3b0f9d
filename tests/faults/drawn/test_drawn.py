"""A seed over real processes: faults on their links, and a page that says that nothing is wrong."""

from pathlib import Path

import pytest

from tests.faults.drawn.plan import draw
from tests.faults.drawn.report import page
from tests.faults.drawn.run import run, stage_here

pytestmark = [pytest.mark.integration, pytest.mark.alone]

SEED, SECONDS = 88, 6
"""A clock that is two hours behind, a link to etcd that is cut, a disk that is full."""


def test_a_seed_is_run_and_nothing_is_wrong(tmp_path: Path) -> None:
    told: list[str] = []
    # One member begins sooner than three.
    stage = stage_here(members=1)
    recorded = run(tmp_path, SEED, SECONDS, stage, told.append)
    assert recorded.wrong == []
    assert len(told) == len(draw(SEED, SECONDS, stage)) + 1
    assert recorded.counts["transactions committed"] > 0
    assert recorded.counts["records given to the group"] >= len(recorded.acks)
    assert "no anomaly" in page(recorded)
