"""Requests over HTTP that are all right, and very many; and what only looks like a request."""

import asyncio
import contextlib
import json
import time
from typing import Final

from tests.harm.attacks.http import alternatives, register
from tests.harm.scene import Peer, Scene, attack

CONNECTIONS: Final = 60
AT_ONCE: Final = 50
"""Requests that are sent before an answer is read."""
SECONDS: Final = 4.0


async def flood(scene: Scene, port: int, request: bytes) -> None:
    """The same request, as often as the agent takes it, over many connections."""
    end = time.monotonic() + SECONDS

    async def one() -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while time.monotonic() < end:
                peer = await scene.connect(port)
                reading = asyncio.ensure_future(peer.read())
                while time.monotonic() < end and not reading.done():
                    await peer.send(request * AT_ONCE)
                    await asyncio.sleep(0.01)
                peer.close()
                reading.cancel()

    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


@attack()
async def metrics_by_the_thousand(scene: Scene) -> None:
    """No token is asked for them, and each takes milliseconds."""
    await flood(scene, scene.http_port, get("/metrics"))


@attack()
async def subjects_by_the_thousand(scene: Scene) -> None:
    for number in range(200):
        assert await register(scene, f"{'s' * 200}{number}", '"string"', "AVRO") == 200
    await flood(scene, scene.registry_port, get("/subjects"))


@attack()
async def bodies_of_megabytes_that_are_one_text(scene: Scene) -> None:
    """Longer than any schema, and all of it escaped."""
    text = json.dumps({"schema": ""}).encode()[:-2] + rb"\u0041" * 690_000 + b'"}'

    async def one(peer: Peer) -> None:
        head = "POST /subjects/s/versions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
        with contextlib.suppress(OSError):
            await peer.send(head.encode() + text)
            await peer.read()

    for _ in range(6):
        peers = [await scene.connect(scene.registry_port) for _ in range(8)]
        await asyncio.gather(*(one(peer) for peer in peers))


@attack()
async def expectations_that_are_no_text(scene: Scene) -> None:
    """Each was an error of the agent."""
    for _ in range(300):
        peer = await scene.connect(scene.http_port)
        await peer.send(
            get("/jobs").replace(b"\r\n\r\n", b"\r\nConnection: close\r\nExpect: \xff\r\n\r\n")
        )
        assert (await peer.read()).startswith(b"HTTP/1.1 417 ")
        peer.close()


@attack()
async def schemas_that_take_long_beside_a_small_one_of_the_same_address(scene: Scene) -> None:
    """Twenty that take a second each, and one that somebody else behind the address needs."""
    assert await register(scene, "s", alternatives("a", 1000), "JSON") == 200
    hostile = [
        asyncio.ensure_future(register(scene, "s", alternatives(f"b{number}_", 1000), "JSON"))
        for number in range(20)
    ]
    await asyncio.sleep(1)
    async with asyncio.timeout(8):
        assert await register(scene, "small", '"string"', "AVRO") == 200
    for each in hostile:
        each.cancel()
    await asyncio.wait(hostile)
