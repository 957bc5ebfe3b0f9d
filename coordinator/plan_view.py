"""What the exporter is told about a topic: the spans of its partitions, as plain JSON values.

Pure; the admin endpoint adds where the store is. Only what is stable is in it: spans and markers
end at the last stable offset, and the aborted transactions among them are named.
"""

from collections.abc import Mapping
from typing import Any

from coordinator.machine import Machine
from coordinator.partitions import Partition
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicId
from storage.spans import Marker


def topic_plan(
    machine: Machine, topic_id: TopicId, *, partitions: Mapping[int, int] | None = None
) -> dict[str, Any]:
    """The plan of one topic at the machine's position.

    `partitions`: the offset to begin at for each partition wanted (the log start when that is
    later); None: all, from the log start. A span is [chunk key, start, length, base offset,
    records, newest timestamp]; the first may begin before the offset asked for, and the last may
    reach beyond the end, as spans are whole. A marker is its offset; spans and markers together
    are dense. An aborted transaction is [producer id, first offset, offset of its marker]: the
    batches of that producer between are not committed.

    Raises KafkaError (UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION).
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
    start, end = max(from_offset, partition.log_start), partition.last_stable
    spans: list[list[Any]] = []
    markers: list[int] = []
    for index in range(partition.find(start), partition.find(end - 1) + 1 if start < end else 0):
        span = partition.row(index)
        if isinstance(span, Marker):
            markers.append(span.base_offset)
        else:
            chunk, *place = span
            spans.append([chunk.key, *place])
    return {
        "partition": partition.partition,
        "log_start": partition.log_start,
        "end": end,
        "spans": spans,
        "markers": markers,
        "aborted": [list(aborted) for aborted in partition.aborted(start, end)],
    }
