"""Log compaction against a model over records, and batch by batch."""

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from protocol import records
from protocol.compression import Codec
from protocol.records import Record, build_batch, iterate, read_header
from storage.cleaner import Cleaner, OffsetMap
from storage.formats import walk as walk_module
from storage.formats.batches import Batches, DamagedSpanError
from storage.formats.spans import Marker, ObjectId, ObjectKind, Span
from storage.formats.walk import Aborted, Merged
from tests.storage.build import CHUNK
from tests.storage.lies import FAR_MS, saying
from tests.storage.rows import (
    BASE,
    HISTORIES,
    SEGMENT,
    UNHURRIED,
    History,
    Row,
    Seen,
    batches_of,
    committed,
    seen,
    span_of,
    split,
)

NOW = 1_700_000_000_000
RETENTION = 86_400_000
HORIZON = NOW + RETENTION
AMPLE = 10**6


def offsets_of(made: History, entries_max: int = AMPLE) -> OffsetMap:
    offsets = OffsetMap(entries_max)
    spans = [row for row in made.rows if isinstance(row, Span)]
    for span, data in zip(spans, made.data, strict=True):
        if not offsets.add(span, data, Aborted(made.aborted)):
            break
    return offsets


def cleaned(
    made: History,
    *,
    offsets: OffsetMap | None = None,
    time_ms: int = NOW,
    windows: tuple[int, ...] = (),
) -> list[tuple[Span, Merged]]:
    """All rows, cut to windows before these rows."""
    if offsets is None:
        offsets = offsets_of(made)
    cleaner = Cleaner(offsets, time_ms=time_ms, delete_retention_ms=RETENTION)
    data = iter(made.data)
    spans = []
    for first, last in zip((0, *windows), (*windows, len(made.rows)), strict=True):
        rows = made.rows[first:last]
        if rows:
            contents = [next(data) for row in rows if isinstance(row, Span)]
            merged = cleaner.clean(rows, contents, made.aborted)
            place = {"base_offset": rows[0].base_offset, "next_offset": rows[-1].next_offset}
            spans.append(
                (span_of(merged.parts, timestamp_max=merged.timestamp_max, **place), merged)
            )
    return spans


def as_history(spans: list[tuple[Span, Merged]], made: History) -> History:
    """What was cleaned, as rows to be cleaned again."""
    data = [b"".join(merged.parts) for _, merged in spans]
    return History([span for span, _ in spans], data, made.aborted)


def clean_once(made: History, *, time_ms: int = NOW) -> History:
    return as_history(cleaned(made, time_ms=time_ms), made)


def batches_in(made: History) -> list[bytes]:
    """Batches of segments, those without records left out."""
    found = []
    for span, data in zip(made.rows, made.data, strict=True):
        assert isinstance(span, Span)
        found.extend(split(Batches.checked(span, memoryview(data)).view()))
    return [batch for batch in found if read_header(batch).record_count]


def model(before: list[Seen], *, compared_to: int = 1 << 62) -> list[Seen]:
    """What compaction leaves of what a read_committed consumer sees."""
    newest: dict[bytes | None, int] = {}
    for one in before:
        if not one.control and one.offset < compared_to:
            newest[one.key] = one.offset
    return [
        one
        for one in before
        if one.control
        or one.offset >= compared_to
        or (one.key is not None and one.offset >= newest[one.key])
    ]


def visible(made: History) -> list[Seen]:
    return seen(committed(batches_of(made.rows, made.data), made.aborted))


@UNHURRIED
@given(HISTORIES)
def test_newest_record_of_each_key_stays_and_no_other(made: History) -> None:
    assert seen(batches_in(clean_once(made))) == model(visible(made))


@UNHURRIED
@given(HISTORIES, st.integers(1, 6))
def test_records_behind_what_the_keys_are_known_of_stay(made: History, entries_max: int) -> None:
    offsets = offsets_of(made, entries_max)
    after = as_history(cleaned(made, offsets=offsets), made)
    assert seen(batches_in(after)) == model(visible(made), compared_to=offsets.next_offset)
    assert offsets.next_offset > made.rows[0].base_offset or not made.data


@UNHURRIED
@given(HISTORIES)
def test_cleaning_again_changes_no_byte(made: History) -> None:
    once = clean_once(made)
    again = clean_once(once)
    assert again.data == once.data
    assert again.rows == once.rows


@UNHURRIED
@given(HISTORIES, st.data())
def test_windows_together_hold_what_all_rows_at_once_do(made: History, data: st.DataObject) -> None:
    cuts = tuple(sorted(data.draw(st.lists(st.integers(0, len(made.rows)), max_size=3))))
    parted = as_history(cleaned(made, windows=cuts), made)
    assert batches_in(parted) == batches_in(clean_once(made))
    assert batches_in(clean_once(parted)) == batches_in(parted)


@UNHURRIED
@given(HISTORIES)
def test_after_the_horizon_tombstones_and_ends_of_empty_transactions_go(made: History) -> None:
    once = clean_once(made)
    left = model(visible(made))
    had_records: set[int] = set()
    expected = []
    for one in left:
        if one.control:
            if one.producer_id in had_records:
                expected.append(one)
            had_records.discard(one.producer_id)
        else:
            if one.value is not None:
                expected.append(one)
            if one.producer_id >= 0:
                had_records.add(one.producer_id)
    # What a transaction loses only now still counts: its end gets a horizon of its own.
    later = clean_once(once, time_ms=HORIZON)
    assert [one for one in seen(batches_in(later)) if not one.control] == [
        one for one in expected if not one.control
    ]
    ends = {one.offset for one in seen(batches_in(later)) if one.control}
    assert ends == {one.offset for one in expected if one.control}
    before = clean_once(once, time_ms=HORIZON - 1)
    assert batches_in(before) == batches_in(once)


@UNHURRIED
@given(HISTORIES)
def test_batches_that_lost_nothing_are_the_same_bytes_and_others_keep_their_header(
    made: History,
) -> None:
    before = {read_header(batch).base_offset: batch for batch in batches_of(made.rows, made.data)}
    for batch in batches_in(clean_once(made)):
        header = read_header(batch)
        original = before[header.base_offset]
        was = read_header(original)
        assert header.is_log_append_time == was.is_log_append_time
        assert header.codec == was.codec
        for name in ("last_offset_delta", "producer_id", "producer_epoch", "base_sequence"):
            assert getattr(header, name) == getattr(was, name)
        timestamps = [record.timestamp for record in iterate(batch)]
        assert header.max_timestamp == max(timestamps)
        if header.attributes & records.DELETE_HORIZON:
            assert header.base_timestamp == HORIZON
        elif header.record_count == was.record_count:
            assert batch == original
        else:
            assert header.base_timestamp == was.base_timestamp


@UNHURRIED
@given(HISTORIES)
def test_batches_have_a_horizon_if_a_tombstone_or_an_empty_transaction_s_end_is_in_them(
    made: History,
) -> None:
    left: set[int] = set()
    for batch in batches_in(clean_once(made)):
        header = read_header(batch)
        has_horizon = bool(header.attributes & records.DELETE_HORIZON)
        if header.is_control:
            assert has_horizon == (header.producer_id not in left)
            left.discard(header.producer_id)
        else:
            assert has_horizon == any(record.value is None for record in iterate(batch))
            if header.is_transactional:
                left.add(header.producer_id)


# One thing at a time.


def history_of(*parts: bytes | Marker, base_offset: int = BASE) -> History:
    rows: list[Row] = []
    data = []
    for part in parts:
        if isinstance(part, Marker):
            rows.append(part._replace(base_offset=base_offset))
        else:
            header = read_header(part)
            count = header.last_offset_delta + 1
            rows.append(Span(CHUNK, 16, len(part), base_offset, count, header.max_timestamp))
            data.append(part)
        base_offset = rows[-1].next_offset
    return History(rows, data, [])


def kept(made: History) -> list[Record]:
    return [record for batch in batches_in(made) for record in iterate(batch)]


@pytest.mark.parametrize("codec", list(Codec))
def test_batch_that_loses_records_keeps_its_codec_and_the_others_bytes(codec: Codec) -> None:
    headers = (("name", b"x" * 200), ("none", None))
    first = build_batch(
        [
            Record(-1, 50, b"gone", b"1"),
            Record(-1, 60, b"stays", b"v" * 300, headers),
            Record(-1, 90, b"gone", b"2"),
            Record(-1, 40, b"stays too", b"", headers),
        ],
        codec=codec,
        leader_epoch=7,
    )
    second = build_batch([Record(-1, 70, b"gone", b"3")], codec=codec)
    after = clean_once(history_of(first, second))
    assert kept(after) == [
        Record(BASE + 1, 60, b"stays", b"v" * 300, headers),
        Record(BASE + 3, 40, b"stays too", b"", headers),
        Record(BASE + 4, 70, b"gone", b"3"),
    ]
    header = read_header(batches_in(after)[0])
    assert (header.codec, header.leader_epoch) == (codec, 0)
    assert (header.base_timestamp, header.max_timestamp) == (50, 60)
    assert (header.base_offset, header.last_offset) == (BASE, BASE + 3)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("said", [-1, 0, 49, 5000 + FAR_MS])
@pytest.mark.parametrize("other", [b"a", b"b"])
def test_cleaned_batch_says_the_newest_timestamp_of_what_stays_of_it(
    other: bytes, said: int, codec: Codec
) -> None:
    """Of all records, or of those that are left: the first goes when its key comes again."""
    true = build_batch([Record(-1, 90, b"a", b"1"), Record(-1, 70, other, b"2")], codec=codec)
    made = history_of(saying(true, said))
    rows = [row._replace(timestamp_max=max(said, 50)) for row in made.rows]
    cleaned_once = clean_once(made._replace(rows=rows))
    header = read_header(batches_in(cleaned_once)[0])
    newest = 70 if other == b"a" else 90
    assert header.max_timestamp == cleaned_once.rows[0].timestamp_max == newest
    assert crc32c(batches_in(cleaned_once)[0][21:]) == header.crc


@pytest.mark.parametrize("said", [-1, 0, 49, 5000 + FAR_MS])
def test_batch_behind_what_is_compared_says_the_newest_timestamp_of_its_records(said: int) -> None:
    made = history_of(
        build_batch([Record(-1, 5, b"a", b"1")]),
        saying(build_batch([Record(-1, 50, b"b", b"1"), Record(-1, 60, b"c", b"2")]), said),
    )
    offsets = offsets_of(made, entries_max=1)
    assert offsets.next_offset == BASE + 1
    after = as_history(cleaned(made, offsets=offsets), made)
    assert [read_header(one).max_timestamp for one in batches_in(after)] == [5, 60]


def test_batch_of_log_append_time_keeps_its_time() -> None:
    batch = bytearray(build_batch([Record(-1, 5, key, b"v") for key in (b"a", b"b", b"a")]))
    records.set_log_append_time(batch, 0, 777)
    (after,) = batches_in(clean_once(history_of(bytes(batch))))
    assert [(one.offset, one.timestamp) for one in iterate(after)] == [
        (BASE + 1, 777),
        (BASE + 2, 777),
    ]
    assert read_header(after).max_timestamp == 777


def test_tombstones_in_a_batch_of_log_append_time_get_a_horizon_and_keep_their_time() -> None:
    batch = bytearray(build_batch([Record(-1, 5, b"a"), Record(-1, 9, b"b", b"v")]))
    records.set_log_append_time(batch, 0, 777)
    made = history_of(bytes(batch))
    once = clean_once(made)
    assert [one.timestamp for one in kept(once)] == [777, 777]
    assert read_header(batches_in(once)[0]).base_timestamp == HORIZON
    later = clean_once(once, time_ms=HORIZON)
    assert [(one.key, one.timestamp) for one in kept(later)] == [(b"b", 777)]


@pytest.mark.parametrize("timestamp", [-1, 0, NOW, HORIZON + 5, (1 << 63) - 1])
def test_timestamps_stay_when_a_horizon_takes_the_place_of_the_first(timestamp: int) -> None:
    batch = build_batch([Record(-1, timestamp, b"a"), Record(-1, 5, b"b", b"v")])
    once = clean_once(history_of(batch))
    assert [one.timestamp for one in kept(once)] == [timestamp, 5]
    assert read_header(batches_in(once)[0]).max_timestamp == max(timestamp, 5)


def test_horizon_stays_when_more_records_go() -> None:
    once = clean_once(history_of(build_batch([Record(-1, 7, b"a"), Record(-1, 8, b"b", b"v")])))
    newer = build_batch([Record(-1, 9, b"b", b"w")])
    rows = [*once.rows, Span(CHUNK, 16, len(newer), BASE + 2, 1, 9)]
    again = clean_once(History(rows, [*once.data, newer], []), time_ms=NOW + 5)
    assert kept(again) == [Record(BASE, 7, b"a"), Record(BASE + 2, 9, b"b", b"w")]
    assert read_header(batches_in(again)[0]).base_timestamp == HORIZON


def test_retention_for_ever_does_not_overflow() -> None:
    made = history_of(build_batch([Record(-1, 7, b"a")]))
    cleaner = Cleaner(offsets_of(made), time_ms=NOW, delete_retention_ms=(1 << 63) - 1)
    merged = cleaner.clean(made.rows, made.data)
    (record,) = iterate(b"".join(merged.parts))
    assert record == Record(BASE, 7, b"a")


def test_records_without_a_key_go_and_the_last_batch_without_records_stays() -> None:
    after = clean_once(history_of(build_batch([Record(-1, 7, None, b"v")] * 3)))
    (span,), (data,) = after.rows, after.data
    assert (span.base_offset, span.next_offset) == (BASE, BASE + 3)
    assert data == records.empty_batch(BASE + 2)


LONG = b"k" * 41


@pytest.mark.parametrize("other", [LONG + b"k", b"j" + LONG[1:], b"k" * 40, b"", b"k" * 5000])
def test_long_keys_are_told_from_each_other_and_from_short_ones(other: bytes) -> None:
    batch = build_batch([Record(-1, 7, key, b"v") for key in (LONG, other, LONG)])
    assert [(one.key, one.offset) for one in kept(clean_once(history_of(batch)))] == [
        (other, BASE + 1),
        (LONG, BASE + 2),
    ]


def raw_batch(payload: bytes, *, count: int, last_delta: int | None = None) -> bytes:
    header = read_header(build_batch([Record()], leader_epoch=0))
    return records.assemble(
        header._replace(
            record_count=count, last_offset_delta=count - 1 if last_delta is None else last_delta
        ),
        payload,
    )


def broken(batch: bytes) -> bytes:
    """The batch with other bytes at its end, and the right CRC."""
    other = bytearray(batch[:-4] + bytes(4))
    records.set_log_append_time(other, 0, 5)
    return bytes(other)


RECORD = bytes((8 << 1, 0, 0, 0, 1 << 1)) + b"a" + bytes((1 << 1,)) + b"v\0"
"""Key a, value v, offset delta 0."""
SECOND = RECORD[:3] + bytes((1 << 1,)) + RECORD[4:]


def test_records_written_by_hand_are_compacted() -> None:
    made = history_of(raw_batch(RECORD + SECOND, count=2))
    assert [one.offset for one in kept(clean_once(made))] == [BASE + 1]


@pytest.mark.parametrize(
    "unreadable",
    [
        raw_batch(b"", count=1),
        raw_batch(RECORD, count=2),
        raw_batch(RECORD + b"\0", count=1),
        raw_batch(RECORD + SECOND[:-1], count=2),
        raw_batch(RECORD + RECORD, count=2),  # The same offset twice.
        raw_batch(SECOND + RECORD, count=2),
        raw_batch(RECORD + SECOND, count=2, last_delta=0),
        raw_batch(SECOND, count=1),  # An offset behind the batch's last.
        raw_batch(RECORD[:3] + b"\x01" + RECORD[4:], count=1),  # One before its first.
        raw_batch(b"\x0f" + RECORD[1:], count=1),
        raw_batch(b"\x11" + RECORD[1:], count=1),  # -9 bytes, and 9 follow.
        raw_batch(RECORD[:4] + b"\x03" + RECORD[5:], count=1),  # A key of -2 bytes.
        raw_batch(RECORD[:4] + b"\x0c" + RECORD[5:], count=1),  # One longer than the record.
        raw_batch(b"\xff" * 12, count=1),
        raw_batch(b"\xff" * 9 + b"\x7f" + RECORD[1:], count=1),
        broken(build_batch([Record(-1, 5, b"a", b"v")], codec=Codec.ZSTD, leader_epoch=0)),
    ],
)
def test_what_cannot_be_read_stays_whole_and_says_nothing_about_keys(unreadable: bytes) -> None:
    older = build_batch([Record(-1, 5, b"a", b"old")], leader_epoch=0)
    first, second = batches_in(clean_once(history_of(older, unreadable)))
    # But for the offset, which lies before the length.
    assert (first[8:], second[8:]) == (older[8:], unreadable[8:])


@UNHURRIED
@given(st.binary(max_size=60), st.integers(0, 5), st.integers(0, 5))
def test_whatever_the_bytes_cleaning_keeps_or_leaves_out_and_never_fails(
    payload: bytes, count: int, last_delta: int
) -> None:
    batch = raw_batch(payload, count=count, last_delta=last_delta)
    once = clean_once(history_of(batch))
    assert clean_once(once).data == once.data


@pytest.mark.parametrize(("limit", "most"), [("RECORDS_MAX", 2), ("PAYLOAD_BYTES_MAX", 18)])
def test_batch_that_would_take_much_memory_stays_whole(
    limit: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [
        build_batch([Record(-1, 5, b"a", b"v")] * count, codec=Codec.GZIP) for count in (2, 3)
    ]
    monkeypatch.setattr(walk_module, limit, most)
    assert [len(kept(clean_once(history_of(batch)))) for batch in batches] == [1, 3]


def test_tombstone_behind_what_cannot_be_read_stays() -> None:
    tombstone = build_batch([Record(timestamp=NOW, key=b"a", value=None)])
    made = history_of(raw_batch(b"\xff" * 12, count=1), tombstone)
    later = clean_once(clean_once(made), time_ms=HORIZON + 1)
    assert [record.key for record in iterate(batches_in(later)[-1])] == [b"a"]


def test_batch_of_an_unknown_codec_stays_whole() -> None:
    batch = bytearray(build_batch([Record(-1, 5, b"a", b"v")] * 2, leader_epoch=0))
    batch[22] |= 7
    records.set_log_append_time(batch, 0, 5)
    (after,) = batches_in(clean_once(history_of(bytes(batch))))
    assert after[8:] == batch[8:]


def transaction(*keys: bytes, producer_id: int = 4, sequence: int = 0) -> bytes:
    return build_batch(
        [Record(-1, 5, key, b"v") for key in keys],
        attributes=records.TRANSACTIONAL,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
    )


def end(*, commit: bool, producer_id: int = 4) -> Marker:
    return Marker(0, producer_id, 0, commit, 6)


def ends_left(made: History) -> list[int]:
    return [one.offset for one in seen(batches_in(made)) if one.control]


def test_end_of_a_transaction_stays_while_a_record_of_it_does() -> None:
    made = history_of(
        transaction(b"a", b"b"), end(commit=True), transaction(b"a"), end(commit=True)
    )
    for time_ms in (NOW, HORIZON, HORIZON * 2):
        made = clean_once(made, time_ms=time_ms)
        assert ends_left(made) == [BASE + 2, BASE + 4]


def test_end_of_a_transaction_goes_when_its_records_are_gone_and_the_horizon_has_passed() -> None:
    made = history_of(transaction(b"a"), end(commit=True), transaction(b"a"), end(commit=True))
    once = clean_once(made)
    assert ends_left(once) == [BASE + 1, BASE + 3]
    (first, *_) = batches_in(once)
    header = read_header(first)
    assert header.is_control
    assert (header.base_timestamp, header.max_timestamp) == (HORIZON, 6)
    assert [one.timestamp for one in iterate(first)] == [6]
    assert ends_left(clean_once(once, time_ms=HORIZON - 1)) == [BASE + 1, BASE + 3]
    assert ends_left(clean_once(once, time_ms=HORIZON)) == [BASE + 3]


def test_end_is_not_taken_for_that_of_another_producer() -> None:
    made = history_of(
        transaction(b"a"),
        transaction(b"b", producer_id=5),
        end(commit=True, producer_id=5),
        transaction(b"b"),
        end(commit=True),
    )
    once = clean_once(made)
    horizons = [
        bool(read_header(batch).attributes & records.DELETE_HORIZON)
        for batch in batches_in(once)
        if read_header(batch).is_control
    ]
    assert horizons == [True, False]


def test_record_outside_of_transactions_does_not_keep_the_end_of_one() -> None:
    plain = build_batch(
        [Record(-1, 5, b"a", b"v")], producer_id=4, producer_epoch=0, base_sequence=0
    )
    once = clean_once(history_of(plain, end(commit=True)))
    assert ends_left(once) == [BASE + 1]
    assert ends_left(clean_once(once, time_ms=HORIZON)) == []


def test_key_that_looks_like_that_of_a_control_record_is_no_such_thing() -> None:
    made = history_of(transaction(b"\0\0\0\1"), end(commit=True))
    assert seen(batches_in(clean_once(clean_once(made)))) == visible(made)


def test_keys_are_known_to_the_end_of_the_span_also_behind_its_last_record() -> None:
    once = clean_once(history_of(build_batch([Record(-1, 7, None, b"v")] * 3)))
    assert offsets_of(once).next_offset == BASE + 3


def test_aborted_records_go_and_are_not_taken_for_newer_ones() -> None:
    made = history_of(
        build_batch([Record(-1, 5, b"a", b"old")]), transaction(b"a"), end(commit=False)
    )
    made = made._replace(aborted=[(4, BASE + 1, BASE + 2)])
    once = clean_once(made)
    assert [one.value for one in kept(once)][:1] == [b"old"]
    assert ends_left(once) == [BASE + 2]
    assert ends_left(clean_once(once, time_ms=HORIZON)) == []


def test_end_keeps_its_place_when_rows_are_cleaned_in_windows() -> None:
    made = history_of(transaction(b"a"), end(commit=True))
    spans = cleaned(made, windows=(1,))
    (control,) = split(b"".join(spans[1][1].parts))
    assert not read_header(control).attributes & records.DELETE_HORIZON


def test_cleaner_counts_what_it_read() -> None:
    made = history_of(build_batch([Record(-1, 5, b"a", b"v")] * 3), end(commit=True))
    cleaner = Cleaner(offsets_of(made), time_ms=NOW, delete_retention_ms=RETENTION)
    merged = cleaner.clean(made.rows, made.data)
    assert (cleaner.records_read, merged.records) == (3, 2)


def test_keys_that_do_not_fit_end_the_map_before_their_batch() -> None:
    parts = [
        build_batch([Record(-1, 5, b"%d" % key, b"v") for key in keys])
        for keys in ((1, 2, 1), (2, 1), (3, 1), (1,))
    ]
    made = history_of(*parts)
    offsets = offsets_of(made, entries_max=2)
    assert (len(offsets), offsets.next_offset) == (2, BASE + 5)
    after = as_history(cleaned(made, offsets=offsets), made)
    assert [one.offset for one in kept(after)] == [BASE + number for number in (3, 4, 5, 6, 7)]


def test_first_batch_is_learned_whatever_its_keys() -> None:
    made = history_of(build_batch([Record(-1, 5, b"%d" % key) for key in range(9)]))
    offsets = offsets_of(made, entries_max=3)
    assert (len(offsets), offsets.next_offset) == (9, BASE + 9)


@pytest.mark.parametrize("kind", [ObjectKind.CHUNK, ObjectKind.SEGMENT])
def test_damaged_bytes_are_neither_learned_nor_cleaned(kind: ObjectKind) -> None:
    data = bytearray(build_batch([Record(-1, 5, b"k" * 20, b"v")], base_offset=BASE))
    data[70] ^= 4
    span = Span(ObjectId(SEGMENT.incarnation, 3, kind), 16, len(data), BASE, 1, 5)
    with pytest.raises(DamagedSpanError):
        OffsetMap(AMPLE).add(span, data, Aborted())
    cleaner = Cleaner(OffsetMap(AMPLE), time_ms=NOW, delete_retention_ms=RETENTION)
    with pytest.raises(DamagedSpanError):
        cleaner.clean([span], [data])
