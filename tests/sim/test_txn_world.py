"""The end of a run of transactions: what agents show is compared when nothing moves any more."""

import random
from typing import Any

import pytest

from tests.kit.loop import current
from tests.sim.txn_account import KEYS
from tests.sim.txn_world import TxnWorld


@pytest.mark.parametrize("moves_after", [1, 2, 3])
async def test_logs_are_read_again_until_no_end_has_moved_meanwhile(
    moves_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = TxnWorld(current(), random.Random(1))
    del world.lives[1:]
    asked = 0
    read: list[int] = []

    async def until_stable(_life: object) -> dict[tuple[str, int], int]:
        nonlocal asked
        asked += 1
        return dict.fromkeys(KEYS, min(asked, moves_after))

    async def read_all(_life: object, ends: dict[tuple[str, int], int], **_: Any) -> Any:
        read.append(ends[KEYS[0]])
        return read[-1]

    monkeypatch.setattr(world, "_until_stable", until_stable)
    monkeypatch.setattr(world, "_read_all", read_all)
    seen: list[Any] = await world.read_until_still()
    assert seen == [moves_after]
