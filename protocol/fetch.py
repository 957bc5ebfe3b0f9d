"""Fetch, by hand: requests v4 to v18, and answers whose record bytes are never copied.

Versions differ in layout only: v5 log start offset, v7 sessions (KIP-227), v9 current leader epoch
(KIP-320), v11 rack and preferred replica (KIP-392), v12 flexible and last fetched epoch (KIP-595),
v13 topic ids (KIP-516), v15 replica state instead of replica id (KIP-903), v16 node endpoints
(KIP-951), v17 and v18 tags of followers, which are read over. Bytes behind the message are
ignored, as Kafka ignores them. Tests hold both directions against kio.

Leaves out: sessions and limits (the broker's), and what is inside the records.
"""

import struct
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Final

from protocol import apis
from protocol.errors import ErrorCode
from protocol.messages.layouts import Meter
from protocol.primitives import (
    INT32,
    MALFORMED,
    array_count,
    malformed,
    read_array_count,
    read_string,
    read_tagged_fields,
    read_topic_id,
    skip_tagged_fields,
    string,
    tagged_fields,
    uvarint,
)
from protocol.produce import NodeEndpoint, encode_node_endpoints
from protocol.types import Buffer, TopicId

TOPIC_IDS_FROM: Final = 13
_LOG_START_FROM: Final = 5
_SESSIONS_FROM: Final = 7
_LEADER_EPOCH_FROM: Final = 9
_RACK_FROM: Final = 11
_FLEXIBLE_FROM: Final = 12
_REPLICA_STATE_FROM: Final = 15
_ENDPOINTS_FROM: Final = 16

_READ_AT_ONCE: Final = 32
"""Partitions, between two looks at what they cost."""

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1


@dataclass(slots=True)
class FetchPartition:
    """One partition of a request; epochs are -1 where the client gives none."""

    partition: int
    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    """Only followers send it."""


FetchTopic = tuple[str | None, TopicId | None, list[FetchPartition]]
"""Name (until v12) or topic id (from v13), the other one None; partitions as sent."""

ForgottenTopic = tuple[str | None, TopicId | None, list[int]]
"""Partitions to remove from a session, named likewise."""


@dataclass(slots=True)
class FetchRequest:
    """A Fetch request; what its version lacks has Kafka's default."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    topics: list[FetchTopic]
    session_id: int = 0
    session_epoch: int = -1
    forgotten: list[ForgottenTopic] = field(default_factory=list)
    rack_id: str = ""
    replica_id: int = -1
    """-1 for consumers. Frazil has no followers, but tools may pretend to be one."""


@dataclass(slots=True)
class PartitionAnswer:
    """One partition of an answer. `records` are whole batches, in order, adjacent in offsets.

    No records are sent as bytes of length 0, never as null: librdkafka wants a length.
    """

    partition: int
    error: int = ErrorCode.NONE
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Sequence[Buffer] = ()
    records_bytes: int = 0
    """Sum of the lengths of `records`."""
    aborted: Sequence[tuple[int, int]] | None = None
    """(producer id, first offset) sorted by first offset; None for read_uncommitted."""
    preferred_read_replica: int = -1
    diverging_epoch: tuple[int, int] | None = None
    """Epoch and its end offset."""
    current_leader: tuple[int, int] | None = None
    """Node id and leader epoch, with errors 6 and 74."""


TopicAnswer = tuple[str | None, TopicId | None, Sequence[PartitionAnswer]]
"""As `FetchTopic`; the one that the version sends must be there."""


@dataclass(slots=True)
class FetchResponse:
    topics: Sequence[TopicAnswer] = ()
    error: int = ErrorCode.NONE
    """Of the session; there is no place for it before v7."""
    session_id: int = 0
    throttle_time_ms: int = 0
    node_endpoints: Sequence[NodeEndpoint] = ()


_LIMITS: Final = struct.Struct(">iiib")
_SESSION: Final = struct.Struct(">ii")
_RESPONSE: Final = struct.Struct(">ihi")
_PAIR: Final = struct.Struct(">qq")
_ABORTED_FLEXIBLE: Final = struct.Struct(">qqx")
_EPOCH_END: Final = struct.Struct(">iqx")
_LEADER: Final = struct.Struct(">iix")
_PARTITION_V4: Final = struct.Struct(">iqi")
_PARTITION_V5: Final = struct.Struct(">iqqi")
_PARTITION_V9: Final = struct.Struct(">iiqqi")
_PARTITION_V12: Final = struct.Struct(">iiqiqi")
_ANSWER_V4: Final = struct.Struct(">ihqq")
_ANSWER_V5: Final = struct.Struct(">ihqqq")


def parse_request(version: int, body: Buffer) -> FetchRequest:
    """Parse a request's body. Raises ProtocolError."""
    try:
        return _parse_request(version, memoryview(body))
    except MALFORMED as error:
        raise malformed("a Fetch request", error) from error


def parse_slices(version: int, body: Buffer) -> Generator[None, None, FetchRequest]:
    """As `parse_request`, with pauses. Raises OverBudgetError, before too many are made."""
    try:
        return (yield from _parse_slices(version, memoryview(body)))
    except MALFORMED as error:
        raise malformed("a Fetch request", error) from error


def _parse_slices(version: int, view: memoryview) -> Generator[None, None, FetchRequest]:
    flexible = version >= _FLEXIBLE_FROM
    meter = Meter(apis.FETCH)
    request, at = _read_head(version, view)
    count, at = read_array_count(view, at, flexible=flexible)
    meter.take(count)
    for _ in range(count):
        name, topic_id, at = _read_topic(view, at, version)
        left, at = read_array_count(view, at, flexible=flexible)
        meter.take(left)
        partitions: list[FetchPartition] = []
        while left:
            some = min(left, _READ_AT_ONCE, meter.left)
            more, at = _read_some(view, at, version, some, until=meter.pause_at)
            partitions += more
            left -= len(more)
            meter.left -= len(more)
            if meter.left <= 0 or at > meter.pause_at:
                yield
                meter.begin_slice(at)
        if flexible:
            at = skip_tagged_fields(view, at)
        request.topics.append((name, topic_id, partitions))
        meter.left -= 1
        if meter.left <= 0 or at > meter.pause_at:
            yield
            meter.begin_slice(at)
    return (yield from _read_end_slices(request, version, view, at, meter))


def _read_end_slices(
    request: FetchRequest, version: int, view: memoryview, at: int, meter: Meter
) -> Generator[None, None, FetchRequest]:
    """What follows the topics; only forgotten ones may be many."""
    if version >= _SESSIONS_FROM:
        flexible = version >= _FLEXIBLE_FROM
        count, at = read_array_count(view, at, flexible=flexible)
        meter.take(count)
        for _ in range(count):
            forgotten, at = _read_forgotten_topic(view, at, version, meter)
            request.forgotten.append(forgotten)
            meter.left -= 1
            if meter.left <= 0 or at > meter.pause_at:
                yield
                meter.begin_slice(at)
    _read_rack(request, version, view, at)
    return request


def _parse_request(version: int, view: memoryview) -> FetchRequest:
    request, at = _read_head(version, view)
    topics = request.topics
    count, at = read_array_count(view, at, flexible=version >= _FLEXIBLE_FROM)
    for _ in range(count):
        name, topic_id, at = _read_topic(view, at, version)
        partitions, at = _read_partitions(view, at, version)
        topics.append((name, topic_id, partitions))
    if version >= _SESSIONS_FROM:
        request.forgotten, at = _read_forgotten(view, at, version)
    _read_rack(request, version, view, at)
    return request


def _read_head(version: int, view: memoryview) -> tuple[FetchRequest, int]:
    """A request without topics, and where they are."""
    at = 0
    replica_id = -1
    if version < _REPLICA_STATE_FROM:
        replica_id = INT32.unpack_from(view, 0)[0]
        at = 4
    max_wait_ms, min_bytes, max_bytes, isolation_level = _LIMITS.unpack_from(view, at)
    at += 13
    session_id, session_epoch = 0, -1
    if version >= _SESSIONS_FROM:
        session_id, session_epoch = _SESSION.unpack_from(view, at)
        at += 8
    request = FetchRequest(
        max_wait_ms, min_bytes, max_bytes, isolation_level, [], session_id, session_epoch
    )
    request.replica_id = replica_id
    return request, at


def _read_rack(request: FetchRequest, version: int, view: memoryview, at: int) -> None:
    """The end of a request."""
    flexible = version >= _FLEXIBLE_FROM
    if version >= _RACK_FROM:
        request.rack_id, at = read_string(view, at, flexible=flexible)
    if flexible:
        fields, _ = read_tagged_fields(view, at)
        if version >= _REPLICA_STATE_FROM and 1 in fields:
            request.replica_id = INT32.unpack_from(fields[1])[0]


def _read_topic(view: memoryview, at: int, version: int) -> tuple[str | None, TopicId | None, int]:
    if version >= TOPIC_IDS_FROM:
        topic_id, at = read_topic_id(view, at)
        return None, topic_id, at
    name, at = read_string(view, at, flexible=version >= _FLEXIBLE_FROM)
    return name, None, at


def _read_partitions(view: memoryview, at: int, version: int) -> tuple[list[FetchPartition], int]:
    if version >= _FLEXIBLE_FROM:
        count, at = read_array_count(view, at, flexible=True)
        partitions, at = _read_flexible(view, at, count, len(view))
        return partitions, at + 1 if view[at] == 0 else skip_tagged_fields(view, at)
    count, at = read_array_count(view, at, flexible=False)
    return _read_fixed(view, at, version, count)


def _read_some(
    view: memoryview, at: int, version: int, count: int, *, until: int
) -> tuple[list[FetchPartition], int]:
    """So many partitions, or as many as begin before `until`: each may have a thousand tagged fields."""
    if version >= _FLEXIBLE_FROM:
        return _read_flexible(view, at, count, until)
    return _read_fixed(view, at, version, count)


def _read_fixed(
    view: memoryview, at: int, version: int, count: int
) -> tuple[list[FetchPartition], int]:
    partitions: list[FetchPartition] = []
    for _ in range(count):
        leader_epoch = log_start = -1
        if version >= _LEADER_EPOCH_FROM:
            number, leader_epoch, offset, log_start, limit = _PARTITION_V9.unpack_from(view, at)
            at += 28
        elif version >= _LOG_START_FROM:
            number, offset, log_start, limit = _PARTITION_V5.unpack_from(view, at)
            at += 24
        else:
            number, offset, limit = _PARTITION_V4.unpack_from(view, at)
            at += 16
        partitions.append(FetchPartition(number, offset, limit, leader_epoch, -1, log_start))
    return partitions, at


def _read_flexible(
    view: memoryview, at: int, count: int, until: int
) -> tuple[list[FetchPartition], int]:
    partitions: list[FetchPartition] = []
    unpack = _PARTITION_V12.unpack_from
    for _ in range(count):
        if at > until:
            break
        number, leader_epoch, offset, fetched_epoch, log_start, limit = unpack(view, at)
        at += 32
        at = at + 1 if view[at] == 0 else skip_tagged_fields(view, at)
        partitions.append(
            FetchPartition(number, offset, limit, leader_epoch, fetched_epoch, log_start)
        )
    return partitions, at


def _read_forgotten(view: memoryview, at: int, version: int) -> tuple[list[ForgottenTopic], int]:
    flexible = version >= _FLEXIBLE_FROM
    count, at = read_array_count(view, at, flexible=flexible)
    forgotten: list[ForgottenTopic] = []
    for _ in range(count):
        topic, at = _read_forgotten_topic(view, at, version)
        forgotten.append(topic)
    return forgotten, at


def _read_forgotten_topic(
    view: memoryview, at: int, version: int, meter: Meter | None = None
) -> tuple[ForgottenTopic, int]:
    flexible = version >= _FLEXIBLE_FROM
    name, topic_id, at = _read_topic(view, at, version)
    count, at = read_array_count(view, at, flexible=flexible)
    if meter is not None:
        meter.take(count)
    partitions = list(struct.unpack_from(f">{count}i", view, at))
    at += 4 * count
    if flexible:
        at = skip_tagged_fields(view, at)
    return (name, topic_id, partitions), at


def encode_response(version: int, response: FetchResponse) -> list[Buffer]:
    """The body of an answer, without header, as buffers to be written one after the other.

    The buffers of records are the very ones given; what lies between them is joined.
    """
    topics = response.topics
    out = encode_head(version, response, len(topics))
    return _encode_rest(version, topics, encode_end(version, response), out)


def encode_head(version: int, response: FetchResponse, topic_count: int) -> bytearray:
    """What precedes the topics of an answer, of which there are so many."""
    if version >= _SESSIONS_FROM:
        head = (response.throttle_time_ms, response.error, response.session_id)
        out = bytearray(_RESPONSE.pack(*head))
    else:
        out = bytearray(INT32.pack(response.throttle_time_ms))
    out += array_count(topic_count, flexible=version >= _FLEXIBLE_FROM)
    return out


def encode_end(version: int, response: FetchResponse) -> bytes:
    """What follows the topics of an answer."""
    if version < _FLEXIBLE_FROM:
        return b""
    if response.node_endpoints and version >= _ENDPOINTS_FROM:
        return tagged_fields([(0, encode_node_endpoints(response.node_endpoints))])
    return b"\0"


def encode_topics(version: int, topics: Sequence[TopicAnswer]) -> list[Buffer]:
    """Some topics of an answer, as `encode_response` has them."""
    return _encode_rest(version, topics, b"", bytearray())


def _encode_rest(
    version: int, topics: Sequence[TopicAnswer], end: bytes, out: bytearray
) -> list[Buffer]:
    """`out`, the topics and the end."""
    flexible = version >= _FLEXIBLE_FROM
    parts: list[Buffer] = []
    for name, topic_id, answers in topics:
        if version >= TOPIC_IDS_FROM:
            assert topic_id is not None
            out += topic_id
        else:
            assert name is not None
            out += string(name, flexible=flexible)
        out += array_count(len(answers), flexible=flexible)
        for answer in answers:
            if flexible:
                _add_answer_flexible(out, answer)
            else:
                _add_answer_fixed(out, version, answer)
            if answer.records_bytes:
                parts.append(out)
                parts.extend(answer.records)
                out = bytearray()
            if flexible:
                _add_answer_tags(out, answer)
        if flexible:
            out += b"\0"
    out += end
    if out:
        parts.append(out)
    return parts


def _add_answer_fixed(out: bytearray, version: int, answer: PartitionAnswer) -> None:
    """A partition of v4 to v11, up to its records."""
    head = (answer.partition, answer.error, answer.high_watermark, answer.last_stable_offset)
    if version >= _LOG_START_FROM:
        out += _ANSWER_V5.pack(*head, answer.log_start_offset)
    else:
        out += _ANSWER_V4.pack(*head)
    if answer.aborted is None:
        out += b"\xff\xff\xff\xff"
    else:
        out += INT32.pack(len(answer.aborted))
        for producer_id, first_offset in answer.aborted:
            out += _PAIR.pack(producer_id, first_offset)
    if version >= _RACK_FROM:
        out += INT32.pack(answer.preferred_read_replica)
    out += INT32.pack(answer.records_bytes)


def _add_answer_flexible(out: bytearray, answer: PartitionAnswer) -> None:
    """A partition of v12 and up, up to its records."""
    out += _ANSWER_V5.pack(
        answer.partition,
        answer.error,
        answer.high_watermark,
        answer.last_stable_offset,
        answer.log_start_offset,
    )
    aborted = answer.aborted
    if not aborted:
        out += b"\0" if aborted is None else b"\1"
    else:
        out += uvarint(len(aborted) + 1)
        for producer_id, first_offset in aborted:
            out += _ABORTED_FLEXIBLE.pack(producer_id, first_offset)
    out += INT32.pack(answer.preferred_read_replica)
    out += uvarint(answer.records_bytes + 1)


def _add_answer_tags(out: bytearray, answer: PartitionAnswer) -> None:
    if answer.diverging_epoch is None and answer.current_leader is None:
        out += b"\0"
        return
    fields: list[tuple[int, bytes]] = []
    if answer.diverging_epoch is not None:
        fields.append((0, _EPOCH_END.pack(*answer.diverging_epoch)))
    if answer.current_leader is not None:
        fields.append((1, _LEADER.pack(*answer.current_leader)))
    out += tagged_fields(fields)
