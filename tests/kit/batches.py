"""Record batches, as producers send them, and the requests that write and read them."""

from typing import Any

from protocol.messages import hot
from protocol.records import Record, batch_positions, build_batch, iterate, read_header
from protocol.types import TopicId
from tests.kit.agents import NOW_MS


def batch(
    *values: bytes,
    key: bytes | None = None,
    timestamp: int = NOW_MS,
    codec: int = 0,
    attributes: int = 0,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
) -> bytes:
    """A batch of these values (one record of 100 bytes when none are given)."""
    return build_batch(
        [Record(timestamp=timestamp, key=key, value=value) for value in values or (bytes(100),)],
        codec=codec,
        attributes=attributes,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def records_of(data: bytes) -> list[Record]:
    """Of whole batches, one after the other; control records are left out."""
    return [
        record
        for start in batch_positions(data)[0]
        if not read_header(data, start).is_control
        for record in iterate(data, start)
    ]


def produce_request(
    topic: str,
    *batches: bytes,
    partition: int = 0,
    acks: int = -1,
    timeout_ms: int = 30_000,
    transactional_id: str | None = None,
) -> hot.ProduceRequest:
    """One batch for each of the partitions from `partition` on."""
    rows = [
        hot.PartitionProduceData(index=at, records=data)
        for at, data in enumerate(batches, partition)
    ]
    return hot.ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[hot.TopicProduceData(name=topic, partition_data=rows)],
    )


def fetch_request(
    topic: str | bytes,
    *offsets: int,
    partition: int = 0,
    partition_max_bytes: int = 1 << 20,
    current_leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    **fields: Any,
) -> hot.FetchRequest:
    """The partitions from `partition` on at these offsets, of a topic by name or id. It waits not."""
    rows = [
        hot.FetchPartition(
            partition=at,
            fetch_offset=offset,
            partition_max_bytes=partition_max_bytes,
            current_leader_epoch=current_leader_epoch,
            last_fetched_epoch=last_fetched_epoch,
        )
        for at, offset in enumerate(offsets, partition)
    ]
    asked = hot.FetchTopic(partitions=rows)
    if isinstance(topic, str):
        asked.topic = topic
    else:
        asked.topic_id = TopicId(topic)
    given: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 30} | fields
    return hot.FetchRequest(topics=[asked], **given)
