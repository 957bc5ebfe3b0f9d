"""Requests of clients from plain values, and what their answers say, whatever their shapes.

A partition is a pair of topic and number. Clients on sockets (`sockets`), in memory (`agents`) and
simulated ones (`tests.sim`) send the same requests; versions are the caller's. `error_of` and
`rows_of` read answers.
"""

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from protocol import messages
from protocol.errors import ErrorCode
from protocol.framing import parse_response_header, request_frame
from protocol.messages import hot
from protocol.records import BatchHeader, Record, iterate, read_header
from protocol.types import Buffer, TopicId

T = TypeVar("T")
Partition = tuple[str, int]
Producer = tuple[int, int]
"""Id and epoch."""
NOBODY: Producer = (-1, -1)
EARLIEST, LATEST = -2, -1
READ_COMMITTED = 1
GROUP, TRANSACTION = 0, 1
"""What a coordinator is of."""


class Exchange:
    """The requests of one connection as bytes, numbered from 1, and their responses."""

    def __init__(self) -> None:
        self._sent: list[tuple[int, int]] = []

    def request(
        self,
        api_key: int,
        version: int,
        request: Any,
        *,
        client_id: str | None = None,
        body: bytes | None = None,
    ) -> bytes:
        """The frame. `body`: instead of a request's."""
        if body is None:
            body = messages.encode_request(api_key, version, request)
        self._sent.append((api_key, version))
        return request_frame(api_key, version, self.sent, client_id, body)

    @property
    def sent(self) -> int:
        """The number of the newest request."""
        return len(self._sent)

    def response(self, frame: bytes) -> tuple[int, Any]:
        """The number of the request, and its response."""
        key, version = self._sent[int.from_bytes(frame[:4]) - 1]
        number, body = parse_response_header(key, version, frame)
        return number, messages.decode_response(key, version, body)


def create_topics(
    partition_counts: Mapping[str, int], configs: Mapping[str, str] | None = None
) -> messages.CreateTopicsRequest:
    pairs = (configs or {}).items()
    return messages.CreateTopicsRequest(
        topics=[
            messages.CreatableTopic(
                name=name,
                num_partitions=count,
                replication_factor=1,
                configs=[
                    messages.CreatableTopicConfig(name=key, value=text) for key, text in pairs
                ],
            )
            for name, count in partition_counts.items()
        ],
        timeout_ms=5000,
    )


def metadata(topic: str) -> messages.MetadataRequest:
    return messages.MetadataRequest(
        topics=[messages.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )


def alter_configs(
    topic: str, configs: Mapping[str, str]
) -> messages.IncrementalAlterConfigsRequest:
    rows = [
        messages.IncrementalAlterableConfig(name=name, config_operation=0, value=value)
        for name, value in configs.items()
    ]
    resource = messages.IncrementalAlterConfigsResource(
        resource_type=2, resource_name=topic, configs=rows
    )
    return messages.IncrementalAlterConfigsRequest(resources=[resource])


def produce(
    batches: Mapping[Partition, Buffer],
    *,
    transactional_id: str | None = None,
    timeout_ms: int = 10_000,
) -> hot.ProduceRequest:
    topics = [
        hot.TopicProduceData(
            name=topic,
            partition_data=[hot.PartitionProduceData(index=i, records=data) for i, data in rows],
        )
        for topic, rows in _by_topic(batches.items())
    ]
    return hot.ProduceRequest(
        transactional_id=transactional_id, acks=-1, timeout_ms=timeout_ms, topic_data=topics
    )


def fetch(
    offsets: Mapping[Partition, int],
    *,
    max_wait_ms: int = 100,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    isolation_level: int = 0,
    topic_id: TopicId | None = None,
) -> hot.FetchRequest:
    """`topic_id`: of the one topic that is asked for, from v13 on."""
    topics = [
        hot.FetchTopic(
            topic=topic,
            partitions=[
                hot.FetchPartition(
                    partition=index, fetch_offset=offset, partition_max_bytes=partition_max_bytes
                )
                for index, offset in rows
            ],
        )
        for topic, rows in _by_topic(offsets.items())
    ]
    if topic_id is not None:
        topics = [hot.FetchTopic(topic_id=topic_id, partitions=topics[0].partitions)]
    return hot.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        topics=topics,
    )


def list_offsets(
    partitions: Iterable[Partition], timestamp: int, *, isolation_level: int = 0
) -> messages.ListOffsetsRequest:
    """`timestamp`: or EARLIEST, LATEST."""
    topics = [
        messages.ListOffsetsTopic(
            name=topic,
            partitions=[
                messages.ListOffsetsPartition(partition_index=index, timestamp=timestamp)
                for index, _ in rows
            ],
        )
        for topic, rows in _by_topic((partition, None) for partition in partitions)
    ]
    return messages.ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation_level, topics=topics
    )


def find_coordinator(key: str, key_type: int) -> messages.FindCoordinatorRequest:
    return messages.FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=[key])


def offset_fetch(
    group_id: str, partitions: Iterable[Partition], *, stable: bool = False
) -> messages.OffsetFetchRequest:
    topics = [
        messages.OffsetFetchRequestTopic(name=topic, partition_indexes=[i for i, _ in rows])
        for topic, rows in _by_topic((partition, None) for partition in partitions)
    ]
    return messages.OffsetFetchRequest(
        group_id=group_id,
        topics=topics,
        require_stable=stable,
        groups=[messages.OffsetFetchRequestGroup(group_id=group_id, topics=topics)],
    )


def init_producer_id(
    transactional_id: str | None = None, *, timeout_ms: int = 1000, producer: Producer = NOBODY
) -> messages.InitProducerIdRequest:
    return messages.InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer[0],
        producer_epoch=producer[1],
    )


def add_partitions(
    transactional_id: str, producer: Producer, partitions: Collection[Partition]
) -> messages.AddPartitionsToTxnRequest:
    return messages.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[
            messages.AddPartitionsToTxnTopic(name=topic, partitions=[i for i, _ in rows])
            for topic, rows in _by_topic((partition, None) for partition in partitions)
        ],
    )


def end_txn(transactional_id: str, producer: Producer, *, commit: bool) -> messages.EndTxnRequest:
    return messages.EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        committed=commit,
    )


def _by_topic(rows: Iterable[tuple[Partition, T]]) -> list[tuple[str, list[tuple[int, T]]]]:
    topics: dict[str, list[tuple[int, T]]] = {}
    for (topic, index), value in rows:
        topics.setdefault(topic, []).append((index, value))
    return [*topics.items()]


# Answers.

_NO_ERRORS = (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED)


def rows_of(answer: Any) -> dict[Partition, Any]:
    """The row of each partition, of a Produce, Fetch, ListOffsets or OffsetFetch."""
    if isinstance(answer, hot.ProduceResponse):
        return {(t.name, row.index): row for t in answer.responses for row in t.partition_responses}
    if isinstance(answer, hot.FetchResponse):
        topics = answer.responses
        return {(t.topic, row.partition_index): row for t in topics for row in t.partitions}
    return {(t.name, row.partition_index): row for t in answer.topics for row in t.partitions}


def error_of(answer: Any) -> ErrorCode:
    """The first error in an answer, the outermost before others; NONE when there is none."""
    return next(errors_in(answer), ErrorCode.NONE)


def errors_in(answer: Any) -> Iterator[ErrorCode]:
    """All that says that something did not happen, but for what was not even tried."""
    inner = []
    for each in dataclasses.fields(answer):
        value = getattr(answer, each.name)
        if isinstance(value, list):
            inner += [row for row in value if dataclasses.is_dataclass(row)]
        elif each.name.endswith("error_code") and value not in _NO_ERRORS:
            yield ErrorCode(value)
    for row in inner:
        yield from errors_in(row)


def batches_in(data: Buffer | None) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """The batches of a fetch, with their records."""
    held, at = bytes(data or b""), 0
    while at < len(held):
        header = read_header(held, at)
        yield header, [*iterate(held, at)]
        at += header.size
