"""Keys of issuers: fetched, kept when an endpoint is away, asked for once for keys that are unknown."""

import asyncio
from itertools import pairwise

import pytest

from broker.sasl.key_sets import KeySet, KeySets
from broker.sasl.tokens import KeyPlace
from tests.kit import loop as virtual
from tests.kit.tokens import RsaIssuer, key_set

FIRST, SECOND = RsaIssuer(), RsaIssuer("second")
PLACE = KeyPlace(url="https://issuer/keys", refresh_ms=60_000, backoff_ms=100, backoff_max_ms=400)


class Endpoint:
    """Stands in for what fetches."""

    def __init__(self) -> None:
        self.text: bytes | None = key_set(FIRST)
        self.fetched_s: list[float] = []
        self.takes_s = 0.0

    async def get(self) -> bytes:
        self.fetched_s.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.takes_s)
        if self.text is None:
            raise OSError("away")
        return self.text


def boot_ms() -> int:
    return int(virtual.current().time() * 1000)


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint()


@pytest.fixture
def keys(endpoint, monkeypatch) -> KeySet:
    made = KeySet(PLACE, boot_ms=boot_ms)
    monkeypatch.setattr(made, "_get", endpoint.get)
    return made


def known(keys) -> list[str]:
    return keys.keys.key_ids()


async def run(keys, seconds):
    task = asyncio.create_task(keys.run())
    await asyncio.sleep(seconds)
    task.cancel()


async def test_keys_are_fetched_as_often_as_the_setting_says(keys, endpoint):
    await run(keys, 130)
    assert [round(each) for each in endpoint.fetched_s] == [0, 60, 120]
    assert known(keys) == ["first"]


async def test_an_endpoint_that_is_away_is_asked_ever_less_often_and_takes_no_keys(keys, endpoint):
    await keys.fetched()
    endpoint.text = None
    endpoint.fetched_s.clear()
    await run(keys, 2)
    gaps = [round(b - a, 1) for a, b in pairwise(endpoint.fetched_s)]
    assert gaps[:4] == [0.1, 0.2, 0.4, 0.4]
    assert known(keys) == ["first"]


async def test_what_is_no_key_set_takes_no_keys(keys, endpoint):
    await keys.fetched()
    endpoint.text = b"<html>"
    await run(keys, 1)
    assert known(keys) == ["first"]


async def test_an_unknown_key_is_asked_for_at_once(keys, endpoint):
    await run(keys, 20)
    endpoint.text = key_set(FIRST, SECOND)
    await keys.fetched()
    assert known(keys) == ["first", "second"]


async def test_unknown_keys_are_asked_for_once_in_a_while(keys, endpoint):
    for _ in range(50):
        await keys.fetched()
        await asyncio.sleep(0.5)
    assert [round(each) for each in endpoint.fetched_s] == [0, 10, 20]


async def test_all_that_wait_for_keys_wait_for_the_same_fetch(keys, endpoint):
    endpoint.takes_s = 1
    async with asyncio.TaskGroup() as tasks:
        for _ in range(20):
            tasks.create_task(keys.fetched())
    assert len(endpoint.fetched_s) == 1
    assert known(keys) == ["first"]


async def test_a_fetch_that_does_not_end_is_given_up(keys, endpoint):
    endpoint.takes_s = 1_000
    began_s = asyncio.get_running_loop().time()
    await keys.fetched()
    assert asyncio.get_running_loop().time() - began_s == pytest.approx(10)
    assert known(keys) == []


async def test_keys_may_be_in_a_file(tmp_path):
    file = tmp_path / "a key set.json"
    file.write_bytes(key_set(FIRST))
    url = f"file://{str(file).replace(' ', '%20')}"
    sets = KeySets([KeyPlace(url=url)], boot_ms=boot_ms)
    assert len(sets.keys(url)) == 0
    await sets.fetched(url)
    assert sets.keys(url).key_ids() == ["first"]
    file.write_bytes(b"x" * (1 << 21))
    await asyncio.sleep(2)
    await sets.fetched(url)
    assert sets.keys(url).key_ids() == ["first"]


async def test_an_endpoint_that_nobody_named_has_no_keys():
    sets = KeySets()
    await sets.fetched("https://other/keys")
    assert len(sets.keys("https://other/keys")) == 0
