"""Fetches that wait are cheap, until a record wakes all of them."""

import asyncio

from protocol import apis
from protocol.records import Record, build_batch
from tests.harm.scene import Scene, attack
from tests.kit import requests

CONNECTIONS, PARTITIONS, ROUNDS = 400, 400, 2
PRODUCE_VERSION, FETCH_VERSION, CREATE_TOPICS_VERSION = 9, 12, 5
"""Those that name topics."""


@attack()
async def a_record_that_wakes_all_fetches_of_a_client(scene: Scene) -> None:
    """Each of four hundred connections waits for 400 partitions, one of which gets a record."""
    producer = await scene.connect()
    made = requests.create_topics({"waited-for": PARTITIONS})
    await producer.ask(apis.CREATE_TOPICS, CREATE_TOPICS_VERSION, made)
    peers = [await scene.connect() for _ in range(CONNECTIONS)]
    record = Record(timestamp=1_700_000_000_000, key=None, value=b"value")
    for offset in range(ROUNDS):
        wanted = {("waited-for", index): 0 for index in range(PARTITIONS)}
        wanted["waited-for", 0] = offset
        fetch = requests.fetch(wanted, max_wait_ms=60_000)
        for peer in peers:
            await peer.send(peer.frame(apis.FETCH, FETCH_VERSION, fetch))
            await asyncio.sleep(0.004)  # So that none of it is about requests that start at once.
        batch = requests.produce({("waited-for", 0): build_batch([record])})
        await producer.ask(apis.PRODUCE, PRODUCE_VERSION, batch)
        for peer in peers:
            await peer.skip()
