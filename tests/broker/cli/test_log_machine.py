"""What commands do while the log or the store is away: they say so, and end."""

import asyncio
import random
import time
from functools import partial

import pytest

from broker.cli import log_machine
from broker.cli.log_machine import AwayError, machine_of
from broker.store import identity
from coordinator.commands.job_commands import JobKind, RequestJob
from coordinator.log.metadata_log import LogRefusedError
from coordinator.machine.machine import Machine
from protocol.fault_codes import FaultCode, fault_of
from storage.stores.object_store import StoreRefusedError
from tests.kit.faults import FaultyLog, FaultyStore, refused
from tests.kit.sockets import Place, agent_of, settings_of

pytestmark = pytest.mark.real_loop

ETCD = "etcd://127.0.0.1:1/frazil"


async def place_with_log() -> Place:
    place = Place()
    await identity.check(
        place.store(), place.log(), settings_of().cluster_id, random.Random("a log")
    )
    return place


async def place_with_snapshot() -> Place:
    place = Place()
    async with agent_of(place) as running:
        await running.until(ready=True)
        await running.agent.node.log_client.propose(RequestJob(JobKind.SNAPSHOT))
        async with asyncio.timeout(30):
            while not place.cluster.published:
                await asyncio.sleep(0.02)
    return place


async def loaded(
    store: FaultyStore, log: FaultyLog, told: list[str], *, away_s_max: float = 0.5
) -> Machine:
    async with asyncio.timeout(20):  # Far more than what is waited.
        return await machine_of(
            store, log, settings_of(f"log={ETCD}"), tell=told.append, away_s_max=away_s_max
        )


@pytest.mark.parametrize("call", ["voids", "snapshots", "head", "tail"])
async def test_a_log_that_does_not_answer_is_told_of_and_then_ends_the_command(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_machine, "TOLD_AFTER_S", 0.2)
    place = await place_with_snapshot()
    log, told = place.log(), []
    if call == "tail":
        log.tail_gate.clear()
    else:
        log.before[call] = lambda *_: asyncio.sleep(3600)
    begun_s = time.monotonic()
    with pytest.raises(AwayError, match=f"{ETCD} let nothing be read for 1 s: no answer") as ended:
        await loaded(place.store(), log, told, away_s_max=1)
    assert 1 <= time.monotonic() - begun_s < 5
    assert ended.value.fault is FaultCode.ETCD_UNREACHABLE
    assert told[0].startswith(f"waiting for {ETCD}, 0 of 1 s: no answer")


async def test_what_the_log_says_in_place_of_an_answer_is_in_the_sentence() -> None:
    place = await place_with_log()
    log = place.log()
    log.before["voids"] = refused(LogRefusedError("no such user", fault=FaultCode.ETCD_REFUSED))
    with pytest.raises(AwayError, match="no such user") as ended:
        await loaded(place.store(), log, [])
    assert ended.value.fault is FaultCode.ETCD_REFUSED
    log.before.clear()
    log.down = True
    with pytest.raises(AwayError, match="it is away"):
        await loaded(place.store(), log, [])


async def test_a_store_that_refuses_parts_of_a_snapshot_for_ever_ends_the_command() -> None:
    place = await place_with_snapshot()
    store = place.store()

    async def refuse_parts(key: str, *_range: object) -> None:
        if key.startswith("snapshots/") and not key.endswith("manifest"):
            raise StoreRefusedError(f"{key} is denied", fault=FaultCode.STORE_DENIED)

    store.before["get"] = refuse_parts
    with pytest.raises(AwayError, match="is denied; check store") as ended:
        # Longer than until the snapshot is asked for again.
        await loaded(store, place.log(), [], away_s_max=3)
    assert ended.value.fault is FaultCode.STORE_DENIED


async def test_a_log_that_comes_back_is_read_on_and_time_that_went_by_before_does_not_count() -> (
    None
):
    place = await place_with_snapshot()
    store, log, told = place.store(), place.log(), []

    async def slow(*_arguments: object) -> None:
        await asyncio.sleep(0.4)

    for call in ("voids", "snapshots", "head", "tail"):
        log.before[call] = slow
    store.before["get"] = slow
    begun_s = time.monotonic()
    machine = await loaded(store, log, told, away_s_max=1)
    assert time.monotonic() - begun_s > 1.5
    assert machine.position == await log.inner.head()
    assert told == []


async def test_a_machine_that_takes_long_to_be_made_ends_no_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = await place_with_snapshot()
    apply = Machine.apply

    def slow(machine, position, entry):
        time.sleep(0.3)
        return apply(machine, position, entry)

    monkeypatch.setattr(Machine, "apply", slow)
    machine = await loaded(place.store(), place.log(), [], away_s_max=0.2)
    assert machine.position == await place.log().head()


async def test_a_log_of_another_life_is_not_ours() -> None:
    place, other = await place_with_log(), Place()
    check = partial(log_machine.check_is_ours, settings=settings_of())
    await check(place.store(), place.log())
    await identity.check(
        other.store(), other.log(), settings_of().cluster_id, random.Random("another")
    )
    with pytest.raises(identity.ClusterMismatchError, match="another metadata log") as refusal:
        await check(place.store(), other.log())
    assert fault_of(refusal.value) is FaultCode.OTHER_CLUSTER
    with pytest.raises(identity.ClusterMismatchError, match="belongs to nobody"):
        await check(Place().store(), place.log())
