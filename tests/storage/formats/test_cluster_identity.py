"""Whose store it is: the first claims it, everybody after compares."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.formats.cluster_identity import (
    KEY,
    ClusterIdentity,
    claim_store,
    decode_identity,
    encode_identity,
    read_identity,
)
from storage.stores.memory import MemoryStore
from storage.stores.object_store import StoreRefusedError

OURS = ClusterIdentity("ours", 1)
GOLDEN = b"""{
  "cluster_id": "ours",
  "era": 1,
  "format_version": 1,
  "checksum": "123976ea"
}
"""


async def store_with(present: bytes | None = None) -> MemoryStore:
    store = MemoryStore()
    if present is not None:
        await store.put_new(KEY, [present])
    return store


def test_marker_of_version_1_is_written_as_ever() -> None:
    assert encode_identity(OURS) == GOLDEN


def test_marker_of_version_1_is_read_as_ever() -> None:
    assert decode_identity(GOLDEN) == OURS


async def test_empty_store_is_nobodys() -> None:
    store = await store_with()
    assert await read_identity(store) is None


async def test_first_claims_the_store_and_may_claim_it_again() -> None:
    store = await store_with()
    for _ in range(2):
        assert await claim_store(store, OURS) == OURS
    assert await read_identity(store) == OURS


@pytest.mark.parametrize("other", [ClusterIdentity("theirs", 1), ClusterIdentity("ours", 2)])
async def test_store_of_another_cluster_or_era_is_refused_with_both_names(
    other: ClusterIdentity,
) -> None:
    store = await store_with(encode_identity(other))
    with pytest.raises(StoreRefusedError) as caught:
        await claim_store(store, OURS)
    assert other.describe() in str(caught.value)
    assert OURS.describe() in str(caught.value)
    assert await read_identity(store) == other


@pytest.mark.parametrize("seed", range(20))
async def test_of_two_that_claim_at_once_one_wins_and_the_other_is_refused(seed: int) -> None:
    store = MemoryStore()
    results = await asyncio.gather(
        claim_store(store, OURS),
        claim_store(store, ClusterIdentity("theirs", 1)),
        return_exceptions=True,
    )
    assert sorted(type(result).__name__ for result in results) == [
        "ClusterIdentity",
        "StoreRefusedError",
    ]


async def test_newer_format_is_refused_whatever_else_it_says() -> None:
    newer = json.loads(GOLDEN) | {"format_version": 2, "checksum": {"sha": "x"}, "more": 1}

    store = await store_with(json.dumps(newer).encode())
    with pytest.raises(StoreRefusedError, match="newer"):
        await claim_store(store, OURS)


@pytest.mark.parametrize(
    "present",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff\xfe",
        b"[" * 60_000,
        b" " * 100_000,
        GOLDEN.replace(b"ours", b"hers"),
        GOLDEN.replace(b'"era": 1', b'"era": "1"'),
        GOLDEN.replace(b"}", b', "x": 1}'),
    ],
)
async def test_what_is_no_sound_marker_is_refused_and_not_overwritten(present: bytes) -> None:
    store = await store_with(present)
    with pytest.raises(StoreRefusedError):
        await claim_store(store, OURS)
    assert await store.get(KEY) == present


@pytest.mark.parametrize("cluster_id", ["", "x" * 65, "ä" * 33, "a\0b", "a\nb"])
def test_cluster_id_that_does_not_fit_into_chunks_is_an_error(cluster_id: str) -> None:
    with pytest.raises(ValueError, match="cannot be a cluster id"):
        ClusterIdentity(cluster_id, 1)


@pytest.mark.parametrize("era", [0, -1, 1 << 15])
def test_era_that_does_not_fit_into_positions_is_an_error(era: int) -> None:
    with pytest.raises(ValueError, match="is not an era"):
        ClusterIdentity("ours", era)


@given(st.text(min_size=1, max_size=16), st.integers(1, (1 << 15) - 1))
def test_marker_roundtrips(cluster_id: str, era: int) -> None:
    if cluster_id.isprintable():
        identity = ClusterIdentity(cluster_id, era)
        assert decode_identity(encode_identity(identity)) == identity


@given(st.binary(max_size=200))
def test_any_bytes_are_a_marker_or_refused(data: bytes) -> None:
    with pytest.raises(StoreRefusedError):
        decode_identity(data)
