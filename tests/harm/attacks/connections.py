"""Harm by connections: many of them, and requests that never end or whose answers nobody reads."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from broker.environment import raise_descriptors
from protocol import apis, messages
from protocol.records import Record, build_batch
from tests.harm.scene import Peer, Scene, attack
from tests.kit import requests

API_VERSIONS = (apis.API_VERSIONS, 0)
MiB = 1 << 20


async def opened(scene: Scene, count: int) -> list[Peer]:
    """So many connections, or fewer when the agent or this process has no more descriptors."""
    within = (raise_descriptors() or count + 100) - 100
    peers: list[Peer] = []
    for _ in range(min(count, within)):
        with contextlib.suppress(OSError):
            peers.append(await scene.connect())
    return peers


async def send_all(peers: list[Peer], data: bytes) -> None:
    """To those that are open still."""
    for peer in peers:
        with contextlib.suppress(OSError):
            await peer.send(data)


async def neighbour(scene: Scene) -> None:
    """Somebody at another address connects and is answered, within a second."""
    async with asyncio.timeout(1):
        peer = await scene.connect(who="neighbour")
        await peer.ask(*API_VERSIONS, messages.ApiVersionsRequest())
    peer.close()


@attack()
async def lengths_of_frames_that_never_come(scene: Scene) -> None:
    """4,300 times a length of 64 KiB: 17 KB."""
    await send_all(await opened(scene, 4_300), (64 << 10).to_bytes(4))
    await asyncio.sleep(3)


@attack(memory_max=320 * MiB)
async def half_requests_that_drip(scene: Scene) -> None:
    """250 frames of 2 MiB; of each 70 KB come at once, and the rest a byte at a time."""
    peers = await opened(scene, 250)
    await send_all(peers, (2 * MiB).to_bytes(4) + bytes(70_000))
    for _ in range(16):
        await send_all(peers, b"\0")
        await asyncio.sleep(0.25)


@attack()
async def a_flood_of_connections(scene: Scene) -> None:
    """Opened and closed for four seconds, eight at a time."""
    loop = asyncio.get_running_loop()
    until = loop.time() + 4

    async def flood() -> None:
        while loop.time() < until:
            with contextlib.suppress(OSError):
                (await scene.connect()).close()
            await asyncio.sleep(0)

    await asyncio.gather(*(flood() for _ in range(8)))


@attack(descriptors=256)
async def idle_connections_up_to_the_descriptors(scene: Scene) -> None:
    """More than the agent can have; somebody else still gets in, and the store is still written."""
    await opened(scene, 400)
    await neighbour(scene)
    await asyncio.sleep(2)
    await neighbour(scene)


@attack(descriptors=256)
async def connections_that_look_honest_up_to_the_descriptors(scene: Scene) -> None:
    """Each has asked something, so none is the one that has shown nothing."""
    for _ in range(3):
        for peer in await opened(scene, 100):
            with contextlib.suppress(OSError, EOFError):
                await peer.ask(*API_VERSIONS, messages.ApiVersionsRequest())
    await neighbour(scene)


@contextlib.asynccontextmanager
async def filled(scene: Scene, topic: str, mebibytes: int) -> AsyncIterator[None]:
    """A topic with so many records of almost a MiB."""
    peer = await scene.connect()
    await peer.ask(apis.CREATE_TOPICS, 5, requests.create_topics({topic: 1}))
    for _ in range(mebibytes):
        batch = build_batch([Record(timestamp=1, key=None, value=bytes(MiB - 1000))])
        await peer.ask(apis.PRODUCE, 9, requests.produce({(topic, 0): batch}))
    yield
    peer.close()


@attack()
async def answers_that_nobody_reads(scene: Scene) -> None:
    """50 connections each ask eight times for 8 MiB of records, and read nothing."""
    async with filled(scene, "unread", 8):
        wanted = requests.fetch({("unread", 0): 0}, max_wait_ms=0)
        for peer in await opened(scene, 50):
            peer.take_little()
            frames = [peer.frame(apis.FETCH, 12, wanted) for _ in range(8)]
            await peer.send(b"".join(frames))
        await asyncio.sleep(4)


@attack(descriptors=1024)
async def five_hundred_honest_clients_of_one_address(scene: Scene) -> None:
    """No attack: on a pod with 1,024 descriptors all of them are served, and served again."""
    peers = [await scene.connect() for _ in range(500)]
    for _ in range(2):
        for peer in peers:
            await peer.ask(*API_VERSIONS, messages.ApiVersionsRequest())
    await neighbour(scene)
