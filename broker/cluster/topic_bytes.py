"""Metadata responses from topics that are kept encoded. Pure.

The topics are nearly all of a Metadata response, and the same for all clients of a zone and a
version until the agents change. So a topic's bytes are made once, cut out of a response with
that one topic, and kept with the placement they were made from; a response is its head and the
bytes of its topics. Only where the array of topics lies must be known here; a test holds the
result against the codec for every version.
"""

import functools
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Final

from broker.cluster.placement import Placement
from coordinator.tables.topics import Topic
from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
    encode_response,
)
from protocol.messages.codec import encode_slices
from protocol.primitives import array_count
from protocol.types import Buffer

KEPT_BYTES_MAX: Final = 32 << 20
"""Of one placement; beyond it, all is made anew (a topic of 10 000 partitions is 0.4 MB)."""

_BEHIND_TOPICS: Final = (0, 0, 0, 0, 0, 0, 0, 0, 4, 5, 5, 1, 1, 3)
"""Bytes behind the array of topics, by version: cluster operations (v8-10), error (v13), tags."""


_SLICE: Final = 250
"""Topics, or partitions of one, made between two pauses."""


def topic_shape(
    topic: Topic, *, placement: Placement, zone: str, operations: int, spread: bool = False
) -> Generator[None, None, MetadataResponseTopic]:
    """A topic with the agents that the clients of a zone are told to use, made with pauses."""
    count = topic.partition_count
    partitions: list[MetadataResponsePartition] = []
    for first in range(0, count, _SLICE):
        if first:
            yield
        indexes = range(first, min(first + _SLICE, count))
        chosen = placement.replicas(topic.topic_id, indexes, zone=zone, spread=spread)
        for index, nodes in zip(indexes, chosen, strict=True):
            replicas = list(nodes)
            partitions.append(
                MetadataResponsePartition(
                    error_code=ErrorCode.NONE if replicas else ErrorCode.LEADER_NOT_AVAILABLE,
                    partition_index=index,
                    leader_id=replicas[0] if replicas else -1,
                    leader_epoch=placement.leader_epoch,
                    replica_nodes=replicas,
                    isr_nodes=replicas,
                )
            )
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=partitions,
        topic_authorized_operations=operations,
    )


def encode_metadata(
    version: int,
    head: MetadataResponse,
    found: Sequence[Topic | MetadataResponseTopic],
    *,
    placement: Placement,
    zone: str,
    operations: int | Callable[[str], int],
    spread: bool = False,
) -> Generator[None, None, list[Buffer]]:
    """The body of a Metadata response: `head`, whose topics are empty, with what was found.

    `operations`: authorized ones, of every topic or by its name. `spread`: over the nodes of agents.

    Made with pauses: many topics, and those of many partitions, take a while.
    """
    assert not head.topics
    empty = encode_response(apis.METADATA, version, head)
    flexible = apis.is_flexible(apis.METADATA, version)
    topics_at = len(empty) - _BEHIND_TOPICS[version] - len(array_count(0, flexible=flexible))
    zone = zone if placement.has_zone(zone) else ""
    shape = partial(topic_shape, placement=placement, zone=zone, spread=spread)
    parts = [empty[:topics_at], array_count(len(found), flexible=flexible)]
    for number, topic in enumerate(found, start=1):
        if number % _SLICE == 0:
            yield
        if isinstance(topic, Topic):
            bits = operations if isinstance(operations, int) else operations(topic.name)
            key = (version, zone, spread, bits, topic.topic_id, topic.partition_count)
            encoded = placement.kept.get(key)
            if encoded is None:
                made = yield from shape(topic, operations=bits)
                encoded = yield from _encode_topic(version, made)
                _keep(placement, (*key[:-1], len(made.partitions)), encoded)
            parts.append(encoded)
        else:
            parts.append((yield from _encode_topic(version, topic)))
    parts.append(empty[len(empty) - _BEHIND_TOPICS[version] :])
    return [b"".join(parts)]


def _keep(placement: Placement, key: tuple[object, ...], encoded: bytes) -> None:
    """A topic as an element of the array of topics; kept from now on."""
    kept = placement.kept
    if key not in kept:  # Somebody else may have made it during a pause.
        placement.kept_bytes += len(encoded)
        if placement.kept_bytes > KEPT_BYTES_MAX:
            kept.clear()
            placement.kept_bytes = len(encoded)
        kept[key] = encoded


def _encode_topic(version: int, topic: MetadataResponseTopic) -> Generator[None, None, bytes]:
    whole = yield from encode_slices(apis.METADATA, version, MetadataResponse(topics=[topic]))
    encoded: bytes = whole[_before_topics(version) : len(whole) - _BEHIND_TOPICS[version]]
    return encoded


@functools.cache
def _before_topics(version: int) -> int:
    """Bytes before the first topic. One topic and none have counts of the same length."""
    return (
        len(encode_response(apis.METADATA, version, MetadataResponse())) - _BEHIND_TOPICS[version]
    )
