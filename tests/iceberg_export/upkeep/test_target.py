"""Where an export is to go on, as people say it, and the offsets of a time."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from iceberg_export.errors import SettingsError
from iceberg_export.records.seek import lowest
from iceberg_export.upkeep.target import End, Time, find_offsets, parse_target, parse_time
from protocol.records import Record
from tests.iceberg_export.kit.world import InTransaction, some_records

FIRST_MS = 1_700_000_000_000
CHUNK = 5


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("earliest", End.EARLIEST),
        (" latest ", End.LATEST),
        ("{0:120}", {0: 120}),
        ("0:1,1:2", {0: 1, 1: 2}),
        ('{"0": 7, "3": 9}', {0: 7, 3: 9}),
    ],
)
def test_where_to_go_is_read(text, found):
    assert parse_target(text) == found


@pytest.mark.parametrize("text", ["newest", "", "{}", "0", "0:x", "-1:2", "0:1,0:2", "0:1,"])
def test_where_to_go_is_refused_when_it_cannot_be_read(text):
    with pytest.raises(SettingsError):
        parse_target(text)


def test_a_time_without_a_zone_is_utc_and_one_with_a_zone_is_taken_at_its_word():
    at = datetime(2026, 11, 27, 9, 30, tzinfo=UTC)
    wanted = Time(int(at.timestamp() * 1000))
    assert parse_time("2026-11-27T09:30:00") == parse_time("2026-11-27T09:30:00Z") == wanted
    east = at.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert parse_time(east.isoformat()) == wanted
    assert parse_time("2026-11-27T09:30:00.007") == Time(wanted.timestamp_ms + 7)
    for wrong in ("", "now", "1700000000000000", "2026-02-30"):
        with pytest.raises(SettingsError, match="is not a time"):
            parse_time(wrong)


def offsets(here, target, *sets):
    job = here.job(*sets)
    return find_offsets(job, here.topic(job), target)


def fill(here, chunks=4):
    """Chunks of both partitions; a record's time is FIRST_MS and its offset, in partition 1 an hour later."""
    for number in range(chunks):
        first = number * CHUNK
        late = some_records(CHUNK, first, FIRST_MS + 3_600_000)
        here.world.commit("orders", {0: [some_records(CHUNK, first)], 1: [late]})


def test_the_ends_of_the_log_are_offsets(here):
    fill(here)
    assert offsets(here, End.EARLIEST) is None
    assert offsets(here, End.LATEST) == {0: 20, 1: 20}
    assert offsets(here, {1: 3}) == {1: 3}


@pytest.mark.parametrize("sets", [(), ("commit.bytes.max=1",)])
@pytest.mark.parametrize(
    ("millis", "wanted"),
    [
        (0, {0: 0, 1: 0}),
        (FIRST_MS + 7, {0: 7, 1: 0}),
        (FIRST_MS + 19, {0: 19, 1: 0}),
        (FIRST_MS + 20, {0: 20, 1: 0}),
        (FIRST_MS + 3_600_000 + 13, {0: 20, 1: 13}),
        (1 << 60, {0: 20, 1: 20}),
    ],
)
def test_a_time_is_the_first_record_at_or_after_it_or_the_end(here, millis, wanted, sets):
    fill(here)
    assert offsets(here, Time(millis), *sets) == wanted


def test_of_what_several_tasks_find_the_first_counts():
    assert lowest([{0: 7}, {1: 4}, {0: 3, 1: 9}, {}]) == {0: 3, 1: 4}


def test_a_time_is_the_first_record_also_where_later_ones_are_older(here):
    stamps = [5, 9, 3, 9, 20, 1]
    records = [Record(timestamp=FIRST_MS + at, key=None, value=b"v") for at in stamps]
    here.world.commit("orders", {0: [records]})
    found = [offsets(here, Time(FIRST_MS + at))[0] for at in (1, 6, 9, 10, 21)]
    assert found == [0, 1, 1, 4, 6]


def test_records_of_aborted_and_open_transactions_are_not_what_is_sought(here):
    here.world.commit("orders", {0: [InTransaction(1, some_records(3))]})
    here.world.end("orders", 0, 1, commit=False)
    here.world.commit("orders", {0: [some_records(2, 3)]})
    here.world.commit("orders", {0: [InTransaction(2, some_records(4, 5))]})
    assert offsets(here, Time(FIRST_MS))[0] == 4
    assert offsets(here, Time(FIRST_MS + 5))[0] == 6


def test_of_a_segment_whose_newest_record_is_older_nothing_is_read(here):
    fill(here)
    here.world.compact("orders", 0, set(range(10)), spans=2)
    (segment, *_) = here.log().spans
    segment[5] = FIRST_MS + 9
    (here.world.folder / segment[0]).unlink()
    assert offsets(here, Time(FIRST_MS + 12))[0] == 12


def test_what_a_chunk_says_of_its_newest_record_is_not_believed(here):
    fill(here)
    for span in here.log().spans:
        span[5] = 1
    assert offsets(here, Time(FIRST_MS + 7))[0] == 7
