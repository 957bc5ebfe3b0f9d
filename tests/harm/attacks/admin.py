"""The admin port: streams of the log that nobody reads, listings of the store, pins by the thousand."""

import asyncio
import contextlib
import json
from typing import Final

from tests.harm.scene import Peer, Scene, attack

READERS: Final = 64
LISTINGS: Final = 200
PINS: Final = 2_000
AT_ONCE: Final = 20
SECONDS: Final = 3.0


def request(method: str, path: str, body: str = "") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}\r\n{body}".encode()


async def _connected(scene: Scene) -> Peer:
    return await scene.connect(scene.http_port)


async def _answered(scene: Scene, data: bytes) -> None:
    """Whatever the answer is; a listener may refuse the connection, too."""
    with contextlib.suppress(OSError):
        peer = await _connected(scene)
        await peer.send(data)
        await peer.read()
        peer.close()


@attack()
async def streams_of_the_log_that_nobody_reads(scene: Scene) -> None:
    """64 connections ask for the whole log and all to come, and take nothing."""
    peers = []
    for _ in range(READERS):
        with contextlib.suppress(OSError):
            peer = await _connected(scene)
            await peer.send(request("GET", "/log?follow=1"))
            peers.append(peer)
    await asyncio.sleep(SECONDS)


@attack()
async def listings_of_the_whole_store(scene: Scene) -> None:
    for _ in range(LISTINGS // AT_ONCE):
        asked = [_answered(scene, request("GET", "/objects/unnamed")) for _ in range(AT_ONCE)]
        await asyncio.gather(*asked)


@attack()
async def pins_by_the_thousand(scene: Scene) -> None:
    for first in range(0, PINS, AT_ONCE):
        bodies = [
            json.dumps({"name": f"pin-{first + index}", "lifetime_ms": 7 * 86_400_000})
            for index in range(AT_ONCE)
        ]
        posts = [_answered(scene, request("POST", "/export/pin", body)) for body in bodies]
        await asyncio.gather(*posts)
