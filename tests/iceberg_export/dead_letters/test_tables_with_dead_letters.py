"""Resets, upkeep and crashes where a table has dead letters beside it: each record in one of both."""

import pytest

from iceberg_export.dead_letters.dead_letter_table import dead_letter_identifier
from iceberg_export.errors import FencedError
from iceberg_export.runs.job import export_topic
from iceberg_export.steps import Step
from iceberg_export.upkeep.compact import compact
from iceberg_export.upkeep.maintain import delete_orphans
from iceberg_export.upkeep.reset import reset_offsets
from iceberg_export.verify.proof import verify_topic
from protocol.records import Record
from tests.iceberg_export.direct import TABLE, place
from tests.iceberg_export.hooks import Killed, Once

FAR = 1 << 50
NOT_TEXT = b"\xff"


@pytest.fixture
def here():
    with place(1) as found:
        found.world.configs["orders"] = {"value.mode": "string"}
        yield found


def send(here, *values):
    records = [Record(timestamp=1_763_000_000_000, value=value) for value in values]
    here.world.commit("orders", {0: [records]})


def export(here, **how):
    job = here.job(**how)
    return export_topic(job, here.topic(job))


def offsets(here, table):
    return sorted(here.catalog.load_table(table).scan().to_arrow()["kafka_offset"].to_pylist())


def both(here):
    """Offsets in the table, and among its dead letters."""
    return offsets(here, TABLE), offsets(here, dead_letter_identifier(TABLE))


def exact(here):
    job = here.job()
    return verify_topic(job, here.topic(job)).problems == ()


def reset(here, to):
    job = here.job()
    return reset_offsets(job, here.topic(job), to)


def die_between_the_tables(here):
    with pytest.raises(Killed):
        export(here, hook=Once(Step.COMMITTED, Killed()))


def test_going_back_takes_dead_letters_along(here):
    send(here, b"a", NOT_TEXT, b"b", NOT_TEXT)
    export(here)
    assert both(here) == ([0, 2], [1, 3])
    reset(here, {0: 1})
    assert both(here) == ([0], [])
    export(here)
    assert both(here) == ([0, 2], [1, 3])
    assert exact(here)


@pytest.mark.parametrize("to", [0, 1, 2, 4])
def test_going_back_after_a_crash_between_the_tables_loses_and_doubles_nothing(here, to):
    send(here, b"a", NOT_TEXT, b"b", NOT_TEXT)
    die_between_the_tables(here)
    reset(here, {0: to})
    assert both(here) == ([o for o in (0, 2) if o < to], [o for o in (1, 3) if o < to])
    export(here)
    assert both(here) == ([0, 2], [1, 3])
    assert exact(here)


@pytest.mark.parametrize("table", [TABLE, dead_letter_identifier(TABLE)])
def test_dead_letters_that_wait_for_their_commit_are_no_orphans(here, table):
    send(here, b"a")
    export(here)
    send(here, NOT_TEXT, b"b")
    die_between_the_tables(here)
    delete_orphans(here.job(), table, -1)
    export(here)
    assert both(here) == ([0, 2], [1])
    assert exact(here)


def test_a_run_that_slept_while_its_dead_letters_were_deleted_is_refused(here):
    send(here, b"a")
    export(here)
    send(here, NOT_TEXT, b"b")

    def slept():
        for path in here.folder.rglob("runs/*"):
            path.unlink()
        assert delete_orphans(here.job(), dead_letter_identifier(TABLE), -1).files_deleted > 0

    with pytest.raises(FencedError):
        export(here, hook=Once(Step.CHECKED, slept))
    export(here)
    assert both(here) == ([0, 2], [1])


def test_small_files_of_both_tables_are_joined(here):
    for _ in range(3):
        send(here, b"a", NOT_TEXT)
        export(here)
    assert compact(here.job(), TABLE, FAR).files_before == 3
    assert compact(here.job(), dead_letter_identifier(TABLE), FAR).files_before == 3
    send(here, b"a", NOT_TEXT)
    export(here)
    assert both(here) == ([0, 2, 4, 6], [1, 3, 5, 7])
    assert exact(here)
