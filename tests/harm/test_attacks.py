"""Whatever one client does, the canary is served: soon, and without loss."""

import importlib
import pkgutil
from pathlib import Path

import pytest

from tests.harm import attacks
from tests.harm.scene import ATTACKS, verdict_of

pytestmark = [pytest.mark.integration, pytest.mark.alone]

P99_MS_MAX = 250

for module in pkgutil.iter_modules(attacks.__path__, f"{attacks.__name__}."):
    importlib.import_module(module.name)


@pytest.mark.real_loop
@pytest.mark.parametrize("name", ATTACKS)
async def test_a_canary_is_served_and_loses_nothing_beside(name: str, tmp_path: Path) -> None:
    declared = ATTACKS[name]
    verdict = await verdict_of(declared, tmp_path)
    assert verdict.alive, verdict.log[-4000:]
    assert not verdict.account.lost, verdict.account.lost
    assert verdict.account.ack_p99 < P99_MS_MAX, verdict.account
    assert verdict.account.read_p99 < P99_MS_MAX, verdict.account
    assert verdict.memory_most - verdict.memory_before < declared.memory_max
    assert "Traceback" not in verdict.log, verdict.log[-4000:]
