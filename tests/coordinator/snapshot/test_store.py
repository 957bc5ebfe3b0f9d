"""SnapshotStore: what is written was read back, and what is read is what was written (P14)."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import blake2b

import pytest

from coordinator.machine.machine import Machine
from coordinator.snapshot import store as module
from coordinator.snapshot import stream
from coordinator.snapshot.keeping import SnapshotPin
from coordinator.snapshot.manifest import (
    LoadableSnapshot,
    decode_manifest,
    decode_published,
    encode_published,
    manifest_key,
    part_key,
    position_of,
)
from coordinator.snapshot.snapshot import dump
from coordinator.snapshot.store import RETRY, SnapshotStore
from coordinator.snapshot.stream import SnapshotError
from protocol.types import Buffer, Position, position
from storage.formats.cluster_identity import ClusterIdentity
from storage.stores.memory import MemoryStore
from storage.stores.object_store import ObjectExistsError, StoreUnavailableError
from storage.stores.retry_policy import moving_s
from tests.coordinator.histories import history

pytestmark = pytest.mark.schedules(5)

IDENTITY = ClusterIdentity("frazil-test", 1)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots of many parts."""
    monkeypatch.setattr(stream, "_BODY_BYTES", 150)


def machine_of(seed: int) -> Machine:
    """Each at a position of its own."""
    return history(seed, steps=200 + seed).machine


def parts_of(seed: int) -> list[bytes]:
    parts = dump(machine_of(seed))
    assert len(parts) > 4
    return parts


async def written() -> tuple[MemoryStore, SnapshotStore, str]:
    """A store with a snapshot, and the key of that."""
    store = MemoryStore()
    snapshots = SnapshotStore(store, IDENTITY)
    return store, snapshots, await snapshots.write(parts_of(1))


class SlowStore(MemoryStore):
    """Moves as much in a second as a way that is slow, and not dead."""

    async def put_new(self, key: str, parts: Sequence[Buffer]) -> None:
        await asyncio.sleep(moving_s(sum(map(len, parts))))
        await super().put_new(key, parts)

    async def get(self, key: str) -> Buffer:
        data = await super().get(key)
        await asyncio.sleep(moving_s(len(data)))
        return data


async def test_a_large_part_has_time_on_a_slow_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY", replace(RETRY, attempt_s_max=0.001, attempts_max=1))
    snapshots = SnapshotStore(SlowStore(), IDENTITY)
    part = bytes(1 << 20)
    await snapshots._put("a", part)
    assert await snapshots._get("a", len(part)) == part


async def test_what_was_written_is_read() -> None:
    snapshots = SnapshotStore(MemoryStore(), IDENTITY)
    for seed in (1, 2):
        parts = parts_of(seed)
        key = await snapshots.write(parts)
        assert [bytes(part) for part in await snapshots.read(key)] == parts


async def test_writing_again_changes_nothing() -> None:
    store, snapshots, key = await written()
    before = dict(store._objects)
    assert await snapshots.write(parts_of(1)) == key
    assert store._objects == before


async def test_the_manifest_says_whose_it_is_and_what_its_parts_are() -> None:
    store = MemoryStore()
    machine = machine_of(1)
    parts = dump(machine)
    key = await SnapshotStore(store, IDENTITY).write(parts)
    folder = f"snapshots/{machine.position:016x}"
    assert key == f"{folder}/manifest"
    manifest = json.loads(bytes(await store.get(key)))
    assert manifest.pop("parts") == [
        {"length": len(part), "blake2b": blake2b(part, digest_size=32).hexdigest()}
        for part in parts
    ]
    assert manifest == {
        "version": 1,
        "cluster": "frazil-test",
        "era": 1,
        "position": machine.position,
        "digest": machine.digest().hex(),
        "time_ms": machine.time_ms,
    }
    names = {f"{folder}/{number:04}" for number in range(len(parts))}
    assert {*store._objects} == names | {key}


async def test_the_manifest_says_what_kept_snapshots_when_there_was_anything() -> None:
    store = MemoryStore()
    pins = (SnapshotPin(Position(3), 1, 2, 2), SnapshotPin(Position(5), 2, 30, 9))
    key = await SnapshotStore(store, IDENTITY).write(parts_of(1), pins)
    manifest = bytes(await store.get(key))
    assert decode_manifest(manifest).pins == pins
    last = {"position": 5, "set_ms": 2, "until_ms": 30, "expires_ms": 9}
    assert json.loads(manifest)["pins"][-1] == last


def _flip(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


async def spoil(store: MemoryStore, key: str, change: Callable[[bytes], bytes]) -> None:
    data = bytes(await store.get(key))
    await store.delete([key])
    await store.put_new(key, [change(data)])


async def test_parts_that_are_damaged_missing_or_mixed_up_are_refused() -> None:
    (store, snapshots, key), parts = await written(), parts_of(1)
    third = part_key(position_of(key), 3)
    for change in (_flip, lambda data: data[:-1], lambda _: parts[2]):
        await spoil(store, third, change)
        with pytest.raises(SnapshotError, match="not what the manifest says"):
            await snapshots.read(key)
        await spoil(store, third, lambda _: parts[3])
    await snapshots.read(key)
    await store.delete([third])
    with pytest.raises(SnapshotError, match="not in the store"):
        await snapshots.read(key)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"cluster": "other"}, "of the cluster 'other'"),
        ({"position": 7}, "manifest of position 7"),
        ({"digest": "00" * 16}, "the parts of"),
        ({"parts": []}, "without parts"),
        ({"parts": [{"length": 3}]}, "cannot be read"),
        ({"version": 2}, "of format 2"),
        ({"version": None}, "not one of ours"),
    ],
    ids=str,
)
async def test_a_manifest_of_something_else_is_refused(
    change: dict[str, object], reason: str
) -> None:
    store, snapshots, key = await written()
    await spoil(store, key, lambda data: json.dumps(json.loads(data) | change).encode())
    with pytest.raises(SnapshotError, match=reason):
        await snapshots.read(key)


async def test_a_manifest_that_is_no_json_or_not_there_is_refused() -> None:
    store, snapshots, key = await written()
    await spoil(store, key, lambda data: data[: len(data) // 2])
    with pytest.raises(SnapshotError, match="not JSON"):
        await snapshots.read(key)
    with pytest.raises(SnapshotError, match="not in the store"):
        await snapshots.read(manifest_key(position(1, 9)))


class Lying(MemoryStore):
    """Gives another part than was put, of the right length."""

    async def get(self, key: str) -> Buffer:
        data = bytes(await super().get(key))
        return _flip(data) if key.endswith("/0002") else data


@pytest.mark.promise("P14")
async def test_what_is_not_read_back_as_it_was_written_is_no_snapshot() -> None:
    with pytest.raises(SnapshotError, match="0002 is not what the manifest says"):
        await SnapshotStore(Lying(), IDENTITY).write(parts_of(1))


@pytest.mark.promise("P14")
async def test_a_snapshot_that_makes_another_machine_is_not_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from coordinator.snapshot import tables

    restore_pins = tables.restore_pins

    def forgetful(*arguments) -> None:
        restore_pins(*arguments)
        arguments[1]._rows.clear()

    monkeypatch.setattr("coordinator.snapshot.snapshot.restore_pins", forgetful)
    seed = next(seed for seed in range(99) if len(machine_of(seed).pins))

    with pytest.raises(SnapshotError, match="another machine"):
        await SnapshotStore(MemoryStore(), IDENTITY).write(parts_of(seed))


class Failing(MemoryStore):
    """Every call fails so many times, before it takes effect or after."""

    def __init__(self, times: float) -> None:
        super().__init__()
        self.times = times
        self.failed: dict[str, int] = {}

    def fail(self, key: str) -> None:
        if self.failed.get(key, 0) < self.times:
            self.failed[key] = self.failed.get(key, 0) + 1
            raise StoreUnavailableError("lost")

    async def put_new(self, key, parts):
        await super().put_new(key, parts)
        self.fail("put" + key)

    async def get(self, key):
        self.fail("get" + key)
        return await super().get(key)


async def test_a_store_that_fails_now_and_then_is_asked_again() -> None:
    store = Failing(RETRY.attempts_max - 1)
    parts = parts_of(1)
    key = await SnapshotStore(store, IDENTITY).write(parts)
    assert len(store.failed) == 2 * (len(parts) + 1)
    assert position_of(key) > 0


async def test_a_store_that_stays_away_is_said_to_be_away() -> None:
    with pytest.raises(StoreUnavailableError):
        await SnapshotStore(Failing(RETRY.attempts_max), IDENTITY).write(parts_of(1))


async def test_a_call_that_hangs_is_given_up_and_made_anew() -> None:
    class Hanging(MemoryStore):
        hung = False

        async def get(self, key):
            if not self.hung:
                self.hung = True
                await asyncio.sleep(1e6)
            return await super().get(key)

    store = Hanging()
    async with asyncio.timeout(1e5):
        await SnapshotStore(store, IDENTITY).write(parts_of(1))
    assert store.hung


async def test_a_name_with_other_bytes_is_not_overwritten() -> None:
    (store, snapshots, key), parts = await written(), parts_of(1)
    await spoil(store, part_key(position_of(key), 0), _flip)
    with pytest.raises(ObjectExistsError):
        await snapshots.write(parts)


async def test_bytes_are_paced() -> None:
    paced: list[int] = []

    async def pace(length: int) -> None:
        paced.append(length)

    parts = parts_of(1)
    await SnapshotStore(MemoryStore(), IDENTITY, pace=pace).write(parts)
    assert sum(paced) >= 2 * sum(map(len, parts))


async def test_before_the_parts_are_read_is_asked_whether_there_is_room_for_all_of_them() -> None:
    store, _, key = await written()
    asked: list[tuple[str, int]] = []
    snapshots = SnapshotStore(store, IDENTITY, admit=lambda *each: asked.append(each))
    parts = await snapshots.read(key)
    assert asked == [(key, sum(map(len, parts)))]


async def test_a_snapshot_that_is_not_admitted_is_not_read() -> None:
    store, _, key = await written()
    manifest = await store.get(key)

    def admit(_key: str, _length: int) -> None:
        raise MemoryError("too large")

    class OnlyManifest(MemoryStore):
        async def get(self, key: str) -> Buffer:
            assert key.endswith("manifest")
            return manifest

    with pytest.raises(MemoryError, match="too large"):
        await SnapshotStore(OnlyManifest(), IDENTITY, admit=admit).read(key)


# The list in the log.


def test_the_list_of_snapshots_is_read_as_it_was_written() -> None:
    named = tuple(
        LoadableSnapshot(
            position(1, number), bytes([number]) * 16, manifest_key(position(1, number))
        )
        for number in (9, 4)
    )
    assert decode_published(encode_published(named)) == named
    assert decode_published(encode_published(())) == ()
    assert decode_published(b"") == ()


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b"7",
        b"\xff",
        b'{"version": 1}',
        b'{"version": 2, "snapshots": []}',
        b'{"version": 1, "snapshots": [{"position": 1}]}',
        b'{"version": 1, "snapshots": [{"position": 1, "digest": "x", "key": "k"}]}',
    ],
)
def test_a_list_that_cannot_be_read_is_refused(data: bytes) -> None:
    with pytest.raises(SnapshotError):
        decode_published(data)


@pytest.mark.parametrize("key", ["chunks/0000000000000001/manifest", "snapshots/1/manifest", "x"])
def test_other_keys_are_of_no_snapshot(key: str) -> None:
    with pytest.raises(ValueError, match=r"key|unpack"):
        position_of(key)
