"""What the exporter is told about a topic: the spans of its partitions, as plain JSON values.

Pure; the admin endpoint adds where the store is. Only what read_committed may see is in it:
spans end at the last stable offset.
"""

from collections.abc import Mapping
from typing import Any

from coordinator.machine import Machine
from coordinator.partitions import Partition
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicId


def topic_plan(
    machine: Machine, topic_id: TopicId, *, partitions: Mapping[int, int] | None = None
) -> dict[str, Any]:
    """The plan of one topic at the machine's position.

    `partitions`: the offset to begin at for each partition wanted (the log start when that is
    later); None: all, from the log start. A span is [chunk key, start, length, base offset,
    records, newest timestamp]; the first may begin before the offset asked for, as spans are
    whole. Raises KafkaError (UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION).
    """
    topic = machine.topics.by_id(topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic of id {topic_id.hex()}")
    if partitions is None:
        partitions = dict.fromkeys(range(topic.partition_count), 0)
    views = []
    for number, from_offset in sorted(partitions.items()):
        partition = machine.partitions.get(topic_id, number)
        if partition is None:
            reason = f"topic {topic.name} has no partition {number}"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
        views.append(_partition_plan(partition, from_offset))
    return {
        "topic": topic.name,
        "topic_id": topic_id.hex(),
        "position": machine.position,
        "partitions": views,
    }


def _partition_plan(partition: Partition, from_offset: int) -> dict[str, Any]:
    first = partition.find(max(from_offset, partition.log_start))
    spans = [partition.span(index) for index in range(first, partition.span_count)]
    return {
        "partition": partition.partition,
        "log_start": partition.log_start,
        "end": partition.last_stable,
        "spans": [
            [
                span.chunk.key,
                span.start,
                span.length,
                span.base_offset,
                span.records,
                span.timestamp_max,
            ]
            for span in spans
            if span.base_offset < partition.last_stable
        ],
    }
