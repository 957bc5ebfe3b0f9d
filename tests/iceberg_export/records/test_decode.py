"""The compiled decoder against the plain one, and against broken bytes."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from iceberg_export import names
from iceberg_export.errors import CorruptSpanError
from iceberg_export.plan.splits import Aborted, PlannedSpan
from iceberg_export.records import decode as decoder
from iceberg_export.records import rows
from iceberg_export.records.decode import read_records, split_batches
from iceberg_export.verify.reference_rows import reference_rows
from protocol.records import (
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Record,
    build_batch,
    control_batch,
    patch,
    set_log_append_time,
)
from tests.iceberg_export.kit.world import some_records

DAY_MS = 86_400_000


def span_of(data, count, base=100, offset_from=None, offset_to=None):
    return PlannedSpan(
        partition=3,
        key="chunks/1/2",
        start=0,
        length=len(data),
        base_offset=base,
        records=count,
        offset_from=base if offset_from is None else offset_from,
        offset_to=base + count if offset_to is None else offset_to,
    )


def decode(data, span):
    import pyarrow as pa

    return pa.concat_tables(piece.rows for piece in rows.span_rows(span, memoryview(data)))


def expected_row(record, offset, kind=0):
    from datetime import UTC, datetime, timedelta

    held = 0 <= record.timestamp <= names.TIMESTAMP_MS_MAX
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return {
        "kafka_partition": 3,
        "kafka_offset": offset,
        "kafka_timestamp": epoch + timedelta(milliseconds=record.timestamp) if held else None,
        "kafka_timestamp_type": kind,
        "kafka_key": record.key,
        "kafka_headers": [{"key": key, "value": value} for key, value in record.headers],
        "kafka_timestamp_raw": None if held or record.timestamp == -1 else record.timestamp,
        "value": record.value,
    }


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_every_codec_gives_the_records_back(codec):
    records = some_records(200)
    data = build_batch(records, codec=codec) + build_batch(some_records(5, 200), codec=codec)
    found = decode(data, span_of(data, 205)).to_pylist()
    wanted = records + some_records(5, 200)
    assert found == [expected_row(record, 100 + i) for i, record in enumerate(wanted)]


record_lists = st.lists(
    st.builds(
        Record,
        offset=st.just(-1),
        timestamp=st.one_of(
            st.integers(-1, 4_000_000_000_000), st.integers(-(1 << 62), (1 << 62) - 1)
        ),
        key=st.none() | st.binary(max_size=40),
        value=st.none() | st.binary(max_size=300),
        headers=st.lists(
            st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=4
        ).map(tuple),
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=150, deadline=None)
@given(record_lists, st.integers(0, 4), st.integers(0, 1 << 61))
def test_any_records_come_back_equal(records, codec, base):
    data = build_batch(records, codec=codec)
    table = decode(data, span_of(data, len(records), base))
    table.validate(full=True)
    held = [0 <= one.timestamp <= names.TIMESTAMP_MS_MAX for one in records]
    raw = [one.timestamp for one in records]
    assert table["kafka_offset"].to_pylist() == [base + i for i in range(len(records))]
    assert table["kafka_key"].to_pylist() == [one.key for one in records]
    assert table["value"].to_pylist() == [one.value for one in records]
    assert [
        [(pair["key"], pair["value"]) for pair in row] for row in table["kafka_headers"].to_pylist()
    ] == [list(one.headers) for one in records]
    micros = table["kafka_timestamp"].cast("int64").to_pylist()
    assert micros == [t * 1000 if ok else None for t, ok in zip(raw, held, strict=True)]
    assert table["kafka_timestamp_raw"].to_pylist() == [
        None if ok or t == -1 else t for t, ok in zip(raw, held, strict=True)
    ]


@settings(max_examples=300, deadline=None)
@given(st.data())
@example(None)
def test_both_decoders_agree_on_which_batches_nobody_can_read_and_on_the_rows_of_the_others(data):
    batch = bytearray(build_batch(some_records(12)))
    if data is not None:
        for _ in range(data.draw(st.integers(1, 3))):
            batch[data.draw(st.integers(61, len(batch) - 1))] = data.draw(st.integers(0, 255))
        reseal(batch)
    span = span_of(batch, 12)
    one, _rest = rows.span_rows(span, memoryview(batch))
    (other,) = reference_rows(span, memoryview(batch))
    assert one.rows.to_pylist() == other.rows.to_pylist()
    assert len(one.reasons) == len(other.reasons)
    assert one.tally.offsets == 12


def reseal(batch):
    from crc32c import crc32c

    batch[17:21] = crc32c(memoryview(batch)[21:]).to_bytes(4, "big")


def test_a_wrong_crc_is_refused():
    batch = bytearray(build_batch(some_records(3)))
    batch[-1] ^= 1
    with pytest.raises(CorruptSpanError, match="CRC"):
        decode(batch, span_of(batch, 3))


def test_a_span_of_other_length_than_the_log_says_is_refused():
    batch = build_batch(some_records(3))
    with pytest.raises(CorruptSpanError, match="holds 3 offsets, the log says 4"):
        decode(batch, span_of(batch, 4))


@pytest.mark.parametrize("cut", [1, 30, 61, 70])
def test_a_cut_batch_is_refused(cut):
    batch = build_batch(some_records(3))[:-cut]
    with pytest.raises(CorruptSpanError):
        decode(batch, span_of(batch, 3))


def unreadable(data, span):
    """The row of the one batch that cannot be read, and why."""
    pieces = [piece for piece in rows.span_rows(span, memoryview(data)) if piece.reasons]
    (piece,) = pieces
    ((row,), (reason,)) = piece.rows.to_pylist(), piece.reasons
    return row, reason, piece.tally


def test_a_record_count_that_lies_costs_no_memory():
    batch = bytearray(build_batch(some_records(3)))
    batch[23:27] = (2_000_000_000 - 1).to_bytes(4, "big")
    batch[57:61] = (2_000_000_000).to_bytes(4, "big")
    reseal(batch)
    row, reason, tally = unreadable(batch, span_of(batch, 2_000_000_000))
    assert reason.endswith("its records do not parse")
    assert row["kafka_offset"] == 2_000_000_099
    assert tally.offsets == 2_000_000_000
    assert tally.rows == 1, "one row, whatever a batch claims"


def garbage(count=3):
    """A batch whose checksum is right, and whose records are none."""
    batch = bytearray(build_batch(some_records(count)))
    batch[61:] = b"\xff" * (len(batch) - 61)
    reseal(batch)
    return bytes(batch)


def test_a_batch_that_nobody_can_read_is_one_row_between_the_records_around_it():
    bad = garbage(4)
    data = build_batch(some_records(3)) + bad + build_batch(some_records(2))
    pieces = list(rows.span_rows(span_of(data, 9), memoryview(data)))
    found = [
        (piece.rows.column("kafka_offset").to_pylist(), len(piece.reasons)) for piece in pieces
    ]
    assert found == [([100, 101, 102], 0), ([106], 1), ([107, 108], 0), ([], 0)]
    assert sum(piece.tally.offsets for piece in pieces) == 9
    assert sum(piece.tally.unreadable for piece in pieces) == 3
    (row,) = pieces[1].rows.to_pylist()
    in_log = bytearray(bad)
    patch(in_log, 0, 103)
    assert row["value"] == bytes(in_log)
    assert row["kafka_key"] is None
    assert [(one["key"], one["value"]) for one in row["kafka_headers"]] == [
        ("frazil.batch.first.offset", b"103"),
        ("frazil.batch.last.offset", b"106"),
    ]


def test_a_batch_that_nobody_can_read_is_the_same_row_in_a_segment():
    bad = bytearray(garbage(4))
    span = span_of(bad, 4)
    row, _reason, _tally = unreadable(bad, span)
    patch(bad, 0, 100, leader_epoch=0)
    moved = unreadable(bad, span._replace(key="segments/1/2"))
    assert moved[0] == row


@pytest.mark.parametrize(
    ("wanted", "is_there", "is_told"),
    [
        ((100, 104), True, True),
        ((102, 104), True, True),
        ((100, 103), False, True),
        ((100, 100), False, False),
    ],
)
def test_a_batch_that_nobody_can_read_has_its_row_where_its_last_offset_is_wanted(
    wanted, is_there, is_told
):
    bad = garbage(4)
    span = span_of(bad, 4, offset_from=wanted[0], offset_to=wanted[1])
    pieces = list(rows.span_rows(span, memoryview(bad)))
    assert sum(len(piece.reasons) for piece in pieces) == int(is_there)
    assert any(piece.hidden for piece in pieces) == is_told
    assert sum(piece.tally.offsets for piece in pieces) == 4


@pytest.mark.parametrize("codec", [1, 2, 3, 4, 5, 7])
def test_a_batch_that_does_not_inflate_is_a_row_of_its_own(codec):
    bad = bytearray(garbage())
    bad[22] = codec
    reseal(bad)
    data = bytes(bad) + build_batch(some_records(2))
    span = span_of(data, 5)
    _row, reason, tally = unreadable(data, span)
    assert "offsets 100 to 102 cannot be read, although its checksum matches" in reason
    assert tally == rows.Tally(rows=1, unreadable=2)
    reference = [piece for piece in reference_rows(span, memoryview(data)) if piece.reasons]
    assert reference[0].rows.to_pylist() == [_row]


def test_many_small_batches_that_nobody_can_read_are_gathered():
    data = garbage(1) * 2500
    pieces = list(rows.span_rows(span_of(data, 2500), memoryview(data)))
    assert [len(piece.reasons) for piece in pieces] == [1000, 1000, 500, 0]
    assert sum(piece.tally.offsets for piece in pieces) == 2500


def test_a_timestamp_that_wraps_around_is_the_same_in_both_decoders():
    batch = bytearray(build_batch([Record(timestamp=5), Record(timestamp=6)]))
    batch[27:35] = ((1 << 63) - 1).to_bytes(8, "big")  # The base; the second record's delta is 1.
    reseal(batch)
    span = span_of(batch, 2)
    one, _rest = rows.span_rows(span, memoryview(batch))
    (other,) = reference_rows(span, memoryview(batch))
    assert one.rows.to_pylist() == other.rows.to_pylist()
    assert one.rows["kafka_timestamp_raw"].to_pylist() == [(1 << 63) - 1, -(1 << 63)]


def test_a_varint_of_more_than_64_bits_is_refused_by_both_decoders():
    batch = bytearray(build_batch([Record(value=bytes(20))]))
    # Attributes, then the timestamp's delta: ten bytes, the last of which has bits beyond the 64th.
    batch[63:73] = b"\x80" * 9 + b"\x02"
    reseal(batch)
    span = span_of(batch, 1)
    assert unreadable(batch, span)[1].endswith("its records do not parse")
    (other,) = reference_rows(span, memoryview(batch))
    assert len(other.reasons) == 1


def test_records_are_noted_a_bounded_number_at_a_time():
    count = decoder.PIECE_RECORDS_MAX + 5
    data = build_batch([Record(timestamp=1)] * count, codec=4)
    pieces = list(rows.span_rows(span_of(data, count), memoryview(data)))
    assert [piece.rows.num_rows for piece in pieces] == [decoder.PIECE_RECORDS_MAX, 5, 0]
    offsets = [o for piece in pieces for o in piece.rows["kafka_offset"].to_pylist()]
    assert offsets == list(range(100, 100 + count))


def test_large_records_are_noted_a_bounded_number_of_bytes_at_a_time():
    many = [Record(timestamp=1, value=bytes([i]) * 3_000_000) for i in range(7)]
    data = build_batch([*many, Record(value=bytes(20_000_000))], codec=4)
    pieces = list(rows.span_rows(span_of(data, 8), memoryview(data)))
    assert [piece.rows.num_rows for piece in pieces] == [2, 2, 2, 1, 1, 0]
    assert [v[:1] for piece in pieces for v in piece.rows["value"].to_pylist()] == [
        *(bytes([i]) for i in range(7)),
        b"\0",
    ]


def test_headers_are_noted_a_bounded_number_at_a_time_and_too_many_of_one_record_refused():
    half = (("", None),) * (decoder.HEADERS_MAX // 2 + 1)
    data = build_batch([Record(headers=half)] * 2, codec=4)
    pieces = list(rows.span_rows(span_of(data, 2), memoryview(data)))
    assert [piece.rows.num_rows for piece in pieces] == [1, 1, 0]
    data = build_batch([Record(headers=half * 2)], codec=4)
    _row, reason, _tally = unreadable(data, span_of(data, 1))
    assert reason.endswith(f"a record has more than {decoder.HEADERS_MAX} headers")


def test_control_batches_are_dropped_and_keep_their_offsets():
    marker = control_batch(1, base_offset=0, timestamp=5, producer_id=7, producer_epoch=0)
    data = build_batch(some_records(2)) + marker + build_batch(some_records(2, 2))
    span = span_of(data, 5)
    pieces = list(rows.span_rows(span, memoryview(data)))
    offsets = [o for piece in pieces for o in piece.rows["kafka_offset"].to_pylist()]
    assert offsets == [100, 101, 103, 104]
    assert sum(piece.tally.control for piece in pieces) == 1
    assert sum(piece.tally.offsets for piece in pieces) == 5


def transactional(count, first, producer_id):
    return build_batch(
        some_records(count, first),
        attributes=TRANSACTIONAL,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
    )


MIXED = [
    transactional(2, 0, 4),  # 100, 101
    transactional(2, 2, 5),  # 102, 103
    build_batch(some_records(1, 4), producer_id=6, producer_epoch=0, base_sequence=0),  # 104
    control_batch(0, base_offset=0, timestamp=5, producer_id=4, producer_epoch=0),  # 105
    transactional(2, 6, 4),  # 106, 107
]


@pytest.mark.parametrize(
    ("aborted", "kept"),
    [
        ([], [100, 101, 102, 103, 104, 106, 107]),
        ([(4, 100, 105)], [102, 103, 104, 106, 107]),
        ([(4, 106, 200)], [100, 101, 102, 103, 104]),
        ([(4, 100, 105), (4, 106, 300)], [102, 103, 104]),
        ([(4, 90, 105), (5, 90, 300)], [104, 106, 107]),
        ([(5, 90, 101)], [100, 101, 102, 103, 104, 106, 107]),
        ([(7, 90, 300)], [100, 101, 102, 103, 104, 106, 107]),
        # What is not transactional is not aborted, whatever a range says.
        ([(6, 90, 300)], [100, 101, 102, 103, 104, 106, 107]),
    ],
)
def test_batches_in_an_aborted_range_of_their_producer_are_dropped(aborted, kept):
    data = b"".join(MIXED)
    ranges = tuple(Aborted(*one) for one in aborted)
    span = span_of(data, 8)._replace(aborted=ranges)
    pieces = list(rows.span_rows(span, memoryview(data)))
    assert [o for piece in pieces for o in piece.rows["kafka_offset"].to_pylist()] == kept
    assert sum(piece.tally.control for piece in pieces) == 1
    assert sum(piece.tally.aborted for piece in pieces) == 7 - len(kept)
    assert sum(piece.tally.offsets for piece in pieces) == 8
    reference = reference_rows(span, memoryview(data))
    assert [row["kafka_offset"] for piece in reference for row in piece.rows.to_pylist()] == kept


def test_an_aborted_batch_that_is_damaged_is_refused_all_the_same():
    data = bytearray(b"".join(MIXED))
    data[70] ^= 1
    span = span_of(data, 8)._replace(aborted=(Aborted(4, 100, 105),))
    with pytest.raises(CorruptSpanError, match="CRC"):
        decode(data, span)


def test_records_of_a_compacted_batch_leave_holes():
    kept = [Record(offset=1, timestamp=9, value=b"a"), Record(offset=4, timestamp=9, value=b"b")]
    data = build_batch(kept)
    span = span_of(data, 5)
    pieces = list(rows.span_rows(span, memoryview(data)))
    assert [o for piece in pieces for o in piece.rows["kafka_offset"].to_pylist()] == [101, 104]
    assert sum(piece.tally.holes for piece in pieces) == 3


def test_only_the_wanted_offsets_of_a_span_are_given():
    data = build_batch(some_records(10))
    span = span_of(data, 10, offset_from=102, offset_to=105)
    pieces = list(rows.span_rows(span, memoryview(data)))
    assert [o for piece in pieces for o in piece.rows["kafka_offset"].to_pylist()] == [
        102,
        103,
        104,
    ]
    assert sum(piece.tally.outside for piece in pieces) == 7


def test_append_time_stamps_every_record():
    batch = bytearray(build_batch(some_records(3)))
    set_log_append_time(batch, 0, 12 * DAY_MS)
    assert batch[22] & LOG_APPEND_TIME
    table = decode(batch, span_of(batch, 3))
    assert table["kafka_timestamp_type"].to_pylist() == [1, 1, 1]
    assert table["kafka_timestamp"].cast("int64").to_pylist() == [12 * DAY_MS * 1000] * 3


def test_a_header_key_that_is_no_utf8_is_replaced_as_java_does():
    batch = bytearray(build_batch([Record(timestamp=1, headers=(("abc", b"v"),))]))
    at = batch.index(b"abc")
    batch[at] = 0xFF
    reseal(batch)
    (row,) = decode(batch, span_of(batch, 1))["kafka_headers"].to_pylist()
    assert row == [{"key": "\N{REPLACEMENT CHARACTER}bc", "value": b"v"}]


def test_base_offsets_in_the_chunk_mean_nothing():
    batch = bytearray(build_batch(some_records(2)))
    patch(batch, 0, 987_654)
    assert decode(batch, span_of(batch, 2))["kafka_offset"].to_pylist() == [100, 101]


def test_batches_of_one_record_are_decoded_together():
    data = b"".join(build_batch(some_records(1, i)) for i in range(500))
    span = span_of(data, 500)
    (unit,) = split_batches(span, memoryview(data))
    (columns,) = read_records(unit)
    assert columns.offsets.tolist() == list(range(100, 600))


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_batches_that_inflate_beyond_the_room_made_for_them_come_whole_and_in_order(codec):
    few = [build_batch(some_records(3), codec=codec) for _ in range(3)]
    large = build_batch([Record(value=bytes(5_000_000)), Record(value=b"end")], codec=codec)
    data = b"".join([few[0], large, few[1], large, large, large, few[2]])
    span = span_of(data, 17)
    units = list(split_batches(span, memoryview(data)))
    assert len(units) > 1, "one unit would be beyond its bound"
    assert [payload.base_offset - 100 for unit in units for payload in unit.payloads] == [
        *(0, 3, 5, 8, 10, 12, 14)
    ]
    found = decode(data, span)["value"].to_pylist()
    one = [record.value for record in some_records(3)]
    big = [bytes(5_000_000), b"end"]
    assert found == [*one, *big, *one, *big, *big, *big, *one]


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_batch_that_inflates_beyond_the_bound_cannot_be_read(codec, monkeypatch):
    monkeypatch.setattr(decoder, "BATCH_BYTES_MAX", decoder.UNIT_BYTES)
    monkeypatch.setattr(decoder, "_ROOM_BYTES", decoder.UNIT_BYTES)
    data = build_batch(some_records(3), codec=codec)
    data += build_batch([Record(value=bytes(decoder.UNIT_BYTES))], codec=codec)
    row, reason, _tally = unreadable(data, span_of(data, 4))
    assert "offsets 103 to 103" in reason
    assert f"inflates to more than {decoder.UNIT_BYTES} bytes" in reason
    assert row["kafka_offset"] == 103


@pytest.mark.parametrize("codec", [0, 4])
def test_the_reference_decoder_agrees(codec):
    data = build_batch(some_records(50), codec=codec) + build_batch(some_records(7), codec=codec)
    span = span_of(data, 57, offset_from=103, offset_to=150)
    reference = [
        row for piece in reference_rows(span, memoryview(data)) for row in piece.rows.to_pylist()
    ]
    assert decode(data, span).to_pylist() == reference
