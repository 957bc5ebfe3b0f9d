"""Whether a produced record batch may be appended, as Kafka judges it (LogValidator). Pure.

The header and the CRC decide for ordinary topics; records are looked at, and decompressed, only
where a topic's settings demand it: null keys of compacted topics, timestamps out of bounds, another
codec, all records (frazil.records.validate), or the schemas that they name (frazil.schema.validate). Whether
keys and values decode by these schemas is not found out here (`Undecoded`; `broker.produce.value_checking`).
A schema that is unknown here may be known to a newer replica: `InvalidBatch.may_pass`. The first violation
of the batch wins; of its records all are listed (KIP-467). What a batch becomes is bounded by the topic's max.message.bytes
(`protocol.compression.inflated_max`); one that would become more is too large, so that a client may
split it.

Only small batches are opened at once. Any other is `Unread`: its caller has the work done in slices,
away from the loop.

How new a batch is says its newest record. Where records are looked at, the header's word is compared
with them and written anew if it is another, as Kafka does with every batch. Where they are not, the
header is believed as long as it agrees with itself and with the topic: a newest timestamp that is out
of bounds, or a base timestamp (of its first record) that is, has the records looked at; and a batch
whose newest timestamp is said to be before its base counts as being of now, until it leaves its
chunk and is opened (`storage.formats.walk`). What is left is a header that says too little, though not less
than its base: until then its later records are not found by their time.

The clock of this machine may be wrong. A timestamp is out of bounds when it is by the object store's clock as well:
what is refused for its timestamp its sender gives up for good.

Left out: sequences and transactions (`broker.transactions.batch_transactions`, and the log decides), whether the
topic exists.
"""

import contextlib
from collections.abc import Callable
from typing import Final, NamedTuple, cast

from broker.config.topic_configs import SCHEMA_VALIDATE, TopicSettings
from protocol import compression, record_scan, records
from protocol.compression import Codec, InflatesTooFarError
from protocol.errors import ErrorCode, ProtocolError
from protocol.record_scan import NO_FIELD, NO_FRAME, Heads
from protocol.records import BatchHeader
from protocol.slices import Sliced, advance
from protocol.types import Buffer

LONG_MAX: Final = (1 << 63) - 1
RECORD_ERRORS_MAX: Final = 1000
"""Refused records that are listed; a batch may have a million."""
SLICES_IN_PLACE: Final = 4
"""Decompression, records, compression, and the end. Many headers take more, and are read on away from
the loop."""
RECORDS_IN_PLACE: Final = 512
BYTES_IN_PLACE: Final = 16 * 1024
"""As sent."""
INFLATED_IN_PLACE: Final = 64 * 1024
RECODED_IN_PLACE: Final = 16 * 1024
"""Decompressed, where it is compressed anew. A batch within these takes less than about a millisecond."""
AHEAD_MS: Final = 5_000
"""The clocks of clients are ahead of ours by no more, those whose newest timestamps nobody knows.
What is too much is paid by who looks for the newest record: it has to be sought in so many more."""

_OUT_OF_RANGE: Final = "Timestamp {} is out of range. It should be within [{}, {}]."
_NO_SCHEMA: Final = (
    "The {} names schema {}, which the registry does not have; register it, or set"
    f" {SCHEMA_VALIDATE}=off."
)
_NO_FRAME: Final = (
    "The {} does not begin with the id of a schema (a zero byte, and the id in four); write it with a"
    f" serializer of the schema registry, or set {SCHEMA_VALIDATE}=off."
)
_NOT_DENSE: Final = "The record's offset is {}, it should be {}."

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
    may_pass: bool = False
    """It names schemas that are not known here; behind a barrier (P8) it is to be judged again."""


class Undecoded(NamedTuple):
    """A batch whose values name schemas that the registry has, and which may be appended if they decode by
    them; that is found out elsewhere."""

    batch: ValidBatch
    content_bytes: int
    """Of its records, decompressed."""
    with_keys: bool
    """Keys are to decode, too."""


class Unread(NamedTuple):
    """A batch that must be opened, and is too large for that to be done at once."""

    work: Sliced[ValidBatch | InvalidBatch | Undecoded]
    """Opens it, and says what it is."""
    records: int
    """That it says it has."""


Read = ValidBatch | InvalidBatch | Undecoded
"""What a batch is once nothing of it is left to be read."""
FindSchema = Callable[[int], object | None]
"""The schema of an id, None: the registry has none. Called in threads, too."""


def without_schemas(_schema_id: int) -> None:
    """A registry without schemas."""


def validate(
    data: memoryview | None,
    topic: TopicSettings,
    *,
    version: int,
    now_ms: int,
    store_ms: int | None = None,
    find_schema: FindSchema = without_schemas,
) -> Read | Unread:
    """Check what a Produce request of `version` holds for one partition of `topic`.

    `now_ms`: by this machine's clock; `store_ms`: by the object store's, None: it is the same.
    """
    if data is None:
        return InvalidBatch(ErrorCode.INVALID_RECORD, "a partition without a record batch")
    header = records.check_batch(
        data,
        bytes_max=topic.max_message_bytes,
        inflated_max=topic.inflated_bytes_max,
        produce_version=version,
    )
    if isinstance(header, ErrorCode):
        return InvalidBatch(header)
    if header.is_log_append_time or (header.is_transactional and header.producer_id < 0):
        return _refuse_attributes(header)
    demands = _Demands(topic, now_ms, now_ms if store_ms is None else store_ms, find_schema)
    if (
        _looks_at_records(topic)
        or _recodes(header, topic)
        or not _timestamps_are_fine(header, demands)
    ):
        return _open(data, header, demands)
    if topic.timestamp_type != "CreateTime":
        return _stamped(bytearray(data), now_ms)
    newest = header.max_timestamp
    if newest < header.base_timestamp:
        newest = _newest_possible(header, topic, now_ms)
    return ValidBatch(data, header, -1, newest)


def _looks_at_records(topic: TopicSettings) -> bool:
    return topic.compacted or topic.validates_records or topic.checks_value_schemas


def _recodes(header: BatchHeader, topic: TopicSettings) -> bool:
    return topic.compression_type != "producer" and _CODECS[topic.compression_type] != header.codec


def _refuse_attributes(header: BatchHeader) -> InvalidBatch:
    if header.is_log_append_time:
        return InvalidBatch(
            ErrorCode.INVALID_TIMESTAMP,
            "a producer cannot send timestamps of the type LogAppendTime",
        )
    # Kafka takes it, as a batch of no transaction that says it were in one; no client sends it.
    return InvalidBatch(ErrorCode.INVALID_RECORD, "a transactional batch without a producer id")


class _Demands(NamedTuple):
    """What records are held to."""

    topic: TopicSettings
    now_ms: int
    store_ms: int
    find_schema: FindSchema

    @property
    def oldest_ms(self) -> int:
        """What a record's timestamp may be at least."""
        return min(self.now_ms, self.store_ms) - self.topic.timestamp_before_max_ms

    @property
    def newest_ms(self) -> int:
        """What it may be at most."""
        return max(self.now_ms, self.store_ms) + self.topic.timestamp_after_max_ms


def _timestamps_are_fine(header: BatchHeader, demands: _Demands) -> bool:
    """True when the header alone proves that no record's timestamp is out of bounds.

    The newest timestamp bounds them all from above, unless the base timestamp gives it away as a
    lie; from below nothing in the header does.
    """
    if demands.topic.timestamp_type != "CreateTime":
        return True
    return (
        demands.topic.timestamp_before_max_ms >= LONG_MAX
        and max(header.max_timestamp, header.base_timestamp) <= demands.newest_ms
    )


def _newest_possible(header: BatchHeader, topic: TopicSettings, now_ms: int) -> int:
    """Of a batch of which nothing is known but its first record's timestamp."""
    newest = max(header.base_timestamp, now_ms) + AHEAD_MS
    return min(newest, now_ms + topic.timestamp_after_max_ms)


def _open(data: memoryview, header: BatchHeader, demands: _Demands) -> Read | Unread:
    """Judge a batch by its records: at once when it is small."""
    topic = demands.topic
    if header.record_count <= RECORDS_IN_PLACE and len(data) <= BYTES_IN_PLACE:
        at_once = RECODED_IN_PLACE if _recodes(header, topic) else INFLATED_IN_PLACE
        work = _validate_records(data, header, demands, inflated_max=at_once)
        with contextlib.suppress(InflatesTooFarError):
            for _ in range(SLICES_IN_PLACE):
                if (ended := advance(work)) is not None:
                    return cast("Read", ended.result)
            return Unread(work, header.record_count)
    return Unread(_validate_whole(data, header, demands), header.record_count)


def _validate_whole(data: memoryview, header: BatchHeader, demands: _Demands) -> Sliced[Read]:
    topic = demands.topic
    inflated_max = topic.inflated_bytes_max
    if _recodes(header, topic) and topic.compression_type == "uncompressed":
        # It would be too large as it is stored.
        inflated_max = min(inflated_max, topic.max_message_bytes - records.HEADER_BYTES)
    try:
        return (yield from _validate_records(data, header, demands, inflated_max=inflated_max))
    except InflatesTooFarError as error:
        return InvalidBatch(ErrorCode.MESSAGE_TOO_LARGE, f"the batch's {error}")


def _validate_records(
    data: memoryview, header: BatchHeader, demands: _Demands, *, inflated_max: int
) -> Sliced[Read]:
    """Raises InflatesTooFarError when the records are more than `inflated_max` bytes."""
    topic, now_ms = demands.topic, demands.now_ms
    is_stamped = topic.timestamp_type != "CreateTime"
    newest = header.max_timestamp
    try:
        content = records.payload(data, bytes_max=inflated_max)[1]
        yield
        if _looks_at_records(topic) or not is_stamped:
            judged = yield from _look(content, header, demands)
            if isinstance(judged, InvalidBatch):
                return judged
            newest = judged
    except InflatesTooFarError:
        raise
    except ProtocolError as malformed:
        return InvalidBatch(ErrorCode.INVALID_RECORD, f"the batch's records: {malformed}")
    found: ValidBatch | InvalidBatch
    if _recodes(header, topic):
        found = yield from _recoded(header, content, topic, newest, now_ms)
    elif is_stamped:
        found = _stamped(bytearray(data), now_ms)
    else:
        found = _corrected(data, header, newest)
    if topic.decodes_values and isinstance(found, ValidBatch):
        return Undecoded(found, len(content), topic.checks_key_schemas)
    return found


class _Refused:
    """Records that must not be taken."""

    def __init__(self) -> None:
        self.error = ErrorCode.INVALID_RECORD
        self.may_pass = False
        self.count = 0
        self.named: list[tuple[int, str]] = []

    def add(self, index: int, reason: str, *numbers: int | str) -> None:
        self.count += 1
        if self.count <= RECORD_ERRORS_MAX:
            self.named.append((index, reason.format(*numbers)))

    def verdict(self) -> InvalidBatch:
        if self.error == ErrorCode.INVALID_TIMESTAMP:
            message = "One or more records have been rejected due to invalid timestamp"
        else:
            message = (
                f"One or more records have been rejected due to {self.count} record errors in total"
            )
        return InvalidBatch(self.error, message, tuple(self.named), self.may_pass)


def _look(
    content: memoryview, header: BatchHeader, demands: _Demands
) -> Sliced[InvalidBatch | int]:
    """The newest timestamp of the records, unless one of them must not be taken. Raises ProtocolError."""
    topic, find_schema = demands.topic, demands.find_schema
    refused = _Refused()
    newest = records.NO_TIMESTAMP
    places = topic.checks_value_schemas
    for heads in record_scan.heads(content, header.record_count, places=places):
        if heads.timestamp_deltas:
            newest = max(newest, header.base_timestamp + max(heads.timestamp_deltas))
            strangers = _strangers(content, heads, topic, find_schema) if places else {}
            if strangers or not _are_fine(heads, header, demands):
                _name_wrong(heads, header, demands, strangers, refused)
        yield
    return refused.verdict() if refused.count else min(newest, LONG_MAX)


def _strangers(
    content: memoryview, heads: Heads, topic: TopicSettings, find_schema: FindSchema
) -> dict[int, tuple[str, int]]:
    """What does not name a schema that is known, by index of its record: key or value, and what it
    names (an id, or NO_FRAME). A null names none, and needs none."""
    known = {NO_FIELD}
    unknown: dict[int, tuple[str, int]] = {}
    fields = [("value", heads.values)]
    if topic.checks_key_schemas:
        fields.append(("key", heads.keys))
    for field, places in fields:
        for index, at in enumerate(places, heads.first):
            if (named := record_scan.schema_named(content, at)) in known:
                continue
            if named == NO_FRAME or find_schema(named) is None:
                unknown[index] = field, named
            else:
                known.add(named)
    return unknown


def _are_fine(heads: Heads, header: BatchHeader, demands: _Demands) -> bool:
    """None of them can be wrong, as far as all together tell."""
    topic = demands.topic
    base, deltas = header.base_timestamp, heads.timestamp_deltas
    if topic.timestamp_type == "CreateTime" and (
        base + max(deltas) > demands.newest_ms or base + min(deltas) < demands.oldest_ms
    ):
        return False
    if topic.compacted and heads.keyless:
        return False
    if topic.validates_records and heads.flagged:
        return False
    if not _checks_offsets(header, topic):
        return True
    first = heads.first
    return heads.offset_deltas == list(range(first, first + len(heads.offset_deltas)))


def _checks_offsets(header: BatchHeader, topic: TopicSettings) -> bool:
    """As Kafka, which does so with compressed batches."""
    return topic.validates_records or header.codec != Codec.NONE


def _name_wrong(
    heads: Heads,
    header: BatchHeader,
    demands: _Demands,
    strangers: dict[int, tuple[str, int]],
    refused: _Refused,
) -> None:
    topic, oldest, newest = demands.topic, demands.oldest_ms, demands.newest_ms
    keyless = set(heads.keyless) if topic.compacted else set()
    flagged = set(heads.flagged) if topic.validates_records else set()
    checks_offsets = _checks_offsets(header, topic)
    checks_timestamps = topic.timestamp_type == "CreateTime"
    rows = zip(heads.timestamp_deltas, heads.offset_deltas, strict=False)
    for index, (timestamp_delta, offset_delta) in enumerate(rows, heads.first):
        timestamp = header.base_timestamp + timestamp_delta
        if (
            checks_timestamps
            and not oldest <= timestamp <= newest
            and timestamp != records.NO_TIMESTAMP
        ):
            refused.error = ErrorCode.INVALID_TIMESTAMP
            refused.add(index, _OUT_OF_RANGE, timestamp, max(0, oldest), newest)
        elif index in keyless:
            refused.add(index, "A compacted topic takes no record without a key.")
        elif checks_offsets and offset_delta != index:
            refused.add(index, _NOT_DENSE, offset_delta, index)
        elif index in flagged:
            refused.add(index, "The record has attributes, and none are defined.")
        elif index in strangers:
            field, named = strangers[index]
            refused.may_pass = refused.may_pass or named != NO_FRAME
            refused.add(index, _NO_FRAME if named == NO_FRAME else _NO_SCHEMA, field, named)


def _corrected(data: memoryview, header: BatchHeader, newest: int) -> ValidBatch:
    """The batch with the newest timestamp of its records, in a copy if it says another."""
    if newest == header.max_timestamp:
        return ValidBatch(data, header, -1, newest)
    changed = bytearray(data)
    records.set_max_timestamp(changed, 0, newest)
    return ValidBatch(changed, records.read_header(changed), -1, newest)


def _recoded(
    header: BatchHeader, content: memoryview, topic: TopicSettings, newest: int, now_ms: int
) -> Sliced[ValidBatch | InvalidBatch]:
    """The batch in the topic's codec."""
    codec = _CODECS[topic.compression_type]
    packed = yield from compression.compress_in_slices(codec, content, topic.compression_level)
    length = len(packed) + records.HEADER_BYTES
    if length > topic.max_message_bytes:
        return InvalidBatch(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {length} bytes as {topic.compression_type},"
            f" at most {topic.max_message_bytes}",
        )
    recoded = records.recoded(header._replace(max_timestamp=newest), packed, codec)
    if topic.timestamp_type != "CreateTime":
        return _stamped(bytearray(recoded), now_ms)
    header = records.read_header(recoded)
    return ValidBatch(recoded, header, -1, header.max_timestamp)


def _stamped(data: bytearray, now_ms: int) -> ValidBatch:
    records.set_log_append_time(data, 0, now_ms)
    return ValidBatch(data, records.read_header(data), now_ms, now_ms)
