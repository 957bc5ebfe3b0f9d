"""Scanning records: the same keys and offsets as reading them, None for what makes no sense."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import ProtocolError
from protocol.record_scan import (
    HEADS_MAX,
    KEY_BYTES_MAX,
    Heads,
    Scanned,
    heads,
    moved,
    newest_timestamp,
    records_end,
    scan,
    timestamp_delta,
)
from protocol.records import Record, assemble, build_batch, iterate, payload, read_header

RECORD = bytes((8 << 1, 0, 0, 0, 1 << 1)) + b"a" + bytes((1 << 1,)) + b"v\0"
"""Key a, value v, both deltas 0, no headers."""
SECOND = RECORD[:3] + bytes((1 << 1,)) + RECORD[4:]

BYTES = st.one_of(st.none(), st.binary(max_size=2), st.sampled_from([b"k" * 63, b"k" * 64]))
RECORDS = st.builds(
    Record,
    st.just(-1),
    st.one_of(st.integers(0, 200), st.sampled_from([8191, 8192, 1 << 20, 1 << 40, -5])),
    st.one_of(BYTES, st.sampled_from([b"k" * 39, b"k" * 40, b"k" * 41, b"k" * 9000])),
    st.one_of(BYTES, st.just(b"v" * 9000)),
    st.sampled_from([(), (("h", None),)]),
)


def scanned(batch: bytes) -> Scanned | None:
    header, data = payload(batch)
    return scan(bytes(data), count=header.record_count, last_delta=header.last_offset_delta)


def with_gaps(drawn: list[tuple[Record, int]]) -> list[Record]:
    offset = -1
    made = []
    for record, gap in drawn:
        offset += gap
        made.append(record._replace(offset=offset))
    return made


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(RECORDS, st.sampled_from([1, 1, 1, 2, 63, 64, 8192, 1 << 21])),
        min_size=1,
        max_size=6,
    )
)
def test_scanning_finds_what_reading_does(drawn: list[tuple[Record, int]]) -> None:
    made = with_gaps(drawn)
    batch = build_batch(made)
    found = scanned(batch)
    assert found is not None
    assert list(found.deltas) == [record.offset for record in made]
    assert found.nulls == [at for at, record in enumerate(made) if record.value is None]
    for key, record in zip(found.keys, made, strict=True):
        if record.key is None or len(record.key) <= KEY_BYTES_MAX:
            assert key == record.key
        else:
            assert key is not None
            assert len(key) == KEY_BYTES_MAX + 1
    deltas = [timestamp_delta(bytes(payload(batch)[1]), start) for start in found.starts]
    assert deltas == [record.timestamp - made[0].timestamp for record in made]


@settings(deadline=None)
@given(st.lists(RECORDS, min_size=1, max_size=6), st.sampled_from([0, 5, -6, 1 << 62]))
def test_newest_timestamp_is_that_of_the_records_read(made: list[Record], later: int) -> None:
    batch = build_batch(made)
    header, content = payload(batch)
    header = header._replace(base_timestamp=header.base_timestamp + later, max_timestamp=-1)
    newest = max(record.timestamp for record in made) + later
    assert newest_timestamp(header, bytes(content)) == max(-1, newest)


def test_newest_timestamp_is_64_bits_wide_at_most() -> None:
    header, content = payload(build_batch([Record(-1, 5), Record(-1, 9)]))
    moved_up = header._replace(base_timestamp=(1 << 63) - 1)
    assert newest_timestamp(moved_up, bytes(content)) == (1 << 63) - 1


@settings(deadline=None)
@given(st.binary(max_size=60), st.integers(0, 5))
def test_whatever_the_bytes_a_newest_timestamp_is_found_where_records_are_read(
    content: bytes, count: int
) -> None:
    header = read_header(build_batch([Record(-1, 7)]))._replace(record_count=count)
    found = newest_timestamp(header, content)
    try:
        read = list(iterate(assemble(header, content)))
    except ProtocolError:
        return
    assert found == (max(-1, *(record.timestamp for record in read)) if read else None)


@settings(deadline=None)
@given(st.lists(RECORDS, min_size=1, max_size=6), st.integers(-(1 << 45), 1 << 45), st.data())
def test_moved_records_differ_in_their_timestamp_alone(
    made: list[Record], later: int, data: st.DataObject
) -> None:
    batch = build_batch(made)
    found = scanned(batch)
    assert found is not None
    content = bytes(payload(batch)[1])
    ends = [*found.starts[1:], len(content)]
    chosen = data.draw(st.sets(st.sampled_from(range(len(made)))))
    places = [(found.starts[at], ends[at]) for at in sorted(chosen)]
    header = read_header(batch)
    rest = moved(content, places, later=later)
    again = bytearray(batch[:61]) + rest
    again[8:12] = (len(again) - 12).to_bytes(4, "big")
    again[57:61] = len(chosen).to_bytes(4, "big")
    assert list(iterate(bytes(again))) == [
        record._replace(timestamp=record.timestamp + later)
        for at, record in enumerate(iterate(batch))
        if at in chosen
    ]
    assert header.record_count == len(made)


def test_keys_of_few_bytes_and_the_digest_of_a_long_one_are_told_apart() -> None:
    keys = [b"k" * length for length in (0, 1, 39, 40, 41, 42, 5000)]
    found = scanned(build_batch([Record(-1, 5, key) for key in keys]))
    assert found is not None
    assert len(set(found.keys)) == len(keys)


@pytest.mark.parametrize("size", [63, 64, 100, 8191, 8192])
def test_key_whose_length_takes_bytes_of_its_own_is_found(size: int) -> None:
    found = scanned(build_batch([Record(-1, 5, b"k" * size), Record(-1, 6, b"k" * size)]))
    other = scanned(build_batch([Record(-1, 5, b"k" * size + b"k")]))
    assert found is not None
    assert other is not None
    assert found.keys[0] == found.keys[1] != other.keys[0]


@pytest.mark.parametrize(
    ("records", "count", "last_delta"),
    [
        (b"", 1, 0),
        (RECORD, 2, 1),
        (RECORD, 0, 0),
        (RECORD + b"\0", 1, 0),
        (RECORD + SECOND[:-1], 2, 1),
        (RECORD + RECORD, 2, 1),
        (RECORD + SECOND, 2, 0),
        (SECOND + RECORD, 2, 1),
        (SECOND, 1, 0),
        (RECORD[:3] + b"\x01" + RECORD[4:], 1, 0),  # An offset before the first.
        (RECORD[:3] + b"\x81\x80\x00" + RECORD[4:], 1, 9),
        (b"\x0f" + RECORD[1:], 1, 0),
        (b"\x11" + RECORD[1:], 1, 0),  # -9 bytes, and 9 follow.
        (b"\x91\x00" + RECORD[1:], 1, 0),
        (RECORD[:4] + b"\x03" + RECORD[5:], 1, 0),  # A key of -2 bytes,
        (RECORD[:4] + b"\x06" + RECORD[5:], 1, 0),  # of so many that no value has room,
        (RECORD[:4] + b"\x08" + RECORD[5:], 1, 0),  # or the headers have none,
        (RECORD[:4] + b"\x0c" + RECORD[5:], 1, 0),  # of more than the record has,
        (RECORD[:4] + b"\xff" * 9 + b"\x01" + RECORD[5:], 1, 0),  # or than there are.
        (b"\xff" * 12, 1, 0),
        (b"\xff" * 9 + b"\x7f" + RECORD[1:], 1, 0),
        (RECORD, 1 << 30, (1 << 30) - 1),
    ],
)
def test_what_are_no_such_records_is_not_scanned(
    records: bytes, count: int, last_delta: int
) -> None:
    assert scan(records, count=count, last_delta=last_delta) is None


def test_records_written_by_hand_are_scanned() -> None:
    assert scan(RECORD + SECOND, count=2, last_delta=1) == Scanned(
        [0, 9], [b"a", b"a"], range(2), []
    )


@settings(deadline=None)
@given(st.binary(max_size=40), st.integers(0, 6), st.integers(0, 6))
def test_whatever_the_bytes_scanning_returns(data: bytes, count: int, last_delta: int) -> None:
    found = scan(data, count=count, last_delta=last_delta)
    if found is not None:
        assert len(found.starts) == len(found.keys) == len(found.deltas) == count
        assert all(delta <= last_delta for delta in found.deltas)


def test_timestamp_deltas_that_would_not_fit_wrap_as_they_do_in_kafka_s_clients() -> None:
    again = moved(RECORD, [(0, len(RECORD))], later=1 << 63)
    assert timestamp_delta(again, 0) == -(1 << 63)


def heads_of(batch: bytes) -> list[Heads]:
    header, data = payload(batch)
    return list(heads(data, header.record_count))


def sizes_of(found: list[Heads]) -> list[int]:
    return [len(part.offset_deltas) for part in found]


@settings(deadline=None)
@given(
    st.lists(st.tuples(RECORDS, st.sampled_from([1, 1, 63, 64, 1 << 21])), min_size=1, max_size=6)
)
def test_heads_say_what_reading_the_records_does(drawn: list[tuple[Record, int]]) -> None:
    made = with_gaps(drawn)
    (found,) = heads_of(build_batch(made))
    assert found.offset_deltas == [record.offset for record in made]
    base = made[0].timestamp
    assert found.timestamp_deltas == [record.timestamp - base for record in made]
    assert found.keyless == [at for at, record in enumerate(made) if record.key is None]
    assert (found.first, found.flagged) == (0, [])


@settings(deadline=None, max_examples=500)
@given(st.data())
def test_heads_are_read_of_whatever_bytes_can_be_read_as_records(data: st.DataObject) -> None:
    batch = bytearray(build_batch([Record(-1, 5, b"key", b"v" * 70, (("h", b"x"),))] * 2))
    at = data.draw(st.integers(61, len(batch) - 1))
    batch[at] = data.draw(st.integers(0, 255))
    wrong = 0
    for read in (lambda: list(iterate(bytes(batch))), lambda: heads_of(bytes(batch))):
        try:
            read()
        except ProtocolError:
            wrong += 1
    assert wrong in {0, 2}


@settings(deadline=None)
@given(st.lists(RECORDS, min_size=1, max_size=6), st.integers(0, 6))
def test_records_behind_those_that_are_passed_over_are_read_as_they_are(
    drawn: list[Record], count: int
) -> None:
    batch = build_batch(drawn)
    count = min(count, len(drawn))
    at = records_end(payload(batch)[1], 0, count)
    assert list(iterate(batch, begin=(count, at))) == list(iterate(batch))[count:]


@pytest.mark.parametrize("wrong", [b"", b"\x80", b"\x01", b"\x03", RECORD[:-1], b"\xff" * 6])
def test_what_is_no_record_is_not_passed_over(wrong: bytes) -> None:
    with pytest.raises(ProtocolError):
        records_end(RECORD + wrong, 0, 2)


def test_heads_come_in_slices_that_are_bounded() -> None:
    found = heads_of(build_batch([Record(-1, 5, b"k")] * (2 * HEADS_MAX + 1)))
    assert [(part.first, len(part.offset_deltas)) for part in found] == [
        (0, HEADS_MAX),
        (HEADS_MAX, HEADS_MAX),
        (2 * HEADS_MAX, 1),
    ]


def test_a_record_of_many_headers_takes_many_slices() -> None:
    many = Record(-1, 5, b"k", None, (("", None),) * (3 * HEADS_MAX))
    assert sizes_of(heads_of(build_batch([many]))) == [0, 0, 0, 1]


def test_headers_of_many_records_take_slices_of_their_own() -> None:
    some = Record(-1, 5, b"k", None, (("", None),) * (HEADS_MAX // 4))
    assert sizes_of(heads_of(build_batch([some] * 12))) == [0, 0, 0, 12]


def test_heads_before_what_is_broken_are_read() -> None:
    parts = heads(RECORD + b"\x0f" + RECORD[1:], 2)
    assert next(parts).offset_deltas == [0]
    with pytest.raises(ProtocolError, match="record 1 "):
        next(parts)


def test_attributes_of_records_are_told() -> None:
    (found,) = heads(RECORD[:1] + b"\x01" + RECORD[2:] + SECOND, 2)
    assert found.flagged == [0]


@pytest.mark.parametrize(
    ("records", "count"),
    [
        (RECORD, 2),
        (RECORD + b"\0", 1),
        (RECORD[:-1], 1),
        (RECORD[:4] + b"\x0c" + RECORD[5:], 1),
        (RECORD[:6] + b"\x03" + RECORD[7:], 1),  # A value of -2 bytes.
        (RECORD[:8] + b"\x01", 1),  # -1 headers.
        (RECORD[:8] + b"\x02", 1),
        (b"\x14" + RECORD[1:8] + b"\x02\x01\x01", 1),  # A header without a key.
        (b"\x18" + RECORD[1:3] + b"\x80\x80\x80\x80\x10" + RECORD[4:], 1),  # 33 bits.
    ],
)
def test_what_are_no_such_records_has_no_heads(records: bytes, count: int) -> None:
    with pytest.raises(ProtocolError):
        list(heads(records, count))
