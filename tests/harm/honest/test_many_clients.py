"""Five hundred clients at one address: nobody is refused, cut off or held up."""

import asyncio
from pathlib import Path

import pytest

from broker.environment import raise_descriptors
from protocol import apis, messages
from protocol.errors import ErrorCode
from protocol.records import Record, build_batch
from tests.harm.honest import kit
from tests.harm.scene import Peer, Scene
from tests.kit import requests

pytestmark = [pytest.mark.integration, pytest.mark.alone]

CLIENTS = 500
PROCESSES = 4
PARTITIONS = 50
ROUNDS = 10
TOPIC = "crowd"
PRODUCE_VERSION, FETCH_VERSION, CREATE_TOPICS_VERSION = 9, 12, 5


async def create(scene: Scene, partitions: int) -> Peer:
    peer = await scene.connect()
    wanted = requests.create_topics({TOPIC: partitions})
    created = await peer.ask(apis.CREATE_TOPICS, CREATE_TOPICS_VERSION, wanted)
    assert requests.error_of(created) == ErrorCode.NONE
    return peer


@pytest.mark.real_loop
async def test_five_hundred_librdkafka_clients_are_served(tmp_path: Path) -> None:
    async def work(scene: Scene) -> dict[str, float]:
        (await create(scene, PARTITIONS)).close()
        each = CLIENTS // PROCESSES
        crowd = [*kit.python("crowd"), scene.agent.bootstrap, TOPIC]
        crowds = [kit.run([*crowd, f"p{i}", str(each)]) for i in range(PROCESSES)]
        told = await asyncio.gather(*crowds)
        return {step: max(each[step] for each in told) for step in told[0]}

    told = await kit.beside_a_canary(work, tmp_path)
    assert not told.refusals


async def produce_and_read(scene: Scene, number: int) -> None:
    """One client with one connection: what it writes it reads, `ROUNDS` times."""
    peer = await scene.connect()
    answer = await peer.ask(apis.API_VERSIONS, 0, messages.ApiVersionsRequest())
    assert answer.error_code == ErrorCode.NONE
    place = (TOPIC, number)
    for round_ in range(ROUNDS):
        batch = build_batch([Record(timestamp=1, key=None, value=b"%d" % round_)])
        answer = await peer.ask(apis.PRODUCE, PRODUCE_VERSION, requests.produce({place: batch}))
        row = requests.rows_of(answer)[place]
        assert (row.error_code, row.base_offset) == (ErrorCode.NONE, round_)
        answer = await peer.ask(apis.FETCH, FETCH_VERSION, requests.fetch({place: round_}))
        ((_, (record, *_)),) = requests.batches_in(requests.rows_of(answer)[place].records)
        assert bytes(record.value or b"") == b"%d" % round_


@pytest.mark.real_loop
async def test_five_hundred_connections_are_served_with_1024_descriptors(tmp_path: Path) -> None:
    raise_descriptors()

    async def work(scene: Scene) -> dict[str, float]:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await create(scene, CLIENTS)
        await asyncio.gather(*[produce_and_read(scene, number) for number in range(CLIENTS)])
        return {"produced and read": loop.time() - begun}

    told = await kit.beside_a_canary(work, tmp_path, descriptors=1024)
    assert not told.refusals
