"""Resets, upkeep and crashes where a table has dead letters beside it: each record in one of both."""

import pytest

from iceberg_export.errors import FencedError, OvertakenError
from iceberg_export.steps import Step
from iceberg_export.upkeep.compact import compact
from iceberg_export.upkeep.maintain import delete_orphans
from tests.iceberg_export.kit.hooks import Killed, Once
from tests.iceberg_export.kit.place import DEAD_TABLE, FAR, TABLE, place

NOT_TEXT = b"\xff"


@pytest.fixture
def here():
    with place(1) as found:
        found.configure(value_mode="string")
        yield found


def both(here):
    """Offsets in the table, and among its dead letters."""
    return [row[1] for row in here.rows()], here.dead_offsets()


def exact(here):
    return here.verify().problems == ()


def die_between_the_tables(here):
    with pytest.raises(Killed):
        here.export(hook=Once(Step.COMMITTED, Killed()))


def test_going_back_takes_dead_letters_along(here):
    here.send(b"a", NOT_TEXT, b"b", NOT_TEXT)
    here.export()
    assert both(here) == ([0, 2], [1, 3])
    here.reset({0: 1})
    assert both(here) == ([0], [])
    here.export()
    assert both(here) == ([0, 2], [1, 3])
    assert exact(here)


@pytest.mark.parametrize("to", [0, 1, 2, 4])
def test_going_back_after_a_crash_between_the_tables_loses_and_doubles_nothing(here, to):
    here.send(b"a", NOT_TEXT, b"b", NOT_TEXT)
    die_between_the_tables(here)
    here.reset({0: to})
    assert both(here) == ([o for o in (0, 2) if o < to], [o for o in (1, 3) if o < to])
    here.export()
    assert both(here) == ([0, 2], [1, 3])
    assert exact(here)


def partition_letters(here):
    """As people do who have many of them."""
    with here.table(DEAD_TABLE).update_spec() as update:
        update.add_identity("error_code")


@pytest.mark.parametrize("when", ["before", "after", "meanwhile"])
def test_dead_letters_whose_table_others_have_partitioned_come_after_a_crash(here, when):
    here.send(NOT_TEXT, b"a")
    here.export()
    if when == "before":
        partition_letters(here)
    here.send(b"b", NOT_TEXT, NOT_TEXT)
    if when == "meanwhile":
        with pytest.raises(OvertakenError, match="partitioned anew by others"):
            here.export(hook=Once(Step.COMMITTED, lambda: partition_letters(here)))
    else:
        die_between_the_tables(here)
    if when == "after":
        partition_letters(here)
    here.send(NOT_TEXT)
    here.export()
    assert both(here) == ([1, 2], [0, 3, 4, 5])
    assert exact(here)


@pytest.mark.parametrize("table", [TABLE, DEAD_TABLE])
def test_dead_letters_that_wait_for_their_commit_are_no_orphans(here, table):
    here.send(b"a")
    here.export()
    here.send(NOT_TEXT, b"b")
    die_between_the_tables(here)
    delete_orphans(here.job(), table, -1)
    here.export()
    assert both(here) == ([0, 2], [1])
    assert exact(here)


def test_a_run_that_slept_while_its_dead_letters_were_deleted_is_refused(here):
    here.send(b"a")
    here.export()
    here.send(NOT_TEXT, b"b")

    def slept():
        here.lose_marks()
        assert delete_orphans(here.job(), DEAD_TABLE, -1).files_deleted > 0

    with pytest.raises(FencedError):
        here.export(hook=Once(Step.CHECKED, slept))
    here.export()
    assert both(here) == ([0, 2], [1])


def test_small_files_of_both_tables_are_joined(here):
    for _ in range(3):
        here.send(b"a", NOT_TEXT)
        here.export()
    assert compact(here.job(), TABLE, FAR).files_before == 3
    assert compact(here.job(), DEAD_TABLE, FAR).files_before == 3
    here.send(b"a", NOT_TEXT)
    here.export()
    assert both(here) == ([0, 2, 4, 6], [1, 3, 5, 7])
    assert exact(here)
