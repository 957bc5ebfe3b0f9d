"""Record batches: what is accepted, what is refused and with which code, and roundtrips."""

import struct

import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import records
from protocol.compression import RATIO_MAX, Codec, compress
from protocol.errors import ErrorCode, ProtocolError
from protocol.records import Record, build_batch
from tests.protocol.kio_oracle import ints, texts

BLOBS = st.one_of(st.none(), st.binary(max_size=20))
HEADERS = st.lists(st.tuples(texts(), BLOBS), max_size=2).map(tuple)
NEW_RECORDS = st.lists(
    st.builds(
        Record,
        offset=st.just(-1),
        timestamp=st.integers(0, 1 << 45),
        key=BLOBS,
        value=BLOBS,
        headers=HEADERS,
    ),
    min_size=1,
    max_size=5,
)

TWO = [Record(timestamp=1000, key=b"k", value=b"v"), Record(timestamp=1005, value=b"w")]


def changed(batch: bytes, at: int, layout: str, value: int, *, sealed: bool = True) -> bytes:
    """The batch with one field of its header changed, and its CRC made right again."""
    out = bytearray(batch)
    struct.pack_into(layout, out, at, value)
    if sealed:
        struct.pack_into(">I", out, 17, crc32c(out[21:]))
    return bytes(out)


# Roundtrips


@settings(max_examples=150, deadline=None)
@given(NEW_RECORDS, st.sampled_from(Codec), st.integers(0, 1 << 50))
def test_records_that_are_built_are_read_again(new, codec, base_offset):
    batch = build_batch(new, codec=codec, base_offset=base_offset)
    expected = [one._replace(offset=base_offset + index) for index, one in enumerate(new)]
    assert list(records.iterate(batch)) == expected


@settings(max_examples=100, deadline=None)
@given(NEW_RECORDS, st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]))
def test_batches_of_ours_are_read_by_aiokafka(new, codec):
    batch = DefaultRecordBatch(bytearray(build_batch(new, codec=codec)))
    assert batch.validate_crc()
    assert [(one.timestamp, one.key, one.value, tuple(one.headers)) for one in batch] == [
        tuple(one)[1:] for one in new
    ]


@settings(max_examples=100, deadline=None)
@given(NEW_RECORDS, st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]))
def test_batches_of_aiokafka_are_read_by_us(new, codec):
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=7,
        producer_epoch=1,
        base_sequence=9,
        batch_size=1 << 20,
    )
    for index, one in enumerate(new):
        builder.append(
            index, timestamp=one.timestamp, key=one.key, value=one.value, headers=list(one.headers)
        )
    batch = bytes(builder.build())
    assert records.validate_batch(batch) == ErrorCode.NONE
    assert [tuple(one)[1:] for one in records.iterate(batch)] == [tuple(one)[1:] for one in new]
    header = records.read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 9)
    assert header.record_count == len(new)
    assert header.max_timestamp == max(one.timestamp for one in new)


def test_a_batch_is_the_golden_bytes():
    batch = build_batch(
        [Record(timestamp=1_700_000_000_000, key=b"key", value=b"value", headers=(("h", b"1"),))],
        base_offset=5,
        producer_id=1,
        producer_epoch=2,
        base_sequence=3,
    )
    assert batch.hex() == GOLDEN


GOLDEN = (
    "000000000000000500000044ffffffff02f01a5ccf0000000000000000018bcfe56800"
    "0000018bcfe5680000000000000000010002000000030000000124000000066b65790a"
    "76616c75650202680231"
)


def test_offsets_with_gaps_are_kept():
    batch = build_batch([Record(offset=10), Record(offset=15), Record()], base_offset=8)
    assert [one.offset for one in records.iterate(batch)] == [10, 15, 16]
    assert records.read_header(batch).last_offset == 16


def test_a_header_key_that_is_not_utf8_keeps_its_bytes():
    name = b"\xff\xfe".decode("utf-8", "surrogateescape")
    batch = build_batch([Record(headers=((name, b"v"),))])
    assert b"\xff\xfe" in batch
    assert next(records.iterate(batch)).headers == ((name, b"v"),)


@pytest.mark.parametrize("codec", Codec)
def test_recompression_changes_the_codec_and_nothing_else(codec):
    batch = build_batch(TWO, codec=Codec.LZ4, producer_id=4, producer_epoch=0, base_sequence=6)
    header, content = records.payload(batch)
    other = records.recoded(header, compress(codec, content), codec)
    assert records.validate_batch(other) == ErrorCode.NONE
    assert list(records.iterate(other)) == list(records.iterate(batch))
    before, after = records.read_header(batch), records.read_header(other)
    assert after.codec == codec
    assert after[5:] != before[5:] or codec == Codec.LZ4
    assert after[6:] == before[6:]


def test_a_control_batch_is_one_record_that_kafka_would_write_kip_98():
    batch = records.control_batch(
        records.CONTROL_COMMIT, base_offset=9, timestamp=77, producer_id=5, producer_epoch=3
    )
    header = records.read_header(batch)
    assert header.attributes == 0x30
    assert (header.base_sequence, header.producer_id, header.producer_epoch) == (-1, 5, 3)
    assert (header.base_offset, header.last_offset_delta, header.record_count) == (9, 0, 1)
    [record] = records.iterate(batch)
    assert record == Record(9, 77, b"\0\0\0\1", b"\0\0\0\0\0\0")


MARKERS = {
    records.CONTROL_ABORT: (
        "0000000000000009"  # Base offset.
        "00000042"  # Length: what follows it, 78 - 12.
        "00000000"  # Leader epoch.
        "02"  # Magic.
        "2edcb967"  # CRC-32C.
        "0030"  # Attributes: transactional, control.
        "00000000"  # Last offset delta.
        "0000018bcfe56800"  # Base and largest timestamp.
        "0000018bcfe56800"
        "0000000000000005"  # Producer id and epoch.
        "0003"
        "ffffffff"  # Base sequence.
        "00000001"  # Count of records.
        "20000000"  # The record: 16 bytes, attributes, timestamp and offset delta.
        "0800000000"  # Its key: 4 bytes, version 0, type.
        "0c000000000000"  # Its value: 6 bytes, version 0, coordinator epoch 0.
        "00"  # No headers.
    ),
    records.CONTROL_COMMIT: (
        "0000000000000009000000420000000002dae26f2f003000000000"
        "0000018bcfe568000000018bcfe5680000000000000000050003ffffffff00000001"
        "2000000008000000010c00000000000000"
    ),
}


@pytest.mark.parametrize("kind", MARKERS)
def test_a_marker_is_the_bytes_that_kafka_writes_kip_98(kind):
    batch = records.control_batch(
        kind, base_offset=9, timestamp=1_700_000_000_000, producer_id=5, producer_epoch=3
    )
    assert batch.hex() == MARKERS[kind]
    assert len(batch) == records.CONTROL_BATCH_BYTES


@given(
    kind=st.sampled_from([records.CONTROL_ABORT, records.CONTROL_COMMIT]),
    offset=st.integers(0, 1 << 62),
    timestamp=st.integers(-1, (1 << 62)),
    producer_id=st.integers(0, (1 << 63) - 1),
    epoch=st.integers(0, 32767),
)
def test_markers_are_read_by_aiokafka_as_control_records(
    kind, offset, timestamp, producer_id, epoch
):
    batch = records.control_batch(
        kind,
        base_offset=offset,
        timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=epoch,
    )
    read = DefaultRecordBatch(batch)
    assert read.validate_crc()
    assert read.is_control_batch
    assert read.is_transactional
    assert (read.base_offset, read.next_offset) == (offset, offset + 1)
    assert (read.producer_id, read.producer_epoch, read.base_sequence) == (producer_id, epoch, -1)
    (record,) = read
    assert ControlRecord.parse(record.key) == (ABORT_MARKER, COMMIT_MARKER)[kind]
    assert (record.offset, record.timestamp, record.headers) == (offset, timestamp, [])


# Checks, in Kafka's order


def test_a_sound_batch_passes():
    assert records.validate_batch(memoryview(build_batch(TWO))) == ErrorCode.NONE
    header = records.check_batch(build_batch(TWO))
    assert isinstance(header, records.BatchHeader)
    assert header.size == len(build_batch(TWO))


@pytest.mark.parametrize("length", [0, 5, 11])
def test_less_than_a_length_is_no_batch(length):
    assert records.validate_batch(build_batch(TWO)[:length]) == ErrorCode.INVALID_RECORD


def test_a_batch_cut_short_is_no_batch():
    assert records.validate_batch(build_batch(TWO)[:-1]) == ErrorCode.INVALID_RECORD


def test_two_batches_are_refused():
    assert records.validate_batch(build_batch(TWO) * 2) == ErrorCode.INVALID_RECORD


def test_bytes_behind_the_batch_are_refused():
    assert records.validate_batch(build_batch(TWO) + b"x" * 5) == ErrorCode.CORRUPT_MESSAGE
    assert records.validate_batch(build_batch(TWO) + bytes(50)) == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("magic", "code"),
    [
        (0, ErrorCode.INVALID_RECORD),
        (1, ErrorCode.INVALID_RECORD),
        (3, ErrorCode.CORRUPT_MESSAGE),
        (255, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_other_formats_are_refused(magic, code):
    assert records.validate_batch(changed(build_batch(TWO), 16, ">B", magic)) == code


@pytest.mark.parametrize("length", [-1, 0, 13])
def test_a_length_below_any_batchs_is_corrupt(length):
    assert (
        records.validate_batch(changed(build_batch(TWO), 8, ">i", length))
        == ErrorCode.CORRUPT_MESSAGE
    )


def test_a_batch_shorter_than_its_header_is_corrupt():
    short = changed(build_batch(TWO)[:40], 8, ">i", 28)
    assert records.validate_batch(short) == ErrorCode.CORRUPT_MESSAGE


def test_a_wrong_crc_is_corrupt():
    batch = bytearray(build_batch(TWO))
    batch[-1] ^= 1
    assert records.validate_batch(batch) == ErrorCode.CORRUPT_MESSAGE


HEADER_CHANGES = [
    pytest.param(0, ">q", 1, ErrorCode.INVALID_RECORD, id="base offset"),
    pytest.param(23, ">i", -1, ErrorCode.INVALID_RECORD, id="last offset delta"),
    pytest.param(23, ">i", 2, ErrorCode.INVALID_RECORD, id="delta and count differ"),
    pytest.param(57, ">i", 0, ErrorCode.INVALID_RECORD, id="no records"),
    pytest.param(57, ">i", -1, ErrorCode.INVALID_RECORD, id="negative count"),
    pytest.param(21, ">h", 0x20, ErrorCode.INVALID_RECORD, id="control"),
    pytest.param(43, ">q", 7, ErrorCode.INVALID_RECORD, id="producer without sequence"),
    pytest.param(21, ">h", 5, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, id="unknown codec"),
]


@pytest.mark.parametrize(("at", "layout", "value", "code"), HEADER_CHANGES)
def test_a_header_that_makes_no_sense_is_refused(at, layout, value, code):
    assert records.validate_batch(changed(build_batch(TWO), at, layout, value)) == code


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_count_that_the_bytes_cannot_hold_is_refused(codec):
    batch = changed(build_batch(TWO, codec=codec), 57, ">i", (1 << 31) - 1)
    batch = changed(batch, 23, ">i", (1 << 31) - 2)
    assert records.validate_batch(batch) == ErrorCode.INVALID_RECORD


def counting(batch: bytes, count: int) -> bytes:
    """The batch with another count of records in its header."""
    return changed(changed(batch, 57, ">i", count), 23, ">i", count - 1)


@pytest.mark.parametrize("codec", Codec)
def test_a_count_that_the_codec_cannot_make_of_the_bytes_is_refused(codec):
    batch = build_batch(TWO, codec=codec)
    most = (len(batch) - records.HEADER_BYTES) * RATIO_MAX[codec] // records.RECORD_BYTES_MIN
    assert records.validate_batch(counting(batch, most)) == ErrorCode.NONE
    assert records.validate_batch(counting(batch, most + 1)) == ErrorCode.INVALID_RECORD


def test_a_count_that_needs_more_than_batches_may_inflate_to_is_refused():
    batch = build_batch(TWO, codec=Codec.ZSTD)
    bound = 1000 * records.RECORD_BYTES_MIN
    taken = records.check_batch(counting(batch, 1000), inflated_max=bound)
    assert isinstance(taken, records.BatchHeader)
    refused = records.check_batch(counting(batch, 1001), inflated_max=bound)
    assert refused == ErrorCode.INVALID_RECORD
    plain = build_batch([Record()] * 1001)
    assert isinstance(records.check_batch(plain, inflated_max=bound), records.BatchHeader)


def test_the_smallest_records_fill_the_bytes_exactly():
    assert records.validate_batch(build_batch([Record()] * 60)) == ErrorCode.NONE


def test_the_first_violation_wins():
    batch = build_batch(TWO)
    with_offset = changed(batch, 0, ">q", 1)
    assert records.check_batch(with_offset, bytes_max=10) == ErrorCode.INVALID_RECORD
    broken = batch[:-1] + b"\xff"
    assert records.check_batch(broken, bytes_max=10) == ErrorCode.MESSAGE_TOO_LARGE
    assert records.check_batch(broken) == ErrorCode.CORRUPT_MESSAGE


def test_a_batch_of_the_greatest_size_passes_and_one_byte_more_does_not():
    batch = build_batch(TWO)
    assert isinstance(records.check_batch(batch, bytes_max=len(batch)), records.BatchHeader)
    assert records.check_batch(batch, bytes_max=len(batch) - 1) == ErrorCode.MESSAGE_TOO_LARGE


def test_zstd_before_produce_v7_is_refused_kip_110():
    batch = build_batch(TWO, codec=Codec.ZSTD)
    assert records.check_batch(batch, produce_version=6) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert isinstance(records.check_batch(batch, produce_version=7), records.BatchHeader)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=100))
def test_any_bytes_have_a_verdict(data):
    assert isinstance(records.validate_batch(data), ErrorCode)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 60), st.integers(0, 255), st.booleans())
def test_a_batch_with_any_byte_of_its_header_changed_has_a_verdict(at, byte, sealed):
    batch = changed(build_batch(TWO), at, ">B", byte, sealed=sealed)
    if records.validate_batch(batch) == ErrorCode.NONE:
        try:
            list(records.iterate(batch))
        except ProtocolError:
            return


# Patching


@given(st.integers(0, (1 << 62)), st.integers(-1, 100))
def test_a_patch_changes_offset_and_epoch_and_leaves_the_crc_right(base_offset, epoch):
    buffer = bytearray(b"junk" + build_batch(TWO))
    records.patch(buffer, 4, base_offset, epoch)
    header = records.read_header(buffer, 4)
    assert (header.base_offset, header.leader_epoch) == (base_offset, epoch)
    assert header.crc == crc32c(buffer[4 + 21 :])
    assert buffer[:4] == b"junk"


@given(st.lists(st.integers(1, 4), max_size=5))
def test_positions_are_those_of_the_batches(counts):
    batches = [build_batch([Record(value=b"x" * count)] * count) for count in counts]
    starts, offsets = records.batch_positions(memoryview(b"".join(batches)))
    assert list(starts) == [sum(map(len, batches[:i])) for i in range(len(batches))]
    assert list(offsets) == counts
    assert (starts.typecode, offsets.typecode) == ("I", "q")


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=100), st.integers(0, 2))
def test_positions_of_any_bytes_are_a_list_or_a_protocol_error(data, batches):
    try:
        records.batch_positions(build_batch(TWO) * batches + data)
    except ProtocolError:
        return


def test_positions_in_bytes_that_do_not_end_with_a_batch_are_refused():
    with pytest.raises(ProtocolError, match="behind the last"):
        records.batch_positions(build_batch(TWO) + b"x")
    with pytest.raises(ProtocolError, match="no record batch at 0"):
        records.batch_positions(build_batch(TWO)[:-1])
    with pytest.raises(ProtocolError, match="magic 1"):
        records.batch_positions(changed(build_batch(TWO), 16, ">B", 1))


def test_log_append_time_sets_bit_maximum_and_crc_and_every_record_has_it():
    buffer = bytearray(b"junk" + build_batch(TWO) + b"more")
    records.set_log_append_time(buffer, 4, 5_000)
    batch = bytes(buffer[4:-4])
    assert records.validate_batch(batch) == ErrorCode.NONE
    header = records.read_header(batch)
    assert header.is_log_append_time
    assert (header.base_timestamp, header.max_timestamp) == (1000, 5000)
    assert [one.timestamp for one in records.iterate(batch)] == [5000, 5000]
    assert buffer.endswith(b"more")


# Records that do not parse


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60), st.integers(-1, 5), st.sampled_from(Codec))
def test_any_bytes_as_records_are_records_or_a_protocol_error(data, count, codec):
    batch = with_payload(data, count=count, codec=codec)
    try:
        list(records.iterate(batch))
    except ProtocolError:
        return


@settings(max_examples=300, deadline=None)
@given(NEW_RECORDS, st.data())
def test_records_with_one_byte_changed_are_records_or_a_protocol_error(new, data):
    batch = bytearray(build_batch(new))
    batch[data.draw(st.integers(61, len(batch) - 1))] = data.draw(st.integers(0, 255))
    try:
        list(records.iterate(batch))
    except ProtocolError:
        return


def with_payload(data: bytes, *, count: int, codec: int = Codec.NONE) -> bytes:
    payload = compress(codec, data)
    batch = changed(build_batch(TWO)[:61] + payload, 8, ">i", 49 + len(payload))
    return changed(changed(batch, 21, ">h", codec), 57, ">i", count)


def test_fewer_records_than_the_header_counts_is_refused():
    with pytest.raises(ProtocolError, match="end early"):
        list(records.iterate(changed(build_batch(TWO), 57, ">i", 3)))


def test_more_records_than_the_header_counts_is_refused():
    with pytest.raises(ProtocolError, match="behind the last of 1 records"):
        list(records.iterate(changed(build_batch(TWO), 57, ">i", 1)))


RECORDS_OF_NO_SENSE = {
    "longer than the batch": b"\x20\0\0\0\1\1\0",
    "negative length": b"\x01\0\0\0\1\1\0",
    "longer than its fields": b"\x10\0\0\0\1\1\0\0\0",
    "key beyond the record": b"\x0c\0\0\0\x20\1\0",
    "key of length -2": b"\x0c\0\0\0\x03\1\0",
    "more headers than bytes": b"\x0c\0\0\0\1\1\x20",
    "negative count of headers": b"\x0c\0\0\0\1\1\x01",
    "header without a key": b"\x10\0\0\0\1\1\x02\1\1",
    "varint of 70 bits": b"\x0c\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f\0\1\1\0",
    "varint that never ends": b"\x0c\0" + b"\xff" * 12,
}


@pytest.mark.parametrize("data", RECORDS_OF_NO_SENSE.values(), ids=RECORDS_OF_NO_SENSE)
def test_a_record_that_makes_no_sense_is_refused(data):
    with pytest.raises(ProtocolError):
        list(records.iterate(with_payload(data, count=1)))


def test_the_smallest_record_is_seven_bytes():
    assert list(records.iterate(with_payload(b"\x0c\0\0\0\1\1\0", count=1))) == [
        Record(0, 1000, None, None)
    ]


@given(ints(64))
def test_timestamps_far_apart_are_kept(timestamp):
    new = [Record(timestamp=0), Record(timestamp=timestamp // 2)]
    assert [one.timestamp for one in records.iterate(build_batch(new))] == [0, timestamp // 2]


def test_records_that_inflate_beyond_the_bound_are_refused():
    batch = build_batch([Record(value=bytes(100_000))], codec=Codec.ZSTD)
    with pytest.raises(ProtocolError, match="more than 50000 bytes"):
        list(records.iterate(batch, bytes_max=50_000))


def test_a_header_that_ends_early_is_refused():
    with pytest.raises(ProtocolError, match="ends early"):
        records.read_header(build_batch(TWO)[:60])


def test_a_batch_that_ends_early_is_refused():
    with pytest.raises(ProtocolError, match="no record batch"):
        list(records.iterate(build_batch(TWO)[:-1]))
