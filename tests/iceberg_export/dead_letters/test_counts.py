"""Dead letters by reason, as `status` and Prometheus tell them."""

from pathlib import Path

import pytest

from iceberg_export.dead_letters.counts import LetterCounts
from iceberg_export.runs.status import render, topic_status
from tests.iceberg_export.dead_letters.story import GOOD, LATE, NEVER, letters
from tests.iceberg_export.kit.place import DEAD_TABLE
from tests.iceberg_export.kit.strangers import delete_row


@pytest.fixture
def here():
    with letters() as found:
        yield found


def export_letters(here):
    here.send(GOOD, NEVER, LATE, NEVER)
    here.export()


def status_of(here, counts=None):
    job = here.job()
    return topic_status(job, here.place.topic(job), counts or LetterCounts())


def lose_dead_files(here):
    for task in here.table(DEAD_TABLE).scan().plan_files():
        Path(task.file.file_path.removeprefix("file://")).unlink()


def test_letters_are_counted_by_reason_the_most_frequent_first(here):
    export_letters(here)
    counts = LetterCounts().by_code(here.table(DEAD_TABLE))
    assert list(counts.items()) == [("NOT_FRAMED", 2), ("SCHEMA_UNKNOWN", 1)]


def test_letters_that_people_deleted_do_not_count(here):
    export_letters(here)
    counts = LetterCounts()
    assert status_of(here, counts).dlq_rows == 3
    delete_row(here.table(DEAD_TABLE), 0, 1)
    status = status_of(here, counts)
    assert (status.dlq_rows, sum(status.dlq_by_code.values())) == (2, 2)


def test_letters_of_a_snapshot_are_counted_once(here):
    export_letters(here)
    counts = LetterCounts()
    before = counts.by_code(here.table(DEAD_TABLE))
    lose_dead_files(here)
    assert counts.by_code(here.table(DEAD_TABLE)) == before


def test_letters_that_cannot_be_read_hide_nothing_else(here):
    export_letters(here)
    lose_dead_files(here)
    status = status_of(here)
    assert (status.problem, status.lag, status.dlq_rows, status.dlq_by_code) == ("", 0, 3, None)
    assert "3 records in frazil.orders__dlq (reasons unknown)" in render([status], 0)


def test_a_topic_without_letters_has_none_of_any_reason(here):
    here.send(GOOD)
    here.export()
    status = status_of(here)
    assert (status.dlq_rows, status.dlq_by_code) == (0, {})
