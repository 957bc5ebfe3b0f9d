"""Whether a produced record batch may be appended, as Kafka judges it (LogValidator). Pure.

The header and the CRC decide for ordinary topics; records are looked at, and decompressed, only
where a topic's settings demand it: null keys of compacted topics, timestamps out of bounds, another
codec. The first violation of the batch wins; of its records all are listed (KIP-467).

How new a batch is says its newest record. Where records are looked at, the header's word is compared
with them and written anew if it is another, as Kafka does with every batch. Where they are not, the
header is believed as long as it agrees with itself and with the topic: a newest timestamp that is out
of bounds, or a base timestamp (of its first record) that is, has the records looked at; and a batch
whose newest timestamp is said to be before its base counts as being of now, until it leaves its
chunk and is opened (`storage.formats.walk`). What is left is a header that says too little, though not less
than its base: until then its later records are not found by their time.

Left out: sequences and transactions (`broker.transactions.batch_transactions`, and the log decides), whether the
topic exists.
"""

from typing import Final, NamedTuple

from broker.config.topic_configs import TopicSettings
from protocol import record_scan, records
from protocol.compression import Codec
from protocol.errors import ErrorCode, ProtocolError
from protocol.records import BatchHeader, Record
from protocol.types import Buffer

LONG_MAX: Final = (1 << 63) - 1
RECORD_ERRORS_MAX: Final = 1000
"""Refused records that are listed; a batch may have a million."""
AHEAD_MS: Final = 5_000
"""The clocks of clients are ahead of ours by no more, those whose newest timestamps nobody knows.
What is too much is paid by who looks for the newest record: it has to be sought in so many more."""

_CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class ValidBatch(NamedTuple):
    """A batch that may be appended."""

    data: Buffer
    """As sent, or a copy where the topic demands a change."""
    header: BatchHeader
    """Of `data`."""
    log_append_time: int
    """ms; -1 unless the topic's timestamps are those of appending."""
    timestamp_max: int
    """ms; how new its newest record is, as far as anybody knows."""


class InvalidBatch(NamedTuple):
    """A batch that must not be appended, and what its sender is told."""

    error: ErrorCode
    message: str | None = None
    record_errors: tuple[tuple[int, str], ...] = ()
    """Index in the batch, and why."""


def validate(
    data: memoryview | None, topic: TopicSettings, *, version: int, now_ms: int
) -> ValidBatch | InvalidBatch:
    """Check what a Produce request of `version` holds for one partition of `topic`."""
    if data is None:
        return InvalidBatch(ErrorCode.INVALID_RECORD, "a partition without a record batch")
    header = records.check_batch(data, bytes_max=topic.max_message_bytes, produce_version=version)
    if isinstance(header, ErrorCode):
        return InvalidBatch(header)
    if header.is_log_append_time or (header.is_transactional and header.producer_id < 0):
        return _refuse_attributes(header)
    newest: int | None = None
    if topic.compacted or not _timestamps_are_fine(header, topic, now_ms):
        judged = _validate_records(data, topic, now_ms)
        if isinstance(judged, InvalidBatch):
            return judged
        newest = judged
    if topic.compression_type != "producer" and _CODECS[topic.compression_type] != header.codec:
        return _recompressed(data, topic, now_ms)
    if topic.timestamp_type != "CreateTime":
        return _stamped(bytearray(data), now_ms)
    if newest is not None:
        return _corrected(data, header, newest)
    newest = header.max_timestamp
    if newest < header.base_timestamp:
        newest = _newest_possible(header, topic, now_ms)
    return ValidBatch(data, header, -1, newest)


def _refuse_attributes(header: BatchHeader) -> InvalidBatch:
    if header.is_log_append_time:
        return InvalidBatch(
            ErrorCode.INVALID_TIMESTAMP,
            "a producer cannot send timestamps of the type LogAppendTime",
        )
    # Kafka takes it, as a batch of no transaction that says it were in one; no client sends it.
    return InvalidBatch(ErrorCode.INVALID_RECORD, "a transactional batch without a producer id")


def _timestamps_are_fine(header: BatchHeader, topic: TopicSettings, now_ms: int) -> bool:
    """True when the header alone proves that no record's timestamp is out of bounds.

    The newest timestamp bounds them all from above, unless the base timestamp gives it away as a
    lie; from below nothing in the header does.
    """
    if topic.timestamp_type != "CreateTime":
        return True
    return (
        topic.timestamp_before_max_ms >= LONG_MAX
        and header.max_timestamp - now_ms <= topic.timestamp_after_max_ms
        and header.base_timestamp - now_ms <= topic.timestamp_after_max_ms
    )


def _newest_possible(header: BatchHeader, topic: TopicSettings, now_ms: int) -> int:
    """Of a batch of which nothing is known but its first record's timestamp."""
    newest = max(header.base_timestamp, now_ms) + AHEAD_MS
    return min(newest, now_ms + topic.timestamp_after_max_ms)


def _validate_records(data: memoryview, topic: TopicSettings, now_ms: int) -> InvalidBatch | int:
    """The newest timestamp of the records, unless one of them must not be taken."""
    check_timestamps = topic.timestamp_type == "CreateTime"
    error = ErrorCode.INVALID_RECORD
    refused: list[tuple[int, str]] = []
    count = 0
    newest = records.NO_TIMESTAMP
    try:
        for index, record in enumerate(records.iterate(data)):
            reason = None
            newest = max(newest, record.timestamp)
            if check_timestamps and (reason := _bad_timestamp(record, topic, now_ms)):
                error = ErrorCode.INVALID_TIMESTAMP
            elif topic.compacted and record.key is None:
                reason = "A compacted topic takes no record without a key."
            if reason is not None:
                count += 1
                if len(refused) < RECORD_ERRORS_MAX:
                    refused.append((index, reason))
    except ProtocolError as malformed:
        return InvalidBatch(ErrorCode.INVALID_RECORD, f"the batch's records: {malformed}")
    if not count:
        return newest
    if error == ErrorCode.INVALID_TIMESTAMP:
        message = "One or more records have been rejected due to invalid timestamp"
    else:
        message = f"One or more records have been rejected due to {count} record errors in total"
    return InvalidBatch(error, message, tuple(refused))


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


def _corrected(data: memoryview, header: BatchHeader, newest: int) -> ValidBatch:
    """The batch with the newest timestamp of its records, in a copy if it says another."""
    if newest == header.max_timestamp:
        return ValidBatch(data, header, -1, newest)
    changed = bytearray(data)
    records.set_max_timestamp(changed, 0, newest)
    return ValidBatch(changed, records.read_header(changed), -1, newest)


def _recompressed(data: memoryview, topic: TopicSettings, now_ms: int) -> ValidBatch | InvalidBatch:
    is_stamped = topic.timestamp_type != "CreateTime"
    try:
        header, content = records.payload(data)
    except ProtocolError as malformed:
        return InvalidBatch(ErrorCode.INVALID_RECORD, f"the batch's records: {malformed}")
    if not is_stamped:
        newest = record_scan.newest_timestamp(header, bytes(content))
        if newest is None or newest - now_ms > topic.timestamp_after_max_ms:
            judged = _validate_records(data, topic, now_ms)  # It says what is wrong.
            if isinstance(judged, InvalidBatch):
                return judged
            newest = judged
        header = header._replace(max_timestamp=newest)
    codec = _CODECS[topic.compression_type]
    recoded = records.recompress(header, content, codec, topic.compression_level)
    if len(recoded) > topic.max_message_bytes:
        return InvalidBatch(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {len(recoded)} bytes as {topic.compression_type},"
            f" at most {topic.max_message_bytes}",
        )
    if is_stamped:
        return _stamped(bytearray(recoded), now_ms)
    header = records.read_header(recoded)
    return ValidBatch(recoded, header, -1, header.max_timestamp)


def _stamped(data: bytearray, now_ms: int) -> ValidBatch:
    records.set_log_append_time(data, 0, now_ms)
    return ValidBatch(data, records.read_header(data), now_ms, now_ms)
