"""Small requests, each of them well-formed, that cost much: squares, repetitions, expressions, ids."""

import asyncio
import contextlib
import time
from collections.abc import Iterable
from typing import Any

from protocol import apis, messages
from protocol.compression import Codec
from protocol.messages import (
    AddOffsetsToTxnRequest,
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    ConsumerGroupHeartbeatRequest,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteTopicsRequest,
    DescribeProducersRequest,
    DescribeProducersTopic,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    InitProducerIdRequest,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    TopicPartitions,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from protocol.primitives import uvarint
from protocol.records import Record, build_batch
from tests.harm.attacks.batches import SMALLEST, bomb
from tests.harm.scene import Peer, Scene, attack
from tests.kit import requests
from tests.kit.requests import error_of

SECONDS = 4.0
SERVED_S = 20.0
"""By then this agent coordinates groups."""
TOPIC = "attacked"
GROUP = "attackers"
TOPIC_TYPE = 2
THROTTLED = "leader.replication.throttled.replicas"
SLOW = "(.?){300}x"
"""An expression; 0.4 ms for the longest names."""


async def _topics(scene: Scene, partitions: dict[str, int], **configs: str) -> None:
    peer = await scene.connect()
    named = {key.replace("_", "."): text for key, text in configs.items()}
    created = await peer.ask(apis.CREATE_TOPICS, 7, requests.create_topics(partitions, named))
    assert not error_of(created), created


async def _again(scene: Scene, key: int, version: int, bodies: Iterable[bytes]) -> None:
    """Each body in turn, as soon as the one before is answered; anew when the connection is closed."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + SECONDS
    peer: Peer | None = None
    for body in bodies:
        if loop.time() >= ends:
            return
        with contextlib.suppress(OSError, EOFError, TimeoutError):
            async with asyncio.timeout_at(ends):
                peer = peer or await scene.connect()
                await peer.send(peer.frame(key, version, None, body=body))
                await peer.receive()
                continue
        peer = None


def _forever(body: bytes) -> Iterable[bytes]:
    while True:
        yield body


async def _joined(scene: Scene, member_id: str = "member", **subscription: Any) -> int:
    """The epoch of a member that has joined."""
    peer = await scene.connect()
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=300_000,
        topic_partitions=[],
        **subscription,
    )
    answer = await _done(peer, apis.CONSUMER_GROUP_HEARTBEAT, 1, request)
    return int(answer.member_epoch)


async def _done(peer: Peer, key: int, version: int, request: Any) -> Any:
    """The answer, once it is no error: an agent that has just begun does not hold all groups yet."""
    async with asyncio.timeout(SERVED_S):
        while error_of(answer := await peer.ask(key, version, request)):
            await asyncio.sleep(0.1)
    return answer


@attack(memory_max=256 << 20)
async def heartbeats_that_name_one_topic_over_and_over(scene: Scene) -> None:
    """A megabyte: one topic fifty thousand times, each time with another partition."""
    epoch = await _joined(scene, subscribed_topic_names=["canary"])
    owned = [TopicPartitions(topic_id=bytes(16), partitions=[index]) for index in range(50_000)]
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP, member_id="member", member_epoch=epoch, topic_partitions=owned
    )
    body = messages.encode_request(apis.CONSUMER_GROUP_HEARTBEAT, 1, request)
    await _again(scene, apis.CONSUMER_GROUP_HEARTBEAT, 1, _forever(body))


@attack()
async def expressions_that_take_long(scene: Scene) -> None:
    """Heartbeats of a hundred bytes, each with another expression, beside 400 long names of topics."""
    names = {"t".ljust(245, "-") + f"{number:04}": 1 for number in range(400)}
    await _topics(scene, names)
    await _joined(scene, subscribed_topic_names=["canary"])

    def bodies(member_id: str) -> Iterable[bytes]:
        for number in range(10_000):
            request = ConsumerGroupHeartbeatRequest(
                group_id=GROUP,
                member_id=member_id,
                member_epoch=0,
                rebalance_timeout_ms=300_000,
                topic_partitions=[],
                subscribed_topic_regex=f"{SLOW}|{member_id}-{number}",
            )
            yield messages.encode_request(apis.CONSUMER_GROUP_HEARTBEAT, 1, request)

    await asyncio.gather(
        *[
            _again(scene, apis.CONSUMER_GROUP_HEARTBEAT, 1, bodies(f"m{number}"))
            for number in range(20)
        ]
    )


@attack()
async def markers_for_a_transaction_of_long_group_ids(scene: Scene) -> None:
    """Four kilobytes that name 800 partitions of the topic of offsets; thirty ids of 30 KB."""
    peer = await scene.connect()
    begun = InitProducerIdRequest(transactional_id="attacker", transaction_timeout_ms=60_000)
    producer = await peer.ask(apis.INIT_PRODUCER_ID, 4, begun)
    for number in range(30):
        request = AddOffsetsToTxnRequest(
            transactional_id="attacker",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            group_id=f"{number}-".ljust(30_000, "x"),
        )
        assert not error_of(await peer.ask(apis.ADD_OFFSETS_TO_TXN, 3, request))
    everywhere = WritableTxnMarkerTopic(
        name="__consumer_offsets", partition_indexes=[index % 50 for index in range(800)]
    )
    marker = WritableTxnMarker(
        producer_id=producer.producer_id, producer_epoch=-1, topics=[everywhere]
    )
    body = messages.encode_request(
        apis.WRITE_TXN_MARKERS, 1, WriteTxnMarkersRequest(markers=[marker])
    )
    await asyncio.gather(
        *[_again(scene, apis.WRITE_TXN_MARKERS, 1, _forever(body)) for _ in range(4)]
    )


@attack(memory_max=96 << 20)
async def one_offset_asked_for_over_and_over(scene: Scene) -> None:
    """A megabyte that names one partition 240,000 times; its metadata has four kilobytes."""
    await _joined(scene, subscribed_topic_names=["canary"])
    peer = await scene.connect()
    partition = OffsetCommitRequestPartition(committed_offset=1, committed_metadata="x" * 4_000)
    topic = OffsetCommitRequestTopic(name="canary", partitions=[partition])
    commit = OffsetCommitRequest(
        group_id="offsets", generation_id_or_member_epoch=-1, topics=[topic]
    )
    await _done(peer, apis.OFFSET_COMMIT, 8, commit)
    wanted = OffsetFetchRequestTopic(name="canary", partition_indexes=[0] * 60_000)
    group = OffsetFetchRequestGroup(group_id="offsets", topics=[wanted] * 4)
    body = messages.encode_request(apis.OFFSET_FETCH, 8, OffsetFetchRequest(groups=[group]))
    await asyncio.gather(*[_again(scene, apis.OFFSET_FETCH, 8, _forever(body)) for _ in range(3)])


@attack(memory_max=96 << 20)
async def one_partitions_producers_asked_for_over_and_over(scene: Scene) -> None:
    """A megabyte that names one partition 80,000 times; a thousand producers wrote to it."""
    await _topics(scene, {TOPIC: 1})
    peer = await scene.connect()
    now_ms = int(time.time() * 1000)
    for producer_id in range(1_000):
        batch = build_batch(
            [Record(timestamp=now_ms)],
            producer_id=1_000_000 + producer_id,
            producer_epoch=0,
            base_sequence=0,
        )
        await peer.send(peer.frame(apis.PRODUCE, 9, requests.produce({(TOPIC, 0): batch})))
    for _ in range(1_000):
        await peer.receive()
    topic = DescribeProducersTopic(name=TOPIC, partition_indexes=[0])
    request = DescribeProducersRequest(topics=[topic] * 80_000)
    body = messages.encode_request(apis.DESCRIBE_PRODUCERS, 0, request)
    await _again(scene, apis.DESCRIBE_PRODUCERS, 0, _forever(body))


@attack(memory_max=256 << 20)
async def produce_of_tagged_fields(scene: Scene) -> None:
    """Fourteen megabytes: eight thousand partitions, each with nine hundred tagged fields."""
    await _topics(scene, {TOPIC: 1})
    tagged = uvarint(900) + b"\5\0" * 900
    body = b"\0" + b"\xff\xff" + bytes(4) + b"\2" + uvarint(len(TOPIC) + 1) + TOPIC.encode()
    body += uvarint(8_001) + (bytes(5) + tagged) * 8_000 + b"\0\0"
    await _again(scene, apis.PRODUCE, 9, _forever(body))


@attack(memory_max=256 << 20)
async def fetch_of_tagged_fields(scene: Scene) -> None:
    """Four megabytes: two thousand partitions, each with nine hundred tagged fields."""
    tagged = uvarint(900) + b"\5\0" * 900
    partition = bytes(4) + b"\xff\xff\xff\xff" + bytes(8) + b"\xff" * 12 + bytes(4) + tagged
    head = bytes(4) + bytes(13) + bytes(4) + b"\xff\xff\xff\xff" + b"\2\7canary"
    body = head + uvarint(2_001) + partition * 2_000 + b"\0\1\1\0"
    await asyncio.gather(*[_again(scene, apis.FETCH, 12, _forever(body)) for _ in range(4)])


@attack(memory_max=256 << 20)
async def items_subtracted_from_a_list(scene: Scene) -> None:
    """A megabyte of items that a config's thousand do not have."""
    await _topics(scene, {TOPIC: 1})
    peer = await scene.connect()
    before = AlterableConfig(name=THROTTLED, value=",".join(["0:0"] * 1_000))
    resource = AlterConfigsResource(resource_type=TOPIC_TYPE, resource_name=TOPIC, configs=[before])
    altered = await peer.ask(apis.ALTER_CONFIGS, 1, AlterConfigsRequest(resources=[resource]))
    assert not error_of(altered), altered
    config = IncrementalAlterableConfig(
        name=THROTTLED, config_operation=3, value=",".join(["b"] * 500_000)
    )
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsResource(
                resource_type=TOPIC_TYPE, resource_name=TOPIC, configs=[config]
            )
        ]
    )
    body = messages.encode_request(apis.INCREMENTAL_ALTER_CONFIGS, 1, request)
    await _again(scene, apis.INCREMENTAL_ALTER_CONFIGS, 1, _forever(body))


@attack(memory_max=320 << 20)
async def changes_of_very_many_topics(scene: Scene) -> None:
    """As many as a request may name, none of which is there."""

    def again(key: int, version: int, request: Any) -> Any:
        return _again(scene, key, version, _forever(messages.encode_request(key, version, request)))

    names = [f"t{number}" for number in range(49_000)]
    await asyncio.gather(
        again(
            apis.ALTER_CONFIGS,
            1,
            AlterConfigsRequest(
                resources=[
                    AlterConfigsResource(resource_type=TOPIC_TYPE, resource_name=name)
                    for name in names
                ]
            ),
        ),
        again(
            apis.CREATE_PARTITIONS,
            2,
            CreatePartitionsRequest(
                topics=[
                    CreatePartitionsTopic(name=name, count=2, assignments=None) for name in names
                ],
                timeout_ms=1_000,
            ),
        ),
        again(
            apis.DELETE_TOPICS,
            5,
            DeleteTopicsRequest(
                topic_names=[*names, *(f"u{name}" for name in names)], timeout_ms=1_000
            ),
        ),
    )


@attack(memory_max=256 << 20)
async def searches_by_time_beside_a_compacted_topic(scene: Scene) -> None:
    """From a hundred connections, in a batch of 120,000 records; a neighbour writes where keys are
    looked at, which takes a turn in the same lane."""
    await _topics(scene, {TOPIC: 1})
    await _topics(scene, {"compacted": 1}, cleanup_policy="compact")
    peer = await scene.connect()
    batch = bomb(SMALLEST, 120_000, Codec.ZSTD, ahead_ms=1_000_000)
    produced = await peer.ask(apis.PRODUCE, 9, requests.produce({(TOPIC, 0): batch}))
    assert not error_of(produced), produced
    wanted = requests.list_offsets([(TOPIC, 0)], int(time.time() * 1000) + 900_000)
    body = messages.encode_request(apis.LIST_OFFSETS, 7, wanted)
    searches = [
        asyncio.create_task(_again(scene, apis.LIST_OFFSETS, 7, _forever(body))) for _ in range(100)
    ]
    await asyncio.sleep(1.0)
    neighbour = await scene.connect(who="neighbour")
    keyed = [Record(timestamp=int(time.time() * 1000), key=b"k") for _ in range(1_000)]
    request = requests.produce({("compacted", 0): build_batch(keyed)}, timeout_ms=30_000)
    try:
        async with asyncio.timeout(2.0):
            assert not error_of(await neighbour.ask(apis.PRODUCE, 9, request))
    finally:
        await asyncio.gather(*searches)
