"""Requests of very many elements, each of them well-formed."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from protocol import apis, messages
from protocol.messages import MetadataRequest, MetadataRequestTopic
from protocol.primitives import uvarint
from tests.harm.scene import Scene, attack
from tests.kit import requests

SECONDS = 4.0
FETCH_VERSION = 12
PARTITIONS = 220_000
"""Of a Fetch of 7.3 MB."""
TOPIC = "attacked"


async def _again(scene: Scene, frame: Callable[[Any], bytes], *, who: str = "attacker") -> None:
    """Send it, wait for the answer, send it again; on a new connection when the old one is closed."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + SECONDS
    while loop.time() < ends:
        with contextlib.suppress(OSError, EOFError):
            peer = await scene.connect(who=who)
            while loop.time() < ends:
                await peer.send(frame(peer))
                await peer.receive()


def _of(key: int, version: int, body: bytes) -> Callable[[Any], bytes]:
    return lambda peer: peer.frame(key, version, None, body=body)


def _names(names: Iterable[str]) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


async def _topic(scene: Scene, partitions: int) -> None:
    peer = await scene.connect()
    created = await peer.ask(apis.CREATE_TOPICS, 7, requests.create_topics({TOPIC: partitions}))
    assert not requests.error_of(created), created


@attack(memory_max=512 << 20)
async def fetch_of_many_partitions(scene: Scene) -> None:
    """7.3 MB: partitions of one topic, of which a thousand are there."""
    await _topic(scene, 1_000)
    offsets = {(TOPIC, index): 0 for index in range(PARTITIONS)}
    body = messages.encode_request(
        apis.FETCH, FETCH_VERSION, requests.fetch(offsets, max_wait_ms=0)
    )
    await _again(scene, _of(apis.FETCH, FETCH_VERSION, body))


@attack(memory_max=256 << 20)
async def fetch_of_topics_without_partitions(scene: Scene) -> None:
    """7.5 MB: more topics than a Fetch may name, three or four bytes each."""
    count = 1_800_000
    head = bytes(4) + bytes(4 + 4 + 4 + 1) + bytes(4) + b"\xff\xff\xff\xff"
    body = head + uvarint(count + 1) + b"\2t\1\0" * count + b"\1\1\0"
    await _again(scene, _of(apis.FETCH, FETCH_VERSION, body))


@attack(memory_max=512 << 20)
async def session_of_many_partitions(scene: Scene) -> None:
    """Thirty bytes a request, for a session of 10,000 partitions."""
    await _topic(scene, 10_000)
    peer = await scene.connect()
    offsets = {(TOPIC, index): 0 for index in range(10_000)}
    first = replace(requests.fetch(offsets, max_wait_ms=0), session_epoch=0)
    answer = await peer.ask(apis.FETCH, FETCH_VERSION, first)
    more = replace(requests.fetch({}, max_wait_ms=0), session_id=answer.session_id)
    loop = asyncio.get_running_loop()
    ends = loop.time() + SECONDS
    epoch = 1
    while loop.time() < ends:
        await peer.ask(apis.FETCH, FETCH_VERSION, replace(more, session_epoch=epoch))
        epoch += 1


@attack(memory_max=256 << 20)
async def metadata_of_a_million_topics(scene: Scene) -> None:
    """Two bytes each, over the budget; and on another connection 240,000 names within it."""
    million = uvarint(1_000_001) + b"\1\0" * 1_000_000 + b"\0\0\0\0"
    within = messages.encode_request(
        apis.METADATA, 9, _names(f"t{index}" for index in range(240_000))
    )
    await asyncio.gather(
        _again(scene, _of(apis.METADATA, 9, million)), _again(scene, _of(apis.METADATA, 9, within))
    )


@attack(memory_max=256 << 20)
async def offset_fetch_of_a_million(scene: Scene) -> None:
    """Partitions of one topic and group, over the budget; and 240,000 within it."""

    def body(count: int) -> bytes:
        partitions = uvarint(count + 1) + bytes(4 * count)
        return b"\2\2g\2\2t" + partitions + b"\0\0\0\0"

    await asyncio.gather(
        _again(scene, _of(apis.OFFSET_FETCH, 8, body(1_000_000))),
        _again(scene, _of(apis.OFFSET_FETCH, 8, body(240_000))),
    )


@attack(memory_max=512 << 20)
async def produce_of_tiny_partitions(scene: Scene) -> None:
    """A hundred megabytes of partitions without records."""
    count = 16_000_000
    body = b"\0" + b"\xff\xff" + bytes(4) + b"\2\2t" + uvarint(count + 1)
    body += b"\0\0\0\0\1\0" * count + b"\0\0"
    with contextlib.suppress(OSError, EOFError):
        peer = await scene.connect()
        await peer.send(peer.frame(apis.PRODUCE, 9, None, body=body))
        await peer.receive()


@attack(memory_max=256 << 20)
async def middle_sized_requests_of_many_connections(scene: Scene) -> None:
    """3,000 names each, from two hundred connections of one address."""
    body = messages.encode_request(apis.METADATA, 9, _names(f"t{index}" for index in range(3_000)))
    await asyncio.gather(*[_again(scene, _of(apis.METADATA, 9, body)) for _ in range(200)])
