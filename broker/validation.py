"""Whether a produced record batch may be appended, as Kafka judges it (LogValidator). Pure.

The header and the CRC decide for ordinary topics; records are looked at, and decompressed, only
where a topic's settings demand it: null keys of compacted topics, timestamps out of bounds, another
codec. The first violation of the batch wins; of its records all are listed (KIP-467).

Left out: sequences and transactions (`broker.transactional`, and the log decides), whether the
topic exists.
"""

from typing import Final, NamedTuple

from broker.topic_configs import TopicSettings
from protocol import records
from protocol.compression import Codec
from protocol.errors import ErrorCode, ProtocolError
from protocol.records import BatchHeader, Record
from protocol.types import Buffer

LONG_MAX: Final = (1 << 63) - 1
RECORD_ERRORS_MAX: Final = 1000
"""Refused records that are listed; a batch may have a million."""

_CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class Sound(NamedTuple):
    """A batch that may be appended."""

    data: Buffer
    """As sent, or a copy where the topic demands a change."""
    header: BatchHeader
    """Of `data`."""
    log_append_time: int
    """ms; -1 unless the topic's timestamps are those of appending."""


class Unsound(NamedTuple):
    """A batch that must not be appended, and what its sender is told."""

    error: ErrorCode
    message: str | None = None
    record_errors: tuple[tuple[int, str], ...] = ()
    """Index in the batch, and why."""


def judge(
    data: memoryview | None, topic: TopicSettings, *, version: int, now_ms: int
) -> Sound | Unsound:
    """Check what a Produce request of `version` holds for one partition of `topic`."""
    if data is None:
        return Unsound(ErrorCode.INVALID_RECORD, "a partition without a record batch")
    header = records.check_batch(data, bytes_max=topic.max_message_bytes, produce_version=version)
    if isinstance(header, ErrorCode):
        return Unsound(header)
    if header.is_log_append_time or (header.is_transactional and header.producer_id < 0):
        return _refuse_attributes(header)
    if topic.compacted or not _timestamps_are_fine(header, topic, now_ms):
        unsound = _judge_records(data, topic, now_ms)
        if unsound is not None:
            return unsound
    if topic.compression_type != "producer" and _CODECS[topic.compression_type] != header.codec:
        return _recompressed(data, topic, now_ms)
    if topic.timestamp_type != "CreateTime":
        return _stamped(bytearray(data), now_ms)
    return Sound(data, header, -1)


def _refuse_attributes(header: BatchHeader) -> Unsound:
    if header.is_log_append_time:
        return Unsound(
            ErrorCode.INVALID_TIMESTAMP,
            "a producer cannot send timestamps of the type LogAppendTime",
        )
    # Kafka takes it, as a batch of no transaction that says it were in one; no client sends it.
    return Unsound(ErrorCode.INVALID_RECORD, "a transactional batch without a producer id")


def _timestamps_are_fine(header: BatchHeader, topic: TopicSettings, now_ms: int) -> bool:
    """True when the header alone proves that no record's timestamp is out of bounds.

    The newest timestamp bounds them all from above; from below nothing in the header does.
    """
    if topic.timestamp_type != "CreateTime":
        return True
    return (
        topic.timestamp_before_max_ms >= LONG_MAX
        and header.max_timestamp - now_ms <= topic.timestamp_after_max_ms
    )


def _judge_records(data: memoryview, topic: TopicSettings, now_ms: int) -> Unsound | None:
    check_timestamps = topic.timestamp_type == "CreateTime"
    error = ErrorCode.INVALID_RECORD
    refused: list[tuple[int, str]] = []
    count = 0
    try:
        for index, record in enumerate(records.iterate(data)):
            reason = None
            if check_timestamps and (reason := _bad_timestamp(record, topic, now_ms)):
                error = ErrorCode.INVALID_TIMESTAMP
            elif topic.compacted and record.key is None:
                reason = "A compacted topic takes no record without a key."
            if reason is not None:
                count += 1
                if len(refused) < RECORD_ERRORS_MAX:
                    refused.append((index, reason))
    except ProtocolError as malformed:
        return Unsound(ErrorCode.INVALID_RECORD, f"the batch's records: {malformed}")
    if not count:
        return None
    if error == ErrorCode.INVALID_TIMESTAMP:
        message = "One or more records have been rejected due to invalid timestamp"
    else:
        message = f"One or more records have been rejected due to {count} record errors in total"
    return Unsound(error, message, tuple(refused))


def _bad_timestamp(record: Record, topic: TopicSettings, now_ms: int) -> str | None:
    timestamp = record.timestamp
    if timestamp == records.NO_TIMESTAMP:
        return None
    too_old = now_ms - timestamp > topic.timestamp_before_max_ms
    if not too_old and timestamp - now_ms <= topic.timestamp_after_max_ms:
        return None
    oldest = max(0, now_ms - topic.timestamp_before_max_ms)
    newest = now_ms + topic.timestamp_after_max_ms
    return f"Timestamp {timestamp} is out of range. It should be within [{oldest}, {newest}]."


def _recompressed(data: memoryview, topic: TopicSettings, now_ms: int) -> Sound | Unsound:
    try:
        recoded = records.recompress(data, _CODECS[topic.compression_type])
    except ProtocolError as malformed:
        return Unsound(ErrorCode.INVALID_RECORD, f"the batch's records: {malformed}")
    if len(recoded) > topic.max_message_bytes:
        return Unsound(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {len(recoded)} bytes as {topic.compression_type},"
            f" at most {topic.max_message_bytes}",
        )
    if topic.timestamp_type != "CreateTime":
        return _stamped(bytearray(recoded), now_ms)
    return Sound(recoded, records.read_header(recoded), -1)


def _stamped(data: bytearray, now_ms: int) -> Sound:
    records.set_log_append_time(data, 0, now_ms)
    return Sound(data, records.read_header(data), now_ms)
