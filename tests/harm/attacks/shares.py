"""What is bounded, taken by one client: sessions, ids, topics, groups, members."""

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from protocol import apis
from protocol.messages import (
    CreatableTopic,
    CreateTopicsRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.harm.scene import Scene, attack
from tests.kit.requests import fetch

CONNECTIONS = 50
FEWER = 20
"""For what each request costs much by itself."""
SECONDS = 4.0


async def _all_the_time(
    scene: Scene,
    key: int,
    version: int,
    requests: Callable[[int], Iterator[Any]],
    *,
    connections: int = CONNECTIONS,
) -> None:
    """Many connections, each of which sends its requests one after the other for a while."""
    loop = asyncio.get_running_loop()
    until = loop.time() + SECONDS

    async def one(number: int) -> None:
        peer = await scene.connect()
        for request in requests(number):
            if loop.time() >= until:
                return
            await peer.ask(key, version, request)

    await asyncio.gather(*[one(number) for number in range(connections)])


@attack("max.incremental.fetch.session.cache.slots=1000")
async def fetch_sessions_without_end(scene: Scene) -> None:
    """Each full fetch asks for a session of its own; a neighbour still gets one."""

    def new_session() -> Any:
        request = fetch({("canary", 0): 0}, max_wait_ms=0, max_bytes=1)
        request.session_id = request.session_epoch = 0
        return request

    def requests(number: int) -> Iterator[Any]:
        del number
        while True:
            yield new_session()

    await _all_the_time(scene, apis.FETCH, 11, requests)
    neighbour = await scene.connect(who="neighbour")
    assert (await neighbour.ask(apis.FETCH, 11, new_session())).session_id != 0


@attack()
async def producer_ids_without_end(scene: Scene) -> None:
    """InitProducerId, for nothing."""

    def requests(number: int) -> Iterator[Any]:
        del number
        while True:
            yield InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)

    await _all_the_time(scene, apis.INIT_PRODUCER_ID, 4, requests)


@attack()
async def transactional_ids_without_end(scene: Scene) -> None:
    """InitProducerId, each time with another transactional id of 8 KiB."""

    def requests(number: int) -> Iterator[Any]:
        for at in count():
            name = f"{number}-{at}-".ljust(8192, "x")
            yield InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)

    await _all_the_time(scene, apis.INIT_PRODUCER_ID, 4, requests, connections=FEWER)


@attack()
async def topics_without_end(scene: Scene) -> None:
    """CreateTopics, five topics of ten partitions at a time."""

    def requests(number: int) -> Iterator[Any]:
        for at in count():
            topics = [
                CreatableTopic(name=f"t-{number}-{at}-{each}", num_partitions=10)
                for each in range(5)
            ]
            for topic in topics:
                topic.replication_factor = -1
            yield CreateTopicsRequest(topics=topics, timeout_ms=10_000)

    await _all_the_time(scene, apis.CREATE_TOPICS, 5, requests, connections=FEWER)


@attack()
async def groups_without_end(scene: Scene) -> None:
    """OffsetCommit by no member, each time to another group, with 4 KB of metadata."""

    def requests(number: int) -> Iterator[Any]:
        for at in count():
            partition = OffsetCommitRequestPartition(
                partition_index=0, committed_offset=1, committed_metadata="x" * 4000
            )
            topic = OffsetCommitRequestTopic(name="canary", partitions=[partition])
            yield OffsetCommitRequest(
                group_id=f"g-{number}-{at}", generation_id_or_member_epoch=-1, topics=[topic]
            )

    await _all_the_time(scene, apis.OFFSET_COMMIT, 8, requests, connections=FEWER)


@attack(memory_max=160 << 20)
async def members_without_end(scene: Scene) -> None:
    """JoinGroup with new members of 50 KB each, to many groups, whose connections close."""
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"x" * 50_000)

    async def one(number: int) -> None:
        for at in range(40):
            peer = await scene.connect()
            request = JoinGroupRequest(
                group_id=f"g-{number}-{at % 10}",
                session_timeout_ms=1_800_000,
                rebalance_timeout_ms=1_800_000,
                member_id="",
                protocol_type="consumer",
                protocols=[protocol],
            )
            await peer.send(peer.frame(apis.JOIN_GROUP, 3, request))
            await asyncio.sleep(0.05)
            peer.close()

    await asyncio.gather(*[one(number) for number in range(CONNECTIONS)])
