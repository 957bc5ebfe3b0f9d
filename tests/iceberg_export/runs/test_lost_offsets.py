"""What was declared lost is in no table; the table's state says so, and status and proof tell it."""

import json

import pytest

from iceberg_export.cli.main import _remarks
from iceberg_export.dead_letters.counts import LetterCounts
from iceberg_export.runs.status import render, render_json, topic_status
from iceberg_export.table.catalog import state_of
from iceberg_export.table.state import LostOffsets
from tests.iceberg_export.kit.place import place

DECLARED_MS = 1_700_000_000_000
SENTENCE = "partition 1: offsets 5 to 9 were declared lost on 2023-11-14 22:13:20 UTC"
LOST = LostOffsets(1, 5, 10, DECLARED_MS)


@pytest.fixture(params=["append", "upsert"])
def here(request):
    """Three chunks of five records in each of two partitions; the second of partition 1 is lost."""
    with place() as found:
        found.configure(mode=request.param)
        fill_and_lose(found)
        yield found


def fill_and_lose(here):
    for _ in range(3):
        here.fill(5)
    here.world.lose("orders", 1, 1, DECLARED_MS)


def state(here):
    return state_of(here.table())


def test_the_commit_that_reads_over_what_was_declared_lost_records_it(here):
    here.export()
    assert state(here).lost == (LOST,)
    assert state(here).gaps == ()
    here.fill(5)
    here.export()
    assert state(here).lost == (LOST,)


def test_the_proof_holds_and_tells_what_was_declared_lost(here):
    here.export()
    verdict = here.verify()
    assert verdict.problems == ()
    assert verdict.lost == (LOST,)
    assert SENTENCE in _remarks(verdict)


def test_status_tells_what_was_declared_lost(here):
    here.export()
    job = here.job()
    found = topic_status(job, here.topic(job), LetterCounts())
    assert f"orders, {SENTENCE}" in render([found], 0).splitlines()
    (told,) = json.loads(render_json([found], 0))["topics"]
    assert told["declared_lost"] == [LOST._asdict()]


def test_commits_that_end_within_the_lost_offsets_record_their_parts_as_one(here):
    here.world.rows_max = 1
    here.export("commit.bytes.max=1")
    assert state(here).lost == (LOST,)


def test_what_was_lost_after_it_was_exported_is_in_the_table_and_no_gap_of_it(here):
    here.export()
    here.world.lose("orders", 0, 2, DECLARED_MS)
    here.fill(5)
    here.export()
    assert state(here).lost == (LOST,)
    assert here.verify().problems == ()


def test_a_reset_to_before_it_forgets_it_until_it_is_read_over_again(here):
    here.export()
    here.reset({0: 0, 1: 7})
    assert state(here).lost == (LOST._replace(end=7),)
    here.export()
    assert state(here).lost == (LOST,)


def test_lost_offsets_in_gaps_that_are_filled_later_are_recorded_then():
    with place() as here:
        fill_and_lose(here)
        here.export()
        here.reset({0: 0, 1: 0})
        here.reset({0: 15, 1: 15})
        assert state(here).lost == ()
        here.backfill()
        assert state(here).lost == (LOST,)
        assert here.verify().problems == ()
