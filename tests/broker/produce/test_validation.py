"""What Kafka's LogValidator refuses, and with which error."""

from dataclasses import replace

import pytest

from broker.config.kafka_settings import KafkaSettings
from broker.config.topic_configs import TopicSettings, effective
from broker.produce.validation import (
    AHEAD_MS,
    LONG_MAX,
    InvalidBatch,
    Unread,
    ValidBatch,
    validate,
)
from protocol import compression, records
from protocol.compression import Codec
from protocol.errors import ErrorCode
from protocol.records import Record, build_batch
from protocol.slices import finish
from tests.kit.agents import NOW_MS
from tests.kit.batches import batch
from tests.storage.lies import FAR_MS, saying

PLAIN = effective({}, KafkaSettings())


def _validate(data, topic=PLAIN, *, version: int = 9):
    view = None if data is None else memoryview(bytes(data))
    verdict = validate(view, topic, version=version, now_ms=NOW_MS)
    return finish(verdict.work) if isinstance(verdict, Unread) else verdict


def _valid(data, topic=PLAIN) -> ValidBatch:
    verdict = _validate(data, topic)
    assert isinstance(verdict, ValidBatch)
    return verdict


def _refused(data, topic=PLAIN) -> tuple[ErrorCode, list[int]]:
    """The error, and the records that it is for."""
    verdict = _validate(data, topic)
    assert isinstance(verdict, InvalidBatch)
    return verdict.error, [index for index, _ in verdict.record_errors]


def _changed(data: bytes, at: int, value: bytes, *, seal: bool = True) -> bytes:
    changed = bytearray(data)
    changed[at : at + len(value)] = value
    if seal:
        records._seal(changed, 0, len(changed))
    return bytes(changed)


def test_a_sound_batch_is_taken_as_it_is_without_a_copy() -> None:
    data = memoryview(batch(b"1", b"2"))
    verdict = validate(data, PLAIN, version=9, now_ms=NOW_MS)
    assert isinstance(verdict, ValidBatch)
    assert verdict.data is data
    assert verdict.header.record_count == 2
    assert verdict.log_append_time == -1


def test_a_transactional_batch_is_sound_whatever_transaction_it_is_of() -> None:
    data = batch(attributes=records.TRANSACTIONAL, producer_id=1, epoch=0, sequence=0)
    verdict = _valid(data)
    assert verdict.header.is_transactional


def test_a_transactional_batch_stays_one_when_it_is_recompressed_and_stamped() -> None:
    data = batch(attributes=records.TRANSACTIONAL, producer_id=1, epoch=2, sequence=3)
    topic = replace(PLAIN, compression_type="gzip", timestamp_type="LogAppendTime")
    verdict = _valid(data, topic)
    header = records.read_header(verdict.data)
    assert (header.is_transactional, header.codec) == (True, Codec.GZIP)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1, 2, 3)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (batch() + batch(), ErrorCode.INVALID_RECORD),
        (_changed(batch(), 16, b"\x01"), ErrorCode.INVALID_RECORD),
        (_changed(batch(), 0, (5).to_bytes(8)), ErrorCode.INVALID_RECORD),
        (_changed(batch(), 70, b"\xff", seal=False), ErrorCode.CORRUPT_MESSAGE),
        (_changed(batch(), 23, (3).to_bytes(4)), ErrorCode.INVALID_RECORD),
        (batch(attributes=records.CONTROL), ErrorCode.INVALID_RECORD),
        (batch(attributes=records.LOG_APPEND_TIME), ErrorCode.INVALID_TIMESTAMP),
        (batch(attributes=records.TRANSACTIONAL), ErrorCode.INVALID_RECORD),
        (
            batch(attributes=records.TRANSACTIONAL | records.CONTROL, producer_id=1, epoch=0),
            ErrorCode.INVALID_RECORD,
        ),
        (batch(producer_id=1, epoch=0, sequence=-1), ErrorCode.INVALID_RECORD),
        (batch(bytes(2_000_000)), ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=[
        "null", "no batch", "two batches", "magic 1", "base offset", "crc", "count", "control",
        "append time", "transactional without producer", "control of a transaction", "no sequence", "too large",
    ],
)  # fmt: skip
def test_a_batch_that_kafka_refuses_is_refused_with_kafkas_error(data, error) -> None:
    verdict = _validate(data)
    assert isinstance(verdict, InvalidBatch)
    assert verdict.error == error


def test_zstd_is_refused_before_v7() -> None:
    data = batch(codec=Codec.ZSTD)
    assert _validate(data, version=6).error == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert isinstance(_validate(data, version=7), ValidBatch)


def test_a_timestamp_too_far_ahead_is_refused_and_named() -> None:
    data = build_batch(
        [
            Record(timestamp=NOW_MS, value=b"1"),
            Record(timestamp=NOW_MS + 3_600_001, value=b"2"),
            Record(timestamp=-1, value=b"3"),
        ]
    )
    verdict = _validate(data)
    assert verdict.error == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in verdict.record_errors] == [1]
    assert "invalid timestamp" in verdict.message


def test_a_timestamp_an_hour_ahead_is_allowed() -> None:
    assert isinstance(_validate(batch(timestamp=NOW_MS + 3_600_000)), ValidBatch)


def _two(*, codec: Codec = Codec.NONE, later: int = 0) -> bytes:
    """Records of NOW_MS and 500 ms later."""
    stamps = (NOW_MS + later, NOW_MS + later + 500)
    return build_batch([Record(-1, at, b"k", b"v") for at in stamps], codec=codec)


CODECS = pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])


@CODECS
@pytest.mark.parametrize(
    ("said", "believed"),
    [
        (NOW_MS + 500, NOW_MS + 500),
        (NOW_MS + 3_600_000, NOW_MS + 3_600_000),
        (NOW_MS, NOW_MS),
        (NOW_MS - 1, NOW_MS + AHEAD_MS),
        (0, NOW_MS + AHEAD_MS),
        (-1, NOW_MS + AHEAD_MS),
    ],
)
def test_a_newest_timestamp_before_the_base_is_not_believed_and_no_record_is_looked_at(
    said: int, believed: int, codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "payload", None)
    data = saying(_two(codec=codec), said)
    verdict = validate(memoryview(data), PLAIN, version=9, now_ms=NOW_MS)
    assert isinstance(verdict, ValidBatch)
    assert verdict.timestamp_max == believed
    assert verdict.data == data


@pytest.mark.parametrize(
    ("later", "after_max_ms", "believed"),
    [
        (-(10**9), 3_600_000, NOW_MS + AHEAD_MS),
        (0, 3_600_000, NOW_MS + AHEAD_MS),
        (1000, 3_600_000, NOW_MS + 1000 + AHEAD_MS),
        (3_600_000, 3_600_000, NOW_MS + 3_600_000),
        (0, 0, NOW_MS),
        (10**9, LONG_MAX, NOW_MS + 10**9 + AHEAD_MS),
    ],
)
def test_what_contradicts_itself_is_as_new_as_the_clocks_of_clients_and_the_topic_allow(
    later: int, after_max_ms: int, believed: int
) -> None:
    """Nobody knows whether the other records are as old as the first."""
    topic = replace(PLAIN, timestamp_after_max_ms=after_max_ms)
    verdict = _valid(saying(_two(later=later), -1), topic)
    assert verdict.timestamp_max == believed


def test_a_batch_without_timestamps_has_none() -> None:
    verdict = _valid(build_batch([Record(value=b"v")]))
    assert verdict.timestamp_max == -1


@CODECS
def test_a_newest_timestamp_too_far_ahead_is_replaced_by_that_of_the_records(codec: Codec) -> None:
    true = _two(codec=codec)
    verdict = _valid(saying(true, NOW_MS + FAR_MS))
    assert bytes(verdict.data) == true
    assert verdict.timestamp_max == verdict.header.max_timestamp == NOW_MS + 500


@CODECS
@pytest.mark.parametrize("said", [-1, 0, NOW_MS])
def test_records_too_far_ahead_are_refused_whatever_the_header_says_of_the_newest(
    said: int, codec: Codec
) -> None:
    """Their base timestamp gives them away."""
    assert _refused(saying(_two(codec=codec, later=FAR_MS), said)) == (
        ErrorCode.INVALID_TIMESTAMP,
        [0, 1],
    )


@CODECS
@pytest.mark.parametrize("said", [-1, 0, NOW_MS - 1, NOW_MS + 499, NOW_MS + 501, NOW_MS + FAR_MS])
@pytest.mark.parametrize(
    "topic",
    [
        replace(PLAIN, compacted=True),
        replace(PLAIN, timestamp_before_max_ms=10**9),
        replace(PLAIN, compression_type="gzip"),
        replace(PLAIN, compacted=True, compression_type="gzip"),
    ],
    ids=["compacted", "bounded", "recompressed", "compacted and recompressed"],
)
def test_where_records_are_looked_at_their_newest_timestamp_is_written_into_the_header(
    topic: TopicSettings, said: int, codec: Codec
) -> None:
    true = _validate(_two(codec=codec), topic)
    verdict = _validate(saying(_two(codec=codec), said), topic)
    assert isinstance(true, ValidBatch)
    assert isinstance(verdict, ValidBatch)
    assert bytes(verdict.data) == bytes(true.data)
    assert verdict.header == true.header == records.read_header(true.data)
    assert verdict.timestamp_max == verdict.header.max_timestamp == NOW_MS + 500


@CODECS
def test_recompressed_records_are_refused_when_one_is_too_far_ahead(codec: Codec) -> None:
    stamps = (NOW_MS, NOW_MS + FAR_MS)
    data = build_batch([Record(-1, at, b"k", b"v") for at in stamps], codec=codec)
    assert _refused(saying(data, NOW_MS), replace(PLAIN, compression_type="gzip")) == (
        ErrorCode.INVALID_TIMESTAMP,
        [1],
    )


@pytest.mark.parametrize("said", [-1, 0, NOW_MS + FAR_MS])
def test_log_append_time_takes_the_place_of_whatever_the_header_says(said: int) -> None:
    verdict = _valid(saying(_two(), said), replace(PLAIN, timestamp_type="LogAppendTime"))
    assert verdict.timestamp_max == verdict.header.max_timestamp == NOW_MS


def test_old_timestamps_are_refused_only_where_a_bound_is_set() -> None:
    data = batch(timestamp=NOW_MS - 100_000_000)
    assert PLAIN.timestamp_before_max_ms == LONG_MAX
    assert isinstance(_validate(data), ValidBatch)
    bounded = replace(PLAIN, timestamp_before_max_ms=1000)
    assert _validate(data, bounded).error == ErrorCode.INVALID_TIMESTAMP
    assert isinstance(_validate(batch(), bounded), ValidBatch)


@pytest.mark.parametrize("off_ms", [-FAR_MS, FAR_MS])
@pytest.mark.parametrize("validates_records", [False, True])
def test_a_clock_that_is_wrong_refuses_no_timestamp_that_is_right_by_the_stores(
    off_ms: int, *, validates_records: bool
) -> None:
    """What is refused for its timestamp its sender gives up for good."""
    topic = replace(PLAIN, timestamp_before_max_ms=3_600_000, validates_records=validates_records)

    def taken(timestamp: int, store_ms: int) -> bool:
        data = memoryview(bytes(batch(timestamp=timestamp)))
        verdict = validate(data, topic, version=9, now_ms=NOW_MS + off_ms, store_ms=store_ms)
        return isinstance(verdict, ValidBatch)

    assert taken(NOW_MS, NOW_MS)
    assert not taken(NOW_MS, NOW_MS + off_ms)
    assert not taken(NOW_MS + 2 * FAR_MS, NOW_MS)
    assert not taken(NOW_MS - 2 * FAR_MS, NOW_MS)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_compacted_topic_takes_no_record_without_a_key(codec) -> None:
    compacted = replace(PLAIN, compacted=True)
    data = build_batch(
        [
            Record(timestamp=NOW_MS, key=b"k", value=b"1"),
            Record(timestamp=NOW_MS, key=None, value=b"2"),
        ],
        codec=codec,
    )
    assert _refused(data, compacted) == (ErrorCode.INVALID_RECORD, [1])
    assert isinstance(_validate(batch(key=b"k"), compacted), ValidBatch)


def test_timestamp_errors_win_over_missing_keys_and_both_are_listed() -> None:
    compacted = replace(PLAIN, compacted=True)
    late = Record(timestamp=NOW_MS + 10**9, key=b"k", value=b"2")
    data = build_batch([Record(timestamp=NOW_MS, value=b"1"), late])
    assert _refused(data, compacted) == (ErrorCode.INVALID_TIMESTAMP, [0, 1])


def test_a_topic_with_a_codec_of_its_own_gets_batches_in_it() -> None:
    gzip = replace(PLAIN, compression_type="gzip")
    verdict = _valid(batch(b"1", b"2", codec=Codec.LZ4), gzip)
    assert verdict.header.codec == Codec.GZIP
    assert records.validate_batch(verdict.data) == ErrorCode.NONE
    assert [record.value for record in records.iterate(verdict.data)] == [b"1", b"2"]


@pytest.mark.parametrize(
    ("codec", "fast", "small"), [("gzip", 1, 9), ("lz4", 1, 17), ("zstd", -9, 22)]
)
def test_the_level_of_a_topic_says_how_small_its_batches_become(
    codec: str, fast: int, small: int
) -> None:
    words = [f"{number * number % 9973:x}".encode() for number in range(3_000)]
    sizes = [
        len(
            _valid(
                batch(*words), replace(PLAIN, compression_type=codec, compression_level=level)
            ).data
        )
        for level in (fast, small)
    ]
    assert sizes[0] > sizes[1] * 1.05


def test_a_batch_that_grows_too_large_by_recompression_is_refused() -> None:
    bare = replace(PLAIN, compression_type="uncompressed", max_message_bytes=5_000)
    verdict = _validate(batch(bytes(100_000), codec=Codec.GZIP), bare)
    assert verdict.error == ErrorCode.MESSAGE_TOO_LARGE


def test_broken_compressed_records_are_invalid_where_they_must_be_looked_at() -> None:
    gzip = replace(PLAIN, compression_type="gzip")
    data = _changed(batch(bytes(1000), codec=Codec.LZ4), 70, b"\xff\xff\xff\xff")
    assert _validate(data, gzip).error == ErrorCode.INVALID_RECORD
    assert isinstance(_validate(data), ValidBatch)


def test_log_append_time_marks_a_copy_and_keeps_the_crc_valid() -> None:
    stamped = replace(PLAIN, timestamp_type="LogAppendTime")
    data = batch(timestamp=5)
    verdict = _valid(data, stamped)
    assert verdict.log_append_time == NOW_MS
    assert verdict.header.max_timestamp == NOW_MS
    assert records.validate_batch(verdict.data) == ErrorCode.NONE
    assert [record.timestamp for record in records.iterate(verdict.data)] == [NOW_MS]
    assert records.read_header(data).max_timestamp == 5


# What a batch becomes, and records that are walked.

FULL = replace(PLAIN, validates_records=True)
OPENED = {
    "compacted": replace(PLAIN, compacted=True),
    "recompressed": replace(PLAIN, compression_type="lz4"),
    "validated": FULL,
    "bounded in time": replace(PLAIN, timestamp_before_max_ms=10**9),
}


@pytest.mark.promise("P15")
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
@pytest.mark.parametrize("name", OPENED)
def test_a_batch_that_inflates_beyond_what_the_topic_allows_is_too_large(
    name: str, codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client may split it, which it does for no other error."""
    rooms: list[int] = []
    make = compression._room
    monkeypatch.setattr(compression, "_room", lambda size: rooms.append(size) or make(size))
    bound = 1 << 20
    topic = replace(OPENED[name], inflated_bytes_max=bound)
    data = batch(bytes(8 * bound), key=b"k", codec=codec)
    verdict = _validate(data, topic)
    assert verdict.error == ErrorCode.MESSAGE_TOO_LARGE
    assert f"inflates to more than {bound} bytes" in verdict.message
    assert max(rooms) <= bound
    assert isinstance(_validate(batch(bytes(bound // 2), key=b"k", codec=codec), topic), ValidBatch)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_batches_as_honest_clients_make_them_may_be_opened(codec: Codec) -> None:
    """A ratio of many hundreds, of constant records; and logs of nearly the largest size."""
    constant = [Record(timestamp=NOW_MS, key=b"k", value=bytes(1000))] * 1000
    line = b'{"level":"info","service":"billing","at":%d,"message":"request served"}'
    logs = [Record(timestamp=NOW_MS + at, key=b"%d" % at, value=line % at) for at in range(8_000)]
    for records_ in (constant, logs):
        for topic in OPENED.values():
            assert isinstance(_validate(build_batch(records_, codec=codec), topic), ValidBatch)


def test_what_a_topic_allows_follows_its_largest_batch() -> None:
    sizes = {"8388608": 128 << 20, "524288": 32 << 20, "1000": 16 << 20}
    for size, inflated in sizes.items():
        topic = effective({"max.message.bytes": size}, KafkaSettings())
        assert topic.inflated_bytes_max == inflated


def test_a_count_beyond_what_the_topic_allows_is_refused_by_the_header() -> None:
    topic = replace(PLAIN, inflated_bytes_max=7000)
    data = build_batch([Record(timestamp=NOW_MS)] * 1001, codec=Codec.ZSTD)
    assert _refused(data, topic) == (ErrorCode.INVALID_RECORD, [])


def _with_records(content: bytes, *, count: int, codec: Codec = Codec.NONE) -> bytes:
    """A batch that says it had so many records, with a valid checksum."""
    header = records.read_header(batch())
    return records.assemble(
        header._replace(attributes=codec, record_count=count, last_offset_delta=count - 1), content
    )


_RECORD = b"\x10\0\0\0\x02k\x02v\0"
GARBAGE = {
    "noise": bytes(range(1, 200)),
    "lengths beyond the batch": b"\x7e" + _RECORD[1:],
    "a length that is not that of the fields": b"\x12" + _RECORD[1:] + b"\0",
    "a value beyond the record": _RECORD[:6] + b"\x7e" + _RECORD[7:],
    "headers that are not there": _RECORD[:8] + b"\x02",
    "bytes behind the records": _RECORD + b"behind it",
    "a varint without end": b"\xff" * 20,
}


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_refused_only_where_records_are_validated(name: str, codec: Codec) -> None:
    data = _with_records(GARBAGE[name], count=1, codec=codec)
    assert _refused(data, FULL) == (ErrorCode.INVALID_RECORD, [])
    assert bytes(_valid(data).data) == data


@pytest.mark.parametrize("codec", Codec)
def test_sound_records_pass_where_records_are_validated(codec: Codec) -> None:
    made = [Record(timestamp=NOW_MS, headers=(("h", b"v"), ("", None)))] + [
        Record(timestamp=NOW_MS, key=b"k" * 200, value=b"v" * 20_000)
    ] * 10
    data = build_batch(made, codec=codec)
    assert bytes(_valid(data, FULL).data) == data


@pytest.mark.parametrize("at", [0, 1])
def test_offsets_that_are_not_dense_are_refused_where_records_are_validated(at: int) -> None:
    second = _RECORD[:3] + b"\x02" + _RECORD[4:]
    content = [_RECORD, second]
    assert isinstance(_validate(_with_records(b"".join(content), count=2), FULL), ValidBatch)
    content[at] = content[at][:3] + b"\x04" + content[at][4:]
    assert _refused(_with_records(b"".join(content), count=2), FULL) == (
        ErrorCode.INVALID_RECORD,
        [at],
    )


def test_offsets_of_compressed_records_are_compared_wherever_they_are_looked_at_as_in_kafka() -> (
    None
):
    compacted = replace(PLAIN, compacted=True)
    content = _RECORD[:3] + b"\x04" + _RECORD[4:]
    for codec, error in ((Codec.NONE, None), (Codec.ZSTD, ErrorCode.INVALID_RECORD)):
        verdict = _validate(_with_records(content, count=1, codec=codec), compacted)
        assert getattr(verdict, "error", None) == error


def test_attributes_of_records_are_refused_where_records_are_validated() -> None:
    content = _RECORD[:1] + b"\x01" + _RECORD[2:]
    assert _refused(_with_records(content, count=1), FULL) == (ErrorCode.INVALID_RECORD, [0])
    assert isinstance(_validate(_with_records(content, count=1)), ValidBatch)
