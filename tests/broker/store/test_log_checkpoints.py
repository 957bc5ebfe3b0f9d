"""What the store is told of how far the log has got, when it does not always take it."""

import asyncio
import logging
from types import SimpleNamespace

import pytest

from broker.store.identity import ClusterMismatchError
from broker.store.log_checkpoints import LogCheckpoints
from protocol.types import Incarnation, Position, position
from storage.formats import log_checkpoint
from storage.formats.era_marker import era_key
from storage.stores.memory import MemoryStore
from storage.stores.object_store import StoreUnavailableError
from tests.kit.faults import FaultyStore, refused, slow


@pytest.mark.parametrize(
    "gate", [refused(StoreUnavailableError("away")), slow(1e6)], ids=["away", "hangs"]
)
async def test_a_checkpoint_that_the_store_did_not_take_is_put_when_it_does(gate, caplog) -> None:
    caplog.set_level(logging.WARNING)
    store = FaultyStore(MemoryStore())
    begun = []
    log_client = SimpleNamespace(
        machine=SimpleNamespace(position=Position(9)),
        on_incarnation=begun.append,
        on_applied=lambda _callback: None,
    )
    checkpoints = LogCheckpoints(store, log_client, cluster_id="c")

    async def positions() -> list[Position]:
        found = log_checkpoint.found_in(await store.list_after(log_checkpoint.FOLDER, ""))
        return [each.position for each in found]

    running = asyncio.ensure_future(checkpoints.run())
    store.before["put_new"] = gate
    for callback in begun:
        callback(Incarnation(5))
    await asyncio.sleep(200)
    assert await positions() == []
    store.before.clear()
    await asyncio.sleep(70)
    assert max(await positions()) == 9
    running.cancel()
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_an_agent_whose_era_is_over_hears_of_it_when_it_tells_how_far_the_log_is() -> None:
    store = MemoryStore()
    begun = []
    log_client = SimpleNamespace(
        machine=SimpleNamespace(position=position(1, 9)),
        on_incarnation=begun.append,
        on_applied=lambda _callback: None,
    )
    checkpoints = LogCheckpoints(store, log_client, cluster_id="c")
    await store.put_new(era_key(2), [b"how it began"])
    for callback in begun:
        callback(Incarnation(position(1, 5)))
    with pytest.raises(ClusterMismatchError, match="era 1 is over: eras/0002"):
        await checkpoints.run()


@pytest.mark.parametrize("failing", ["list_after", "delete"])
async def test_an_agent_whose_era_is_over_hears_of_it_though_the_store_failed_meanwhile(
    failing: str,
) -> None:
    store = FaultyStore(MemoryStore())
    begun = []
    log_client = SimpleNamespace(
        machine=SimpleNamespace(position=position(1, 9)),
        on_incarnation=begun.append,
        on_applied=lambda _callback: None,
    )
    checkpoints = LogCheckpoints(store, log_client, cluster_id="c")
    (begin,) = begun
    running = asyncio.ensure_future(checkpoints.run())
    begin(Incarnation(position(1, 5)))
    await asyncio.sleep(20)
    assert not running.done()
    await store.put_new(era_key(2), [b"how it began"])
    store.before[failing] = refused(StoreUnavailableError("away"))
    log_client.machine.position = position(1, 12)
    begin(Incarnation(position(1, 5)))
    await asyncio.sleep(60)
    store.before.clear()
    async with asyncio.timeout(60):
        with pytest.raises(ClusterMismatchError, match="era 1 is over: eras/0002"):
            await running
