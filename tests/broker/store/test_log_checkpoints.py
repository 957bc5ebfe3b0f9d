"""What the store is told of how far the log has got, when it does not always take it."""

import asyncio
import logging
from types import SimpleNamespace

import pytest

from broker.store.log_checkpoints import LogCheckpoints
from protocol.types import Incarnation, Position
from storage.formats import log_checkpoint
from storage.stores.memory import MemoryStore
from storage.stores.object_store import StoreUnavailableError
from tests.storage.build import run_virtual

ME = Incarnation(5)


class Away(MemoryStore):
    """Takes nothing while it is away, without an answer if it hangs."""

    away = False
    hangs = False

    async def put_new(self, key, parts):
        if self.hangs:
            await asyncio.sleep(1e6)
        if self.away:
            raise StoreUnavailableError("away")
        await super().put_new(key, parts)


class Told:
    """The checkpoints of an agent whose log goes on as told."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        log_client = SimpleNamespace(
            machine=SimpleNamespace(position=Position(9)),
            on_incarnation=self._take_incarnation,
            on_applied=lambda _callback: None,
        )
        self.checkpoints = LogCheckpoints(store, log_client, cluster_id="c")  # type: ignore[arg-type]

    def _take_incarnation(self, callback):
        self.begin = lambda: callback(ME)

    async def newest(self) -> int:
        found = log_checkpoint.found_in(await self.store.list_after(log_checkpoint.FOLDER, ""))
        return max((each.position for each in found), default=0)


@pytest.mark.parametrize("fault", ["away", "hangs"])
def test_a_checkpoint_that_the_store_did_not_take_is_put_when_it_does(fault, caplog) -> None:
    caplog.set_level(logging.WARNING)

    async def test() -> None:
        store = Away()
        told = Told(store)
        running = asyncio.ensure_future(told.checkpoints.run())
        setattr(store, fault, True)
        told.begin()
        await asyncio.sleep(200)
        assert await told.newest() == 0
        setattr(store, fault, False)
        await asyncio.sleep(70)
        assert await told.newest() == 9
        running.cancel()

    run_virtual(test)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
