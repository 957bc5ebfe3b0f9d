"""A seed over real processes: faults on their links, and a page that says that nothing is wrong."""

from pathlib import Path

import pytest

from tests.faults.drawn.plan import Stage, draw
from tests.faults.drawn.report import page
from tests.faults.drawn.run import run

pytestmark = [pytest.mark.integration, pytest.mark.alone]

SEED, SECONDS = 52, 6
STAGE = Stage(members=1)
"""One member begins sooner than three."""


def test_a_seed_is_run_and_nothing_is_wrong(tmp_path: Path) -> None:
    told: list[str] = []
    recorded = run(tmp_path, SEED, SECONDS, STAGE, told.append)
    assert recorded.wrong == []
    assert len(told) == len(draw(SEED, SECONDS, STAGE)) + 1
    assert recorded.counts["transactions committed"] > 0
    assert recorded.counts["records given to the group"] >= len(recorded.acks)
    assert "no anomaly" in page(recorded)
