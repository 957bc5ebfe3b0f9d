"""Produce, by hand: requests v3 to v13 without copying records, and their answers.

Versions differ in layout only: v5 log start offset, v8 record errors and message, v9 flexible,
v10 current leader and node endpoints (KIP-951), v13 topic ids instead of names (KIP-516). Bytes
behind the message are ignored, as Kafka ignores them. Tests hold both directions against kio.

Leaves out: what is inside the records (`protocol.records`), and what the codes mean.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from protocol import apis
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages.budgets import ELEMENTS_MAX, OverBudgetError
from protocol.primitives import (
    INT32,
    MALFORMED,
    array_count,
    malformed,
    nullable_string,
    read_array_count,
    read_nullable_string,
    read_string,
    read_topic_id,
    read_uvarint,
    skip_tagged_fields,
    string,
    tagged_fields,
)
from protocol.types import Buffer, TopicId

ProducePartition = tuple[int, memoryview | None]
"""Partition and its record batches, a view into the frame; None when null was sent."""

ProduceTopic = tuple[str | None, TopicId | None, list[ProducePartition]]
"""Name (until v12) or topic id (from v13), the other one None; partitions as sent."""

TOPIC_IDS_FROM: Final = 13
_FLEXIBLE_FROM: Final = 9
_LOG_START_FROM: Final = 5
_RECORD_ERRORS_FROM: Final = 8
_LEADER_FROM: Final = 10


@dataclass(slots=True)
class ProduceRequest:
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


class NodeEndpoint(NamedTuple):
    """Where a leader named in an answer is found (KIP-951)."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(slots=True)
class PartitionResult:
    """What became of one partition of a request. Offsets and times are -1 where there is none."""

    partition: int
    error: int = ErrorCode.NONE
    base_offset: int = -1
    log_append_time: int = -1
    """Ms, for a topic with LogAppendTime, else -1."""
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()
    """Index of the record in the batch, and why it was refused (KIP-467)."""
    error_message: str | None = None
    current_leader: tuple[int, int] | None = None
    """Node id and leader epoch, with NOT_LEADER_OR_FOLLOWER."""


TopicResult = tuple[str | None, TopicId | None, Sequence[PartitionResult]]
"""As `ProduceTopic`; the one that the version sends must be there."""

_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_PARTITION_FIXED: Final = struct.Struct(">ii")
_PARTITION_FLEXIBLE: Final = struct.Struct(">iB")
_RESULT: Final = struct.Struct(">ihqq")
_RESULT_LOG_START: Final = struct.Struct(">ihqqq")
_LEADER: Final = struct.Struct(">iix")

# The end of a partition about which there is nothing more to say, by version.
_NO_ERRORS_FIXED: Final = b"\0\0\0\0\xff\xff"
_NO_ERRORS_FLEXIBLE: Final = b"\x01\0\0"


def parse_request(version: int, body: Buffer) -> ProduceRequest:
    """Parse a request's body; records stay where they are. Raises ProtocolError."""
    view = memoryview(body)
    try:
        return _parse_request(version, view)
    except MALFORMED as error:
        raise malformed("a Produce request", error) from error


def _parse_request(version: int, view: memoryview) -> ProduceRequest:
    flexible = version >= _FLEXIBLE_FROM
    transactional_id, at = read_nullable_string(view, 0, flexible=flexible)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(view, at)
    count, at = read_array_count(view, at + 6, flexible=flexible)
    topics: list[ProduceTopic] = []
    left = ELEMENTS_MAX[apis.PRODUCE] - count
    if left < 0:
        raise OverBudgetError(apis.PRODUCE)
    for _ in range(count):
        name: str | None = None
        topic_id: TopicId | None = None
        if version >= TOPIC_IDS_FROM:
            topic_id, at = read_topic_id(view, at)
        else:
            name, at = read_string(view, at, flexible=flexible)
        if flexible:
            partitions, at, tagged = _partitions_flexible(view, at, left)
            left -= tagged
        else:
            partitions, at = _partitions_fixed(view, at, left)
        left -= len(partitions)
        topics.append((name, topic_id, partitions))
    if flexible:
        skip_tagged_fields(view, at)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _partitions_fixed(view: memoryview, at: int, most: int) -> tuple[list[ProducePartition], int]:
    count, at = read_array_count(view, at, flexible=False)
    if count > most:
        raise OverBudgetError(apis.PRODUCE)
    partitions: list[ProducePartition] = []
    end = len(view)
    unpack = _PARTITION_FIXED.unpack_from
    for _ in range(count):
        partition, size = unpack(view, at)
        at += 8
        if 0 <= size <= end - at:
            partitions.append((partition, view[at : at + size]))
            at += size
        elif size == -1:
            partitions.append((partition, None))
        else:
            raise ProtocolError(f"records of {size} bytes with {end - at} bytes left")
    return partitions, at


def _partitions_flexible(
    view: memoryview, at: int, most: int
) -> tuple[list[ProducePartition], int, int]:
    """Partitions, the place after them, and how many bytes of tagged fields there were: nobody
    sends any, and so each counts as an element."""
    count, at = read_array_count(view, at, flexible=True)
    if count > most:
        raise OverBudgetError(apis.PRODUCE)
    partitions: list[ProducePartition] = []
    end = len(view)
    unpack = _PARTITION_FLEXIBLE.unpack_from
    tagged = 0
    for _ in range(count):
        # Nearly all lengths take one or two bytes; reading those here saves two calls.
        partition, first = unpack(view, at)
        if first < 0x80:
            size = first - 1
            at += 5
        elif (second := view[at + 5]) < 0x80:
            size = (first & 0x7F | second << 7) - 1
            at += 6
        else:
            size, at = read_uvarint(view, at + 4)
            size -= 1
        if size < 0:
            partitions.append((partition, None))
        elif size <= end - at:
            partitions.append((partition, view[at : at + size]))
            at += size
        else:
            raise ProtocolError(f"records of {size} bytes with {end - at} bytes left")
        if view[at] == 0:
            at += 1
            continue
        after = skip_tagged_fields(view, at)
        tagged += after - at
        if count + tagged > most:
            raise OverBudgetError(apis.PRODUCE)
        at = after
    after = skip_tagged_fields(view, at)
    return partitions, after, tagged + after - at - 1


def encode_response(
    version: int,
    topics: Sequence[TopicResult],
    *,
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """The body of an answer, without header. What the version does not know is left out."""
    flexible = version >= _FLEXIBLE_FROM
    pack = _RESULT_LOG_START.pack
    no_errors = b""
    if version >= _RECORD_ERRORS_FROM:
        no_errors = _NO_ERRORS_FLEXIBLE if flexible else _NO_ERRORS_FIXED
    out = bytearray(array_count(len(topics), flexible=flexible))
    for name, topic_id, results in topics:
        if version >= TOPIC_IDS_FROM:
            assert topic_id is not None
            out += topic_id
        else:
            assert name is not None
            out += string(name, flexible=flexible)
        out += array_count(len(results), flexible=flexible)
        for result in results:
            if result.error or version < _LOG_START_FROM:
                _add_result(out, version, result)
            else:
                out += pack(
                    result.partition,
                    0,
                    result.base_offset,
                    result.log_append_time,
                    result.log_start_offset,
                )
                out += no_errors
        if flexible:
            out += b"\0"
    out += INT32.pack(throttle_time_ms)
    if flexible:
        if node_endpoints and version >= _LEADER_FROM:
            out += tagged_fields([(0, encode_node_endpoints(node_endpoints))])
        else:
            out += b"\0"
    return bytes(out)


def _add_result(out: bytearray, version: int, result: PartitionResult) -> None:
    """A refusal, or any result in the versions before log start offsets."""
    head = (result.partition, result.error, result.base_offset, result.log_append_time)
    if version < _LOG_START_FROM:
        out += _RESULT.pack(*head)
        return
    out += _RESULT_LOG_START.pack(*head, result.log_start_offset)
    if version < _RECORD_ERRORS_FROM:
        return
    flexible = version >= _FLEXIBLE_FROM
    out += array_count(len(result.record_errors), flexible=flexible)
    for index, message in result.record_errors:
        out += INT32.pack(index) + nullable_string(message, flexible=flexible)
        if flexible:
            out += b"\0"
    out += nullable_string(result.error_message, flexible=flexible)
    if result.current_leader is not None and version >= _LEADER_FROM:
        out += tagged_fields([(0, _LEADER.pack(*result.current_leader))])
    elif flexible:
        out += b"\0"


def encode_node_endpoints(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """The value of the tagged field `NodeEndpoints` of Produce v10+ and Fetch v16+."""
    out = bytearray(array_count(len(endpoints), flexible=True))
    for endpoint in endpoints:
        out += INT32.pack(endpoint.node_id) + string(endpoint.host, flexible=True)
        out += INT32.pack(endpoint.port) + nullable_string(endpoint.rack, flexible=True) + b"\0"
    return bytes(out)
