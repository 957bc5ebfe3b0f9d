"""Records as pages say them: questions, texts, times, batches, searches, forms."""

import itertools
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.console.views.record_batches import (
    RECORDS_PASSED_A_SLICE,
    AbortedBatches,
    FoundRecord,
    Kept,
    has,
    records_of,
)
from broker.console.views.record_form import (
    FormError,
    RecordForm,
    form_of,
    murmur2,
    record_of,
)
from broker.console.views.record_questions import (
    QuestionError,
    RecordsAsked,
    Start,
    records_asked,
)
from broker.console.views.record_search import Place, RecordSearch
from broker.console.views.record_text import indented, shown_bytes
from broker.console.views.record_times import time_of, time_text
from protocol.records import TRANSACTIONAL, BatchHeader, Record, build_batch, read_header

HEADER = read_header(build_batch([Record(value=b"")]))


@given(st.integers(0, 253_402_300_799_999))
def test_a_time_is_read_as_it_is_written(time_ms: int) -> None:
    assert time_of(time_text(time_ms)) == time_of(str(time_ms)) == time_ms


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (0, "1970-01-01 00:00:00.000"),
        (951_782_399_999, "2000-02-28 23:59:59.999"),
        (951_782_400_000, "2000-02-29 00:00:00.000"),
        (4_107_542_400_000, "2100-03-01 00:00:00.000"),
        (-1, "-1"),
    ],
)
def test_times_of_the_calendar(time_ms: int, text: str) -> None:
    assert time_text(time_ms) == text


@pytest.mark.parametrize(
    "text", ["", "now", "2026-02-29", "2026-13-01", "2026-01-01T24:00", "1" * 16]
)
def test_what_is_no_time_is_told_so(text: str) -> None:
    with pytest.raises(ValueError, match="is no time"):
        time_of(text)


ASKED = st.builds(
    RecordsAsked,
    topic=st.text(max_size=20),
    partition=st.none() | st.integers(0, 10**6),
    start=st.sampled_from([Start.NEWEST, Start.BEGINNING]),
    search=st.text(max_size=20),
    committed=st.booleans(),
    where=st.just(""),
    at=st.just({}),
    is_back=st.just(False),
)


@given(
    ASKED,
    st.dictionaries(st.integers(0, 10**6), st.integers(0, 10**12), min_size=1, max_size=64),
    st.booleans(),
)
def test_an_address_asks_for_what_it_was_made_of(
    asked: RecordsAsked, places: dict[int, int], is_back: bool
) -> None:
    assert records_asked(asked.query()) == asked
    expected = asked._replace(at=places, is_back=is_back)
    assert records_asked(asked.query(places, is_back=is_back)) == expected


def test_no_page_has_more_places_than_it_may() -> None:
    with pytest.raises(QuestionError, match="64"):
        records_asked({"at": ".".join(f"{each}:0" for each in range(65))})


@given(st.binary(max_size=100), st.integers(1, 60))
def test_what_is_shown_of_bytes_is_no_longer_than_asked_for_and_true(
    data: bytes, most: int
) -> None:
    shown = shown_bytes(data, characters_max=most)
    assert shown.size == len(data)
    if shown.form == "hex":
        digits = shown.text.replace(" ", "")
        assert (data.hex() if not shown.is_cut else data.hex()[: len(digits)]) == digits
        assert len(digits) <= most
    else:
        assert len(shown.text) <= most
        assert data.decode(errors="replace").startswith(shown.text)
        assert shown.is_cut == (shown.text.encode() != data)


@pytest.mark.parametrize("data", [b"\xff", b"\x00\x00\x00\x05", b"ab\x1b[31m", "ä".encode()[:1]])
def test_what_no_text_has_is_hexadecimal(data: bytes) -> None:
    assert shown_bytes(data, characters_max=100).form == "hex"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda each: (
        st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=5), each, max_size=3)
    ),
    max_leaves=10,
)


@given(st.lists(JSON, max_size=3) | st.dictionaries(st.text(max_size=5), JSON, max_size=3))
def test_json_laid_out_is_as_pythons_and_says_the_same(value: object) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, separators=(",", ":"))):
        laid_out = indented(text)
        assert laid_out is not None
        assert json.loads(laid_out) == value
    assert indented(json.dumps(value)) == json.dumps(value, indent=2)


def test_json_keeps_its_numbers_as_they_were_written() -> None:
    assert indented("[1.10,1E400]") == "[\n  1.10,\n  1E400\n]"
    assert indented("[1,") is None
    assert indented("[" * 100_000 + "]" * 100_000) is None


def test_what_was_aborted_is_hidden_until_its_marker_and_what_others_wrote_is_not() -> None:
    def header(offset: int, producer: int, *, control: bool = False) -> BatchHeader:
        flags = TRANSACTIONAL | (0x20 if control else 0)
        return HEADER._replace(base_offset=offset, producer_id=producer, attributes=flags)

    aborted = AbortedBatches([(8, 10), (7, 2)])
    assert not aborted.hides(header(1, 7), None)
    assert aborted.hides(header(2, 7), None)
    assert not aborted.hides(header(3, 8), None)
    assert aborted.hides(header(4, 7, control=True), 0)
    assert not aborted.hides(header(5, 7), None)
    assert aborted.hides(header(10, 8), None)
    # A marker of a commit is hidden as well, and ends nothing that was aborted.
    assert aborted.hides(header(11, 9, control=True), 1)


def test_a_record_is_found_by_its_key_value_or_headers_whatever_the_case() -> None:
    record = Record(key=b"Ann", value=None, headers=(("Trace", b"SEVEN"),))
    assert all(has(record, each) for each in (b"", b"ann", b"trace", b"even"))
    assert not has(record, b"bob")


def test_records_of_a_batch_come_in_slices_within_what_was_asked_for() -> None:
    batch = build_batch([Record(value=b"v%d" % each) for each in range(500)], base_offset=100)
    work = records_of(batch, 3, first=150, stop=590, needle=b"v")
    slices = list(work)
    told = [(len(each.found), each.looked) for each in slices]
    assert told == [(0, 0), (200, 200), (200, 200), (40, 40)]
    offsets = [one.record.offset for each in slices for one in each.found]
    assert offsets == list(range(150, 590))


def test_records_before_what_is_asked_for_are_passed_over_a_slice_at_a_time_and_not_looked_at() -> (
    None
):
    count = 2 * RECORDS_PASSED_A_SLICE + 5
    batch = build_batch([Record(key=b"k", value=b"%d" % each) for each in range(count)])
    slices = list(records_of(batch, 0, first=count - 3, stop=count, needle=b""))
    assert [each.looked for each in slices] == [0, 0, 0, 3]
    assert [one.record.value for one in slices[-1].found] == [b"10002", b"10003", b"10004"]


def test_of_a_batch_that_was_compacted_no_record_is_passed_over() -> None:
    made = [Record(offset=each, value=b"%d" % each) for each in (0, 7, 8, 30)]
    batch = build_batch(made)
    assert read_header(batch).last_offset == 30
    (part,) = records_of(batch, 0, first=8, stop=31, needle=b"")
    assert ([one.record.offset for one in part.found], part.looked) == ([8, 30], 4)
    kept = Kept(0, 2, goes_back=True)
    assert kept.begins(read_header(batch), 0, 31) == 0


def test_going_back_the_last_records_of_a_batch_are_all_that_is_looked_at() -> None:
    header = read_header(build_batch([Record(value=b"v")] * 20_000))
    kept = Kept(0, 50, goes_back=True)
    kept.add([FoundRecord(0, Record(offset=3), HEADER)])
    assert kept.begins(header, 0, 20_000) == 19_950
    assert (kept.found, kept.first, kept.is_cut) == ([], 19_950, True)
    # Of those that are asked for, which may end within the batch.
    assert Kept(0, 50, goes_back=True).begins(header, 0, 100) == 50
    assert Kept(0, 50, goes_back=True).begins(header, 70, 100) == 70
    assert Kept(0, 50, goes_back=False).begins(header, 0, 20_000) == 0


def read_all(
    logs: dict[int, list[int]],
    *,
    goes_back: bool,
    limit: int,
    cuts: list[int],
    batch: int,
    step: int,
) -> list[list[tuple[int, int]]]:
    """All pages of partitions that have records at these offsets, a fetch giving so many at a time."""
    pages: list[list[tuple[int, int]]] = []
    at: dict[int, int] | None = None
    cut = itertools.cycle(cuts or [1000])
    while at is None or at:
        places = []
        for number, offsets in logs.items():
            end = offsets[-1] + 2 if offsets else 0
            begin = end if goes_back else 0
            places.append(
                Place(number, 0, end, begin if at is None else at[number], lambda a, b, _: b - a)
            )
        search = RecordSearch(
            places, goes_back=goes_back, limit=limit, window=3, window_max=20, bytes_max=0
        )
        for rounds in range(1000):
            wanted = search.wanted(begins=rounds < next(cut) or rounds == 0)
            if not wanted:
                break
            for one in wanted:
                base = one.offset - one.offset % batch
                # What cannot be read is passed over from the middle of a batch on.
                reached = min(base + batch, one.offset + step)
                found = [
                    FoundRecord(one.partition, Record(offset=each, timestamp=each), HEADER)
                    for each in logs[one.partition]
                    if max(base, one.first) <= each < min(reached, one.stop)
                ]
                kept = Kept(max(one.first, min(one.offset, base)), one.most, goes_back=goes_back)
                there = [each for each in logs[one.partition] if base <= each < base + batch]
                header = HEADER._replace(
                    base_offset=base, last_offset_delta=batch - 1, record_count=len(there)
                )
                first = kept.begins(header, one.first, one.stop) if there else one.first
                for each in found:
                    if each.record.offset >= first:
                        kept.add([each])
                kept.reach(reached)
                search.took(one.partition, kept)
        shown = search.page()
        assert len(shown) <= limit
        pages.append([(each.partition, each.record.offset) for each in shown])
        at = search.further(shown)
        assert len(pages) < 1000
    return pages


LOGS = st.dictionaries(
    st.integers(0, 3), st.sets(st.integers(0, 60)).map(sorted), min_size=1, max_size=3
)


@given(
    LOGS,
    st.booleans(),
    st.integers(1, 10),
    st.lists(st.integers(1, 4), max_size=3),
    st.integers(1, 9),
    st.integers(1, 9),
)
@example({0: list(range(60))}, True, 2, [], 9, 9)
@example({0: list(range(60))}, True, 2, [], 9, 2)
@example({0: [*range(19), 49]}, True, 1, [], 4, 9)
@example({0: list(range(60)), 1: list(range(0, 60, 7))}, True, 1, [1], 8, 5)
@example({0: list(range(60)), 1: list(range(0, 60, 7))}, False, 3, [1], 8, 5)
def test_pages_have_every_record_once_in_the_order_of_its_partition_wherever_reading_stops(
    logs: dict[int, list[int]], goes_back: bool, limit: int, cuts: list[int], batch: int, step: int
) -> None:
    pages = read_all(logs, goes_back=goes_back, limit=limit, cuts=cuts, batch=batch, step=step)
    seen = list(itertools.chain(*pages))
    for number, offsets in logs.items():
        mine = [offset for partition, offset in seen if partition == number]
        assert mine == (offsets[::-1] if goes_back else offsets)


def test_a_window_that_was_not_read_to_its_end_shows_nothing_and_is_told_of() -> None:
    place = Place(0, 0, 100, 100, lambda first, stop, _: stop - first)
    search = RecordSearch([place], goes_back=True, limit=10, window=10, window_max=10, bytes_max=1)
    search.wanted(begins=True)
    kept = Kept(90, 10, goes_back=True)
    kept.add([FoundRecord(0, Record(offset=90), HEADER)])
    kept.reach(95)
    search.took(0, kept)
    assert (search.unfinished, search.page(), search.further([])) == ([0], [], {0: 100})


def test_a_window_has_no_more_bytes_than_it_may() -> None:
    place = Place(0, 0, 1000, 1000, lambda first, stop, _: (stop - first) * 10_000)
    search = RecordSearch(
        [place], goes_back=True, limit=50, window=500, window_max=500, bytes_max=400_000
    )
    (one,) = search.wanted(begins=True)
    assert one.offset == 1000 - 20


@pytest.mark.parametrize(
    ("data", "expected"),
    [  # Of Kafka's own tests (UtilsTest.testMurmur2).
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_are_hashed_as_kafkas_clients_hash_them(data: bytes, expected: int) -> None:
    assert murmur2(data) == expected % (1 << 32)


def test_a_form_says_bytes_and_without_a_key_any_partition() -> None:
    for none in ({}, {"key_form": "null"}):
        form = form_of({"topic": "t", "value": "00 ff", "value_form": "hex"} | none)
        record = record_of(form, partition_count=4, draw=7)
        assert record == (3, None, b"\x00\xff", ())
    empty = RecordForm("t", key_form="hex")
    assert record_of(empty, partition_count=4, draw=7).key == b""
    form = RecordForm("t", key="k", headers="a: 1\n\nb:")
    record = record_of(form, partition_count=4, draw=7)
    assert (record.key, record.value, record.headers) == (b"k", b"", (("a", b"1"), ("b", b"")))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"value_form": "null", "value": "x"}, "is null, and has a text"),
        ({"value_form": "hex", "value": "0"}, "is not hexadecimal"),
        ({"value_form": "JSON", "value": "NaN"}, "is not JSON"),
        ({"value_form": "JSON", "value": "[" * 100_000}, "is not JSON"),
        ({"value_form": "else"}, "is none of"),
        ({"value": "\ud800"}, "half a character"),
        ({"headers": "a: 1\n" * 101}, "100 are allowed"),
        ({"partition": "-1"}, "a number from 0 to 3"),
    ],
)
def test_what_is_no_record_is_told_why(wrong: dict[str, str], said: str) -> None:
    with pytest.raises(FormError, match=said):
        record_of(form_of({"topic": "t"} | wrong), partition_count=4, draw=0)
