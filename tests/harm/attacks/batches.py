"""Small batches that become large: of all codecs, on topics that open them, and searches in them."""

import asyncio
import functools
import time

from protocol import apis
from protocol.compression import Codec
from protocol.errors import ErrorCode
from protocol.records import (
    HEADER_BYTES,
    RECORD_BYTES_MIN,
    Record,
    assemble,
    build_batch,
    read_header,
    recoded,
)
from tests.harm.scene import Peer, Scene, attack
from tests.kit import requests
from tests.kit.requests import error_of, rows_of

PRODUCE_VERSION, CREATE_TOPICS_VERSION, LIST_OFFSETS_VERSION = 9, 5, 7
ATTACKERS = 4
LASTS_S = 8.0
LATE_MS = 2 * 3_600_000
"""Further ahead than a topic allows, so that records are looked at."""
THREE_MILLION = 3_000_000
SMALLEST = b"\x0c\0\0\0\x01\x01\0"
"""The smallest record, without key, value and headers."""
KEYED = b"\x0e\0\0\0\x02k\x01\0"
OPENED_MAX = 256 << 20
"""Two batches at a time, and what their codecs need: `broker.calls.off_loop`."""

assert len(SMALLEST) == RECORD_BYTES_MIN


@functools.cache
def bomb(record: bytes, count: int, codec: int, *, ahead_ms: int = 0) -> bytes:
    """So many times the same record; its header says the newest were so far ahead."""
    now_ms = int(time.time() * 1000)
    header = read_header(build_batch([Record(timestamp=now_ms)]))
    header = header._replace(
        attributes=codec,
        record_count=count,
        last_offset_delta=count - 1,
        max_timestamp=now_ms + ahead_ms,
    )
    return assemble(header, record * count)


async def topic_for(scene: Scene, name: str, **configs: str) -> None:
    peer = await scene.connect()
    named = {key.replace("_", "."): text for key, text in configs.items()}
    request = requests.create_topics({name: 1}, named)
    answer = await peer.ask(apis.CREATE_TOPICS, CREATE_TOPICS_VERSION, request)
    assert error_of(answer) == ErrorCode.NONE, answer


async def again_and_again(scene: Scene, topic: str, *batches: bytes) -> None:
    """Some connections produce these, each as soon as the one before is answered."""
    loop = asyncio.get_running_loop()
    end = loop.time() + LASTS_S

    async def produce(first: int) -> None:
        peer = await scene.connect()
        number = first
        while loop.time() < end:
            await peer.send(_frame(peer, topic, batches[number % len(batches)]))
            number += 1
            try:
                async with asyncio.timeout_at(end):
                    await peer.receive()
            except TimeoutError:
                return

    await asyncio.gather(*(produce(number) for number in range(ATTACKERS)))


def _frame(peer: Peer, topic: str, batch: bytes) -> bytes:
    request = requests.produce({(topic, 0): batch}, timeout_ms=30_000)
    return peer.frame(apis.PRODUCE, PRODUCE_VERSION, request)


@attack(memory_max=OPENED_MAX)
async def bombs_of_late_records(scene: Scene) -> None:
    """2 KB of zstd: three million records, which have to be looked at since they may be late."""
    await topic_for(scene, "plain")
    data = bomb(SMALLEST, THREE_MILLION, Codec.ZSTD, ahead_ms=LATE_MS)
    assert len(data) < 4_000
    await again_and_again(scene, "plain", data)


@attack(memory_max=OPENED_MAX)
async def bombs_of_every_codec(scene: Scene) -> None:
    """As much as fits into a batch of each codec."""
    await topic_for(scene, "plain")
    bombs = [
        bomb(SMALLEST, THREE_MILLION, codec, ahead_ms=LATE_MS)
        for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD)
    ]
    bombs.append(bomb(SMALLEST, THREE_MILLION // 2, Codec.SNAPPY, ahead_ms=LATE_MS))
    await again_and_again(scene, "plain", *bombs)


@attack(memory_max=OPENED_MAX)
async def huge_batches_for_a_compacted_topic(scene: Scene) -> None:
    """All keys must be looked at."""
    await topic_for(scene, "compacted", cleanup_policy="compact")
    await again_and_again(scene, "compacted", bomb(KEYED, THREE_MILLION, Codec.ZSTD))


@attack(memory_max=OPENED_MAX)
async def bombs_for_a_topic_that_recompresses(scene: Scene) -> None:
    """One value of sixty megabytes, and sixteen of them that say they were one."""
    await topic_for(scene, "recompressed", compression_type="gzip")
    value = Record(timestamp=int(time.time() * 1000), value=bytes(60_000_000))
    one = build_batch([value], codec=Codec.ZSTD)
    many = recoded(read_header(one), one[HEADER_BYTES:] * 16, Codec.ZSTD)
    await again_and_again(scene, "recompressed", one, many)


@attack(memory_max=OPENED_MAX)
async def searches_by_time_in_the_largest_batch(scene: Scene) -> None:
    """It is taken unread, and says that it has what nobody finds in it."""
    await topic_for(scene, "plain")
    count = (60 << 20) // RECORD_BYTES_MIN
    data = bomb(SMALLEST, count, Codec.ZSTD, ahead_ms=1_000_000)
    peer = await scene.connect()
    await peer.send(_frame(peer, "plain", data))
    assert rows_of(await peer.receive())["plain", 0].error_code == ErrorCode.NONE
    wanted = requests.list_offsets([("plain", 0)], read_header(data).max_timestamp)
    loop = asyncio.get_running_loop()
    end = loop.time() + LASTS_S

    async def search() -> None:
        peer = await scene.connect()
        try:
            async with asyncio.timeout_at(end):
                while True:
                    await peer.ask(apis.LIST_OFFSETS, LIST_OFFSETS_VERSION, wanted)
        except TimeoutError:
            return

    await asyncio.gather(*(search() for _ in range(ATTACKERS)))
