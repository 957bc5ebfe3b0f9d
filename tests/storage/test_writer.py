"""Putting a chunk: repeated under one name with one content, until it is durable or too late."""

import asyncio
import random
from collections.abc import Sequence

import pytest

from protocol.types import POSITION_ZERO, Buffer
from storage.stores.memory import MemoryStore
from storage.stores.object_store import (
    ObjectExistsError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
)
from storage.writer import RETRY, Writer
from tests.storage.build import CHUNK, CLUSTER, batch, closed, object_of

MADE = closed([(0, 1, batch()), (1, 2, batch(2))])


class Flaky(MemoryStore):
    """Fails as told, in turn: an error to raise, None for success, "hang", "lost" (after)."""

    def __init__(self, faults: Sequence[StoreError | str | None]) -> None:
        super().__init__()
        self.faults = list(faults)
        self.calls: list[tuple[str, bytes]] = []

    async def put_new(self, key: str, parts: Sequence[Buffer]) -> None:
        self.calls.append((key, b"".join(parts)))
        fault = self.faults.pop(0) if self.faults else None
        if isinstance(fault, StoreError):
            raise fault
        if fault == "hang":
            await asyncio.sleep(3600)
        await super().put_new(key, parts)
        if fault == "lost":
            raise StoreUnavailableError("the answer was lost")


async def put(store: MemoryStore, *, deadline: float = 30.0, seed: int = 1) -> Writer:
    """Put MADE; the writer, for its stats."""
    writer = Writer(store, cluster_id=CLUSTER, rng=random.Random(seed))
    begun = asyncio.get_running_loop().time()
    await writer.put(CHUNK, MADE, reached=POSITION_ZERO, deadline=begun + deadline)
    return writer


AWAY = StoreUnavailableError("the store is away")


async def test_chunk_is_put_under_its_name_with_header_data_and_index() -> None:
    store = Flaky([])
    writer = await put(store)
    assert store.calls == [(CHUNK.key, object_of(MADE))]
    assert (writer.stats.puts, writer.stats.put_bytes) == (1, MADE.length)


async def test_attempts_repeat_the_same_name_and_the_same_bytes() -> None:
    store = Flaky([AWAY, AWAY, AWAY])
    writer = await put(store)
    assert store.calls == [(CHUNK.key, object_of(MADE))] * 4
    assert writer.stats.retries == 3


async def test_lost_answer_is_settled_by_the_next_attempt() -> None:
    store = Flaky(["lost", "lost"])
    await put(store)
    assert len(store.calls) == 3


async def test_attempt_that_hangs_is_given_up_and_made_anew() -> None:
    store = Flaky(["hang", None])
    writer = await put(store)
    assert len(store.calls) == 2
    assert writer.stats.put_seconds > RETRY.attempt_s_max


class Slow(Flaky):
    """Takes so many bytes in a second."""

    bytes_per_second = 1024 * 1024 * 1.1

    async def put_new(self, key: str, parts: Sequence[Buffer]) -> None:
        await asyncio.sleep(sum(map(len, parts)) / self.bytes_per_second)
        await super().put_new(key, parts)


async def test_a_large_chunk_on_a_slow_way_is_not_given_up_for_one_that_would_take_as_long() -> (
    None
):
    store = Slow([])
    writer = Writer(store, cluster_id=CLUSTER, rng=random.Random(1))
    large = closed([(0, 1, batch(value=bytes(15 << 20)))])
    deadline = asyncio.get_running_loop().time() + 20
    await writer.put(CHUNK, large, reached=POSITION_ZERO, deadline=deadline)
    assert (len(store.calls), writer.stats.retries) == (1, 0)
    assert writer.stats.put_seconds > RETRY.attempt_s_max


async def test_deadline_ends_the_attempts_as_unknown() -> None:
    store = Flaky([AWAY] * 1000)
    writer = Writer(store, cluster_id=CLUSTER, rng=random.Random(1))
    loop = asyncio.get_running_loop()
    begun = loop.time()
    with pytest.raises(StoreUnavailableError, match="the store is away"):
        await writer.put(CHUNK, MADE, reached=POSITION_ZERO, deadline=begun + 20)
    assert 15 < loop.time() - begun <= 20
    assert 8 < len(store.calls) < 30
    assert writer.stats.given_up == 1


async def test_deadline_ends_an_attempt_that_hangs() -> None:
    writer = Writer(Flaky(["hang"] * 9), cluster_id=CLUSTER, rng=random.Random(1))

    loop = asyncio.get_running_loop()
    begun = loop.time()
    with pytest.raises(StoreUnavailableError, match="no answer in time"):
        await writer.put(CHUNK, MADE, reached=POSITION_ZERO, deadline=begun + 3)
    assert loop.time() - begun == pytest.approx(3)


@pytest.mark.parametrize("error", [StoreRefusedError("disk full"), ObjectExistsError("other")])
async def test_definite_no_is_not_repeated(error: StoreError) -> None:
    store = Flaky([error])
    with pytest.raises(type(error), match=str(error)):
        await put(store)
    assert len(store.calls) == 1


async def test_name_that_has_other_bytes_is_reported() -> None:
    store = MemoryStore()
    await store.put_new(CHUNK.key, [b"other"])
    with pytest.raises(ObjectExistsError):
        await put(store)


@pytest.mark.parametrize("seed", range(30))
async def test_any_order_of_faults_and_callbacks_ends_with_the_right_object(seed: int) -> None:
    rng = random.Random(seed)
    store = Flaky([rng.choice([AWAY, "lost", "hang", None]) for _ in range(4)])
    await put(store, deadline=100.0, seed=seed)
    assert bytes(await store.get(CHUNK.key)) == object_of(MADE)
