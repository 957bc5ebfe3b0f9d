"""Whose store and whose log: nobody writes into the wrong place."""

import json
import random
from collections.abc import Sequence

import pytest

from broker.store import identity
from broker.store.identity import LIFE_KEY, ClusterMismatchError, LogIdentity
from coordinator.log.memory import MemoryLog
from protocol.fault_codes import FaultCode
from protocol.types import Buffer, Position, era_of
from storage.formats import cluster_identity
from storage.formats.era_marker import EraMarker, encode_era
from storage.stores.memory import MemoryStore
from storage.stores.object_store import StoreRefusedError
from tests.kit.sockets import Place

pytestmark = pytest.mark.real_loop

OURS = "ours"
SECOND = EraMarker("ours", 2, "0123456789abcdef", "fedcba9876543210", Position(7), "00" * 16, 1_000)


async def check(place: Place, *, who: str = OURS, seed: int = 1) -> None:
    await identity.check(place.store(), place.log(), who, random.Random(seed))


async def append_something(place: Place) -> None:
    log = MemoryLog(place.cluster)
    await log.open(await log.grant(10_000), b"entry")


async def test_empty_places_are_claimed_and_then_ours() -> None:
    place = Place()
    await check(place, seed=1)
    await append_something(place)
    await check(place, seed=2)


class Replacing(MemoryStore):
    """A server that passes over If-None-Match."""

    async def put_new(self, key: str, parts: Sequence[Buffer]) -> None:
        await self.delete([key])
        await super().put_new(key, parts)


async def test_a_store_that_replaces_what_is_there_is_refused_at_every_start() -> None:
    place = Place()
    place.objects = Replacing()
    for seed in (1, 2):
        with pytest.raises(StoreRefusedError, match="passes over If-None-Match"):
            await check(place, seed=seed)


async def test_identities_are_written_and_read_as_ever() -> None:
    in_log = b'{"cluster_id": "ours", "era": 1, "format_version": 1, "life": "0123456789abcdef"}'
    in_store = b'{"life": "0123456789abcdef"}\n'
    place = Place()
    await MemoryLog(place.cluster).identify(in_log)
    await check(place)
    assert bytes(await place.objects.get(LIFE_KEY)) == in_store
    fresh = Place()
    await check(fresh)
    written = await MemoryLog(fresh.cluster).identify(b"")
    life = json.loads(written)["life"]
    assert written == in_log.replace(b"0123456789abcdef", life.encode())


async def test_a_log_of_another_cluster_is_refused_with_both_names() -> None:
    place = Place()
    await check(place, who="theirs")
    fresh = Place()
    fresh.cluster = place.cluster
    with pytest.raises(ClusterMismatchError, match=r"'theirs'.*'ours'") as refused:
        await check(fresh)
    assert refused.value.fault is FaultCode.OTHER_CLUSTER


async def recovered(place: Place) -> None:
    """What a recovery leaves, of a log that is lost."""
    log = MemoryLog(place.cluster)
    ours = identity.encode_log_identity(LogIdentity("ours", 2, SECOND.life))
    await log.begin_era(2, ours, snapshots=b"one", instead_of=await log.identity())
    await place.objects.put_new(SECOND.key, [encode_era(SECOND)])


async def test_a_recovered_cluster_is_found_in_its_era() -> None:
    place = Place()
    await check(place)
    await recovered(place)
    log = place.log()
    assert await identity.check(place.store(), log, OURS, random.Random(2)) == SECOND.origin
    assert era_of(await log.head()) == 2


async def test_a_log_of_an_era_that_is_over_is_refused_with_both() -> None:
    place, older = Place(), Place()
    await check(place)
    older.objects = place.objects
    await check(older)
    await recovered(place)
    with pytest.raises(ClusterMismatchError, match=r"era 1.*era 2") as refused:
        await check(older)
    assert refused.value.fault is FaultCode.OTHER_CLUSTER


async def test_an_empty_log_is_refused_by_a_recovered_store_and_stays_empty() -> None:
    place, fresh = Place(), Place()
    await check(place)
    await recovered(place)
    fresh.objects = place.objects
    with pytest.raises(ClusterMismatchError, match=r"is empty.*frazil recover"):
        await check(fresh)
    assert await MemoryLog(fresh.cluster).identity() == b""


async def test_a_copy_of_the_store_from_before_the_recovery_is_refused_by_the_recovered_log() -> (
    None
):
    place, copied = Place(), Place()
    await check(place)
    for key in ("cluster.json", LIFE_KEY):
        await copied.objects.put_new(key, [await place.objects.get(key)])
    await recovered(place)
    copied.cluster = place.cluster
    with pytest.raises(ClusterMismatchError, match=r"era 2.*era 1.*a copy from before"):
        await check(copied)
    with pytest.raises(ClusterMismatchError, match=r"era 2.*era 1.*a copy from before"):
        await identity.look(copied.store(), copied.log(), OURS)


async def test_who_only_looks_finds_what_is_refused_and_claims_nothing() -> None:
    place, other = Place(), Place()
    await identity.look(place.store(), place.log(), OURS)
    assert await MemoryLog(place.cluster).identity() == b""
    assert not await place.objects.list_after("", "")
    await check(place)
    await identity.look(place.store(), place.log(), OURS)
    with pytest.raises(ClusterMismatchError, match="belongs to cluster 'ours'"):
        await identity.look(place.store(), place.log(), "theirs")
    await check(other, seed=2)
    with pytest.raises(ClusterMismatchError, match="belongs to another metadata log"):
        await identity.look(place.store(), other.log(), OURS)
    await recovered(place)
    await identity.look(place.store(), place.log(), OURS)
    with pytest.raises(ClusterMismatchError, match=r"era 1.*era 2"):
        await identity.look(place.store(), other.log(), OURS)


async def test_a_new_log_of_the_same_name_is_refused_by_the_store_of_the_old_one() -> None:
    old = Place()
    await check(old, seed=1)
    new = Place()
    new.objects = old.objects
    with pytest.raises(ClusterMismatchError, match="belongs to another metadata log") as refused:
        await check(new, seed=2)
    assert refused.value.fault is FaultCode.OTHER_CLUSTER


async def test_an_empty_store_is_refused_by_a_log_that_has_entries() -> None:
    place = Place()
    await check(place)
    await append_something(place)
    elsewhere = Place()
    elsewhere.cluster = place.cluster
    with pytest.raises(ClusterMismatchError, match="is it the right bucket") as refused:
        await check(elsewhere)
    assert refused.value.fault is FaultCode.OTHER_CLUSTER
    assert await cluster_identity.read_identity(elsewhere.objects) is None


async def test_a_crash_between_the_claims_is_made_good_by_the_next_start() -> None:
    place = Place()
    await check(place, seed=1)
    await place.objects.delete([LIFE_KEY])
    await check(place, seed=2)
    await place.objects.delete([LIFE_KEY, cluster_identity.KEY])
    await check(place, seed=3)


@pytest.mark.parametrize("written", [b"garbage", b"{}", b"[1]"])
async def test_a_log_that_says_nothing_readable_is_refused(written: bytes) -> None:
    place = Place()
    await MemoryLog(place.cluster).identify(written)
    with pytest.raises(ClusterMismatchError, match="nothing readable") as refused:
        await check(place)
    assert refused.value.fault is FaultCode.OTHER_CLUSTER


async def test_a_log_of_a_newer_format_is_refused() -> None:
    place = Place()
    newer = b'{"cluster_id": "ours", "era": 1, "format_version": 2, "life": "00"}'
    await MemoryLog(place.cluster).identify(newer)
    with pytest.raises(ClusterMismatchError, match="use a newer release") as refused:
        await check(place)
    assert refused.value.fault is FaultCode.VERSION_MISMATCH
